"""MNIST: originals and outputs, soft labels, and densities of what the oracle says."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from torch import Tensor

from zetamix.measure import density
from zetamix.measure.realism import CERTAIN, FLOOR
from zetamix.records import Measurement
from zetamix.report import Cell, Column, Picture, Table, drawing
from zetamix.report.figure import COLOURS
from zetamix.report.paper.view import Answer, Drawn, View, agreement, bare, finish, method_name
from zetamix.results import paper_values as paper

STYLES: dict[str, Any] = {
    "none": {"color": COLOURS[3], "linestyle": ":"},
    "mixup:1.0": {"color": COLOURS[1], "linestyle": "--"},
    "zeta:2.8": {"color": COLOURS[0], "linestyle": "-"},
}
TITLES = {
    "none": "(a) first images of each class",
    "mixup:1.0": "(b) mixup",
    "zeta:2.8": "(c) ζ-mixup (2.8)",
}
MEASURES = {
    "oracle_entropy": "entropy of the oracle, nats",
    "certain_share": f"share with entropy below {CERTAIN}",
    "cross_entropy": "cross entropy with the label, nats",
    "cross_entropy_certain": f"the same, entropy below {CERTAIN}",
    "loss": "the other way round, as a loss has it, nats",
    "agreement": "oracle's class is the label's heaviest",
    "agreement_certain": f"the same, entropy below {CERTAIN}",
}
GRID_POINTS = 400
# where the axes of entropies and of cross entropies end, in nats
ENTROPY_END, CROSS_END = 1.2, 3.0
# below this the density of ten thousand outputs is that of single ones
LEAST_DENSITY = 1e-3


def draw(view: View) -> Drawn:
    oracle = next((record for _, record in view.measured("oracle")), None)
    found = {cell.method: record for cell, record in view.measured("realism") if record is not None}
    if oracle is None or set(found) != set(TITLES):
        return Drawn()
    arrays = {method: view.arrays(record) for method, record in found.items()}
    accuracy = oracle.values["accuracy"]
    said = (
        f"LeNet-5, right about {100 * accuracy['value']:.2f} % of the {accuracy['n']:,} test "
        f"images; the paper's reaches {_target():.2f} %"
    )
    picture = _draw(view, arrays, said)
    words = _verdict(found, accuracy["value"])
    answer = Answer(agreement(list(_lower(found).values())), words[0])
    return Drawn([picture], {"realism": _table(found, said)}, words, answer)


def _draw(view: View, arrays: dict[str, dict[str, Tensor]], said: str) -> Picture:
    judged = len(arrays["none"]["entropies"])
    beyond = {
        method: 100 * float((parts["cross_entropies"] > CROSS_END).float().mean())
        for method, parts in arrays.items()
    }
    with drawing(10.4, 8.6) as figure:
        halves: Any = figure.subfigures(2, 1, height_ratios=[1.0, 1.45], hspace=0.02)
        top, bottom = halves
        for axes, (method, title) in zip(top.subplots(1, 3), TITLES.items(), strict=True):
            _mosaic(axes, arrays[method]["shown"])
            axes.set_title(title)
        labels, densities = bottom.subfigures(1, 2, width_ratios=[1.0, 1.15], wspace=0.03)
        _examples(labels, arrays)
        _draw_densities(densities.subplots(3, 1), arrays)
        return finish(
            view,
            figure,
            "mnist",
            alt="Digits, what mixup and ζ-mixup make of them, soft labels as bars, and densities: "
            "ζ-mixup's outputs look like digits and mixup's like two at once; the oracle's entropy "
            "and the cross entropy with the label are lower for ζ-mixup.",
            caption="(a) The first ten images of each class, (b, c) the outputs in their places, "
            "25 mixed at a time. (d, e) Soft labels as bars: outputs of mixup of which the oracle "
            "is surest that they show a digit their label rules out (its prediction in outline), "
            "and ζ-mixup's in the same places; an outline of full height is 1. (f) Entropy of the "
            "oracle's prediction. (g) Cross entropy between prediction and label, (h) for outputs "
            f"with an entropy below {CERTAIN} alone. Further left is better. Densities on a "
            "logarithmic scale, by kernels that are the wider the sparser values are, over "
            f"{judged:,} outputs of test images; "
            f"{beyond['mixup:1.0']:.1f} % of mixup's and "
            f"{beyond['zeta:2.8']:.1f} % of ζ-mixup's lie beyond {CROSS_END:g} nats in (g): their "
            f"label has little or nothing of what the oracle sees. The oracle is {said}.",
        )


def _mosaic(axes: Axes, images: Tensor) -> None:
    """All images side by side, a row for each class."""
    side = images.shape[-1]
    across = round(len(images) ** 0.5)
    down = len(images) // across
    tiles = images[: down * across].view(down, across, side, side)
    whole = tiles.permute(0, 2, 1, 3).reshape(down * side, across * side)
    axes.imshow(whole.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="none")
    bare(axes)


def _examples(figure: SubFigure, arrays: dict[str, dict[str, Tensor]]) -> None:
    chosen = ("mixup:1.0", "zeta:2.8")
    count = len(arrays[chosen[0]]["examples"])
    axes: Any = figure.subplots(2 * len(chosen), count, height_ratios=[1.5, 1] * len(chosen))
    for block, (method, letter) in enumerate(zip(chosen, "de", strict=True)):
        parts = arrays[method]
        for column in range(count):
            image, bars = axes[2 * block, column], axes[2 * block + 1, column]
            image.imshow(parts["examples"][column].numpy(), cmap="gray", vmin=0, vmax=255)
            bare(image)
            _bars(bars, parts["example_targets"][column], parts["example_predictions"][column])
        axes[2 * block, 0].set_title(f"({letter}) labels of {method_name(method)}")


def _bars(axes: Axes, target: Tensor, prediction: Tensor) -> None:
    places = range(len(target))
    axes.bar(places, prediction.tolist(), width=0.9, fc="none", ec="#888888", lw=0.8)
    axes.bar(places, target.tolist(), width=0.7, color=COLOURS[0])
    axes.set_ylim(0, 1.05)
    axes.set_yticks([])
    axes.set_xticks(places, map(str, places), fontsize=7)
    axes.tick_params(length=0, pad=1)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def _draw_densities(panels: Any, arrays: dict[str, dict[str, Tensor]]) -> None:
    realism, correctness, certain = panels
    _curves(realism, {method: parts["entropies"] for method, parts in arrays.items()}, ENTROPY_END)
    realism.set_title("(f) realism: entropy of the oracle's prediction, nats")
    realism.legend(loc="upper right", ncols=3)
    crosses = {method: parts["cross_entropies"] for method, parts in arrays.items()}
    _curves(correctness, crosses, CROSS_END)
    correctness.set_title("(g) correctness: cross entropy of prediction and label, nats")
    are_certain = {method: parts["entropies"] < CERTAIN for method, parts in arrays.items()}
    _curves(
        certain, {method: crosses[method][are_certain[method]] for method in crosses}, CROSS_END
    )
    certain.set_title(f"(h) the same, entropy below {CERTAIN}")


def _curves(axes: Axes, values: dict[str, Tensor], end: float) -> None:
    grid = torch.linspace(0, end, GRID_POINTS, dtype=torch.float64)
    highest = LEAST_DENSITY
    for method, found in values.items():
        if len(found):
            curve = density(found, grid)
            label = "originals" if method == "none" else method_name(method)
            axes.plot(grid, curve, label=label, **STYLES[method])
            highest = max(highest, float(curve.max()))
    axes.set_xlim(0, end)
    if highest > LEAST_DENSITY:
        axes.set_yscale("log")
        axes.set_ylim(LEAST_DENSITY, 3 * highest)
    axes.set_ylabel("density")


def _table(found: dict[str, Measurement], said: str) -> Table:
    rows = []
    for key, name in MEASURES.items():
        cells = []
        for record in found.values():
            estimate = record.values[key]
            value, error = estimate["value"], estimate["standard_error"]
            cells.append(Cell(value, error=error, digits=3, note=f"n = {estimate['n']:,}"))
        rows.append([Cell(name), *cells])
    names = ["originals" if method == "none" else method_name(method) for method in found]
    notes = [
        f"Mean ± standard error over outputs of the test split. The oracle is {said}.",
        "Cross entropy: −Σ prediction · log label, the oracle's prediction taken for the truth, "
        f"where a class that the label rules out has a share of {FLOOR:g}: an output that shows "
        "such a class costs up to 16 nats, and mixup's mean depends on that. The other way round: "
        "−Σ label · log prediction, to which rich labels are wrong ones. The paper says “cross "
        "entropy of the Oracle's predictions with the soft labels”, and shows densities without "
        "numbers.",
    ]
    columns = [Column("measure"), *(Column(name) for name in names)]
    return Table(columns, rows, "Realism and label correctness on MNIST", notes)


def _lower(found: dict[str, Measurement]) -> dict[str, bool]:
    """Measure: whether it is lower, which is better, with ζ-mixup than with mixup."""
    mixup, zeta = (found[method].values for method in ("mixup:1.0", "zeta:2.8"))
    keys = ("oracle_entropy", "cross_entropy", "loss")
    return {key: zeta[key]["value"] < mixup[key]["value"] for key in keys}


def _verdict(found: dict[str, Measurement], accuracy: float) -> list[str]:
    mixup, zeta = (found[method].values for method in ("mixup:1.0", "zeta:2.8"))
    lower = _lower(found)

    def told(key: str) -> str:
        outcome = "lower" if lower[key] else "not lower"
        return f"{mixup[key]['value']:.3f} and {zeta[key]['value']:.3f}, {outcome}"

    words = [
        f"With mixup and with ζ-mixup: entropy {told('oracle_entropy')}; cross entropy of the "
        f"oracle's prediction with the label {told('cross_entropy')}; of the label with the "
        f"prediction {told('loss')}. The paper, which leaves open which of the two it takes, has "
        "ζ-mixup's lower."
    ]
    if 100 * accuracy < _target():
        words.append(
            f"The oracle is right about {100 * accuracy:.2f} % and not {_target():.2f} %: it is "
            "weaker than the paper's."
        )
    return words


def _target() -> float:
    """What the paper's oracle reaches on the test split, in percent."""
    return float(paper.read()["other_numbers"]["oracle"]["mnist_test_accuracy_percent"])
