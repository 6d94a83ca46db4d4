"""The whole search for ZetaMix's default: the choice, every setting, and what each option does."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from zetamix.data import CATALOGUE
from zetamix.measure.statistics import (
    CONFIDENCE,
    Difference,
    holm,
    paired_difference,
    standard_error,
    summarise,
)
from zetamix.methods import parse
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Picture, Table, drawing
from zetamix.report.figure import COLOURS, GREY, MARKERS
from zetamix.report.paper.artifact_report import (
    CHOSEN,
    INCOMPLETE,
    INCONCLUSIVE,
    ArtifactReport,
    Verdict,
    finish,
    method_name,
)
from zetamix.report.paper.tables import summary_cell
from zetamix.report.table import MINUS, Plain
from zetamix.results import zetamix_search as search
from zetamix.results.paper_cells import Subset
from zetamix.results.record_store import PaperView
from zetamix.text import join, plural

RULE = (
    "Each round runs the better settings of the rounds before with another seed or dataset "
    "(successive halving), and the baselines that are ahead of the last of them. The relative "
    "error of a run is its error divided by the mean error of all runs with that dataset; the "
    "setting of ZetaMix with the smallest mean over all datasets and seeds is the default."
)
DATA = (
    "Validation error %, mean ± standard deviation over n seeds, on 5,000 images of the training "
    "split; the test split is not used. ResNet-18, the paper's recipe of 200 epochs, with crops "
    "and flips on CIFAR and flips on Fashion-MNIST."
)
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


def report(view: PaperView) -> ArtifactReport:
    cells = {cell.dataset: cell for cell in view.trainings}
    runs = search.read_runs(view.store, cells)
    errors = search.errors_of(runs)
    titles = {
        dataset: f"{CATALOGUE[dataset].title} at {_subset(cell.subset)}"
        for dataset, cell in cells.items()
    }
    choice = search.choose(errors)
    tables = {
        "baselines": _baselines(choice, errors, titles),
        "controls": _controls(choice, errors, titles),
        "changes": _changes(errors, titles),
        "settings": _settings(runs, errors, titles),
    }
    if not view.records:
        return ArtifactReport((), tables)
    if choice is None:
        sentence = "The first round of the search is not complete."
        return ArtifactReport((), tables, Verdict(INCONCLUSIVE, [sentence, *_missing(view, 0)]))
    pictures = [_overview(view, choice, runs, titles)]
    return ArtifactReport(pictures, tables, _verdict(view, choice, runs, titles))


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


def _subset(subset: Subset | None) -> str:
    return "full size" if subset is None else f"{subset.train:,}"


def _mean(errors: search.Errors, method: str, pairs: Sequence[tuple[str, int]]) -> float:
    """The mean error over these datasets and seeds, in percent."""
    return 100 * fmean(errors[method][pair] for pair in pairs)


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", MINUS)


# the tables


def _baselines(
    choice: search.Choice | None, errors: search.Errors, titles: Mapping[str, str]
) -> Table:
    """The choice and each baseline, on the datasets and seeds that the two share."""
    run = {dataset for method in search.BASELINES for dataset, _ in errors[method]}
    shown = {dataset: title for dataset, title in titles.items() if dataset in run}
    rows: list[list[Cell | Plain]] = []
    if choice is not None:
        best = errors[choice.method]
        shared = {m: _shared(errors, [m, choice.method]) for m in search.BASELINES}
        every = list(dict.fromkeys(pair for pairs in shared.values() for pair in pairs))
        first: list[Cell | Plain] = [setting_name(choice.method)]
        for dataset in shown:
            first += [_error_cell(best, every, dataset), Cell(None)]
        rows.append(first)
        for method in search.rank(search.BASELINES, errors, every):
            row: list[Cell | Plain] = [setting_name(method)]
            for dataset in shown:
                row.append(_error_cell(errors[method], shared[method], dataset))
                found = [errors[method][p] - best[p] for p in shared[method] if p[0] == dataset]
                apart = 100 * fmean(found) if found else None
                row.append(Cell(apart, digits=2, signed=True))
            rows.append(row)
    columns = [Column("method")]
    for title in shown.values():
        columns += [Column(title), Column("minus the choice", "points, with the same seeds")]
    notes = [
        DATA,
        "A baseline is run with more datasets and seeds only while it is ahead of a setting of "
        "ZetaMix that is kept.",
    ]
    return Table(columns, rows, "The choice beside the baselines", notes)


def _error_cell(
    own: Mapping[tuple[str, int], float], pairs: Sequence[tuple[str, int]], dataset: str
) -> Cell:
    values = {seed: 100 * own[name, seed] for name, seed in pairs if name == dataset}
    return summary_cell(summarise(values) if values else None, 2)


def _controls(
    choice: search.Choice | None, errors: search.Errors, titles: Mapping[str, str]
) -> Table:
    """The finalists beside baselines that stop mixing as early, on what all of them share."""
    finalists = _finalists(errors)
    shown = [m for m in search.CONTROLS if errors[m]]
    shared = _shared(errors, [*finalists, *shown])
    if not shown:
        shared = [pair for pair in shared if pair in search.ROUNDS[-1].pairs]
    found = _against(choice.method, shown, errors) if choice is not None else {}
    rows: list[list[Cell | Plain]] = []
    for method in (*finalists, *search.CONTROLS):
        row: list[Cell | Plain] = [setting_name(method)]
        if not shared or not errors[method]:
            rows.append([*row, *[NOT_RUN_YET] * (len(titles) + 2)])
            continue
        row += [_error_cell(errors[method], shared, dataset) for dataset in titles]
        relative = search.relative_errors(method, errors, shared).values()
        row.append(Cell(fmean(relative) if relative else None, digits=3))
        row.append(_interval(found[method]) if method in found else Cell(None))
        rows.append(row)
    columns = [Column("method"), *(Column(title) for title in titles.values())]
    columns.append(Column("relative error"))
    columns.append(Column("above the choice", f"difference of relative errors, {PERCENT} interval"))
    pairs = plural(len(search.ROUNDS[-1].pairs), "dataset and seed", "datasets and seeds")
    notes = [
        f"{QUESTION} Mixup and the switch with until = 0.8 are trained with the finalists, in the "
        f"last round, with its {pairs}; they are neither ranked nor chosen.",
        "Validation error %, mean ± standard deviation over n seeds, on the datasets and seeds "
        "that all rows with runs share. Above the choice: the relative error minus that of the "
        f"choice, with its {PERCENT} interval, paired by dataset and seed.",
    ]
    return Table(columns, rows, "The finalists beside baselines that stop early", notes)


def _finalists(errors: search.Errors) -> list[str]:
    """Settings of the last round, as far as it is known."""
    *_, (_, methods) = search.plan_rounds(errors)
    return [method for method in methods if method in search.FAMILY]


def _shared(errors: search.Errors, methods: Sequence[str]) -> list[tuple[str, int]]:
    """Datasets and seeds that all these methods were run with."""
    first, *others = methods
    return [pair for pair in errors[first] if all(pair in errors[method] for method in others)]


def _against(
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
        both = _shared(errors, [method, choice]) if pairs is None else pairs
        ours, theirs = (
            dict(enumerate(search.relative_errors(m, errors, both).values()))
            for m in (choice, method)
        )
        found.append(paired_difference(method, choice, "error", theirs, ours))
    return {d.method: d for d in holm([d for d in found if d is not None])}


def _interval(difference: Difference) -> str:
    """The difference of relative errors, with its interval where there is one."""
    mean = _signed(difference.mean, 3)
    if difference.low is None or difference.high is None:
        return f"{mean} (n = {difference.n})"
    low, high = _signed(difference.low, 3), _signed(difference.high, 3)
    return f"{mean} ({PERCENT}: {low} to {high}, n = {difference.n})"


def _changes(errors: search.Errors, titles: Mapping[str, str]) -> Table:
    """What another value of one option does, everything else equal."""
    rows: list[list[Cell | Plain]] = []
    for change in search.compare_options(errors):
        row: list[Cell | Plain] = [_change_name(change)]
        for dataset in titles:
            points = change.points(dataset)
            summary = summarise(dict(enumerate(points))) if points else None
            row.append(
                Cell(None)
                if summary is None
                else Cell(summary.mean, error=summary.sd, n=summary.n, digits=2, signed=True)
            )
        relative = change.relative()
        row.append(Cell(100 * fmean(relative) if relative else None, digits=1, signed=True))
        worse = sum(value > 0 for value in relative)
        row.append(f"{worse} of {len(relative)}" if relative else None)
        rows.append(row)
    columns = [Column("change"), *(Column(title) for title in titles.values())]
    columns += [
        Column("mean change, %", "of the error, relative, over all comparisons"),
        Column("worse in", "comparisons in which the error is higher"),
    ]
    notes = [
        "Points of validation error, mean ± standard deviation over n comparisons. A comparison "
        "is two settings of ZetaMix that differ in this option only, with the same dataset and "
        "seed. Negative: the change helps. Of pairs whose worse setting left the search early "
        "there is CIFAR-10 with one seed only.",
    ]
    return Table(columns, rows, "What one option changes, everything else equal", notes)


def _change_name(change: search.OptionChange) -> str:
    """An option with its value before and after.

    >>> _change_name(search.OptionChange("gamma", "0.0..2.0", {}))
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


def _settings(runs: search.Runs, errors: search.Errors, titles: Mapping[str, str]) -> Table:
    """Every setting, those that came furthest first."""
    pairs = sorted({pair for method in search.METHODS for pair in errors[method]})
    ordered = [m for m in search.rank(search.METHODS, errors, pairs) if errors[m]]
    means = {
        dataset: {
            method: fmean(values)
            for method in ordered
            if (values := [e for (name, _), e in errors[method].items() if name == dataset])
        }
        for dataset in titles
    }
    ranks = {
        dataset: {method: k for k, method in enumerate(sorted(own, key=own.__getitem__), 1)}
        for dataset, own in means.items()
    }
    rows: list[list[Cell | Plain]] = []
    for method in ordered:
        row: list[Cell | Plain] = [setting_name(method)]
        for dataset in titles:
            row.append(_error_cell(errors[method], list(errors[method]), dataset))
            row.append(Cell(ranks[dataset].get(method)))
        places = [own[method] for own in ranks.values() if method in own]
        complete = len(places) == len(titles)
        row.append(Cell(fmean(places) if complete else None, digits=1))
        relative = fmean(search.relative_errors(method, errors, pairs).values())
        row.append(Cell(relative if complete else None, digits=3))
        row.append(_effect_of_new_statistics(list(runs[method].values())))
        rows.append(row)
    columns = [Column("setting")]
    for title in titles.values():
        columns += [Column(title), Column("rank")]
    columns += [Column("mean rank"), Column("relative error")]
    columns.append(
        Column("new BN statistics", "mean change of the error in points, over all its runs")
    )
    caption = f"All {len(search.METHODS)} settings of the search"
    notes = [
        DATA,
        f"{RULE} Ranks are over the settings run with that dataset.",
        "New BN statistics: by how many points the error changes when batch-norm statistics are "
        "taken anew on unmixed training images after training.",
    ]
    return Table(columns, rows, caption, notes)


def _effect_of_new_statistics(runs: list[RunRecord]) -> Cell:
    changes = [
        100 * (run.extra["new_bn"]["error"] - run.last["error"])
        for run in runs
        if "new_bn" in run.extra
    ]
    return Cell(fmean(changes) if changes else None, digits=2, signed=True)


# the sentences


def _verdict(
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
        *_missing(view, choice.rounds),
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
    pairs = _shared(errors, [choice.method, *search.BASELINES])
    own = _mean(errors, choice.method, pairs)
    ordered = search.rank(search.BASELINES, errors, pairs)
    apart = [
        f"{setting_name(m)} {_mean(errors, m, pairs):.2f} "
        f"({_signed(_mean(errors, m, pairs) - own)})"
        for m in ordered
    ]
    error = fmean(
        100 * (standard_error("error", runs[choice.method][pair].confusion) or 0) for pair in pairs
    )
    return (
        f"Validation error % on {_where(pairs, titles)}, which all baselines were run with: "
        f"{own:.2f} against {join(apart)}. The standard error of one such value is {error:.2f} "
        f"points{_spread(errors, pairs[0][0])}."
    )


def _where(pairs: Sequence[tuple[str, int]], titles: Mapping[str, str]) -> str:
    """Datasets with the number of seeds."""
    counts = {dataset: sum(name == dataset for name, _ in pairs) for dataset in titles}
    return join([f"{titles[d]} ({plural(n, 'seed')})" for d, n in counts.items() if n])


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
    found = _against(choice.method, others, errors, choice.pairs)
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
    found = _against(choice.method, [m for m in search.CONTROLS if errors[m]], errors)
    if not found:
        return f"{QUESTION} {NOT_RUN_YET.capitalize()}{_without_stopping(choice, errors, titles)}"
    behind = [d.mean > 0 for d in found.values()]
    certain = all(d.significant for d in found.values()) and len(found) == len(search.CONTROLS)
    answer = "Not decided" if all(behind) else "Yes, as far as these runs tell"
    answer = "No" if all(behind) and certain else answer
    listed = [f"{setting_name(m)}: {_interval(d)}" for m, d in found.items()]
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
    pairs = [] if whole is None else _shared(errors, [whole, *baselines])
    if whole in (None, choice.method) or not pairs:
        return text
    listed = [f"{setting_name(m)} {_mean(errors, m, pairs):.2f}" for m in baselines]
    return (
        f"{text} Validation error % when mixed to the end, on {_where(pairs, titles)}: the same "
        f"setting {_mean(errors, whole, pairs):.2f}, {', '.join(listed)}."
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
        text = f"{_change_name(change)} ({_signed(mean, 1)} %{count})"
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


def _missing(view: PaperView, rounds: int) -> list[str]:
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


# the figure


def _overview(
    view: PaperView, choice: search.Choice, runs: search.Runs, titles: Mapping[str, str]
) -> Picture:
    """The choice beside the baselines, and what each option does."""
    errors = search.errors_of(runs)
    changes = [change for change in search.compare_options(errors) if change.comparisons]
    pairs = _shared(errors, [choice.method, *search.BASELINES])
    with drawing(9.2, 1.5 + 0.2 * len(changes)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        _draw_baselines(left, choice, runs, pairs)
        left.set_xlabel(f"validation error %, {_where(pairs, titles)}")
        _draw_changes(right, changes, titles)
        return finish(
            view,
            figure,
            "zetamix-search",
            alt="Left: the validation error of the chosen setting of ZetaMix and of each baseline. "
            "Right: for each change of one option, by how many percent the error changes in each "
            "comparison.",
            caption="Left: the chosen setting beside the baselines where all of them were run; "
            "bars are ± one standard error over the validation images. Right: what a change of "
            "one option does to the error, relative; a mark is a comparison of two settings that "
            "differ in this option only, with the same dataset and seed, a black line the mean.",
        )


def _draw_baselines(
    axes: Axes, choice: search.Choice, runs: search.Runs, pairs: Sequence[tuple[str, int]]
) -> None:
    errors = search.errors_of(runs)
    methods = search.rank([choice.method, *search.BASELINES], errors, pairs)
    for k, method in enumerate(methods):
        mean = _mean(errors, method, pairs)
        own = [standard_error("error", runs[method][pair].confusion) or 0 for pair in pairs]
        colour = COLOURS[2] if method == choice.method else COLOURS[0]
        axes.errorbar(mean, -k, xerr=100 * fmean(own), fmt="o", color=colour, elinewidth=1)
        axes.annotate(
            f"{mean:.2f}",
            (mean, -k),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            size=8,
        )
    names = ["ZetaMix" if m == choice.method else setting_name(m) for m in methods]
    axes.set_yticks([-k for k in range(len(methods))], names)
    axes.set_ylim(-len(methods) + 0.5, 0.8)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_title("beside the baselines")


def _draw_changes(
    axes: Axes, changes: Sequence[search.OptionChange], titles: Mapping[str, str]
) -> None:
    axes.axvline(0, color=GREY, lw=0.8)
    for (row, change), (k, dataset) in product(enumerate(changes), enumerate(titles)):
        values = [100 * value for value in change.relative(dataset)]
        label = CATALOGUE[dataset].title if row == 0 else None
        style: dict[str, Any] = {"color": COLOURS[k], "marker": MARKERS[k], "ls": "", "ms": 4}
        axes.plot(values, [-row] * len(values), label=label, alpha=0.8, **style)
    for row, change in enumerate(changes):
        mean = 100 * fmean(change.relative())
        axes.plot([mean, mean], [-row - 0.3, -row + 0.3], color="black", lw=1.6)
    axes.set_yticks([-k for k in range(len(changes))], [_change_name(c) for c in changes])
    axes.set_ylim(-len(changes) + 0.4, 0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("change of the error, %")
    axes.set_title("one option changed")
    axes.legend(loc="lower right", fontsize=8)
