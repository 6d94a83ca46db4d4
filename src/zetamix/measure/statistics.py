"""Means over seeds, and differences between methods paired by seed, with what can be claimed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A measure over the seeds of one method."""

    mean: float
    sd: float | None
    """Standard deviation between seeds (n - 1); None for one seed."""
    values: Mapping[int, float]
    """By seed."""

    @property
    def n(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Difference:
    """How far a method lies from another, seed by seed: mean, interval, p-values."""

    method: str
    reference: str
    metric: str
    values: Mapping[int, float]
    """Method minus reference, by seed."""
    mean: float
    low: float | None
    high: float | None
    """Student's interval at CONFIDENCE, by itself; None for one seed."""
    p: float | None
    """Two-sided; None for one seed."""
    adjusted: float | None = None
    """p after Holm, for all differences to the same reference together."""

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def claimed(self) -> bool:
        """Whether a difference may be claimed: its interval excludes 0, and Holm agrees."""
        return self.excludes_zero and self.adjusted is not None and self.adjusted < 1 - CONFIDENCE


def summarise(values: Mapping[int, float]) -> Summary:
    """Mean and standard deviation.

    >>> found = summarise({0: 1.0, 1: 2.0, 2: 3.0})
    >>> found.mean, found.sd, found.n
    (2.0, 1.0, 3)
    """
    known = list(values.values())
    mean = math.fsum(known) / len(known)
    return Summary(mean, _deviation(known, mean), dict(values))


def pair(
    method: str,
    reference: str,
    metric: str,
    ours: Mapping[int, float],
    theirs: Mapping[int, float],
    *,
    grain: float = 0.0,
) -> Difference | None:
    """The difference over the seeds that both have; None where they have none in common.

    grain: the smallest step of the measure, 1/n for a share of n samples. Three seeds may well
        differ by the same few samples; a deviation of 0 would then claim certainty. What is
        counted in steps is taken to be no surer than their rounding, grain / √6 for a difference.

    >>> found = pair("a", "b", "error", {0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.2, 1: 0.4, 2: 0.6})
    >>> [round(value, 4) for value in (found.mean, found.low, found.high, found.p)]
    [-0.2, -0.4484, 0.0484, 0.0742]
    """
    values = {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}
    if not values:
        return None
    known = list(values.values())
    mean = math.fsum(known) / len(known)
    deviation = _deviation(known, mean)
    if deviation is None:
        return Difference(method, reference, metric, values, mean, None, None, None)
    freedom = len(known) - 1
    error = max(deviation, grain / math.sqrt(6)) / math.sqrt(len(known))
    half = error * float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    if error == 0:
        p = 1.0 if mean == 0 else 0.0
    else:
        p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Difference(method, reference, metric, values, mean, mean - half, mean + half, p)


def adjust(differences: Sequence[Difference]) -> list[Difference]:
    """Holm's p-values: with them, the chance of any wrong claim stays below 1 - CONFIDENCE.

    >>> made = [Difference(str(p), "b", "error", {}, 0.0, 0.0, 0.0, p) for p in (0.04, 0.01, 0.03)]
    >>> [round(found.adjusted, 2) for found in adjust(made)]
    [0.06, 0.03, 0.06]
    """
    known = sorted(
        (found.p, place) for place, found in enumerate(differences) if found.p is not None
    )
    adjusted: dict[int, float] = {}
    highest = 0.0
    for rank, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted[place] = highest
    return [replace(found, adjusted=adjusted.get(place)) for place, found in enumerate(differences)]


def _deviation(values: Sequence[float], mean: float) -> float | None:
    if len(values) < 2:
        return None
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
