"""One transform of each kind, for tests that must take any of them."""

from contextlib import contextmanager

import torch

from zetamix import Mixup, ZetaMix, ZetaMixup
from zetamix.kernels import dispatch
from zetamix.transforms import CutMix, MixupOrCutMix

CLASSES = 4
KINDS = {
    "zetamix": lambda **given: ZetaMix(num_classes=CLASSES, paste=0.5, **given),
    "zeta": lambda **given: ZetaMixup(num_classes=CLASSES, **given),
    "mixup": lambda **given: Mixup(num_classes=CLASSES, **given),
    "cutmix": lambda **given: CutMix(num_classes=CLASSES, **given),
    "switch": lambda **given: MixupOrCutMix(num_classes=CLASSES, **given),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@contextmanager
def plain_torch():
    """Mix by `kernels.reference`, as ZETAMIX_KERNELS=reference does."""
    before, dispatch.REFERENCE_ONLY = dispatch.REFERENCE_ONLY, True
    try:
        yield
    finally:
        dispatch.REFERENCE_ONLY = before
