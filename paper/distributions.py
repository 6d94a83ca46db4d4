"""Distributions: crescents, spirals and a helix, mixed over γ and the number of sources N."""

import math
from typing import Any, TypeAlias

import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from paper.context import Context
from paper.drawing import SOFT_LABELS, Result, bare, estimate_cell, finish, gamma_of, method_name
from paper.measure.estimate import mean_of
from paper.measure.neighbours import Cloud, distances_to
from paper.records import Measurement, MeasurementCell, View
from zetamix_lab.report import Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS

PLANAR = ("crescents", "spirals")
GAMMAS = (2.0, 2.4, 2.8, 4.0, 6.0)
# the paper does not say how many samples it mixes here; 32 is its batch for large images
BATCH = 32
# N of the helix, in addition to that of the figure above
GRID_BATCHES = (4, 8, 128)
# bytes of distances in memory at a time
MEMORY = 2.5e8
# elevation and azimuth in degrees, as in the paper's captions; None for points in the plane
Angles: TypeAlias = tuple[int, int] | None
VIEWS: tuple[Angles, ...] = ((0, 0), (70, 0), (90, 0))
GRID_VIEW = (0, 90)
ORIGINAL_GREY, PALE_GREY = "#c8c8c8", "#e6e6e6"
MARGIN = 0.08
# inches
PANEL = 1.5


def cells() -> list[MeasurementCell]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    rows = [(name, method, BATCH) for name in (*PLANAR, "helix") for method in methods]
    grid = [("helix", f"zeta:{gamma}", batch) for batch in GRID_BATCHES for gamma in GAMMAS]
    return [
        MeasurementCell("distribution", name, method, recipe={"batch": batch})
        for name, method, batch in (*rows, *grid)
    ]


def measure(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Outputs, their distance from the data, and the fraction with a wrong label."""
    train, values = context.dataset.train, dict[str, Any]()
    samples, (outputs, targets) = train.samples.to(context.device), context.mix(cell, train)
    if cell.method != "none":
        cloud = Cloud(samples, MEMORY)
        nearest = distances_to(Cloud(outputs, MEMORY, cloud.origin), cloud, 1)
        values["distance"] = mean_of(nearest)
    # half precision has an error of a thousandth: a tenth of the width of a plotted dot
    values["samples"] = outputs.half()
    if context.dataset.num_classes > 1:
        wrong = wrong_labels(outputs, targets, samples, train.labels.to(samples.device))
        values["label_error"] = mean_of(wrong)
        values["targets"] = targets.half()
    return values


def wrong_labels(outputs: Tensor, targets: Tensor, originals: Tensor, labels: Tensor) -> Tensor:
    """[n], bool: whether the largest class of a label differs from that of the nearest original."""
    nearest = torch.cdist(outputs.double(), originals.double()).argmin(1)
    return targets.argmax(1) != labels[nearest]


def draw(view: View) -> Result:
    return Result([_clouds(view), _grid(view)], {"distributions": _table(view)})


def project(points: Tensor, angles: Angles) -> Tensor:
    """[n, 2]: orthographic projection of points [n, 3] as seen from (elevation, azimuth).

    >>> project(torch.tensor([[1.0, 2.0, 3.0]]), (0, 0))
    tensor([[2., 3.]])
    """
    if angles is None:
        return points
    up, around = map(math.radians, angles)
    right = torch.tensor([-math.sin(around), math.cos(around), 0.0])
    rise = torch.tensor(
        [-math.sin(up) * math.cos(around), -math.sin(up) * math.sin(around), math.cos(up)]
    )
    return points @ torch.stack([right, rise], 1)


def _clouds(view: View) -> Picture:
    """A row for each planar dataset and for each view of the helix."""
    rows = [*((name, None) for name in PLANAR), *(("helix", angles) for angles in VIEWS)]
    records = {name: _records(view, name) for name, _ in rows}
    originals = [_points(view, records[name][0], angles) for name, angles in rows]
    heights, columns = [_height(points) for points in originals], len(records["helix"])
    with drawing(PANEL * columns + 0.3, PANEL * sum(heights) + 0.6) as figure:
        axes: Any = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for row, (name, angles) in enumerate(rows):
            for column, record in enumerate(records[name]):
                _draw_panel(axes[row, column], view, record, originals[row], angles)
            axes[row, 0].set_ylabel(f"{name} {angles[0]}°, {angles[1]}°" if angles else name)
        for column, record in enumerate(records["helix"]):
            axes[0, column].set_title("input" if column == 0 else method_name(record.method))
        return finish(
            figure,
            "distributions",
            alt="Point clouds. mixup fills the space between the arms; ζ-mixup with small γ "
            "shrinks the data towards its mean, and from γ = 4.0 on outputs lie on the data.",
            caption=f"Outputs of mixup and of ζ-mixup (γ in parentheses), {BATCH} samples per "
            "batch. Colour: soft label; marker: largest class; grey: originals. Bottom: a helix "
            "in three views (elevation, azimuth). Numbers: outputs whose label differs from that "
            "of the nearest original, and mean distance to the nearest original (the helix is 6 "
            "wide).",
        )


def _grid(view: View) -> Picture:
    originals = _points(view, _records(view, "helix")[0], GRID_VIEW)
    records = [
        record
        for record in view.measurements("distribution")
        if record.dataset == "helix" and record.method.startswith("zeta")
    ]
    batches = sorted({record.recipe["batch"] for record in records})
    methods = list(dict.fromkeys(record.method for record in records))
    width, height = 1.25 * PANEL, 1.25 * PANEL * _height(originals)
    with drawing(width * len(methods) + 0.3, height * len(batches) + 0.5) as figure:
        axes: Any = figure.subplots(len(batches), len(methods), squeeze=False)
        for record in records:
            panel = axes[batches.index(record.recipe["batch"]), methods.index(record.method)]
            _draw_panel(panel, view, record, originals, GRID_VIEW)
        for row, batch in enumerate(batches):
            axes[row, 0].set_ylabel(f"N = {batch}")
        for column, method in enumerate(methods):
            axes[0, column].set_title(f"γ = {gamma_of(method)}")
        return finish(
            figure,
            "grid",
            alt="Helices for growing N and γ. With small γ outputs leave the helix, with large γ "
            "they lie on it for every N.",
            caption="ζ-mixup on the helix for N sources and γ, seen from (0°, 90°); grey: "
            "originals. Numbers: mean distance to the nearest original.",
        )


def _records(view: View, dataset: str) -> list[Measurement]:
    """One for each method, in batches of 32."""
    records = view.measurements("distribution")
    return [r for r in records if (r.dataset, r.recipe["batch"]) == (dataset, BATCH)]


def _points(view: View, record: Measurement, angles: Angles) -> Tensor:
    return project(view.store.arrays(record)["samples"].float(), angles)


def _draw_panel(
    axes: Axes, view: View, record: Measurement, originals: Tensor, angles: Angles
) -> None:
    """Outputs above originals: coloured by label in the plane, in one colour in space."""
    is_mixed, points = record.method != "none", _points(view, record, angles)
    style: dict[str, Any] = {"lw": 0, "rasterized": True}
    if angles is not None:
        # 340,000 points as vectors would be 30 MB; text and frames stay vectors
        axes.scatter(originals[:, 0], originals[:, 1], s=1.2, color=ORIGINAL_GREY, **style)
        if is_mixed:
            axes.scatter(points[:, 0], points[:, 1], s=0.8, color=COLOURS[0], alpha=0.6, **style)
            _annotate(axes, f"{record.values['distance']['value']:.2f}")
    else:
        if is_mixed:
            axes.scatter(originals[:, 0], originals[:, 1], s=3, color=PALE_GREY, **style)
            _annotate(axes, f"{100 * record.values['label_error']['value']:.0f} % wrong")
        label = view.store.arrays(record)["targets"].float()[:, 1]
        style = {"s": 6, "lw": 0, "cmap": SOFT_LABELS, "vmin": 0, "vmax": 1}
        for rows, marker in ((label <= 0.5, "o"), (label > 0.5, "^")):
            axes.scatter(points[rows, 0], points[rows, 1], c=label[rows], marker=marker, **style)
    # the same limits in every panel of a row
    (left, low), (right, high) = _corners(originals)
    axes.set(xlim=(left, right), ylim=(low, high), aspect="equal")
    bare(axes)


def _corners(points: Tensor) -> list[list[float]]:
    low, high = points.amin(0), points.amax(0)
    margin = MARGIN * (high - low).amax()
    return [(low - margin).tolist(), (high + margin).tolist()]


def _height(points: Tensor) -> float:
    """Height of a panel divided by its width."""
    (left, low), (right, high) = _corners(points)
    return (high - low) / (right - left)


def _annotate(axes: Axes, text: str) -> None:
    box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.8}
    corner: dict[str, Any] = {"ha": "right", "va": "bottom", "transform": axes.transAxes}
    axes.text(0.97, 0.03, text, size=7, bbox=box, **corner)


def _table(view: View) -> Table:
    rows = [
        {
            "data": name,
            "method": method_name(record.method),
            "wrong labels %": estimate_cell(
                record.values.get("label_error"), "standard_error", scale=100
            ),
            "distance": estimate_cell(record.values["distance"], "standard_error"),
        }
        for name in (*PLANAR, "helix")
        for record in _records(view, name)
        if record.method != "none"
    ]
    note = (
        "Mean ± standard error over all outputs of one draw: the share whose largest class is not "
        "that of the nearest original, and the distance to it. The paper claims that ζ-mixup "
        "preserves class boundaries at every γ, and gives neither numbers nor N for this figure."
    )
    caption = f"Label errors and distances, N = {BATCH}"
    return Table.of(pd.DataFrame(rows), caption, [note])
