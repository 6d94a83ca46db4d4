"""The search for ZetaMix's default, on validation data: its settings, its rounds, its tables.

Successive halving: a round trained the better settings of the previous rounds with another seed or
on another dataset, so that the time was spent on settings that could still win.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from paper.datasets import CATALOGUE
from paper.drawing import Result, mean_cell, method_name, signed_cells
from paper.recipes import ZETAMIX_RECIPES
from paper.records import Subset, TrainingCell, View
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
BASELINES = (
    *("none", "switch", "mixup:1.0", "cutmix:1.0", "cutmix:alpha=1.0,per=sample"),
    *("smoothing:0.1", "zeta:2.8"),
)
# baselines that stop mixing as early as the best setting: neither ranked nor chosen
CONTROLS = ("mixup:alpha=1.0,until=0.8", "switch:until=0.8")
# γ, sources, whether the variance is kept, fraction pasted, p, until: those that were kept longest
# first, the best first
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
KEPT, METHODS = FAMILY[:8], (*FAMILY, *BASELINES)
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


def cells() -> list[TrainingCell]:
    """The cells of each round."""
    return [
        TrainingCell(dataset, method, seed, ZETAMIX_RECIPES[dataset], DATASETS[dataset])
        for datasets, seeds, methods in ROUNDS
        for dataset in datasets
        for seed in seeds
        for method in methods
    ]


def errors_of(view: View) -> pd.DataFrame:
    """Validation errors after the last epoch: methods × (dataset, seed), NaN for no run."""
    runs = [record for record in view.records if isinstance(record, RunRecord)]
    values = {(r.cell.method, r.cell.dataset, r.cell.seed): r.last["error"] for r in runs}
    return pd.Series(values, dtype=float).unstack([1, 2]).reindex([*METHODS, *CONTROLS])


def relative_errors(errors: pd.DataFrame) -> pd.DataFrame:
    """Errors divided by the mean of all runs with that dataset, without those of `CONTROLS`.

    A dataset with an error of 30 % thus counts as much as one with 8 %.
    """
    ranked = errors.loc[list(METHODS)]
    means = {name: ranked[name].stack().mean() for name in errors.columns.levels[0]}
    return errors / [means[name] for name, _ in errors]


def draw(view: View) -> Result:
    if not view.records:
        return Result()
    errors = errors_of(view)
    return Result(tables={"settings": _setting_table(errors), "controls": _control_table(errors)})


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
    values = method.values
    low, high = values["gamma"]
    kept = "kept" if values["keep_variance"] else "not kept"
    parts = [f"{values['sources']} sources", f"γ {low:g}–{high:g}", f"variance {kept}"]
    parts += [f"{100 * values['paste']:.0f} % pasted"]
    parts += [f"{key} = {values[key]:g}" for key in ("p", "until") if values[key] < 1]
    return ", ".join(parts)


def _table(
    caption: str,
    heading: str,
    errors: pd.DataFrame,
    more: Mapping[str, Mapping[str, Cell | str]],
    notes: Sequence[str],
) -> Table:
    """A row per method: the errors on each dataset, and more columns."""
    rows = []
    for method, own in (100 * errors).iterrows():
        row: dict[str, Any] = {heading: setting_name(str(method))}
        for name, part in DATASETS.items():
            row[f"{CATALOGUE[name].title} at {part.train:,}"] = mean_cell(own[name].dropna(), 2)
        rows.append(row | {name: column[str(method)] for name, column in more.items()})
    return Table.of(pd.DataFrame(rows), caption, notes)


def _setting_table(errors: pd.DataFrame) -> Table:
    """Every setting, those that were kept longest first."""
    own = errors.loc[list(METHODS)].dropna(how="all")
    means = relative_errors(errors).loc[own.index].mean(axis=1)
    order = pd.DataFrame({"runs": -own.notna().sum(axis=1), "mean": means})
    own = own.loc[order.sort_values(["runs", "mean"], kind="stable").index]
    complete = own.notna().T.groupby(level=0).any().all()
    relative = {m: Cell(float(means[m]) if complete[m] else None, digits=3) for m in own.index}
    caption = f"All {len(METHODS)} settings of the search"
    return _table(caption, "setting", own, {"relative error": relative}, [DATA, RULE])


def _control_table(errors: pd.DataFrame) -> Table:
    """The finalists and baselines that stop mixing as early, on datasets and seeds they share."""
    compared = [*KEPT[:2], *CONTROLS]
    shared = errors.loc[compared].dropna(axis=1)
    relative = relative_errors(errors)[shared.columns].loc[compared]
    runs = relative.T.reset_index(drop=True).rename_axis(index="seed", columns="method").stack()
    table = runs.rename("value").reset_index().assign(metric="error")
    above = dict.fromkeys(compared, "")
    for _, test in paired_tests(table, compared[0]).iterrows():
        if test["method"] in CONTROLS:
            cells = signed_cells(test[["mean", "low", "high"]], 3)
            mean, low, high = (cell.text() for cell in cells)
            above[test["method"]] = f"{mean} (95 %: {low} to {high}, n = {test['n']})"
    means = {method: Cell(float(relative.loc[method].mean()), digits=3) for method in compared}
    notes = [
        "Does stopping early (until) explain it? Mixup and the switch with until = 0.8 are trained "
        "with the finalists, in the last round; they are neither ranked nor chosen.",
        "Validation error %, mean ± standard deviation over n seeds, on the datasets and seeds "
        "that all rows share. Above the first: the relative error minus that of the first row, "
        "with its 95 % interval, paired by dataset and seed.",
    ]
    more: dict[str, Mapping[str, Cell | str]]
    more = {"relative error": means, "above the first": above}
    caption = "The finalists compared with baselines that stop early"
    return _table(caption, "method", shared, more, notes)
