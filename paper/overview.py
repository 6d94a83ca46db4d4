"""The overview: samples, outputs and weights of mixup and ζ-mixup on two crescents."""

from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from paper.context import Context
from paper.drawing import SOFT_LABELS, Result, bare, finish, method_name
from paper.records import MeasurementCell, View
from zetamix.methods import parse
from zetamix.mix import apply_plan
from zetamix.plan import mixup_plan, zeta_plan
from zetamix_lab.report import drawing
from zetamix_lab.report.figure import COLOURS, GREY

# chosen among several seeds: its mixup outputs spread over whole segments
SEED = 4
PANELS = (("mixup:1.0", 8), ("zeta:2.8", 3), ("zeta:2.8", 4), ("zeta:2.8", 8))
# line width in points for a weight of 1, and the smallest visible line width
WIDTH, MIN_WIDTH = 5.0, 0.25


def cells() -> list[MeasurementCell]:
    return [
        MeasurementCell("overview", "crescents", method, SEED, {"sources": sources})
        for method, sources in PANELS
    ]


def measure(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Mix a few points that are spread evenly over both crescents."""
    train, count = context.dataset.train, cell.recipe["sources"]
    rows = [int((k + 0.5) * len(train) / count) for k in range(count)]
    points = train.samples[rows]
    generator = torch.Generator().manual_seed(cell.seed)
    method = parse(cell.method)
    if method.name == "mixup":
        plan = mixup_plan(count, method.values["alpha"], generator=generator)
    else:
        plan = zeta_plan(count, method.values["gamma"], generator=generator)
    return {
        "largest_weight": round(float(plan.weights.amax(1).mean()), 6),
        "background": train.samples.half(),
        "background_labels": train.labels.to(torch.uint8),
        "originals": points,
        "labels": train.labels[rows].to(torch.uint8),
        "outputs": apply_plan(points, plan),
        "indices": plan.indices,
        "weights": plan.weights.contiguous(),
    }


def draw(view: View) -> Result:
    records = view.measurements("overview")
    with drawing(8.4, 5.4) as figure:
        grid: Any = figure.subplots(2, 2)
        for letter, axes, record in zip("abcd", grid.flat, records, strict=True):
            _draw_weights(axes, view.store.arrays(record))
            is_mixup = record.method.startswith("mixup")
            sources = "pairs" if is_mixup else f"N = {record.recipe['sources']}"
            axes.set_title(f"({letter}) {method_name(record.method)}, {sources}")
        picture = finish(
            figure,
            "overview",
            alt="Points on two crescents. Outputs of mixup lie on lines between two points, "
            "outputs of ζ-mixup close to one point, with thin lines to all others.",
            caption="Circles: originals. Triangles: outputs. A line joins an output to each of its "
            "source samples; its width is the weight. Colours: the soft label; pale: all data. The "
            "seed was chosen so that the mixup outputs spread over their segments.",
        )
    weights = [r.values["largest_weight"] for r in records if r.method.startswith("zeta")]
    finding = (
        f"The largest weight of a ζ-mixup output is {', '.join(f'{w:.2f}' for w in weights)} on "
        "average (panels b to d); the paper's condition for dominance is more than 0.5."
    )
    return Result([picture], findings=[finding])


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
        style |= {"c": colours, "cmap": SOFT_LABELS, "vmin": 0, "vmax": 1}
        axes.scatter(points[:, 0], points[:, 1], **style)
    axes.set_aspect("equal")
    bare(axes)
