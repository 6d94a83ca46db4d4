"""Analysis of trials: the metric against γ, the flatness of its optimum, parameter importance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from zetamix.measure.statistics import summarise
from zetamix.metrics import METRICS
from zetamix.results.search_space import Parameter
from zetamix.results.tuning import ROUNDING, Trial, all_tie, best_of

# local means over γ: width of the Gaussian as a fraction of the range, and number of points
BANDWIDTH = 0.08
GRID_POINTS = 80
# minimum effective trials of a local mean, total trials of a curve, and fraction of the range that
# a curve must cover
MIN_EFFECTIVE_TRIALS = 3.0
MIN_TREND_TRIALS, MIN_COVERAGE = 10, 0.5
# with fewer trials, the forest of fANOVA would fit noise
MIN_IMPORTANCE_TRIALS = 12


@dataclass(frozen=True)
class CurvePoint:
    """The mean of the metric at one γ."""

    gamma: float
    value: float
    band: float | None
    """A standard deviation over seeds, or the standard error of a local mean."""
    n: float
    """Number of trials; for a local mean, the effective number."""


@dataclass(frozen=True)
class Flatness:
    """The γ within one standard error of the best."""

    best: float
    value: float
    """The metric at the best γ."""
    low: float
    high: float
    within: int
    """Settings, out of `total`, within `margin` of the best; their γ range from `low` to `high`."""
    total: int
    margin: float
    """One standard error of the best."""
    over_seeds: bool
    """Whether that error is over seeds, or over the samples of one measurement."""
    worse_between: int = 0
    """γ between `low` and `high` that are not within `margin`."""
    ties: int = 1
    """Number of γ with the best value; if there are several, `best` is one of them by chance."""


def at_gammas(trials: Sequence[Trial]) -> dict[float, list[float]]:
    """The values of complete trials by γ, ascending."""
    values: dict[float, list[float]] = {}
    for trial in trials:
        if trial.state == "complete" and trial.gamma is not None and trial.value is not None:
            values.setdefault(trial.gamma, []).append(trial.value)
    return dict(sorted(values.items()))


def has_seeds(trials: Sequence[Trial]) -> bool:
    """Whether most γ were trained with several seeds, as in a grid."""
    groups = at_gammas(trials).values()
    return bool(groups) and sum(len(values) > 1 for values in groups) > len(groups) / 2


def curve(trials: Sequence[Trial]) -> list[CurvePoint]:
    """Mean and standard deviation at every γ.

    >>> trials = [Trial(number=k, setting={"gamma": 2.0}, seed=k, state="complete", value=v)
    ...           for k, v in enumerate((0.1, 0.3))]
    >>> [(point.value, round(point.band, 4), point.n) for point in curve(trials)]
    [(0.2, 0.1414, 2)]
    """
    points = []
    for gamma, values in at_gammas(trials).items():
        summary = summarise(dict(enumerate(values)))
        points.append(CurvePoint(gamma, summary.mean, summary.sd, summary.n))
    return points


def trend(trials: Sequence[Trial]) -> list[CurvePoint]:
    """Local means over γ with their standard errors, where enough trials are close.

    Empty if there are too few trials, or if the curve would cover too little of the range. Trials
    are weighted by a Gaussian of their distance in γ.
    """
    pairs = [(gamma, value) for gamma, values in at_gammas(trials).items() for value in values]
    if len(pairs) < MIN_TREND_TRIALS or pairs[0][0] == pairs[-1][0]:
        return []
    gammas, values = torch.tensor(pairs, dtype=torch.float64).T
    low, high = pairs[0][0], pairs[-1][0]
    at = torch.linspace(low, high, GRID_POINTS, dtype=torch.float64)
    weights = torch.exp(-0.5 * ((gammas - at[:, None]) / (BANDWIDTH * (high - low))) ** 2)
    totals = weights.sum(1)
    means = weights @ values / totals
    effective = totals**2 / (weights**2).sum(1)
    variances = (weights * (values - means[:, None]) ** 2).sum(1) / totals
    errors = (variances / (effective - 1).clamp(min=1)).sqrt()
    # far from all trials the weights are small and equal, so that `effective` is large although no
    # trial is close. For evenly spaced trials both numbers agree
    near = torch.minimum(effective, math.sqrt(2) * totals)
    columns = (column.tolist() for column in (at, means, errors, near))
    drawn = [point for point in map(CurvePoint, *columns) if point.n >= MIN_EFFECTIVE_TRIALS]
    return drawn if len(drawn) >= MIN_COVERAGE * GRID_POINTS else []


def flatness(trials: Sequence[Trial], metric: str) -> Flatness | None:
    """The γ within one standard error of the best; None if that is unknown or if all trials tie."""
    sign = METRICS[metric].sign
    best = best_of(trials, metric)
    if best is None or "gamma" not in best.setting or all_tie(trials):
        return None
    gamma, value, error = float(best.setting["gamma"]), best.value, best.trials[0].standard_error
    over_seeds = has_seeds(trials)
    pairs = [(gamma, value) for gamma, values in at_gammas(trials).items() for value in values]
    if over_seeds:
        points = curve(trials)
        pairs = [(point.gamma, point.value) for point in points]
        gamma, value = max(pairs, key=lambda pair: sign * pair[1])
        error = pooled_error(points)
    if error is None:
        return None
    # tolerance for rounding: a difference of exactly one resolution of the metric counts
    near = [g for g, v in pairs if sign * (value - v) <= error * (1 + 1e-9)]
    return Flatness(
        best=gamma,
        value=value,
        low=min(near),
        high=max(near),
        within=len(near),
        total=len(pairs),
        margin=error,
        over_seeds=over_seeds,
        worse_between=len({g for g, _ in pairs if min(near) < g < max(near)} - {*near}),
        ties=len({g for g, v in pairs if abs(v - value) <= ROUNDING}),
    )


def pooled_error(points: Sequence[CurvePoint]) -> float | None:
    """Standard error of one point's mean, from the variance over seeds pooled over all points.

    Three seeds give a poor estimate of their spread; seventeen groups of three give a good one.
    """
    bands = [(point.band, point.n) for point in points if point.band is not None]
    freedom = sum(n - 1 for _, n in bands)
    if not freedom:
        return None
    variance = math.fsum((n - 1) * band**2 for band, n in bands) / freedom
    return math.sqrt(variance / min(n for _, n in bands))


def importance(
    trials: Sequence[Trial], parameters: Sequence[Parameter], seed: int = 0
) -> dict[str, float] | str:
    """Share of the variance due to each parameter (fANOVA), or the reason why there is none."""
    complete = [t for t in trials if t.state == "complete" and t.value is not None]
    if len(parameters) < 2:
        return "Only one parameter was searched, so there is no importance to compare."
    if len(complete) < MIN_IMPORTANCE_TRIALS:
        return (
            f"Too few trials for parameter importance: at least {MIN_IMPORTANCE_TRIALS} trials are "
            f"needed, {len(complete)} are complete."
        )
    if all_tie(complete):
        return "All complete trials have the same value, so no parameter made a difference."
    import optuna

    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=seed)
    study = optuna_study(complete, parameters)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def optuna_study(trials: Sequence[Trial], parameters: Sequence[Parameter]) -> Any:
    """An Optuna study in memory that holds the complete trials, for its analysis and plots."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    distributions = {parameter.name: parameter.distribution() for parameter in parameters}
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            params: dict[str, Any] = {name: trial.setting[name] for name in distributions}
            study.add_trial(
                optuna.create_trial(params=params, distributions=distributions, value=trial.value)
            )
    return study
