"""The tables of a comparison."""

import math

import torch

from zetamix.measure.statistics import Difference
from zetamix.metrics import METRICS
from zetamix.report import Cell, Column, Table
from zetamix.report.compare_text import LEVEL
from zetamix.results.comparison import Comparison

# classes that a page has room for; results.json has all
MOST_CLASSES = 20


def main_table(comparison: Comparison, *, second: str = "underlined") -> Table:
    """Every method by every metric: mean ± standard deviation over seeds, best and second.

    second: how the format it is written in marks the second best; Markdown cannot underline.
    """
    columns = [Column("method")]
    for name in comparison.metrics:
        better = "higher" if METRICS[name].higher_is_better else "lower"
        columns.append(Column(METRICS[name].heading, f"{METRICS[name].title}; {better} is better"))
    columns.append(Column("seeds", "finished runs of the method"))
    rows = []
    for label in comparison.methods:
        row: list[Cell | int | str] = [label]
        row += [_mean_cell(comparison, label, name) for name in comparison.metrics]
        rows.append([*row, comparison.summary(label, comparison.primary).n])
    notes = [f"Mean ± standard deviation over seeds. Bold: best mean, {second}: second."]
    test = len(comparison.dataset.splits["test"])
    caption = f"{comparison.dataset.name}: {test:,} test samples, after the last epoch"
    return Table(columns, rows, caption, notes)


def _mean_cell(comparison: Comparison, label: str, metric: str) -> Cell:
    found = comparison.summary(label, metric)
    shown = METRICS[metric]
    order = comparison.ranked(metric)
    means = {name: comparison.summary(name, metric).mean for name in order}
    # equal means share a place
    rank = sorted({means[name] for name in order}, reverse=shown.higher_is_better).index(found.mean)
    single = ", ".join(
        f"seed {seed}: {shown.number(value)}" for seed, value in found.values.items()
    )
    return Cell(
        shown.scale(found.mean),
        error=None if found.sd is None else shown.scale(found.sd),
        digits=shown.digits,
        mark="best" if rank == 0 else "second" if rank == 1 else "",
        note=single,
    )


def difference_table(comparison: Comparison) -> Table:
    """Paired differences of the primary metric to each reference, with intervals."""
    metric = comparison.primary
    name = METRICS[metric].title
    points = ", points" if METRICS[metric].percent else ""
    columns = [Column("method")]
    for reference in comparison.baselines:
        columns += [
            Column(
                f"minus {reference} ({LEVEL})",
                f"difference in {name}{points}, paired by seed, and its interval, by itself",
            ),
            Column("p", f"two-sided, adjusted after Holm for all differences to {reference}"),
        ]
    by_method: dict[str, list[Cell | str]] = {label: [label] for label in comparison.methods}
    for reference in comparison.baselines:
        found = {each.method: each for each in comparison.differences(reference)}
        for label, row in by_method.items():
            row += _difference_cells(found.get(label))
    better = "Positive" if METRICS[metric].higher_is_better else "Negative"
    notes = [
        f"Mean difference in {name}{points}, paired by seed, and its {LEVEL} interval. {better} is "
        "better. A difference is claimed only where the interval excludes 0 and p, adjusted after "
        "Holm for all differences to the same method, is below 0.05; bold marks those."
    ]
    rows = [by_method[label] for label in comparison.methods]
    return Table(columns, rows, f"Differences in {name}", notes)


def _difference_cells(found: Difference | None) -> list[Cell | str]:
    if found is None:
        return [Cell(None), Cell(None)]
    seeds = found.values.items()
    note = ", ".join(f"seed {seed}: {METRICS[found.metric].signed(value)}" for seed, value in seeds)
    text = METRICS[found.metric].signed(found.mean)
    if found.low is None or found.high is None or found.p_holm is None:
        return [Cell(f"{text} (one seed)", note=note), Cell(None)]
    shown = METRICS[found.metric]
    text += f" ({shown.signed(found.low)} to {shown.signed(found.high)})"
    p = "< 0.001" if found.p_holm < 0.001 else f"{found.p_holm:.3f}"
    return [Cell(text, mark="best" if found.significant else "", note=note), Cell(p)]


def class_table(comparison: Comparison) -> Table:
    """How much of each class every method recognises."""
    recalls = {label: comparison.recalls(label) for label in comparison.methods}
    counts = comparison.dataset.splits["test"].counts()
    means = torch.stack([found.mean(0) for found in recalls.values()])
    chosen = [k for k in range(len(counts)) if counts[k] > 0]
    notes = [
        "Share of a class's test samples that is recognised (recall) in %, mean ± standard "
        "deviation over seeds. Bold: highest mean of the row."
    ]
    if len(chosen) > MOST_CLASSES:
        spread = means.amax(0) - means.amin(0)
        chosen = sorted(sorted(chosen, key=lambda k: -float(spread[k]))[:MOST_CLASSES])
        notes.append(
            f"The {MOST_CLASSES} of {len(counts)} classes in which methods differ most; "
            "results.json has all."
        )
    rows = []
    for k in chosen:
        best = float(means[:, k].max())
        row: list[Cell | int | str] = [comparison.dataset.classes[k], int(counts[k])]
        for found in recalls.values():
            mean, seeds = float(found[:, k].mean()), len(found)
            sd = float(found[:, k].std()) if seeds > 1 else None
            # where all are right there is no best
            marked = mean == best and float(means[:, k].min()) < best
            row.append(
                Cell(
                    100 * mean,
                    error=None if sd is None or math.isnan(sd) else 100 * sd,
                    digits=1,
                    mark="best" if marked else "",
                )
            )
        rows.append(row)
    columns = [Column("class"), Column("samples", "in the test split"), *map(Column, recalls)]
    return Table(columns, rows, "Recognised of each class, %", notes)
