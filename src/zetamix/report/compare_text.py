"""The sentences of a comparison report. None claims more than is significant after correction."""

from collections.abc import Sequence

from zetamix.measure.statistics import CONFIDENCE, Difference
from zetamix.methods import display_name
from zetamix.metrics import METRICS
from zetamix.results.comparison import ChanceLevel, Comparison
from zetamix.text import join, plural

LEVEL = f"{100 * CONFIDENCE:g} %"
# unfinished runs that are named one by one
MAX_NAMED = 6
CALIBRATION = ("nll", "ece")


def summarise(comparison: Comparison) -> list[tuple[str, str]]:
    """The results as headings with a sentence or two each, the verdict and its cautions first."""
    pairs = [] if comparison.complete else [("Incomplete", _incomplete(comparison))]
    if not comparison.records:
        return pairs
    chance = comparison.not_better_than
    if chance is not None:
        pairs.append(("Caution", _not_better_than_chance(comparison, chance)))
    if len(comparison.methods) == 1:
        return [*pairs, ("Result", _single_method(comparison))]
    first, *others = comparison.baselines
    pairs.append(("Verdict", describe_differences(comparison, first, comparison.primary)))
    pairs += [
        (
            f"Versus {display_name(baseline)}",
            describe_differences(comparison, baseline, comparison.primary),
        )
        for baseline in others
    ]
    # calibration means nothing where nothing was learned
    if chance is None and any(d.p is not None for d in comparison.differences(first)):
        texts = [describe_differences(comparison, first, name, brief=True) for name in CALIBRATION]
        pairs.append(("Calibration", " ".join(dict.fromkeys(texts))))
    return pairs


def describe_differences(
    comparison: Comparison, baseline: str, metric: str, *, brief: bool = False
) -> str:
    """Which methods differ significantly from a baseline in a metric.

    brief: without intervals and p-values.
    """
    differences = comparison.differences(baseline, metric)
    name, title = display_name(baseline), METRICS[metric].title
    if not differences:
        return f"No other method has a finished run with a seed of {name}."
    tested = [difference for difference in differences if difference.p is not None]
    if not tested:
        text = f"A difference to {name} in {title} cannot be tested with one seed."
        return text if brief else f"{text} Use --seeds 3 or more."
    significant = [difference for difference in tested if difference.significant]
    correction = f"p = {tested[0].p:.2g}"
    if len(tested) > 1:
        correction = f"Holm-corrected over {len(tested)} comparisons"
    if not significant:
        text = f"No method differs significantly from {name} in {title}"
        if brief:
            return f"{text}."
        text += f" ({correction}, {plural(tested[0].n, 'seed')})."
        best = max(tested, key=lambda difference: METRICS[metric].sign * difference.mean)
        if METRICS[metric].sign * best.mean > 0:
            text += f" The largest improvement is that of {_with_interval(best)}."
        return text + _before_correction(tested)
    text = _directions(significant, "" if brief else f" ({correction})")
    rest = [display_name(d.method) for d in differences if not d.significant]
    if rest:
        verb = "does" if len(rest) == 1 else "do"
        text += f" {join(rest)} {verb} not differ significantly."
    return text if brief else text + _before_correction(tested)


def _directions(significant: Sequence[Difference], correction: str) -> str:
    """Which methods are significantly lower and higher; without a correction, briefly."""
    metric, baseline = METRICS[significant[0].metric], display_name(significant[0].baseline)
    parts = []
    for word, sign in (("lower", -1), ("higher", 1)):
        group = [d for d in significant if sign * d.mean > 0]
        if group:
            quality = "better" if sign == metric.sign else "worse"
            named = [_with_interval(d) if correction else _with_change(d) for d in group]
            parts.append(f"significantly {word} ({quality}) for {join(named)}")
    return f"Compared with {baseline}{correction}, {metric.title} is {' and '.join(parts)}."


def _with_change(difference: Difference) -> str:
    change = METRICS[difference.metric].format_difference(difference.mean)
    return f"{display_name(difference.method)} ({change})"


def _with_interval(difference: Difference) -> str:
    metric = METRICS[difference.metric]
    text = f"{display_name(difference.method)} ({metric.format_difference(difference.mean)}"
    if difference.low is not None and difference.high is not None:
        text += f", {LEVEL} interval {metric.signed(difference.low)} to "
        text += metric.signed(difference.high)
    return f"{text})"


def _before_correction(tested: Sequence[Difference]) -> str:
    """Differences that are significant on their own, but not as one of several."""
    near = [d for d in tested if d.excludes_zero and not d.significant]
    if not near:
        return ""
    names = join([f"{display_name(d.method)} (p = {d.p_holm:.2f})" for d in near])
    verb = "is significant on its" if len(near) == 1 else "are significant on their"
    return f" {names} {verb} own but not after Holm correction."


def _not_better_than_chance(comparison: Comparison, chance: ChanceLevel) -> str:
    metric = METRICS[chance.metric]
    level = f"{metric.title} {metric.format(chance.value)} with {chance.classes} classes"
    if len(comparison.methods) == 1:
        subject = f"{display_name(comparison.methods[0])} is not"
    else:
        subject = "No method is" if comparison.complete else "No method so far is"
    return f"{subject} significantly better than chance ({level}). Train longer or check the data."


def _single_method(comparison: Comparison) -> str:
    (label,) = comparison.methods
    values = []
    for name in comparison.metrics:
        summary = comparison.summary(label, name)
        values.append(f"{METRICS[name].title} {METRICS[name].format(summary.mean, summary.sd)}")
    n = comparison.summary(label, comparison.primary).n
    if len(comparison.requested) > 1:
        reason = "No other method has a finished run yet."
    else:
        reason = "There is no other method to compare with."
    return f"{display_name(label)} over {plural(n, 'seed')}: {', '.join(values)}. {reason}"


def _incomplete(comparison: Comparison) -> str:
    text = f"{len(comparison.records)} of {comparison.total} runs are finished."
    epochs = comparison.recipe.epochs
    names = [
        f"{method} seed {seed} at epoch {int(reached)} of {epochs}"
        for (method, seed), reached in comparison.unfinished.items()
    ]
    if names:
        more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        text += f" In progress: {join([*names[:MAX_NAMED], *more])}."
    for (method, seed), reason in comparison.failures.items():
        text += f" {method} seed {seed} failed: {reason}"
    return text
