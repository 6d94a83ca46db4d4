"""Hyperparameter search with Optuna on the validation split.

`run.tune` needs Optuna; the names exported here need no more than training does.
"""

from zetamix.experiments.tune.parse import parse_space as parse_space
from zetamix.experiments.tune.plan import Plan as Plan
from zetamix.experiments.tune.plan import make_plan as make_plan
from zetamix.experiments.tune.question import Question as Question
from zetamix.experiments.tune.question import StudyError as StudyError
from zetamix.experiments.tune.question import ask as ask
from zetamix.experiments.tune.question import make_question as make_question
from zetamix.experiments.tune.sensitivity import random_settings as random_settings
from zetamix.experiments.tune.sensitivity import trials_of as trials_of
from zetamix.experiments.tune.space import Space as Space
from zetamix.experiments.tune.space import SpaceError as SpaceError
from zetamix.results.tuning import Evaluating as Evaluating
from zetamix.results.tuning import Standing as Standing
from zetamix.results.tuning import Trial as Trial
