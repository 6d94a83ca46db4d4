"""The paper's tables of trained models with our results, and the differences of ζ-mixup."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from paper.datasets import CATALOGUE
from paper.report.artifact_report import ArtifactReport, Verdict, method_name, status_of
from paper.results import paper_values as paper
from paper.results.paper_cells import Variant
from paper.results.record_store import PaperView
from zetamix_lab.metrics import METRICS, count_right, resolution
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Column, Table
from zetamix_lab.report.table import MARKED, Mark, Plain, rank_marks
from zetamix_lab.statistics import (
    CONFIDENCE,
    Difference,
    Summary,
    holm,
    paired_difference,
    summarise,
)
from zetamix_lab.text import plural, sentence_case

BASELINES = ("mixup:1.0", "none")
OUTCOMES = {
    "ahead": "significantly ahead",
    "behind": "significantly behind",
    "not significant": "not significantly different",
    "one seed": "with one seed only, which is not evidence",
}
AUGMENTATION = (
    "The paper's appendix names horizontal flips as the only augmentation, but its Sec. 4.5 also "
    "mentions cropping. The two are different recipes and have separate columns."
)
DEFAULTS = (
    "Not specified by the paper; our choice: images normalised by the training split's mean and "
    "deviation per channel, a 3 × 3 first convolution without pooling for images up to 64 pixels, "
    "the last, smaller batch dropped, and bfloat16 where the GPU supports it."
)
SKIN_SPLITS = (
    "Every value in the paper is from one run. Seven of the ten datasets are split 70:10:20 with a "
    "seed that the paper does not give: our splits have the same sizes but not the same images. "
    "The size of MSK differs as well: the archive has 3,676 images, the paper 3,551. ISIC 2018 is "
    "evaluated on its 193 validation images, as in the paper."
)
SCRATCH = (
    "The paper does not say whether its networks for skin lesions start from ImageNet weights. "
    "Ours start from scratch, unless a column names a file of weights (--weights FILE)."
)
OURS = (
    "Methods marked as ours are not in the paper and do not count in the verdict: ZetaMix, and the "
    "widely used switch between mixup and CutMix."
)
MEDMNIST_DEFAULTS = (
    "The paper gives the learning rate, the loss, SGD and the batch size; epochs, momentum, "
    "normalisation and the selection of the epoch by validation AUC are those of MedMNIST's script."
)
METHODS = (
    "ζ-mixup mixes as the authors' code does (kakumarabhishek/zeta-mixup on GitHub, utils.py, "
    "commit 39207c9): each sample of a batch dominates one output. Their equation draws the "
    "dominant samples at random, so that more than a third of a batch dominates no output "
    "(zeta:anchor=random).",
    "The paper does not state mixup's α; ours is 1, the default of the authors' code, so that λ is "
    "uniform. Ours draws one λ per output, theirs one per batch (mixup:per=batch).",
)
# the first metric of a table determines its verdict
SHOWN_METRICS = {
    "natural": ("error",),
    "skin": ("balanced_accuracy",),
    "skin-detailed": ("balanced_accuracy", "f1_micro", "f1_macro"),
    "medmnist": ("auc", "accuracy"),
}
NOTES = {
    "natural": (AUGMENTATION, DEFAULTS),
    "skin": (SCRATCH, SKIN_SPLITS, DEFAULTS),
    "skin-detailed": (SCRATCH, SKIN_SPLITS, DEFAULTS),
    "medmnist": (MEDMNIST_DEFAULTS,),
}


@dataclass(frozen=True)
class Row:
    """One dataset, model and method, with our runs under each variant of the recipe."""

    view: PaperView
    dataset: str
    model: str
    method: str
    runs: dict[Variant, list[RunRecord]]

    @property
    def title(self) -> str:
        return CATALOGUE[self.dataset].title

    @property
    def in_paper(self) -> bool:
        return self.method in paper.METHODS

    def summary(self, variant: Variant, metric: str) -> Summary | None:
        """A metric over our seeds, in the paper's unit."""
        scale = paper.METRICS[metric].scale
        scores = {
            # at the epoch with the best validation score, or at the last one without validation
            run.cell.seed: (run.last if run.best is None else run.best)[metric]
            for run in self.runs.get(variant, [])
        }
        values = {seed: scale * score for seed, score in scores.items() if score is not None}
        return summarise(values) if values else None

    def printed(self, metric: str) -> float | None:
        """The paper's value."""
        return paper.printed(self.view.artifact, self.dataset, self.model, self.method, metric)


def summary_cell(summary: Summary | None, digits: int, mark: Mark = "") -> Cell:
    """Mean ± standard deviation (n)."""
    if summary is None:
        return Cell(None)
    return Cell(summary.mean, error=summary.sd, n=summary.n, digits=digits, mark=mark)


def rows_of(view: PaperView) -> list[Row]:
    """The rows of a table, in the paper's order."""
    runs: dict[tuple[str, str, str], dict[Variant, list[RunRecord]]] = {}
    for cell in view.trainings:
        variants = runs.setdefault((cell.dataset, cell.model, cell.method), {})
        if cell.variant not in variants:
            variants[cell.variant] = view.store.runs_of(cell)
    return [Row(view, *key, variants) for key, variants in runs.items()]


def groups_of(rows: list[Row]) -> list[list[Row]]:
    """Rows of the same dataset and model: the methods to compare."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.model), []).append(row)
    return list(groups.values())


def variants_of(view: PaperView) -> list[Variant]:
    return list(dict.fromkeys(cell.variant for cell in view.trainings))


def column_title(metric: str) -> str:
    """The name of a metric with the paper's unit: "error rate %", "AUC"."""
    return METRICS[metric].title + (" %" if paper.METRICS[metric].scale == 100 else "")


@dataclass(frozen=True)
class Comparison:
    """ζ-mixup minus a baseline at one γ, in the paper's unit: our difference and the paper's."""

    row: Row
    variant: Variant
    difference: Difference
    printed: float | None
    """The difference of the paper's two values."""

    @property
    def sign(self) -> int:
        return METRICS[self.difference.metric].sign

    @property
    def outcome(self) -> str:
        if self.difference.n < 2:
            return "one seed"
        if not self.difference.significant:
            return "not significant"
        return "ahead" if self.sign * self.difference.mean > 0 else "behind"

    @property
    def is_win_in_paper(self) -> bool:
        return self.printed is not None and self.sign * self.printed > 0

    @property
    def claim_holds(self) -> bool | None:
        """Whether a win of the paper is a win here; None if more seeds are needed."""
        return {"ahead": True, "behind": False}.get(self.outcome)


def compare_all(view: PaperView, metric: str) -> list[Comparison]:
    return [
        comparison
        for group in groups_of(rows_of(view))
        for variant in variants_of(view)
        for baseline in BASELINES
        for comparison in compare(group, variant, metric, baseline)
    ]


def judge(comparisons: Sequence[Comparison]) -> Verdict:
    """The paper: ζ-mixup is ahead of mixup and of no mixing."""
    if not comparisons:
        return Verdict()
    # a comparison of the paper counts once, even if several variants of the recipe were run
    wins = {
        (c.row.dataset, c.row.model, c.row.method, c.difference.baseline): c.is_win_in_paper
        for c in comparisons
    }
    counts = Counter(c.outcome for c in comparisons)
    ours = ", ".join(f"{counts[name]} {OUTCOMES[name]}" for name in OUTCOMES if counts[name])
    sentence = (
        f"The paper reports ζ-mixup ahead of mixup and no mixing in {sum(wins.values())} of the "
        f"{plural(len(wins), 'comparison')} run here. Our results, counting each variant of the "
        f"recipe ({plural(len(comparisons), 'comparison')}): {ours}."
    )
    claims = [c.claim_holds for c in comparisons if c.is_win_in_paper]
    return Verdict(status_of(claims), [sentence])


def compare(group: Sequence[Row], variant: Variant, metric: str, baseline: str) -> list[Comparison]:
    """ζ-mixup against a baseline at every γ, paired by seed, with Holm's correction over γ."""
    rows = {row.method: row for row in group}
    summaries = {row.method: row.summary(variant, metric) for row in group}
    base = summaries.get(baseline)
    differences = []
    for method, summary in summaries.items():
        if method.startswith("zeta:") and summary is not None and base is not None:
            _, sizes = count_right(rows[method].runs[variant][0].confusion)
            step = paper.METRICS[metric].scale * resolution(metric, sizes)
            differences.append(
                paired_difference(
                    method, baseline, metric, summary.values, base.values, resolution=step
                )
            )
    comparisons = []
    for difference in holm(differences):
        row = rows[difference.method]
        ours, theirs = row.printed(metric), rows[baseline].printed(metric)
        printed = None if ours is None or theirs is None else ours - theirs
        comparisons.append(Comparison(row, variant, difference, printed))
    return comparisons


def difference_table(comparisons: Sequence[Comparison]) -> Table:
    """ζ-mixup minus each baseline, with confidence intervals."""
    rows: list[list[Cell | Plain]] = []
    for c in comparisons:
        digits = paper.METRICS[c.difference.metric].digits
        numbers = (c.difference.mean, c.difference.low, c.difference.high, c.printed)
        rows.append(
            [
                c.row.title,
                paper.MODELS[c.row.model],
                recipe_label(c.row.view.artifact, c.variant) or "paper's recipe",
                f"{method_name(c.difference.method)} − {method_name(c.difference.baseline)}",
                *(Cell(number, digits=digits, signed=True) for number in numbers),
                c.difference.n,
                c.outcome,
            ]
        )
    interval = f"{100 * CONFIDENCE:.0f} %"
    heads = ["dataset", "model", "recipe", "difference", "ours"]
    heads += [f"{interval} low", f"{interval} high", "paper", "n", "outcome"]
    better = "higher" if comparisons[0].sign > 0 else "lower"
    note = (
        "Student's t interval, paired by seed; ahead or behind: significant after Holm correction "
        f"over the values of γ ({better} is better)."
    )
    title = sentence_case(column_title(comparisons[0].difference.metric))
    return Table(heads, rows, f"{title}: ζ-mixup minus mixup and no mixing", [note])


def report(view: PaperView) -> ArtifactReport:
    tables = {view.artifact: comparison_table(view)}
    comparisons = compare_all(view, SHOWN_METRICS[view.artifact][0])
    if comparisons:
        tables["differences"] = difference_table(comparisons)
    return ArtifactReport((), tables, judge(comparisons))


def comparison_table(view: PaperView) -> Table:
    """A row per dataset, model and method; per metric the paper's value, ours, the difference."""
    rows, variants, metrics = rows_of(view), variants_of(view), SHOWN_METRICS[view.artifact]
    has_models = len({row.model for row in rows}) > 1
    footnotes = paper.footnotes(view.artifact)
    numbered = [issue for issue in footnotes if any(_concerns(issue, row) for row in rows)]
    body = []
    for row, marks in [(r, _marks(g, variants, metrics)) for g in groups_of(rows) for r in g]:
        line: list[Cell | Plain] = [row.title]
        line += [paper.MODELS[row.model]] if has_models else []
        line.append(method_name(row.method) + ("" if row.in_paper else " (ours)"))
        for metric in metrics:
            line.append(_printed_cell(row, metric))
            for variant in variants:
                line += _our_cells(row, variant, metric, marks[variant, metric].get(row.method, ""))
        numbers = [str(k) for k, issue in enumerate(numbered, 1) if _concerns(issue, row)]
        body.append([*line, ", ".join(numbers)])
    heads = ["dataset", *(["model"] if has_models else []), "method"]
    labels = [recipe_label(view.artifact, variant) for variant in variants]
    columns: list[Column | str] = [*heads, *_columns(metrics, labels), "see"]
    notes = [_explanation(metrics), *METHODS, *NOTES[view.artifact], *_data_notes(rows)]
    notes += [] if all(row.in_paper for row in rows) else [OURS]
    notes += [f"[{number}] {issue.sentence}" for number, issue in enumerate(numbered, 1)]
    notes += [f"About the paper: {i.sentence}" for i in footnotes if i not in numbered]
    return Table(columns, body, f"{sentence_case(view.title)}, the paper's and ours", notes)


def recipe_label(artifact: str, variant: Variant) -> str:
    """The label of a variant; for skin lesions it includes that training is from scratch."""
    scratch = "from scratch" if artifact.startswith("skin") and variant.weights is None else ""
    return ", ".join(filter(None, (variant.label, scratch)))


def _data_notes(rows: Sequence[Row]) -> list[str]:
    """Notes of the records about their data that are not in the catalogue: copies, duplicates."""
    notes: dict[str, None] = {}
    for row in rows:
        for run in (run for runs in row.runs.values() for run in runs):
            own = [n for n in run.extra.get("notes", ()) if n not in CATALOGUE[row.dataset].notes]
            notes |= dict.fromkeys(f"{row.title}: {note}." for note in own)
    return list(notes)


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
    return Table(heads, rows)


def _columns(metrics: Sequence[str], labels: Sequence[str]) -> list[Column]:
    columns = []
    for metric in metrics:
        title = column_title(metric)
        columns.append(Column(f"{title}, paper", "as printed"))
        for label in labels:
            suffix = f", {label}" if label else ""
            note = f"{title}: mean ± standard deviation over seeds"
            columns += [Column(f"ours{suffix}", note), Column(f"ours − paper{suffix}")]
    return columns


def _printed_cell(row: Row, metric: str) -> Cell:
    emphasis = paper.emphasis(row.view.artifact, row.dataset, row.model, row.method, metric)
    marks: dict[str, Mark] = {"bold": "best", "underline": "second", "": ""}
    return Cell(row.printed(metric), digits=paper.METRICS[metric].digits, mark=marks[emphasis])


def _our_cells(row: Row, variant: Variant, metric: str, mark: Mark) -> list[Cell]:
    """Ours, and the difference to the paper."""
    summary, printed = row.summary(variant, metric), row.printed(metric)
    digits = paper.METRICS[metric].digits
    difference = None if summary is None or printed is None else summary.mean - printed
    if summary is None:
        return [Cell(None, note=f"fill it with: {_fill_command(row, variant)}"), Cell(None)]
    return [summary_cell(summary, digits, mark), Cell(difference, digits=digits, signed=True)]


def _fill_command(row: Row, variant: Variant) -> str:
    options: dict[str, object] = {"datasets": row.dataset, "models": row.model}
    options |= {"methods": row.method, "augmentation": variant.augmentation}
    options |= {"epochs": variant.epochs, "weights": variant.weights and variant.weights.path}
    return row.view.command(**options)


def _marks(
    group: Sequence[Row], variants: Sequence[Variant], metrics: Sequence[str]
) -> dict[tuple[Variant, str], Mapping[str, Mark]]:
    """The best and second best of the paper's methods, by variant and metric."""
    own = [row for row in group if row.in_paper]
    return {
        (variant, metric): rank_marks(
            {row.method: row.summary(variant, metric) for row in own}, METRICS[metric].sign
        )
        for variant, metric in product(variants, metrics)
    }


def _concerns(issue: paper.Issue, row: Row) -> bool:
    return issue.concerns(dataset=row.dataset, model=row.model, method=row.method)


def _explanation(metrics: Sequence[str]) -> str:
    return (
        f"{sentence_case(METRICS[metrics[0]].better)}. Paper: as printed, with its bold and "
        "underlined values; no mixing is its ERM. Ours: mean ± standard deviation over n seeds; "
        f"{MARKED}; – no run yet. Ours is at the epoch with the best validation score, or at the "
        "last one for datasets without a validation split."
    )
