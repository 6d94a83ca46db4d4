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


def summarise(comparison: Comparison) -> list[tuple[str, str]]:
    """The results as headings with a sentence or two each, cautions before the verdict."""
    pairs = [] if comparison.complete else [("Incomplete", _incomplete(comparison))]
    if not comparison.records:
        return pairs
    chance, primary = comparison.not_better_than, comparison.primary
    if chance is not None:
        pairs.append(("Caution", _not_better_than_chance(comparison, chance)))
    if len(comparison.methods) == 1:
        return [*pairs, ("Result", _single_method(comparison))]
    first, *others = comparison.baselines
    pairs.append(("Verdict", describe_differences(comparison, first, primary)))
    for baseline in others:
        text = describe_differences(comparison, baseline, primary)
        pairs.append((f"Versus {display_name(baseline)}", text))
    # calibration means nothing where nothing was learned
    if chance is None and any(d.p is not None for d in comparison.differences(first)):
        names = ("nll", "ece")
        texts = [describe_differences(comparison, first, name, brief=True) for name in names]
        pairs.append(("Calibration", " ".join(texts)))
    return pairs


def describe_differences(
    comparison: Comparison, baseline: str, metric: str, *, brief: bool = False
) -> str:
    """Which methods differ significantly from a baseline; briefly, without intervals and p."""
    differences = comparison.differences(baseline, metric)
    name, title = display_name(baseline), METRICS[metric].title
    if not differences:
        return f"No other method has a finished run with a seed of {name}."
    tested = [d for d in differences if d.p is not None]
    if not tested:
        return (
            f"A difference to {name} in {title} cannot be tested with one seed. Use --seeds 3 or "
            "more."
        )
    correction = f"p = {tested[0].p:.2g}"
    if len(tested) > 1:
        correction = f"Holm-corrected over {len(tested)} comparisons"
    significant = [d for d in tested if d.significant]
    if significant:
        text = f"Compared with {name}" + ("" if brief else f" ({correction})")
        text += f", {title} is {_directions(significant, brief)}."
        rest = [display_name(d.method) for d in differences if not d.significant]
        if rest:
            text += f" {join(rest)} {'does' if len(rest) == 1 else 'do'} not differ significantly."
    else:
        text = f"No method differs significantly from {name} in {title}"
        text += "." if brief else f" ({correction}, {plural(tested[0].n, 'seed')})."
        best = max(tested, key=lambda d: METRICS[metric].sign * d.mean)
        if not brief and METRICS[metric].sign * best.mean > 0:
            text += f" The largest improvement is that of {_with_change(best, brief)}."
    return text if brief else text + _before_correction(tested)


def _directions(significant: Sequence[Difference], brief: bool) -> str:
    """ "significantly lower (better) for zeta:2.8 (...) and significantly higher (worse) ..." """
    metric, parts = METRICS[significant[0].metric], []
    for word, sign in (("lower", -1), ("higher", 1)):
        group = [_with_change(d, brief) for d in significant if sign * d.mean > 0]
        if group:
            quality = "better" if sign == metric.sign else "worse"
            parts.append(f"significantly {word} ({quality}) for {join(group)}")
    return " and ".join(parts)


def _with_change(difference: Difference, brief: bool) -> str:
    metric, low, high = METRICS[difference.metric], difference.low, difference.high
    change = metric.format_difference(difference.mean)
    if not brief and low is not None and high is not None:
        change += f", {LEVEL} interval {metric.signed(low)} to {metric.signed(high)}"
    return f"{display_name(difference.method)} ({change})"


def _before_correction(tested: Sequence[Difference]) -> str:
    """Differences that are significant on their own, but not as one of several."""
    near = [d for d in tested if d.excludes_zero and not d.significant]
    names = join(
        [f"{display_name(d.method)} (p = {d.p:.2g}, corrected {d.p_holm:.2f})" for d in near]
    )
    verb = "is significant on its" if len(near) == 1 else "are significant on their"
    return f" {names} {verb} own but not after Holm correction." if near else ""


def _not_better_than_chance(comparison: Comparison, chance: ChanceLevel) -> str:
    metric = METRICS[chance.metric]
    level = f"{metric.title} {metric.format(chance.value)} with {chance.classes} classes"
    subject = "No method is" if comparison.complete else "No method so far is"
    if len(comparison.methods) == 1:
        subject = f"{display_name(comparison.methods[0])} is not"
    return f"{subject} significantly better than chance ({level}). Train longer or check the data."


def _single_method(comparison: Comparison) -> str:
    (label,) = comparison.methods
    summaries = {METRICS[name]: comparison.summary(label, name) for name in comparison.metrics}
    values = [f"{metric.title} {metric.format(s.mean, s.sd)}" for metric, s in summaries.items()]
    seeds = plural(comparison.summary(label, comparison.primary).n, "seed")
    reason = "There is no other method to compare with."
    if len(comparison.requested) > 1:
        reason = "No other method has a finished run yet."
    return f"{display_name(label)} over {seeds}: {', '.join(values)}. {reason}"


def _incomplete(comparison: Comparison) -> str:
    text = f"{len(comparison.records)} of {comparison.total} runs are finished."
    names = [
        f"{display_name(method)} seed {seed} at epoch {int(reached)} of {comparison.recipe.epochs}"
        for (method, seed), reached in comparison.unfinished.items()
    ]
    if names:
        more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        text += f" In progress: {join([*names[:MAX_NAMED], *more])}."
    for (method, seed), reason in comparison.failures.items():
        text += f" {display_name(method)} seed {seed} failed: {reason}"
    return text
