"""The result of a search: its settings, its trials, the best of them and their test results."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_high
from typing import Any, Literal, TypeAlias

from zetamix.data import Dataset, DatasetRef, check_fingerprint, load_cached
from zetamix.measure.statistics import Difference, Summary, holm, paired_difference, summarise
from zetamix.metrics import METRICS, count_right, resolution
from zetamix.records import RunRecord
from zetamix.results.search_space import Setting, Space
from zetamix.train import Recipe

State: TypeAlias = Literal["complete", "pruned", "diverged", "failed"]

# values that differ by less count as equal: some metrics are computed in float32
ROUNDING = 1e-6
CHOSEN = "chosen"
# fraction of the training split that is held out if a dataset has no validation split
HELD_OUT = 0.1
# a trial is pruned if 75 % of the others were better at the same epoch, once 5 are complete.
# Optuna's median pruner would stop half of all trials, but their scores are close: the paper's
# three γ differ by 0.25 points of error on CIFAR-10
PRUNE_PERCENT = 75.0
PRUNE_STARTUP_TRIALS = 5


@dataclass(frozen=True, eq=False)
class StudySpec:
    """Everything that determines the value of a trial. All trials of a study share one spec."""

    dataset: Dataset
    """With a validation split, held out of the training split if the dataset has none."""
    ref: DatasetRef | None
    """How other processes load the dataset; None sends them the dataset itself."""
    recipe: Recipe
    space: Space
    metric: str
    seed: int = 0
    """Seed of the sampler; trial n trains with seed + n."""
    held_out: bool = False
    """Whether the validation split was held out of the training split."""

    @property
    def trial_dataset(self) -> Dataset:
        """The dataset of a trial, in which the validation split replaces `test`.

        A run is scored on `test`, so no test sample can be used while a setting is selected.
        """
        note = "trials are scored on the validation split; the test split is not read"
        return replace(
            self.dataset,
            val=None,
            test=self.dataset.val,
            fingerprint=f"{self.dataset.fingerprint}-val",
            notes=(*self.dataset.notes, note),
        )

    def __getstate__(self) -> dict[str, Any]:
        # other processes load the dataset themselves if they can
        data = self.dataset if self.ref is None else self.dataset.fingerprint
        return {**vars(self), "dataset": data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["dataset"], str):
            dataset = load_cached(state["ref"])
            dataset = dataset.holdout(HELD_OUT) if state["held_out"] else dataset
            state = {**state, "dataset": check_fingerprint(dataset, state["dataset"])}
        self.__dict__.update(state)

    def as_dict(self) -> dict[str, Any]:
        """The settings that must be equal for trials to be comparable."""
        return {
            "dataset": self.dataset.name,
            "fingerprint": self.dataset.fingerprint,
            "train_size": len(self.dataset.train),
            "metric": self.metric,
            "space": self.space.text,
            "recipe": self.recipe.as_dict(),
            "seed": self.seed,
        }


@dataclass(frozen=True)
class SearchPlan:
    """How settings are drawn, and how many."""

    sampler: str
    trials: int
    """Total number of trials, including the existing ones of the study."""
    prune: bool
    grid: tuple[Setting, ...] = ()
    seeds: tuple[int, ...] = ()
    """Seeds of a grid; all settings are trained with the first seed first."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trained model: its setting, its seed and its score."""

    number: int
    setting: Setting
    seed: int
    state: State
    value: float | None
    """The metric after the last epoch; for a pruned trial, after its last evaluated epoch."""
    standard_error: float | None = None
    """Standard error of `value` over the samples of the validation split."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """All METRICS of a complete trial."""
    curve: Mapping[int, float] = field(default_factory=dict)
    """The metric by epoch."""
    seconds: float = 0.0

    @property
    def gamma(self) -> float | None:
        gamma = self.setting.get("gamma")
        return None if gamma is None else float(gamma)


@dataclass(frozen=True)
class SettingResult:
    """A setting with its complete trials: one, or one per seed."""

    setting: Setting
    trials: tuple[Trial, ...]

    @property
    def summary(self) -> Summary:
        return summarise({t.number: t.value for t in self.trials if t.value is not None})

    @property
    def value(self) -> float:
        """The mean over seeds."""
        return self.summary.mean

    @property
    def n(self) -> int:
        return len(self.trials)

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood, which ranks settings of equal value."""
        return math.fsum(trial.scores.get("nll", 0.0) for trial in self.trials) / self.n


def by_setting(trials: Sequence[Trial]) -> list[SettingResult]:
    """Complete trials grouped by setting, in the order of the first trial of each."""
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            groups.setdefault(tuple(trial.setting.items()), []).append(trial)
    return [SettingResult(dict(key), tuple(group)) for key, group in groups.items()]


def best_of(trials: Sequence[Trial], metric: str) -> SettingResult | None:
    """The setting with the best mean of the metric; ties are broken by the loss.

    Only settings with at least the median number of seeds compete: the mean of three seeds is not
    compared with one lucky seed.
    """
    results = by_setting(trials)
    if not results:
        return None
    enough = median_high(result.n for result in results)
    return min(
        (result for result in results if result.n >= enough),
        key=lambda result: (-METRICS[metric].sign * result.value, result.nll),
    )


def all_tie(trials: Sequence[Trial]) -> bool:
    """Whether several settings are complete and all their trials have the same value."""
    results = by_setting(trials)
    values = [trial.value or 0.0 for result in results for trial in result.trials]
    return len(results) > 1 and max(values) - min(values) <= ROUNDING


@dataclass(frozen=True)
class Candidate:
    """A method with its recipe in the final test, and its records, one per seed."""

    name: str
    """"chosen", or the label of a method."""
    method: str
    recipe: Recipe
    records: tuple[RunRecord, ...] = ()

    def summary(self, metric: str) -> Summary:
        return summarise({record.cell.seed: record.last[metric] for record in self.records})


def differences(tested: Sequence[Candidate], metric: str) -> list[Difference]:
    """The chosen setting minus every baseline, paired by seed, with Holm's correction."""
    if not tested:
        return []
    chosen = next(candidate for candidate in tested if candidate.name == CHOSEN)
    _, counts = count_right(chosen.records[0].confusion)
    made = [
        paired_difference(
            CHOSEN,
            candidate.name,
            metric,
            chosen.summary(metric).values,
            candidate.summary(metric).values,
            resolution=resolution(metric, counts),
        )
        for candidate in tested
        if candidate is not chosen
    ]
    return holm(made)


@dataclass(frozen=True, eq=False)
class Tuning:
    """Everything that the report of a search needs."""

    spec: StudySpec
    plan: SearchPlan
    trials: tuple[Trial, ...]
    tested: tuple[Candidate, ...] = ()
    """Results on the test split; empty while the search is unfinished."""
    settings_tested: int = 0
    """Number of chosen settings that were scored on the test split so far, including this one."""
    test_failures: tuple[str, ...] = ()
    """Why runs of the final test have no result."""
    description: str = ""
    """Where it was trained, as in "2 processes side by side"."""

    @property
    def finished(self) -> bool:
        return len(self.trials) >= self.plan.trials

    @property
    def chosen(self) -> SettingResult | None:
        """The best setting; None if no trial is complete."""
        return best_of(self.trials, self.spec.metric)
