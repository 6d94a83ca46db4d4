"""The figures of a comparison: differences, learning curves, confusion matrices, mixed outputs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from zetamix_lab.comparison import Comparison, metric_of
from zetamix_lab.report.compare_text import LEVEL
from zetamix_lab.report.figure import GREY, Picture, drawing, series_style, short_name
from zetamix_lab.text import join

# larger confusion matrices have no space for numbers, as bars have none for names, and still larger
# ones none for names
FEW_CLASSES, NAMED_CLASSES = 12, 25
# learning curves are scaled to what comes after this fraction of the epochs
SCALED_FROM = 1 / 3
# larger images are downscaled; fifty of 224 × 224 would make a page of 7 MB
MAX_IMAGE_SIDE = 96
# the free space beside an image and its bars, as a fraction of its width
GAP = 0.1
# label of a row: (samples [shown, channels, height, width] or [shown, d], targets)
Rows: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]


def draw_figures(comparison: Comparison) -> dict[str, Picture]:
    """All figures that there are results for, by name."""
    pictures = []
    if comparison.compared:
        pictures.append(draw_differences(comparison))
    # a finished run has a record even if its curve was deleted
    if comparison.curves and all(comparison.curves.values()):
        pictures.append(draw_curves(comparison))
    dataset = comparison.dataset
    if dataset is not None and not dataset.multi_label and comparison.has_confusion:
        pictures.append(draw_confusion(comparison))
    if dataset is not None and comparison.examples:
        examples = {comparison.name_of(label): own for label, own in comparison.examples.items()}
        pictures.append(draw_outputs(examples, dataset.classes))
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
    """Primary metric and negative log-likelihood by epoch, on the test and validation splits."""
    names, titles = [comparison.primary, "nll"], {"test": "test split", "val": "validation split"}
    curves = comparison.curves.values()
    splits = [s for s in titles if all(any(s in line for line in curve) for curve in curves)]
    rows = len(splits)
    with drawing(9.6, 3.3 * rows + 0.5) as figure:
        shared: Any = "row" if rows > 1 else False
        panels: Any = figure.subplots(rows, 2, sharey=shared).reshape(len(names), rows)
        for row, name in zip(panels, names, strict=True):
            late = list[Any]()
            for axes, split in zip(row, splits, strict=True):
                late += _draw_curves(axes, comparison, split, name)
                axes.set_title(f"{metric_of(name).heading}, {titles[split]}")
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            values = np.concatenate(late)
            values = values[np.isfinite(values)]
            if len(values) and np.ptp(values):
                # rare values far outside the range of all others are not shown
                low, high = np.percentile(values, [2, 98])
                margin = 0.1 * (high - low)
                # no metric is negative
                row[0].set_ylim(max(0.0, low - margin), high + margin)
        for axes in panels.flat[-2:]:
            axes.set_xlabel("epoch")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        several = comparison.summary["n"].max() > 1
        bands = "; bands: one standard deviation over seeds" if several else ""
        return Picture.of(
            figure,
            "curves",
            alt=f"Learning curves of {metric_of(names[0]).title} and negative log-likelihood.",
            caption=f"Learning curves on the {join([titles[s] for s in splits])}, mean over seeds"
            f"{bands}. Axes are scaled to the last two thirds of training; spikes exceed them.",
        )


def _draw_curves(axes: Axes, comparison: Comparison, split: str, name: str) -> list[Any]:
    """Draw a curve of each method; return the ends of their bands, which axes should cover."""
    late, scale = [], metric_of(name).scale(1)
    for index, label in enumerate(comparison.methods):
        runs = [
            pd.Series({line["epoch"]: scale * line[split][name] for line in curve if split in line})
            for (method, _), curve in comparison.curves.items()
            if method == label
        ]
        # epochs that every seed has
        values = pd.concat(runs, axis=1, join="inner")
        with np.errstate(invalid="ignore"):
            mean, spread = values.mean(axis=1, skipna=False), values.std(axis=1, skipna=False)
        epochs, spread = values.index, spread if len(runs) > 1 else 0.0
        style, band = series_style(index), (mean - spread, mean + spread)
        every = max(1, len(epochs) // 8)
        axes.plot(
            list(epochs), mean.tolist(), label=comparison.name_of(label), markevery=every, **style
        )
        axes.fill_between(epochs, *band, color=style["color"], alpha=0.13, lw=0)
        late += [edge[epochs >= SCALED_FROM * epochs[-1]] for edge in band]
    return late


def draw_confusion(comparison: Comparison) -> Picture:
    """A confusion matrix for each method, over all seeds."""
    methods, dataset = comparison.methods, comparison.dataset
    classes = () if dataset is None else dataset.classes
    columns = 2 if len(methods) == 4 else min(3, len(methods))
    rows = -(-len(methods) // columns)
    size = 2.9 if len(classes) <= NAMED_CLASSES else 2.6
    with drawing(size * columns + 0.5, (size + 0.3) * rows) as figure:
        panels: Any = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat[len(methods) :]:
            axes.set_axis_off()
        for axes, label in zip(panels.flat, methods, strict=False):
            seeds = [torch.tensor(run.confusion) for run in comparison.records_of(label)]
            image = _draw_matrix(axes, torch.stack(seeds).sum(0), classes)
            axes.set_title(comparison.name_of(label))
        names = map(comparison.name_of, methods)
        figure.supxlabel("predicted class", fontsize=9)
        figure.supylabel("true class", fontsize=9)
        figure.colorbar(image, ax=panels, shrink=0.6, label="% of the true class")
        return Picture.of(
            figure,
            "confusion",
            alt=f"Confusion matrices on the test split of {', '.join(names)}.",
            caption="Confusion matrices on the test split after the last epoch, summed over seeds, "
            "in % of each true class.",
        )


def _draw_matrix(axes: Axes, counts: Tensor, classes: tuple[str, ...]) -> Any:
    shares = 100 * counts.double() / counts.sum(1, keepdim=True).clamp_min(1)
    image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100, interpolation="none")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    names = [short_name(name) for name in classes if len(classes) <= NAMED_CLASSES]
    rotation = 90 if max(map(len, classes)) > 2 else 0
    axes.set_xticks(range(len(names)), names, rotation=rotation, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    if len(classes) <= FEW_CLASSES:
        for row, column in torch.nonzero(shares >= 0.05).tolist():
            share = float(shares[row, column])
            text, colour = f"{share:.{int(share < 10)}f}", "white" if share > 55 else "black"
            axes.text(column, row, text, color=colour, ha="center", va="center", fontsize=5.5)
    return image


def draw_outputs(rows: Rows, classes: Sequence[str]) -> Picture:
    """One row per method; the first shows the originals, the others their outputs in that order.

    >>> images = torch.zeros(2, 1, 4, 4), torch.eye(2)
    >>> draw_outputs({"original": images, "mixup": images}, ["cat", "dog"]).name
    'outputs'
    """
    samples, _ = next(iter(rows.values()))
    return _draw_images(rows, classes) if samples.ndim == 4 else _draw_points(rows)


def _draw_images(rows: Rows, classes: Sequence[str]) -> Picture:
    originals, _ = next(iter(rows.values()))
    columns, count = len(originals), len(classes)
    # black and white: 0 and 255 for bytes, else the extremes
    low, high = originals.min().item(), originals.max().item()
    is_bytes = low >= 0 and high <= 255 and torch.equal(originals, originals.round())
    levels = (0.0, 255.0) if is_bytes else (low, max(high, low + 1e-6))
    # of 10,000 classes, all bars would take minutes, and be thinner than a pixel
    places, width = torch.linspace(0, 1 - GAP, 2 * count + 1)[1::2], max(1 / count, 0.01)
    # squares of 0.8 inches, unless images are long and narrow
    side = 0.8 * min(2.0, max(0.25, originals.shape[2] / originals.shape[3]))
    with drawing(0.9 * columns + 1.2, (side + 0.5) * len(rows) + 0.5) as figure:
        ratios = [side, 0.4] * len(rows)
        axes: Any = figure.subplots(2 * len(rows), 1, sharex=True, height_ratios=ratios)
        for (name, (samples, targets)), pictures, bars in zip(
            rows.items(), axes[::2], axes[1::2], strict=True
        ):
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
            names = [*map(short_name, classes)] * columns
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


def _draw_points(rows: Rows) -> Picture:
    originals = next(iter(rows.values()))[0].flatten(1)
    flat, centred = originals.shape[1] == 2, originals - originals.mean(0)
    directions = torch.linalg.svd(centred, full_matrices=False).Vh
    # the second component of points of one number is zero
    plane = F.pad(directions[:2].T, (0, max(0, 2 - len(directions))))
    with drawing(2.1 * len(rows), 2.5) as figure:
        axes: Any = figure.subplots(1, len(rows), sharex=True, sharey=True, squeeze=False)
        for panel, (name, (samples, targets)) in zip(axes[0], rows.items(), strict=True):
            shown = samples.flatten(1)
            points, largest = shown if flat else shown @ plane, targets.argmax(1)
            for label in sorted(set(largest.tolist())):
                style = {key: series_style(label)[key] for key in ("color", "marker")}
                panel.scatter(*points[largest == label].T.numpy(), s=5, lw=0, **style)
            panel.set_title(name)
            panel.tick_params(labelsize=7)
        plane_text = "" if flat else ", in the plane of the originals' two principal components"
        return Picture.of(
            figure,
            "outputs",
            alt=f"Scatter plots{plane_text}: {', '.join(rows)}.",
            caption=f"{len(originals):,} originals and their outputs{plane_text}. "
            "Colour and marker: the largest class of the label.",
        )
