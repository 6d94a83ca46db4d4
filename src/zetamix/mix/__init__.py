"""Apply a plan to samples and targets (Eq. 2), and the functions that do both in one call."""

from zetamix.mix.apply import mix as mix
from zetamix.mix.pair import mixup as mixup
from zetamix.mix.pair import zeta_mixup as zeta_mixup
from zetamix.rules import Anchor as Anchor
from zetamix.rules import Classes as Classes
from zetamix.rules import Samples as Samples
from zetamix.rules import Soft as Soft
