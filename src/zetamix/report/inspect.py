"""The report of an inspection: tables, figures, one HTML page and one JSON file."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from zetamix.atomic_io import write_json, write_text
from zetamix.gamma import GAMMA_MIN
from zetamix.measure.realism import CERTAIN, FLOOR
from zetamix.report import Cell, Column, Picture, Section, Table, drawing, render_page, series_style
from zetamix.report.figure import GREY
from zetamix.report.inspect_text import cautions, summarise
from zetamix.report.outputs import draw_outputs
from zetamix.report.page import Block, Fold
from zetamix.results.inspection import Inspection, MeasuredOutputs

EXCLUDED = (
    f"Label probabilities of 0 are replaced by {FLOOR:g}, which costs up to "
    f"{-math.log(FLOOR):.0f} nats, so hard labels, including those of originals, are penalised "
    "more than soft ones when the oracle disagrees."
)
# name: (heading of the row, explanation)
MEASURES = {
    "local_dimension": ("local dimension", "number of directions in which neighbours vary"),
    "distance": (
        "distance to the nearest original",
        "1: the mean distance between an original and its nearest other original",
    ),
    "coverage": (
        "coverage",
        "fraction of originals with an output closer than their fifth nearest other original",
    ),
    "classes": ("classes per label", "classes with more than 1 % of a label"),
    "label_entropy": ("label entropy, nats", "0: one class; log(classes): uniform"),
    "effective_samples": ("effective samples", "1 / Σ w²: samples mixed into an output"),
    "oracle_entropy": ("oracle entropy, nats", "lower: looks more like one class"),
    "certain_share": ("oracle certain", f"fraction with an entropy below {CERTAIN}"),
    "cross_entropy": (
        "cross entropy, nats",
        "−Σ prediction log label; lower: the label agrees with the oracle's prediction",
    ),
    "cross_entropy_certain": ("… oracle certain", f"outputs with an entropy below {CERTAIN} only"),
    "agreement": ("label agreement", "the oracle predicts the label's largest class"),
    "agreement_certain": ("… oracle certain", f"outputs with an entropy below {CERTAIN} only"),
}
GRID_POINTS = 256
# fraction of all values that the axes of distributions cover
COVERED = 0.97
# width of all figures in inches
WIDTH = 10.2


def write_report(inspection: Inspection, out: Path, machine: Mapping[str, str]) -> Path:
    """Write `report.html`, `inspection.json` and `figures/`; return the path of the page.

    machine: from `zetamix.provenance.machine_info`.
    """
    pictures = draw_figures(inspection)
    for picture in pictures.values():
        picture.save(out / "figures")
    document = {
        "machine": dict(machine),
        **inspection.as_dict(),
        "cautions": cautions(inspection),
        "summary": [list(pair) for pair in summarise(inspection)],
    }
    if inspection.oracle is not None:
        document["distributions"] = distributions(inspection)
    write_json(out / "inspection.json", document)
    page = out / "report.html"
    write_text(page, _page(inspection, pictures, machine))
    return page


def make_table(inspection: Inspection) -> Table:
    """All measures of all methods, with the number of outputs and the standard error."""
    rows = []
    for name, (heading, explanation) in MEASURES.items():
        estimates = [row.estimates.get(name) for row in inspection.rows]
        counts = {estimate.n for estimate in estimates if estimate is not None}
        if not counts:
            continue
        # n is in its own column if all cells of the row share it, else in every cell
        shared = counts.pop() if len(counts) == 1 else None
        cells = [
            Cell(None)
            if estimate is None
            else Cell(
                estimate.value,
                error=estimate.error,
                n=None if shared is not None else estimate.n,
                note=f"n = {estimate.n:,}, standard deviation {estimate.spread:.3g}",
            )
            for estimate in estimates
        ]
        rows.append([Cell(heading, note=explanation), *cells, shared])
    labels = [row.label for row in inspection.rows]
    columns = [Column("measure"), *map(Column, labels), Column("n", "number of outputs")]
    notes = ["Mean ± standard error over n outputs, assumed independent."]
    if inspection.oracle is not None:
        notes.append(
            f"Oracle: {inspection.oracle.statement}. It judges only outputs of samples that it was "
            "not trained on."
        )
    notes += [f"Caution: {text}" for text in cautions(inspection).values()]
    return Table(columns, rows, f"{inspection.dataset}: {', '.join(labels)}", notes)


def draw_figures(inspection: Inspection) -> dict[str, Picture]:
    """All figures by name."""
    examples = {row.label: (row.examples, row.example_targets) for row in inspection.rows}
    pictures = [draw_outputs(examples, inspection.classes), draw_dimension(inspection)]
    if inspection.oracle is not None:
        pictures.append(draw_realism(inspection, inspection.oracle.statement))
    return {picture.name: picture for picture in pictures}


def row_styles(inspection: Inspection) -> dict[str, dict[str, Any]]:
    """Colour, line and marker of the originals and of every method, the same in all figures."""
    return {row.label: series_style(k) for k, row in enumerate(inspection.rows)}


def draw_dimension(inspection: Inspection) -> Picture:
    """Local dimension of ζ-mixup against γ; other methods are horizontal lines."""
    original, styles = inspection.original.estimates["local_dimension"], row_styles(inspection)
    with drawing(WIDTH, 4.0) as figure:
        axes = figure.subplots()
        gammas = [gamma for gamma, _ in inspection.sweep]
        sweep = [estimate for _, estimate in inspection.sweep]
        axes.plot(gammas, [e.value for e in sweep], color=GREY, label="ζ-mixup over γ", zorder=3)
        low, high = [e.value - e.spread for e in sweep], [e.value + e.spread for e in sweep]
        axes.fill_between(gammas, low, high, color=GREY, alpha=0.1, lw=0)
        for row in inspection.rows:
            _draw_row(axes, row, styles[row.label])
        axes.axvline(GAMMA_MIN, color="black", linestyle=":", linewidth=1.2)
        text, anchor = f"  GAMMA_MIN = {GAMMA_MIN:.5f}", ("data", "axes fraction")
        axes.annotate(text, (GAMMA_MIN, 0.99), xycoords=anchor, va="top", size=8)
        axes.set_xlabel("γ")
        axes.set_ylabel(f"local dimension, {inspection.neighbours} neighbours")
        axes.legend(loc="best")
        curve = ", ".join(f"{e.value:.1f} at γ = {gamma:g}" for gamma, e in inspection.sweep)
        return Picture.of(
            figure,
            "dimension",
            alt=f"Local dimension of ζ-mixup's outputs: {curve}. Originals: {original.value:.1f}.",
            caption=f"Local dimension, mean over {inspection.samples:,} outputs; bands: one "
            f"standard deviation between points. At most {inspection.limit} can be measured. "
            "Dotted: GAMMA_MIN, above which one sample outweighs all others together.",
        )


def _draw_row(axes: Axes, row: MeasuredOutputs, style: dict[str, Any]) -> None:
    """A marker on the curve for ζ-mixup with only γ set, a line with a band for other methods."""
    estimate = row.estimates["local_dimension"]
    name, _, gamma = row.label.partition(":")
    if name == "zeta" and gamma.replace(".", "", 1).isdigit():
        marker = {"color": style["color"], "marker": style["marker"], "zorder": 4}
        axes.plot([float(gamma)], [estimate.value], ls="", markersize=8, label=row.label, **marker)
        return
    axes.axhline(estimate.value, color=style["color"], ls=style["linestyle"], label=row.label)
    low, high = estimate.value - estimate.spread, estimate.value + estimate.spread
    axes.axhspan(low, high, color=style["color"], alpha=0.08, lw=0)


def draw_realism(inspection: Inspection, statement: str) -> Picture:
    """Cumulative distributions of the oracle's entropy and of the cross entropies."""
    styles = row_styles(inspection)
    with drawing(WIDTH, 3.7) as figure:
        panels: Any = figure.subplots(1, 3, sharey=True)
        for axes, (name, panel) in zip(panels, distributions(inspection).items(), strict=True):
            for label, shares in panel["shares"].items():
                percent = [100 * share for share in shares]
                axes.plot(panel["grid"], percent, label=label, **styles[label] | {"marker": ""})
            if not panel["shares"]:
                axes.text(0.5, 0.5, "no such outputs", ha="center", transform=axes.transAxes)
            axes.set_title(textwrap.fill(name, 30))
            axes.set_xlabel("nats")
            axes.set_ylim(0, 102)
        panels[0].set_ylabel("cumulative share of outputs, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return Picture.of(
            figure,
            "realism",
            alt="Cumulative distributions for originals and every method: entropy of the oracle's "
            "prediction, cross entropy between prediction and label, and the same for outputs of "
            "which the oracle is certain.",
            caption=f"Cumulative shares over {inspection.judged:,} outputs of unseen samples; "
            "higher is better: with low entropy an output looks like one class, with low cross "
            f"entropy its label agrees with the oracle. {EXCLUDED} The axes do not show the "
            f"largest {100 * (1 - COVERED):.0f} % of values. Right: only outputs with an entropy "
            f"below {CERTAIN}. Oracle: {statement}.",
        )


def distributions(inspection: Inspection) -> dict[str, dict[str, Any]]:
    """The data of the realism figure: a grid and cumulative shares for each panel."""
    judged = [(row.label, row.judgement) for row in inspection.rows if row.judgement is not None]
    panels: dict[str, dict[str, Tensor]] = {
        "oracle entropy": {label: j.entropies for label, j in judged},
        "cross entropy, oracle and label": {label: j.cross_entropies for label, j in judged},
        f"cross entropy, oracle entropy below {CERTAIN}": {
            label: j.cross_entropies[j.certain] for label, j in judged
        },
    }
    results = {}
    for name, panel in panels.items():
        values = {label: numbers.cpu() for label, numbers in panel.items() if len(numbers)}
        # a few outliers would compress everything else
        top = float(torch.cat(list(values.values())).quantile(COVERED)) if values else 1.0
        grid = torch.linspace(0, max(top, 0.05), GRID_POINTS, dtype=torch.float64)
        shares = {label: cumulative_share(v, grid).tolist() for label, v in values.items()}
        results[name] = {"grid": grid.tolist(), "shares": shares}
    return results


def cumulative_share(values: Tensor, grid: Tensor) -> Tensor:
    """The fraction of `values` at or below each point of `grid`.

    >>> cumulative_share(torch.tensor([3.0, 1.0]), torch.tensor([0.5, 1.0, 2.0, 3.0]))
    tensor([0.0000, 0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    ordered = values.double().sort().values
    return torch.searchsorted(ordered, grid.double(), right=True).double() / len(values)


def _page(
    inspection: Inspection, pictures: Mapping[str, Picture], machine: Mapping[str, str]
) -> str:
    dimension: Block = pictures["dimension"]
    if inspection.inconclusive:
        dimension = Fold("Figure (inconclusive)", [dimension])
    sections = [
        Section("Originals and outputs", [pictures["outputs"]]),
        Section("Local dimension", [dimension]),
        Section("All measures", [make_table(inspection)]),
        Section("Method", _method(inspection)),
    ]
    if "realism" in pictures:
        sections.insert(2, Section("Realism and label correctness", [pictures["realism"]]))
    title = f"{inspection.dataset}: quality of mixed samples"
    return render_page(title, sections, machine=machine, lead=summarise(inspection))


def _method(inspection: Inspection) -> list[str]:
    settings = inspection.settings
    batch_size = min(settings.batch_size, inspection.samples)
    paragraphs = [
        f"{inspection.samples:,} samples of the training split were mixed in random batches of "
        f"about {batch_size}, the same for every method (seed {settings.seed}), with one "
        "output per sample.",
        f"Local dimension: the number of principal components of the {inspection.neighbours} "
        "nearest outputs of the same method whose variance exceeds 5 % of the largest (Fukunaga "
        "and Olsen), as in Appendix C of the paper and in scikit-dimension. Distances and coverage "
        "use Euclidean distances between samples as stored.",
    ]
    if inspection.oracle is not None:
        paragraphs.append(
            f"Realism and label correctness: the oracle ({inspection.oracle.statement}) judges the "
            f"{inspection.judged:,} outputs of samples that it was not trained on. The cross "
            "entropy takes its prediction as the truth and evaluates the label."
        )
    return paragraphs + [f"Data: {note}." for note in inspection.notes]
