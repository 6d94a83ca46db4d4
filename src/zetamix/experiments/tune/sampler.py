"""Optuna's samplers and pruner; every trial has its own seed."""

import threading
from collections.abc import Callable
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, NopPruner, PercentilePruner
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from zetamix.results.tuning import PRUNE_PERCENT, PRUNE_STARTUP_TRIALS, SearchPlan
from zetamix.sampling import mix64


class SeededSampler(BaseSampler):
    """Draws every trial with its own sampler.

    With one worker, an interrupted study draws the same settings as an uninterrupted one, and
    workers that start at the same time do not draw the same settings.

    make: returns the sampler of the trial with this index.
    index_of: the index in the search of the trial with this number, which its retries share.
    """

    def __init__(
        self, make: Callable[[int], BaseSampler], index_of: Callable[[Study, int], int]
    ) -> None:
        self.make, self.index_of = make, index_of
        # all parameters of a trial come from the same sampler; a thread draws one trial at a time
        self._current = threading.local()

    def _sampler(self, study: Study, trial: FrozenTrial) -> BaseSampler:
        if getattr(self._current, "number", None) != trial.number:
            self._current.number = trial.number
            self._current.sampler = self.make(self.index_of(study, trial.number))
        sampler: BaseSampler = self._current.sampler
        return sampler

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._sampler(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler(study, trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, distribution: BaseDistribution
    ) -> Any:
        sampler = self._sampler(study, trial)
        return sampler.sample_independent(study, trial, param_name, distribution)


def make_sampler(plan: SearchPlan, seed: int, index_of: Callable[[Study, int], int]) -> BaseSampler:
    """tpe: Bayesian, as the paper's search. random: uniform. grid: all settings in order.

    Optuna's GridSampler shuffles the grid; here all settings are trained with the first seed first,
    so that an unfinished grid has a complete curve.
    """

    def make(index: int) -> BaseSampler:
        trial_seed = mix64(mix64(seed + 1) + index) % 2**32
        if plan.sampler == "tpe":
            # constant_liar: running trials count as bad, so that the next is drawn away from them
            return TPESampler(seed=trial_seed, multivariate=True, constant_liar=True)
        sampler = RandomSampler(seed=trial_seed)
        if plan.sampler == "grid":
            return PartialFixedSampler(dict(plan.grid[index % len(plan.grid)]), sampler)
        return sampler

    return SeededSampler(make, index_of)


def make_pruner(prune: bool, epochs: int) -> BasePruner:
    """Stops trials in the worst quarter, after a third of the training.

    Before that, while the learning rate is still high, the ranking of trials is unreliable.
    """
    if not prune:
        return NopPruner()
    return PercentilePruner(
        PRUNE_PERCENT,
        n_startup_trials=PRUNE_STARTUP_TRIALS,
        n_warmup_steps=max(1, epochs // 3),
        interval_steps=max(1, epochs // 6),
        n_min_trials=PRUNE_STARTUP_TRIALS,
    )
