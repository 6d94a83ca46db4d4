"""Local intrinsic dimension against γ, with mixup and the originals as lines."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes

from paper.context import Context
from paper.datasets import CATALOGUE
from paper.drawing import Result, estimate_cell, finish, gamma_of
from paper.measure.dimension import local_dimension
from paper.measure.estimate import mean_of
from paper.records import MeasurementCell, View
from zetamix.gamma import GAMMA_MIN
from zetamix_lab.report import Cell, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS

DATASETS = ("helix", "paraboloid", "cifar10", "cifar100")
NEIGHBOURS = (8, 128)
# denser where the curve bends
GAMMAS = (
    *(0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.4, 2.8, 3.2),
    *(3.6, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0),
)
# the paper does not say how many samples it mixes here; 128 is its batch for CIFAR
BATCH = 128
# GB that local_dimension may use in addition to the points; with 2, each of 82 blocks of 50,000
# images converts all of them to float64 again, and products take 1.8 times as long
CPU_MEMORY = 6.0
# k neighbours span k − 1 dimensions; a mean above this fraction of them is saturated
SATURATED = 0.95
LEVELS = {"none": ("original", COLOURS[3], "-."), "mixup:1.0": ("mixup", COLOURS[1], "--")}
TABLE_GAMMAS = ("2.0", "2.8", "4.0", "15.0")


def cells() -> list[MeasurementCell]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    return [
        MeasurementCell("dimension", name, method, recipe={"neighbours": count, "batch": BATCH})
        for name in DATASETS
        for method in methods
        for count in NEIGHBOURS
    ]


def measure(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Mean and spread of the local dimension over all outputs."""
    outputs, _ = context.mix(cell, context.dataset.train)
    memory = CPU_MEMORY
    if context.device.type == "cuda":
        # half of the free memory: all products of 50,000 images take 20 GB
        memory = max(memory, torch.cuda.mem_get_info(context.device)[0] / 2e9)
    return mean_of(local_dimension(outputs, cell.recipe["neighbours"], memory_gb=memory))


@dataclass(frozen=True)
class Curve:
    """Estimates of one dataset and k, by method."""

    title: str
    neighbours: int
    values: dict[str, dict[str, Any]]

    @property
    def zeta(self) -> dict[float, dict[str, Any]]:
        """Estimates of ζ-mixup by γ, ascending."""
        zeta = {float(gamma_of(m)): v for m, v in self.values.items() if m.startswith("zeta")}
        return dict(sorted(zeta.items()))

    @property
    def lower_from(self) -> float | None:
        """The smallest measured γ from which on ζ-mixup is lower than mixup."""
        if "mixup:1.0" not in self.values:
            return None
        mixup = self.values["mixup:1.0"]["value"]
        above = max((g for g, v in self.zeta.items() if v["value"] >= mixup), default=-1.0)
        return min((gamma for gamma in self.zeta if gamma > above), default=None)

    @property
    def is_saturated(self) -> bool:
        original = self.values.get("none", {"value": 0.0})["value"]
        return bool(original > SATURATED * (self.neighbours - 1))


def draw(view: View) -> Result:
    curves = curves_of(view)
    return Result([_picture(curves)], {"dimension": _table(curves)}) if curves else Result()


def curves_of(view: View) -> list[Curve]:
    """Those that have records."""
    curves: dict[str, Curve] = {}
    for record in view.measurements("dimension"):
        count = record.recipe["neighbours"]
        title = f"{CATALOGUE[record.dataset].title}, k = {count}"
        curves.setdefault(title, Curve(title, count, {})).values[record.method] = record.values
    return list(curves.values())


def _picture(curves: list[Curve]) -> Picture:
    # four panels in a row, as in the paper
    rows = -(-len(curves) // 4)
    with drawing(11.2, 2.75 * rows + 0.3) as figure:
        panels: Any = figure.subplots(rows, min(4, len(curves)), squeeze=False)
        handles: dict[str, Any] = {}
        for axes, curve in zip(panels.flat, curves, strict=False):
            _draw_curve(axes, curve)
            axes.set_title(curve.title, fontsize=9)
            lines, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, lines, strict=True))
        for row in panels:
            row[0].set_ylabel("local dimension")
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
        return finish(
            figure,
            "dimension",
            alt="One panel per dataset and number of neighbours: local dimension of ζ-mixup "
            "against γ, with that of mixup and of the originals as horizontal lines.",
            caption="Local intrinsic dimension from the k nearest neighbours: mean over all "
            "outputs (lines) and one standard deviation between them (bands). Dotted: "
            f"{GAMMA_MIN:.5f}. At γ = 0 every output of a batch is its mean. k neighbours span at "
            "most k − 1 dimensions.",
        )


def _draw_curve(axes: Axes, curve: Curve) -> None:
    for method, (label, colour, line) in LEVELS.items():
        if method in curve.values:
            values = curve.values[method]
            axes.axhline(values["value"], color=colour, ls=line, lw=1.5, label=label)
            axes.axhspan(*_band(values), color=colour, alpha=0.1, lw=0)
    zeta = curve.zeta
    means = [values["value"] for values in zeta.values()]
    axes.plot(list(zeta), means, color=COLOURS[0], marker="o", ms=2.5, label="ζ-mixup")
    bands = [_band(values) for values in zeta.values()]
    edges = [low for low, _ in bands], [high for _, high in bands]
    axes.fill_between(list(zeta), *edges, color=COLOURS[0], alpha=0.15, lw=0)
    axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
    axes.set(xlabel="γ", xlim=(0, 15), xticks=[0, 5, 10, 15], ylim=(0, None))


def _band(values: dict[str, Any]) -> tuple[float, float]:
    spread = values["spread"] or 0.0
    return max(0.0, values["value"] - spread), values["value"] + spread


def _table(curves: list[Curve]) -> Table:
    methods = {"none": "original", "mixup:1.0": "mixup"}
    methods |= {f"zeta:{gamma}": f"γ = {gamma}" for gamma in TABLE_GAMMAS}
    frame = pd.DataFrame({"data": [curve.title for curve in curves]})
    for method, name in methods.items():
        values = (curve.values.get(method) for curve in curves)
        frame[name] = [estimate_cell(value, "spread", digits=2) for value in values]
    frame["lower from γ"] = [Cell(curve.lower_from, digits=2) for curve in curves]
    saturated = "; ".join(curve.title for curve in curves if curve.is_saturated)
    notes = [
        "Mean ± standard deviation between points; k: neighbours, without the point itself; "
        "components above 5 % of the largest count. 128 samples per batch. The paper shows curves "
        "without numbers, and does not state its batch size.",
        "The paper claims that mixup inflates the dimension everywhere, and that ζ-mixup is below "
        f"mixup from {GAMMA_MIN:.5f} on. Last column: from which measured γ on it is.",
        *([f"Saturated (k neighbours span k − 1): {saturated}."] if saturated else []),
    ]
    return Table.of(frame, "Local intrinsic dimension", notes)
