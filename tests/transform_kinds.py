"""One transform of each kind, for tests that must take any of them."""

import torch

from zetamix import Mixup, ZetaMix, ZetaMixup
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
