"""A trained network with the normalisation it was trained with."""

import math
import warnings

import torch
from torch import Tensor, nn

from zetamix_lab.text import plural


class TrainedModel(nn.Module):
    """A trained network with the normalisation it was trained with.

    shape: of one sample in training; most networks accept images of other sizes too.
    mean, std: of each channel, in the units of the stored samples.
    is_bytes: whether it was trained on uint8 images; otherwise inputs must be in the units of the
        training data.
    temperature: divides the logits.
    """

    def __init__(
        self,
        network: nn.Module,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        mean: Tensor,
        std: Tensor,
        *,
        is_bytes: bool = True,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        for name, values, low in (("mean", mean, -math.inf), ("std", std, 0.0)):
            found = values.tolist()
            if len(found) != shape[0] or not all(low < each < math.inf for each in found):
                raise ValueError(
                    f"{name} must be a finite number{' above 0' * (low == 0)} for each of "
                    f"{plural(shape[0], 'channel')}, got {found}."
                )
        self.network, self.shape, self.is_bytes = network, shape, is_bytes
        self.temperature = temperature
        self.classes = classes
        """Class names, in the order of the logits."""
        channels = (1, -1, *[1] * (len(shape) - 1))
        self.register_buffer("mean", mean.view(channels))
        self.register_buffer("std", std.view(channels))

    def forward(self, samples: Tensor) -> Tensor:
        """Logits [n, classes].

        samples: images [n, channels, height, width], either bytes or floating point in [0, 1] as
            a `Loader` yields them; or points [n, coordinates]. `zetamix_lab.data.read_image` reads
            a file as it was read for training.
        """
        if not isinstance(samples, Tensor):
            raise TypeError(
                f"Expected a tensor [n, {', '.join(map(str, self.shape))}], got "
                f"{type(samples).__name__}. For a file, use "
                "model(zetamix_lab.data.read_image(path, model.shape)[None])."
            )
        if samples.ndim != 1 + len(self.shape) or samples.shape[1] != self.shape[0]:
            raise ValueError(
                f"Expected a batch of samples of shape {list(self.shape)}, as in training, got "
                f"{list(samples.shape)}."
            )
        if samples.shape[1:] != self.shape:
            sizes = [" × ".join(map(str, size)) for size in (self.shape[1:], samples.shape[2:])]
            warnings.warn(
                f"This model was trained on images of {sizes[0]}, got {sizes[1]}. Resize them as "
                "in training: other sizes lower its accuracy.",
                stacklevel=2,
            )
        if self.is_bytes and len(self.shape) == 3 and samples.is_floating_point():
            _check_unit_range(samples)
            samples = 255 * samples
        scaled = (samples.float() - self.get_buffer("mean")) / self.get_buffer("std")
        try:
            logits: Tensor = self.network(scaled) / self.temperature
        except RuntimeError as error:
            # a network that takes larger images may need more memory for them than a GPU has
            if samples.shape[1:] == self.shape or isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            raise ValueError(
                f"This model takes only samples of shape {list(self.shape)}, got "
                f"{list(samples.shape[1:])}. Resize them as in training."
            ) from error
        return logits


def _check_unit_range(images: Tensor) -> None:
    """Raise for images that are already normalised, or in [0, 255]; not on a GPU, to avoid a sync.

    Interpolation may overshoot [0, 1] by a few tenths.
    """
    if images.device.type == "cpu" and images.numel():
        low, high = (float(bound) for bound in images.aminmax())
        if low < -0.5 or high > 1.5:
            raise ValueError(
                f"Expected images of dtype uint8 or in [0, 1], got values from {low:g} to "
                f"{high:g}. Do not normalise them: the model does. Divide images in [0, 255] by "
                "255."
            )
