"""The figure of originals and mixed outputs: images with soft labels as bars, or points."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix_lab.report.figure import Picture, drawing, series_style, short_name

# larger images are downscaled; fifty of 224 × 224 would make a page of 7 MB
MAX_IMAGE_SIDE = 96
# class names do not fit below the bars of more classes
NAMED_CLASSES = 12
# the free space beside an image and its bars, as a fraction of its width
GAP = 0.1

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
        if count <= NAMED_CLASSES:
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


def _draw_points(rows: Rows, classes: Sequence[str]) -> Picture:
    originals = next(iter(rows.values()))[0].flatten(1)
    plane, flat = _plane(originals), originals.shape[1] == 2
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


def _plane(points: Tensor) -> Tensor:
    """[d, 2]: the first two principal components; the second is zero for d = 1."""
    directions: Tensor = torch.linalg.svd(points - points.mean(0), full_matrices=False).Vh
    return F.pad(directions[:2].T, (0, max(0, 2 - len(directions))))
