"""Error against γ, and the sweep over γ and weight decay."""

import math
from dataclasses import dataclass, field
from typing import Any

from zetamix.data import CATALOGUE
from zetamix.gamma import GAMMA_MIN
from zetamix.measure.statistics import Summary, standard_error, summarise
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix.report.paper.comparisons import summary_cell
from zetamix.report.paper.style import blank, finish, gamma_of
from zetamix.report.paper.verdict import INCONCLUSIVE, ArtifactReport, Verdict
from zetamix.results.paper_view import PaperView

# the grid of γ and a margin
GAMMA_LIMITS = (1.65, 5.15)


@dataclass(frozen=True)
class Series:
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
    series = _all_series(view)
    tables = {"sensitivity": _table(series)}
    pictures = [_draw(view, series), *(_draw_sweep(view, s) for s in series if len(s.sweep) > 1)]
    if not view.records:
        return ArtifactReport(pictures, tables)
    first = "The paper shows this figure without numbers to compare with."
    sentences = [_sentence(each) for each in series if len(each.errors) > 1]
    return ArtifactReport(pictures, tables, Verdict(INCONCLUSIVE, [first, *sentences]))


def _all_series(view: PaperView) -> list[Series]:
    series: dict[tuple[str, str], Series] = {}
    for cell in view.trainings:
        label = cell.variant.label
        each = series.setdefault((cell.dataset, label), Series(cell.dataset, label))
        runs = view.store.runs_of(cell)
        if cell.in_sweep:
            each.sweep.update((run.key, run) for run in runs)
        else:
            each.grid[float(gamma_of(cell.method))] = runs
    return sorted(series.values(), key=lambda each: list(CATALOGUE).index(each.dataset))


def _draw(view: PaperView, series: list[Series]) -> Picture:
    datasets = list(dict.fromkeys(each.dataset for each in series))
    with drawing(4.8 * len(datasets), 3.5) as figure:
        panels: Any = figure.subplots(1, len(datasets), squeeze=False)
        for axes, dataset in zip(panels[0], datasets, strict=True):
            axes.set_title(CATALOGUE[dataset].title)
            own = [each for each in series if each.dataset == dataset and each.errors]
            if not own:
                blank(axes)
                continue
            for index, each in enumerate(own):
                means = [summary.mean for summary in each.errors.values()]
                bars = [summary.sd or 0.0 for summary in each.errors.values()]
                style = series_style(index)
                axes.errorbar(list(each.errors), means, yerr=bars, label=each.label, **style)
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


def _table(series: list[Series]) -> Table:
    gammas = dict.fromkeys(gamma for each in series for gamma in each.grid)
    rows = []
    for gamma in gammas:
        cells = [summary_cell(each.errors.get(gamma), digits=2) for each in series]
        rows.append([Cell(gamma, digits=1), *cells])
    columns = [Column("γ"), *(Column(each.title) for each in series)]
    note = "Error rate %, mean ± standard deviation over n seeds."
    return Table(columns, rows, "Error against γ", [note])


def _sentence(series: Series) -> str:
    errors = series.errors
    best = min(errors, key=lambda gamma: errors[gamma].mean)
    worst = max(errors, key=lambda gamma: errors[gamma].mean)
    low = errors[best].mean
    text = (
        f"{series.title}: error from {low:.2f} % at γ = {best} to {errors[worst].mean:.2f} % at "
        f"γ = {worst}."
    )
    if len(errors) < len(series.grid):
        text += f" {len(errors)} of {len(series.grid)} values of γ have been run."
    runs = series.grid[best]
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


def _draw_sweep(view: PaperView, series: Series) -> Picture:
    gammas, decays, errors = zip(*map(_setting, series.sweep.values()), strict=True)
    with drawing(6.0, 3.6) as figure:
        axes = figure.subplots()
        points = axes.scatter(gammas, decays, c=errors, cmap="cividis_r", s=26, lw=0)
        figure.colorbar(points, ax=axes, label="error rate %")
        axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
        axes.set(xlabel="γ", ylabel="weight decay", yscale="log", title=series.title)
        label = series.label.replace(", ", "-").replace(" ", "-")
        return finish(
            view,
            figure,
            f"sweep-{series.dataset}-{label}",
            alt="Models as points over γ and weight decay, coloured by their error rate.",
            caption=f"{series.title}: {len(series.sweep)} models of the sweep "
            f"with their error on the test split. Dotted: {GAMMA_MIN:.5f}. Settings are "
            "drawn at random from the paper's two distributions; the paper's come from a Bayesian "
            "search, which samples good ones more often.",
        )


def _setting(record: RunRecord) -> tuple[float, float, float]:
    """γ, weight decay and error in percent."""
    gamma, recipe = float(gamma_of(record.cell.method)), record.cell.recipe
    return gamma, float(recipe["weight_decay"]), 100 * record.last["error"]
