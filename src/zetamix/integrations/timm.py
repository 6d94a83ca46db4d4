"""`Mixup` and `FastCollateMixup` with the interface of timm's, by any method of this library.

timm's training script takes them by one changed import:
`from zetamix.integrations.timm import FastCollateMixup, Mixup`.
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
from zetamix._checks import check_choice, check_flag, check_number
from zetamix.batch_mix import BatchMix

MODES = ("batch", "pair", "elem")
METHODS = ("zetamix", "zeta", "mixup", "cutmix", "switch")


class Mixup(timm_mixup.Mixup):
    """In place of `timm.data.Mixup`: mixes normalised images on the device, behind the loader.

    Batches of any size are mixed, nothing is changed in place, and every random number comes from
    torch. `mixup_enabled` is shared with loader workers that are already running.

    mixup_alpha, cutmix_alpha: blending and pasting are on where they are above 0; with both at 0
        nothing is mixed. The methods `mixup`, `cutmix` and `switch` take them as α of Beta(α, α).
        For `zetamix` and `zeta` the numbers have no further meaning: γ is in their place.
    cutmix_minmax: must be None; no method draws boxes in this way.
    prob: the probability that an output is mixed, drawn for each output.
    switch_prob: the probability of pasting where both are on.
    mode: "batch" draws one λ and one box for the whole batch, "pair" and "elem" draw them for each
        output, in `mixup`, `cutmix` and `switch`. All others draw for each output in any mode.
    correct_lam: must be True: targets are always the exact shares of pixels.
    label_smoothing: targets become (1 − amount) · target + amount / num_classes.
    method: a method of `zetamix.methods` such as "zetamix", "zeta:2.8" or "switch", whose options
        take precedence over the arguments above; or a transform of `zetamix.transforms`, which is
        used as it is, with `label_smoothing` alone added.
    mean: for `zetamix` and images in [0, 1] or bytes; without it images are taken as normalised.
    generator: the only source of randomness; torch's default generator of the device when None.

    >>> mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    >>> images, targets = mixup(torch.randn(8, 3, 32, 32), torch.arange(8))
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
        # timm's own constructor is not called: nothing of what it keeps is used
        if cutmix_minmax is not None:
            raise ValueError(
                f"cutmix_minmax={cutmix_minmax} has no counterpart here. Leave it out, and set "
                "cutmix_alpha above 0 to paste boxes."
            )
        check_flag("correct_lam", correct_lam)
        if not correct_lam:
            raise ValueError(
                "correct_lam=False has no counterpart here: targets are always the exact shares of "
                "pixels. Leave correct_lam=True."
            )
        check_choice("mode", mode, MODES)
        check_number("label_smoothing", label_smoothing, low=0, high=1)
        self.label_smoothing = label_smoothing
        if isinstance(method, BatchMix):
            if generator is not None:
                raise ValueError("Pass a generator or a transform, which holds its own, not both.")
            self.transform = method
            return
        name, given = _parse(method)
        options = _options(name, mixup_alpha, cutmix_alpha, prob, switch_prob, mode, given)
        if name == "zetamix":
            options["mean"] = mean
        build: Callable[..., Any] = methods.BUILDERS[name]
        self.transform = build(num_classes=num_classes, generator=generator, **options)

    @property
    def mixup_enabled(self) -> bool:
        """The off switch of timm; loader workers that are already running see it change."""
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


class FastCollateMixup(Mixup, timm_mixup.FastCollateMixup):
    """In place of `timm.data.FastCollateMixup`: collates uint8 images and mixes them as bytes.

    The loader normalises what it returns. The arguments are those of `Mixup`, but `mean` is the
    mean of each channel in [0, 1], about which `zetamix` keeps the contrast of images. Pass the
    mean that the loader normalises with where it is not ImageNet's.

    >>> collate = FastCollateMixup(num_classes=10)
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
                "FastCollateMixup collates uint8 images, as timm's loader makes them with "
                f"use_prefetcher=True, got {getattr(image, 'dtype', type(image).__name__)}. For "
                "normalised images use Mixup behind the loader."
            )
        return super().__call__(*fast_collate(batch))  # type: ignore[no-untyped-call]


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a method that mixes by a plan, and so can be switched off in running workers.

    With it all options that the text gives: timm's arguments have other defaults than the method,
    and the text takes precedence.
    """
    name = methods.parse(text).name
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {text!r}.")
    _, given = methods.parse_options(text)
    if given.pop("until", 1) != 1:
        raise ValueError(
            f"until= belongs to the training loop, got method={text!r}. Leave it out, and pass "
            "--mixup-off-epoch to timm's script or set mixup_enabled = False."
        )
    return name, given


def _options(
    name: str,
    mixup_alpha: float,
    cutmix_alpha: float,
    prob: float,
    switch_prob: float,
    mode: str,
    given: dict[str, Any],
) -> dict[str, Any]:
    """The options of the transform: timm's arguments, and over them those that are given."""
    check_number("mixup_alpha", mixup_alpha, low=0)
    check_number("cutmix_alpha", cutmix_alpha, low=0)
    check_number("switch_prob", switch_prob, low=0, high=1)
    if name in ("mixup", "zeta") and cutmix_alpha:
        raise ValueError(
            f"method {name!r} pastes no boxes, got cutmix_alpha={cutmix_alpha}. Pass "
            "cutmix_alpha=0, or a method that pastes: zetamix, cutmix or switch."
        )
    if not mixup_alpha and not cutmix_alpha:
        return {**given, "p": 0.0}
    pasted = 0.0 if not cutmix_alpha else switch_prob if mixup_alpha else 1.0
    options: dict[str, Any] = {"p": prob}
    if name == "zetamix":
        options["paste"] = pasted
    elif name == "switch":
        options["switch_prob"] = pasted
        # one that is 0 is not used, and keeps the default of the method
        alphas = {"mixup_alpha": mixup_alpha, "cutmix_alpha": cutmix_alpha}
        options |= {key: alpha for key, alpha in alphas.items() if alpha}
    elif name in ("mixup", "cutmix"):
        options["alpha"] = mixup_alpha if name == "mixup" else cutmix_alpha
    if name in ("mixup", "cutmix", "switch"):
        options["per"] = "batch" if mode == "batch" else "sample"
    return options | given
