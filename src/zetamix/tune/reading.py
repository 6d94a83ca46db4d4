"""What a search found, in plain words that claim no more than the numbers do."""

import math
from collections.abc import Sequence

from zetamix.metrics import METRICS
from zetamix.series import GAMMA_MIN
from zetamix.tune.analysis import Flatness, flatness
from zetamix.tune.figures import PLAIN, measure_name, scaled
from zetamix.tune.final import CHOSEN, Difference, Evaluated, differences
from zetamix.tune.result import Trial, Tried
from zetamix.tune.run import Tuning
from zetamix.tune.space import label
from zetamix.words import counted

DEFAULT_GAMMA = 2.8
# a range whose best γ is nearer to its end than this share of it may well have a better one outside
EDGE = 0.05
# finished trials below which the best of them may lie anywhere by chance
LEAST_FOR_SHAPE = 10


def read(tuning: Tuning) -> list[tuple[str, str]]:
    """A few sentences, each under a word, for a reader in a hurry."""
    chosen = tuning.chosen
    if chosen is None:
        return [("In short", f"No trial went to its end yet. {_counts(tuning)}")]
    found = [("Chosen" if tuning.question.judge == "val" else "Best", _chosen(tuning, chosen))]
    flat = flatness(tuning.trials, tuning.question.metric)
    if flat is not None and tuning.question.space.gamma is not None:
        found.append(("How flat", _flat(tuning, flat)))
    low = _below_threshold(tuning.trials, tuning.question.metric)
    if low:
        found.append(("Low γ", low))
    if tuning.tested:
        found.append(("Test", _test(tuning)))
    elif tuning.question.judge == "val" and not tuning.finished:
        found.append(("Not yet", f"{_counts(tuning)} The test split has not been read."))
    return found


def _chosen(tuning: Tuning, chosen: Tried) -> str:
    metric, split = tuning.question.metric, tuning.question.judge
    size = len(tuning.question.dataset.splits[split])
    text = f"{_capital(label(chosen.setting))}: {measure_name(metric, split).removesuffix(', %')} "
    error = chosen.trials[0].error
    if chosen.spread is not None:
        text += f"{show(metric, chosen.value, chosen.spread)} (± standard deviation, {chosen.n} "
        text += "seeds)"
    elif error is not None:
        text += f"{show(metric, chosen.value, error)} (± standard error, {size:,} samples)"
    else:
        text += show(metric, chosen.value)
    text += f", the best of {_counts(tuning)[:1].lower()}{_counts(tuning)[1:]}"
    if tuning.question.judge == "test":
        text += " Read on the test split, as the paper does: nothing should be chosen by it."
    return text


def _counts(tuning: Tuning) -> str:
    """How many trials there are, and what became of them."""
    states = [trial.state for trial in tuning.trials]
    finished = states.count("complete")
    parts = [counted(finished, "finished trial")]
    words = {"pruned": "stopped early", "diverged": "diverged", "failed": "failed"}
    parts += [f"{states.count(s)} {word}" for s, word in words.items() if s in states]
    left = tuning.total - len(states)
    if left > 0:
        parts.append(f"{left} to go")
    return f"{', '.join(parts)}."


def _flat(tuning: Tuning, flat: Flatness) -> str:
    metric = tuning.question.metric
    what = "γ of the grid" if flat.over_seeds else "finished trials"
    size = len(tuning.question.dataset.splits[tuning.question.judge])
    error = "over seeds" if flat.over_seeds else f"for {size:,} samples; seeds add to it"
    margin = f"one standard error ({_points(metric, flat.margin)} {error})"
    if flat.within == 1:
        text = f"No other of {flat.total} {what} lies within {margin} of the best."
    else:
        text = (
            f"{flat.within} of {flat.total} {what} lie within {margin} of the best, with γ from "
            f"{flat.low:g} to {flat.high:g}: {_how_wide(tuning, flat)}"
        )
    return text + _default(flat) + _edge(tuning, flat)


def _how_wide(tuning: Tuning, flat: Flatness) -> str:
    gamma = tuning.question.space.gamma
    if flat.total < LEAST_FOR_SHAPE and not (gamma is not None and gamma.values):
        return f"of {flat.total} that says nothing yet about how flat the optimum is."
    share = 0.0 if gamma is None else gamma.share(flat.low, flat.high)
    if share >= 0.5:
        return f"the optimum is flat, over {100 * share:.0f} % of what was searched."
    if share >= 0.2:
        return f"the optimum is broad, {100 * share:.0f} % of what was searched."
    return f"the optimum is narrow, {100 * share:.0f} % of what was searched."


def _default(flat: Flatness) -> str:
    if flat.low <= DEFAULT_GAMMA <= flat.high and flat.within > 1:
        return f" The default, {DEFAULT_GAMMA}, lies between them."
    return ""


def _edge(tuning: Tuning, flat: Flatness) -> str:
    """Whether the best γ lies at an end of what was searched, so that a better one may be beyond.

    In a grid that is its first or last γ; of a range, what is drawn near an end of it.
    """
    gamma = tuning.question.space.gamma
    if gamma is None or gamma.span is None:
        return ""
    if not gamma.values and flat.total < LEAST_FOR_SHAPE:
        return ""
    room = 1e-9 if gamma.values else EDGE
    low, high = gamma.span
    for end, away in ((low, gamma.share(low, flat.best)), (high, gamma.share(flat.best, high))):
        if away <= room:
            return f" The best γ lies at the edge of the search, {end:g}: look beyond it."
    return ""


def _below_threshold(trials: Sequence[Trial], metric: str) -> str:
    done = [t for t in trials if t.state == "complete" and t.value is not None]
    sides: tuple[list[float], list[float]] = ([], [])
    for trial in done:
        if trial.gamma is not None and trial.value is not None:
            sides[trial.gamma >= GAMMA_MIN].append(trial.value)
    below, above = sides
    if not below or not above:
        return ""
    means = [math.fsum(side) / len(side) for side in (below, above)]
    return (
        f"Below GAMMA_MIN = {GAMMA_MIN:.5f}, where no sample need outweigh the others, "
        f"{len(below)} finished trials had a mean of {show(metric, means[0])}; the "
        f"{len(above)} from there on {show(metric, means[1])}."
    )


def _test(tuning: Tuning) -> str:
    metric = tuning.question.metric
    n = len(tuning.tested[0].records)
    values = [f"{_name(each)} {_mean(each, metric)}" for each in tuning.tested]
    text = f"{_capital(measure_name(metric, 'test').removesuffix(', %'))} over {n} new "
    text += f"{'seed' if n == 1 else 'seeds'}: {', '.join(values)}. "
    text += " ".join(_claim(found, metric) for found in differences(tuning.tested, metric))
    if tuning.settings_tested > 1:
        text += (
            f" The test split has been read for {tuning.settings_tested} chosen settings of this "
            "study by now; the more there are, the less it is a test."
        )
    return text


def _name(tested: Evaluated) -> str:
    """`chosen (zeta:2.4)`, or the method alone."""
    contender = tested.contender
    if contender.name == CHOSEN:
        return f"the chosen setting ({contender.method})"
    return contender.name


def _mean(tested: Evaluated, metric: str) -> str:
    found = tested.estimate(metric)
    return show(metric, found.value, None if math.isnan(found.spread) else found.spread)


def _claim(found: Difference, metric: str) -> str:
    """What may be said about a difference, and no more."""
    change = _points(metric, found.estimate.value, signed=True)
    if found.low is None or found.high is None:
        return f"Against {found.reference} {change}: from one seed no difference can be claimed."
    low = _points(metric, found.low, signed=True).removesuffix(" points")
    interval = f"95 % interval {low} to {_points(metric, found.high, signed=True)}"
    if not found.excludes_zero:
        return f"Against {found.reference} {change} ({interval}): no difference can be claimed."
    better = (found.estimate.value > 0) == METRICS[metric][1]
    return f"Against {found.reference} {change} ({interval}): {'better' if better else 'worse'}."


def show(metric: str, value: float, error: float | None = None) -> str:
    """A measure as it is printed.

    >>> show("error", 0.0442), show("nll", 0.2), show("error", 0.0442, 0.001)
    ('4.42 %', '0.2000', '4.42 ± 0.10 %')
    """
    digits, unit = (4, "") if metric in PLAIN else (2, " %")
    numbers = [f"{scaled(metric, each):.{digits}f}" for each in (value, error) if each is not None]
    return " ± ".join(numbers) + unit


def _points(metric: str, value: float, *, signed: bool = False) -> str:
    """A difference; of shares it is in points, not in percent of anything."""
    shown = scaled(metric, value)
    text = f"{shown:+.4f}" if metric in PLAIN else f"{shown:+.2f} points"
    return text.replace("-", "−") if signed else text.lstrip("+")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
