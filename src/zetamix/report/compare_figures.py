"""The figures of a comparison: differences, learning curves, confusion matrices, outputs."""

import math
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from zetamix.measure.statistics import Difference
from zetamix.metrics import METRICS
from zetamix.report import Picture, drawing, series_style
from zetamix.report.compare_text import LEVEL
from zetamix.report.figure import GREY
from zetamix.report.outputs import Outputs, draw_outputs
from zetamix.results.comparison import Comparison

# larger confusion matrices have no room for numbers, and then none for names
NUMBERED_CLASSES, NAMED_CLASSES = 12, 25
# the first epochs would flatten the ones that matter
SHOWN_FROM = 1 / 3


def draw_all(comparison: Comparison) -> dict[str, Picture]:
    """Every figure by name."""
    pictures = [draw_curves(comparison), draw_confusion(comparison), draw_shown(comparison)]
    if comparison.compared:
        pictures.insert(0, draw_differences(comparison))
    return {picture.name: picture for picture in pictures}


def draw_differences(comparison: Comparison) -> Picture:
    """Every method's difference to each reference: seeds as dots, mean, interval."""
    metric, references = comparison.primary, comparison.baselines
    rows = max(len(comparison.differences(reference)) for reference in references)
    with drawing(4.6 * len(references) + 0.6, 0.42 * rows + 1.5) as figure:
        axes: Any = figure.subplots(1, len(references), squeeze=False)[0]
        for place, reference in zip(axes, references, strict=True):
            differences = comparison.differences(reference)
            for row, found in enumerate(differences):
                _show_difference(place, row, found)
            place.axvline(0, color="black", linewidth=1)
            place.set_yticks(range(len(differences)), [each.method for each in differences])
            place.set_ylim(len(differences) - 0.5, -0.5)
            place.grid(visible=False, axis="y")
            place.set_title(f"minus {reference}")
            unit = ", points" if METRICS[metric].percent else ""
            side = "right" if METRICS[metric].higher_is_better else "left"
            place.set_xlabel(f"difference in {METRICS[metric].title}{unit} ({side} is better)")
        told = [
            f"{each.method} minus {reference} {METRICS[metric].format_difference(each.mean)}"
            for reference in references
            for each in comparison.differences(reference)
        ]
        return Picture.of(
            figure,
            "differences",
            alt=f"Mean differences in {METRICS[metric].title}: {'; '.join(told)}.",
            caption=f"Differences in {METRICS[metric].title} on the test split, paired by seed. "
            f"Small dots: seeds. Bars: {LEVEL} intervals of the mean, each by itself. Filled: "
            "significant after Holm.",
        )


def _show_difference(axes: Axes, row: int, found: Difference) -> None:
    factor = METRICS[found.metric].scale(1)
    colour = series_style(0)["color"] if found.significant else GREY
    seeds = [factor * value for value in found.values.values()]
    axes.plot(seeds, [row + 0.24] * len(seeds), "o", markersize=3, color=colour, alpha=0.6)
    if found.low is not None and found.high is not None:
        axes.plot([factor * found.low, factor * found.high], [row, row], "-", color=colour)
    axes.plot(
        [factor * found.mean],
        [row],
        "D",
        markersize=6,
        color=colour,
        markerfacecolor=colour if found.significant else "white",
    )


def draw_curves(comparison: Comparison) -> Picture:
    """The primary metric and the likelihood on the test split, epoch by epoch."""
    names = [comparison.primary, "nll"]
    seeds = max(len(comparison.values(label, names[0])) for label in comparison.methods)
    with drawing(9.6, 3.9) as figure:
        axes: Any = figure.subplots(1, 2)
        for place, metric in zip(axes, names, strict=True):
            limits = []
            for index, label in enumerate(comparison.methods):
                epochs, mean, spread = _curve(comparison, label, metric)
                limits += _plot_curve(place, index, label, epochs, mean, spread)
            _limit(place, limits)
            place.set_title(f"{METRICS[metric].heading}, test split")
            place.set_xlabel("epoch")
            place.xaxis.set_major_locator(MaxNLocator(integer=True))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        final = [
            f"{label} ends at {METRICS[names[0]].format(comparison.summary(label, names[0]).mean)}"
            for label in comparison.methods
        ]
        bands = "; bands: one standard deviation over seeds" if seeds > 1 else ""
        return Picture.of(
            figure,
            "curves",
            alt=f"Learning curves of {METRICS[names[0]].title} and negative log-likelihood: "
            f"{', '.join(final)}.",
            caption=f"Learning curves on the test split, mean over seeds{bands}. The axes suit the "
            "last two thirds of training.",
        )


def _curve(comparison: Comparison, label: str, metric: str) -> tuple[list[int], Tensor, Tensor]:
    """Epochs that were evaluated, mean and deviation over seeds in the units shown."""
    lines = [
        {line["epoch"]: line["test"][metric] for line in curve if "test" in line}
        for (method, _), curve in comparison.curves.items()
        if method == label
    ]
    epochs = sorted(set.intersection(*(set(line) for line in lines)))
    values = torch.tensor([[line[epoch] for epoch in epochs] for line in lines])
    values = METRICS[metric].scale(1) * values.double()
    spread = values.std(0) if len(lines) > 1 else torch.zeros(len(epochs), dtype=torch.float64)
    return epochs, values.mean(0), spread


def _plot_curve(
    axes: Axes, index: int, label: str, epochs: list[int], mean: Tensor, spread: Tensor
) -> list[float]:
    """Draw one method; the values that the axes should show."""
    style = series_style(index)
    low, high = (mean - spread).tolist(), (mean + spread).tolist()
    axes.plot(epochs, mean.tolist(), label=label, markevery=max(1, len(epochs) // 8), **style)
    axes.fill_between(epochs, low, high, color=style["color"], alpha=0.13, lw=0)
    late = [place for place, epoch in enumerate(epochs) if epoch >= SHOWN_FROM * epochs[-1]]
    return [value for place in late for value in (low[place], high[place])]


def _limit(axes: Axes, values: list[float]) -> None:
    known = [value for value in values if math.isfinite(value)]
    if known and max(known) > min(known):
        margin = 0.05 * (max(known) - min(known))
        # none of these measures is ever below 0
        axes.set_ylim(max(0.0, min(known) - margin), max(known) + margin)


def draw_confusion(comparison: Comparison) -> Picture:
    """One matrix for each method, over all seeds."""
    methods, classes = comparison.methods, comparison.dataset.classes
    columns = min(3, len(methods))
    rows = -(-len(methods) // columns)
    size = 2.9 if len(classes) <= NAMED_CLASSES else 2.6
    with drawing(size * columns + 0.5, (size + 0.3) * rows) as figure:
        axes: Any = figure.subplots(rows, columns, squeeze=False)
        for place in axes.flat[len(methods) :]:
            place.set_axis_off()
        drawn = None
        for place, label in zip(axes.flat, methods, strict=False):
            drawn = _show_matrix(place, comparison.confusion(label).sum(0), classes)
            place.set_title(label)
        for place in axes[:, 0]:
            place.set_ylabel("true class")
        for place in axes[-1]:
            place.set_xlabel("predicted class")
        if drawn is not None:
            figure.colorbar(drawn, ax=axes, shrink=0.6, label="% of the true class")
        wrong = [
            f"{label} is right about {100 * _accuracy(comparison, label):.1f} %"
            for label in methods
        ]
        return Picture.of(
            figure,
            "confusion",
            alt=f"Confusion matrices on the test split, one for each method: {', '.join(wrong)}.",
            caption="Confusion matrices on the test split after the last epoch, all seeds "
            "together, in % of each true class. The diagonal is what is recognised.",
        )


def _accuracy(comparison: Comparison, label: str) -> float:
    return comparison.summary(label, "accuracy").mean


def _show_matrix(axes: Axes, counts: Tensor, classes: tuple[str, ...]) -> Any:
    shares = 100 * counts.double() / counts.sum(1, keepdim=True).clamp_min(1)
    drawn = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100, interpolation="none")
    axes.grid(visible=False)
    if len(classes) <= NAMED_CLASSES:
        turned = 90 if max(len(name) for name in classes) > 2 else 0
        axes.set_xticks(range(len(classes)), classes, rotation=turned, fontsize=7)
        axes.set_yticks(range(len(classes)), classes, fontsize=7)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    axes.tick_params(length=0)
    if len(classes) <= NUMBERED_CLASSES:
        for row, values in enumerate(shares.tolist()):
            for column, share in enumerate(values):
                if share >= 0.05:
                    _write_share(axes, row, column, share)
    return drawn


def _write_share(axes: Axes, row: int, column: int, share: float) -> None:
    text = f"{share:.0f}" if share >= 10 else f"{share:.1f}"
    colour = "white" if share > 55 else "black"
    axes.text(column, row, text, ha="center", va="center", fontsize=5.5, color=colour)


def draw_shown(comparison: Comparison) -> Picture:
    """What every method hands to the model, originals first."""
    originals, *mixed = comparison.examples
    rows = [Outputs("original", originals.samples, originals.targets)]
    rows += [Outputs(each.method, each.samples, each.targets) for each in mixed]
    return draw_outputs(rows, comparison.dataset.classes)
