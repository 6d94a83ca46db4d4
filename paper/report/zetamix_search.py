"""The search for ZetaMix's default: the choice, every setting, and the effect of each option."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes

from paper.datasets import CATALOGUE
from paper.report.artifact_report import INCONCLUSIVE, ArtifactReport, Verdict, finish
from paper.report.tables import summary_cell
from paper.report.zetamix_search_text import (
    PERCENT,
    QUESTION,
    change_name,
    compare_with,
    describe,
    interval_text,
    mean_error,
    setting_name,
    shared_pairs,
    where_run,
)
from paper.results import zetamix_search as search
from paper.results.paper_cells import Subset
from paper.results.record_store import PaperView
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Column, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS, GREY, MARKERS
from zetamix_lab.report.table import Plain
from zetamix_lab.statistics import standard_error, summarise
from zetamix_lab.text import plural

RULE = (
    "Each round runs the better settings of the previous rounds with another seed or dataset "
    "(successive halving), and the baselines that are better than the worst of them. The relative "
    "error of a run is its error divided by the mean error of all runs with that dataset; the "
    "setting of ZetaMix with the smallest mean over all datasets and seeds is the default."
)
DATA = (
    "Validation error %, mean ± standard deviation over n seeds, on 5,000 images of the training "
    "split; the test split is not used. ResNet-18, the paper's recipe of 200 epochs, with crops "
    "and flips on CIFAR and flips on Fashion-MNIST."
)


def report(view: PaperView) -> ArtifactReport:
    cells = {cell.dataset: cell for cell in view.trainings}
    runs = search.read_runs(view.store, cells)
    errors = search.errors_of(runs)
    titles = {
        dataset: f"{CATALOGUE[dataset].title} at {_subset(cell.subset)}"
        for dataset, cell in cells.items()
    }
    tables = {"changes": _changes(errors, titles), "settings": _settings(runs, errors, titles)}
    choice = search.choose(errors)
    if choice is None:
        sentence = "The first round of the search is not complete."
        verdict = Verdict(INCONCLUSIVE, [sentence]) if view.records else Verdict()
        return ArtifactReport((), tables, verdict)
    first = {"baselines": _baselines(choice, errors, titles)}
    if controls := [method for method in search.CONTROLS if errors[method]]:
        first["controls"] = _controls(choice, controls, errors, titles)
    pictures = [_overview(view, choice, runs, titles)]
    return ArtifactReport(pictures, first | tables, describe(choice, runs, titles))


def _subset(subset: Subset | None) -> str:
    return "full size" if subset is None else f"{subset.train:,}"


def _baselines(choice: search.Choice, errors: search.Errors, titles: Mapping[str, str]) -> Table:
    """The choice and each baseline, on the datasets and seeds that the two share."""
    run = {dataset for method in search.BASELINES for dataset, _ in errors[method]}
    shown = [dataset for dataset in titles if dataset in run]
    best = errors[choice.method]
    shared = {m: shared_pairs(errors, [m, choice.method]) for m in search.BASELINES}
    every = list(dict.fromkeys(pair for pairs in shared.values() for pair in pairs))
    rows: list[list[Cell | Plain]] = [[setting_name(choice.method)]]
    for dataset in shown:
        rows[0] += [_error_cell(best, every, dataset), Cell(None)]
    for method in search.rank(search.BASELINES, errors, every):
        row: list[Cell | Plain] = [setting_name(method)]
        for dataset in shown:
            row.append(_error_cell(errors[method], shared[method], dataset))
            found = [errors[method][p] - best[p] for p in shared[method] if p[0] == dataset]
            row.append(Cell(100 * fmean(found) if found else None, digits=2, signed=True))
        rows.append(row)
    columns = [Column("method")]
    for dataset in shown:
        minus = Column("minus the choice", "points, with the same seeds")
        columns += [Column(titles[dataset]), minus]
    notes = [
        DATA,
        "A baseline is run with more datasets and seeds only while it is better than a setting of "
        "ZetaMix that is kept.",
    ]
    return Table(columns, rows, "The choice compared with the baselines", notes)


def _error_cell(
    own: Mapping[tuple[str, int], float], pairs: Sequence[tuple[str, int]], dataset: str
) -> Cell:
    values = {seed: 100 * own[name, seed] for name, seed in pairs if name == dataset}
    return summary_cell(summarise(values) if values else None, 2)


def _controls(
    choice: search.Choice, controls: Sequence[str], errors: search.Errors, titles: Mapping[str, str]
) -> Table:
    """The finalists and baselines that stop mixing as early, on datasets and seeds they share."""
    *_, (_, methods) = search.plan_rounds(errors)
    compared = [*(method for method in methods if method in search.FAMILY), *controls]
    shared, found = shared_pairs(errors, compared), compare_with(choice.method, controls, errors)
    rows: list[list[Cell | Plain]] = []
    for method in compared:
        relative = search.relative_errors(method, errors, shared).values()
        rows.append(
            [
                setting_name(method),
                *(_error_cell(errors[method], shared, dataset) for dataset in titles),
                Cell(fmean(relative) if relative else None, digits=3),
                interval_text(found[method]) if method in found else None,
            ]
        )
    above = Column("above the choice", f"difference of relative errors, {PERCENT} interval")
    pairs = plural(len(search.ROUNDS[-1].pairs), "dataset and seed", "datasets and seeds")
    notes = [
        f"{QUESTION} Mixup and the switch with until = 0.8 are trained with the finalists, in the "
        f"last round, with its {pairs}; they are neither ranked nor chosen.",
        "Validation error %, mean ± standard deviation over n seeds, on the datasets and seeds "
        "that all rows share. Above the choice: the relative error minus that of the choice, with "
        f"its {PERCENT} interval, paired by dataset and seed.",
    ]
    columns: list[Column | str] = ["method", *titles.values(), "relative error", above]
    return Table(columns, rows, "The finalists compared with baselines that stop early", notes)


def _changes(errors: search.Errors, titles: Mapping[str, str]) -> Table:
    """The effect of another value of one option, with all others equal."""
    rows: list[list[Cell | Plain]] = []
    for change in search.compare_options(errors):
        row: list[Cell | Plain] = [change_name(change)]
        for dataset in titles:
            points = change.points(dataset)
            cell = summary_cell(summarise(dict(enumerate(points))) if points else None, 2)
            row.append(replace(cell, signed=True))
        relative = change.relative()
        row.append(Cell(100 * fmean(relative) if relative else None, digits=1, signed=True))
        worse = sum(value > 0 for value in relative)
        rows.append([*row, f"{worse} of {len(relative)}" if relative else None])
    columns: list[Column | str] = [
        *("change", *titles.values()),
        Column("mean change, %", "of the error, relative, over all comparisons"),
        Column("worse in", "comparisons in which the error is higher"),
    ]
    notes = [
        "Points of validation error, mean ± standard deviation over n comparisons. A comparison "
        "is two settings of ZetaMix that differ only in this option, with the same dataset and "
        "seed. Negative: the change helps. Pairs whose worse setting was dropped early have only "
        "CIFAR-10 with one seed.",
    ]
    return Table(columns, rows, "The effect of one option, all others equal", notes)


def _settings(runs: search.Runs, errors: search.Errors, titles: Mapping[str, str]) -> Table:
    """Every setting, those that were kept longest first."""
    pairs = sorted({pair for method in search.METHODS for pair in errors[method]})
    rows: list[list[Cell | Plain]] = []
    for method in search.rank(search.METHODS, errors, pairs):
        own = errors[method]
        if own:
            relative = fmean(search.relative_errors(method, errors, pairs).values())
            complete = {dataset for dataset, _ in own} == set(titles)
            rows.append(
                [
                    setting_name(method),
                    *(_error_cell(own, list(own), dataset) for dataset in titles),
                    Cell(relative if complete else None, digits=3),
                    _effect_of_new_statistics(list(runs[method].values())),
                ]
            )
    new = Column("new BN statistics", "mean change of the error in points, over all its runs")
    notes = [
        DATA,
        RULE,
        "New BN statistics: the change of the error in points when batch-norm statistics are "
        "recomputed on unmixed training images after training.",
    ]
    columns: list[Column | str] = ["setting", *titles.values(), "relative error", new]
    return Table(columns, rows, f"All {len(search.METHODS)} settings of the search", notes)


def _effect_of_new_statistics(runs: list[RunRecord]) -> Cell:
    changes = [
        100 * (run.extra["new_bn"]["error"] - run.last["error"])
        for run in runs
        if "new_bn" in run.extra
    ]
    return Cell(fmean(changes) if changes else None, digits=2, signed=True)


def _overview(
    view: PaperView, choice: search.Choice, runs: search.Runs, titles: Mapping[str, str]
) -> Picture:
    """The choice compared with the baselines, and the effect of each option."""
    errors = search.errors_of(runs)
    changes = [change for change in search.compare_options(errors) if change.comparisons]
    pairs = shared_pairs(errors, [choice.method, *search.BASELINES])
    with drawing(9.2, 1.5 + 0.2 * len(changes)) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        _draw_baselines(left, choice, runs, pairs)
        left.set_xlabel(f"validation error %, {where_run(pairs, titles)}")
        _draw_changes(right, changes, titles)
        return finish(
            view,
            figure,
            "zetamix-search",
            alt="Left: the validation error of the chosen setting of ZetaMix and of each baseline. "
            "Right: for each change of one option, by how many percent the error changes in each "
            "comparison.",
            caption="Left: the chosen setting and the baselines, on datasets and seeds that all "
            "were run with; bars are ± one standard error over the validation images. Right: the "
            "relative change of the error when one option is changed; each mark compares two "
            "settings that differ only in this option, with the same dataset and seed; black "
            "lines are means.",
        )


def _draw_baselines(
    axes: Axes, choice: search.Choice, runs: search.Runs, pairs: Sequence[tuple[str, int]]
) -> None:
    errors = search.errors_of(runs)
    methods = search.rank([choice.method, *search.BASELINES], errors, pairs)
    for k, method in enumerate(methods):
        mean = mean_error(errors, method, pairs)
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
    axes.set_title("compared with the baselines")


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
    axes.set_yticks([-k for k in range(len(changes))], [change_name(c) for c in changes])
    axes.set_ylim(-len(changes) + 0.4, 0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("change of the error, %")
    axes.set_title("one option changed")
    axes.legend(loc="best", fontsize=8)
