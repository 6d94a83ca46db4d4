"""The paper's tables beside ours: its value, our mean and deviation over seeds, the difference."""

from collections.abc import Sequence
from dataclasses import dataclass

from zetamix.data import CATALOGUE
from zetamix.experiments.reproduce.cells import Training, Variant
from zetamix.measure.statistics import Summary, summarise
from zetamix.metrics import METRICS
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Table
from zetamix.report.paper.view import View, method_name
from zetamix.report.table import Mark, Plain
from zetamix.results import paper_values as paper

LEFT_OPEN = (
    "The paper leaves open, and ours takes: images normalised by the training split's mean and "
    "deviation per channel, a 3 × 3 first convolution without pooling for images up to 64 pixels, "
    "a last, smaller batch left out, and bfloat16 where the GPU has it."
)
ANCHORED = (
    "ζ-mixup mixes as the authors' code does (kakumarabhishek/zeta-mixup on GitHub, utils.py, "
    "commit 39207c9): each sample of a batch dominates one output. Their equation draws the "
    "dominant samples freely, so that more than a third of a batch dominate none; that is "
    "zeta:anchor=random."
)
ALPHA = (
    "The paper does not say mixup's α; ours is 1, the default of the authors' code, so that λ is "
    "uniform. Ours draws a λ for each output, theirs one for a batch, which is mixup:per=batch."
)
MARKS: dict[str, Mark] = {"bold": "best", "underline": "second", "": ""}


@dataclass(frozen=True)
class Row:
    """One row of a table of the paper, with our runs of it under each variant."""

    dataset: str
    model: str
    method: str
    runs: dict[Variant, list[RunRecord]]

    def ours(self, variant: Variant, metric: str) -> Summary | None:
        """A measure over our seeds, in the paper's unit."""
        scale = paper.METRICS[metric][1]
        values = {run.cell.seed: scores(run)[metric] for run in self.runs.get(variant, [])}
        known = {seed: scale * value for seed, value in values.items() if value is not None}
        return summarise(known) if known else None


def scores(run: RunRecord) -> dict[str, float]:
    """Of the epoch with the best validation score, or of the last one where nothing validates."""
    return run.last if run.best is None else run.best


def rows_of(view: View) -> list[Row]:
    """The rows of the paper's table, in its order."""
    rows: dict[tuple[str, str, str], dict[Variant, list[RunRecord]]] = {}
    for cell in view.trainings:
        place = rows.setdefault((cell.dataset, cell.model, cell.method), {})
        place.setdefault(cell.variant, view.results.runs_of(cell))
    methods = list(paper.METHODS)
    order = sorted(rows, key=lambda row: (_first(view, row), methods.index(row[2])))
    return [Row(*key, rows[key]) for key in order]


def _first(view: View, row: tuple[str, str, str]) -> int:
    """Where the dataset and model of a row come first."""
    places = [(cell.dataset, cell.model) for cell in view.trainings]
    return places.index(row[:2])


def variants_of(cells: Sequence[Training]) -> list[Variant]:
    return list(dict.fromkeys(cell.variant for cell in cells))


def compare(view: View, metrics: Sequence[str], caption: str, notes: Sequence[str] = ()) -> Table:
    """A row for each dataset, model and method; for each metric the paper's value and ours."""
    rows, variants = rows_of(view), variants_of(view.trainings)
    models = {row.model for row in rows}
    known = paper.footnotes(view.artifact)
    issues = [each for each in known if any(_concerns(each, row) for row in rows)]
    marks = _marks(rows, variants, metrics)
    body = []
    for row in rows:
        line: list[Cell | Plain] = [CATALOGUE[row.dataset].title]
        line += [paper.MODELS[row.model]] if len(models) > 1 else []
        line.append(method_name(row.method))
        for metric in metrics:
            printed = paper.printed(view.artifact, row.dataset, row.model, row.method, metric)
            digits = paper.METRICS[metric][2]
            emphasis = paper.emphasis(view.artifact, row.dataset, row.model, row.method, metric)
            line.append(Cell(printed, digits=digits, mark=MARKS[emphasis]))
            for variant in variants:
                line += _ours(row, variant, metric, printed, marks)
        line.append(", ".join(_see(issues, row)))
        body.append(line)
    heads = ["dataset", *(["model"] if len(models) > 1 else []), "method"]
    columns = [Column(head) for head in heads] + _columns(metrics, variants) + [Column("see")]
    numbered = [f"[{place}] {issue.sentence}" for place, issue in enumerate(issues, 1)]
    others = [f"About the paper: {issue.sentence}" for issue in known if issue not in issues]
    return Table(columns, body, caption, [*_how(metrics), *notes, *numbered, *others])


def _columns(metrics: Sequence[str], variants: Sequence[Variant]) -> list[Column]:
    columns = []
    for metric in metrics:
        name = unit_name(metric)
        columns.append(Column(f"{name}, paper", "as printed"))
        for variant in variants:
            label = f", {variant.label}" if variant.label else ""
            columns.append(Column(f"ours{label}", f"{name}: mean ± standard deviation over seeds"))
            columns.append(Column(f"ours − paper{label}"))
    return columns


def unit_name(metric: str) -> str:
    """The name of a metric with its unit: error rate %, AUC."""
    return METRICS[metric].title + (" %" if paper.METRICS[metric][1] == 100 else "")


def _ours(
    row: Row,
    variant: Variant,
    metric: str,
    printed: float | None,
    marks: dict[tuple[Row | str, ...], Mark],
) -> list[Cell]:
    found = row.ours(variant, metric)
    if found is None:
        return [Cell(None), Cell(None)]
    digits = paper.METRICS[metric][2]
    mark = marks.get(_place(row, variant, metric), "")
    ours = Cell(found.mean, error=found.sd, n=found.n, digits=digits, mark=mark)
    difference = None if printed is None else found.mean - printed
    return [ours, Cell(difference, digits=digits, signed=True)]


def _place(row: Row, variant: Variant, metric: str) -> tuple[str, ...]:
    return row.dataset, row.model, row.method, variant.label, metric


def _marks(
    rows: Sequence[Row], variants: Sequence[Variant], metrics: Sequence[str]
) -> dict[tuple[Row | str, ...], Mark]:
    """Best and second of our means, within one dataset and model, where all methods have one."""
    marks: dict[tuple[Row | str, ...], Mark] = {}
    for dataset, model in dict.fromkeys((row.dataset, row.model) for row in rows):
        group = [row for row in rows if (row.dataset, row.model) == (dataset, model)]
        for variant in variants:
            for metric in metrics:
                found = [(row, row.ours(variant, metric)) for row in group]
                known = [(row, ours.mean) for row, ours in found if ours is not None]
                if len(known) < len(group):
                    continue
                sign = -1 if METRICS[metric].higher_is_better else 1
                levels = sorted({sign * mean for _, mean in known})
                for row, mean in known:
                    rank = levels.index(sign * mean)
                    if rank < 2:
                        names: tuple[Mark, Mark] = ("best", "second")
                        marks[_place(row, variant, metric)] = names[rank]
    return marks


def _concerns(issue: paper.Issue, row: Row) -> bool:
    return issue.concerns(row.dataset, row.model, row.method)


def _see(issues: Sequence[paper.Issue], row: Row) -> list[str]:
    return [str(place) for place, issue in enumerate(issues, 1) if _concerns(issue, row)]


def _how(metrics: Sequence[str]) -> list[str]:
    directions = {METRICS[metric].higher_is_better for metric in metrics}
    better = "Higher is better." if directions == {True} else "Lower is better."
    return [
        f"{better} Paper: as printed, bold and underlined as there. Ours: mean ± standard "
        "deviation over n seeds, best and second marked where every method has been run; – where "
        "nothing has been run yet. Where a dataset has a validation split, ours is the epoch that "
        "does best on it, else the last one. Intervals are Student's at 95 %, paired by seed; a "
        "win or a loss is claimed where Holm's correction for several γ agrees.",
        ANCHORED,
        ALPHA,
    ]
