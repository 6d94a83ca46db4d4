"""What trials say about γ: a curve, how flat its optimum is, and which parameters matter."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zetamix.metrics import METRICS
from zetamix.results.search_space import Parameter
from zetamix.results.tuning import ROUNDING, Trial, all_tie, best_of

# local means over γ: how wide a neighbourhood is, as a share of the range, and where they are taken
BANDWIDTH = 0.08
PLACES = 80
# a local mean that rests on fewer trials than this is not drawn
LEAST_TRIALS = 3.0
# nor any, where there are fewer trials in all or where they cover less than this share of the range
LEAST_FOR_TREND, LEAST_COVER = 10, 0.5
# trials below which a forest of trees would split noise
LEAST_FOR_IMPORTANCE = 12


@dataclass(frozen=True)
class Point:
    """The mean of a measure at one γ."""

    gamma: float
    value: float
    band: float | None
    """Half the height of the band: a standard deviation over seeds, or a standard error."""
    n: float
    """Trials behind it; of a local mean, how many they are worth."""


@dataclass(frozen=True)
class Flatness:
    """The γ that cannot be told from the best one."""

    best: float
    low: float
    high: float
    within: int
    """Settings, of `total`, that lie within `margin` of the best; `low` to `high` are their γ."""
    total: int
    margin: float
    """One standard error of the best."""
    over_seeds: bool
    """Whether that error is over seeds, or that of one measurement on a finite split."""
    equals: int = 1
    """Different γ that are as good as the best: of several, which one is `best` means nothing."""


@dataclass(frozen=True)
class Best:
    """The best value, and how far off it may be."""

    gamma: float
    value: float
    error: float
    """Its standard error: over seeds where γ were tried several times, else of the samples."""
    over_seeds: bool


def at_gammas(trials: Sequence[Trial]) -> dict[float, list[float]]:
    """The values of finished trials by γ, ascending."""
    found: dict[float, list[float]] = {}
    for trial in trials:
        if trial.state == "complete" and trial.gamma is not None and trial.value is not None:
            found.setdefault(trial.gamma, []).append(trial.value)
    return dict(sorted(found.items()))


def has_seeds(trials: Sequence[Trial]) -> bool:
    """Whether γ were tried several times each, as in a grid, or each another once."""
    found = at_gammas(trials)
    return bool(found) and sum(len(values) > 1 for values in found.values()) > len(found) / 2


def curve(trials: Sequence[Trial]) -> list[Point]:
    """Mean and standard deviation at every γ that was tried.

    >>> trials = [Trial(number=k, setting={"gamma": 2.0}, seed=k, state="complete", value=v)
    ...           for k, v in enumerate((0.1, 0.3))]
    >>> [(point.value, round(point.band, 4), point.n) for point in curve(trials)]
    [(0.2, 0.1414, 2)]
    """
    return [_point(gamma, values) for gamma, values in at_gammas(trials).items()]


def trend(trials: Sequence[Trial]) -> list[Point]:
    """Local means over γ with their standard errors, where enough trials are near.

    None at all from a handful of trials, or where only a fragment could be drawn. Trials are
    weighted by a Gaussian of their distance in γ.
    """
    found = [(gamma, value) for gamma, values in at_gammas(trials).items() for value in values]
    if len(found) < LEAST_FOR_TREND:
        return []
    low, high = found[0][0], found[-1][0]
    width = BANDWIDTH * (high - low)
    if width <= 0:
        return []
    places = [low + (high - low) * k / (PLACES - 1) for k in range(PLACES)]
    points = [_local_mean(place, width, found) for place in places]
    known = [point for point in points if point.n >= LEAST_TRIALS]
    return known if len(known) >= LEAST_COVER * PLACES else []


def _local_mean(place: float, width: float, found: Sequence[tuple[float, float]]) -> Point:
    weights = [math.exp(-0.5 * ((gamma - place) / width) ** 2) for gamma, _ in found]
    total = math.fsum(weights)
    # a weighted mean is worth as many equally weighted values
    worth = total**2 / math.fsum(weight**2 for weight in weights)
    mean = math.fsum(w * value for w, (_, value) in zip(weights, found, strict=True)) / total
    squares = (w * (value - mean) ** 2 for w, (_, value) in zip(weights, found, strict=True))
    variance = math.fsum(squares) / total * worth / max(1.0, worth - 1)
    # far from all trials the weights are small and alike: worth much, and near none of them. Where
    # trials lie evenly the two numbers are the same
    near = min(worth, math.sqrt(2) * total)
    return Point(place, mean, math.sqrt(variance / worth), near)


def _point(gamma: float, values: Sequence[float]) -> Point:
    n = len(values)
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Point(gamma, mean, spread, n)


def best_with_error(trials: Sequence[Trial], metric: str) -> Best | None:
    """The best of all γ; None where no standard error of it is known."""
    lower = not METRICS[metric].higher_is_better
    best = best_of(trials, lower)
    if best is None or "gamma" not in best.setting:
        return None
    if not has_seeds(trials):
        error = best.trials[0].error
        gamma = float(best.setting["gamma"])
        return None if error is None else Best(gamma, best.value, error, False)
    points = curve(trials)
    pooled = pooled_error(points)
    if pooled is None:
        return None
    top = min(points, key=lambda point: point.value if lower else -point.value)
    return Best(top.gamma, top.value, pooled, True)


def flatness(trials: Sequence[Trial], metric: str) -> Flatness | None:
    """Which γ lie within one standard error of the best; None where that cannot be said.

    Nor can it where all trials tie, as they do where no model learns anything.
    """
    best = best_with_error(trials, metric)
    if best is None or all_tie(trials):
        return None
    lower = not METRICS[metric].higher_is_better
    places = [(gamma, value) for gamma, values in at_gammas(trials).items() for value in values]
    if best.over_seeds:
        places = [(point.gamma, point.value) for point in curve(trials)]
    near = [gamma for gamma, value in places if _is_near(value, best.value, best.error, lower)]
    equals = {gamma for gamma, value in places if abs(value - best.value) <= ROUNDING}
    return Flatness(
        best=best.gamma,
        low=min(near),
        high=max(near),
        within=len(near),
        total=len(places),
        margin=best.error,
        over_seeds=best.over_seeds,
        equals=len(equals),
    )


def pooled_error(points: Sequence[Point]) -> float | None:
    """Standard error of one point's mean, from the spread over seeds of all points together.

    Three seeds say little about their own spread; seventeen times three do.
    """
    known = [(point.band, point.n) for point in points if point.band is not None]
    freedom = sum(n - 1 for _, n in known)
    if not freedom:
        return None
    variance = math.fsum((n - 1) * band**2 for band, n in known) / freedom
    return math.sqrt(variance / min(n for _, n in known))


def _is_near(value: float, best: float, error: float, lower: bool) -> bool:
    # a step of the measure must not be lost in rounding
    return (value - best if lower else best - value) <= error * (1 + 1e-9)


def importance(
    trials: Sequence[Trial], parameters: Sequence[Parameter], seed: int = 0
) -> dict[str, float] | str:
    """Share of the variance that each parameter accounts for (fANOVA), or why none is given."""
    finished = [t for t in trials if t.state == "complete" and t.value is not None]
    if len(parameters) < 2:
        return "Only one parameter was searched, so there is nothing to weigh it against."
    if len(finished) < LEAST_FOR_IMPORTANCE:
        return (
            f"{len(finished)} finished trials say too little about it; "
            f"{LEAST_FOR_IMPORTANCE} are the least."
        )
    if len({trial.value for trial in finished}) == 1:
        return "All finished trials are equally good: no parameter made a difference."
    return _fanova(finished, parameters, seed)


def _fanova(
    finished: Sequence[Trial], parameters: Sequence[Parameter], seed: int
) -> dict[str, float]:
    import optuna

    from zetamix.experiments.tune.storage import quieten

    quieten()
    study = optuna.create_study()
    distributions = {each.name: each.distribution() for each in parameters}
    for trial in finished:
        params: dict[str, Any] = {name: trial.setting[name] for name in distributions}
        study.add_trial(
            optuna.create_trial(params=params, distributions=distributions, value=trial.value)
        )
    # Optuna 5 took another evaluator for its default; named, it is the same in 4 and 5
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=seed)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()}
