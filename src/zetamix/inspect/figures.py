"""The three figures of an inspection: outputs, local dimension over γ, and densities."""

import textwrap
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from zetamix.inspect.run import Inspection, Subject
from zetamix.measure import density
from zetamix.measure.realism import CERTAIN
from zetamix.report import Picture, drawing, outputs, series_style
from zetamix.series import GAMMA_MIN

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
    shown = [inspection.original, *inspection.subjects]
    rows = [outputs.Outputs(each.label, each.shown, each.shown_targets) for each in shown]
    return outputs.draw_outputs(rows, inspection.classes)


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


def _level(axes: Axes, subject: Subject, index: int) -> None:
    found, style = subject.estimates["local_dimension"], series_style(index)
    axes.axhline(
        found.value, color=style["color"], linestyle=style["linestyle"], label=subject.label
    )
    low, high = found.value - found.spread, found.value + found.spread
    axes.axhspan(low, high, color=style["color"], alpha=0.08, lw=0)
