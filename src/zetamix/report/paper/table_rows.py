"""Rows of the paper's tables with our runs of each."""

from dataclasses import dataclass

from zetamix.data import CATALOGUE
from zetamix.measure.statistics import Summary, summarise
from zetamix.metrics import METRICS
from zetamix.records import RunRecord
from zetamix.results import paper_values as paper
from zetamix.results.paper_cells import Variant
from zetamix.results.paper_view import PaperView


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
