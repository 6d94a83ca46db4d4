"""What mixing does to a distribution: points in the plane, a helix in three views, N against γ."""

import math
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from zetamix.records import Measurement
from zetamix.report import Cell, Column, Picture, Table, drawing
from zetamix.report.figure import COLOURS
from zetamix.report.paper.view import (
    NOT_RUN,
    SOFT,
    Answer,
    Drawn,
    View,
    agreement,
    bare,
    blank,
    finish,
    method_name,
)

# elevation and azimuth in degrees, as the paper's captions give them
VIEWS = ((0, 0), (70, 0), (90, 0))
GRID_VIEW = (0, 90)
# originals below outputs: of a curve, and of points that a grey print has to keep apart
ORIGINAL, PALE = "#c8c8c8", "#e6e6e6"
MARGIN = 0.08
# inches
PANEL = 1.5
# percent of labels that may be wrong where boundaries are kept
KEPT = 1.0
TITLES = {"crescents": "crescents", "spirals": "spirals"}


def draw(view: View) -> Drawn:
    batch = _batch(view)
    pictures = [_draw_clouds(view, batch), _draw_grid(view)]
    return Drawn(pictures, {"distributions": _table(view, batch)}, _verdict(view), _answer(view))


def _batch(view: View) -> int:
    """Samples that are mixed at a time in the first figure, of which crescents have no other."""
    cells = view.measured("distribution", "crescents")
    return next((int(cell.recipe["batch"]) for cell, _ in cells), 0)


def project(points: Tensor, elevation: float, azimuth: float) -> Tensor:
    """[n, 2]: points in space as seen from far away.

    >>> project(torch.tensor([[1.0, 2.0, 3.0]]), 0, 0)
    tensor([[2., 3.]])
    """
    up, around = math.radians(elevation), math.radians(azimuth)
    right = torch.tensor([-math.sin(around), math.cos(around), 0.0])
    rise = torch.tensor(
        [-math.sin(up) * math.cos(around), -math.sin(up) * math.sin(around), math.cos(up)]
    )
    return points @ torch.stack([right, rise], 1)


def _draw_clouds(view: View, batch: int) -> Picture:
    flat = [list(view.measured("distribution", name, batch=batch)) for name in TITLES]
    helix = list(view.measured("distribution", "helix", batch=batch))
    planes = [_samples(view, cells[0][1]) for cells in flat]
    space = _samples(view, helix[0][1])
    seen = [None if space is None else project(space, *angles) for angles in VIEWS]
    heights = [_height(points) for points in (*planes, *seen)]
    with drawing(PANEL * len(helix) + 0.3, PANEL * sum(heights) + 0.6) as figure:
        axes: Any = figure.subplots(len(heights), len(helix), squeeze=False, height_ratios=heights)
        for row, (name, cells) in enumerate(zip(TITLES, flat, strict=True)):
            for column, (_, record) in enumerate(cells):
                _flat_panel(axes[row, column], view, record, planes[row])
            axes[row, 0].set_ylabel(TITLES[name])
        for row, angles in enumerate(VIEWS, start=len(flat)):
            for column, (_, record) in enumerate(helix):
                _helix_panel(axes[row, column], view, record, space, angles)
            axes[row, 0].set_ylabel(f"helix {angles[0]}°, {angles[1]}°")
        for column, (cell, _) in enumerate(helix):
            axes[0, column].set_title("input" if column == 0 else method_name(cell.method))
        return finish(
            view,
            figure,
            "distributions",
            alt="A grid of point clouds. mixup fills the space between the arms of crescents and "
            "spirals and the hollow of the helix. ζ-mixup with small γ shrinks the data towards "
            "its middle; from γ = 4.0 on outputs lie on the data.",
            caption=f"Outputs of mixup and of ζ-mixup (γ in brackets), {batch} samples mixed at a "
            "time. Colour: the soft label, from one class to the other; marker: the heavier class; "
            "grey: originals. Below: a "
            "helix in three views, (elevation, azimuth). Numbers: the share of outputs whose label "
            "names another class than that of the nearest original, and the mean distance to the "
            "nearest original in the units of the space, where the helix is six wide.",
        )


def _draw_grid(view: View) -> Picture:
    cells = [
        (cell, record)
        for cell, record in view.measured("distribution", "helix")
        if cell.method.startswith("zeta")
    ]
    batches = sorted({cell.recipe["batch"] for cell, _ in cells})
    methods = list(dict.fromkeys(cell.method for cell, _ in cells))
    first = next(view.measured("distribution", "helix"), None)
    originals = _samples(view, first[1] if first else None)
    height = _height(None if originals is None else project(originals, *GRID_VIEW))
    size = 1.25 * PANEL * len(methods) + 0.3, 1.25 * PANEL * height * len(batches) + 0.5
    with drawing(*size) as figure:
        axes: Any = figure.subplots(len(batches), len(methods), squeeze=False)
        for cell, record in cells:
            row, column = batches.index(cell.recipe["batch"]), methods.index(cell.method)
            _helix_panel(axes[row, column], view, record, originals, GRID_VIEW)
        for row, batch in enumerate(batches):
            axes[row, 0].set_ylabel(f"N = {batch}")
        for column, method in enumerate(methods):
            axes[0, column].set_title(f"γ = {method.removeprefix('zeta:')}")
        return finish(
            view,
            figure,
            "grid",
            alt="A grid of helices for growing N and growing γ. With small γ outputs leave the "
            "helix, with many sources towards its axis; with large γ they lie on it whatever N is.",
            caption="ζ-mixup on the helix for N sources and γ, seen from (0°, 90°); grey: "
            "originals. Numbers: mean distance to the nearest original; the helix is six wide.",
        )


def _samples(view: View, record: Measurement | None) -> Tensor | None:
    return None if record is None else view.arrays(record)["samples"].float()


def _flat_panel(
    axes: Axes, view: View, record: Measurement | None, originals: Tensor | None
) -> None:
    if record is None or originals is None:
        return blank(axes, "not measured")
    arrays = view.arrays(record)
    points, share = arrays["samples"].float(), arrays["targets"].float()[:, 1]
    if record.method != "none":
        under = originals[:, 0], originals[:, 1]
        axes.scatter(*under, s=3, lw=0, color=PALE, rasterized=True)
    for heavier, marker in ((share <= 0.5, "o"), (share > 0.5, "^")):
        place = points[heavier, 0], points[heavier, 1]
        axes.scatter(*place, s=6, lw=0, marker=marker, c=share[heavier], cmap=SOFT, vmin=0, vmax=1)
    _frame(axes, originals)
    if record.method != "none":
        _note(axes, f"{100 * record.values['label_error']['value']:.0f} % wrong")
    return None


def _helix_panel(
    axes: Axes,
    view: View,
    record: Measurement | None,
    originals: Tensor | None,
    angles: tuple[int, int],
) -> None:
    if record is None or originals is None:
        return blank(axes, "not measured")
    points = project(view.arrays(record)["samples"].float(), *angles)
    under = project(originals, *angles)
    # as vectors the figure would have 340,000 points and 30 MB; text and frames stay vectors
    axes.scatter(under[:, 0], under[:, 1], s=1.2, lw=0, color=ORIGINAL, rasterized=True)
    if record.method != "none":
        axes.scatter(
            points[:, 0], points[:, 1], s=0.8, lw=0, color=COLOURS[0], alpha=0.6, rasterized=True
        )
        _note(axes, f"{record.values['distance']['value']:.2f}")
    _frame(axes, under)
    return None


def _frame(axes: Axes, points: Tensor) -> None:
    """The same part of space in every panel of a row."""
    (left, low), (right, high) = _corners(points)
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    bare(axes)


def _corners(points: Tensor) -> list[list[float]]:
    """Lower left and upper right of what a panel shows: the points and a margin."""
    low, high = points.amin(0), points.amax(0)
    margin = MARGIN * (high - low).amax()
    return [(low - margin).tolist(), (high + margin).tolist()]


def _height(points: Tensor | None) -> float:
    """Of a panel, in parts of its width."""
    if points is None:
        return 1.0
    (left, low), (right, high) = _corners(points)
    return (high - low) / (right - left)


def _note(axes: Axes, text: str) -> None:
    axes.text(
        0.97,
        0.03,
        text,
        ha="right",
        va="bottom",
        size=7,
        transform=axes.transAxes,
        bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.8},
    )


def _table(view: View, batch: int) -> Table:
    rows: list[list[Cell | str]] = []
    for name in (*TITLES, "helix"):
        for cell, record in view.measured("distribution", name, batch=batch):
            if cell.method != "none":
                wrong, far = _estimate(record, "label_error", 100), _estimate(record, "distance", 1)
                rows.append([name, method_name(cell.method), wrong, far])
    columns = [
        Column("data"),
        Column("method"),
        Column("wrong labels %", "outputs whose label names another class than its surroundings"),
        Column("distance", "mean distance to the nearest original"),
    ]
    notes = [
        "Mean ± standard error over all outputs of one draw. The paper gives no numbers for this "
        f"figure, and no N; boundaries count as kept up to {KEPT:g} % of wrong labels."
    ]
    return Table(columns, rows, f"Label errors and distances, N = {batch}", notes)


def _estimate(record: Measurement | None, name: str, scale: float) -> Cell:
    found = None if record is None else record.values.get(name)
    if found is None:
        return Cell(None)
    return Cell(scale * found["value"], error=scale * found["standard_error"])


def _values(view: View, name: str, measure: str) -> dict[str, float]:
    """Method: what was measured, with as many samples mixed at a time as in the first figure."""
    return {
        cell.method: record.values[measure]["value"]
        for cell, record in view.measured("distribution", name, batch=_batch(view))
        if record is not None and cell.method != "none"
    }


def _wrong(view: View, name: str) -> dict[str, float]:
    """Method: the share of wrong labels in percent."""
    found = _values(view, name, "label_error")
    return {method: 100 * share for method, share in found.items()}


def _verdict(view: View) -> list[str]:
    words: list[str] = []
    crossed = False
    for name in TITLES:
        found = _wrong(view, name)
        mixup = found.pop("mixup:1.0", None)
        if mixup is None or not found:
            continue
        shares = ", ".join(f"{found[each]:.1f} % at γ = {_gamma(each)}" for each in found)
        words.append(f"Wrong labels on {name}: {mixup:.1f} % with mixup; with ζ-mixup {shares}.")
        wrong = [method for method in found if found[method] > KEPT]
        worse = [_gamma(method) for method in wrong if found[method] > mixup]
        if wrong:
            told = f", more of them wrong than with mixup at {', '.join(worse)}" if worse else ""
            words[-1] += (
                f" The class boundaries are not kept at γ = {', '.join(map(_gamma, wrong))}{told}."
            )
            crossed = True
    if crossed:
        words.append(
            "The paper says that ζ-mixup keeps the class boundaries whatever γ is. With small γ "
            "the weight of all the others draws outputs towards the middle of the data, across "
            "the other class."
        )
    farther = _farther(view)
    if farther:
        where = "; ".join(f"{name} at γ = {', '.join(farther[name])}" for name in farther)
        words.append(
            f"Farther from the originals than mixup's outputs, in the mean: {where}. The paper has "
            "ζ-mixup's much closer to them."
        )
    return words


def _farther(view: View) -> dict[str, list[str]]:
    """Dataset: at which γ outputs lie farther from the originals than mixup's."""
    farther = {}
    for name in (*TITLES, "helix"):
        found = _values(view, name, "distance")
        mixup = found.pop("mixup:1.0", math.inf)
        farther[name] = [_gamma(method) for method in found if found[method] > mixup]
    return {name: gammas for name, gammas in farther.items() if gammas}


def _answer(view: View) -> Answer:
    found = [
        (float(_gamma(method)), share)
        for name in TITLES
        for method, share in _wrong(view, name).items()
        if method != "mixup:1.0"
    ]
    if not found:
        return Answer(NOT_RUN)
    farther = _farther(view)
    status = agreement([*(share <= KEPT for _, share in found), not farther])
    crossed = [gamma for gamma, share in found if share > KEPT]
    words = "ζ-mixup keeps the class boundaries at every γ."
    if crossed:
        kept = any(gamma > max(crossed) for gamma, _ in found)
        where = f"only at γ above {max(crossed)}" if kept else "at no γ"
        words = f"ζ-mixup keeps the class boundaries {where}; the paper says whatever γ is."
    if farther:
        most = max(float(gamma) for gammas in farther.values() for gamma in gammas)
        words += (
            f" Up to γ = {most} outputs can lie farther from the originals than mixup's, on "
            f"{' and '.join(farther)}; the paper has them much closer."
        )
    return Answer(status, words)


def _gamma(method: str) -> str:
    return method.removeprefix("zeta:")
