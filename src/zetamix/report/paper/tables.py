"""The paper's tables of trained models beside ours: natural images, skin lesions, MedMNIST."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zetamix.metrics import METRICS
from zetamix.report import Cell, Column, Table
from zetamix.report.paper.comparisons import (
    Row,
    column_title,
    compare_all,
    difference_table,
    groups_of,
    judge,
    rows_of,
    summary_cell,
    variants_of,
)
from zetamix.report.paper.style import method_name
from zetamix.report.paper.verdict import ArtifactReport
from zetamix.report.table import Mark, Plain
from zetamix.results import paper_values as paper
from zetamix.results.paper_cells import Variant
from zetamix.results.paper_view import PaperView

AUGMENTATION = (
    "The paper's appendix names horizontal flips as the only augmentation, its Sec. 4.5 also "
    "mentions cropping. The two are different recipes and have separate columns."
)
DEFAULTS = (
    "Not specified by the paper; our choice: images normalised by the training split's mean and "
    "deviation per channel, a 3 × 3 first convolution without pooling for images up to 64 pixels, "
    "the last, smaller batch dropped, and bfloat16 where the GPU supports it."
)
SKIN_SPLITS = (
    "Every value that the paper prints is of one run. Seven of the ten datasets are split 70:10:20 "
    "with a seed that the paper does not give: our splits have its sizes but not its images, and "
    "MSK has not its size either: the archive has 3,676 images, the paper 3,551. ISIC 2018 is "
    "evaluated on its 193 validation images, as in the paper."
)
MEDMNIST_DEFAULTS = (
    "The paper gives the learning rate, the loss, SGD and the batch size; epochs, momentum, "
    "normalisation and the selection of the epoch by validation AUC are those of MedMNIST's script."
)
METHODS = (
    "ζ-mixup mixes as the authors' code does (kakumarabhishek/zeta-mixup on GitHub, utils.py, "
    "commit 39207c9): each sample of a batch dominates one output. Their equation draws the "
    "dominant samples at random, so that more than a third of a batch dominates none; that is "
    "zeta:anchor=random.",
    "The paper does not state mixup's α; ours is 1, the default of the authors' code, so that λ is "
    "uniform. Ours draws one λ per output, theirs one per batch, which is mixup:per=batch.",
)


@dataclass(frozen=True)
class TableSpec:
    """The metrics of a table, the first of which decides its verdict."""

    metrics: tuple[str, ...]
    caption: str
    notes: tuple[str, ...]


SPECS: Mapping[str, TableSpec] = {
    "natural": TableSpec(("error",), "Table 1: error on natural images", (AUGMENTATION, DEFAULTS)),
    "skin": TableSpec(
        ("balanced_accuracy",), "Balanced accuracy on skin lesions", (SKIN_SPLITS, DEFAULTS)
    ),
    "skin-detailed": TableSpec(
        ("balanced_accuracy", "f1_micro", "f1_macro"),
        "Skin lesions in detail",
        (SKIN_SPLITS, DEFAULTS),
    ),
    "medmnist": TableSpec(
        ("auc", "accuracy"), "AUC and accuracy on MedMNIST", (MEDMNIST_DEFAULTS,)
    ),
}


def report(view: PaperView) -> ArtifactReport:
    spec = SPECS[view.artifact]
    tables = {view.artifact: comparison_table(view, spec)}
    comparisons = compare_all(view, spec.metrics[0])
    if comparisons:
        tables["differences"] = difference_table(comparisons)
    return ArtifactReport((), tables, judge(comparisons))


def comparison_table(view: PaperView, spec: TableSpec) -> Table:
    """A row per dataset, model and method; per metric the paper's value, ours, the difference."""
    rows, variants = rows_of(view), variants_of(view)
    has_models = len({row.model for row in rows}) > 1
    footnotes = paper.footnotes(view.artifact)
    numbered = [issue for issue in footnotes if any(_concerns(issue, row) for row in rows)]
    body = []
    for row, group in [(row, methods) for methods in groups_of(rows) for row in methods]:
        line: list[Cell | Plain] = [row.title]
        line += [paper.MODELS[row.model]] if has_models else []
        line.append(method_name(row.method))
        for metric in spec.metrics:
            line.append(_printed_cell(row, metric))
            for variant in variants:
                mark = _mark(row, group, variant, metric)
                line += _our_cells(row, variant, metric, mark)
        numbers = [str(k) for k, issue in enumerate(numbered, 1) if _concerns(issue, row)]
        body.append([*line, ", ".join(numbers)])
    heads = ["dataset", *(["model"] if has_models else []), "method"]
    columns = [Column(head) for head in heads] + _columns(spec.metrics, variants) + [Column("see")]
    notes = [_explanation(spec.metrics), *METHODS, *spec.notes]
    notes += [f"[{number}] {issue.sentence}" for number, issue in enumerate(numbered, 1)]
    notes += [f"About the paper: {i.sentence}" for i in footnotes if i not in numbered]
    return Table(columns, body, spec.caption, notes)


def readme_table(view: PaperView, dataset: str) -> Table:
    """The error rates of one dataset: the paper's value and ours."""
    variants = variants_of(view)
    rows: list[list[Cell | Plain]] = [
        [
            method_name(row.method),
            Cell(row.printed("error"), digits=2),
            *(summary_cell(row.summary(variant, "error"), 2) for variant in variants),
        ]
        for row in rows_of(view)
        if row.dataset == dataset
    ]
    heads = [METRICS["error"].heading, "paper", *(f"ours, {v.label}" for v in variants)]
    return Table([Column(head) for head in heads], rows)


def _columns(metrics: Sequence[str], variants: Sequence[Variant]) -> list[Column]:
    columns = []
    for metric in metrics:
        title = column_title(metric)
        columns.append(Column(f"{title}, paper", "as printed"))
        for variant in variants:
            label = f", {variant.label}" if variant.label else ""
            columns.append(Column(f"ours{label}", f"{title}: mean ± standard deviation over seeds"))
            columns.append(Column(f"ours − paper{label}"))
    return columns


def _printed_cell(row: Row, metric: str) -> Cell:
    emphasis = paper.emphasis(row.artifact, row.dataset, row.model, row.method, metric)
    marks: dict[str, Mark] = {"bold": "best", "underline": "second", "": ""}
    return Cell(row.printed(metric), digits=paper.METRICS[metric].digits, mark=marks[emphasis])


def _our_cells(row: Row, variant: Variant, metric: str, mark: Mark) -> list[Cell]:
    """Ours, and the difference to the paper."""
    summary, printed = row.summary(variant, metric), row.printed(metric)
    digits = paper.METRICS[metric].digits
    difference = None if summary is None or printed is None else summary.mean - printed
    return [summary_cell(summary, digits, mark), Cell(difference, digits=digits, signed=True)]


def _mark(row: Row, group: Sequence[Row], variant: Variant, metric: str) -> Mark:
    """Whether our mean is the best or second best; no mark unless every method was run."""
    summaries = {other.method: other.summary(variant, metric) for other in group}
    means = {name: METRICS[metric].sign * s.mean for name, s in summaries.items() if s is not None}
    if len(means) < len(group):
        return ""
    rank = sorted(set(means.values()), reverse=True).index(means[row.method])
    return "best" if rank == 0 else "second" if rank == 1 else ""


def _concerns(issue: paper.Issue, row: Row) -> bool:
    return issue.concerns(dataset=row.dataset, model=row.model, method=row.method)


def _explanation(metrics: Sequence[str]) -> str:
    better = "Higher" if METRICS[metrics[0]].higher_is_better else "Lower"
    return (
        f"{better} is better. Paper: as printed, with its bold and underlined values. Ours: mean ± "
        "standard deviation over n seeds, best and second best marked where every method has been "
        "run; – no run yet. Ours is the epoch with the best validation score, or the last epoch of "
        "a dataset without a validation split."
    )
