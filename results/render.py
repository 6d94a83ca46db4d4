"""Render the tables of the README and of the documentation from the committed records.

    python results/render.py

A page has a place for each: `<!-- name -->`, the table, `<!-- /name -->`. A test fails when a page
and the records disagree.
"""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pandas as pd
import torch

from paper.artifacts import draw, make_view
from paper.comparison import readme_section
from paper.records import RecordStore
from paper.tables import compare, runs_of
from zetamix.gamma import GAMMA_MIN, describe_gamma
from zetamix.methods import parse
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Table
from zetamix_lab.statistics import CONFIDENCE
from zetamix_lab.text import join, plural

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGES = {
    "README.md": ("zetamix", "cifar10-verdict"),
    "docs/results/zetamix.md": ("zetamix",),
    "docs/results/paper.md": ("cifar10", "cifar10-verdict", "anchor"),
    "docs/understand/theorems.md": ("thresholds",),
    "docs/how-to/choosing-gamma.md": ("gamma",),
    "docs/how-to/when-not-to-mix.md": ("when",),
    "docs/how-to/class-imbalance.md": ("imbalance",),
}
"""The places of each page, which it must have once and no others."""
VARIANT = "crop-flip"
OUTCOMES = {
    "ahead": "significantly ahead of",
    "behind": "significantly behind",
    "not significant": "not significantly different from",
    "one seed": "not comparable with one seed to",
}
BASELINES = {"mixup:1.0": "mixup", "none": "no mixing"}


def main() -> None:
    for page in PAGES:
        path = ROOT / page
        path.write_text(render(path.read_text(), page))


def render(text: str, page: str = "README.md", folder: Path = HERE) -> str:
    """The text of a page with the tables of the records."""
    store = RecordStore(folder)
    for name in PAGES[page]:
        block = f"<!-- {name} -->\n{BLOCKS[name](store)}\n<!-- /{name} -->"
        pattern = f"<!-- {name} -->.*?<!-- /{name} -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(
                f"{page} must contain <!-- {name} --> and <!-- /{name} --> exactly once."
            )
    return text


def cifar10_table(store: RecordStore) -> str:
    """The rows of CIFAR-10 in the table of natural images, without the differences."""
    table = draw(make_view("natural", store)).tables["natural"]
    names = {"method": "error %", "error rate %, paper": "paper"}
    kept = [k for k, name in enumerate(table.columns) if name != "dataset" and "−" not in name]
    heads = [names.get(table.columns[k], table.columns[k]) for k in kept]
    rows = [[row[k] for k in kept] for row in table.cells if row[0].value == "CIFAR-10"]
    return Table(heads, rows).markdown()


def cifar10_verdict(store: RecordStore) -> str:
    """ζ-mixup against mixup and no mixing on CIFAR-10, as far as seeds allow a claim."""
    view = make_view("natural", store)
    found = compare(view, runs_of(view))
    found = found[(found["dataset"] == "cifar10") & (found["variant"] == VARIANT)]
    parts = [
        sentence
        for baseline, name in BASELINES.items()
        for sentence in _against(found[found["baseline"] == baseline], name)
    ]
    wins, seeds = (found["printed"] < 0).sum(), plural(int(found["n"].max()), "seed")
    return (
        f"On CIFAR-10 (ResNet-18, crops and flips, {seeds}, Holm's correction over γ) ζ-mixup is "
        f"{join(parts)}. The paper reports it ahead in {wins} of these {len(found)} "
        "comparisons."
    )


def _against(comparisons: pd.DataFrame, baseline: str) -> list[str]:
    """One phrase for each outcome, with the values of γ and the differences in points."""
    phrases = []
    for outcome, words in OUTCOMES.items():
        group = comparisons[comparisons["outcome"] == outcome]
        if len(group):
            gammas = join(group["method"].str.removeprefix("zeta:").tolist())
            phrase = f"{words} {baseline} at γ = {gammas}"
            if outcome in ("ahead", "behind"):
                changes = join([f"{abs(mean):.2f}" for mean in group["mean"]])
                ranges = join(
                    [_interval(*ends) for ends in zip(group["low"], group["high"], strict=True)]
                )
                phrase += f" (by {changes} points; {100 * CONFIDENCE:.0f} % intervals {ranges})"
            phrases.append(phrase)
    return phrases


def _interval(low: float, high: float) -> str:
    near, far = sorted((abs(low), abs(high)))
    return f"{near:.2f} to {far:.2f}"


def anchor_table(store: RecordStore) -> str:
    """The same seed and recipe with the anchor of the authors' code and of the equation."""
    runs: dict[tuple[float, str], RunRecord] = {}
    for record in store.records.values():
        if isinstance(record, RunRecord) and record.cell.dataset == "cifar10":
            method = parse(record.cell.method)
            recipe = record.cell.recipe
            plain = recipe["augmentation"] == VARIANT and recipe["epochs"] == 200
            if method.name == "zeta" and plain and record.cell.seed == 0:
                runs[method.values["gamma"], method.values["anchor"]] = record
    gammas = sorted(gamma for gamma, anchor in runs if anchor == "random")
    rows: list[list[Cell | str]] = [
        [
            f"{gamma}",
            *(Cell(100 * runs[gamma, anchor].last["error"], digits=2) for anchor in ANCHORS),
        ]
        for gamma in gammas
    ]
    return Table(["γ", *(f"error %, {words}" for words in ANCHORS.values())], rows).markdown()


ANCHORS = {"self": "the authors' code", "random": "the paper's equation"}


def thresholds_table(store: RecordStore) -> str:
    return draw(make_view("theorems", store)).tables["thresholds"].markdown()


def gamma_table(_: RecordStore) -> str:
    """What some values of γ do to a batch of 128."""
    rows: list[list[Cell | str]] = []
    for gamma in (GAMMA_MIN, 2.4, 2.8, 4.0):
        found = describe_gamma(gamma, sources=128)
        name = f"{gamma:.5f}" if gamma == GAMMA_MIN else f"{gamma}"
        weight, effective = found.dominant_weight, found.effective_samples
        rows.append([name, Cell(weight, digits=3), Cell(effective, digits=2)])
    heads = ["γ, 128 sources", "weight of the anchor", "effective number of samples"]
    return Table(heads, rows).markdown()


# as they are named in the records, which do not depend on defaults
METHODS = {
    "none": "no mixing",
    "mixup:1.0": "mixup",
    "cutmix:1.0": "CutMix",
    "switch": "switch",
    "zeta:2.8": "ζ-mixup (2.8)",
    "zetamix:gamma=0.0..4.0,sources=2,keep_variance=yes,paste=0.5,p=1.0,until=0.8": "ZetaMix",
}
SMOOTHING = {"smoothing:0.1": "label smoothing"}
# what was trained: dataset, images, augmentation, and the metric that the data is judged by
TRAININGS = {
    "CIFAR-10, 5,000 images, 200 epochs, error %": ("cifar10", 5_000, "crop-flip", "error"),
    "CIFAR-10, 50,000 images, 200 epochs, error %": ("cifar10", 50_000, "crop-flip", "error"),
    "Fashion-MNIST, 10,000 images, 200 epochs, error %": (
        "fashion_mnist",
        10_000,
        "flip",
        "error",
    ),
    "BreastMNIST, 546 images, 100 epochs, AUC %": ("breastmnist", None, "none", "auc"),
    "ISIC 2017, 2,000 images, 50 epochs, balanced accuracy %": (
        "isic2017",
        2_000,
        "none",
        "balanced_accuracy",
    ),
}


def _runs_of(
    store: RecordStore, method: str, dataset: str, size: int | None, augmentation: str
) -> list[RunRecord]:
    """The runs of a method that were measured on test data."""
    return [
        record
        for key, record in store.records.items()
        if isinstance(record, RunRecord)
        and store.artifact_of[key] in ("zetamix", "natural", "medmnist")
        and (record.cell.method, record.cell.dataset) == (method, dataset)
        and size in (None, record.cell.train_size)
        and record.cell.recipe["augmentation"] == augmentation
    ]


def when_table(store: RecordStore) -> str:
    """With and without mixing: the metric of each training, with the number of seeds."""
    rows: list[list[Cell | str]] = []
    for name, (*training, metric) in TRAININGS.items():
        row: list[Cell | str] = [name]
        for method in METHODS:
            values = [100 * run.last[metric] for run in _runs_of(store, method, *training)]
            row.append(Cell(fmean(values), n=len(values), digits=1) if values else Cell(None))
        rows.append(row)
    return Table(["data", *METHODS.values()], rows).markdown()


def imbalance_table(store: RecordStore) -> str:
    """Metrics and recalls of each method on ISIC 2017, means over seeds."""
    rows: list[list[Cell | str]] = []
    *training, _ = TRAININGS["ISIC 2017, 2,000 images, 50 epochs, balanced accuracy %"]
    for method, name in (METHODS | SMOOTHING).items():
        runs = _runs_of(store, method, *training)
        means = {metric: fmean(run.last[metric] for run in runs) for metric in runs[0].last}
        counts = torch.tensor([run.confusion for run in runs]).double()
        recalls = (counts.diagonal(dim1=1, dim2=2) / counts.sum(2)).mean(0).tolist()
        shares = [means["balanced_accuracy"], means["accuracy"], means["auc"], *recalls]
        cells = [Cell(100 * share, digits=1) for share in shares]
        rows.append(
            [name, *cells, Cell(means["nll"], digits=3), Cell(means["nll_scaled"], digits=3)]
        )
    heads = ["%", "balanced accuracy", "accuracy", "AUC"]
    heads += ["recall of nevi", "of melanomas", "of keratoses", "NLL", "NLL, scaled"]
    return Table(heads, rows).markdown()


BLOCKS: dict[str, Callable[[RecordStore], str]] = {
    "zetamix": lambda store: readme_section(make_view("zetamix", store)),
    "cifar10": cifar10_table,
    "cifar10-verdict": cifar10_verdict,
    "anchor": anchor_table,
    "thresholds": thresholds_table,
    "gamma": gamma_table,
    "when": when_table,
    "imbalance": imbalance_table,
}


if __name__ == "__main__":
    main()
