"""Error against γ, and the sweep over γ and weight decay."""

from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from scipy.stats import spearmanr  # type: ignore[import-untyped]

from zetamix.data import CATALOGUE
from zetamix.experiments.reproduce import smoke as quick
from zetamix.experiments.reproduce.cells import Training, Variant
from zetamix.gamma import GAMMA_MIN
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Picture, Table, drawing, series_style
from zetamix.report.paper.comparison import Row
from zetamix.report.paper.view import NO_NUMBERS, NOT_RUN, Answer, Drawn, View, blank, finish
from zetamix.report.tune import draw_parallel
from zetamix.results.search_space import PAPER_SEARCH, PAPER_TRIALS, TITLES, parse_space
from zetamix.results.tuning import trials_from_records
from zetamix.results.tuning_analysis import flatness

# the γ that the axis shows: the grid and a margin
SHOWN = (1.65, 5.15)
SWEEP, MODELS = parse_space(PAPER_SEARCH), PAPER_TRIALS
GRID = parse_space("gamma=1.8:5.0:0.2")
# models of a sweep from which on a correlation is told
ENOUGH = 12


def draw(view: View) -> Drawn:
    curves: dict[str, list[Variant]] = {}
    for cell in view.trainings:
        known = curves.setdefault(cell.dataset, [])
        known += [] if cell.variant in known else [cell.variant]
    sweeps = [
        (name, variant, records)
        for name, variants in curves.items()
        for variant in variants
        if (records := _swept(view, name, variant))
    ]
    tables = {"sensitivity": _table(view, curves)}
    if sweeps:
        tables["sweep"] = _sweep_table(sweeps)
    words = [word for name in curves for word in _verdict(view, name, curves[name])]
    words += [_sweep_verdict(*sweep) for sweep in sweeps]
    return Drawn(
        [
            _draw(view, curves),
            *(_draw_sweep(view, *sweep) for sweep in sweeps if len(sweep[2]) > 1),
        ],
        tables,
        words,
        Answer(NO_NUMBERS, words[0]) if words else Answer(NOT_RUN),
    )


def _curve(view: View, dataset: str, variant: Variant) -> list[tuple[float, Row]]:
    """(γ, what was run) for every γ of the grid."""
    cells: dict[str, Training] = {}
    for cell in view.trainings:
        if (cell.dataset, cell.variant) == (dataset, variant) and not cell.of_sweep:
            cells.setdefault(cell.method, cell)
    return [
        (
            float(cell.method.removeprefix("zeta:")),
            Row(dataset, cell.model, cell.method, {variant: view.results.runs_of(cell)}),
        )
        for cell in cells.values()
    ]


def _draw(view: View, curves: dict[str, list[Variant]]) -> Picture:
    with drawing(4.8 * len(curves), 3.5) as figure:
        axes: Any = figure.subplots(1, len(curves), squeeze=False)
        for panel, (name, variants) in zip(axes[0], curves.items(), strict=True):
            shown = [_plot(panel, view, name, variant, k) for k, variant in enumerate(variants)]
            panel.set_title(CATALOGUE[name].title)
            if not any(shown):
                blank(panel, "no record yet")
                continue
            panel.axvline(GAMMA_MIN, color="black", ls=":", lw=1.2)
            panel.set(xlabel="γ", ylabel="error rate %", xlim=SHOWN)
            panel.legend(loc="best")
        return finish(
            view,
            figure,
            "sensitivity",
            alt="Error rate against γ from 1.8 to 5.0, a panel for each dataset.",
            caption="Error rate on the test split against γ, ResNet-18; bars: one standard "
            f"deviation over seeds, where there are several. Dotted: {GAMMA_MIN:.5f}. The paper "
            "shows this figure without numbers.",
        )


def _plot(axes: Axes, view: View, dataset: str, variant: Variant, index: int) -> bool:
    found = [(gamma, row.ours(variant, "error")) for gamma, row in _curve(view, dataset, variant)]
    known = [(gamma, ours) for gamma, ours in found if ours is not None]
    if not known:
        return False
    gammas = [gamma for gamma, _ in known]
    means = [ours.mean for _, ours in known]
    seeds = max(ours.n for _, ours in known)
    whole = "" if variant.epochs else ", all epochs"
    label = f"{variant.label}{whole}, {'one seed' if seeds == 1 else f'{seeds} seeds'}"
    bars = [ours.sd or 0.0 for _, ours in known] if seeds > 1 else None
    axes.errorbar(gammas, means, yerr=bars, label=label, **series_style(index))
    return True


def _table(view: View, curves: dict[str, list[Variant]]) -> Table:
    rows: dict[float, list[Cell]] = {}
    pairs = [(name, variant) for name, variants in curves.items() for variant in variants]
    for name, variant in pairs:
        for gamma, row in _curve(view, name, variant):
            ours = row.ours(variant, "error")
            cell = Cell(None)
            if ours is not None:
                cell = Cell(ours.mean, error=ours.sd, n=ours.n, digits=2)
            rows.setdefault(gamma, []).append(cell)
    heads = [f"{CATALOGUE[name].title}, {variant.label}" for name, variant in pairs]
    columns = [Column("γ"), *(Column(head) for head in heads)]
    body = [[Cell(gamma, digits=1), *cells] for gamma, cells in rows.items()]
    notes = ["Error rate %, mean ± standard deviation over n seeds."]
    return Table(columns, body, "Error against γ", notes)


def _verdict(view: View, dataset: str, variants: list[Variant]) -> list[str]:
    words = []
    for variant in variants:
        curve = _curve(view, dataset, variant)
        found = [
            (ours.mean, gamma)
            for gamma, row in curve
            if (ours := row.ours(variant, "error")) is not None
        ]
        if len(found) < 2:
            continue
        (low, best), (high, worst) = min(found), max(found)
        told = (
            f"{CATALOGUE[dataset].title}, {variant.label}: error from {low:.2f} % at γ = {best} "
            f"to {high:.2f} % at γ = {worst}."
        )
        if len(found) < len(curve):
            told += f" {len(found)} of {len(curve)} values of γ have been run."
        records = [record for _, row in curve for record in row.runs[variant]]
        flat = flatness(trials_from_records(records, GRID), "error")
        if flat is not None:
            near = [
                f"{gamma}"
                for mean, gamma in sorted(found, key=lambda pair: pair[1])
                if mean - low <= 100 * flat.margin * (1 + 1e-9)
            ]
            told += (
                f" Within one standard error of the best ({100 * flat.margin:.2f} points, "
                f"{'over seeds' if flat.over_seeds else 'of one run over its test samples'}) lie "
                f"γ = {', '.join(near)}."
            )
            if not flat.over_seeds:
                told += " One seed does not show the chance between runs, which comes on top."
        words.append(told)
    return words


# the sweep


def _swept(view: View, dataset: str, variant: Variant) -> list[RunRecord]:
    """Runs of the sweep, of any seed."""
    cells = [
        cell
        for cell in view.trainings
        if cell.of_sweep and (cell.dataset, cell.variant) == (dataset, variant)
    ]
    return [record for cell in cells for record in view.results.runs_of(cell)]


def _sweep_title(dataset: str, variant: Variant) -> str:
    return f"{CATALOGUE[dataset].title}, {variant.label}"


def _draw_sweep(view: View, dataset: str, variant: Variant, records: list[RunRecord]) -> Picture:
    title = _sweep_title(dataset, variant)
    name = "-".join(["sweep", dataset, variant.label.replace(", ", "-").replace(" ", "-")])
    picture = draw_parallel(
        trials_from_records(records, SWEEP, "accuracy"),
        SWEEP.searched,
        "accuracy",
        split="test",
        title=f"{title} (quick: stand-ins)" if view.is_quick else title,
    )
    caption = (
        f"{title}: {len(records)} of {MODELS} models as lines through γ and weight decay to "
        f"their accuracy on the test split; dark: the best; light grey: γ below {GAMMA_MIN:.5f}. "
        "The settings are drawn at random from the paper's two distributions; the paper's were "
        "chosen by a Bayesian search, which shows more of the good ones."
    )
    if view.is_quick:
        caption = f"{quick.LABEL.capitalize()}. {caption}"
    return replace(picture, name=name, caption=caption)


def _sweep_table(sweeps: list[tuple[str, Variant, list[RunRecord]]]) -> Table:
    rows: list[list[Cell | str | int]] = []
    for dataset, variant, records in sweeps:
        trials = trials_from_records(records, SWEEP)
        best = min(trials, key=lambda trial: trial.value or 0.0)
        rhos = [_correlation(records, each.name) for each in SWEEP.searched]
        rows.append(
            [
                _sweep_title(dataset, variant),
                len(records),
                Cell(100 * (best.value or 0.0), digits=2),
                *(f"{best.setting[each.name]:g}" for each in SWEEP.searched),
                *(Cell(None if rho is None else rho[0], digits=2) for rho in rhos),
            ]
        )
    names = [TITLES.get(each.name, each.name) for each in SWEEP.searched]
    columns = [Column(head) for head in ("sweep", "models", "lowest error %")]
    columns += [Column(f"its {name}") for name in names]
    columns += [Column(f"ρ with {name}") for name in names]
    notes = [
        "ρ: Spearman's rank correlation of the error with a parameter, given from "
        f"{ENOUGH} models on; above 0, the error rises with the parameter."
    ]
    return Table(columns, rows, "The sweep over γ and weight decay", notes)


def _correlation(records: list[RunRecord], parameter: str) -> tuple[float, float] | None:
    """Spearman's ρ of error and parameter, and its p-value; None where it says nothing."""
    trials = trials_from_records(records, SWEEP)
    errors = [trial.value for trial in trials]
    if len(trials) < ENOUGH or len(set(errors)) == 1:
        return None
    found = spearmanr(errors, [trial.setting[parameter] for trial in trials])
    return float(found.statistic), float(found.pvalue)


def _sweep_verdict(dataset: str, variant: Variant, records: list[RunRecord]) -> str:
    errors = sorted(100 * record.last["error"] for record in records)
    words = f"{_sweep_title(dataset, variant)}: {len(records)} of {MODELS} models of the sweep run."
    if len(errors) > 1:
        words += f" Error from {errors[0]:.2f} to {errors[-1]:.2f} %."
    for each in SWEEP.searched:
        found = _correlation(records, each.name)
        if found is not None:
            name = TITLES.get(each.name, each.name)
            way = "rises" if found[0] > 0 else "falls"
            clear = f"{way} with {name}" if found[1] < 0.05 else f"does not clearly follow {name}"
            chance = f"p = {found[1]:.2g}" if found[1] >= 0.001 else "p < 0.001"
            words += f" It {clear} (ρ = {found[0]:.2f}, {chance})."
    return words
