"""The figures of a comparison: differences, learning curves, confusion matrices."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from zetamix_lab.comparison import Comparison, metric_of
from zetamix_lab.report.compare_text import LEVEL
from zetamix_lab.report.figure import GREY, Picture, drawing, series_style
from zetamix_lab.report.outputs import draw_outputs
from zetamix_lab.text import join

# larger confusion matrices have no space for numbers, and still larger ones none for names
NUMBERED_CLASSES, NAMED_CLASSES = 12, 25
# with more classes, a class would have less than a pixel
DRAWN_CLASSES = 1000
# learning curves are scaled to what comes after this fraction of the epochs
SCALED_FROM = 1 / 3


def draw_figures(comparison: Comparison) -> dict[str, Picture]:
    """All figures that there are results for, by name."""
    pictures = []
    if comparison.compared:
        pictures.append(draw_differences(comparison))
    # a finished run has a record even if its curve was deleted
    if comparison.curves and all(comparison.curves.values()):
        pictures.append(draw_curves(comparison))
    dataset = comparison.dataset
    few = dataset is not None and not dataset.multi_label and dataset.num_classes <= DRAWN_CLASSES
    if few and comparison.records:
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
                seeds = [value - base[seed] for seed, value in values.items() if seed in base]
                _draw_difference(axes, row, test, seeds)
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
            caption=f"Differences in {metric.title} on the test split. Small dots: seeds, paired. "
            f"Bars: {LEVEL} intervals of the mean, uncorrected. Filled: significant after Holm's "
            "correction.",
        )


def _draw_difference(axes: Axes, row: int, test: Any, seeds: list[float]) -> None:
    scale = metric_of(test.metric).scale
    colour = series_style(0)["color"] if test.significant else GREY
    axes.plot(
        list(map(scale, seeds)), [row + 0.24] * len(seeds), "o", ms=3, color=colour, alpha=0.6
    )
    error = None if math.isnan(test.high) else scale(test.high - test.mean)
    fill = colour if test.significant else "white"
    style: Any = {"fmt": "D", "markersize": 6, "color": colour, "markerfacecolor": fill}
    axes.errorbar(scale(test.mean), row, xerr=error, **style)


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
            _limit(row[0], np.concatenate(late))
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


def _limit(axes: Axes, values: Any) -> None:
    """Scale an axis to its curves, without rare values far outside the range of all others."""
    values = values[np.isfinite(values)]
    if len(values) and np.ptp(values):
        low, high = np.percentile(values, [2, 98])
        margin = 0.1 * (high - low)
        # no metric is negative
        axes.set_ylim(max(0.0, low - margin), high + margin)


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
            image = _draw_matrix(axes, comparison.confusion(label), classes)
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
    names = classes if len(classes) <= NAMED_CLASSES else ()
    rotation = 90 if max(map(len, classes)) > 2 else 0
    axes.set_xticks(range(len(names)), names, rotation=rotation, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    if len(classes) <= NUMBERED_CLASSES:
        for row, column in torch.nonzero(shares >= 0.05).tolist():
            share = float(shares[row, column])
            text, colour = f"{share:.{int(share < 10)}f}", "white" if share > 55 else "black"
            axes.text(column, row, text, color=colour, ha="center", va="center", fontsize=5.5)
    return image
