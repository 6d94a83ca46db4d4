"""Text about the search for ZetaMix's default: names of settings, and the verdict."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from paper.report.artifact_report import (
    CHOSEN,
    INCOMPLETE,
    INCONCLUSIVE,
    Verdict,
    method_name,
)
from paper.results import zetamix_search as search
from zetamix.methods import parse
from zetamix_lab.report.table import MINUS
from zetamix_lab.statistics import (
    CONFIDENCE,
    Difference,
    holm,
    paired_difference,
    standard_error,
)
from zetamix_lab.text import join, plural

QUESTION = "Does stopping early (until) explain it?"
PERCENT = f"{100 * CONFIDENCE:.0f} %"


def setting_name(label: str) -> str:
    """The name of a setting in tables.

    >>> setting_name(search.spell({"keep_variance": "no", "p": 0.8}))
    '2 sources, γ 0–4, variance not kept, 50 % pasted, p = 0.8'
    >>> setting_name("mixup:alpha=1.0,until=0.8")
    'mixup, until = 0.8'
    """
    method = parse(label)
    if label in search.CONTROLS:
        baseline = next(m for m in search.BASELINES if parse(m).name == method.name)
        return f"{method_name(baseline)}, until = {method.until:g}"
    if method.name != "zetamix":
        return "CutMix with one box per sample" if "per=sample" in label else method_name(label)
    options = [_option_text(label, key) for key in ("sources", "gamma", "keep_variance", "paste")]
    late = [_option_text(label, key) for key in ("p", "until") if method.option(key) < 1]
    return ", ".join([*options, *late])


def _option_text(label: str, key: str) -> str:
    """One option of a setting, as in its name in tables."""
    value = parse(label).option(key)
    if key == "sources":
        return f"{value} sources"
    if key == "gamma":
        return f"γ {value[0]:g}–{value[1]:g}"
    if key == "keep_variance":
        return f"variance {'' if value else 'not '}kept"
    return f"{100 * value:.0f} % pasted" if key == "paste" else f"{key} = {value:g}"


def _changed_options(label: str, other: str) -> str:
    """The options of a setting that differ from another's; for a baseline, its name."""
    if label not in search.FAMILY:
        return setting_name(label)
    keys = [key for key in search.CENTRE if parse(label).option(key) != parse(other).option(key)]
    return join([_option_text(label, key) for key in keys])


def change_name(change: search.OptionChange) -> str:
    """An option with its value before and after.

    >>> change_name(search.OptionChange("gamma", "0.0..2.0", {}))
    'γ 0–4 → γ 0–2'
    """
    labels = search.spell({}), search.spell({change.option: change.value})
    return " → ".join(_option_text(label, change.option) for label in labels)


def mean_error(errors: search.Errors, method: str, pairs: Sequence[tuple[str, int]]) -> float:
    """The mean error over these datasets and seeds, in percent."""
    return 100 * fmean(errors[method][pair] for pair in pairs)


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", MINUS)


def shared_pairs(errors: search.Errors, methods: Sequence[str]) -> list[tuple[str, int]]:
    """Datasets and seeds that all these methods were run with."""
    first, *others = methods
    return [pair for pair in errors[first] if all(pair in errors[method] for method in others)]


def compare_with(
    choice: str,
    methods: Sequence[str],
    errors: search.Errors,
    pairs: Sequence[tuple[str, int]] | None = None,
) -> dict[str, Difference]:
    """Relative errors minus the choice's, with Holm's correction over the methods.

    pairs: datasets and seeds to compare on; all that a method shares with the choice by default.
    """
    found = []
    for method in methods:
        both = shared_pairs(errors, [method, choice]) if pairs is None else pairs
        ours, theirs = (
            dict(enumerate(search.relative_errors(m, errors, both).values()))
            for m in (choice, method)
        )
        found.append(paired_difference(method, choice, "error", theirs, ours))
    return {d.method: d for d in holm(found)}


def interval_text(difference: Difference) -> str:
    """The difference of relative errors, with its interval if there is one."""
    mean = _signed(difference.mean, 3)
    if difference.low is None or difference.high is None:
        return f"{mean} (n = {difference.n})"
    low, high = _signed(difference.low, 3), _signed(difference.high, 3)
    return f"{mean} ({PERCENT}: {low} to {high}, n = {difference.n})"


def where_run(pairs: Sequence[tuple[str, int]], titles: Mapping[str, str]) -> str:
    """Datasets with the number of seeds."""
    counts = {dataset: sum(name == dataset for name, _ in pairs) for dataset in titles}
    return join([f"{titles[d]} ({plural(n, 'seed')})" for d, n in counts.items() if n])


def describe(choice: search.Choice, runs: search.Runs, titles: Mapping[str, str]) -> Verdict:
    errors, total = search.errors_of(runs), len(search.ROUNDS)
    complete = choice.rounds == total
    default = parse("zetamix").full_label
    is_default = parse(choice.method).full_label == default
    made = sum(len(errors[method]) for method in search.METHODS)
    first = (
        f"After {choice.rounds} of {plural(total, 'round')} ({plural(made, 'run')}) the best "
        f"setting of ZetaMix is {setting_name(choice.method)}"
        f"{', which is its default' if is_default else ''}. It was selected on 5,000 validation "
        f"images of each of {plural(len(titles), 'dataset')}."
    )
    sentences = [first]
    if not is_default:
        sentences.append(f"The default of ZetaMix is different: {setting_name(default)}.")
    sentences += [
        _beside_baselines(choice, runs, titles),
        *_told_apart(choice, errors),
        _stopping_early(choice, errors),
    ]
    status = CHOSEN if complete else f"{CHOSEN} {INCOMPLETE}" if is_default else INCONCLUSIVE
    return Verdict(status, sentences)


def _beside_baselines(choice: search.Choice, runs: search.Runs, titles: Mapping[str, str]) -> str:
    """The errors of the choice and all baselines where all were run, with a standard error."""
    errors = search.errors_of(runs)
    pairs = shared_pairs(errors, [choice.method, *search.BASELINES])
    own = mean_error(errors, choice.method, pairs)
    ordered = search.rank(search.BASELINES, errors, pairs)
    apart = [
        f"{setting_name(m)} {mean_error(errors, m, pairs):.2f} "
        f"({_signed(mean_error(errors, m, pairs) - own)})"
        for m in ordered
    ]
    error = fmean(
        100 * (standard_error("error", runs[choice.method][pair].confusion) or 0) for pair in pairs
    )
    return (
        f"Validation error % on {where_run(pairs, titles)}, which all baselines were run with: "
        f"{own:.2f}, compared with {join(apart)}. The standard error of each value is {error:.2f} "
        "points."
    )


def _told_apart(choice: search.Choice, errors: search.Errors) -> list[str]:
    """The other finalists: those that are significantly worse, and the rest."""
    others = [method for method in choice.finalists if method != choice.method]
    found = compare_with(choice.method, others, errors, choice.pairs)
    apart, close = list[str](), list[str]()
    for method, difference in found.items():
        worse = difference.significant and difference.mean > 0
        (apart if worse else close).append(_changed_options(method, choice.method))
    runs = f"{PERCENT}, paired over {plural(len(choice.pairs), 'run')} each, Holm's correction"
    sentences = []
    if close:
        sentences.append(f"Not significantly worse ({runs}): {'; '.join(close)}.")
    if apart:
        sentences.append(f"Significantly worse ({runs}): {'; '.join(apart)}.")
    return sentences


def _stopping_early(choice: search.Choice, errors: search.Errors) -> str:
    """Whether baselines that stop mixing as early are as good."""
    found = compare_with(choice.method, [m for m in search.CONTROLS if errors[m]], errors)
    lacking = [setting_name(m) for m in search.CONTROLS if m not in found]
    if not found:
        return f"{QUESTION} Not run: {join(lacking)}, which the last round trains."
    behind = [d.mean > 0 for d in found.values()]
    certain = all(d.significant for d in found.values()) and len(found) == len(search.CONTROLS)
    answer = "Not decided" if all(behind) else "Yes, as far as these runs show"
    answer = "No" if all(behind) and certain else answer
    listed = [f"{setting_name(m)}: {interval_text(d)}" for m, d in found.items()]
    rest = f"; not run: {join(lacking)}" if lacking else ""
    return (
        f"{QUESTION} {answer}. Relative error minus that of the choice, paired by dataset and "
        f"seed: {'; '.join(listed)}{rest}."
    )
