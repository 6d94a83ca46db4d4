"""Where the next trial is: Optuna's samplers, each trial drawing from its own seed."""

from collections.abc import Callable, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, NopPruner, PercentilePruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from zetamix.experiments.tune.plan import KEEP_PERCENT, STARTUP
from zetamix.sampling import mix64


def facts_of(trial: FrozenTrial | Trial) -> dict[str, Any]:
    """What we have noted down about a trial."""
    return dict(trial.user_attrs.get("zetamix", {}))


def place_of(number: int, trials: Sequence[FrozenTrial]) -> int:
    """Which setting of the search a trial is, from 0 on; those that are tried again keep theirs.

    Optuna numbers tries; a study that was interrupted has more of them than settings.
    """
    after: dict[int, int | None] = {t.number: facts_of(t).get("try_after") for t in trials}
    while (before := after[number]) is not None:
        number = before
    return sum(before is None and other < number for other, before in after.items())


class SeededSampler(BaseSampler):
    """Draws setting n from the n-th seed, whichever process asks and however often it was stopped.

    With one worker an interrupted study draws what an uninterrupted one would have drawn; several
    workers never draw the same point because they started from the same seed.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self.make, self.seed = make, seed
        # of the trial that is being drawn: its parameters come from one stream
        self._current: tuple[int, BaseSampler] | None = None

    def _of(self, study: Study, trial: FrozenTrial) -> BaseSampler:
        if self._current is None or self._current[0] != trial.number:
            place = place_of(trial.number, study.get_trials(deepcopy=False))
            seed = mix64(mix64(self.seed + 1) + place) % 2**32
            self._current = trial.number, self.make(seed)
        return self._current[1]

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._of(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._of(study, trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._of(study, trial).sample_independent(
            study, trial, param_name, param_distribution
        )


def make_sampler(name: str, seed: int) -> BaseSampler:
    """tpe: Bayesian, as the paper's sweep. random: for a fair look at the whole space.

    A grid's trials are queued with their values, so that nothing is left to draw.
    """
    if name == "tpe":
        return SeededSampler(_tpe, seed)
    return SeededSampler(lambda each: RandomSampler(seed=each), seed)


def _tpe(seed: int) -> TPESampler:
    # trials under way count as bad for the time being, so that the next one is drawn elsewhere
    return TPESampler(seed=seed, multivariate=True, constant_liar=True)


def make_pruner(prune: bool, epochs: int) -> BasePruner:
    """Stops a trial that is among the worst quarter from a third of the training on.

    Before that, a learning rate still to be lowered says little about the end.
    """
    if not prune:
        return NopPruner()
    return PercentilePruner(
        KEEP_PERCENT,
        n_startup_trials=STARTUP,
        n_warmup_steps=max(1, epochs // 3),
        interval_steps=max(1, epochs // 6),
        n_min_trials=STARTUP,
    )
