"""Error against γ, and the sweep over γ and weight decay."""

import math
from typing import Any

import pandas as pd
import torch

from paper.datasets import CATALOGUE
from paper.drawing import Result, finish, gamma_of, mean_cell
from paper.recipes import RECIPES
from paper.records import TrainingCell, View
from zetamix.gamma import GAMMA_MIN
from zetamix_lab.report import Cell, Picture, Table, drawing, series_style

DATASETS = ("cifar10", "cifar100")
# a second grid of CIFAR-10, which takes a seventh of the time
SHORT_EPOCHS = 30
GAMMAS = tuple(round(1.8 + 0.2 * step, 1) for step in range(17))
# the paper's sweep of each dataset: γ is uniform, weight decay log-uniform
SWEEP_MODELS = 200
SWEEP_GAMMA, SWEEP_WEIGHT_DECAY = (1.0, 6.0), (5e-5, 1e-3)
# the grid of γ and a margin
GAMMA_LIMITS = (1.65, 5.15)


def cells() -> list[TrainingCell]:
    """The grids over γ of a dataset before its sweep, which takes twelve times as long.

    The paper's sweep is a Bayesian search, which samples good settings more densely. This sweep
    draws from the same two distributions independently of results: each setting is an ordinary
    cell, and the first k are a sweep of k models, so that it can be stopped and resumed anywhere.
    """
    made = []
    for dataset in DATASETS:
        recipe = RECIPES[dataset]
        settings = [(gamma, recipe) for gamma in GAMMAS]
        if dataset == "cifar10":
            settings += [(gamma, recipe.change(epochs=SHORT_EPOCHS)) for gamma in GAMMAS]
        settings += [
            (gamma, recipe.change(weight_decay=weight_decay))
            for gamma, weight_decay in sweep_settings(SWEEP_MODELS)
        ]
        made += [TrainingCell(dataset, f"zeta:{gamma}", 0, recipe) for gamma, recipe in settings]
    return made


def sweep_settings(count: int) -> list[tuple[float, float]]:
    """Random (γ, weight decay), to four digits; a longer sweep begins with a shorter one.

    >>> sweep_settings(2)
    [(5.85, 0.0004167), (3.297, 0.0007887)]
    """
    generator = torch.Generator().manual_seed(0)
    settings = []
    for _ in range(count):
        u, v = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        gamma = SWEEP_GAMMA[0] + u * (SWEEP_GAMMA[1] - SWEEP_GAMMA[0])
        low, high = SWEEP_WEIGHT_DECAY
        weight_decay = low * (high / low) ** v
        settings.append((float(f"{gamma:.4g}"), float(f"{weight_decay:.4g}")))
    return settings


def draw(view: View) -> Result:
    runs = _runs(view)
    grid = runs[~runs["in_sweep"]]
    sweeps = runs[runs["in_sweep"]].dropna(subset="error").groupby("title", sort=False)
    pictures = [_picture(measured)] if len(measured := grid.dropna(subset="error")) else []
    pictures += [_draw_sweep(sweep) for _, sweep in sweeps if len(sweep) > 1]
    return Result(pictures, {"sensitivity": _table(grid)})


def _runs(view: View) -> pd.DataFrame:
    """A row for each run, and for each setting without one: its error in percent, or NaN."""
    rows = []
    cells = {cell.index: cell for cell in view.trainings}.values()
    for cell in sorted(cells, key=lambda cell: list(CATALOGUE).index(cell.dataset)):
        where = {
            "dataset": cell.dataset,
            "label": cell.label,
            "title": f"{CATALOGUE[cell.dataset].title}, {cell.label}",
            "gamma": float(gamma_of(cell.method)),
            "weight_decay": cell.recipe.weight_decay,
            "in_sweep": cell.recipe.weight_decay != RECIPES[cell.dataset].weight_decay,
        }
        errors = [100 * run.last["error"] for run in view.store.runs_of(cell)]
        rows += [{**where, "error": error} for error in errors or [math.nan]]
    return pd.DataFrame(rows)


def _picture(grid: pd.DataFrame) -> Picture:
    datasets = grid.groupby("dataset", sort=False)
    with drawing(4.8 * len(datasets), 3.5) as figure:
        panels: Any = figure.subplots(1, len(datasets), squeeze=False)
        for axes, (dataset, own) in zip(panels[0], datasets, strict=True):
            axes.set_title(CATALOGUE[str(dataset)].title)
            for index, (label, curve) in enumerate(own.groupby("label", sort=False)):
                found = curve.groupby("gamma")["error"].agg(["mean", "std"]).fillna(0.0)
                style = series_style(index)
                axes.errorbar(found.index, found["mean"], yerr=found["std"], label=label, **style)
            axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
            axes.set(xlabel="γ", ylabel="error rate %", xlim=GAMMA_LIMITS)
            axes.legend(loc="best")
        return finish(
            figure,
            "sensitivity",
            alt="Error rate against γ from 1.8 to 5.0, a panel for each dataset with runs.",
            caption="Error rate on the test split against γ, ResNet-18; bars: one standard "
            f"deviation over seeds. Dotted: {GAMMA_MIN:.5f}. The paper shows this figure without "
            "numbers.",
        )


def _table(grid: pd.DataFrame) -> Table:
    groups = grid.groupby(["gamma", "title"], sort=False)["error"]
    cells = groups.apply(lambda errors: mean_cell(errors.dropna(), digits=2)).unstack()
    cells = cells[list(dict.fromkeys(grid["title"]))]
    cells.insert(0, "γ", [Cell(gamma, digits=1) for gamma in cells.index])
    note = "Error rate %, mean ± standard deviation over n seeds."
    return Table.of(cells, "Error against γ", [note])


def _draw_sweep(sweep: pd.DataFrame) -> Picture:
    dataset, label, title = (sweep[name].iloc[0] for name in ("dataset", "label", "title"))
    with drawing(6.0, 3.6) as figure:
        axes = figure.subplots()
        style: dict[str, Any] = {"cmap": "cividis_r", "s": 26, "lw": 0}
        points = axes.scatter(sweep["gamma"], sweep["weight_decay"], c=sweep["error"], **style)
        figure.colorbar(points, ax=axes, label="error rate %")
        axes.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
        axes.set(xlabel="γ", ylabel="weight decay", yscale="log", title=title)
        return finish(
            figure,
            f"sweep-{dataset}-{label.replace(', ', '-').replace(' ', '-')}",
            alt="Models as points over γ and weight decay, coloured by their error rate.",
            caption=f"{title}: {len(sweep)} models of the sweep with their error on the test "
            f"split. Dotted: {GAMMA_MIN:.5f}. Settings are drawn at random; the paper's come from "
            "a Bayesian search.",
        )
