"""The sentences of a comparison report. None claims more than is significant after correction."""

from collections.abc import Sequence

from zetamix.methods import display_name
from zetamix.text import join, plural
from zetamix_lab.comparison import Comparison
from zetamix_lab.data.quality import CAUTIONS
from zetamix_lab.metrics import METRICS, SCALED, ChanceLevel, Metric, resolution
from zetamix_lab.statistics import CONFIDENCE, MOST_SEEDS, POWER, Difference, seeds_needed

LEVEL = f"{100 * CONFIDENCE:g} %"
# differences for which the power is reported, as fractions
TARGETS = (0.01, 0.005)
# from this mean improvement in the last third on, training counts as not converged
STILL_IMPROVING = 0.005
# half-width of an interval of two seeds above which a caution is printed
WIDE = 0.01
# at most this many unfinished runs are listed
MAX_NAMED = 6


def summarise(comparison: Comparison) -> list[tuple[str, str]]:
    """The results as headings with a sentence or two each, the verdict first."""
    pairs = [] if comparison.complete else [("Incomplete", _incomplete(comparison))]
    if not comparison.records:
        return pairs
    alone, (first, *others) = len(comparison.methods) == 1, comparison.baselines
    if alone:
        pairs.append(("Result", _single_method(comparison)))
    else:
        pairs.append(("Verdict", describe_differences(comparison, first, comparison.primary)))
    if cautions := _cautions(comparison):
        pairs.append(("Caution", " ".join(cautions)))
    if power := describe_power(comparison, first):
        pairs.append(("Power", power))
    pairs.append(("Training", describe_training(comparison)))
    for baseline in others if not alone else ():
        text = describe_differences(comparison, baseline, comparison.primary)
        pairs.append((f"Versus {display_name(baseline)}", text))
    # calibration is meaningless if nothing was learned
    if comparison.not_better_than is None and family_size(comparison, first):
        pairs.append(("Calibration", describe_calibration(comparison, first)))
    if meaning := METRICS[comparison.primary].meaning:
        pairs.append(("Metric", f"{METRICS[comparison.primary].title}: {meaning}."))
    return pairs


def family_size(comparison: Comparison, baseline: str) -> int:
    """The number of tests that Holm's correction covers: methods × metrics."""
    families = [comparison.differences(baseline, name) for name in comparison.tested]
    return sum(difference.p is not None for family in families for difference in family)


def describe_differences(
    comparison: Comparison, baseline: str, metric: str, *, brief: bool = False
) -> str:
    """Which methods differ significantly from a baseline; briefly, without intervals and p."""
    differences = comparison.differences(baseline, metric)
    name, title = display_name(baseline), METRICS[metric].title
    if not differences:
        return f"No other method has a finished run with the same seed as {name}."
    tested = [d for d in differences if d.p is not None]
    if not tested and not comparison.complete:
        return (
            f"The difference from {name} in {title} cannot be tested yet: no method has two "
            "finished runs with the same seeds."
        )
    if not tested:
        return (
            f"The difference from {name} in {title} cannot be tested with one seed. Use --seeds 3 "
            "or more."
        )
    family = family_size(comparison, baseline)
    correction, p_name = "paired t-test", "" if brief else "p"
    if family > 1:
        p_name = p_name and "Holm-corrected p"
        correction = f"Holm-corrected over {family} comparisons"
        if family > len(tested):
            metrics = plural(len(comparison.tested), "metric")
            correction += f", {plural(len(tested), 'method')} × {metrics}"
    significant = [d for d in tested if d.significant]
    if significant:
        text = f"Compared with {name}" + ("" if brief else f" ({correction})")
        text += f", {title} is {_directions(significant, p_name)}."
        rest = [display_name(d.method) for d in differences if not d.significant]
        if rest:
            text += f" Not significantly different: {join(rest)}."
    else:
        text = f"No method differs significantly from {name} in {title}"
        text += "." if brief else f" ({correction}; {plural(tested[0].n, 'seed')})."
        best = max(METRICS[metric].sign * d.mean for d in tested)
        if not brief and best > 0:
            # compared as printed: means that differ only by rounding are tied
            change = METRICS[metric].signed(METRICS[metric].sign * best)
            tied = [d for d in tested if METRICS[metric].signed(d.mean) == change]
            text += (
                " The largest improvement is that of "
                f"{join([_with_change(d, p_name) for d in tied])}."
            )
    return text if brief else text + _before_correction(tested)


def describe_power(comparison: Comparison, baseline: str) -> str:
    """How many seeds are needed to detect differences of 1 and 0.5 points, at this spread."""
    spread, metric = comparison.spread(baseline), METRICS[comparison.primary]
    if spread is None:
        return ""
    step = resolution(metric.name, comparison.test_counts)
    test = len(comparison.dataset.splits["test"])
    targets = [target for target in TARGETS if target >= step]
    sample = f"one of the {test:,} test samples changes it by {_amount(metric, step)}"
    if not targets:
        return f"A difference of {_amount(metric, TARGETS[0])} cannot be resolved: {sample}."
    family = family_size(comparison, baseline)
    corrected = _seed_counts(targets, spread, (1 - CONFIDENCE) / family)
    parts = [
        f"{count} {words} {_amount(metric, target)}"
        for count, words, target in zip(
            corrected, ("seeds for a difference of", "for"), targets, strict=False
        )
    ]
    text = (
        f"With the observed standard deviation of paired differences ({_amount(metric, spread)}), "
        f"a test of {metric.title} with {100 * POWER:g} % power needs {join(parts)}"
    )
    if family > 1:
        plain = _seed_counts(targets, spread, 1 - CONFIDENCE)
        text += f" ({join(plain)} for one method and one metric, without correction)"
    if len(targets) < len(TARGETS):
        text += f". Smaller ones cannot be resolved: {sample}"
    return f"{text}."


def _seed_counts(targets: Sequence[float], spread: float, level: float) -> list[str]:
    """The number of seeds for each difference, up to the first that is too large."""
    needed = [seeds_needed(target, spread, level) for target in targets]
    kept = needed[: needed.index(None) + 1] if None in needed else needed
    return [f"more than {MOST_SEEDS:,}" if n is None else f"{n:,}" for n in kept]


def describe_training(comparison: Comparison) -> str:
    """Optimiser steps, samples that are dropped with the last batch, and convergence."""
    recipe, samples = comparison.recipe, len(comparison.dataset.train)
    size = min(recipe.batch_size, samples)
    steps, rest = recipe.steps(samples), samples % size
    text = (
        f"{plural(steps, 'optimiser step')} per run "
        f"({plural(recipe.epochs, 'epoch')} of {steps // recipe.epochs:,}, batch size {size})"
    )
    if rest and recipe.last_batch == "drop":
        text += (
            f"; the last, smaller batch is dropped, so an epoch skips {rest:,} of {samples:,} "
            f"samples ({100 * rest / samples:.1f} %)"
        )
    return f"{text}. {_convergence(comparison)}" if comparison.complete else f"{text}."


def _convergence(comparison: Comparison) -> str:
    has_val = all("val" in curve[-1] for curve in comparison.curves.values() if curve)
    split = "val" if has_val and comparison.dataset.val is not None else "test"
    metric, changes = METRICS[comparison.primary], comparison.late_changes(split)
    if not changes:
        return "Too few epochs were evaluated to tell whether training had converged."
    title = f"{'validation' if split == 'val' else 'test'} {metric.title}"
    means = {method: sum(values) / len(values) for method, values in changes.items()}
    improving = [
        f"{display_name(method)} ({metric.format_difference(means[method])})"
        for method, values in changes.items()
        if metric.sign * means[method] >= STILL_IMPROVING
        and all(metric.sign * value > 0 for value in values)
    ]
    if improving:
        return (
            f"Training had not converged: towards the end, {title} still improved for "
            f"{join(improving)}. Train longer, such as --epochs {2 * comparison.recipe.epochs}."
        )
    best = max(means.values(), key=lambda value: metric.sign * value)
    if comparison.not_better_than is not None:
        # a flat curve at chance level means that learning has not started
        return "Convergence cannot be judged, because no method is better than chance."
    if metric.sign * best >= STILL_IMPROVING:
        samples = len(comparison.dataset.splits[split])
        return (
            f"Whether training had converged is unclear: towards the end, {title} changed by up "
            f"to {metric.format_difference(best)} on average, but did not improve in every seed "
            f"({samples:,} samples)."
        )
    return (
        f"Training had converged: towards the end, {title} improved by less than "
        f"{_amount(metric, STILL_IMPROVING)} (largest mean change "
        f"{metric.format_difference(best)})."
    )


def describe_calibration(comparison: Comparison, baseline: str) -> str:
    """Differences after temperature scaling, and what the temperatures say about confidence."""
    if not comparison.has_temperatures:
        reason = f"{comparison.dataset.name} has no validation split"
        if comparison.dataset.val is not None:
            reason = "some runs were trained with an earlier version"
        return (
            f"NLL and ECE are shown without temperature scaling, because {reason}. Mixing makes "
            "networks underconfident by design, so they do not allow a verdict."
        )
    texts = [describe_differences(comparison, baseline, name, brief=True) for name in SCALED]
    means = {label: f"{comparison.temperature(label):.2f}" for label in comparison.methods}
    named = [f"{mean} for {display_name(label)}" for label, mean in means.items()]
    texts.append(f"Fitted temperatures (below 1: underconfident as trained): {join(named)}.")
    if {"0.01", "100.00"} & {*means.values()}:
        texts.append("A temperature of 0.01 or 100 is the limit of the fit: it found no optimum.")
    return " ".join(texts)


def _cautions(comparison: Comparison) -> list[str]:
    """Reasons to doubt the verdict: leaks in the data, scores at chance level, few seeds."""
    texts = [f"{note}." for note in comparison.dataset.notes if note.startswith(CAUTIONS)]
    if comparison.not_better_than is not None:
        texts.append(_not_better_than_chance(comparison, comparison.not_better_than))
    metric = METRICS[comparison.primary]
    halves = [
        d.high - d.mean
        for d in comparison.differences(comparison.baselines[0])
        if d.high is not None and d.n == 2
    ]
    if halves and max(halves) > WIDE:
        texts.append(
            f"With two seeds, {LEVEL} intervals reach ±{_amount(metric, max(halves))}: too wide to "
            "distinguish methods. Use --seeds 5 or more."
        )
    return texts


def _amount(metric: Metric, value: float) -> str:
    """A difference without a sign: "0.5 points", "0.005"."""
    number = f"{metric.scale(value):.3g}"
    if not metric.percent:
        return number
    return f"{number} point" if number == "1" else f"{number} points"


def _directions(significant: Sequence[Difference], p_name: str) -> str:
    """ "significantly lower (better) for zeta:2.8 (...) and significantly higher (worse) ..." """
    metric, parts = METRICS[significant[0].metric], []
    for word, sign in (("lower", -1), ("higher", 1)):
        group = [_with_change(d, p_name) for d in significant if sign * d.mean > 0]
        if group:
            quality = "better" if sign == metric.sign else "worse"
            parts.append(f"significantly {word} ({quality}) for {join(group)}")
    return " and ".join(parts)


def _with_change(difference: Difference, p_name: str) -> str:
    """A method with its difference, and with interval and p if `p_name` is given."""
    metric, low, high = METRICS[difference.metric], difference.low, difference.high
    change = metric.format_difference(difference.mean)
    if p_name and low is not None and high is not None and difference.p_holm is not None:
        change += f", {LEVEL} interval {metric.signed(low)} to {metric.signed(high)}"
        change += f", {p_name} {format_p(difference.p_holm)}"
    return f"{display_name(difference.method)} ({change})"


def _before_correction(tested: Sequence[Difference]) -> str:
    """Differences that are significant before, but not after the correction."""
    near = [d for d in tested if d.excludes_zero and not d.significant]
    if not near:
        return ""
    metric = METRICS[near[0].metric]
    names = [
        f"{display_name(d.method)} ({'better' if metric.sign * d.mean > 0 else 'worse'}, "
        f"{metric.format_difference(d.mean)}, uncorrected p {format_p(d.p or 0.0)})"
        for d in near
    ]
    return f" Significant before Holm correction, but not after it: {join(names)}."


def format_p(p: float) -> str:
    """A p-value with its relation.

    >>> format_p(0.0312), format_p(0.00001)
    ('= 0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _not_better_than_chance(comparison: Comparison, chance: ChanceLevel) -> str:
    subject = "No method is" if comparison.complete else "No method so far is"
    if len(comparison.methods) == 1:
        subject = f"{display_name(comparison.methods[0])} is not"
    return at_chance(subject, chance)


def at_chance(subject: str, chance: ChanceLevel) -> str:
    """The caution if nothing is better than chance; the subject ends with "is" or "is not"."""
    metric = METRICS[chance.metric]
    level = (
        f"{metric.title} {metric.format(chance.value)} with {chance.classes} classes; guessing on "
        f"{chance.samples:,} test samples may reach {metric.format(chance.highest)}"
    )
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
