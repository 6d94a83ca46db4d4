"""Point clouds: the overview of weights, and planar points and a helix mixed over γ and N."""

import math
from typing import Any, TypeAlias

import torch
from matplotlib.axes import Axes
from torch import Tensor

from paper.report.artifact_report import (
    SOFT_LABELS,
    ArtifactReport,
    Verdict,
    bare,
    estimate_cell,
    finish,
    gamma_of,
    method_name,
    status_of,
)
from paper.results.record_store import PaperView
from zetamix_lab.records import Measurement
from zetamix_lab.report import Cell, Column, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS, GREY
from zetamix_lab.report.table import Plain

# line width in points for a weight of 1, and the smallest visible line width
WIDTH, MIN_WIDTH = 5.0, 0.25
# elevation and azimuth in degrees, as in the paper's captions; None for points in the plane
Angles: TypeAlias = tuple[int, int] | None
VIEWS: tuple[Angles, ...] = ((0, 0), (70, 0), (90, 0))
GRID_VIEW = (0, 90)
ORIGINAL_GREY, PALE_GREY = "#c8c8c8", "#e6e6e6"
MARGIN = 0.08
# inches
PANEL = 1.5
# percent of wrong labels up to which class boundaries count as preserved
MAX_WRONG = 1.0
PLANAR = ("crescents", "spirals")
MIXUP = "mixup:1.0"


def overview(view: PaperView) -> ArtifactReport:
    records = view.measurements("overview")
    with drawing(8.4, 5.4) as figure:
        grid: Any = figure.subplots(2, 2)
        for letter, axes, record in zip("abcd", grid.flat, records, strict=True):
            _draw_weights(axes, view.store.arrays(record))
            is_mixup = record.method.startswith("mixup")
            sources = "pairs" if is_mixup else f"N = {record.recipe['sources']}"
            axes.set_title(f"({letter}) {method_name(record.method)}, {sources}")
        picture = finish(
            view,
            figure,
            "overview",
            alt="Points on two crescents. Outputs of mixup lie on lines between two points, "
            "outputs of ζ-mixup close to one point, with thin lines to all others.",
            caption="Circles: originals. Triangles: outputs. A line joins an output to each of its "
            "source samples; its width is the weight. Colours: the soft label; pale: all data. The "
            "seed was chosen so that the mixup outputs spread over their segments.",
        )
    weights = [r.values["largest_weight"] for r in records if r.method.startswith("zeta")]
    sentence = (
        f"The largest weight of a ζ-mixup output is {', '.join(f'{w:.2f}' for w in weights)} on "
        "average (panels b to d); the paper's condition for dominance is more than 0.5."
    )
    verdict = Verdict(status_of([weight > 0.5 for weight in weights]), [sentence])
    return ArtifactReport([picture], verdict=verdict)


def _draw_weights(axes: Axes, arrays: dict[str, Tensor]) -> None:
    background, labels = arrays["background"].float(), arrays["background_labels"]
    for label, colour in enumerate(COLOURS[:2]):
        points = background[labels == label]
        axes.scatter(points[:, 0], points[:, 1], s=7, lw=0, color=colour, alpha=0.16)
    originals, outputs = arrays["originals"], arrays["outputs"]
    for output, rows, weights in zip(outputs, arrays["indices"], arrays["weights"], strict=True):
        for source, weight in zip(originals[rows], weights.tolist(), strict=True):
            ends = [output[0], source[0]], [output[1], source[1]]
            width = max(MIN_WIDTH, WIDTH * weight)
            axes.plot(*ends, color=GREY, lw=width, alpha=0.55, solid_capstyle="butt")
    own = arrays["labels"].float()
    mixed = (arrays["weights"] * own[arrays["indices"]]).sum(1)
    for points, colours, marker, size in ((originals, own, "o", 58), (outputs, mixed, "^", 44)):
        style: dict[str, Any] = {"s": size, "marker": marker, "ec": "black", "lw": 1.0, "zorder": 5}
        axes.scatter(
            points[:, 0], points[:, 1], c=colours, cmap=SOFT_LABELS, vmin=0, vmax=1, **style
        )
    axes.set_aspect("equal")
    bare(axes)


def distributions(view: PaperView) -> ArtifactReport:
    # crescents are mixed with one batch size only: that of the first figure
    batch = view.measurements("distribution", PLANAR[0])[0].recipe["batch"]
    pictures = [_draw_clouds(view, batch), _draw_grid(view)]
    return ArtifactReport(pictures, {"distributions": _table(view, batch)}, _verdict(view, batch))


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


def _draw_clouds(view: PaperView, batch: int) -> Picture:
    """A row for each planar dataset and for each view of the helix."""
    rows = [*((name, None) for name in PLANAR), *(("helix", angles) for angles in VIEWS)]
    records = {name: view.measurements("distribution", name, batch=batch) for name, _ in rows}
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
            view,
            figure,
            "distributions",
            alt="Point clouds. mixup fills the space between the arms; ζ-mixup with small γ "
            "shrinks the data towards its mean, and from γ = 4.0 on outputs lie on the data.",
            caption=f"Outputs of mixup and of ζ-mixup (γ in parentheses), {batch} samples per "
            "batch. Colour: soft label; marker: largest class; grey: originals. Bottom: a helix "
            "in three views (elevation, azimuth). Numbers: outputs whose label differs from that "
            "of the nearest original, and mean distance to the nearest original (the helix is 6 "
            "wide).",
        )


def _draw_grid(view: PaperView) -> Picture:
    records = view.measurements("distribution", "helix")
    originals = _points(view, records[0], GRID_VIEW)
    records = [record for record in records if record.method.startswith("zeta")]
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
            view,
            figure,
            "grid",
            alt="Helices for growing N and γ. With small γ outputs leave the helix, with large γ "
            "they lie on it for every N.",
            caption="ζ-mixup on the helix for N sources and γ, seen from (0°, 90°); grey: "
            "originals. Numbers: mean distance to the nearest original.",
        )


def _points(view: PaperView, record: Measurement, angles: Angles) -> Tensor:
    return project(view.store.arrays(record)["samples"].float(), angles)


def _draw_panel(
    axes: Axes, view: PaperView, record: Measurement, originals: Tensor, angles: Angles
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


def _table(view: PaperView, batch: int) -> Table:
    rows: list[list[Cell | Plain]] = [
        [
            name,
            method_name(record.method),
            estimate_cell(record.values.get("label_error"), "standard_error", scale=100),
            estimate_cell(record.values["distance"], "standard_error"),
        ]
        for name in (*PLANAR, "helix")
        for record in view.measurements("distribution", name, batch=batch)
        if record.method != "none"
    ]
    columns = [
        Column("data"),
        Column("method"),
        Column("wrong labels %", "outputs whose largest class is not that of the nearest original"),
        Column("distance", "mean distance to the nearest original"),
    ]
    note = (
        "Mean ± standard error over all outputs of one draw. The paper gives neither numbers nor N "
        f"for this figure. Class boundaries count as preserved up to {MAX_WRONG:g} % wrong labels."
    )
    return Table(columns, rows, f"Label errors and distances, N = {batch}", [note])


def _values(view: PaperView, dataset: str, name: str, batch: int) -> dict[str, float]:
    """A measured value by method, without the originals."""
    return {
        record.method: record.values[name]["value"]
        for record in view.measurements("distribution", dataset, batch=batch)
        if record.method != "none"
    }


def farther_than_mixup(view: PaperView, batch: int) -> dict[str, list[str]]:
    """By dataset, the γ at which outputs are farther from the originals than those of mixup."""
    farther = {}
    for dataset in (*PLANAR, "helix"):
        distances = _values(view, dataset, "distance", batch)
        mixup = distances[MIXUP]
        farther[dataset] = [gamma_of(method) for method, d in distances.items() if d > mixup]
    return {dataset: gammas for dataset, gammas in farther.items() if gammas}


def _verdict(view: PaperView, batch: int) -> Verdict:
    """The paper: ζ-mixup preserves class boundaries at every γ, and is closer to the data."""
    wrong = {name: _values(view, name, "label_error", batch) for name in PLANAR}
    zeta = [
        (float(gamma_of(method)), 100 * share)
        for shares in wrong.values()
        for method, share in shares.items()
        if method != MIXUP
    ]
    crossed = [gamma for gamma, share in zeta if share > MAX_WRONG]
    summary = "ζ-mixup preserves the class boundaries at every γ."
    if crossed:
        scope = "only above" if any(gamma > max(crossed) for gamma, _ in zeta) else "not even at"
        summary = (
            f"ζ-mixup preserves the class boundaries {scope} γ = {max(crossed)}; the paper claims "
            "it for every γ. At small γ outputs move towards the mean of the data."
        )
    farther = farther_than_mixup(view, batch)
    if farther:
        text = "; ".join(f"{name} at γ = {', '.join(farther[name])}" for name in farther)
        summary += f" Outputs are farther from the originals than mixup's on {text}; the paper "
        summary += "reports them much closer."
    claims = [*(share <= MAX_WRONG for _, share in zeta), not farther]
    return Verdict(status_of(claims), [summary])
