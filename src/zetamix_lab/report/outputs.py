"""The figure of originals and mixed outputs: images with soft labels as bars, or points."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from zetamix_lab.report.figure import Picture, drawing, series_style

# larger images are downscaled; fifty of 224 × 224 would make a page of 7 MB
MAX_IMAGE_SIDE = 96
# class names do not fit below the bars of more classes
NAMED_CLASSES = 12


# label of a row: (samples [shown, channels, height, width] or [shown, d], targets)
Rows: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]


def draw_outputs(rows: Rows, classes: Sequence[str]) -> Picture:
    """One row per method; the first shows the originals, the others their outputs in that order.

    >>> images = torch.zeros(2, 1, 4, 4), torch.eye(2)
    >>> draw_outputs({"original": images, "mixup": images}, ["cat", "dog"]).name
    'outputs'
    """
    samples, _ = next(iter(rows.values()))
    return _draw_images(rows, classes) if samples.ndim == 4 else _draw_points(rows, classes)


def _draw_images(rows: Rows, classes: Sequence[str]) -> Picture:
    originals, _ = next(iter(rows.values()))
    columns, levels = len(originals), _grey_levels(originals)
    left = 0.3 + 0.085 * max(map(len, rows))
    below = 0.12 + 0.06 * max(len(name) for name in classes) * (len(classes) <= NAMED_CLASSES)
    width, height = 0.9 * columns + left + 0.1, 1.35 * len(rows) + below + 0.1
    with drawing(width, height) as figure:
        # the constrained layout of 120 axes takes 1 s of 4 s
        figure.set_layout_engine("none")
        edges = {"left": left / width, "right": 1 - 0.05 / width}
        edges |= {"bottom": below / height, "top": 1 - 0.05 / height, "wspace": 0.08, "hspace": 0.1}
        axes: Any = figure.subplots(
            2 * len(rows),
            columns,
            squeeze=False,
            height_ratios=[2.4, 1] * len(rows),
            gridspec_kw=edges,
        )
        for row, (name, (samples, targets)) in enumerate(rows.items()):
            for column in range(columns):
                _show_image(axes[2 * row, column], samples[column], levels)
                _show_label(axes[2 * row + 1, column], targets[column])
            axes[2 * row, 0].set_ylabel(
                name, rotation=0, ha="right", va="center", fontweight="bold"
            )
        _name_classes(axes[-1], classes)
        return Picture.of(
            figure,
            "outputs",
            alt=f"Rows of images with bars for their soft labels: {', '.join(rows)}.",
            caption="Top row: originals, with classes in turn. Below: their outputs. Bars: the "
            "label, from 0 to 1 for each class.",
        )


def _draw_points(rows: Rows, classes: Sequence[str]) -> Picture:
    originals = next(iter(rows.values()))[0].flatten(1)
    plane, flat = _plane(originals), originals.shape[1] == 2
    with drawing(2.1 * len(rows), 2.5) as figure:
        axes: Any = figure.subplots(1, len(rows), sharex=True, sharey=True, squeeze=False)
        for panel, (name, (samples, targets)) in zip(axes[0], rows.items(), strict=True):
            shown = samples.flatten(1)
            points = (shown if flat else shown @ plane).numpy()
            largest = targets.argmax(1).numpy()
            for label in sorted(set(largest.tolist())):
                own, style = points[largest == label], series_style(label)
                panel.scatter(
                    own[:, 0], own[:, 1], s=5, lw=0, color=style["color"], marker=style["marker"]
                )
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


def _plane(points: Tensor) -> Tensor:
    """[d, 2]: the first two principal components; the second is zero for d = 1."""
    directions: Tensor = torch.linalg.svd(points - points.mean(0), full_matrices=False).Vh
    return F.pad(directions[:2].T, (0, max(0, 2 - len(directions))))


def _grey_levels(images: Tensor) -> tuple[float, float]:
    """The values to show as black and white: 0 and 255 for bytes, else the extremes."""
    low, high = images.min().item(), images.max().item()
    if low >= 0 and high <= 255 and torch.equal(images, images.round()):
        return 0.0, 255.0
    return low, max(high, low + 1e-6)


def _show_image(axes: Axes, image: Tensor, levels: tuple[float, float]) -> None:
    if max(image.shape[1:]) > MAX_IMAGE_SIDE:
        scale = MAX_IMAGE_SIDE / max(image.shape[1:])
        size = [max(1, round(scale * side)) for side in image.shape[1:]]
        image = F.interpolate(image[None], size=size, mode="area")[0]
    low, high = levels
    pixels = ((image - low) / (high - low)).clamp(0, 1).permute(1, 2, 0).numpy()
    if pixels.shape[2] == 3:
        axes.imshow(pixels, interpolation="none")
    else:
        axes.imshow(pixels[:, :, 0], cmap="gray", vmin=0, vmax=1, interpolation="none")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def _show_label(axes: Axes, target: Tensor) -> None:
    # of 10,000 classes, all bars would take minutes
    classes = target.nonzero().flatten()
    width = max(0.85, len(target) / 100)
    axes.bar(classes.tolist(), target[classes].tolist(), width, color=series_style(0)["color"])
    axes.set_ylim(0, 1)
    axes.set_xlim(-0.6, len(target) - 0.4)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _name_classes(axes: Any, classes: Sequence[str]) -> None:
    """Class names below the last row of bars, where they fit."""
    if len(classes) > NAMED_CLASSES:
        return
    rotation = 90 if max(len(name) for name in classes) > 1 else 0
    for panel in axes:
        panel.set_xticks(range(len(classes)), classes, rotation=rotation, fontsize=6)
        panel.tick_params(length=0, pad=1)
