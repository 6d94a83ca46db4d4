"""timm: `Mixing` and `FastCollateMixing`, timm's interface to the methods of this library.

To use them in timm's training script, change one import:
`from zetamix.integrations.timm import FastCollateMixing as FastCollateMixup, Mixing as Mixup`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from timm.data import mixup as timm_mixup
from timm.data.constants import IMAGENET_DEFAULT_MEAN
from timm.data.loader import fast_collate
from torch import Tensor

from zetamix import methods
from zetamix.checks import check_choice, check_flag, check_number
from zetamix.transforms import BatchMix

MODES = ("batch", "pair", "elem")
METHODS = ("zetamix", "zeta", "mixup", "cutmix", "switch")


class Mixing(timm_mixup.Mixup):
    """A replacement for `timm.data.Mixup`: mixes normalised images on the device.

    Batches may have any size, the input is not modified, and all random numbers come from torch.
    `mixup_enabled` is shared with loader workers that are already running.

    mixup_alpha, cutmix_alpha: values above 0 enable blending and pasting; with both at 0 nothing is
        mixed. In the methods `mixup`, `cutmix` and `switch` they are α of Beta(α, α). For `zetamix`
        and `zeta` only whether they are 0 matters: these methods use γ instead.
    cutmix_minmax: must be None; not supported.
    prob: the probability that an output is mixed, drawn for each output.
    switch_prob: the probability of pasting if both are enabled.
    mode: "batch" draws one λ and one box for the whole batch, "pair" and "elem" draw them for each
        output, in `mixup`, `cutmix` and `switch`. The other methods always draw for each output.
    correct_lam: must be True: targets are always the exact fractions of pixels.
    label_smoothing: targets become (1 − amount) · target + amount / num_classes.
    method: a method of `zetamix.methods` such as "zetamix", "zeta:2.8" or "switch", whose options
        take precedence over the arguments above; or a transform such as `zetamix.ZetaMix`, to which
        only `label_smoothing` applies.
    mean: for `zetamix` and images in [0, 1] or uint8; without it, images are assumed normalised.
    generator: the only source of randomness; None uses torch's default generator of the device.

    timm's script ends mixing itself, with `--mixup-off-epoch`. In a loop of your own call
    `mixing.transform.set_epoch(epoch, epochs)`.

    >>> mixing = Mixing(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    >>> images, targets = mixing(torch.randn(8, 3, 32, 32), torch.arange(8))
    >>> targets.shape
    torch.Size([8, 10])
    """

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
        method: str | BatchMix = "zetamix",
        mean: float | Sequence[float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        # timm's constructor is not called: its attributes are not used
        if cutmix_minmax is not None:
            raise ValueError(
                f"cutmix_minmax is not supported, got {cutmix_minmax}. Remove it, and set "
                "cutmix_alpha above 0 to paste boxes."
            )
        check_flag("correct_lam", correct_lam)
        if not correct_lam:
            raise ValueError(
                "correct_lam=False is not supported: targets are always the exact fractions of "
                "pixels. Use correct_lam=True."
            )
        check_choice("mode", mode, MODES)
        check_number("label_smoothing", label_smoothing, low=0, high=1)
        self.label_smoothing = label_smoothing
        if isinstance(method, BatchMix):
            if generator is not None:
                raise ValueError("Pass the generator to the transform, not to Mixing.")
            self.transform = method
            return
        name, given = methods.parse_options(method)
        check_choice("method", name, METHODS)
        methods.parse(method)
        if given.pop("until", 1) != 1:
            raise ValueError(
                f"until is not supported here, got method={method!r}. Remove it, and pass "
                "--mixup-off-epoch to timm's script or set mixup_enabled = False."
            )
        per = "batch" if mode == "batch" else "sample"
        options = _options(name, mixup_alpha, cutmix_alpha, switch_prob, per)
        options = {"p": prob, **options, **given}
        if not mixup_alpha and not cutmix_alpha:
            options = {**given, "p": 0.0}
        elif not options.get("alpha", 1):
            raise ValueError(f"method {name!r} needs {name}_alpha above 0, got 0. Pass 1.0.")
        if name == "zetamix":
            options["mean"] = mean
        build: Callable[..., Any] = methods.BUILDERS[name]
        self.transform = build(num_classes=num_classes, generator=generator, **options)

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
    mean of each channel in [0, 1], which `zetamix` needs to keep the contrast of images. It must be
    the mean that the loader normalises with; the default is that of ImageNet.

    >>> collate = FastCollateMixing(num_classes=10)
    >>> samples = [(torch.zeros(3, 8, 8, dtype=torch.uint8), label) for label in range(4)]
    >>> images, targets = collate(samples)
    >>> images.dtype, targets.shape
    (torch.uint8, torch.Size([4, 10]))
    """

    def __init__(
        self,
        *args: Any,
        mean: float | Sequence[float] | None = IMAGENET_DEFAULT_MEAN,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, mean=mean, **kwargs)

    def __call__(self, batch: Sequence[Any], _: Any = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        image = batch[0][0]
        if getattr(image, "dtype", None) not in (torch.uint8, numpy.uint8):
            raise TypeError(
                "FastCollateMixing collates uint8 images, as timm's loader returns them with "
                f"use_prefetcher=True, got {getattr(image, 'dtype', type(image).__name__)}. For "
                "normalised images, use Mixing after the loader."
            )
        return super().__call__(*fast_collate(batch))  # type: ignore[no-untyped-call]


def _options(
    name: str, mixup_alpha: float, cutmix_alpha: float, switch_prob: float, per: str
) -> dict[str, Any]:
    """The options of a method that timm's arguments say."""
    check_number("mixup_alpha", mixup_alpha, low=0)
    check_number("cutmix_alpha", cutmix_alpha, low=0)
    check_number("switch_prob", switch_prob, low=0, high=1)
    if name in ("mixup", "zeta") and cutmix_alpha:
        raise ValueError(
            f"method {name!r} does not paste boxes, got cutmix_alpha={cutmix_alpha}. Pass "
            "cutmix_alpha=0, or use zetamix, cutmix or switch."
        )
    pasted = 0.0 if not cutmix_alpha else switch_prob if mixup_alpha else 1.0
    if name in ("zetamix", "zeta"):
        return {"paste": pasted} if name == "zetamix" else {}
    if name != "switch":
        return {"alpha": mixup_alpha if name == "mixup" else cutmix_alpha, "per": per}
    # an alpha of 0 is not used; the default of the method is kept
    alphas = {"mixup_alpha": mixup_alpha, "cutmix_alpha": cutmix_alpha}
    return {"switch_prob": pasted, "per": per, **{key: a for key, a in alphas.items() if a}}
