"""timm: `Mixing` and `FastCollateMixing`, the transforms of this library by timm's interface.

To use them in timm's training script, change one import:
`from zetamix.integrations.timm import FastCollateMixing as FastCollateMixup, Mixing as Mixup`.
"""

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from timm.data import mixup as timm_mixup
from timm.data.constants import IMAGENET_DEFAULT_MEAN
from timm.data.loader import fast_collate
from torch import Tensor

from zetamix.checks import check_number
from zetamix.transforms import BatchMix, ZetaMix, check_transform


class Mixing(timm_mixup.Mixup):
    """A replacement for `timm.data.Mixup`: mixes normalised images on the device by `ZetaMix`.

    Batches may have any size, the input is not modified, and all random numbers come from torch.
    `mixup_enabled` is shared with loader workers that are already running.

    mixup_alpha, cutmix_alpha: values above 0 enable blending and pasting, whatever they are, since
        `ZetaMix` draws γ instead of λ ~ Beta(α, α); with both at 0 nothing is mixed.
    cutmix_minmax: must be None; not supported.
    prob: the probability that an output is mixed, drawn for each output.
    switch_prob: the probability of pasting if both are enabled.
    mode: accepted as timm's, and not used: weights and boxes are drawn for each output.
    correct_lam: must be True: targets are always the exact fractions of pixels.
    label_smoothing: targets become (1 − amount) · target + amount / num_classes.
    transform: mix by this transform, such as `zetamix.MixupOrCutMix`; of the other arguments only
        `label_smoothing` then applies.
    mean: for images in [0, 1] or uint8; without it, images are assumed normalised.
    generator: the only source of randomness; None uses torch's default generator of the device.

    timm's script ends mixing itself, with `--mixup-off-epoch`. In a loop of your own call
    `mixing.transform.set_epoch(epoch, epochs)`.

    >>> mixing = Mixing(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    >>> images, targets = mixing(torch.randn(8, 3, 32, 32), torch.arange(8))
    >>> targets.shape
    torch.Size([8, 10])
    """

    default_mean: Sequence[float] | None = None

    def __init__(
        self,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 0.0,
        cutmix_minmax: Sequence[float] | None = None,
        prob: float = 1.0,
        switch_prob: float = 0.5,
        mode: str = "batch",
        correct_lam: bool = True,
        label_smoothing: float = 0.1,
        num_classes: int = 1000,
        *,
        transform: BatchMix | None = None,
        mean: float | Sequence[float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        # timm's constructor is not called: its attributes are not used
        if cutmix_minmax is not None or not correct_lam:
            raise ValueError(
                "cutmix_minmax and correct_lam=False are not supported, got "
                f"cutmix_minmax={cutmix_minmax}, correct_lam={correct_lam}. Remove them: "
                "cutmix_alpha above 0 pastes boxes, and targets are exact fractions of pixels."
            )
        check_number("label_smoothing", label_smoothing, low=0, high=1)
        self.label_smoothing = label_smoothing
        if transform is None:
            blends, pastes = mixup_alpha > 0, cutmix_alpha > 0
            paste = 0.0 if not pastes else switch_prob if blends else 1.0
            transform = ZetaMix(
                num_classes=num_classes,
                paste=paste,
                p=prob if blends or pastes else 0.0,
                mean=self.default_mean if mean is None else mean,
                generator=generator,
            )
        elif generator is not None:
            raise ValueError("Pass the generator to the transform, not to Mixing.")
        check_transform(transform)
        self.transform = transform

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transform}, label_smoothing={self.label_smoothing})"

    @property
    def mixup_enabled(self) -> bool:
        """Whether to mix, as in timm; changes reach loader workers that are already running."""
        return self.transform.enabled

    @mixup_enabled.setter
    def mixup_enabled(self, value: bool) -> None:
        self.transform.enabled = value

    def __call__(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        images, targets = self.transform(x, target)
        if self.label_smoothing:
            share = self.label_smoothing / targets.shape[1]
            targets = (1 - self.label_smoothing) * targets + share
        return images, targets


class FastCollateMixing(Mixing, timm_mixup.FastCollateMixup):
    """A replacement for `timm.data.FastCollateMixup`: collates and mixes uint8 images.

    The loader normalises the result. The arguments are those of `Mixing`, except that `mean` is the
    mean of each channel in [0, 1], which `ZetaMix` needs to keep the contrast of images. It must be
    the mean that the loader normalises with; the default is that of ImageNet.

    >>> collate = FastCollateMixing(num_classes=10)
    >>> samples = [(torch.zeros(3, 8, 8, dtype=torch.uint8), label) for label in range(4)]
    >>> images, targets = collate(samples)
    >>> images.dtype, targets.shape
    (torch.uint8, torch.Size([4, 10]))
    """

    default_mean = IMAGENET_DEFAULT_MEAN

    def __call__(self, batch: Sequence[Any], _: Any = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        image = batch[0][0]
        if getattr(image, "dtype", None) not in (torch.uint8, numpy.uint8):
            raise TypeError(
                "FastCollateMixing collates uint8 images, as timm's loader returns them with "
                f"use_prefetcher=True, got {getattr(image, 'dtype', type(image).__name__)}. For "
                "normalised images, use Mixing after the loader."
            )
        return super().__call__(*fast_collate(batch))  # type: ignore[no-untyped-call]
