"""The theorems: the largest weight against γ, and two sources lying on mixup."""

from matplotlib.axes import Axes

from zetamix.gamma import GAMMA_MIN, lam_from_gamma
from zetamix.records import Measurement
from zetamix.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix.report.figure import COLOURS
from zetamix.report.paper.view import (
    NOT_RUN,
    Answer,
    Drawn,
    View,
    agreement,
    blank,
    finish,
)

# of double precision
ROUNDING = 1e-12


def draw(view: View) -> Drawn:
    curves = [(cell.recipe["sources"], record) for cell, record in view.measured("dominance")]
    known = [(sources, record) for sources, record in curves if record is not None]
    pairs = next((record for _, record in view.measured("equivalence")), None)
    words = _verdict(known, pairs)
    held = [record.values["plans_as_the_theorem_says"] in (None, 1.0) for _, record in known]
    held += [] if pairs is None else [pairs.values["largest_difference"] < ROUNDING]
    answer = Answer(agreement(held), " ".join(words)) if held else Answer(NOT_RUN)
    return Drawn([_draw(view, known, pairs)], {"thresholds": _table(known)}, words, answer)


def _name(sources: int | str) -> str:
    return "N → ∞" if sources == "all" else f"N = {sources}"


def _draw(
    view: View, known: list[tuple[int | str, Measurement]], pairs: Measurement | None
) -> Picture:
    with drawing(9.6, 3.9) as figure:
        left, right = figure.subplots(1, 2)
        if known:
            _draw_dominance(left, known)
        else:
            blank(left, "not measured")
        if pairs is None:
            blank(right, "not measured")
        else:
            _draw_equivalence(right, pairs)
        return finish(
            view,
            figure,
            "theorems",
            alt="Left: the largest weight rises with γ, for more sources more slowly, and crosses "
            "one half at a γ that rises with N up to 1.72865. Right: the weight of ζ-mixup with "
            "two sources lies on the line of mixup.",
            caption="Left, Theorem 1: the largest weight of plans drawn with N sources. Above one "
            "half it outweighs all others together; dots: where that begins for each N; upright: "
            f"{GAMMA_MIN:.5f}, from where on it holds for any N. Right, Theorem 2: the weight of "
            "the first of two sources, by ζ-mixup with γ and by mixup with λ.",
        )


def _draw_dominance(axes: Axes, known: list[tuple[int | str, Measurement]]) -> None:
    for index, (sources, record) in enumerate(known):
        style = series_style(index) | {"marker": ""}
        if sources == "all":
            style |= {"color": "black", "linestyle": "-", "linewidth": 2.2}
        gammas, weights = record.values["gammas"], record.values["largest_weight"]
        axes.plot(gammas, weights, label=_name(sources), **style)
        axes.plot(record.values["threshold"], 0.5, "o", ms=4.5, color=style["color"], zorder=5)
    axes.axhline(0.5, color="#999999", lw=0.9)
    axes.axvline(GAMMA_MIN, color="#999999", lw=0.9)
    axes.annotate(f" {GAMMA_MIN:.5f}", (GAMMA_MIN, 0.03), size=8)
    axes.set(xlabel="γ", ylabel="largest weight", ylim=(0, 1.02), xlim=(0, 5))
    axes.set_title("Theorem 1: one sample dominates")
    axes.legend(loc="lower right")


def _draw_equivalence(axes: Axes, record: Measurement) -> None:
    values = record.values
    steps = [-5 + 0.1 * step for step in range(101)]
    axes.plot(steps, [lam_from_gamma(gamma) for gamma in steps], color=COLOURS[1], lw=4, alpha=0.7)
    axes.plot(values["gammas"], values["weights"], "o", ms=4.5, color=COLOURS[0])
    axes.lines[0].set_label("mixup, λ = 1 / (1 + $2^{-γ}$)")
    axes.lines[1].set_label("ζ-mixup, N = 2")
    axes.set(xlabel="γ = log₂(λ / (1 − λ))", ylabel="weight of the first sample", ylim=(0, 1.02))
    axes.set_title("Theorem 2: ζ-mixup of two samples is mixup")
    axes.legend(loc="lower right")


def _table(known: list[tuple[int | str, Measurement]]) -> Table:
    columns = [
        Column("sources"),
        Column("γ from which one dominates"),
        Column("drawn plans that agree %", "of 101 values of γ from 0 to 5"),
    ]
    rows: list[list[Cell | str]] = []
    for sources, record in known:
        agreement = record.values["plans_as_the_theorem_says"]
        agreed = Cell(None if agreement is None else 100 * agreement, digits=0)
        rows.append([_name(sources), Cell(record.values["threshold"], digits=5), agreed])
    notes = ["The paper prints 1.72865, the limit for infinitely many; fewer need less."]
    return Table(columns, rows, "Theorem 1, exactly", notes)


def _verdict(known: list[tuple[int | str, Measurement]], pairs: Measurement | None) -> list[str]:
    words = []
    agreements = [record.values["plans_as_the_theorem_says"] for _, record in known]
    if known and all(agreement in (None, 1.0) for agreement in agreements):
        words.append("Theorem 1 holds of every plan that was drawn.")
    elif known:
        words.append("Theorem 1 does not hold of every plan that was drawn: see the table.")
    if pairs is not None:
        largest = pairs.values["largest_difference"]
        words.append(
            f"Theorem 2: outputs of ζ-mixup with two sources and of mixup differ by {largest:.1g} "
            "at most, in double precision."
        )
    return words
