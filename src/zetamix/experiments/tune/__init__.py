"""Hyperparameter search with Optuna on the validation split."""

from zetamix.experiments.tune.spec import StudyError as StudyError
from zetamix.experiments.tune.spec import make_plan as make_plan
from zetamix.experiments.tune.spec import make_spec as make_spec

try:
    from zetamix.experiments.tune.run import baselines_of as baselines_of
    from zetamix.experiments.tune.run import tune as tune
except ModuleNotFoundError as error:
    raise StudyError(f"Tuning needs {error.name}: pip install 'zetamix[tune]'") from error
