"""Which γ, how sure, how sensitive: a search that never reads the test split to choose.

`zetamix.tune.run.tune` is the search itself, which needs Optuna and joblib; what is named here
needs no more than training does, so that plain runs over γ can be made on any machine.
"""

from zetamix.tune.parse import parse_space as parse_space
from zetamix.tune.plan import Plan as Plan
from zetamix.tune.plan import make_plan as make_plan
from zetamix.tune.question import Question as Question
from zetamix.tune.question import StudyError as StudyError
from zetamix.tune.question import ask as ask
from zetamix.tune.question import make_question as make_question
from zetamix.tune.result import Evaluating as Evaluating
from zetamix.tune.result import Standing as Standing
from zetamix.tune.result import Trial as Trial
from zetamix.tune.sensitivity import random_settings as random_settings
from zetamix.tune.sensitivity import trials_of as trials_of
from zetamix.tune.space import Space as Space
from zetamix.tune.space import SpaceError as SpaceError
