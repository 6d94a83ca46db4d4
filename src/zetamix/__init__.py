"""zetamix: ζ-mixup for PyTorch. batch → plan → mix → train → measure → report."""

from zetamix.gamma import GAMMA_MIN as GAMMA_MIN
from zetamix.gamma import describe as describe
from zetamix.gamma import dominance_threshold as dominance_threshold
from zetamix.gamma import gamma_from_lam as gamma_from_lam
from zetamix.gamma import lam_from_gamma as lam_from_gamma
from zetamix.losses import SoftCrossEntropy as SoftCrossEntropy
from zetamix.losses import dominant_accuracy as dominant_accuracy
from zetamix.losses import expected_loss as expected_loss
from zetamix.losses import soft_binary_cross_entropy as soft_binary_cross_entropy
from zetamix.losses import soft_cross_entropy as soft_cross_entropy
from zetamix.mix import Anchor as Anchor
from zetamix.mix import Classes as Classes
from zetamix.mix import Samples as Samples
from zetamix.mix import Soft as Soft
from zetamix.mix import mix as mix
from zetamix.mix import mixup as mixup
from zetamix.mix import zeta_mixup as zeta_mixup
from zetamix.plan import MixPlan as MixPlan
from zetamix.plan import local_plan as local_plan
from zetamix.plan import mixup_plan as mixup_plan
from zetamix.plan import zeta_plan as zeta_plan
from zetamix.transforms import Mixup as Mixup
from zetamix.transforms import ZetaMixup as ZetaMixup

__version__ = "0.1.0"
