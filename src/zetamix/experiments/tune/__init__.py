"""Hyperparameter search with Optuna on the validation split.

`run.tune` needs Optuna; the names exported here need no more than training does.
"""

from zetamix.experiments.tune.plan import Plan as Plan
from zetamix.experiments.tune.plan import make_plan as make_plan
from zetamix.experiments.tune.question import Question as Question
from zetamix.experiments.tune.question import StudyError as StudyError
from zetamix.experiments.tune.question import ask as ask
from zetamix.experiments.tune.question import make_question as make_question
from zetamix.results.search_space import Space as Space
from zetamix.results.search_space import SpaceError as SpaceError
from zetamix.results.search_space import parse_space as parse_space
from zetamix.results.search_space import random_settings as random_settings
from zetamix.results.tuning import Evaluating as Evaluating
from zetamix.results.tuning import Standing as Standing
from zetamix.results.tuning import Trial as Trial
from zetamix.results.tuning import trials_from_records as trials_from_records
