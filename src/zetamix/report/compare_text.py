"""What the numbers say, in plain words, and never more than their intervals allow."""

from collections.abc import Sequence

from zetamix.measure.statistics import CONFIDENCE, Difference
from zetamix.metrics import METRICS
from zetamix.results.comparison import ChanceLevel, Comparison
from zetamix.text import plural

LEVEL = f"{100 * CONFIDENCE:g} %"
# runs that a sentence has room for
MOST_NAMED = 6


def read(comparison: Comparison) -> list[tuple[str, str]]:
    """A few sentences, each under a word, for a reader in a hurry."""
    found = []
    if not comparison.complete:
        found.append(("Unfinished", _unfinished(comparison)))
    if not comparison.records:
        return found
    # before the answer, which says little where nothing was learned
    if comparison.not_better_than is not None:
        found.append(("Caution", _caution(comparison, comparison.not_better_than)))
    if len(comparison.methods) == 1:
        return [*found, ("Measured", _alone(comparison))]
    words = ["Answer", *(f"Against {label}" for label in comparison.baselines[1:])]
    for word, reference in zip(words, comparison.baselines, strict=True):
        found.append((word, claim(comparison, reference, comparison.primary)))
    first = comparison.baselines[0]
    calibration = [claim(comparison, first, name, brief=True) for name in ("nll", "ece")]
    told = [sentence for _, sentence in found]
    new = [sentence for sentence in dict.fromkeys(calibration) if sentence not in told]
    return [*found, ("Calibration", " ".join(new))] if new else found


def _caution(comparison: Comparison, chance: ChanceLevel) -> str:
    metric = METRICS[chance.metric]
    level = f"{metric.title} {metric.format(chance.value)} with {chance.classes} classes"
    one = len(comparison.methods) == 1
    name = comparison.methods[0] if one else "No method"
    verb = "is not" if one else "is" if comparison.complete else "so far is"
    return (
        f"{name} {verb} significantly better than chance ({level}): train longer, or check the "
        "data, before comparing."
    )


def _alone(comparison: Comparison) -> str:
    """What one method reaches, with nothing beside it."""
    (label,) = comparison.methods
    values = []
    for metric in comparison.metrics:
        found = comparison.summary(label, metric)
        values.append(f"{METRICS[metric].title} {METRICS[metric].format(found.mean, found.sd)}")
    n = comparison.summary(label, comparison.primary).n
    text = f"{label} over {plural(n, 'seed')}: {', '.join(values)}. "
    if len(comparison.requested) > 1:
        return text + "Nothing can be compared before another method has a finished run."
    return text + "One method is measured, not compared."


def claim(comparison: Comparison, reference: str, metric: str, *, brief: bool = False) -> str:
    """What may be said about every method's difference to `reference`.

    brief: without intervals, for what is not the main question.
    """
    differences = comparison.differences(reference, metric)
    name = METRICS[metric].title
    if not differences:
        return f"There is no run to hold against {reference} on the same seed."
    known = [found for found in differences if found.low is not None]
    if not known:
        text = f"With one seed no difference to {reference} in {name} can be claimed"
        return f"{text}." if brief else f"{text}: no interval can be given. Train more (--seeds 3)."
    claimed = [found for found in known if found.significant]
    if not claimed:
        return _no_claim(comparison, known, name, brief)
    higher, lower = ("better", "worse") if METRICS[metric].higher_is_better else ("worse", "better")
    less = [_stated(found, brief) for found in claimed if found.mean < 0]
    more = [_stated(found, brief) for found in claimed if found.mean > 0]
    parts = [
        f"{direction} ({quality}) with {_join(group)}"
        for group, direction, quality in ((less, "lower", lower), (more, "higher", higher))
        if group
    ]
    text = f"Compared with {reference}, {name} is {', and '.join(parts)}."
    rest = [found.method for found in differences if not found.significant]
    if rest:
        text += f" Nothing can be claimed for {_join(rest)}."
    return text if brief else text + _chance(known)


def _no_claim(comparison: Comparison, known: Sequence[Difference], name: str, brief: bool) -> str:
    metric, reference = known[0].metric, known[0].baseline
    text = f"No difference to {reference} in {name} can be claimed"
    if brief:
        return f"{text}."
    sign = 1 if METRICS[metric].higher_is_better else -1
    best = max(known, key=lambda found: sign * found.mean)
    mean = METRICS[metric].format(comparison.summary(best.method, metric).mean)
    what = "The best mean of all" if sign * best.mean > 0 else f"The best mean beside {reference}"
    text += (
        f" ({best.n} seeds). {what}, {mean} with {best.method}, differs by "
        f"{METRICS[metric].format_difference(best.mean)}"
    )
    if not best.excludes_zero:
        text += f", and the {LEVEL} interval, {_interval(best)}, contains 0."
    else:
        text += f" ({LEVEL} interval {_interval(best)})."
    return text + _chance(known)


def _chance(known: Sequence[Difference]) -> str:
    """Intervals that exclude 0 by themselves, but not as one of many."""
    near = [found for found in known if found.excludes_zero and not found.significant]
    if not near:
        return ""
    each = [f"{found.method} (p = {found.p_holm:.2f})" for found in near]
    them = "interval of {} excludes" if len(near) == 1 else "intervals of {} exclude"
    return (
        f" Taken alone, the {them.format(_join(each))} 0; as one of {len(known)} comparisons that "
        "may be chance (p after Holm)."
    )


def _stated(found: Difference, brief: bool) -> str:
    by = METRICS[found.metric].format_difference(found.mean)
    if brief:
        return f"{found.method} ({by})"
    return f"{found.method} by {by} ({LEVEL} interval {_interval(found)})"


def _interval(found: Difference) -> str:
    if found.low is None or found.high is None:
        return "–"
    return (
        f"{METRICS[found.metric].signed(found.low)} to {METRICS[found.metric].signed(found.high)}"
    )


def _unfinished(comparison: Comparison) -> str:
    total, done = comparison.total, len(comparison.records)
    text = f"{done} of {total} runs are finished, and only those are counted."
    epochs = comparison.recipe.epochs
    far = [
        f"{method} seed {seed} at epoch {int(reached)} of {epochs}"
        for (method, seed), reached in comparison.unfinished.items()
    ]
    if far:
        rest = [f"{len(far) - MOST_NAMED} more"] if len(far) > MOST_NAMED else []
        text += f" Under way: {_join([*far[:MOST_NAMED], *rest])}."
    for (method, seed), reason in comparison.failures.items():
        text += f" {method} seed {seed} failed: {reason}"
    return text


def _join(parts: Sequence[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]
