"""What a search found, in plain words that claim no more than the numbers do."""

import math
from collections.abc import Sequence

from zetamix.experiments.tune.final import CHOSEN, Difference, Evaluated, differences
from zetamix.experiments.tune.run import Tuning
from zetamix.gamma import GAMMA_MIN
from zetamix.metrics import METRICS, chance_level
from zetamix.report.tune_figures import measure_name
from zetamix.results.search_space import format_setting
from zetamix.results.tuning import ROUNDING, Trial, Tried, all_tie, by_setting
from zetamix.results.tuning_analysis import Flatness, at_gammas, flatness
from zetamix.text import plural

DEFAULT_GAMMA = 2.8
# a range whose best γ is nearer to its end than this share of it may well have a better one outside
EDGE = 0.05
# different γ below which the best of them may lie anywhere by chance
LEAST_FOR_SHAPE = 10


def read(tuning: Tuning) -> list[tuple[str, str]]:
    """A few sentences, each under a word, for a reader in a hurry."""
    chosen = tuning.chosen
    if chosen is None:
        return [("In short", f"No trial went to its end yet. {_counts(tuning)}")]
    found = _tie(tuning, chosen) if all_tie(tuning.trials) else _lead(tuning, chosen)
    if tuning.tested:
        found.append(("Test", _test(tuning)))
    elif tuning.question.judge == "val" and not tuning.finished:
        found.append(("Not yet", f"{_counts(tuning)} The test split has not been read."))
    return found


def _tie(tuning: Tuning, chosen: Tried) -> list[tuple[str, str]]:
    """What may be said where all finished trials ended alike: next to nothing."""
    metric, split = tuning.question.metric, tuning.question.judge
    name = measure_name(metric, split).removesuffix(", %")
    value = METRICS[metric].format(chosen.value)
    text = (
        f"{_counts(tuning)} All that finished have the same {name}, {value}: they "
        f"tie, and nothing follows about {_searched(tuning)}."
    )
    found = [("Tie", f"{text}{_guessing(tuning, chosen)}")]
    if split == "val":
        # to the last digit, for so the choice is made
        alike = len({tried.loss for tried in by_setting(tuning.trials)}) == 1
        why = "of equals the first" if alike else "of equals the one with the smallest loss"
        found.append(("Chosen", f"{_capital(format_setting(chosen.setting))}, {why}."))
    return found


def _searched(tuning: Tuning) -> str:
    names = [each.name for each in tuning.question.space.searched]
    if names == ["gamma"]:
        return "γ"
    return "γ or what else was searched" if "gamma" in names else "what was searched"


def _guessing(tuning: Tuning, chosen: Tried) -> str:
    """A sentence where what was chosen has learned nothing, else none."""
    question = tuning.question
    split = question.dataset.splits[question.judge]
    level = chance_level(question.metric, split.counts())
    if level is None:
        return ""
    better = METRICS[question.metric].higher_is_better
    lead = chosen.value - level if better else level - chosen.value
    if lead > ROUNDING:
        return ""
    return f" That is no better than guessing among the {split.num_classes} classes."


def _lead(tuning: Tuning, chosen: Tried) -> list[tuple[str, str]]:
    """The best setting, and how much it may be said to be better."""
    question = tuning.question
    found = [("Chosen" if question.judge == "val" else "Best", _chosen(tuning, chosen))]
    flat = flatness(tuning.trials, question.metric)
    if flat is not None and question.space.gamma is not None:
        found.append(("How flat", _flat(tuning, flat)))
    low = _below_threshold(tuning.trials, question.metric)
    if low:
        found.append(("Low γ", low))
    return found


def _chosen(tuning: Tuning, chosen: Tried) -> str:
    metric, split = tuning.question.metric, tuning.question.judge
    size = len(tuning.question.dataset.splits[split])
    text = f"{_capital(format_setting(chosen.setting))}: "
    text += f"{measure_name(metric, split).removesuffix(', %')} "
    error = chosen.trials[0].error
    if chosen.spread is not None:
        text += METRICS[metric].format(chosen.value, chosen.spread)
        text += f" (± standard deviation, {chosen.n} seeds)"
    elif error is not None:
        text += (
            f"{METRICS[metric].format(chosen.value, error)} (± standard error, {size:,} samples)"
        )
    else:
        text += METRICS[metric].format(chosen.value)
    text += f", the best of {_counts(tuning)[:1].lower()}{_counts(tuning)[1:]}"
    text += _guessing(tuning, chosen)
    if tuning.question.judge == "test":
        text += " Read on the test split, as the paper does: nothing should be chosen by it."
    return text


def _counts(tuning: Tuning) -> str:
    """How many trials there are, and what became of them."""
    states = [trial.state for trial in tuning.trials]
    finished = states.count("complete")
    parts = [plural(finished, "finished trial")]
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
    margin = (
        f"one standard error ({METRICS[metric].format_difference(flat.margin).lstrip('+')} {error})"
    )
    if flat.within == 1:
        text = f"No other of {flat.total} {what} lies within {margin} of the best."
    else:
        text = (
            f"{flat.within} of {flat.total} {what} lie within {margin} of the best, with γ from "
            f"{flat.low:g} to {flat.high:g}: {_how_wide(tuning, flat)}"
        )
    return text + _default(flat) + _edge(tuning, flat)


def _how_wide(tuning: Tuning, flat: Flatness) -> str:
    gamma, tried = tuning.question.space.gamma, len(at_gammas(tuning.trials))
    if tried < LEAST_FOR_SHAPE:
        return f"of {tried} γ that says nothing yet about how flat the optimum is."
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

    In a grid that is its first or last γ; of a range, what is drawn near an end of it. Of few γ
    one is often at an end by chance: there it has to stand out, and in a grid.
    """
    gamma = tuning.question.space.gamma
    if gamma is None or gamma.span is None or flat.equals > 1:
        return ""
    stands_out = bool(gamma.values) and flat.within == 1
    if len(at_gammas(tuning.trials)) < LEAST_FOR_SHAPE and not stands_out:
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
        f"{len(below)} finished trials had a mean of {METRICS[metric].format(means[0])}; the "
        f"{len(above)} from there on {METRICS[metric].format(means[1])}."
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
    return METRICS[metric].format(found.value, None if math.isnan(found.spread) else found.spread)


def _claim(found: Difference, metric: str) -> str:
    """What may be said about a difference, and no more."""
    change = METRICS[metric].format_difference(found.estimate.value)
    if found.low is None or found.high is None:
        return f"Against {found.reference} {change}: from one seed no difference can be claimed."
    low = METRICS[metric].signed(found.low)
    interval = f"95 % interval {low} to {METRICS[metric].format_difference(found.high)}"
    if not found.excludes_zero:
        return f"Against {found.reference} {change} ({interval}): no difference can be claimed."
    better = (found.estimate.value > 0) == METRICS[metric].higher_is_better
    return f"Against {found.reference} {change} ({interval}): {'better' if better else 'worse'}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
