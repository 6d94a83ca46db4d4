"""Contenders of the benchmark: a copy, our transforms, the paper's listing, other libraries.

A contender is a function of `(samples, labels)` for a number of classes. Return values differ
between libraries; times are comparable because every call draws the mixing weights and mixes
samples and labels.
"""

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix import Mixup, ZetaMix, ZetaMixup

Call = Callable[[Tensor, Tensor], Any]
COPY = "copy"
OURS = "zetamix ZetaMix"
TIMM_EACH = "timm Mixup, mode=elem"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# the mean for uint8 images, which is needed to keep their variance
MEAN = 0.45


@dataclass(frozen=True)
class Contender:
    name: str
    build: Callable[[int], Call]
    """Build the call for a number of classes."""
    package: str | None = None
    """The package that must be installed."""
    captures: bool = False
    """Whether it draws new random numbers at every replay of a CUDA graph."""
    dtypes: tuple[torch.dtype, ...] = FLOATS
    even: bool = False
    """Whether it needs an even batch size."""
    cpu_only: bool = False
    """Whether it is too slow to be timed on a GPU, because it loops over the batch."""

    def supports(self, samples: Tensor) -> bool:
        if samples.dtype not in self.dtypes or (self.even and samples.shape[0] % 2):
            return False
        return not (self.cpu_only and samples.is_cuda)

    def installed(self) -> bool:
        return self.package is None or importlib.util.find_spec(self.package) is not None


def copy(classes: int) -> Call:
    return lambda samples, labels: samples.clone()


def zetamix(classes: int, **options: Any) -> Call:
    floats = ZetaMix(num_classes=classes, **options)
    integers = ZetaMix(num_classes=classes, mean=MEAN, **options)

    def mix(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return (integers if samples.dtype == torch.uint8 else floats)(samples, labels)

    return mix


def listing(classes: int, gamma: float = 2.8) -> Call:
    """The paper's Listing 1, with weights made on the CPU as in the authors' code.

    Rewritten: the printed one multiplies integers by floats and does not run.
    """

    def zeta_mixup(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        batch = len(samples)
        orders = torch.stack([torch.randperm(batch - 1) for _ in range(batch)]) + 2
        ranks = torch.ones(batch, batch)
        for k in range(batch):
            ranks[k, :k], ranks[k, k + 1 :] = orders[k, :k], orders[k, k:]
        weights = ranks**-gamma
        weights = (weights / weights.sum(1, keepdim=True)).to(samples)
        mixed = torch.einsum("ijkl,pi->pjkl", samples, weights)
        targets = torch.einsum("pq,qj->pj", weights, F.one_hot(labels, classes).to(weights))
        return mixed, targets

    return zeta_mixup


def original_mixup(classes: int, alpha: float = 1.0) -> Call:
    """mixup as in its authors' code: one λ per batch, labels returned as a pair."""

    def mixup(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        lam = random.betavariate(alpha, alpha)
        index = torch.randperm(len(samples), device=samples.device)
        mixed = lam * samples + (1 - lam) * samples[index]
        return mixed, labels, labels[index], lam

    return mixup


def torchvision_mixup(classes: int) -> Call:
    from torchvision.transforms import v2

    call: Call = v2.MixUp(num_classes=classes)
    return call


def timm_mixup(classes: int) -> Call:
    from timm.data.mixup import Mixup as TimmMixup

    # works in place
    settings: dict[str, Any] = {"mixup_alpha": 1.0, "label_smoothing": 0.0, "num_classes": classes}
    call: Call = TimmMixup(**settings)
    return call


def timm_each(classes: int) -> Call:
    """mixup or CutMix, chosen at random for each output, as ZetaMix blends or pastes by default."""
    from timm.data.mixup import Mixup as TimmMixup

    alphas = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0}
    call: Call = TimmMixup(**alphas, mode="elem", label_smoothing=0.0, num_classes=classes)
    return call


def kornia_mixup(classes: int) -> Call:
    from kornia.augmentation import RandomMixUpV2

    call: Call = RandomMixUpV2(data_keys=["input", "class"])
    return call


def ours(name: str, build: Callable[[int], Call]) -> Contender:
    return Contender(name, build, captures=True, dtypes=(*FLOATS, torch.uint8))


CONTENDERS = (
    ours(COPY, copy),
    ours(OURS, zetamix),
    ours("zetamix ZetaMix, blended", partial(zetamix, paste=0.0)),
    ours("zetamix ZetaMix, pasted", partial(zetamix, paste=1.0)),
    ours("zetamix ZetaMix, blended, 4 sources", partial(zetamix, paste=0.0, sources=4)),
    ours("zetamix Mixup", lambda classes: Mixup(num_classes=classes)),
    # the paper's method: all sources, or eight, which have 99 % of the weight
    ours("zetamix ZetaMixup", lambda classes: ZetaMixup(num_classes=classes)),
    ours("zetamix ZetaMixup, 8 sources", lambda classes: ZetaMixup(num_classes=classes, sources=8)),
    Contender("paper listing", listing, dtypes=(torch.float32,)),
    Contender("mixup, original", original_mixup),
    Contender("torchvision v2.MixUp", torchvision_mixup, package="torchvision"),
    Contender("timm Mixup", timm_mixup, package="timm", even=True),
    Contender(TIMM_EACH, timm_each, package="timm", even=True, cpu_only=True),
    Contender("kornia RandomMixUpV2", kornia_mixup, package="kornia"),
)
PEERS = tuple(contender.name for contender in CONTENDERS[8:])
