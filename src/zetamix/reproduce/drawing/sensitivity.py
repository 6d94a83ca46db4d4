"""Error against γ."""

from typing import Any

from matplotlib.axes import Axes

from zetamix.data import CATALOGUE
from zetamix.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix.reproduce.cells import Training, Variant
from zetamix.reproduce.drawing.comparison import Row
from zetamix.reproduce.drawing.view import Drawn, View, blank, finish
from zetamix.series import GAMMA_MIN

# the γ that the axis shows: the grid and a margin
SHOWN = (1.65, 5.15)


def draw(view: View) -> Drawn:
    curves: dict[str, list[Variant]] = {}
    for cell in view.trainings:
        known = curves.setdefault(cell.dataset, [])
        known += [] if cell.variant in known else [cell.variant]
    return Drawn(
        [_draw(view, curves)],
        {"sensitivity": _table(view, curves)},
        [word for name in curves for word in _verdict(view, name, curves[name])],
    )


def _curve(view: View, dataset: str, variant: Variant) -> list[tuple[float, Row]]:
    """(γ, what was run) for every γ of the grid."""
    cells: dict[str, Training] = {}
    for cell in view.trainings:
        if (cell.dataset, cell.variant) == (dataset, variant):
            cells.setdefault(cell.method, cell)
    return [
        (
            float(cell.method.removeprefix("zeta:")),
            Row(dataset, cell.model, cell.method, {variant: view.results.runs_of(cell)}),
        )
        for cell in cells.values()
    ]


def _draw(view: View, curves: dict[str, list[Variant]]) -> Picture:
    with drawing(4.8 * len(curves), 3.5) as figure:
        axes: Any = figure.subplots(1, len(curves), squeeze=False)
        for panel, (name, variants) in zip(axes[0], curves.items(), strict=True):
            shown = [_plot(panel, view, name, variant, k) for k, variant in enumerate(variants)]
            panel.set_title(CATALOGUE[name].title)
            if not any(shown):
                blank(panel, "no record yet")
                continue
            panel.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
            panel.set(xlabel="γ", ylabel="error rate %", xlim=SHOWN)
            panel.legend(loc="best")
        return finish(
            view,
            figure,
            "sensitivity",
            alt="Error rate against γ from 1.8 to 5.0, a panel for each dataset.",
            caption="Error rate on the test split against γ, ResNet-18; bars: one standard "
            f"deviation over seeds, where there are several. Dotted: {GAMMA_MIN:.5f}. The paper "
            "shows this figure without numbers.",
        )


def _plot(axes: Axes, view: View, dataset: str, variant: Variant, index: int) -> bool:
    found = [(gamma, row.ours(variant, "error")) for gamma, row in _curve(view, dataset, variant)]
    known = [(gamma, ours) for gamma, ours in found if ours is not None]
    if not known:
        return False
    gammas = [gamma for gamma, _ in known]
    means = [ours.mean for _, ours in known]
    label = f"{variant.label}, n = {max(ours.n for _, ours in known)}"
    axes.errorbar(
        gammas,
        means,
        yerr=[ours.sd or 0.0 for _, ours in known],
        label=label,
        **series_style(index),
    )
    return True


def _table(view: View, curves: dict[str, list[Variant]]) -> Table:
    rows: dict[float, list[Cell]] = {}
    pairs = [(name, variant) for name, variants in curves.items() for variant in variants]
    for name, variant in pairs:
        for gamma, row in _curve(view, name, variant):
            ours = row.ours(variant, "error")
            cell = Cell(None)
            if ours is not None:
                cell = Cell(ours.mean, error=ours.sd, n=ours.n, digits=2)
            rows.setdefault(gamma, []).append(cell)
    heads = [f"{CATALOGUE[name].title}, {variant.label}" for name, variant in pairs]
    columns = [Column("γ"), *(Column(head) for head in heads)]
    body = [[Cell(gamma, digits=1), *cells] for gamma, cells in rows.items()]
    notes = [
        "Error rate %, mean ± standard deviation over n seeds. The sweep over γ and weight decay, "
        "the other half of the paper's figure, is a study of `zetamix tune`."
    ]
    return Table(columns, body, "Error against γ", notes)


def _verdict(view: View, dataset: str, variants: list[Variant]) -> list[str]:
    words = []
    for variant in variants:
        found = [
            (ours.mean, gamma)
            for gamma, row in _curve(view, dataset, variant)
            if (ours := row.ours(variant, "error")) is not None
        ]
        if found:
            (low, best), (high, worst) = min(found), max(found)
            words.append(
                f"{CATALOGUE[dataset].title}, {variant.label}: error from {low:.2f} % at "
                f"γ = {best} to {high:.2f} % at γ = {worst}; {len(found)} of "
                f"{len(_curve(view, dataset, variant))} values of γ have been run."
            )
    return words
