"""The figures of a comparison: differences, learning curves, mixed images."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from zetamix_lab.comparison import Comparison, metric_of
from zetamix_lab.report.compare_text import LEVEL
from zetamix_lab.report.figure import GREY, Picture, drawing, series_style
from zetamix_lab.text import printable

# the bars of more classes have no space for names
FEW_CLASSES = 12
# larger images are downscaled; fifty of 224 × 224 would make a page of 7 MB
MAX_IMAGE_SIDE = 96
# the free space beside an image and its bars, as a fraction of its width
GAP = 0.1


def draw_figures(comparison: Comparison) -> dict[str, Picture]:
    """All figures that there are results for, by name."""
    pictures = []
    if len(comparison.tests):
        pictures.append(draw_differences(comparison))
    # a finished run has a record even if its curve was deleted
    if comparison.curves and all(comparison.curves.values()):
        pictures.append(draw_curves(comparison))
    if comparison.dataset is not None and comparison.examples:
        examples = {comparison.name_of(label): own for label, own in comparison.examples.items()}
        pictures.append(draw_outputs(examples, comparison.dataset.classes))
    return {picture.name: picture for picture in pictures}


def draw_differences(comparison: Comparison) -> Picture:
    """The difference of every method from each baseline: seeds as dots, mean, interval."""
    metric, baselines = comparison.metric, comparison.baselines
    unit = ", points" if metric.percent else ""
    side = "right" if metric.sign > 0 else "left"
    with drawing(4.6 * len(baselines) + 0.6, 0.42 * len(comparison.methods) + 1.1) as figure:
        panels: Any = figure.subplots(1, len(baselines), squeeze=False)[0]
        for axes, baseline in zip(panels, baselines, strict=True):
            tests = comparison.differences(baseline)
            base = comparison.values(baseline, metric.name)
            for row, test in enumerate(tests.itertuples()):
                values = comparison.values(test.method, metric.name)
                seeds = [metric.scale(values[s] - base[s]) for s in values if s in base]
                colour = series_style(0)["color"] if test.significant else GREY
                fill = colour if test.significant else "white"
                style: Any = {"fmt": "D", "markersize": 6, "color": colour, "markerfacecolor": fill}
                error = None if math.isnan(test.high) else metric.scale(test.high - test.mean)
                axes.plot(seeds, [row + 0.24] * len(seeds), "o", ms=3, color=colour, alpha=0.6)
                axes.errorbar(metric.scale(test.mean), row, xerr=error, **style)
            axes.axvline(0, color="black", linewidth=1)
            axes.set_yticks(range(len(tests)), list(map(comparison.name_of, tests["method"])))
            axes.set_ylim(len(tests) - 0.5, -0.5)
            axes.grid(visible=False, axis="y")
            axes.set_title(f"minus {comparison.name_of(baseline)}")
            axes.set_xlabel(f"difference in {metric.title}{unit} ({side} is better)")
        return Picture.of(
            figure,
            "differences",
            alt=f"The differences in {metric.title}, with their intervals.",
            caption=f"Differences in {metric.title}. Small dots: seeds, paired. "
            f"Bars: {LEVEL} intervals of the mean, uncorrected. Filled: significant after Holm's "
            "correction.",
        )


def draw_curves(comparison: Comparison) -> Picture:
    """Primary metric and negative log-likelihood on the test split by epoch."""
    metrics = [comparison.metric, metric_of("nll")]
    with drawing(9.6, 3.8) as figure:
        panels: Any = figure.subplots(1, len(metrics))
        for axes, metric in zip(panels, metrics, strict=True):
            values = metric.scale(1) * comparison.curve("test", metric.name)
            by_method, epochs = values.T.groupby(level=0), values.index
            with np.errstate(invalid="ignore"):
                means, spreads = by_method.mean(), by_method.std().fillna(0)
            for index, label in enumerate(comparison.methods):
                mean, spread, style = means.loc[label], spreads.loc[label], series_style(index)
                every, name = max(1, len(epochs) // 8), comparison.name_of(label)
                axes.plot(epochs, mean, label=name, markevery=every, **style)
                band = mean - spread, mean + spread
                axes.fill_between(epochs, *band, color=style["color"], alpha=0.13, lw=0)
            if metric.name == "nll" and (means > 0).any(axis=None):
                # a spike does not flatten the rest
                axes.set_yscale("log")
            axes.set(title=metric.heading, xlabel="epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        return Picture.of(
            figure,
            "curves",
            alt=f"Learning curves of {metrics[0].title} and negative log-likelihood.",
            caption="Learning curves on the test split, mean over seeds; bands: one standard "
            "deviation.",
        )


def draw_outputs(rows: Mapping[str, tuple[Tensor, Tensor]], classes: Sequence[str]) -> Picture:
    """One row per method; the first shows the originals, the others their outputs in that order.

    rows: by method, images [shown, channels, height, width] and their targets [shown, classes].

    >>> images = torch.zeros(2, 1, 4, 4), torch.eye(2)
    >>> draw_outputs({"original": images, "mixup": images}, ["cat", "dog"]).name
    'outputs'
    """
    originals, _ = next(iter(rows.values()))
    columns, count = len(originals), len(classes)
    # black and white
    low, high = originals.min().item(), originals.max().item()
    levels = low, max(high, low + 1e-6)
    # of 10,000 classes, all bars would take minutes, and be thinner than a pixel
    places, width = torch.linspace(0, 1 - GAP, 2 * count + 1)[1::2], max(1 / count, 0.01)
    # squares of 0.8 inches, unless images are long and narrow
    side = 0.8 * min(2.0, max(0.25, originals.shape[2] / originals.shape[3]))
    with drawing(0.9 * columns + 1.2, (side + 0.5) * len(rows) + 0.5) as figure:
        ratios = [side, 0.4] * len(rows)
        axes: Any = figure.subplots(2 * len(rows), 1, sharex=True, height_ratios=ratios)
        for row, (name, (samples, targets)) in enumerate(rows.items()):
            pictures, bars = axes[2 * row : 2 * row + 2]
            pictures.imshow(_tile(samples, levels), extent=(0, columns, 0, 1), aspect="auto")
            pictures.set_ylabel(name, rotation=0, ha="right", va="center", fontweight="bold")
            column, label = targets.nonzero(as_tuple=True)
            x, heights = column + places[label], targets[column, label]
            bars.bar(x.tolist(), heights.tolist(), 0.8 * width, color=series_style(0)["color"])
            bars.set_ylim(0, 1)
        for panel in axes:
            panel.grid(visible=False)
            panel.set(xticks=[], yticks=[])
            panel.tick_params(length=0, pad=1)
            panel.spines[:].set_visible(False)
        if count <= FEW_CLASSES:
            below = [float(k + place) for k in range(columns) for place in places]
            rotation = 90 if max(map(len, classes)) > 1 else 0
            # of longer names the images would have no space
            names = [printable(name)[:24] for name in classes] * columns
            axes[-1].set_xticks(below, names, rotation=rotation, fontsize=6)
        return Picture.of(
            figure,
            "outputs",
            alt=f"Rows of images with bars for their soft labels: {', '.join(rows)}.",
            caption="Top row: originals, with classes in turn. Below: their outputs. Bars: the "
            "label, from 0 to 1 for each class.",
        )


def _tile(images: Tensor, levels: tuple[float, float]) -> Any:
    """[height, width, 3]: the images side by side, on white."""
    if (longest := max(images.shape[2:])) > MAX_IMAGE_SIDE:
        size = [max(1, round(side * MAX_IMAGE_SIDE / longest)) for side in images.shape[2:]]
        images = F.interpolate(images, size=size, mode="area")
    low, high = levels
    pixels = ((images - low) / (high - low)).clamp(0, 1)
    pixels = pixels if pixels.shape[1] == 3 else pixels[:, :1].expand(-1, 3, -1, -1)
    padded = F.pad(pixels, (0, round(GAP * pixels.shape[3])), value=1.0)
    return torch.cat([*padded], 2).permute(1, 2, 0).numpy()
