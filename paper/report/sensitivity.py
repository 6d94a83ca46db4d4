"""Error against γ, and the sweep over γ and weight decay."""

import math
from dataclasses import dataclass, field
from typing import Any

from paper.datasets import CATALOGUE
from paper.report.artifact_report import (
    INCONCLUSIVE,
    ArtifactReport,
    Verdict,
    blank,
    finish,
    gamma_of,
)
from paper.report.tables import summary_cell
from paper.results.record_store import PaperView
from zetamix.gamma import GAMMA_MIN
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix_lab.statistics import Summary, standard_error, summarise

# the grid of γ and a margin
GAMMA_LIMITS = (1.65, 5.15)


@dataclass(frozen=True)
class Curve:
    """Runs of one dataset and variant of the recipe."""

    dataset: str
    label: str
    grid: dict[float, list[RunRecord]] = field(default_factory=dict)
    """By γ."""
    sweep: dict[str, RunRecord] = field(default_factory=dict)
    """By key."""

    @property
    def title(self) -> str:
        return f"{CATALOGUE[self.dataset].title}, {self.label}"

    @property
    def errors(self) -> dict[float, Summary]:
        """Error in percent at every γ of the grid that was run."""
        return {
            gamma: summarise({run.cell.seed: 100 * run.last["error"] for run in runs})
            for gamma, runs in self.grid.items()
            if runs
        }


def report(view: PaperView) -> ArtifactReport:
    curves = _all_curves(view)
    tables = {"sensitivity": _table(curves)}
    pictures = [_draw(view, curves), *(_draw_sweep(view, s) for s in curves if len(s.sweep) > 1)]
    if not view.records:
        return ArtifactReport(pictures, tables)
    first = "The paper shows this figure without numbers to compare with."
    sentences = [_sentence(curve) for curve in curves if len(curve.errors) > 1]
    return ArtifactReport(pictures, tables, Verdict(INCONCLUSIVE, [first, *sentences]))


def _all_curves(view: PaperView) -> list[Curve]:
    curves: dict[tuple[str, str], Curve] = {}
    for cell in view.trainings:
        label = cell.variant.label
        curve = curves.setdefault((cell.dataset, label), Curve(cell.dataset, label))
        runs = view.store.runs_of(cell)
        if cell.in_sweep:
            curve.sweep.update((run.key, run) for run in runs)
        else:
            curve.grid[float(gamma_of(cell.method))] = runs
    return sorted(curves.values(), key=lambda curve: list(CATALOGUE).index(curve.dataset))


def _draw(view: PaperView, curves: list[Curve]) -> Picture:
    datasets = list(dict.fromkeys(curve.dataset for curve in curves))
    with drawing(4.8 * len(datasets), 3.5) as figure:
        panels: Any = figure.subplots(1, len(datasets), squeeze=False)
        for axes, dataset in zip(panels[0], datasets, strict=True):
            axes.set_title(CATALOGUE[dataset].title)
            own = [curve for curve in curves if curve.dataset == dataset and curve.errors]
            if not own:
                blank(axes)
                continue
            for index, curve in enumerate(own):
                means = [summary.mean for summary in curve.errors.values()]
                bars = [summary.sd or 0.0 for summary in curve.errors.values()]
                style = series_style(index)
                axes.errorbar(list(curve.errors), means, yerr=bars, label=curve.label, **style)
            axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
            axes.set(xlabel="γ", ylabel="error rate %", xlim=GAMMA_LIMITS)
            axes.legend(loc="best")
        return finish(
            view,
            figure,
            "sensitivity",
            alt="Error rate against γ from 1.8 to 5.0, a panel for each dataset.",
            caption="Error rate on the test split against γ, ResNet-18; bars: one standard "
            f"deviation over seeds. Dotted: {GAMMA_MIN:.5f}. The paper shows this figure without "
            "numbers.",
        )


def _table(curves: list[Curve]) -> Table:
    gammas = dict.fromkeys(gamma for curve in curves for gamma in curve.grid)
    rows = []
    for gamma in gammas:
        cells = [summary_cell(curve.errors.get(gamma), digits=2) for curve in curves]
        rows.append([Cell(gamma, digits=1), *cells])
    columns = [Column("γ"), *(Column(curve.title) for curve in curves)]
    note = "Error rate %, mean ± standard deviation over n seeds."
    return Table(columns, rows, "Error against γ", [note])


def _sentence(curve: Curve) -> str:
    errors = curve.errors
    best = min(errors, key=lambda gamma: errors[gamma].mean)
    worst = max(errors, key=lambda gamma: errors[gamma].mean)
    low = errors[best].mean
    text = (
        f"{curve.title}: error from {low:.2f} % at γ = {best} to {errors[worst].mean:.2f} % at "
        f"γ = {worst}."
    )
    if len(errors) < len(curve.grid):
        text += f" {len(errors)} of {len(curve.grid)} values of γ have been run."
    runs = curve.grid[best]
    deviation, seeds = errors[best].sd, errors[best].n
    if deviation is None:
        margin = 100 * (standard_error("error", runs[0].confusion) or 0.0)
        basis = "over test samples of one run; the variation between seeds is not included"
    else:
        margin, basis = deviation / math.sqrt(seeds), f"over {seeds} seeds"
    near = [str(gamma) for gamma, s in errors.items() if s.mean - low <= margin * (1 + 1e-9)]
    return (
        f"{text} Within one standard error of the best ({margin:.2f} points, {basis}): "
        f"γ = {', '.join(near)}."
    )


def _draw_sweep(view: PaperView, curve: Curve) -> Picture:
    runs = curve.sweep.values()
    gammas = [float(gamma_of(run.cell.method)) for run in runs]
    decays = [run.cell.recipe["weight_decay"] for run in runs]
    errors = [100 * run.last["error"] for run in runs]
    with drawing(6.0, 3.6) as figure:
        axes = figure.subplots()
        points = axes.scatter(gammas, decays, c=errors, cmap="cividis_r", s=26, lw=0)
        figure.colorbar(points, ax=axes, label="error rate %")
        axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
        axes.set(xlabel="γ", ylabel="weight decay", yscale="log", title=curve.title)
        label = curve.label.replace(", ", "-").replace(" ", "-")
        return finish(
            view,
            figure,
            f"sweep-{curve.dataset}-{label}",
            alt="Models as points over γ and weight decay, coloured by their error rate.",
            caption=f"{curve.title}: {len(curve.sweep)} models of the sweep "
            f"with their error on the test split. Dotted: {GAMMA_MIN:.5f}. Settings are "
            "drawn at random; the paper's come from a Bayesian search.",
        )
