"""Local intrinsic dimension against γ, with mixup and the originals as lines."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from zetamix.data import CATALOGUE
from zetamix.experiments.reproduce.cells import Measuring
from zetamix.gamma import GAMMA_MIN
from zetamix.records import Measurement
from zetamix.report import Cell, Column, Picture, Table, drawing
from zetamix.report.figure import COLOURS
from zetamix.report.paper.view import (
    NOT_RUN,
    Answer,
    Drawn,
    View,
    agreement_so_far,
    blank,
    finish,
)

# k neighbours span k − 1 dimensions; means above this part of them leave no room to differ
FULL = 0.95
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
            "where the line of mixup lies above that of the originals, the curve of ζ-mixup starts "
            "near or above it and falls to the originals as γ grows.",
            caption="Local intrinsic dimension by the k nearest neighbours: mean over all outputs "
            "(lines) and one standard deviation between them (bands). Dotted: "
            f"{GAMMA_MIN:.5f}. At γ = 0 every output of a batch is its mean. k neighbours can tell "
            "k − 1 dimensions at most.",
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
    axes.set_xlabel("γ")
    axes.set_xlim(0, 15)
    axes.set_xticks([0, 5, 10, 15])
    axes.set_ylim(bottom=0)
    return None


def _band(values: dict[str, Any]) -> tuple[float, float]:
    spread = values["spread"] or 0.0
    return max(0.0, values["value"] - spread), values["value"] + spread


def _table(view: View, datasets: list[str], neighbours: list[int]) -> Table:
    batch = next((cell.recipe["batch"] for cell, _ in view.measured("dimension")), 0)
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
        "k: neighbours, without the point itself; components above 5 % of the largest count. "
        f"{batch} samples are mixed at a time; the paper does not say how many.",
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
    neighbours: int
    original: float
    mixup: float
    zeta: dict[float, float]
    """By γ."""
    is_whole: bool
    """Whether every γ has been run."""

    @property
    def is_inflated(self) -> bool:
        """What the paper says of mixup."""
        return self.mixup > self.original

    @property
    def lower(self) -> float | None:
        """The least γ at which, and at all larger ones, ζ-mixup's is lower than mixup's."""
        least = None
        for gamma in sorted(self.zeta, reverse=True):
            if not self.zeta[gamma] < self.mixup:
                break
            least = gamma
        return least

    @property
    def is_lower(self) -> bool | None:
        """What the paper says of ζ-mixup: lower at every γ from GAMMA_MIN on; None where open."""
        found = [value < self.mixup for gamma, value in self.zeta.items() if gamma >= GAMMA_MIN]
        if not all(found):
            return False
        return True if self.is_whole else None

    @property
    def is_full(self) -> bool:
        """Whether the originals have nearly all dimensions that so few neighbours can tell."""
        return self.original > FULL * (self.neighbours - 1)


def _curves(view: View, datasets: list[str], neighbours: list[int]) -> list[_Curve]:
    curves = []
    for name in datasets:
        for count in neighbours:
            cells = list(view.measured("dimension", name, neighbours=count))
            found = {
                cell.method: record.values["value"] for cell, record in cells if record is not None
            }
            is_whole = len(found) == len(cells)
            original, mixup = found.pop("none", None), found.pop("mixup:1.0", None)
            if original is not None and mixup is not None and found:
                zeta = {float(each.removeprefix("zeta:")): found[each] for each in found}
                title = f"{CATALOGUE[name].title}, k = {count}"
                curves.append(_Curve(title, count, original, mixup, zeta, is_whole))
    return curves


def _verdict(curve: _Curve) -> str:
    inflated = "inflated, as" if curve.is_inflated else "not inflated, unlike"
    since = "at no γ" if curve.lower is None else f"from γ = {curve.lower:g} on"
    words = (
        f"{curve.title}: originals {curve.original:.2f}, mixup {curve.mixup:.2f}: {inflated} in "
        f"the paper. ζ-mixup's is lower than mixup's {since}; the paper has it so from "
        f"{GAMMA_MIN:.5f} on."
    )
    if curve.is_full:
        words += (
            f" {curve.neighbours} neighbours can tell {curve.neighbours - 1} dimensions at most, "
            "and the originals have nearly all of them: nothing follows from this case."
        )
    return words


def _answer(curves: list[_Curve]) -> Answer:
    if not curves:
        return Answer(NOT_RUN)
    # a measure that has no room speaks neither for the paper nor against it
    telling = [curve for curve in curves if not curve.is_full]
    words = []
    if telling:
        inflated = sum(curve.is_inflated for curve in telling)
        since = sorted(curve.lower for curve in telling if curve.lower is not None)
        gammas = f", from γ = {', '.join(f'{gamma:g}' for gamma in since)} on" if since else ""
        words = [
            f"With mixup the dimension is inflated in {inflated} of {len(telling)} cases, as the "
            f"paper has it; ζ-mixup's is lower than mixup's in {len(since)}{gammas}, and the paper "
            f"has it so from {GAMMA_MIN:.5f} on"
        ]
    full = [curve.title for curve in curves if curve.is_full]
    words += [f"nothing follows from {' and '.join(full)}"] if full else []
    text = "; ".join(words)
    held = [claim for curve in telling for claim in (curve.is_inflated, curve.is_lower)]
    return Answer(agreement_so_far(held), f"{text[:1].upper()}{text[1:]}.")
