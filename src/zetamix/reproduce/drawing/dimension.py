"""Local intrinsic dimension against γ, with mixup and the originals as lines."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from zetamix.data import CATALOGUE
from zetamix.report import Cell, Column, Picture, Table, drawing
from zetamix.report.picture import COLOURS
from zetamix.reproduce.cells import Measuring
from zetamix.reproduce.drawing.view import (
    NOT_RUN,
    Answer,
    Drawn,
    View,
    agreement,
    blank,
    finish,
)
from zetamix.reproduce.measurement import Measurement
from zetamix.series import GAMMA_MIN

LEVELS = {"none": ("original", COLOURS[3], "-."), "mixup:1.0": ("mixup", COLOURS[1], "--")}


def draw(view: View) -> Drawn:
    cells = [cell for cell, _ in view.measured("dimension")]
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    neighbours = sorted({cell.recipe["neighbours"] for cell in cells})
    picture = _draw(view, datasets, neighbours)
    table = _table(view, datasets, neighbours)
    curves = _curves(view, datasets, neighbours)
    words = [_verdict(curve) for curve in curves]
    return Drawn([picture], {"dimension": table}, words, _answer(curves))


def _draw(view: View, datasets: list[str], neighbours: list[int]) -> Picture:
    # two datasets in a row of four panels, as the paper has them
    rows = -(-len(datasets) // 2)
    with drawing(11.2, 2.75 * rows + 0.3) as figure:
        axes: Any = figure.subplots(rows, 2 * len(neighbours), squeeze=False)
        for place, name in enumerate(datasets):
            for step, count in enumerate(neighbours):
                panel = axes[place // 2, (place % 2) * len(neighbours) + step]
                _panel(panel, list(view.measured("dimension", name, neighbours=count)))
                panel.set_title(f"{CATALOGUE[name].title}, k = {count}", fontsize=9)
                panel.set_xlabel("γ")
        for row in axes:
            row[0].set_ylabel("local dimension")
        handles = {
            handle.get_label(): handle
            for panel in axes.flat
            for handle in panel.get_legend_handles_labels()[0]
        }
        if handles:
            figure.legend(handles.values(), handles, loc="outside lower center", ncols=3)
        return finish(
            view,
            figure,
            "dimension",
            alt="Panels of local dimension against γ for each dataset with 8 and 128 neighbours: "
            "the curve of ζ-mixup starts near or above the line of mixup and falls to that of the "
            "originals as γ grows.",
            caption="Local intrinsic dimension by the k nearest neighbours: mean over all outputs "
            "(lines) and one standard deviation between them (bands). Dotted: "
            f"{GAMMA_MIN:.5f}. At γ = 0 every output of a batch is its mean.",
        )


def _panel(axes: Axes, cells: list[tuple[Measuring, Measurement | None]]) -> None:
    found = {cell.method: record.values for cell, record in cells if record is not None}
    if not found:
        return blank(axes, "no record yet")
    curve = {
        float(method.removeprefix("zeta:")): values
        for method, values in found.items()
        if method.startswith("zeta")
    }
    for method, (label, colour, line) in LEVELS.items():
        if method in found:
            values = found[method]
            axes.axhline(values["value"], color=colour, ls=line, lw=1.5, label=label)
            low, high = _band(values)
            axes.axhspan(low, high, color=colour, alpha=0.1, lw=0)
    gammas = sorted(curve)
    means = [curve[gamma]["value"] for gamma in gammas]
    bands = [_band(curve[gamma]) for gamma in gammas]
    axes.plot(gammas, means, color=COLOURS[0], marker="o", ms=2.5, label="ζ-mixup")
    edges = [low for low, _ in bands], [high for _, high in bands]
    axes.fill_between(gammas, *edges, color=COLOURS[0], alpha=0.15, lw=0)
    axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
    axes.set_xlim(0, 15)
    axes.set_xticks([0, 5, 10, 15])
    axes.set_ylim(bottom=0)
    return None


def _band(values: dict[str, Any]) -> tuple[float, float]:
    spread = values["spread"] or 0.0
    return max(0.0, values["value"] - spread), values["value"] + spread


def _table(view: View, datasets: list[str], neighbours: list[int]) -> Table:
    wanted = ("none", "mixup:1.0", "zeta:2.0", "zeta:2.4", "zeta:2.8", "zeta:4.0", "zeta:15.0")
    names = ("original", "mixup", *(f"γ = {method.removeprefix('zeta:')}" for method in wanted[2:]))
    rows: list[list[Cell | str]] = []
    for name in datasets:
        for count in neighbours:
            found = {
                cell.method: record
                for cell, record in view.measured("dimension", name, neighbours=count)
            }
            cells = [_cell(found.get(method)) for method in wanted]
            rows.append([f"{CATALOGUE[name].title}, k = {count}", *cells])
    columns = [Column("data"), *(Column(name) for name in names)]
    notes = [
        "Mean ± standard deviation between points. The paper shows curves without numbers.",
        "k: neighbours, without the point itself; components above 5 % of the largest count.",
    ]
    return Table(columns, rows, "Local intrinsic dimension", notes)


def _cell(record: Measurement | None) -> Cell:
    if record is None:
        return Cell(None)
    values = record.values
    return Cell(values["value"], error=values["spread"], digits=2, note=f"n = {values['n']:,}")


@dataclass(frozen=True)
class _Curve:
    """Dimensions of one dataset and k."""

    title: str
    original: float
    mixup: float
    zeta: dict[float, float]
    """By γ."""

    @property
    def nearer(self) -> float | None:
        """The γ from which on ζ-mixup is nearer to the originals than mixup is."""
        return _from(self.zeta, self.original, self.mixup)

    @property
    def holds(self) -> bool:
        """What the paper says: nearer at every γ from GAMMA_MIN on."""
        nearer = self.nearer
        return nearer is not None and not any(GAMMA_MIN <= gamma < nearer for gamma in self.zeta)


def _curves(view: View, datasets: list[str], neighbours: list[int]) -> list[_Curve]:
    curves = []
    for name in datasets:
        for count in neighbours:
            found = {
                cell.method: record.values["value"]
                for cell, record in view.measured("dimension", name, neighbours=count)
                if record is not None
            }
            original, mixup = found.pop("none", None), found.pop("mixup:1.0", None)
            if original is not None and mixup is not None and found:
                zeta = {float(each.removeprefix("zeta:")): found[each] for each in found}
                title = f"{CATALOGUE[name].title}, k = {count}"
                curves.append(_Curve(title, original, mixup, zeta))
    return curves


def _verdict(curve: _Curve) -> str:
    nearer = curve.nearer
    found = (
        "ζ-mixup is at no γ nearer to the originals than mixup"
        if nearer is None
        else f"ζ-mixup is nearer to the originals than mixup from γ = {nearer:g} on"
    )
    return (
        f"{curve.title}: originals {curve.original:.2f}, mixup {curve.mixup:.2f}. {found}; the "
        f"paper has it so from {GAMMA_MIN:.5f} on."
    )


def _answer(curves: list[_Curve]) -> Answer:
    if not curves:
        return Answer(NOT_RUN)
    held = [curve.holds for curve in curves]
    found = [curve.nearer for curve in curves if curve.nearer is not None]
    words = f"ζ-mixup comes nearer to the originals than mixup in {len(found)} of {len(curves)}"
    if found:
        words += f" cases, from γ = {min(found):g} on in one and {max(found):g} in another"
    return Answer(
        agreement(held),
        f"{words}; the paper has it so from {GAMMA_MIN:.5f} on, which holds in {sum(held)}.",
    )


def _from(curve: dict[float, float], original: float, mixup: float) -> float | None:
    """The least γ of which, and of all larger ones, the dimension is nearer to the original."""
    least = None
    for gamma in sorted(curve, reverse=True):
        if not abs(curve[gamma] - original) < abs(mixup - original):
            break
        least = gamma
    return least
