"""The theorems: the largest weight against γ, and ζ-mixup of two sources equal to mixup."""

from matplotlib.axes import Axes

from paper.report.artifact_report import ArtifactReport, Verdict, finish, status_of
from paper.results.record_store import PaperView
from zetamix.gamma import GAMMA_MIN, lam_from_gamma
from zetamix_lab.records import Measurement
from zetamix_lab.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix_lab.report.figure import COLOURS
from zetamix_lab.report.table import Plain

# rounding error of double precision
ROUNDING = 1e-12


def report(view: PaperView) -> ArtifactReport:
    curves = {
        "N → ∞" if record.recipe["sources"] == "all" else f"N = {record.recipe['sources']}": record
        for record in view.measurements("dominance")
    }
    (pairs,) = view.measurements("equivalence")
    picture = _draw(view, curves, pairs)
    return ArtifactReport([picture], {"thresholds": _table(curves)}, _verdict(curves, pairs))


def _draw(view: PaperView, curves: dict[str, Measurement], pairs: Measurement) -> Picture:
    with drawing(9.6, 3.9) as figure:
        left, right = figure.subplots(1, 2)
        _draw_dominance(left, curves)
        _draw_equivalence(right, pairs)
        return finish(
            view,
            figure,
            "theorems",
            alt="Left: the largest weight rises with γ, more slowly for more sources. Right: the "
            "weight of ζ-mixup with two sources lies on the line of mixup.",
            caption="Left, Theorem 1: the largest weight of plans drawn with N sources. Above one "
            "half it outweighs all others together; dots: where that begins for each N; vertical "
            f"line: {GAMMA_MIN:.5f}, above which it holds for any N. Right, Theorem 2: the "
            "weight of the first of two sources, by ζ-mixup with γ and by mixup with λ.",
        )


def _draw_dominance(axes: Axes, curves: dict[str, Measurement]) -> None:
    for index, (name, record) in enumerate(curves.items()):
        style = series_style(index) | {"marker": ""}
        if name == "N → ∞":
            style |= {"color": "black", "linestyle": "-", "linewidth": 2.2}
        axes.plot(record.values["gammas"], record.values["largest_weight"], label=name, **style)
        axes.plot(record.values["threshold"], 0.5, "o", ms=4.5, color=style["color"], zorder=5)
    axes.axhline(0.5, color="#999999", lw=0.9)
    axes.axvline(GAMMA_MIN, color="#999999", lw=0.9)
    axes.annotate(f" {GAMMA_MIN:.5f}", (GAMMA_MIN, 0.03), size=8)
    axes.set(xlabel="γ", ylabel="largest weight", ylim=(0, 1.02), xlim=(0, 5))
    axes.set_title("Theorem 1: one sample dominates")
    axes.legend(loc="lower right")


def _draw_equivalence(axes: Axes, record: Measurement) -> None:
    steps = [-5 + 0.1 * step for step in range(101)]
    lams = [lam_from_gamma(gamma) for gamma in steps]
    label = "mixup, λ = 1 / (1 + $2^{-γ}$)"
    axes.plot(steps, lams, color=COLOURS[1], lw=4, alpha=0.7, label=label)
    gammas, weights = record.values["gammas"], record.values["weights"]
    axes.plot(gammas, weights, "o", ms=4.5, color=COLOURS[0], label="ζ-mixup, N = 2")
    axes.set(xlabel="γ = log₂(λ / (1 − λ))", ylabel="weight of the first sample", ylim=(0, 1.02))
    axes.set_title("Theorem 2: ζ-mixup of two samples is mixup")
    axes.legend(loc="lower right")


def _table(curves: dict[str, Measurement]) -> Table:
    columns = [
        Column("sources"),
        Column("γ from which one dominates"),
        Column("drawn plans that agree %", "of 101 values of γ from 0 to 5"),
    ]
    rows: list[list[Cell | Plain]] = []
    for name, record in curves.items():
        agreement = record.values["plans_as_the_theorem_says"]
        percent = Cell(None if agreement is None else 100 * agreement, digits=0)
        rows.append([name, Cell(record.values["threshold"], digits=5), percent])
    note = "The paper prints 1.72865, the limit for infinitely many sources; fewer need less."
    return Table(columns, rows, "Thresholds of Theorem 1", [note])


def _verdict(curves: dict[str, Measurement], pairs: Measurement) -> Verdict:
    agreements = [record.values["plans_as_the_theorem_says"] for record in curves.values()]
    holds = all(agreement in (None, 1.0) for agreement in agreements)
    scope = "every drawn plan" if holds else "not all drawn plans (see the table)"
    largest = pairs.values["largest_difference"]
    sentence = (
        f"Theorem 1 holds for {scope}. Theorem 2: outputs of ζ-mixup with two sources and of mixup "
        f"differ by at most {largest:.1g} in double precision."
    )
    return Verdict(status_of([holds, largest < ROUNDING]), [sentence])
