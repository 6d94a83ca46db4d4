"""The overview: originals, outputs, and lines as wide as the weights between them."""

from typing import Any

from matplotlib.axes import Axes
from torch import Tensor

from zetamix.report import drawing
from zetamix.report.figure import GREY
from zetamix.report.paper.view import (
    CLASS_COLOURS,
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

# points: a weight of 1 would be a line this wide
WIDTH = 5.0
# lines thinner than this are not seen
LEAST_WIDTH = 0.25


def draw(view: View) -> Drawn:
    found = list(view.measured("overview"))
    with drawing(8.4, 5.4) as figure:
        panels: Any = figure.subplots(2, 2)
        for letter, axes, (cell, record) in zip("abcd", panels.flat, found, strict=True):
            sources = cell.recipe["sources"]
            name = method_name(cell.method)
            title = "pairs" if cell.method.startswith("mixup") else f"N = {sources}"
            if record is None:
                blank(axes, "not measured")
            else:
                _panel(axes, view.arrays(record))
            axes.set_title(f"({letter}) {name}, {title}")
        caption = (
            "Circles: originals. Triangles: outputs. A line joins an output to each original that "
            "went into it, as wide as its weight. Colours: the label, from one class to the other; "
            "pale: all of the data. mixup's outputs lie anywhere between two originals, ζ-mixup's "
            "close to one, with a little of all the others. Of the draws that were looked "
            "at, this one's mixup outputs spread most over their segments."
        )
        picture = finish(
            view,
            figure,
            "overview",
            alt="Four panels of points on two crescents. Outputs of mixup lie on lines between two "
            "points, some of them off the crescents; outputs of ζ-mixup lie beside one point, with "
            "thin lines to all others.",
            caption=caption,
        )
    weights = [record.values["largest_weight"] for cell, record in found[1:] if record is not None]
    if not weights:
        return Drawn([picture])
    shares = ", ".join(f"{weight:.2f}" for weight in weights)
    words = f"The largest weight of ζ-mixup at N = 3, 4, 8 is {shares}, as its definition has it."
    status = agreement([weight > 0.5 for weight in weights])
    return Drawn([picture], verdict=[words], answer=Answer(status, words))


def _panel(axes: Axes, arrays: dict[str, Tensor]) -> None:
    background, labels = arrays["background"].float(), arrays["background_labels"]
    for label, colour in enumerate(CLASS_COLOURS):
        own = background[labels == label]
        axes.scatter(own[:, 0], own[:, 1], s=7, lw=0, color=colour, alpha=0.16)
    originals, outputs = arrays["originals"], arrays["outputs"]
    for output, rows, weights in zip(outputs, arrays["indices"], arrays["weights"], strict=True):
        for row, weight in zip(originals[rows], weights.tolist(), strict=True):
            ends = [output[0], row[0]], [output[1], row[1]]
            width = max(LEAST_WIDTH, WIDTH * weight)
            axes.plot(*ends, color=GREY, lw=width, alpha=0.55, solid_capstyle="butt")
    own = arrays["labels"].float()
    shares = (arrays["weights"] * own[arrays["indices"]]).sum(1)
    for points, colours, marker, size in (
        (originals, own, "o", 58),
        (outputs, shares, "^", 44),
    ):
        across, up = points[:, 0], points[:, 1]
        how: dict[str, Any] = {"s": size, "marker": marker, "ec": "black", "lw": 1.0, "zorder": 5}
        axes.scatter(across, up, c=colours, cmap=SOFT, vmin=0, vmax=1, **how)
    axes.set_aspect("equal")
    bare(axes)
