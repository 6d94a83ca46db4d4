"""Local intrinsic dimension against γ, with mixup and the originals as lines."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from paper.datasets import CATALOGUE
from paper.report.artifact_report import (
    ArtifactReport,
    Verdict,
    blank,
    estimate_cell,
    finish,
    gamma_of,
    status_of,
)
from paper.results.record_store import PaperView
from zetamix.gamma import GAMMA_MIN
from zetamix_lab.report import Cell, Column, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS
from zetamix_lab.report.table import Plain

# k neighbours span k − 1 dimensions; a mean above this fraction of them is saturated
SATURATED = 0.95
LEVELS = {"none": ("original", COLOURS[3], "-."), "mixup:1.0": ("mixup", COLOURS[1], "--")}
TABLE_GAMMAS = ("2.0", "2.8", "4.0", "15.0")


@dataclass(frozen=True)
class Curve:
    """Estimates of one dataset and k, by method."""

    title: str
    neighbours: int
    values: dict[str, dict[str, Any]]
    is_complete: bool

    @property
    def zeta(self) -> dict[float, dict[str, Any]]:
        """Estimates of ζ-mixup by γ, ascending."""
        zeta = {float(gamma_of(m)): v for m, v in self.values.items() if m.startswith("zeta")}
        return dict(sorted(zeta.items()))

    def mean(self, method: str) -> float:
        return float(self.values[method]["value"])

    @property
    def is_inflated(self) -> bool:
        """The paper's claim about mixup."""
        return self.mean("mixup:1.0") > self.mean("none")

    @property
    def lower_from(self) -> float | None:
        """The smallest measured γ from which on ζ-mixup is lower than mixup."""
        gammas = [g for g, v in self.zeta.items() if v["value"] >= self.mean("mixup:1.0")]
        above = max(gammas, default=-1.0)
        return min((gamma for gamma in self.zeta if gamma > above), default=None)

    @property
    def is_lower(self) -> bool | None:
        """The paper's claim about ζ-mixup: lower than mixup from GAMMA_MIN on; None: undecided."""
        if self.lower_from is None or any(GAMMA_MIN <= g < self.lower_from for g in self.zeta):
            return False
        return True if self.is_complete else None

    @property
    def is_saturated(self) -> bool:
        return self.mean("none") > SATURATED * (self.neighbours - 1)

    @property
    def is_decidable(self) -> bool:
        return {"none", "mixup:1.0"} <= set(self.values) and bool(self.zeta)


def report(view: PaperView) -> ArtifactReport:
    curves = _curves(view)
    return ArtifactReport([_draw(view, curves)], {"dimension": _table(curves)}, _verdict(curves))


def _curves(view: PaperView) -> list[Curve]:
    cells = [cell for cell, _ in view.measured("dimension")]
    curves = []
    for dataset, count in dict.fromkeys((c.dataset, c.recipe["neighbours"]) for c in cells):
        measured = list(view.measured("dimension", dataset, neighbours=count))
        values = {cell.method: record.values for cell, record in measured if record is not None}
        title = f"{CATALOGUE[dataset].title}, k = {count}"
        curves.append(Curve(title, count, values, len(values) == len(measured)))
    return curves


def _draw(view: PaperView, curves: list[Curve]) -> Picture:
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
        if handles:
            figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
        return finish(
            view,
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
    if not curve.values:
        return blank(axes)
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
    return None


def _band(values: dict[str, Any]) -> tuple[float, float]:
    spread = values["spread"] or 0.0
    return max(0.0, values["value"] - spread), values["value"] + spread


def _table(curves: list[Curve]) -> Table:
    methods = ("none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in TABLE_GAMMAS))
    heads = ("data", "original", "mixup", *(f"γ = {gamma}" for gamma in TABLE_GAMMAS))
    rows: list[list[Cell | Plain]] = [
        [
            curve.title,
            *(estimate_cell(curve.values.get(m), "spread", digits=2) for m in methods),
            Cell(curve.lower_from if curve.is_decidable else None, digits=2),
        ]
        for curve in curves
    ]
    note = (
        "Mean ± standard deviation between points; k: neighbours, without the point itself; "
        "components above 5 % of the largest count. 128 samples per batch. The paper shows curves "
        "without numbers, and does not state its batch size."
    )
    lower = Column("lower from γ", "ζ-mixup is below mixup from this γ on, of those measured")
    columns = [*map(Column, heads), lower]
    return Table(columns, rows, "Local intrinsic dimension", [note])


def _verdict(curves: list[Curve]) -> Verdict:
    curves = [curve for curve in curves if curve.is_decidable]
    if not curves:
        return Verdict()
    informative = [curve for curve in curves if not curve.is_saturated]
    inflated = sum(curve.is_inflated for curve in informative)
    lower = sum(curve.lower_from is not None for curve in informative)
    summary = (
        f"mixup inflates the dimension in {inflated} of {len(informative)} cases; the paper claims "
        f"this for all. The dimension of ζ-mixup is lower than that of mixup in {lower} of them, "
        f"from different γ on (see the table); the paper claims this from {GAMMA_MIN:.5f} on."
    )
    saturated = [curve.title for curve in curves if curve.is_saturated]
    if saturated:
        summary += f" Saturated (k neighbours span k − 1), not counted: {'; '.join(saturated)}."
    claims = [claim for curve in informative for claim in (curve.is_inflated, curve.is_lower)]
    return Verdict(status_of(claims), [summary])
