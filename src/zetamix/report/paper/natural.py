"""Table 1, with a column for each reading of the recipe."""

from zetamix.report import Cell, Column, Table
from zetamix.report.paper.comparison import LEFT_OPEN, compare, rows_of, variants_of
from zetamix.report.paper.verdict import judge
from zetamix.report.paper.view import Drawn, View, method_name
from zetamix.report.table import Plain
from zetamix.results import paper_values as paper

READING = (
    "The paper's appendix names horizontal flips as the only augmentation, its Sec. 4.5 also "
    "speaks of cropping. The two are different recipes and have columns of their own."
)


def draw(view: View) -> Drawn:
    table = compare(view, ["error"], "Table 1: error on natural images", [READING, LEFT_OPEN])
    words, answer = judge(view, "error")
    return Drawn(tables={"natural": table}, verdict=words, answer=answer)


def draw_one(view: View, dataset: str) -> Table:
    """One dataset alone, as a README shows it."""
    variants = variants_of(view.trainings)
    rows = []
    for row in rows_of(view):
        if row.dataset != dataset:
            continue
        printed = paper.printed(view.artifact, dataset, row.model, row.method, "error")
        line: list[Cell | Plain] = [method_name(row.method), Cell(printed, digits=2)]
        for variant in variants:
            found = row.ours(variant, "error")
            line.append(
                Cell(None)
                if found is None
                else Cell(found.mean, error=found.sd, n=found.n, digits=2)
            )
        rows.append(line)
    heads = ["error %", "paper", *(f"ours, {variant.label}" for variant in variants)]
    return Table([Column(head) for head in heads], rows)
