"""Runs as one long table: means over seeds, paired differences, intervals, Holm's correction.

A table of runs has the columns `dataset`, `method`, `seed`, `metric` and `value`, a row for each
metric of each run. Further columns, such as `model`, keep runs apart that are not to be averaged.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import nctdtr, nctdtrinc, stdtr, stdtrit  # type: ignore[import-untyped]
from torch import Tensor

from zetamix_lab.metrics import FRACTIONS, Confusion, count_right
from zetamix_lab.records import RunRecord

CONFIDENCE = 0.95
POWER = 0.8
# the largest number of seeds in power calculations
MOST_SEEDS = 1000
# the columns that identify a value
KEYS = ("dataset", "method", "seed", "metric")
# the columns of tests that are numbers
NUMBERS = ("mean", "sd", "n", "low", "high", "p", "freedom", "seed_error", "sample_error")
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def runs_table(
    records: Iterable[RunRecord],
    scores: Callable[[RunRecord], Mapping[str, float | None]] = lambda record: record.last,
) -> pd.DataFrame:
    """The table of runs of these records.

    scores: the metrics of a record by name; those after the last epoch unless given. None is left
        out.
    """
    rows = [
        (record.cell.dataset, record.cell.method, record.cell.seed, metric, value)
        for record in records
        for metric, value in scores(record).items()
        if value is not None
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "value"]).astype({"seed": int, "value": float})


def summarise(runs: pd.DataFrame | Mapping[int, float]) -> Any:
    """Columns `mean`, `sd` (n - 1) and `n` for each method and metric, in the order of the runs.

    The deviation of one seed is NaN, and so is every mean over a value that is NaN.

    >>> summarise(pd.DataFrame({"method": "none", "seed": [0, 1, 2], "value": [1.0, 2.0, 3.0]}))
      method  mean   sd  n
    0   none   2.0  1.0  3
    """
    if not isinstance(runs, pd.DataFrame):
        # until the paper's tables are made of data frames
        numbers = pd.Series(runs, dtype=float)
        mean, deviation = numbers.mean(skipna=False), numbers.std(skipna=False)
        return Summary(float(mean), _none(deviation), dict(runs))
    groups = [column for column in runs if column not in ("seed", "value")]
    values = runs.groupby(groups, sort=False)["value"]
    means, deviations = values.mean(skipna=False), values.std(skipna=False)
    return pd.DataFrame({"mean": means, "sd": deviations, "n": values.size()}).reset_index()


def paired_tests(
    runs: pd.DataFrame,
    baseline: str,
    tested: Sequence[str] | None = None,
    steps: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Every other method minus the baseline in each metric, paired by seed (Student's t).

    Columns: those of the runs without `seed` and `value`; `mean`, `sd` and `n` of the differences
    over the seeds that both have; `low` and `high`, the ends of the confidence interval; `p`;
    `p_holm` and `significant`, after Holm's correction over all methods and tested metrics of equal
    further columns. Methods that share no seed with the baseline are left out; those that share one
    have neither interval nor p (NaN).

    tested: the metrics of the correction; all unless given. Others are never significant.
    steps: the smallest change of a metric (`metrics.resolution`). Three seeds can differ by the
        same few samples, and a deviation of 0 would imply certainty, so it is at least that of
        rounding, step / √6 for a difference.
    """
    same = [column for column in runs if column not in ("method", "value")]
    is_base = runs["method"] == baseline
    pairs = runs[~is_base].merge(runs.loc[is_base, [*same, "value"]], on=same, suffixes=("", "_"))
    pairs["value"] -= pairs.pop("value_")
    table = summarise(pairs)
    # of no pairs at all, the metrics have no type
    floor = table["metric"].map(dict(steps or {})).fillna(0).astype(float) / math.sqrt(6)
    error = table["sd"].where(table["sd"].isna() | (table["sd"] > floor), floor)
    error /= np.sqrt(table["n"])
    return _with_tests(table, error, table["n"] - 1, tested)


def crossed_tests(
    runs: pd.DataFrame,
    baseline: str,
    tested: Sequence[str] | None = None,
    steps: Mapping[str, float] | None = None,
    samples: Mapping[str, Mapping[tuple[str, int], Array | None]] | None = None,
) -> pd.DataFrame:
    """`paired_tests` for new seeds and new test samples, of one dataset: docs/understand/intervals.

    The variance over seeds is pooled over methods, and that of the test sample is added where the
    results of each sample are known. Further columns: `seed_error` and `sample_error`, the two
    parts of the standard error (the second NaN where it is not known), and `freedom`, the degrees
    of freedom of the first.

    samples: by metric, for each method and seed, the contributions of the test samples, [n], in the
        same order for all runs; their mean is the metric. None where there are none.
    """
    table = paired_tests(runs, baseline, tested, steps)[["method", "metric", "mean", "sd", "n"]]
    pooled = {
        metric: pooled_variance(own["method"], own["seed"], own["value"].to_numpy())
        for metric, own in runs.groupby("metric", sort=False)
    }
    floors = {metric: step**2 / 6 for metric, step in (steps or {}).items()}
    variance = [max(pooled[metric][0], floors.get(metric, 0.0)) for metric in table["metric"]]
    table["freedom"] = [pooled[metric][1] for metric in table["metric"]]
    table["seed_error"] = np.sqrt(np.array(variance, dtype=float) / table["n"])
    table.loc[table["freedom"] == 0, "seed_error"] = np.nan
    added = []
    for row in table.itertuples():
        known = (samples or {}).get(row.metric, {})
        ours = {seed: values for (method, seed), values in known.items() if method == row.method}
        pairs = [(own, known.get((baseline, seed))) for seed, own in ours.items()]
        found = [own - base for own, base in pairs if own is not None and base is not None]
        added.append(math.sqrt(sample_variance(np.stack(found))) if len(found) > 1 else math.nan)
    table["sample_error"] = added
    error, freedom = combine(
        table["seed_error"], table["sample_error"].fillna(0.0), table["freedom"]
    )
    return _with_tests(table, error, freedom, tested)


def pooled_variance(methods: pd.Series, seeds: pd.Series, values: Array) -> tuple[Any, int]:
    """The variance over seeds of a paired difference, pooled over methods; its degrees of freedom.

    Twice the residual mean square of value = method + seed, which needs no complete table; with k
    methods and S seeds it has (k - 1)(S - 1) degrees of freedom. For two methods it is the variance
    of their differences.

    values: [runs], or [runs, m] for m such tables at once.
    """
    design = pd.get_dummies(pd.DataFrame({"m": methods.astype(str), "s": seeds.astype(str)}))
    design = design.to_numpy(float)
    if not np.isfinite(values).all():
        return np.full(values.shape[1:], np.nan)[()], 0
    solution, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    freedom = len(values) - int(rank)
    squares = ((values - design @ solution) ** 2).sum(0)
    return (2 * squares / freedom if freedom else squares * np.nan), freedom


def sample_variance(differences: Array) -> Any:
    """The variance of a mean difference that another test sample would add to that of the seeds.

    differences: [..., seeds, samples], the difference of each sample in each seed. What a sample
    does in one seed alone (the interaction) is in the variance over seeds already.
    """
    seeds, samples = differences.shape[-2:]
    mean = differences.mean((-2, -1), dtype=float)
    by_sample = differences.mean(-2, dtype=float) - mean[..., None]
    by_seed = differences.mean(-1, dtype=float) - mean[..., None]
    squares = np.square(differences, dtype=float).sum((-2, -1)) - seeds * samples * mean**2
    interaction = squares - seeds * (by_sample**2).sum(-1) - samples * (by_seed**2).sum(-1)
    interaction /= (seeds - 1) * (samples - 1)
    between = (by_sample**2).sum(-1) / (samples - 1) - interaction / seeds
    return np.maximum(between, 0) / samples


def combine(seed_error: Any, sample_error: Any, freedom: Any) -> tuple[Any, Any]:
    """The standard error from both sources, and its degrees of freedom (Satterthwaite).

    The seeds' part enters the degrees of freedom two standard errors above its estimate: where few
    seeds underestimate it, as many would be claimed for it (docs/understand/intervals).
    """
    seeds, samples = seed_error**2, sample_error**2
    above = seeds * (1 + 2 * np.sqrt(2 / np.maximum(freedom, 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        effective = freedom * ((above + samples) / above) ** 2
    return np.sqrt(seeds + samples), np.where(
        above > 0, effective, np.where(samples > 0, np.inf, freedom)
    )


def _with_tests(
    table: pd.DataFrame, error: pd.Series, freedom: pd.Series, tested: Sequence[str] | None
) -> pd.DataFrame:
    """The table with intervals and p-values of means with these standard errors."""
    half = error * stdtrit(freedom, 0.5 + CONFIDENCE / 2)
    ratio = (table["mean"].abs() / error).where((table["mean"] != 0) | error.isna(), 0)
    table = table.assign(
        low=table["mean"] - half, high=table["mean"] + half, p=2 * stdtr(freedom, -ratio)
    )
    family = table if tested is None else table[table["metric"].isin(tested)]
    alike = [c for c in table if c not in {"method", "metric", *NUMBERS}]
    parts = [part for _, part in family.groupby(alike, sort=False)] if alike else [family]
    corrected = [holm_corrected(part["p"]) for part in parts if len(part)]
    table["p_holm"] = pd.concat(corrected) if corrected else np.nan
    apart = (table["low"] > 0) | (table["high"] < 0)
    return table.assign(significant=apart & (table["p_holm"] < 1 - CONFIDENCE))


def holm_corrected(p: pd.Series) -> pd.Series:
    """p-values after Holm's correction: at 5 %, it bounds the probability of any false claim.

    >>> holm_corrected(pd.Series([0.04, 0.01, 0.03])).tolist()
    [0.06, 0.03, 0.06]
    """
    ordered = p.dropna().sort_values(kind="stable")
    scaled = ordered * np.arange(len(ordered), 0, -1)
    return scaled.clip(upper=1).cummax().reindex(p.index)


# until the paper's tables are made of data frames


@dataclass(frozen=True)
class Summary:
    """A metric over the seeds of one method."""

    mean: float
    sd: float | None
    """Sample standard deviation over seeds (n - 1); None for one seed."""
    values: Mapping[int, float]
    """By seed."""

    @property
    def n(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Difference(Summary):
    """The difference between a method and a baseline, paired by seed (Student's t).

    `low` and `high` are the ends of its interval; they and `p` are None for one seed.
    """

    method: str
    baseline: str
    metric: str
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None = None
    """p after Holm's correction over a family of tests; None if it belongs to no family."""

    @property
    def excludes_zero(self) -> bool:
        """Whether it is significant on its own."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def significant(self) -> bool:
        """Whether it is significant after Holm's correction."""
        return self.excludes_zero and self.p_holm is not None and self.p_holm < 1 - CONFIDENCE


def paired_difference(
    method: str,
    baseline: str,
    metric: str,
    values: Mapping[int, float],
    baseline_values: Mapping[int, float],
    *,
    resolution: float = 0.0,
) -> Difference | None:
    """`paired_tests` of one method; None if it shares no seed with the baseline."""
    both = {method: values, baseline: baseline_values}
    rows = [(name, seed, metric, v) for name, own in both.items() for seed, v in own.items()]
    runs = pd.DataFrame(rows, columns=[*KEYS[1:], "value"])
    shared = {
        seed: v - baseline_values[seed] for seed, v in values.items() if seed in baseline_values
    }
    for test in paired_tests(runs, baseline, steps={metric: resolution}).itertuples():
        sd, low, high, p = (_none(test.sd), _none(test.low), _none(test.high), _none(test.p))
        return Difference(test.mean, sd, shared, method, baseline, metric, low, high, p)
    return None


def holm(found: Iterable[Difference | None]) -> list[Difference]:
    """All differences with Holm's p; None, of methods that share no seed, is skipped."""
    kept = [difference for difference in found if difference is not None]
    corrected = holm_corrected(pd.Series([d.p for d in kept], dtype=float))
    return [replace(d, p_holm=_none(p)) for d, p in zip(kept, corrected, strict=True)]


def _none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def power(difference: float, error: Any, freedom: Any, level: float = 1 - CONFIDENCE) -> Any:
    """The probability that a two-sided t-test finds a true difference, in the right direction.

    >>> [round(power(0.5, 1 / math.sqrt(34), 33, level), 3) for level in (0.05, 0.01)]
    [0.808, 0.577]
    """
    freedom = np.minimum(freedom, 1e6)
    critical = stdtrit(freedom, 1 - level / 2)
    found = 1 - nctdtr(freedom, abs(difference) / np.maximum(error, 1e-300), critical)
    return found[()] if isinstance(found, np.ndarray) else float(found)


def detectable(error: float, freedom: float, level: float = 1 - CONFIDENCE) -> float:
    """The difference that a test with this standard error finds with a probability of 80 %."""
    freedom = min(freedom, 1e6)
    return float(error * nctdtrinc(freedom, 1 - POWER, stdtrit(freedom, 1 - level / 2)))


def seeds_needed(
    difference: float,
    seed_variance: float,
    sample_variance: float = 0.0,
    methods: int = 2,
    level: float = 1 - CONFIDENCE,
) -> int | None:
    """The smallest number of seeds with a power of 80 %; None above 1,000.

    seed_variance: of paired differences. sample_variance: of their mean, from the test sample.

    >>> seeds_needed(0.5, 1.0), seeds_needed(1.0, 1.0), seeds_needed(0.01, 1.0)
    (34, 10, None)
    """
    seeds = np.arange(2, MOST_SEEDS + 1)
    errors = np.sqrt(seed_variance / seeds), np.full(len(seeds), math.sqrt(sample_variance))
    found = power(difference, *combine(*errors, (methods - 1) * (seeds - 1)), level) >= POWER
    return int(seeds[found.argmax()]) if found.any() else None


def standard_error(metric: str, confusion: Confusion) -> float | None:
    """The standard error of a score over test samples; None if no formula is known.

    confusion: the confusion matrix of a record. Binomial, with two correct and two wrong samples
        added (Agresti and Coull, 1998): otherwise 0 errors in 180 would imply certainty.

    >>> round(standard_error("error", [[90, 0], [0, 90]]), 4)
    0.0076
    """
    right, sizes = (counts.double() for counts in count_right(confusion))
    if metric in FRACTIONS:
        return math.sqrt(float(_binomial_variance(right.sum(), sizes.sum())))
    if metric == "balanced_accuracy":
        present = sizes > 0
        variances = _binomial_variance(right[present], sizes[present])
        return math.sqrt(float(variances.sum())) / int(present.sum())
    return None


def _binomial_variance(right: Tensor, size: Tensor) -> Tensor:
    share = (right + 2) / (size + 4)
    return share * (1 - share) / (size + 4)
