"""The report of a comparison: tables, figures, one HTML page, and JSON, CSV, Markdown and LaTeX."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from zetamix.atomic_io import json_safe, read_json, write_json, write_text
from zetamix.methods import display_name
from zetamix.text import join, plural
from zetamix_lab.comparison import Comparison
from zetamix_lab.metrics import BALANCED, METRICS, Metric
from zetamix_lab.provenance import machine_summary
from zetamix_lab.report import (
    Cell,
    Column,
    Picture,
    Section,
    Table,
    drawing,
    render_page,
    series_style,
)
from zetamix_lab.report.compare_text import LEVEL, format_p, summarise
from zetamix_lab.report.figure import GREY
from zetamix_lab.report.outputs import draw_outputs
from zetamix_lab.report.page import Fold
from zetamix_lab.report.table import Mark, Plain, have_same_seeds
from zetamix_lab.statistics import CONFIDENCE, Difference

SCHEMA = "zetamix/compare/1"
# tables of more classes are folded
MAX_CLASSES = 20
# larger confusion matrices have no space for numbers, and still larger ones none for names
NUMBERED_CLASSES, NAMED_CLASSES = 12, 25
# with more classes, a class would have less than a pixel
DRAWN_CLASSES = 1000
# learning curves are scaled to what comes after this fraction of the epochs
SCALED_FROM = 1 / 3
# spikes are left out where the other values take less than this fraction of the axis
DOMINANT = 1 / 3


def write_report(comparison: Comparison, out: Path, machine: Mapping[str, str]) -> Path:
    """Write report.html, results.json, .csv, .md, .tex and figures/; return the page's path.

    machine: the machine and the command, from `zetamix_lab.provenance.machine_info`.
    """
    verdict, pictures = summarise(comparison), draw_figures(comparison)
    for picture in pictures.values():
        picture.save(out / "figures")
    tables = [main_table(comparison)]
    if comparison.compared:
        tables.append(difference_table(comparison))
    write_json(out / "results.json", json_safe(as_dict(comparison, verdict, machine)))
    write_text(out / "results.csv", make_csv(comparison))
    write_text(out / "results.md", _markdown(comparison, verdict, tables, machine))
    write_text(out / "results.tex", _latex(comparison, tables))
    recalls = class_table(comparison)
    classes = Fold(recalls.caption, [recalls]) if len(recalls.rows) > MAX_CLASSES else recalls
    sections = [Section("All methods", [tables[0]])]
    if comparison.compared:
        sections.append(Section("Differences", [tables[1], pictures["differences"]]))
    if "curves" in pictures:
        sections.append(Section("Learning curves", [pictures["curves"]]))
    sections += [
        Section("Classes", [classes, *filter(None, [pictures.get("confusion")])]),
        Section("Training inputs", [pictures["outputs"]]),
        Section("Method", describe_method(comparison)),
    ]
    page = out / "report.html"
    write_text(page, render_page(_title(comparison), sections, machine=machine, lead=verdict))
    return page


def describe_replaced(comparison: Comparison, out: Path) -> str:
    """A note about an earlier report in this folder that a report of this comparison replaces."""
    try:
        earlier = read_json(out / "results.json")
        recipe, methods = earlier["recipe"], earlier["methods"]
        before = earlier["dataset"]["fingerprint"], recipe
    except (OSError, ValueError, KeyError):
        return ""
    if before != (comparison.dataset.fingerprint, json_safe(comparison.recipe.as_dict())):
        shape = " × ".join(map(str, earlier["dataset"]["shape"]))
        return (
            f"It replaces a report with other data or settings ({recipe['model']}, "
            f"{recipe['epochs']} epochs, samples of {shape}), whose runs are kept. To keep both "
            "reports, use another --out."
        )
    lost = [label for label in methods if label not in comparison.methods]
    if not lost:
        return ""
    return (
        f"It replaces a report that also had {join(lost)}. Their runs are kept: add them to "
        "--methods to include them."
    )


# tables


def main_table(comparison: Comparison) -> Table:
    """Mean ± standard deviation of every metric for every method."""
    columns = [Column("method")]
    for name in comparison.metrics:
        metric = METRICS[name]
        columns.append(Column(metric.heading, f"{metric.title}; {metric.better}"))
    columns.append(Column("seeds", "finished runs of the method"))
    rows = []
    for label in comparison.methods:
        row: list[Cell | int | str] = [display_name(label)]
        row += [_mean_cell(comparison, label, name) for name in comparison.metrics]
        rows.append([*row, comparison.summary(label, comparison.primary).n])
    notes = [
        "Mean ± standard deviation over seeds. Bold: best mean, if all methods have the same "
        "seeds; not necessarily significantly better. Ties are not bold.",
        "(T): after temperature scaling on the validation split."
        if comparison.has_temperatures
        else "No temperature scaling: not every run has a temperature fitted on validation data.",
    ]
    test = len(comparison.dataset.splits["test"])
    caption = f"{comparison.dataset.name}: {test:,} test samples, after the last epoch"
    return Table(columns, rows, caption, notes)


def _mean_cell(comparison: Comparison, label: str, name: str) -> Cell:
    metric, summary = METRICS[name], comparison.summary(label, name)
    means = [comparison.summary(other, name).mean for other in comparison.methods]
    # compared as printed: means that differ only by rounding are tied
    tied = [metric.number(mean) for mean in means].count(metric.number(summary.mean)) > 1
    best = summary.mean == max(means, key=lambda mean: metric.sign * mean)
    mark: Mark = "best" if best and not tied and _ranks(comparison) else ""
    note = ", ".join(f"seed {seed}: {metric.number(v)}" for seed, v in summary.values.items())
    return replace(metric_cell(metric, summary.mean, summary.sd), mark=mark, note=note)


def metric_cell(metric: Metric, value: float, spread: float | None) -> Cell:
    """A value of a metric ± its spread, in the unit that is printed."""
    error = None if spread is None else metric.scale(spread)
    return Cell(metric.scale(value), error=error, digits=metric.digits)


def _ranks(comparison: Comparison) -> bool:
    """Whether there are methods to rank, all with the same seeds."""
    summaries = [comparison.summary(label, comparison.primary) for label in comparison.methods]
    return len(summaries) > 1 and have_same_seeds(summaries)


def difference_table(comparison: Comparison) -> Table:
    """Paired differences from each baseline in the primary metric, with intervals and p-values."""
    metric = METRICS[comparison.primary]
    unit = ", points" if metric.percent else ""
    columns, rows = [Column("method")], [[Cell(display_name(m))] for m in comparison.methods]
    for baseline in comparison.baselines:
        columns += [
            Column(
                f"minus {display_name(baseline)} ({LEVEL})",
                f"difference in {metric.title}{unit}, paired by seed, with its interval",
            ),
            Column("Holm-corrected p", "paired t-test, two-sided, corrected over the comparisons"),
        ]
        by_method = {d.method: d for d in comparison.differences(baseline)}
        for row, label in zip(rows, comparison.methods, strict=True):
            row += difference_cells(by_method.get(label))
    return Table(columns, rows, f"Differences in {metric.title}", [difference_note(metric)])


def difference_note(metric: Metric) -> str:
    """The note of a table of differences."""
    unit = ", points" if metric.percent else ""
    better = "Positive" if metric.higher_is_better else "Negative"
    return (
        f"Mean difference in {metric.title}{unit}, paired by seed, with its {LEVEL} interval "
        f"(uncorrected). {better} is better. Bold: significant after Holm correction (p < "
        f"{1 - CONFIDENCE:.2g})."
    )


def difference_cells(difference: Difference | None) -> list[Cell]:
    """A difference with its interval, bold if it is significant, and its p-value."""
    if difference is None:
        return [Cell(None), Cell(None)]
    metric = METRICS[difference.metric]
    note = ", ".join(f"seed {seed}: {metric.signed(v)}" for seed, v in difference.values.items())
    text, p = metric.signed(difference.mean), difference.p_holm
    if difference.low is None or difference.high is None or p is None:
        return [Cell(f"{text} (one seed)", note=note), Cell(None)]
    text += f" ({metric.signed(difference.low)} to {metric.signed(difference.high)})"
    value = Cell(text, mark="best" if difference.significant else "", note=note)
    return [value, Cell(format_p(p).removeprefix("= "))]


def class_table(comparison: Comparison) -> Table:
    """Recall of every method in every class with test samples."""
    recalls = [comparison.recalls(label) for label in comparison.methods]
    # compared as printed: means that differ only by rounding are tied
    means = torch.stack([(1000 * values.mean(0)).round() / 10 for values in recalls])
    rows = []
    for k, count in enumerate(comparison.test_counts.tolist()):
        if not count:
            continue
        row: list[Cell | int | str] = [comparison.dataset.classes[k], count]
        for values, mean in zip(recalls, means[:, k], strict=True):
            error = 100 * float(values[:, k].std()) if len(values) > 1 else None
            is_best = _ranks(comparison) and int((means[:, k] >= mean).sum()) == 1
            mark: Mark = "best" if is_best else ""
            row.append(Cell(float(mean), error=error, digits=1, mark=mark))
        rows.append(row)
    columns = [Column("class"), Column("samples", "in the test split")]
    columns += [Column(display_name(label)) for label in comparison.methods]
    notes = ["Mean ± standard deviation over seeds. Bold: highest mean; ties are not marked."]
    return Table(columns, rows, "Per-class recall, %", notes)


# figures


def draw_figures(comparison: Comparison) -> dict[str, Picture]:
    """All figures by name."""
    examples = {
        "original" if row.method == "none" else row.method: (row.samples, row.targets)
        for row in comparison.examples
    }
    # a finished run has a record even if its curve was deleted
    pictures = [draw_curves(comparison)] if all(comparison.curves.values()) else []
    if not comparison.dataset.multi_label and comparison.dataset.num_classes <= DRAWN_CLASSES:
        pictures.append(draw_confusion(comparison))
    pictures.append(draw_outputs(examples, comparison.dataset.classes))
    if comparison.compared:
        pictures.append(draw_differences(comparison))
    return {picture.name: picture for picture in pictures}


def draw_differences(comparison: Comparison) -> Picture:
    """The difference of every method from each baseline: seeds as dots, mean, interval."""
    metric, baselines = METRICS[comparison.primary], comparison.baselines
    unit = ", points" if metric.percent else ""
    side = "right" if metric.higher_is_better else "left"
    with drawing(4.6 * len(baselines) + 0.6, 0.42 * len(comparison.methods) + 1.1) as figure:
        panels: Any = figure.subplots(1, len(baselines), squeeze=False)[0]
        for axes, baseline in zip(panels, baselines, strict=True):
            differences = comparison.differences(baseline)
            for row, difference in enumerate(differences):
                _draw_difference(axes, row, difference)
            axes.axvline(0, color="black", linewidth=1)
            axes.set_yticks(range(len(differences)), [display_name(d.method) for d in differences])
            axes.set_ylim(len(differences) - 0.5, -0.5)
            axes.grid(visible=False, axis="y")
            axes.set_title(f"minus {display_name(baseline)}")
            axes.set_xlabel(f"difference in {metric.title}{unit} ({side} is better)")
        return Picture.of(
            figure,
            "differences",
            alt=f"The differences in {metric.title} of the table above, with their intervals.",
            caption=f"Differences in {metric.title} on the test split, paired by seed. Small dots: "
            f"seeds. Bars: {LEVEL} intervals of the mean, uncorrected. Filled: significant after "
            "Holm correction.",
        )


def _draw_difference(axes: Axes, row: int, difference: Difference) -> None:
    scale, mean = METRICS[difference.metric].scale, difference.mean
    colour = series_style(0)["color"] if difference.significant else GREY
    seeds = [scale(value) for value in difference.values.values()]
    axes.plot(seeds, [row + 0.24] * len(seeds), "o", markersize=3, color=colour, alpha=0.6)
    error = None if difference.high is None else scale(difference.high - mean)
    fill = colour if difference.significant else "white"
    style: Any = {"fmt": "D", "markersize": 6, "color": colour, "markerfacecolor": fill}
    axes.errorbar(scale(mean), row, xerr=error, **style)


def draw_curves(comparison: Comparison) -> Picture:
    """Primary metric and negative log-likelihood by epoch, on the test and validation splits."""
    names, titles = [comparison.primary, "nll"], {"test": "test split", "val": "validation split"}
    curves = comparison.curves.values()
    splits = [s for s in titles if all(any(s in line for line in curve) for curve in curves)]
    rows, clipped = len(splits), list[str]()
    with drawing(9.6, 3.3 * rows + 0.5) as figure:
        shared: Any = "row" if rows > 1 else False
        panels: Any = figure.subplots(rows, 2, sharey=shared).reshape(len(names), rows)
        for row, name in zip(panels, names, strict=True):
            late = list[list[float]]()
            for axes, split in zip(row, splits, strict=True):
                for index, label in enumerate(comparison.methods):
                    late += _draw_curve(axes, comparison, index, label, split, name)
                axes.set_title(f"{METRICS[name].heading}, {titles[split]}")
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if _limit(row[0], late):
                clipped.append(METRICS[name].title)
        for axes in panels.flat[-2:]:
            axes.set_xlabel("epoch")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        several = any(len(comparison.values(m, names[0])) > 1 for m in comparison.methods)
        bands = "; bands: one standard deviation over seeds" if several else ""
        spikes = f"; spikes in {join(clipped)} exceed them" if clipped else ""
        return Picture.of(
            figure,
            "curves",
            alt=f"Learning curves of {METRICS[names[0]].title} and negative log-likelihood.",
            caption=f"Learning curves on the {join([titles[s] for s in splits])}, mean over seeds"
            f"{bands}. Axes are scaled to the last two thirds of training{spikes}.",
        )


def _draw_curve(
    axes: Axes, comparison: Comparison, index: int, label: str, split: str, name: str
) -> list[list[float]]:
    """Draw the curve of one method; return both ends of its band, which the axes should cover."""
    runs = [
        {line["epoch"]: line[split][name] for line in curve if split in line}
        for (method, _), curve in comparison.curves.items()
        if method == label
    ]
    epochs = sorted(set.intersection(*(set(run) for run in runs)))
    values = torch.tensor([[run[epoch] for epoch in epochs] for run in runs], dtype=torch.float64)
    values = METRICS[name].scale(1) * values
    mean, spread = values.mean(0), values.std(0) if len(runs) > 1 else torch.zeros(len(epochs))
    style, step = series_style(index), max(1, len(epochs) // 8)
    axes.plot(epochs, mean.tolist(), label=display_name(label), markevery=step, **style)
    band = (mean - spread).tolist(), (mean + spread).tolist()
    axes.fill_between(epochs, *band, color=style["color"], alpha=0.13, lw=0)
    first = next(k for k, epoch in enumerate(epochs) if epoch >= SCALED_FROM * epochs[-1])
    return [edge[first:] for edge in band]


def _limit(axes: Axes, curves: Sequence[Sequence[float]]) -> bool:
    """Scale an axis to its curves without spikes; return whether there are spikes."""
    finite = [sorted(filter(math.isfinite, curve)) for curve in curves]
    shown = [value for curve in finite for value in curve]
    usual = [value for curve in finite for value in _without_spikes(curve)]
    if not shown or max(shown) == min(shown):
        return False
    has_spikes = 0 < max(usual) - min(usual) < DOMINANT * (max(shown) - min(shown))
    shown = usual if has_spikes else shown
    margin = 0.05 * (max(shown) - min(shown))
    # no metric is negative
    axes.set_ylim(max(0.0, min(shown) - margin), max(shown) + margin)
    return has_spikes


def _without_spikes(values: Sequence[float]) -> Sequence[float]:
    """Sorted values without those far outside the range of most of them, if these are few."""
    few = len(values) // 6
    low, high = (values[few], values[-1 - few]) if few else (-math.inf, math.inf)
    reach = 3 * (high - low)
    return [value for value in values if low - reach <= value <= high + reach]


def draw_confusion(comparison: Comparison) -> Picture:
    """A confusion matrix for each method, over all seeds."""
    methods, classes = comparison.methods, comparison.dataset.classes
    columns = 2 if len(methods) == 4 else min(3, len(methods))
    rows = -(-len(methods) // columns)
    size = 2.9 if len(classes) <= NAMED_CLASSES else 2.6
    with drawing(size * columns + 0.5, (size + 0.3) * rows) as figure:
        panels: Any = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(methods) :]:
            axes.set_axis_off()
        image = None
        for axes, label in zip(panels.flat, methods, strict=False):
            image = _draw_matrix(axes, comparison.confusion(label), classes)
            axes.set_title(display_name(label))
        for axes in panels[:, 0]:
            axes.set_ylabel("true class")
        for axes in panels[-1]:
            axes.set_xlabel("predicted class")
        if image is not None:
            figure.colorbar(image, ax=panels, shrink=0.6, label="% of the true class")
        return Picture.of(
            figure,
            "confusion",
            alt=f"Confusion matrices on the test split of {', '.join(map(display_name, methods))}.",
            caption="Confusion matrices on the test split after the last epoch, summed over seeds, "
            "in % of each true class.",
        )


def _draw_matrix(axes: Axes, counts: Tensor, classes: tuple[str, ...]) -> Any:
    shares = 100 * counts.double() / counts.sum(1, keepdim=True).clamp_min(1)
    image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100, interpolation="none")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    names = classes if len(classes) <= NAMED_CLASSES else ()
    rotation = 90 if max(map(len, classes)) > 2 else 0
    axes.set_xticks(range(len(names)), names, rotation=rotation, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    if len(classes) <= NUMBERED_CLASSES:
        for row, column in (shares >= 0.05).nonzero().tolist():
            share = float(shares[row, column])
            text = f"{share:.0f}" if share >= 10 else f"{share:.1f}"
            style: Any = {"ha": "center", "va": "center", "fontsize": 5.5}
            axes.text(column, row, text, color="white" if share > 55 else "black", **style)
    return image


# files


def as_dict(
    comparison: Comparison, verdict: Sequence[tuple[str, str]], machine: Mapping[str, str]
) -> dict[str, Any]:
    """The content of results.json: the verdict, all statistics, every run and epoch."""
    dataset, methods = comparison.dataset, comparison.methods
    return {
        "schema": SCHEMA,
        "command": machine["command"],
        "machine": dict(machine),
        "verdict": dict(verdict),
        "dataset": {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "origin": dataset.origin,
            "notes": list(dataset.notes),
            "classes": list(dataset.classes),
            "shape": list(dataset.shape),
            "samples": {name: len(split) for name, split in dataset.splits.items()},
        },
        "recipe": comparison.recipe.as_dict(),
        "seeds": list(comparison.seeds),
        "complete": comparison.complete,
        "failures": [
            {"method": method, "seed": seed, "reason": reason}
            for (method, seed), reason in comparison.failures.items()
        ],
        "metrics": comparison.metrics,
        "confidence": CONFIDENCE,
        "methods": {
            label: {
                name: asdict(comparison.summary(label, name))
                for name in _recorded_metrics(comparison)
            }
            for label in methods
        },
        "differences": [
            {**asdict(difference), "significant": difference.significant}
            for baseline in comparison.baselines
            for name in comparison.metrics
            for difference in comparison.differences(baseline, name)
        ],
        "recalls": {
            label: dict(zip(dataset.classes, comparison.recalls(label).T.tolist(), strict=True))
            for label in methods
        },
        "runs": [record.as_dict() for record in comparison.records.values()],
        "curves": [
            {"method": method, "seed": seed, "epochs": list(curve)}
            for (method, seed), curve in comparison.curves.items()
        ],
    }


def make_csv(comparison: Comparison) -> str:
    """One line per run, numbers in full."""
    names = _recorded_metrics(comparison)
    rows: list[list[Plain]] = [
        [method, seed, *(r.last[name] for name in names), r.wall_s, r.step_ms, r.cell.key]
        for (method, seed), r in comparison.records.items()
    ]
    return Table(["method", "seed", *names, "wall_s", "step_ms", "key"], rows).csv()


def _recorded_metrics(comparison: Comparison) -> list[str]:
    return [name for name in METRICS if all(name in r.last for r in comparison.records.values())]


def _markdown(
    comparison: Comparison,
    verdict: Sequence[tuple[str, str]],
    tables: Sequence[Table],
    machine: Mapping[str, str],
) -> str:
    parts = [f"# {_title(comparison)}", *(f"**{heading}.** {text}" for heading, text in verdict)]
    for table in tables:
        parts += [f"{table.caption}.", table.markdown(), *table.notes]
    parts += [f"`{machine['command']}`", machine_summary(dict(machine))]
    return "\n\n".join(parts) + "\n"


def _latex(comparison: Comparison, tables: Sequence[Table]) -> str:
    lines = [f"% {_title(comparison)}; needs \\usepackage{{booktabs}}"]
    for table in tables:
        lines += [f"% {table.caption}", *(f"% {note}" for note in table.notes), table.latex(), ""]
    return "\n".join(lines)


def _title(comparison: Comparison) -> str:
    incomplete = "" if comparison.complete else " (incomplete)"
    return f"{comparison.dataset.name}: does mixing help?{incomplete}"


def describe_method(comparison: Comparison) -> list[str]:
    """How the numbers were made, and what they do not cover."""
    dataset, recipe, seeds = comparison.dataset, comparison.recipe, comparison.seeds
    test = len(dataset.splits["test"])
    lines = Counter(machine_summary(record.machine) for record in comparison.records.values())
    machines = "; ".join(f"{plural(count, 'run')} on {line}" for line, count in lines.items())
    minutes = sum(record.wall_s for record in comparison.records.values()) / 60
    tested = join([METRICS[name].title for name in comparison.tested])
    description = f" ({comparison.description})" if comparison.description else ""
    paragraphs = [
        f"{plural(len(comparison.requested), 'method')} with {plural(len(seeds), 'seed')} each, on "
        f"the same {len(dataset.train):,} training and {test:,} test samples. A seed fixes the "
        "initial weights and the order of the data, so that paired runs differ only in the mixing.",
        f"Every run: {recipe.model}, {recipe.start}, {plural(recipe.epochs, 'epoch')}, batch size "
        f"{recipe.batch_size}, {recipe.optimisation}, augmentation: {recipe.augmentation}. "
        f"Recipe: {recipe.origin}. All numbers are from the last epoch; "
        "nothing was selected on the test split.",
        f"Primary metric: {METRICS[comparison.primary].title}. It is the mean "
        "average precision for several labels per sample, the AUC for two classes, the error rate "
        "if the largest test class has at most "
        f"{BALANCED:g} times the samples of the smallest, and balanced accuracy otherwise.",
        f"Intervals: Student's t over paired differences, {LEVEL} each. Their standard deviation "
        "is at least that of rounding to one test sample. p-values are Holm-corrected over all "
        f"differences from one baseline in {tested}. Intervals cover the variation between seeds "
        "(weights, data order, mixing), not the choice of training and test samples.",
        "Expected calibration error: 15 bins of equal width over the highest probability. Training "
        "on soft labels makes networks underconfident by design, so calibration is judged after "
        "temperature scaling: one parameter for each run, fitted on the validation split.",
        "Power: of a paired t-test, from the noncentral t distribution. Convergence: judged by a "
        "line fitted to the last third of each curve, at least three epochs.",
        f"Trained{description}: {machines}. The times of all runs add up to {minutes:.1f} minutes.",
    ]
    return paragraphs + [f"Data: {note}." for note in dataset.notes]
