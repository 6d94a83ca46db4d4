"""Hyperparameter search with Optuna on the validation split; `run.tune` needs Optuna."""

from zetamix.experiments.tune.spec import SearchPlan as SearchPlan
from zetamix.experiments.tune.spec import StudyError as StudyError
from zetamix.experiments.tune.spec import make_plan as make_plan
from zetamix.experiments.tune.spec import make_spec as make_spec
