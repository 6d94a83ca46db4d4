"""The three figures of an inspection: outputs, local dimension over γ, and what the oracle says."""

import textwrap
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from zetamix.gamma import GAMMA_MIN
from zetamix.measure import density
from zetamix.measure.realism import CERTAIN
from zetamix.report import Picture, drawing, outputs, series_style
from zetamix.report.figure import COLOURS
from zetamix.results.inspection import Inspection, Subject

POINTS = 256
# below this a density of some hundred outputs is the tail of single ones
LEAST_DENSITY = 0.01
# how much of all values the axes of distributions show
SHOWN_SHARE = 0.97
# all figures are as wide, in inches
WIDTH = 10.2
# the curve over γ is of no single method: it has this colour to itself
CURVE = "#000000"


def draw_all(inspection: Inspection) -> list[Picture]:
    """Every figure that the inspection has the numbers for."""
    pictures = [draw_outputs(inspection), draw_dimension(inspection)]
    if inspection.oracle is not None:
        pictures.append(draw_realism(inspection, inspection.oracle.statement))
    return pictures


def styles(inspection: Inspection) -> dict[str, dict[str, Any]]:
    """Colour, line and marker of the originals and of every method, in all figures."""
    labels = [inspection.original.label, *(subject.label for subject in inspection.subjects)]
    colours = [colour for colour in COLOURS if colour != CURVE]
    # one further after each round: lines come round as often
    return {
        label: series_style(place)
        | {"color": colours[(place + place // len(colours)) % len(colours)]}
        for place, label in enumerate(labels)
    }


def draw_outputs(inspection: Inspection) -> Picture:
    """Originals beside outputs: images with their soft labels as bars, or points in a plane."""
    shown = [inspection.original, *inspection.subjects]
    rows = [outputs.Outputs(each.label, each.shown, each.shown_targets) for each in shown]
    return outputs.draw_outputs(rows, inspection.classes)


def draw_dimension(inspection: Inspection) -> Picture:
    """Local dimension against γ: ζ-mixup's with its methods on it, all others' as lines."""
    original, styled = inspection.original.estimates["local_dimension"], styles(inspection)
    with drawing(WIDTH, 4.0) as figure:
        axes = figure.subplots()
        _curve(axes, inspection)
        for subject in (inspection.original, *inspection.subjects):
            gamma = _gamma(subject)
            if gamma is None:
                _level(axes, subject, styled[subject.label])
            else:
                _point(axes, subject, gamma, styled[subject.label])
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
            f"standard deviation between points. At most {inspection.limit} can be found. Dotted: "
            "the γ from which one sample outweighs all others together, however many there are.",
        )


def draw_realism(inspection: Inspection, statement: str) -> Picture:
    """Densities of the oracle's entropy, of the cross entropy, and of it for certain outputs.

    Below each the share of outputs up to a value: it has no bandwidth to choose, and where five
    densities cross each other it still shows which method is ahead.
    """
    styled = styles(inspection)
    with drawing(WIDTH, 6.2) as figure:
        axes: Any = figure.subplots(2, 3, sharex="col", sharey="row", height_ratios=[1, 1.15])
        panels = distributions(inspection)
        for column, (name, panel) in zip(axes.T, panels.items(), strict=True):
            upper, lower = column
            for label in panel["shares"]:
                style = styled[label] | {"marker": ""}
                upper.plot(panel["grid"], panel["densities"][label], **style)
                percent = [100 * share for share in panel["shares"][label]]
                lower.plot(panel["grid"], percent, label=label, **style)
            if not panel["shares"]:
                lower.text(0.5, 0.5, "no such output", ha="center", transform=lower.transAxes)
            upper.set_title(textwrap.fill(name, 30))
            upper.set_yscale("log")
            lower.set_xlabel("nats")
            lower.set_ylim(0, 102)
        axes[0, 0].set_ylim(LEAST_DENSITY, 2 * _highest(panels))
        axes[0, 0].set_ylabel("density (logarithmic)")
        axes[1, 0].set_ylabel("outputs up to there, %")
        handles, labels = axes[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return Picture.of(
            figure,
            "realism",
            alt="Three columns for originals and each method: entropy of the oracle's prediction, "
            "cross entropy between prediction and label, and the latter for outputs that the "
            "oracle is certain about. Above densities, below the share of outputs up to a value.",
            caption=f"Above: densities over {inspection.judged:,} outputs of unseen samples; the "
            "further left, the better. Below: the share of outputs with at most so many nats; the "
            f"higher, the better. The largest {100 * (1 - SHOWN_SHARE):.0f} % of values lie beyond "
            f"the axes. Right: outputs with an entropy below {CERTAIN} alone. The oracle is "
            f"{statement}.",
        )


def distributions(inspection: Inspection) -> dict[str, dict[str, Any]]:
    """What the realism figure shows: for each panel a grid, densities and shares up to it."""
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
        grid = torch.linspace(0, max(top, 0.05), POINTS, dtype=torch.float64)
        shares = {label: share_up_to(values, grid).tolist() for label, values in known.items()}
        densities = {label: density(values, grid).tolist() for label, values in known.items()}
        drawn[name] = {"grid": grid.tolist(), "densities": densities, "shares": shares}
    return drawn


def _highest(panels: dict[str, dict[str, Any]]) -> float:
    """Of all densities."""
    curves = [curve for panel in panels.values() for curve in panel["densities"].values()]
    return max((max(curve) for curve in curves), default=1.0)


def share_up_to(values: Tensor, grid: Tensor) -> Tensor:
    """The share of `values` at or below each point of `grid`.

    >>> share_up_to(torch.tensor([3.0, 1.0]), torch.tensor([0.5, 1.0, 2.0, 3.0]))
    tensor([0.0000, 0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    ordered = values.double().sort().values
    return torch.searchsorted(ordered, grid.double(), right=True) / torch.tensor(
        len(values), dtype=torch.float64
    )


def _gamma(subject: Subject) -> float | None:
    """The γ of a method on the curve, which is ζ-mixup with nothing but its γ set."""
    name, _, value = subject.label.partition(":")
    try:
        return float(value) if name == "zeta" else None
    except ValueError:
        return None


def _curve(axes: Axes, inspection: Inspection) -> None:
    gammas = [gamma for gamma, _ in inspection.sweep]
    found = [estimate for _, estimate in inspection.sweep]
    axes.plot(gammas, [each.value for each in found], color=CURVE, label="ζ-mixup over γ", zorder=3)
    low = [each.value - each.spread for each in found]
    high = [each.value + each.spread for each in found]
    axes.fill_between(gammas, low, high, color=CURVE, alpha=0.1, lw=0)


def _point(axes: Axes, subject: Subject, gamma: float, style: dict[str, Any]) -> None:
    value = subject.estimates["local_dimension"].value
    shown = {"color": style["color"], "marker": style["marker"]}
    axes.plot([gamma], [value], linestyle="", markersize=8, label=subject.label, **shown)


def _level(axes: Axes, subject: Subject, style: dict[str, Any]) -> None:
    found = subject.estimates["local_dimension"]
    axes.axhline(
        found.value, color=style["color"], linestyle=style["linestyle"], label=subject.label
    )
    low, high = found.value - found.spread, found.value + found.spread
    axes.axhspan(low, high, color=style["color"], alpha=0.08, lw=0)
