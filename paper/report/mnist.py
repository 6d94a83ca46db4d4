"""MNIST: originals and outputs, soft labels, and densities of the oracle's predictions."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from torch import Tensor

from paper.measure import density
from paper.measure.realism import CERTAIN, FLOOR
from paper.report.artifact_report import (
    ArtifactReport,
    Verdict,
    bare,
    estimate_cell,
    finish,
    method_name,
    status_of,
)
from paper.results import paper_values as paper
from paper.results.record_store import PaperView
from zetamix_lab.records import Measurement
from zetamix_lab.report import Cell, Column, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS
from zetamix_lab.report.table import Plain
from zetamix_lab.text import join

MIXUP, ZETA = "mixup:1.0", "zeta:2.8"
STYLES: dict[str, Any] = {
    "none": {"color": COLOURS[3], "linestyle": ":"},
    MIXUP: {"color": COLOURS[1], "linestyle": "--"},
    ZETA: {"color": COLOURS[0], "linestyle": "-"},
}
TITLES = {
    "none": "(a) first images of each class",
    MIXUP: "(b) mixup",
    ZETA: "(c) ζ-mixup (2.8)",
}
MEASURES = {
    "oracle_entropy": "entropy of the oracle, nats",
    "certain_share": f"fraction with entropy below {CERTAIN}",
    "cross_entropy": "cross entropy of prediction and label, nats",
    "cross_entropy_certain": f"the same, entropy below {CERTAIN}",
    "loss": "cross entropy of label and prediction, nats",
    "agreement": "oracle predicts the largest class of the label",
    "agreement_certain": f"the same, entropy below {CERTAIN}",
}
GRID_POINTS = 400
# upper ends of the axes in nats
ENTROPY_END, CROSS_END = 1.2, 3.0
# below this density there are only single outputs out of ten thousand
MIN_DENSITY = 1e-3


def report(view: PaperView) -> ArtifactReport:
    (oracle,) = view.measurements("oracle")
    records = {record.method: record for record in view.measurements("realism")}
    accuracy = oracle.values["accuracy"]
    theirs = paper.read()["other_numbers"]["oracle"]["mnist_test_accuracy_percent"]
    description = (
        f"LeNet-5 with a test accuracy of {100 * accuracy['value']:.2f} % (n = {accuracy['n']:,}); "
        f"the paper's has {theirs:.2f} %"
    )
    return ArtifactReport(
        [_draw(view, {m: view.store.arrays(record) for m, record in records.items()}, description)],
        {"realism": _table(records, description)},
        _verdict(records),
    )


def _draw(view: PaperView, arrays: dict[str, dict[str, Tensor]], oracle: str) -> Picture:
    with drawing(10.4, 8.6) as figure:
        halves: Any = figure.subfigures(2, 1, height_ratios=[1.0, 1.45], hspace=0.02)
        top, bottom = halves
        for axes, (method, title) in zip(top.subplots(1, 3), TITLES.items(), strict=True):
            _draw_mosaic(axes, arrays[method]["shown"])
            axes.set_title(title)
        left, right = bottom.subfigures(1, 2, width_ratios=[1.0, 1.15], wspace=0.03)
        _draw_examples(left, arrays)
        _draw_densities(right.subplots(3, 1), arrays)
        return finish(
            view,
            figure,
            "mnist",
            alt="Digits before and after mixing by mixup and ζ-mixup, their soft labels, and "
            "densities of the oracle's entropy and cross entropy for both methods.",
            caption="(a) The first ten images of each class, (b, c) the outputs in the same "
            "positions, 25 images per batch. (d, e) Soft labels as bars: the mixup outputs where "
            "the oracle is most certain of a digit with label weight 0 (prediction as outline), "
            "and ζ-mixup's in the same rows. (f) Entropy of the oracle's prediction. (g) Cross "
            "entropy of prediction and label, (h) for outputs with entropy below "
            f"{CERTAIN} only. Further left is better. Adaptive kernel densities over "
            f"{len(arrays['none']['entropies']):,} outputs of test images; the oracle is {oracle}.",
        )


def _draw_mosaic(axes: Axes, images: Tensor) -> None:
    """All images in a square, a row per class."""
    side = images.shape[-1]
    across = round(len(images) ** 0.5)
    down = len(images) // across
    tiles = images[: down * across].view(down, across, side, side)
    whole = tiles.permute(0, 2, 1, 3).reshape(down * side, across * side)
    axes.imshow(whole.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="none")
    bare(axes)


def _draw_examples(figure: SubFigure, arrays: dict[str, dict[str, Tensor]]) -> None:
    count = len(arrays[MIXUP]["examples"])
    axes: Any = figure.subplots(4, count, height_ratios=[1.5, 1, 1.5, 1])
    for row, method, letter in ((0, MIXUP, "d"), (2, ZETA, "e")):
        parts = arrays[method]
        for column in range(count):
            image = axes[row, column]
            image.imshow(parts["examples"][column].numpy(), cmap="gray", vmin=0, vmax=255)
            bare(image)
            target, prediction = parts["example_targets"], parts["example_predictions"]
            _draw_bars(axes[row + 1, column], target[column], prediction[column])
        axes[row, 0].set_title(f"({letter}) labels of {method_name(method)}")


def _draw_bars(axes: Axes, target: Tensor, prediction: Tensor) -> None:
    classes = range(len(target))
    axes.bar(classes, prediction.tolist(), width=0.9, fc="none", ec="#888888", lw=0.8)
    axes.bar(classes, target.tolist(), width=0.7, color=COLOURS[0])
    axes.set(ylim=(0, 1.05), yticks=[])
    axes.set_xticks(classes, map(str, classes), fontsize=7)
    axes.tick_params(length=0, pad=1)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def _draw_densities(panels: Any, arrays: dict[str, dict[str, Tensor]]) -> None:
    entropies = {method: parts["entropies"] for method, parts in arrays.items()}
    crosses = {method: parts["cross_entropies"] for method, parts in arrays.items()}
    certain = {method: crosses[method][entropies[method] < CERTAIN] for method in crosses}
    for axes, values, end, title in (
        (panels[0], entropies, ENTROPY_END, "(f) realism: entropy of the oracle, nats"),
        (panels[1], crosses, CROSS_END, "(g) correctness: cross entropy with the label, nats"),
        (panels[2], certain, CROSS_END, f"(h) the same, entropy below {CERTAIN}"),
    ):
        _draw_curves(axes, values, end)
        axes.set_title(title)
    panels[0].legend(loc="upper right", ncols=3)


def _draw_curves(axes: Axes, values: dict[str, Tensor], end: float) -> None:
    grid = torch.linspace(0, end, GRID_POINTS, dtype=torch.float64)
    highest = MIN_DENSITY
    for method, numbers in values.items():
        if len(numbers):
            curve = density(numbers, grid)
            axes.plot(grid, curve, label=_name(method), **STYLES[method])
            highest = max(highest, float(curve.max()))
    axes.set(xlim=(0, end), ylabel="density")
    if highest > MIN_DENSITY:
        axes.set(yscale="log", ylim=(MIN_DENSITY, 3 * highest))


def _name(method: str) -> str:
    return "originals" if method == "none" else method_name(method)


def _table(records: dict[str, Measurement], oracle: str) -> Table:
    rows: list[list[Cell | Plain]] = [
        [
            name,
            *(
                estimate_cell(record.values[key], "standard_error", digits=3)
                for record in records.values()
            ),
        ]
        for key, name in MEASURES.items()
    ]
    notes = [
        f"Mean ± standard error over outputs of the test split. The oracle is {oracle}.",
        "Cross entropy of prediction and label: −Σ prediction · log label, with label weights of 0 "
        f"replaced by {FLOOR:g} (up to 16 nats, which dominate mixup's mean); of label and "
        "prediction: −Σ label · log prediction, which penalises soft labels. The paper shows "
        "densities without numbers.",
    ]
    columns = [Column("measure"), *(Column(_name(method)) for method in records)]
    return Table(columns, rows, "Realism and label correctness on MNIST", notes)


def is_lower(records: dict[str, Measurement]) -> dict[str, bool]:
    """Whether ζ-mixup is lower, which is better, than mixup, by measure."""
    mixup, zeta = records[MIXUP].values, records[ZETA].values
    keys = ("oracle_entropy", "cross_entropy", "loss")
    return {key: zeta[key]["value"] < mixup[key]["value"] for key in keys}


def _verdict(records: dict[str, Measurement]) -> Verdict:
    names: dict[bool, list[str]] = {True: [], False: []}
    for key, lower in is_lower(records).items():
        names[lower].append(MEASURES[key].removesuffix(", nats"))
    summary = f"ζ-mixup is lower (better) than mixup in {join(names[True]) or 'no measure'}"
    summary += f", not in {join(names[False], 'or')}" if names[False] else ""
    summary += ". The paper reports a lower cross entropy, but does not say which one it uses."
    return Verdict(status_of(list(is_lower(records).values())), [summary])
