"""Rows of the paper's tables with our runs, and ζ-mixup compared with mixup and ERM over seeds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from zetamix.data import CATALOGUE
from zetamix.measure.statistics import (
    CONFIDENCE,
    Difference,
    Summary,
    holm,
    paired_difference,
    summarise,
)
from zetamix.metrics import METRICS, resolution
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Table
from zetamix.report.paper.style import method_name
from zetamix.report.paper.verdict import Verdict, status_of
from zetamix.report.table import Mark, Plain
from zetamix.results import paper_values as paper
from zetamix.results.paper_cells import Variant
from zetamix.results.paper_view import PaperView
from zetamix.text import plural

BASELINES = {"mixup:1.0": "mixup", "none": "ERM"}
OUTCOMES = {
    "ahead": "significantly ahead",
    "behind": "significantly behind",
    "not significant": "not significantly different",
    "one seed": "with one seed only, which is not evidence",
}


@dataclass(frozen=True)
class Row:
    """One dataset, model and method, with our runs under each variant of the recipe."""

    artifact: str
    dataset: str
    model: str
    method: str
    runs: dict[Variant, list[RunRecord]]

    @property
    def title(self) -> str:
        return CATALOGUE[self.dataset].title

    def summary(self, variant: Variant, metric: str) -> Summary | None:
        """A metric over our seeds, in the paper's unit."""
        scale = paper.METRICS[metric].scale
        scores = {
            # of the epoch with the best validation score; without validation, of the last one
            run.cell.seed: (run.last if run.best is None else run.best)[metric]
            for run in self.runs.get(variant, [])
        }
        values = {seed: scale * score for seed, score in scores.items() if score is not None}
        return summarise(values) if values else None

    def printed(self, metric: str) -> float | None:
        """The paper's value."""
        return paper.printed(self.artifact, self.dataset, self.model, self.method, metric)


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
    return [Row(view.artifact, *key, variants) for key, variants in runs.items()]


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
        """Whether a win of the paper is one here; None: more seeds are needed."""
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
    """The paper: ζ-mixup is ahead of mixup and of ERM."""
    if not comparisons:
        return Verdict()
    status = status_of([c.claim_holds for c in comparisons if c.is_win_in_paper])
    return Verdict(status, [_summary(comparisons)])


def compare(group: Sequence[Row], variant: Variant, metric: str, baseline: str) -> list[Comparison]:
    """ζ-mixup against a baseline at every γ, paired by seed, with Holm's correction over γ."""
    rows = {row.method: row for row in group}
    summaries = {row.method: row.summary(variant, metric) for row in group}
    base = summaries.get(baseline)
    differences = []
    for method, summary in summaries.items():
        if method.startswith("zeta") and summary is not None and base is not None:
            confusion = torch.tensor(rows[method].runs[variant][0].confusion)
            step = paper.METRICS[metric].scale * resolution(metric, confusion.sum(1))
            differences.append(
                paired_difference(
                    method, baseline, metric, summary.values, base.values, resolution=step
                )
            )
    comparisons = []
    for difference in holm([d for d in differences if d is not None]):
        ours, theirs = rows[difference.method].printed(metric), rows[baseline].printed(metric)
        printed = None if ours is None or theirs is None else ours - theirs
        row = rows[difference.method]
        comparisons.append(Comparison(row, variant, difference, printed))
    return comparisons


def _summary(comparisons: Sequence[Comparison]) -> str:
    # a comparison of the paper counts once, also where we ran several variants of the recipe
    wins = {
        (c.row.dataset, c.row.model, c.row.method, c.difference.baseline): c.is_win_in_paper
        for c in comparisons
    }
    counts = Counter(c.outcome for c in comparisons)
    ours = ", ".join(f"{counts[name]} {OUTCOMES[name]}" for name in OUTCOMES if counts[name])
    return (
        f"The paper reports ζ-mixup ahead of mixup and ERM in {sum(wins.values())} of the "
        f"{plural(len(wins), 'comparison')} run here. Ours: {ours}."
    )


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
                c.variant.label or "paper's recipe",
                f"{method_name(c.difference.method)} − {BASELINES[c.difference.baseline]}",
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
    title = column_title(comparisons[0].difference.metric)
    caption = f"{title[0].upper()}{title[1:]}: ζ-mixup minus mixup and ERM"
    return Table([Column(head) for head in heads], rows, caption, [note])
