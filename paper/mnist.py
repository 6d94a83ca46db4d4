"""MNIST: example outputs, their soft labels, and the predictions of a LeNet-5 oracle."""

from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from torch import Tensor

from paper import values as paper
from paper.context import Context
from paper.drawing import Result, bare, estimate_cell, finish, method_name
from paper.measure.estimate import mean_of
from paper.measure.realism import (
    CERTAIN,
    FLOOR,
    Oracle,
    density,
    judge,
    predict,
    train_oracle,
)
from paper.records import Measurement, MeasurementCell, View
from zetamix_lab.data.loader import Scale
from zetamix_lab.models import initialise
from zetamix_lab.report import Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS

MIXUP, ZETA = "mixup:1.0", "zeta:2.8"
METHODS = ("none", MIXUP, ZETA)
BATCH = 25
PER_CLASS = 10
EXAMPLES = 4
STYLES: dict[str, Any] = {
    "none": {"color": COLOURS[3], "linestyle": ":"},
    MIXUP: {"color": COLOURS[1], "linestyle": "--"},
    ZETA: {"color": COLOURS[0], "linestyle": "-"},
}
TITLES = ("(a) first images of each class", "(b) mixup", "(c) ζ-mixup (2.8)")
MEASURES_SHOWN = {
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


def cells() -> list[MeasurementCell]:
    oracle = MeasurementCell("oracle", "mnist", "none", recipe={"model": "lenet5", "epochs": 20})
    recipe = {"batch": BATCH, "per_class": PER_CLASS, "examples": EXAMPLES}
    return [oracle, *(MeasurementCell("realism", "mnist", m, recipe=recipe) for m in METHODS)]


def measure_oracle(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Train LeNet-5 on the training split; its accuracy is that on the test split."""
    dataset, recipe = context.dataset, cell.recipe
    train, test = dataset.splits["train"], dataset.splits["test"]
    oracle = train_oracle(
        train, dataset.num_classes, **recipe, seed=cell.seed, device=context.device
    )
    arrays = {f"model.{name}": part for name, part in oracle.model.state_dict().items()}
    arrays |= {"scale.mean": oracle.scale.mean, "scale.std": oracle.scale.std}
    right = predict(oracle, test.samples.to(context.device)).argmax(1).cpu() == test.labels
    trained = f"trained for {recipe['epochs']} epochs on {len(train):,} other samples"
    return {"accuracy": mean_of(right), "name": f"{recipe['model']}, {trained}", **arrays}


def load_oracle(context: Context) -> Oracle:
    """The oracle of the latest record, with its trained weights."""
    dataset, wanted = context.dataset, ("oracle", context.dataset.fingerprint)
    measured = [r for r in context.store.records.values() if isinstance(r, Measurement)]
    found = [record for record in measured if (record.kind, record.fingerprint) == wanted]
    if not found:
        raise ValueError(f"{dataset.name}: there is no record of kind oracle, which is needed.")
    record = found[-1]
    arrays = context.store.arrays(record)
    model = initialise(record.recipe["model"], dataset.num_classes, dataset.shape, record.seed)
    scale = Scale(arrays.pop("scale.mean"), arrays.pop("scale.std")).to(context.device)
    model.load_state_dict({name.removeprefix("model."): part for name, part in arrays.items()})
    return Oracle(model, scale).to(context.device).eval()


def measure_realism(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Outputs of training images to show, and of test images for the oracle to evaluate.

    The oracle was trained on the former, so it evaluates only the latter.
    """
    dataset, oracle = context.dataset, load_oracle(context)
    count = cell.recipe["per_class"]
    first = first_of_each_class(dataset.train.labels, dataset.num_classes, count)
    shown, shown_targets = context.mix(cell, dataset.train.keep(first))
    outputs, targets = context.mix(cell, dataset.splits["test"])
    realism = judge(oracle, outputs, targets)
    rows = confusing_rows(cell, oracle, context)
    return {
        **realism.summary(),
        "judged": "outputs of the test split",
        "shown": _to_bytes(shown),
        "shown_targets": shown_targets.half(),
        "entropies": realism.entropies.float(),
        "cross_entropies": realism.cross_entropies.float(),
        "examples": _to_bytes(outputs[rows]),
        "example_targets": targets[rows],
        "example_predictions": predict(oracle, outputs[rows]).softmax(1),
    }


def first_of_each_class(labels: Tensor, classes: int, count: int) -> Tensor:
    """Rows of the first `count` samples of each class, class after class."""
    return torch.cat([(labels == label).nonzero().squeeze(1)[:count] for label in range(classes)])


def confusing_rows(cell: MeasurementCell, oracle: Oracle, context: Context) -> Tensor:
    """Rows of the mixup outputs where the oracle is most certain of a class with label weight 0.

    The paper selects mixup outputs that look like another digit by eye; this is our rule. The same
    rows of the other methods are shown for comparison.
    """
    outputs, targets = context.mix(replace(cell, method=MIXUP), context.dataset.splits["test"])
    confidence, predicted = predict(oracle, outputs).softmax(1).max(1)
    is_excluded = targets.gather(1, predicted[:, None]).squeeze(1) == 0
    order = torch.where(is_excluded, confidence, -1.0).argsort(descending=True, stable=True)
    return order[: cell.recipe["examples"]]


def _to_bytes(images: Tensor) -> Tensor:
    return images.round().clamp(0, 255).to(torch.uint8).squeeze(1)


def draw(view: View) -> Result:
    (oracle,) = view.measurements("oracle")
    records = {record.method: record for record in view.measurements("realism")}
    found = oracle.values["accuracy"]
    theirs = paper.read()["other_numbers"]["oracle"]["mnist_test_accuracy_percent"]
    description = (
        f"LeNet-5 with a test accuracy of {100 * found['value']:.2f} % (n = {found['n']:,}); the "
        f"paper's has {theirs:.2f} %"
    )
    arrays = {method: view.store.arrays(record) for method, record in records.items()}
    return Result([_picture(arrays, description)], {"realism": _table(records, description)})


def _picture(arrays: dict[str, dict[str, Tensor]], oracle: str) -> Picture:
    with drawing(10.4, 8.6) as figure:
        halves: Any = figure.subfigures(2, 1, height_ratios=[1.0, 1.45], hspace=0.02)
        top, bottom = halves
        for axes, method, title in zip(top.subplots(1, 3), METHODS, TITLES, strict=True):
            _draw_mosaic(axes, arrays[method]["shown"])
            axes.set_title(title)
        left, right = bottom.subfigures(1, 2, width_ratios=[1.0, 1.15], wspace=0.03)
        _draw_examples(left, arrays)
        _draw_densities(right.subplots(3, 1), arrays)
        return finish(
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
        grid, highest = torch.linspace(0, end, GRID_POINTS, dtype=torch.float64), 0.0
        for method, numbers in values.items():
            if len(numbers):
                curve = density(numbers, grid)
                axes.plot(grid, curve, label=_name(method), **STYLES[method])
                highest = max(highest, float(curve.max()))
        axes.set(xlim=(0, end), ylabel="density", title=title)
        if highest > MIN_DENSITY:
            axes.set(yscale="log", ylim=(MIN_DENSITY, 3 * highest))
    panels[0].legend(loc="upper right", ncols=3)


def _name(method: str) -> str:
    return "originals" if method == "none" else method_name(method)


def _table(records: dict[str, Measurement], oracle: str) -> Table:
    frame = pd.DataFrame({"measure": list(MEASURES_SHOWN.values())})
    for method, record in records.items():
        values = (record.values[key] for key in MEASURES_SHOWN)
        frame[_name(method)] = [estimate_cell(v, "standard_error", digits=3) for v in values]
    notes = [
        f"Mean ± standard error over outputs of the test split. The oracle is {oracle}.",
        "Cross entropy of prediction and label: −Σ prediction · log label, with label weights of 0 "
        f"replaced by {FLOOR:g} (up to 16 nats, which dominate mixup's mean); of label and "
        "prediction: −Σ label · log prediction, which penalises soft labels. The paper shows "
        "densities without numbers and reports a lower cross entropy for ζ-mixup, but does not say "
        "which one it uses.",
    ]
    return Table.of(frame, "Realism and label correctness on MNIST", notes)
