"""Runs as one long table: means over seeds, paired differences, intervals, Holm's correction.

A table of runs has the columns `dataset`, `method`, `seed`, `metric` and `value`, a row for each
metric of each run. Further columns, such as `model`, keep runs apart that are not to be averaged.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import nctdtrinc, stdtr, stdtrit  # type: ignore[import-untyped]

CONFIDENCE = 0.95
POWER = 0.8
# the columns that identify a value
KEYS = ("dataset", "method", "seed", "metric")
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """Columns `mean`, `sd` (n - 1) and `n` for each method and metric, in the order of the runs.

    The deviation of one seed is NaN, and so is every mean over a value that is NaN.

    >>> summarise(pd.DataFrame({"method": "none", "seed": [0, 1, 2], "value": [1.0, 2.0, 3.0]}))
      method  mean   sd  n
    0   none   2.0  1.0  3
    """
    groups = [column for column in runs if column not in ("seed", "value")]
    values = runs.groupby(groups, sort=False)["value"]
    means, deviations = values.mean(skipna=False), values.std(skipna=False)
    return pd.DataFrame({"mean": means, "sd": deviations, "n": values.size()}).reset_index()


def paired_tests(
    runs: pd.DataFrame,
    baseline: str,
    tested: Sequence[str] | None = None,
    steps: Mapping[str, float] | None = None,
    samples: Mapping[str, Mapping[tuple[str, int], Array | None]] | None = None,
    *,
    pooled: bool = False,
) -> pd.DataFrame:
    """Every other method minus the baseline in each metric, paired by seed (Student's t).

    Columns: those of the runs without `seed` and `value`; `mean`, `sd` and `n` of the differences
    over the seeds that both have; `seed_error` and `sample_error`, the two parts of the standard
    error (the second NaN where it is not known), and `freedom`, the degrees of freedom of the
    first; `low` and `high`, the ends of the confidence interval; `p`; `p_holm` and `significant`,
    after Holm's correction over all methods and tested metrics of equal further columns. Methods
    that share no seed with the baseline are left out; without a variance there is neither interval
    nor p (NaN).

    tested: the metrics of the correction; all unless given. Others are never significant.
    steps: the smallest change of a metric (`metrics.resolution`). Three seeds can differ by the
        same few samples, and a deviation of 0 would imply certainty, so it is at least that of
        rounding, step / √6 for a difference.
    samples: by metric, for each method and seed, the contributions of the test samples, [n], in the
        same order for all runs; their mean is the metric. None where there are none. With them, the
        intervals are for new test samples too (docs/understand/intervals).
    pooled: whether the variance over seeds is that of all methods; for runs of one dataset.
    """
    same = [column for column in runs if column not in ("method", "value")]
    is_base = runs["method"] == baseline
    pairs = runs[~is_base].merge(runs.loc[is_base, [*same, "value"]], on=same, suffixes=("", "_"))
    pairs["value"] -= pairs.pop("value_")
    table = summarise(pairs)
    further = [column for column in table if column not in ("method", "metric", "mean", "sd", "n")]
    deviation, table["freedom"] = table["sd"], table["n"] - 1
    if pooled:
        found = [
            (metric, *pooled_variance(own["method"], own["seed"], own["value"].to_numpy()))
            for metric, own in runs.groupby("metric", sort=False)
        ]
        of_metric = pd.DataFrame(found).set_index(0).reindex(table["metric"]).to_numpy()
        deviation, table["freedom"] = np.sqrt(of_metric[:, 0]), of_metric[:, 1]
    floor = np.array([(steps or {}).get(name, 0.0) for name in table["metric"]]) / math.sqrt(6)
    # NaN stays NaN
    table["seed_error"] = np.maximum(deviation, floor) / np.sqrt(table["n"])
    table["sample_error"] = [
        _sample_error((samples or {}).get(row.metric, {}), row.method, baseline)
        for row in table.itertuples()
    ]
    error, freedom = combine(
        table["seed_error"], table["sample_error"].fillna(0.0), table["freedom"]
    )
    half = error * stdtrit(freedom, 0.5 + CONFIDENCE / 2)
    ratio = (table["mean"].abs() / error).where((table["mean"] != 0) | error.isna(), 0)
    table = table.assign(
        low=table["mean"] - half, high=table["mean"] + half, p=2 * stdtr(freedom, -ratio)
    )
    family = table if tested is None else table[table["metric"].isin(tested)]
    alike = family.groupby(further or np.zeros(len(family)), sort=False)["p"]
    table["p_holm"] = alike.transform(holm_corrected)
    apart = (table["low"] > 0) | (table["high"] < 0)
    return table.assign(significant=apart & (table["p_holm"] < 1 - CONFIDENCE))


def _sample_error(
    samples: Mapping[tuple[str, int], Array | None], method: str, baseline: str
) -> float:
    """The part of the test sample in a standard error; NaN for fewer than two pairs of runs."""
    ours = {seed: values for (name, seed), values in samples.items() if name == method}
    pairs = [(own, samples.get((baseline, seed))) for seed, own in ours.items()]
    found = [own - base for own, base in pairs if own is not None and base is not None]
    return math.sqrt(sample_variance(np.stack(found))) if len(found) > 1 else math.nan


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
    one_part = np.where(samples > 0, np.inf, freedom)
    return np.hypot(seed_error, sample_error), np.where(above > 0, effective, one_part)


def holm_corrected(p: pd.Series) -> pd.Series:
    """p-values after Holm's correction: at 5 %, it bounds the probability of any false claim.

    >>> holm_corrected(pd.Series([0.04, 0.01, 0.03])).tolist()
    [0.06, 0.03, 0.06]
    """
    ordered = p.dropna().sort_values(kind="stable")
    scaled = ordered * np.arange(len(ordered), 0, -1)
    return scaled.clip(upper=1).cummax().reindex(p.index)


def detectable(error: float, freedom: float, level: float = 1 - CONFIDENCE) -> float:
    """The difference that a test with this standard error finds with a probability of 80 %."""
    freedom = min(freedom, 1e6)
    return float(error * nctdtrinc(freedom, 1 - POWER, stdtrit(freedom, 1 - level / 2)))
