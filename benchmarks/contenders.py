"""Contenders of the benchmark: a copy, our transforms, the original mixup, other libraries.

A contender is a function of `(samples, labels)`. Return values differ between libraries; times are
comparable because every call draws the mixing weights and mixes samples and labels.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zetamix.transforms import CutMix, Mixup, MixupOrCutMix, ZetaMix, ZetaMixup

Call = Callable[[Tensor, Tensor], Any]
CLASSES = 10
COPY, OURS = "copy", "zetamix ZetaMix"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# of samples in [0, 1], to keep their variance
MEAN = 0.45


@dataclass(frozen=True)
class Contender:
    name: str
    build: Callable[[], Call]
    """Build the call; an ImportError means that the library is not installed."""
    captures: bool = False
    """Whether it draws new random numbers at every replay of a CUDA graph."""
    dtypes: tuple[torch.dtype, ...] = FLOATS
    unit: bool = False
    """Whether it takes samples in [0, 1] instead of normalised ones."""


def zetamix(**options: Any) -> Call:
    floats = ZetaMix(num_classes=CLASSES, **options)
    integers = ZetaMix(num_classes=CLASSES, **({"mean": MEAN} | options))

    def mix(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return (integers if samples.dtype == torch.uint8 else floats)(samples, labels)

    return mix


def original_mixup() -> Call:
    """mixup as in its authors' code: one λ per batch, labels returned as a pair."""

    def mixup(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        lam = random.betavariate(1.0, 1.0)
        index = torch.randperm(len(samples), device=samples.device)
        mixed = lam * samples + (1 - lam) * samples[index]
        return mixed, labels, labels[index], lam

    return mixup


def torchvision(*names: str) -> Call:
    """v2.MixUp, v2.CutMix, or one of both at random."""
    from torchvision.transforms import v2

    calls: list[Call] = [getattr(v2, name)(num_classes=CLASSES) for name in names]
    return calls[0] if len(calls) == 1 else v2.RandomChoice(calls)


def timm(**alphas: float) -> Call:
    """timm's Mixup, which works in place."""
    from timm.data.mixup import Mixup as TimmMixup

    call: Call = TimmMixup(**alphas, label_smoothing=0.0, num_classes=CLASSES)
    return call


def ours(name: str, build: Callable[[], Call]) -> Contender:
    return Contender(name, build, captures=True, dtypes=(*FLOATS, torch.uint8))


CONTENDERS = (
    ours(COPY, lambda: lambda samples, labels: samples.clone()),
    ours(OURS, zetamix),
    ours(f"{OURS}, blended", lambda: zetamix(paste=0.0)),
    ours(f"{OURS}, pasted", lambda: zetamix(paste=1.0)),
    ours(f"{OURS}, blended, 4 sources", lambda: zetamix(paste=0.0, sources=4)),
    Contender(f"{OURS}, mean", lambda: zetamix(mean=MEAN), captures=True, unit=True),
    ours(f"{OURS}, variance not kept", lambda: zetamix(keep_variance=False)),
    ours("zetamix Mixup", lambda: Mixup(num_classes=CLASSES)),
    ours("zetamix CutMix", lambda: CutMix(num_classes=CLASSES)),
    ours("zetamix MixupOrCutMix", lambda: MixupOrCutMix(num_classes=CLASSES)),
    # the paper's method: all sources, or eight, which have 99 % of the weight
    ours("zetamix ZetaMixup", lambda: ZetaMixup(num_classes=CLASSES)),
    ours("zetamix ZetaMixup, 8 sources", lambda: ZetaMixup(num_classes=CLASSES, sources=8)),
    Contender("mixup, original", original_mixup),
    Contender("torchvision v2.MixUp", lambda: torchvision("MixUp")),
    Contender("torchvision v2.CutMix", lambda: torchvision("CutMix")),
    Contender("torchvision MixUp or CutMix", lambda: torchvision("MixUp", "CutMix")),
    Contender("timm Mixup", lambda: timm(mixup_alpha=1.0)),
    Contender("timm mixup or CutMix", lambda: timm(mixup_alpha=0.8, cutmix_alpha=1.0)),
)
