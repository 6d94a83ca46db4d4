"""The two theorems, checked on the plans that the library draws and not only on their formulas."""

import operator
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes

from paper.context import Context
from paper.drawing import Result, finish
from paper.records import Measurement, MeasurementCell, View
from zetamix.gamma import GAMMA_MIN, dominance_threshold, gamma_from_lam, lam_from_gamma
from zetamix.mix import apply_plan
from zetamix.plan import MixPlan, zeta_plan
from zetamix_lab.report import Cell, Table, drawing, series_style
from zetamix_lab.report.figure import COLOURS

SOURCES = (2, 4, 8, 32, 128)
GAMMAS = tuple(round(0.05 * step, 2) for step in range(101))
LAMS = tuple(round(0.05 * step, 2) for step in range(1, 20))
# samples that both methods mix
SHAPE = (2, 64)


def cells() -> list[MeasurementCell]:
    dominance = [
        MeasurementCell("dominance", "", "zeta", recipe={"sources": sources})
        for sources in (*SOURCES, "all")
    ]
    return [*dominance, MeasurementCell("equivalence", "", "zeta", recipe={"sources": 2})]


def measure_dominance(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Theorem 1: the largest weight of drawn plans, and the γ from which it dominates."""
    sources, agreement = cell.recipe["sources"], None
    if sources == "all":
        # infinitely many: 1 / ζ(γ), which is 0 up to γ = 1
        gammas = torch.tensor([gamma for gamma in GAMMAS if gamma > 1], dtype=torch.float64)
        weights = (1 / torch.special.zeta(gammas, torch.ones_like(gammas))).tolist()
        largest, threshold = [0.0] * (len(GAMMAS) - len(gammas)) + weights, GAMMA_MIN
    else:
        threshold = dominance_threshold(sources)
        generator = torch.Generator().manual_seed(cell.seed)
        plans = [zeta_plan(sources, g, generator=generator, dtype=torch.float64) for g in GAMMAS]
        largest = [float(plan.weights.amax(1).min()) for plan in plans]
        dominates = [bool(plan.dominates().all()) for plan in plans]
        expected = [gamma > threshold for gamma in GAMMAS]
        agreement = sum(map(operator.eq, dominates, expected)) / len(GAMMAS)
    return {
        "gammas": list(GAMMAS),
        "largest_weight": [round(weight, 9) for weight in largest],
        "threshold": threshold,
        "plans_as_the_theorem_says": agreement,
    }


def measure_equivalence(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Theorem 2: two sources mixed by ζ-mixup at γ = log₂(λ / (1 − λ)), and by mixup at λ."""
    generator = torch.Generator().manual_seed(cell.seed)
    samples = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    weights, largest = [], 0.0
    for lam in LAMS:
        # below 1/2 the partner dominates: the same plan with the two samples swapped
        swap = lam < 0.5
        gamma = gamma_from_lam(1 - lam if swap else lam)
        plan = zeta_plan(2, gamma, generator=generator, dtype=torch.float64)
        zeta = apply_plan(samples.flip(0) if swap else samples, plan)[0]
        weights.append(float(plan.weights[0, 1 if swap else 0]))
        pair = torch.tensor([[lam, 1 - lam]], dtype=torch.float64)
        blend = MixPlan(torch.tensor([[0, 1]]), pair, batch_size=2)
        largest = max(largest, float((zeta - apply_plan(samples, blend)[0]).abs().max()))
    gammas = [gamma_from_lam(lam) for lam in LAMS]
    return {"lams": [*LAMS], "gammas": gammas, "weights": weights, "largest_difference": largest}


def draw(view: View) -> Result:
    curves = {
        "N → ∞" if record.recipe["sources"] == "all" else f"N = {record.recipe['sources']}": record
        for record in view.measurements("dominance")
    }
    (pairs,) = view.measurements("equivalence")
    largest = pairs.values["largest_difference"]
    finding = (
        "Theorem 2: outputs of ζ-mixup with two sources and of mixup differ by at most "
        f"{largest:.1g} in double precision."
    )
    with drawing(9.6, 3.9) as figure:
        left, right = figure.subplots(1, 2)
        _draw_dominance(left, curves)
        _draw_equivalence(right, pairs)
        picture = finish(
            figure,
            "theorems",
            alt="Left: the largest weight rises with γ, more slowly for more sources. Right: the "
            "weight of ζ-mixup with two sources lies on the line of mixup.",
            caption="Left, Theorem 1: the largest weight of plans drawn with N sources. Above one "
            "half it outweighs all others together; dots: where that begins for each N; vertical "
            f"line: {GAMMA_MIN:.5f}, above which it holds for any N. Right, Theorem 2: the "
            "weight of the first of two sources, by ζ-mixup with γ and by mixup with λ.",
        )
    return Result([picture], {"thresholds": _table(curves)}, [finding])


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
    axes.legend(loc="lower right").get_texts()[0].set_parse_math(True)


def _table(curves: dict[str, Measurement]) -> Table:
    rows = []
    for name, record in curves.items():
        agreement = record.values["plans_as_the_theorem_says"]
        threshold = Cell(record.values["threshold"], digits=5)
        percent = Cell(None if agreement is None else 100 * agreement, digits=0)
        rows.append([name, threshold, percent])
    frame = pd.DataFrame(
        rows, columns=["sources", "γ from which one dominates", "drawn plans that agree %"]
    )
    note = (
        "The paper prints 1.72865, the limit for infinitely many sources; fewer need less. "
        "Plans are drawn with 101 values of γ from 0 to 5."
    )
    return Table.of(frame, "Thresholds of Theorem 1", [note])
