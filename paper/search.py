"""The search for ZetaMix's default, on validation data: its settings, its rounds, its tables.

Successive halving: a round trained the better settings of the previous rounds with another seed or
on another dataset, so that the time was spent on settings that could still win.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import pandas as pd

from paper.cells import Request, Subset, TrainingCell
from paper.datasets import CATALOGUE
from paper.drawing import Result, mean_cell, method_name, signed_cells
from paper.records import View
from zetamix.methods import parse
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Table
from zetamix_lab.statistics import paired_tests

# 5,000 samples of the training split replace the test split, which is not used
DATASETS: Mapping[str, Subset] = {
    "cifar10": Subset(5_000, validation=5_000),
    "cifar100": Subset(10_000, validation=5_000),
    "fashion_mnist": Subset(5_000, validation=5_000),
}
# with crops, which the paper's appendix does not mention, errors are close to its (`natural`)
AUGMENTATION = {"cifar10": "crop-flip", "cifar100": "crop-flip"}
BASELINES = (
    *("none", "switch", "mixup:1.0", "cutmix:1.0", "cutmix:alpha=1.0,per=sample"),
    *("smoothing:0.1", "zeta:2.8"),
)
# baselines that stop mixing as early as the best setting: neither ranked nor chosen
CONTROLS = ("mixup:alpha=1.0,until=0.8", "switch:until=0.8")
# γ, sources, whether the variance is kept, fraction pasted, p, until: those that were kept longest
# first, the best first, then the centre, and changes of one option or several
SETTINGS = (
    ("0.0..4.0", 2, "yes", 0.5, 1.0, 0.9),
    ("0.0..4.0", 2, "yes", 0.5, 1.0, 0.8),
    ("0.0..4.0", 2, "yes", 0.5, 0.8, 0.9),
    ("0.0..4.0", 2, "yes", 0.25, 1.0, 1.0),
    ("0.0..4.0", 2, "yes", 0.5, 0.8, 1.0),
    ("0.0..4.0", 2, "yes", 0.0, 1.0, 0.9),
    ("0.0..4.0", 2, "yes", 0.0, 0.8, 1.0),
    ("0.0..2.0", 2, "yes", 0.0, 1.0, 1.0),
    ("0.0..4.0", 2, "yes", 0.5, 1.0, 1.0),
    ("0.0..4.0", 2, "yes", 0.0, 1.0, 1.0),
    ("0.0..4.0", 2, "no", 0.5, 1.0, 1.0),
    ("0.0..4.0", 3, "yes", 0.5, 1.0, 1.0),
    ("0.0..2.0", 2, "yes", 0.5, 1.0, 1.0),
    ("0.0..4.0", 2, "yes", 1.0, 1.0, 1.0),
    ("0.0..6.0", 2, "yes", 0.5, 1.0, 1.0),
    ("0.0..3.0", 2, "yes", 0.5, 1.0, 1.0),
    ("0.0..4.0", 2, "yes", 0.5, 0.5, 1.0),
    ("1.0..4.0", 2, "yes", 0.5, 1.0, 1.0),
    ("0.0..4.0", 4, "yes", 0.5, 1.0, 1.0),
    ("0.0..3.0", 3, "yes", 0.5, 1.0, 1.0),
    ("0.0..3.0", 3, "yes", 0.0, 1.0, 1.0),
    ("0.0..4.0", 2, "no", 0.0, 1.0, 1.0),
    ("0.0..2.0", 2, "yes", 0.5, 1.0, 0.9),
    ("0.0..3.0", 3, "no", 0.0, 1.0, 1.0),
)
# with every option, so that labels do not depend on defaults
LABEL = "zetamix:gamma={},sources={},keep_variance={},paste={},p={},until={}"
FAMILY = tuple(LABEL.format(*setting) for setting in SETTINGS)
KEPT, CENTRE = FAMILY[:8], parse(FAMILY[8]).values
METHODS = (*FAMILY, *BASELINES)
# datasets, seeds and methods of each round
ROUNDS = (
    (("cifar10",), (0,), METHODS),
    (("cifar100", "fashion_mnist"), (0,), KEPT),
    (tuple(DATASETS), (1,), KEPT[:4]),
    (tuple(DATASETS), (2, 3), (*KEPT[:2], *CONTROLS)),
)
DATA = (
    "Validation error %, mean ± standard deviation over n seeds, on 5,000 images of the training "
    "split; the test split is not used. ResNet-18, the paper's recipe of 200 epochs, with crops "
    "and flips on CIFAR and flips on Fashion-MNIST."
)
RULE = (
    "Each round trained the better settings of the previous rounds with another seed or dataset "
    "(successive halving), and the baselines better than the worst of them, of which there were "
    "none. The relative error of a run is its error divided by the mean error of all runs with "
    "that dataset, without those of the last table."
)


def cells(request: Request) -> list[TrainingCell]:
    """The cells of each round; of requested seeds those of all methods on all datasets."""
    every = ((tuple(DATASETS), request.seeds, (*METHODS, *CONTROLS)),)
    return [
        TrainingCell(dataset, method, seed, recipe, DATASETS[dataset])
        for datasets, seeds, methods in (ROUNDS if request.seeds is None else every)
        for dataset in datasets
        for seed in seeds or ()
        for recipe in request.recipes(dataset, AUGMENTATION.get(dataset))
        for method in methods
    ]


def errors_of(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """Validation errors after the last epoch: methods × (dataset, seed), NaN for no run."""
    values = {(r.cell.method, r.cell.dataset, r.cell.seed): r.last["error"] for r in runs}
    return pd.Series(values, dtype=float).unstack([1, 2]).reindex([*METHODS, *CONTROLS])


def relative_errors(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors divided by the mean of all runs with that dataset, without those of `CONTROLS`.

    A dataset with an error of 30 % thus counts as much as one with 8 %.
    """
    ranked = errors.loc[list(METHODS)]
    means = {name: ranked[name].stack().mean() for name in errors.columns.levels[0]}
    return errors / [means[name] for name, _ in errors]


def option_changes(errors: pd.DataFrame) -> dict[tuple[str, Any], pd.DataFrame]:
    """By option and value: `before` and `after` of settings that differ in this option only.

    Before, the option has the value of the centre.
    """
    changes: dict[tuple[str, Any], list[pd.DataFrame]] = {}
    values = {label: parse(label).values for label in FAMILY}
    for one, other in product(FAMILY, FAMILY):
        differ = [key for key in CENTRE if values[one][key] != values[other][key]]
        if len(differ) == 1 and values[one][differ[0]] == CENTRE[differ[0]]:
            pair = pd.DataFrame({"before": errors.loc[one], "after": errors.loc[other]})
            changes.setdefault((differ[0], values[other][differ[0]]), []).append(pair.dropna())
    order = sorted(changes, key=lambda key: (list(CENTRE).index(key[0]), str(key[1])))
    return {key: pd.concat(changes[key]) for key in order}


def draw(view: View) -> Result:
    runs = [record for record in view.records if isinstance(record, RunRecord)]
    if not runs:
        return Result()
    errors = errors_of(runs)
    tables = {
        "settings": _setting_table(runs, errors),
        "changes": _change_table(errors),
        "controls": _control_table(errors),
    }
    return Result(tables=tables)


def setting_name(label: str) -> str:
    """The name of a setting in tables.

    >>> setting_name("zetamix:gamma=0.0..4.0,sources=2,keep_variance=no,paste=0.5,p=0.8,until=1.0")
    '2 sources, γ 0–4, variance not kept, 50 % pasted, p = 0.8'
    >>> setting_name("mixup:alpha=1.0,until=0.8")
    'mixup, until = 0.8'
    """
    method = parse(label)
    if method.name != "zetamix":
        return "CutMix with one box per sample" if "per=sample" in label else method_name(label)
    keys = ["sources", "gamma", "keep_variance", "paste"]
    keys += [key for key in ("p", "until") if method.values[key] < 1]
    return ", ".join(option_text(key, method.values[key]) for key in keys)


def option_text(key: str, value: Any) -> str:
    if key == "gamma":
        return f"γ {value[0]:g}–{value[1]:g}"
    if key == "keep_variance":
        return f"variance {'' if value else 'not '}kept"
    texts = {"sources": f"{value} sources", "paste": f"{100 * value:.0f} % pasted"}
    return texts.get(key, f"{key} = {value:g}")


def _error_cells(errors: pd.DataFrame, method: str) -> list[Cell]:
    own = 100 * errors.loc[method].dropna()
    return [mean_cell(own[own.index.get_level_values(0) == name], 2) for name in DATASETS]


def _control_table(errors: pd.DataFrame) -> Table:
    """The finalists and baselines that stop mixing as early, on datasets and seeds they share."""
    compared, last, above = [*KEPT[:2], *CONTROLS], "relative error", "above the first"
    shared = errors.loc[compared].dropna(axis=1)
    relative = relative_errors(errors)[shared.columns].loc[compared]
    runs = relative.T.reset_index(drop=True).rename_axis(index="seed", columns="method").stack()
    table = runs.rename("value").reset_index().assign(metric="error")
    tests = paired_tests(table, compared[0]).set_index("method")
    rows = []
    for method in compared:
        difference = ""
        if method in CONTROLS:
            test = tests.loc[method]
            cells = signed_cells(test[["mean", "low", "high"]], 3)
            mean, low, high = (cell.text() for cell in cells)
            difference = f"{mean} (95 %: {low} to {high}, n = {test['n']})"
        own = Cell(float(relative.loc[method].mean()), digits=3)
        rows.append([setting_name(method), *_error_cells(shared, method), own, difference])
    notes = [
        "Does stopping early (until) explain it? Mixup and the switch with until = 0.8 are trained "
        "with the finalists, in the last round; they are neither ranked nor chosen.",
        "Validation error %, mean ± standard deviation over n seeds, on the datasets and seeds "
        "that all rows share. Above the first: the relative error minus that of the first row, "
        "with its 95 % interval, paired by dataset and seed.",
    ]
    caption = "The finalists compared with baselines that stop early"
    frame = pd.DataFrame(rows, columns=["method", *_titles(), last, above])
    return Table.of(frame, caption, notes)


def _change_table(errors: pd.DataFrame) -> Table:
    """The effect of another value of one option, with all others equal."""
    rows = []
    for (option, value), found in option_changes(errors).items():
        points, ratios = 100 * (found["after"] - found["before"]), found["after"] / found["before"]
        datasets = found.index.get_level_values(0)
        cells = [replace(mean_cell(points[datasets == name], 2), signed=True) for name in DATASETS]
        mean = Cell(100 * float(ratios.mean() - 1), digits=1, signed=True)
        name = f"{option_text(option, CENTRE[option])} → {option_text(option, value)}"
        rows.append([name, *cells, mean, f"{(ratios > 1).sum()} of {len(found)}"])
    mean_name, worse = "mean change, %", "worse in"
    note = (
        "Points of validation error, mean ± standard deviation over n comparisons. A comparison "
        "is two settings of ZetaMix that differ only in this option, with the same dataset and "
        "seed. Negative: the change helps. Pairs whose worse setting was dropped early have only "
        "CIFAR-10 with one seed."
    )
    tips = {
        mean_name: "of the error, relative, over all comparisons",
        worse: "comparisons in which the error is higher",
    }
    frame = pd.DataFrame(rows, columns=["change", *_titles(), mean_name, worse])
    return Table.of(frame, "The effect of one option, all others equal", [note], tips)


def _setting_table(runs: Sequence[RunRecord], errors: pd.DataFrame) -> Table:
    """Every setting, those that were kept longest first."""
    own = errors.loc[list(METHODS)].dropna(how="all")
    relative = relative_errors(errors).loc[own.index]
    order = pd.DataFrame({"runs": -own.notna().sum(axis=1), "mean": relative.mean(axis=1)})
    rows = []
    for method in order.sort_values(["runs", "mean"], kind="stable").index:
        complete = own.loc[method].dropna().index.get_level_values(0).nunique() == len(DATASETS)
        tried = [r for r in runs if r.cell.method == method and "new_bn" in r.extra]
        changes = [100 * (r.extra["new_bn"]["error"] - r.last["error"]) for r in tried]
        mean = Cell(float(relative.loc[method].mean()) if complete else None, digits=3)
        effect = Cell(fmean(changes) if changes else None, digits=2, signed=True)
        rows.append([setting_name(method), *_error_cells(own, method), mean, effect])
    name = "new BN statistics"
    notes = [
        DATA,
        RULE,
        "New BN statistics: the change of the error in points when batch-norm statistics are "
        "recomputed on unmixed training images after training.",
    ]
    frame = pd.DataFrame(rows, columns=["setting", *_titles(), "relative error", name])
    tips = {name: "mean change of the error in points, over all its runs"}
    return Table.of(frame, f"All {len(METHODS)} settings of the search", notes, tips)


def _titles() -> list[str]:
    return [f"{CATALOGUE[name].title} at {part.train:,}" for name, part in DATASETS.items()]
