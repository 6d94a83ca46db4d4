"""Plans: which batch rows go into each output, and how much of each.

Every method of this library is a plan. Making one is random and happens here; applying one is
deterministic and happens in `zetamix.mix`.
"""

from zetamix.plan.make import identity_plan as identity_plan
from zetamix.plan.make import local_plan as local_plan
from zetamix.plan.make import mixup_plan as mixup_plan
from zetamix.plan.make import zeta_plan as zeta_plan
from zetamix.plan.plan import MixPlan as MixPlan
