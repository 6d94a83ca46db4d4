"""The overview figure: originals, outputs, and lines as wide as the weights between them."""

from typing import Any

from matplotlib.axes import Axes
from torch import Tensor

from zetamix.report import drawing
from zetamix.report.figure import GREY
from zetamix.report.paper.style import CLASS_COLOURS, SOFT_LABELS, bare, finish, method_name
from zetamix.report.paper.verdict import ArtifactReport, Verdict, status_of
from zetamix.results.paper_view import PaperView

# line width in points of a weight of 1; thinner lines than the second are invisible
WIDTH, MIN_WIDTH = 5.0, 0.25


def report(view: PaperView) -> ArtifactReport:
    records = view.measurements("overview")
    with drawing(8.4, 5.4) as figure:
        grid: Any = figure.subplots(2, 2)
        for letter, axes, record in zip("abcd", grid.flat, records, strict=True):
            _draw_panel(axes, view.arrays(record))
            is_mixup = record.method.startswith("mixup")
            sources = "pairs" if is_mixup else f"N = {record.recipe['sources']}"
            axes.set_title(f"({letter}) {method_name(record.method)}, {sources}")
        picture = finish(
            view,
            figure,
            "overview",
            alt="Points on two crescents. Outputs of mixup lie on lines between two points, "
            "outputs of ζ-mixup beside one point, with thin lines to all others.",
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


def _draw_panel(axes: Axes, arrays: dict[str, Tensor]) -> None:
    background, labels = arrays["background"].float(), arrays["background_labels"]
    for label, colour in enumerate(CLASS_COLOURS):
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
