"""zetamix: ζ-mixup for PyTorch. batch → plan → mix → train → measure → report."""

from zetamix import rules as rules
from zetamix.gamma import GAMMA_MIN as GAMMA_MIN
from zetamix.gamma import describe_gamma as describe_gamma
from zetamix.losses import SoftCrossEntropy as SoftCrossEntropy
from zetamix.losses import soft_cross_entropy as soft_cross_entropy
from zetamix.mix import apply_plan as apply_plan
from zetamix.mix import mixup as mixup
from zetamix.mix import zeta_mixup as zeta_mixup
from zetamix.plan import MixPlan as MixPlan
from zetamix.plan import local_plan as local_plan
from zetamix.plan import mixup_plan as mixup_plan
from zetamix.plan import zeta_plan as zeta_plan
from zetamix.transforms import Mixup as Mixup
from zetamix.transforms import ZetaMix as ZetaMix
from zetamix.transforms import ZetaMixup as ZetaMixup

__version__ = "0.1.0"
