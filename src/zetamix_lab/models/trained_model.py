"""A trained network with the normalisation it was trained with."""

from torch import Tensor, nn


class TrainedModel(nn.Module):
    """A trained network with the normalisation it was trained with.

    shape: of one sample.
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
        self.network, self.shape, self.is_bytes = network, shape, is_bytes
        self.temperature = temperature
        self.classes = classes
        """Class names, in the order of the logits."""
        channels = (1, -1, *[1] * (len(shape) - 1))
        self.register_buffer("mean", mean.view(channels))
        self.register_buffer("std", std.view(channels))

    def forward(self, samples: Tensor) -> Tensor:
        """Logits [n, classes].

        samples: images [n, channels, height, width], either bytes or floating point in [0, 1]; or
            points [n, coordinates]. `zetamix_lab.data.read_image` reads a file as it was read for
            training.
        """
        if samples.shape[1:] != self.shape:
            raise ValueError(
                f"Expected a batch of samples of shape {list(self.shape)}, as in training, got "
                f"{list(samples.shape)}. Read files with zetamix_lab.data.read_image(path, "
                "model.shape), and add a dimension for the batch."
            )
        if self.is_bytes and len(self.shape) == 3 and samples.is_floating_point():
            # not on a GPU, to avoid a sync; interpolation may overshoot [0, 1] by a few tenths
            seen = samples.device.type == "cpu" and samples.numel() > 0
            low, high = map(float, samples.aminmax()) if seen else (0.0, 1.0)
            if low < -0.5 or high > 1.5:
                raise ValueError(
                    f"Expected images of dtype uint8 or in [0, 1], got values from {low:g} to "
                    f"{high:g}. Do not normalise them: the model does. Divide images in [0, 255] "
                    "by 255."
                )
            samples = 255 * samples
        scaled = (samples.float() - self.get_buffer("mean")) / self.get_buffer("std")
        logits: Tensor = self.network(scaled) / self.temperature
        return logits
