"""Error against γ, and the sweep over γ and weight decay."""

import math
from dataclasses import dataclass
from typing import Any

from zetamix.data import CATALOGUE
from zetamix.gamma import GAMMA_MIN
from zetamix.measure.statistics import Summary, standard_error
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix.report.paper.comparisons import Row, summary_cell
from zetamix.report.paper.style import blank, finish, gamma_of
from zetamix.report.paper.verdict import INCONCLUSIVE, ArtifactReport, Verdict
from zetamix.results.paper_cells import TrainingCell, Variant
from zetamix.results.paper_view import PaperView

# the grid of γ and a margin
GAMMA_LIMITS = (1.65, 5.15)


@dataclass(frozen=True)
class Series:
    """Runs of one dataset and variant: the grid over γ, and the sweep."""

    dataset: str
    variant: Variant
    grid: dict[float, Row]
    sweep: list[RunRecord]
    sweep_size: int

    @property
    def title(self) -> str:
        return f"{CATALOGUE[self.dataset].title}, {self.variant.label}"

    @property
    def errors(self) -> dict[float, Summary]:
        """Error in percent at every γ of the grid that was run."""
        summaries = {g: row.summary(self.variant, "error") for g, row in self.grid.items()}
        return {gamma: summary for gamma, summary in summaries.items() if summary is not None}


def report(view: PaperView) -> ArtifactReport:
    series = _all_series(view)
    tables = {"sensitivity": _table(series)}
    pictures = [_draw(view, series), *(_draw_sweep(view, s) for s in series if len(s.sweep) > 1)]
    sentences = [_sentence(each) for each in series if len(each.errors) > 1]
    if not view.records:
        return ArtifactReport(pictures, tables)
    first = "The paper shows this figure without numbers to compare with."
    return ArtifactReport(pictures, tables, Verdict(INCONCLUSIVE, [first, *sentences]))


def _all_series(view: PaperView) -> list[Series]:
    cells: dict[tuple[str, Variant], dict[tuple[object, ...], TrainingCell]] = {}
    for cell in view.trainings:
        key = cell.in_sweep, cell.method, cell.recipe.weight_decay
        cells.setdefault((cell.dataset, cell.variant), {}).setdefault(key, cell)
    series = []
    for (dataset, variant), group in cells.items():
        grid = {
            float(gamma_of(cell.method)): Row(
                view.artifact,
                dataset,
                cell.model,
                cell.method,
                {variant: view.store.runs_of(cell)},
            )
            for cell in group.values()
            if not cell.in_sweep
        }
        in_sweep = [cell for cell in group.values() if cell.in_sweep]
        sweep = [record for cell in in_sweep for record in view.store.runs_of(cell)]
        series.append(Series(dataset, variant, grid, sweep, len(in_sweep)))
    return sorted(series, key=lambda each: list(CATALOGUE).index(each.dataset))


def _draw(view: PaperView, series: list[Series]) -> Picture:
    datasets = list(dict.fromkeys(each.dataset for each in series))
    with drawing(4.8 * len(datasets), 3.5) as figure:
        panels: Any = figure.subplots(1, len(datasets), squeeze=False)
        for axes, dataset in zip(panels[0], datasets, strict=True):
            axes.set_title(CATALOGUE[dataset].title)
            own = [each for each in series if each.dataset == dataset]
            for index, each in enumerate(own):
                errors = each.errors
                if errors:
                    seeds = max(summary.n for summary in errors.values())
                    epochs = "" if each.variant.epochs else ", all epochs"
                    label = f"{each.variant.label}{epochs}, {seeds} seed{'s'[: seeds > 1]}"
                    bars = [s.sd or 0.0 for s in errors.values()] if seeds > 1 else None
                    means = [summary.mean for summary in errors.values()]
                    axes.errorbar(
                        list(errors), means, yerr=bars, label=label, **series_style(index)
                    )
            if not any(each.errors for each in own):
                blank(axes)
                continue
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
    runs = series.grid[best].runs[series.variant]
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
    gammas, decays, errors = zip(*map(_setting, series.sweep), strict=True)
    with drawing(6.0, 3.6) as figure:
        axes = figure.subplots()
        points = axes.scatter(gammas, decays, c=errors, cmap="cividis_r", s=26, lw=0)
        figure.colorbar(points, ax=axes, label="error rate %")
        axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
        axes.set(xlabel="γ", ylabel="weight decay", yscale="log", title=series.title)
        label = series.variant.label.replace(", ", "-").replace(" ", "-")
        return finish(
            view,
            figure,
            f"sweep-{series.dataset}-{label}",
            alt="Models as points over γ and weight decay, coloured by their error rate.",
            caption=f"{series.title}: {len(series.sweep)} of {series.sweep_size} models of the "
            f"sweep with their error on the test split. Dotted: {GAMMA_MIN:.5f}. Settings are "
            "drawn at random from the paper's two distributions; the paper's come from a Bayesian "
            "search, which samples good ones more often.",
        )


def _setting(record: RunRecord) -> tuple[float, float, float]:
    """γ, weight decay and error in percent."""
    gamma, recipe = float(gamma_of(record.cell.method)), record.cell.recipe
    return gamma, float(recipe["weight_decay"]), 100 * record.last["error"]
