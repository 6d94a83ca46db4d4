"""Text about the search for ZetaMix's default: names of settings, and the verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from zetamix.measure.statistics import (
    CONFIDENCE,
    Difference,
    holm,
    paired_difference,
    standard_error,
)
from zetamix.methods import parse
from zetamix.report.paper.artifact_report import (
    CHOSEN,
    INCOMPLETE,
    INCONCLUSIVE,
    Verdict,
    method_name,
)
from zetamix.report.table import MINUS
from zetamix.results import zetamix_search as search
from zetamix.results.record_store import PaperView
from zetamix.text import join, plural

QUESTION = "Does stopping early (until) explain it?"
PERCENT = f"{100 * CONFIDENCE:.0f} %"
ORDINALS = ("first", "second", "third", "fourth")
NOT_RUN_YET = "not run"
MATTERED = (
    "Better in every comparison",
    "Worse in every comparison",
    "No consistent effect",
    "Compared once",
)
OPTION_NAMES = {"gamma": "γ", "keep_variance": "variance"}


def setting_name(label: str) -> str:
    """The name of a setting in tables.

    >>> setting_name(search.spell({"keep_variance": "no", "p": 0.8}))
    '2 sources, γ 0–4, variance not kept, 50 % pasted, p = 0.8'
    >>> setting_name("mixup:alpha=1.0,until=0.8")
    'mixup, until = 0.8'
    """
    method = parse(label)
    if label in search.CONTROLS:
        return f"{_baseline_name(label)}, until = {method.until:g}"
    if method.name != "zetamix":
        return "CutMix with one box per sample" if "per=sample" in label else method_name(label)
    options = [_option_text(label, key) for key in ("sources", "gamma", "keep_variance", "paste")]
    late = [_option_text(label, key) for key in ("p", "until") if method.option(key) < 1]
    return ", ".join([*options, *late])


def _baseline_name(control: str) -> str:
    """The name of the baseline that a control is, but for its end.

    >>> [_baseline_name(control) for control in search.CONTROLS]
    ['mixup', 'mixup/CutMix switch']
    """
    own = [m for m in search.BASELINES if parse(m).name == parse(control).name]
    return method_name(own[0])


def _option_text(label: str, key: str) -> str:
    """One option of a setting, as its name in tables has it."""
    value = parse(label).option(key)
    if key == "sources":
        return f"{value} sources"
    if key == "gamma":
        return f"γ {value[0]:g}–{value[1]:g}"
    if key == "keep_variance":
        return f"variance {'' if value else 'not '}kept"
    return f"{100 * value:.0f} % pasted" if key == "paste" else f"{key} = {value:g}"


def _changed_options(label: str, other: str) -> str:
    """The options of a setting that differ from another's; a baseline is named."""
    if label not in search.FAMILY:
        return setting_name(label)
    keys = [key for key in search.CENTRE if parse(label).option(key) != parse(other).option(key)]
    return join([_option_text(label, key) for key in keys])


def change_name(change: search.OptionChange) -> str:
    """An option with its value before and after.

    >>> change_name(search.OptionChange("gamma", "0.0..2.0", {}))
    'γ 0–4 → 0–2'
    """

    def text(value: Any) -> str:
        if change.option == "keep_variance":
            return "kept" if value == "yes" else "not kept"
        if change.option == "gamma":
            return "–".join(f"{float(end):g}" for end in value.split(".."))
        return f"{value:g}"

    name = OPTION_NAMES.get(change.option, change.option)
    return f"{name} {text(search.CENTRE[change.option])} → {text(change.value)}"


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
    """The difference of relative errors, with its interval where there is one."""
    mean = _signed(difference.mean, 3)
    if difference.low is None or difference.high is None:
        return f"{mean} (n = {difference.n})"
    low, high = _signed(difference.low, 3), _signed(difference.high, 3)
    return f"{mean} ({PERCENT}: {low} to {high}, n = {difference.n})"


def where_run(pairs: Sequence[tuple[str, int]], titles: Mapping[str, str]) -> str:
    """Datasets with the number of seeds."""
    counts = {dataset: sum(name == dataset for name, _ in pairs) for dataset in titles}
    return join([f"{titles[d]} ({plural(n, 'seed')})" for d, n in counts.items() if n])


def verdict(
    view: PaperView, choice: search.Choice, runs: search.Runs, titles: Mapping[str, str]
) -> Verdict:
    errors, total = search.errors_of(runs), len(search.ROUNDS)
    complete = choice.rounds == total
    default = parse("zetamix").full_label
    is_default = parse(choice.method).full_label == default
    made = sum(len(errors[method]) for method in search.METHODS)
    first = (
        f"After {choice.rounds} of {plural(total, 'round')} ({plural(made, 'run')}) the best "
        f"setting of ZetaMix is {setting_name(choice.method)}"
        f"{', which is its default' if is_default else ''}. What decided: 5,000 validation "
        f"images of each of {plural(len(titles), 'dataset')}, {_seeds_per_setting(errors)}."
    )
    sentences = [first]
    if not is_default:
        sentences.append(f"The default of ZetaMix is another: {setting_name(default)}.")
    sentences += [
        _beside_baselines(choice, runs, titles),
        *_told_apart(choice, errors),
        _stopping_early(choice, errors, titles),
        *_what_mattered(errors),
        *missing_runs(view, choice.rounds),
    ]
    status = CHOSEN if complete else f"{CHOSEN} {INCOMPLETE}" if is_default else INCONCLUSIVE
    return Verdict(status, sentences)


def _seeds_per_setting(errors: search.Errors) -> str:
    """How many seeds a setting has on a dataset, from the fewest to the most."""
    counts = Counter(
        (method, dataset) for method in search.FAMILY for dataset, _ in errors[method]
    ).values()
    low, high = min(counts), max(counts)
    return (
        f"{plural(high, 'seed')} a setting" if low == high else f"{low} to {high} seeds a setting"
    )


def _beside_baselines(choice: search.Choice, runs: search.Runs, titles: Mapping[str, str]) -> str:
    """Where the choice and all baselines were run: each error, and how certain it is."""
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
        f"{own:.2f} against {join(apart)}. The standard error of one such value is {error:.2f} "
        f"points{_spread(errors, pairs[0][0])}."
    )


def _spread(errors: search.Errors, dataset: str) -> str:
    """How far apart two seeds of one setting are on a dataset."""
    gaps = [
        100 * (max(values) - min(values))
        for own in errors.values()
        if len(values := [e for (name, _), e in own.items() if name == dataset]) > 1
    ]
    if not gaps:
        return ""
    return f", and seeds of one setting are {min(gaps):.2f} to {max(gaps):.2f} points apart"


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
        sentences.append(f"Not told apart from it ({runs}): {'; '.join(close)}.")
    if apart:
        sentences.append(f"Significantly worse ({runs}): {'; '.join(apart)}.")
    return sentences


def _stopping_early(choice: search.Choice, errors: search.Errors, titles: Mapping[str, str]) -> str:
    """Whether baselines that stop mixing as early are as good."""
    found = compare_with(choice.method, [m for m in search.CONTROLS if errors[m]], errors)
    if not found:
        return f"{QUESTION} {NOT_RUN_YET.capitalize()}{_without_stopping(choice, errors, titles)}"
    behind = [d.mean > 0 for d in found.values()]
    certain = all(d.significant for d in found.values()) and len(found) == len(search.CONTROLS)
    answer = "Not decided" if all(behind) else "Yes, as far as these runs tell"
    answer = "No" if all(behind) and certain else answer
    listed = [f"{setting_name(m)}: {interval_text(d)}" for m, d in found.items()]
    lacking = [setting_name(m) for m in search.CONTROLS if m not in found]
    rest = f"; {NOT_RUN_YET}: {join(lacking)}" if lacking else ""
    return (
        f"{QUESTION} {answer}. Relative error minus that of the choice, paired by dataset and "
        f"seed: {'; '.join(listed)}{rest}."
    )


def _without_stopping(
    choice: search.Choice, errors: search.Errors, titles: Mapping[str, str]
) -> str:
    """What is known without the controls: the same setting, mixed to the end."""
    names = join([_baseline_name(method) for method in search.CONTROLS])
    until, number = parse(search.CONTROLS[0]).until, ORDINALS[len(search.ROUNDS) - 1]
    text = f": {names} with until = {until:g} are trained with the finalists in the {number} round."
    whole = _mixed_to_the_end(choice.method)
    baselines = ("switch", "mixup:1.0")
    pairs = [] if whole is None else shared_pairs(errors, [whole, *baselines])
    if whole in (None, choice.method) or not pairs:
        return text
    listed = [f"{setting_name(m)} {mean_error(errors, m, pairs):.2f}" for m in baselines]
    return (
        f"{text} Validation error % when mixed to the end, on {where_run(pairs, titles)}: the same "
        f"setting {mean_error(errors, whole, pairs):.2f}, {', '.join(listed)}."
    )


def _mixed_to_the_end(setting: str) -> str | None:
    """The setting of the family that differs in `until` only, which is 1."""
    options = {key: parse(setting).option(key) for key in search.CENTRE} | {"until": 1.0}
    equal = (
        label
        for label in search.FAMILY
        if {key: parse(label).option(key) for key in search.CENTRE} == options
    )
    return next(equal, None)


def _what_mattered(errors: search.Errors) -> list[str]:
    """Changes of one option by what they did in all comparisons."""
    groups: dict[str, list[tuple[float, str]]] = {}
    for change in search.compare_options(errors):
        relative = change.relative()
        if not relative:
            continue
        worse, better = sum(v > 0 for v in relative), sum(v < 0 for v in relative)
        group = "No consistent effect"
        if len(relative) == 1:
            group = "Compared once"
        elif len(relative) in (worse, better):
            group = f"{'Worse' if worse else 'Better'} in every comparison"
        mean, count = 100 * fmean(relative), f", n = {len(relative)}" if len(relative) > 1 else ""
        text = f"{change_name(change)} ({_signed(mean, 1)} %{count})"
        groups.setdefault(group, []).append((-abs(mean), text))
    begin = (
        "What mattered: mean relative change of the error over n comparisons of two settings that "
        "differ in one option."
    )
    found = [
        f"{group}: {', '.join(text for _, text in sorted(groups[group]))}."
        for group in sorted(groups, key=MATTERED.index)
    ]
    return [" ".join([begin, *found])] if found else []


def missing_runs(view: PaperView, rounds: int) -> list[str]:
    """The runs that the rounds lack, and the command that makes them."""
    empty, total = view.empty, len(search.ROUNDS)
    if not empty:
        return []
    controls = sum(getattr(cell, "method", "") in search.CONTROLS for cell in empty)
    of_them = f", {controls} of them of the baselines that stop early" if controls else ""
    if rounds < total - 1:
        subject = f"The {join(ORDINALS[rounds:total])} rounds lack"
    else:
        number = ORDINALS[total - 1]
        planned = [cell for cell in view.cells if cell.seed in search.ROUNDS[-1].seeds]
        none = len(empty) == len(planned)
        subject = f"The {number} round is missing:" if none else f"The {number} round lacks"
    folder, here = view.store.folder, Path.cwd()
    folder = folder.relative_to(here) if folder.is_relative_to(here) else folder
    command = f"zetamix reproduce {view.artifact} --device cuda --jobs 6 --out {folder}"
    return [f"{subject} {plural(len(empty), 'run')}{of_them}. Run: {command}"]
