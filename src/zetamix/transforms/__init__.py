"""ZetaMixup and Mixup: hyperparameters, a generator, and one call.

They take a batch `(samples, labels)` and return `(samples, targets)`: behind a loader, as its
`collate_fn`, or inside `torchvision.transforms.v2` containers.
"""

from zetamix.transforms.mixup import Mixup as Mixup
from zetamix.transforms.zeta import ZetaMixup as ZetaMixup
