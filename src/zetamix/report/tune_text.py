"""The findings of a search as sentences."""

from collections.abc import Sequence

from zetamix.data.quality import CAUTIONS
from zetamix.measure.statistics import Difference
from zetamix.methods import OPTIONS, display_name
from zetamix.metrics import METRICS, chance_level
from zetamix.report.compare_text import LEVEL, at_chance
from zetamix.results.comparison import chance_unless_exceeded
from zetamix.results.search_space import format_setting
from zetamix.results.tuning import (
    CHOSEN,
    ROUNDING,
    SettingResult,
    Tuning,
    all_tie,
    by_setting,
    differences,
)
from zetamix.results.tuning_analysis import Flatness, at_gammas, flatness
from zetamix.text import join, plural

DEFAULT_GAMMA: float = OPTIONS["zeta"]["gamma"]
# the best γ is at the edge if its distance from an end is below this fraction of the range
EDGE = 0.05
# with fewer values of γ, the position of the best one is mostly chance
MIN_SHAPE_GAMMAS = 10


def summarise_tuning(tuning: Tuning) -> list[tuple[str, str]]:
    """The main findings, a heading and a sentence or two each."""
    chosen, spec = tuning.chosen, tuning.spec
    if chosen is None:
        return [("Summary", f"No trial is complete. {_counts(tuning)}.")]
    flat = flatness(tuning.trials, spec.metric)
    lead = [("Chosen", _score(tuning, chosen))]
    if all_tie(tuning.trials):
        lead = _tie(tuning, chosen)
    elif flat is not None and spec.space.gamma is not None:
        lead.append(("Flatness", _flatness(tuning, flat)))
    if tuning.tested:
        if cautions := _cautions(tuning):
            lead.insert(0, ("Caution", " ".join(cautions)))
        lead.append(("Test", _test(tuning)))
    elif tuning.test_failures:
        lead.append(("Test", f"The final test failed. {' '.join(tuning.test_failures)}"))
    elif not tuning.finished:
        lead.append(("Unfinished", f"{_counts(tuning)}. The test split has not been used."))
    return lead


def _cautions(tuning: Tuning) -> list[str]:
    """Reasons to doubt the final test: leaks in the data, scores at chance level."""
    dataset = tuning.spec.dataset
    texts = [f"{note}." for note in dataset.notes if note.startswith(CAUTIONS)]
    test = dataset.splits["test"]
    chance = chance_unless_exceeded(
        tuning.spec.metric,
        test.counts(),
        len(test) if dataset.multi_label else None,
        lambda metric: [candidate.summary(metric).mean for candidate in tuning.tested],
    )
    if chance is not None:
        texts.append(at_chance("No setting is", chance))
    return texts


def _tie(tuning: Tuning, chosen: SettingResult) -> list[tuple[str, str]]:
    """No conclusion can be drawn if all complete trials have the same value."""
    metric = METRICS[tuning.spec.metric]
    text = (
        f"{_counts(tuning)}. All complete trials have the same validation {metric.title}, "
        f"{metric.format(chosen.value)}, so the searched parameters cannot be distinguished."
    )
    same_loss = len({result.nll for result in by_setting(tuning.trials)}) == 1
    rule = "the first tied setting" if same_loss else "the tied setting with the lowest loss"
    setting = format_setting(chosen.setting)
    return [("Tie", text + _chance(tuning, chosen)), ("Chosen", f"{setting}, {rule}.")]


def _score(tuning: Tuning, chosen: SettingResult) -> str:
    metric, size = METRICS[tuning.spec.metric], len(tuning.spec.dataset.splits["val"])
    error, sd = chosen.trials[0].standard_error, chosen.summary.sd
    value = metric.format(chosen.value, error if sd is None else sd)
    if sd is not None:
        value += f" (± standard deviation, {chosen.n} seeds)"
    elif error is not None:
        value += f" (± standard error, {size:,} samples)"
    return (
        f"ζ-mixup with {format_setting(chosen.setting)}: validation {metric.title} {value}, the "
        f"best of {_counts(tuning)}.{_chance(tuning, chosen)}"
    )


def _counts(tuning: Tuning) -> str:
    """The number of trials by state."""
    states = [trial.state for trial in tuning.trials]
    parts = [plural(states.count("complete"), "complete trial")]
    counts = {state: states.count(state) for state in ("pruned", "diverged", "failed")}
    counts["remaining"] = tuning.plan.trials - len(states)
    return ", ".join(parts + [f"{count} {state}" for state, count in counts.items() if count > 0])


def _chance(tuning: Tuning, chosen: SettingResult) -> str:
    """A sentence if the chosen setting is no better than chance."""
    metric = METRICS[tuning.spec.metric]
    val = tuning.spec.dataset.splits["val"]
    level = chance_level(metric.name, val.counts(), samples=len(val) if val.multi_label else None)
    if level is None or metric.sign * (chosen.value - level) > ROUNDING:
        return ""
    return " That is no better than the majority-class baseline."


def _flatness(tuning: Tuning, flat: Flatness) -> str:
    size, count = len(tuning.spec.dataset.splits["val"]), len(at_gammas(tuning.trials))
    unit = "γ of the grid" if flat.over_seeds else "complete trials"
    source = "over seeds" if flat.over_seeds else f"over {size:,} samples, without that of seeds"
    difference = METRICS[tuning.spec.metric].format_difference(flat.margin).lstrip("+")
    margin = f"within one standard error ({difference}, {source}) of the best"
    if flat.total == 1:
        return "One complete trial does not show how other settings perform. Use more --trials."
    if flat.within == 1:
        return f"None of the other {flat.total - 1} {unit} is {margin}.{_edge(tuning, flat)}"
    text = f"{flat.within} of {flat.total} {unit} are {margin}, with γ from {flat.low:g} to "
    text += f"{flat.high:g}. "
    if flat.worse_between:
        text += f"{plural(flat.worse_between, 'other γ', 'other γ')} in between scored worse. "
    if count < MIN_SHAPE_GAMMAS:
        text += f"{count} values of γ are too few to tell how flat the optimum is."
    elif tuning.spec.space.gamma is not None:
        share = tuning.spec.space.gamma.share(flat.low, flat.high)
        width = "flat" if share >= 0.5 else "broad" if share >= 0.2 else "narrow"
        text += f"The optimum is {width}: {100 * share:.0f} % of the searched range."
    if flat.low <= DEFAULT_GAMMA <= flat.high and not flat.worse_between:
        text += f" The default, {DEFAULT_GAMMA}, is in this range."
    return text + _edge(tuning, flat)


def _edge(tuning: Tuning, flat: Flatness) -> str:
    """A sentence if the best γ is at an end of the range, so that a better one may be outside.

    With few values of γ the best is often at an end by chance: then it must be the only one within
    one standard error, in a grid.
    """
    gamma = tuning.spec.space.gamma
    if gamma is None or flat.ties > 1:
        return ""
    stands_out = bool(gamma.values) and flat.within == 1
    if len(at_gammas(tuning.trials)) < MIN_SHAPE_GAMMAS and not stands_out:
        return ""
    (low, high), margin = gamma.span, 1e-9 if gamma.values else EDGE
    for end, distance in ((low, gamma.share(low, flat.best)), (high, gamma.share(flat.best, high))):
        if distance <= margin:
            return f" The best γ is at the edge of the search, {end:g}: extend the range."
    return ""


def _test(tuning: Tuning) -> str:
    """The test score of the chosen setting, and its differences from the baselines."""
    metric = METRICS[tuning.spec.metric]
    chosen = next(candidate for candidate in tuning.tested if candidate.name == CHOSEN)
    summary = chosen.summary(metric.name)
    text = (
        f"Over {plural(summary.n, 'new seed')}, the chosen setting ({chosen.method}) has a test "
        f"{metric.title} of {metric.format(summary.mean, summary.sd)}."
    )
    found = differences(tuning.tested, metric.name)
    if any(difference.p_holm is None for difference in found):
        text += " Differences cannot be tested with one seed."
    elif found:
        text += f" It {join(_claims(found))} ({LEVEL}, Holm-corrected)."
    if tuning.settings_tested > 1:
        text += (
            f" The test split has been used for {tuning.settings_tested} chosen settings of this "
            "study, which weakens the test."
        )
    return text


def _claims(found: Sequence[Difference]) -> list[str]:
    """The claims supported by the differences from the baselines, as predicates."""
    metric = METRICS[found[0].metric]
    groups: dict[str, list[str]] = {}
    for difference in found:
        name, claim = display_name(difference.baseline), "does not differ significantly from"
        if difference.significant:
            side = "better" if metric.sign * difference.mean > 0 else "worse"
            claim = f"is significantly {side} than"
            name += f" ({metric.format_difference(difference.mean)})"
        groups.setdefault(claim, []).append(name)
    ordered = sorted(groups.items(), reverse=True)
    return [f"{claim} {join(names, 'or' if 'not' in claim else 'and')}" for claim, names in ordered]
