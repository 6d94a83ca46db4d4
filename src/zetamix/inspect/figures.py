"""The three figures of an inspection: outputs, local dimension over γ, and densities."""

import textwrap
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

from zetamix.inspect.run import Inspection, Subject
from zetamix.measure import density
from zetamix.measure.realism import CERTAIN
from zetamix.report import Picture, drawing, series_style
from zetamix.series import GAMMA_MIN

# sides of images in the figure, which are embedded in the page: by their pixels, fifty of
# 224 × 224 could take 10 MB
LARGEST_IMAGE = 96
# more classes than this have no room for their names under a bar
NAMED_CLASSES = 12
DENSITY_POINTS = 256
# below this a density of some hundred outputs is the tail of single ones
LEAST_DENSITY = 0.01
# how much of all values the axes of densities show
SHOWN_SHARE = 0.97


def draw_all(inspection: Inspection) -> list[Picture]:
    """Every figure that the inspection has the numbers for."""
    pictures = [draw_outputs(inspection), draw_dimension(inspection)]
    if inspection.oracle is not None:
        pictures.append(draw_realism(inspection, inspection.oracle.statement))
    return pictures


def draw_outputs(inspection: Inspection) -> Picture:
    """Originals beside outputs: images with their soft labels as bars, or points in a plane."""
    if len(inspection.shape) == 3:
        return _draw_images(inspection)
    return _draw_points(inspection)


def _draw_images(inspection: Inspection) -> Picture:
    rows = [inspection.original, *inspection.subjects]
    columns = len(inspection.original.shown)
    with drawing(0.9 * columns + 1.2, 1.35 * len(rows) + 0.3) as figure:
        axes: Any = figure.subplots(
            2 * len(rows), columns, squeeze=False, height_ratios=[2.4, 1] * len(rows)
        )
        for row, subject in enumerate(rows):
            for column in range(columns):
                _show_image(axes[2 * row, column], subject.shown[column])
                _show_label(axes[2 * row + 1, column], subject.shown_targets[column])
            axes[2 * row, 0].set_ylabel(
                subject.label, rotation=0, ha="right", va="center", fontweight="bold"
            )
        _name_classes(axes[-1], inspection.classes)
        return Picture.of(
            figure,
            "outputs",
            alt=f"A row of originals, one of each class, and below it what {_listed(inspection)} "
            "make of each, with bars for the soft labels.",
            caption="Top row: originals, one of each class. Below: the output in the place of "
            "each. Bars: the share of each class in the label, from 0 to 1.",
        )


def _draw_points(inspection: Inspection) -> Picture:
    rows = [inspection.original, *inspection.subjects]
    plane = _plane(inspection.original.shown.flatten(1))
    flat = inspection.shape == (2,)
    with drawing(2.1 * len(rows), 2.5) as figure:
        axes: Any = figure.subplots(1, len(rows), sharex=True, sharey=True, squeeze=False)
        for place, subject in zip(axes[0], rows, strict=True):
            shown = subject.shown.flatten(1)
            points = (shown if flat else shown @ plane).numpy()
            heaviest = subject.shown_targets.argmax(1).numpy()
            for label in range(len(inspection.classes)):
                own, style = points[heaviest == label], series_style(label)
                place.scatter(
                    own[:, 0], own[:, 1], s=5, lw=0, color=style["color"], marker=style["marker"]
                )
            place.set_title(subject.label)
            place.tick_params(labelsize=7)
        seen_in = "" if flat else ", in the plane of the originals' two main directions"
        return Picture.of(
            figure,
            "outputs",
            alt=f"Scatter plots of originals and of the outputs of {_listed(inspection)}{seen_in}.",
            caption=f"{len(inspection.original.shown):,} originals and the output in the place of "
            f"each{seen_in}. Colour and marker: the heaviest class of the label.",
        )


def _plane(points: Tensor) -> Tensor:
    """[d, 2]: the two directions in which points vary most."""
    directions: Tensor = torch.linalg.svd(points - points.mean(0), full_matrices=False).Vh
    return directions[:2].T


def draw_dimension(inspection: Inspection) -> Picture:
    """Local dimension against γ, with mixup and the originals as lines."""
    original = inspection.original.estimates["local_dimension"]
    with drawing(7.2, 3.8) as figure:
        axes = figure.subplots()
        gammas = [gamma for gamma, _ in inspection.sweep]
        found = [estimate for _, estimate in inspection.sweep]
        style = series_style(0)
        axes.plot(gammas, [each.value for each in found], label="ζ-mixup", **style)
        low = [each.value - each.spread for each in found]
        high = [each.value + each.spread for each in found]
        axes.fill_between(gammas, low, high, color=style["color"], alpha=0.15, lw=0)
        others = [s for s in inspection.subjects if not s.label.startswith("zeta")]
        for index, subject in enumerate([inspection.original, *others], start=1):
            _level(axes, subject, index)
        axes.axvline(GAMMA_MIN, color="black", linestyle=":", linewidth=1.2)
        place = ("data", "axes fraction")
        axes.annotate(f"  {GAMMA_MIN:.5f}", (GAMMA_MIN, 0.99), xycoords=place, va="top", size=8)
        axes.set_xlabel("γ")
        axes.set_ylabel(f"local dimension, {inspection.neighbours} neighbours")
        axes.legend(loc="best")
        curve = ", ".join(f"{each.value:.1f} at γ = {gamma:g}" for gamma, each in inspection.sweep)
        return Picture.of(
            figure,
            "dimension",
            alt=f"Local dimension of ζ-mixup's outputs: {curve}. Originals: {original.value:.1f}.",
            caption=f"Local dimension, mean over {inspection.samples:,} outputs; bands: one "
            "standard deviation between points. Dotted: the γ from which one sample outweighs "
            "all others together, however many there are.",
        )


def draw_realism(inspection: Inspection, statement: str) -> Picture:
    """Densities of the oracle's entropy, of the cross entropy, and of it for certain outputs."""
    with drawing(10.2, 3.6) as figure:
        axes: Any = figure.subplots(1, 3)
        for place, (name, panel) in zip(axes, densities(inspection).items(), strict=True):
            for index, (label, values) in enumerate(panel["densities"].items()):
                style = series_style(index) | {"marker": ""}
                place.plot(panel["grid"], values, label=label, **style)
            highest = max((max(values) for values in panel["densities"].values()), default=1.0)
            place.set_title(textwrap.fill(name, 30))
            place.set_xlabel("nats")
            place.set_yscale("log")
            place.set_ylim(LEAST_DENSITY, 2 * highest)
        axes[0].set_ylabel("density (logarithmic)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return Picture.of(
            figure,
            "realism",
            alt="Three panels of densities for originals and each method: entropy of the oracle's "
            "prediction, cross entropy between prediction and label, and the latter for outputs "
            "that the oracle is certain about. Lower values are better.",
            caption=f"Densities over {inspection.judged:,} outputs of unseen samples; lower values "
            f"are better. The largest {100 * (1 - SHOWN_SHARE):.0f} % lie beyond the axes. Right: "
            f"outputs with an entropy below {CERTAIN} alone. The oracle is {statement}.",
        )


def densities(inspection: Inspection) -> dict[str, dict[str, Any]]:
    """What the realism figure shows: for each panel a grid, and a density for each subject."""
    rows = [inspection.original, *inspection.subjects]
    judged = [(row.label, row.judgement) for row in rows if row.judgement is not None]
    panels: dict[str, dict[str, Tensor]] = {
        "entropy of the oracle": {label: found.entropies for label, found in judged},
        "cross entropy, oracle and label": {
            label: found.cross_entropies for label, found in judged
        },
        f"the same, entropy below {CERTAIN}": {
            label: found.cross_entropies[found.certain] for label, found in judged
        },
    }
    drawn = {}
    for name, panel in panels.items():
        known = {label: values.cpu() for label, values in panel.items() if len(values)}
        # a few outliers would flatten everything else
        top = float(torch.cat(list(known.values())).quantile(SHOWN_SHARE)) if known else 1.0
        grid = torch.linspace(0, max(top, 0.05), DENSITY_POINTS, dtype=torch.float64)
        curves = {label: density(values, grid).tolist() for label, values in known.items()}
        drawn[name] = {"grid": grid.tolist(), "densities": curves}
    return drawn


def _listed(inspection: Inspection) -> str:
    return ", ".join(subject.label for subject in inspection.subjects)


def _level(axes: Axes, subject: Subject, index: int) -> None:
    found, style = subject.estimates["local_dimension"], series_style(index)
    axes.axhline(
        found.value, color=style["color"], linestyle=style["linestyle"], label=subject.label
    )
    low, high = found.value - found.spread, found.value + found.spread
    axes.axhspan(low, high, color=style["color"], alpha=0.08, lw=0)


def _show_image(axes: Axes, image: Tensor) -> None:
    if max(image.shape[1:]) > LARGEST_IMAGE:
        scale = LARGEST_IMAGE / max(image.shape[1:])
        image = F.interpolate(image[None], scale_factor=scale, mode="area")[0]
    pixels = (image / 255).clamp(0, 1).permute(1, 2, 0).numpy()
    if pixels.shape[2] == 1:
        axes.imshow(pixels[:, :, 0], cmap="gray", vmin=0, vmax=1, interpolation="none")
    else:
        axes.imshow(pixels[:, :, :3], interpolation="none")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def _show_label(axes: Axes, target: Tensor) -> None:
    axes.bar(range(len(target)), target.tolist(), width=0.85, color=series_style(0)["color"])
    axes.set_ylim(0, 1)
    axes.set_xlim(-0.6, len(target) - 0.4)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _name_classes(axes: Any, classes: tuple[str, ...]) -> None:
    """Names under the lowest row of bars, where they fit."""
    if len(classes) > NAMED_CLASSES:
        return
    turned = 90 if max(len(name) for name in classes) > 1 else 0
    for place in axes:
        place.set_xticks(range(len(classes)), classes, rotation=turned, fontsize=6)
        place.tick_params(length=0, pad=1)
