"""What came of a search: its trials, how far it is, and which of them is best."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Any, Literal, TypeAlias

from zetamix.measure.statistics import standard_error
from zetamix.methods import parse
from zetamix.records import RunRecord
from zetamix.results.search_space import Setting, Space

State: TypeAlias = Literal["complete", "pruned", "diverged", "failed"]

# measures that differ by less are the same: some are computed in float32
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One model that was trained: its setting, its seed, and how good it was."""

    number: int
    setting: Setting
    seed: int
    state: State
    value: float | None
    """The measure after the last epoch; of a pruned trial, after the last one it was given."""
    error: float | None = None
    """Standard error of `value`, because the split it was measured on is a sample."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """All of METRICS, where the trial went to its end."""
    curve: Mapping[int, float] = field(default_factory=dict)
    """The measure by epoch."""
    seconds: float = 0.0

    @property
    def gamma(self) -> float | None:
        found = self.setting.get("gamma")
        return None if found is None else float(found)

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "setting": dict(self.setting),
            "seed": self.seed,
            "state": self.state,
            "value": self.value,
            "standard_error": self.error,
            "scores": dict(self.scores),
            "curve": {str(epoch): value for epoch, value in self.curve.items()},
            "seconds": round(self.seconds, 2),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Trial":
        kept = {name: value for name, value in values.items() if name != "standard_error"}
        curve = {int(epoch): value for epoch, value in values["curve"].items()}
        return cls(**{**kept, "error": values["standard_error"], "curve": curve})


@dataclass(frozen=True)
class Tried:
    """A setting with all its trials that went to their end: one, or one for each seed."""

    setting: Setting
    trials: tuple[Trial, ...]

    @property
    def values(self) -> list[float]:
        return [trial.value for trial in self.trials if trial.value is not None]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def value(self) -> float:
        """The mean over seeds."""
        return math.fsum(self.values) / self.n

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None for one."""
        if self.n < 2:
            return None
        return math.sqrt(math.fsum((v - self.value) ** 2 for v in self.values) / (self.n - 1))

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood, which tells apart what is equally often right."""
        return math.fsum(trial.scores.get("nll", 0.0) for trial in self.trials) / self.n


def by_setting(trials: Sequence[Trial]) -> list[Tried]:
    """Finished trials by setting, in the order in which settings were first tried."""
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            groups.setdefault(tuple(trial.setting.items()), []).append(trial)
    return [Tried(dict(key), tuple(group)) for key, group in groups.items()]


def best_of(trials: Sequence[Trial], lower_is_better: bool) -> Tried | None:
    """The setting with the best mean; of several alike, the one with the smaller loss.

    Only settings with as many seeds as half of them have: one lucky seed is no match for the mean
    of three, but a setting that a search drew twice by chance is no better for it.
    """
    found = by_setting(trials)
    if not found:
        return None
    enough = median_high(tried.n for tried in found)
    sign = 1 if lower_is_better else -1
    return min(
        (tried for tried in found if tried.n >= enough),
        key=lambda tried: (sign * tried.value, tried.loss),
    )


def all_tie(trials: Sequence[Trial]) -> bool:
    """Whether several settings were tried to their end and all trials ended with one value."""
    found = by_setting(trials)
    values = [value for tried in found for value in tried.values]
    return len(found) > 1 and max(values) - min(values) <= ROUNDING


@dataclass(frozen=True)
class Standing:
    """How far a study is."""

    total: int
    complete: int
    pruned: int
    diverged: int
    failed: int
    running: Mapping[int, int]
    """Epochs done, by number of the trial, of those that a worker is at."""
    best: Tried | None
    seconds_left: float | None
    """None where nothing can be said yet."""
    died: int = 0
    """Times that a worker of this command died, whose trials are tried again."""

    @property
    def done(self) -> int:
        return self.complete + self.pruned + self.diverged + self.failed

    @classmethod
    def of(
        cls,
        over: Sequence[Trial],
        *,
        total: int,
        running: Mapping[int, int],
        spans: Sequence[float],
        lower_is_better: bool,
        claimed: int | None = None,
        died: int = 0,
    ) -> "Standing":
        """From the trials that ended.

        spans: seconds that each of them took.
        claimed: trials begun, also those that wait for their worker; as many as run by default.
        """
        states = [trial.state for trial in over]
        return cls(
            total=total,
            complete=states.count("complete"),
            pruned=states.count("pruned"),
            diverged=states.count("diverged"),
            failed=states.count("failed"),
            running=running,
            best=best_of(over, lower_is_better),
            # for a moment between two trials, fewer run than there are workers
            seconds_left=_seconds_left(
                total - len(over), len(running) if claimed is None else claimed, spans
            ),
            died=died,
        )


@dataclass(frozen=True)
class Evaluating:
    """How far the test of the chosen setting is."""

    done: int
    total: int
    epochs: float
    """Trained, of all runs together."""
    epochs_total: int
    died: int = 0


Watch: TypeAlias = Callable[[Standing | Evaluating], None]


def _seconds_left(left: int, running: int, spans: Sequence[float]) -> float | None:
    """From how long trials took so far, and how many are under way at a time."""
    if left <= 0:
        return 0.0
    if not spans:
        return None
    mean = sum(spans) / len(spans)
    # those under way are half done on average
    return mean * max(0.5, left - running / 2) / max(1, running)


def trials_from_records(
    records: Sequence[RunRecord], space: Space, metric: str = "error"
) -> list[Trial]:
    """Records of ζ-mixup as trials, for the analysis and the figures of a search."""
    found = []
    for number, record in enumerate(records):
        method = parse(record.cell.method)
        known = {**record.cell.recipe, **{name: method.option(name) for name in ("gamma", "p")}}
        sources = method.option("sources")
        known |= {
            "sources": "all" if sources is None else sources,
            "anchor": method.option("anchor"),
        }
        found.append(
            Trial(
                number=number,
                setting={each.name: known[each.name] for each in space.parameters},
                seed=record.cell.seed,
                state="complete",
                value=record.last[metric],
                error=standard_error(metric, record.confusion),
                scores=record.last,
                seconds=record.wall_s,
            )
        )
    return found
