"""The paper's tables of trained models with our results, and the differences of ζ-mixup."""

from collections.abc import Iterable, Sequence

import pandas as pd
import torch

from paper import values as paper
from paper.datasets import CATALOGUE
from paper.drawing import Result, mean_cell, method_name, signed_cells
from paper.recipes import RECIPES
from paper.records import PaperCell, TrainingCell, View
from zetamix_lab.metrics import METRICS, resolution
from zetamix_lab.report import Cell, Table
from zetamix_lab.statistics import CONFIDENCE, paired_tests
from zetamix_lab.text import sentence_case

# Appendix D.1 says flip only; Sec. 4.5 mentions cropping, and only with it are error rates near
# the paper's: 4.74 % on CIFAR-10 without mixing, 7.26 % with flip only; the paper has 5.48 %
AUGMENTATIONS = ("crop-flip", "flip")
# methods, changes of the recipe and seeds; each value for skin and MedMNIST is of one run
SKIN_MODELS = tuple(paper.METHODS), tuple({"model": name} for name in paper.MODELS), 1
MODELS_OF: dict[str, tuple[Sequence[str], Sequence[dict[str, str]], int]] = {
    "natural": (tuple(paper.METHODS), [{"augmentation": name} for name in AUGMENTATIONS], 3),
    "skin": SKIN_MODELS,
    "skin-detailed": SKIN_MODELS,
    "medmnist": (("none", "mixup:1.0", "zeta:2.8"), [{}], 1),
}
BASELINES = ("mixup:1.0", "none")
# what keeps runs apart
KEYS = ["dataset", "model", "method", "variant", "metric"]
# ζ-mixup and its differences are judged by the first metric of a table
SHOWN_METRICS = {
    "natural": ("error",),
    "skin": ("balanced_accuracy",),
    "skin-detailed": ("balanced_accuracy", "f1_micro", "f1_macro"),
    "medmnist": ("auc", "accuracy"),
}
DEFAULTS = (
    "Not specified by the paper; our choice: images normalised by the training split's mean and "
    "deviation per channel, a 3 × 3 first convolution without pooling for images up to 64 pixels, "
    "the last, smaller batch dropped, and bfloat16 where the GPU supports it."
)
SKIN_NOTES = (
    "The paper does not say whether its networks for skin lesions start from ImageNet weights. "
    "Ours start from scratch.",
    "Every value in the paper is from one run. Seven of the ten datasets are split 70:10:20 with a "
    "seed that the paper does not give: our splits have the same sizes but not the same images. "
    "The size of MSK differs as well: the archive has 3,676 images, the paper 3,551. ISIC 2018 is "
    "evaluated on its 193 validation images, as in the paper.",
    DEFAULTS,
)
NOTES = {
    "natural": (
        "The paper's appendix names horizontal flips as the only augmentation, but its Sec. 4.5 "
        "also mentions cropping. The two are different recipes and have separate columns.",
        DEFAULTS,
    ),
    "skin": SKIN_NOTES,
    "skin-detailed": SKIN_NOTES,
    "medmnist": (
        "The paper gives the learning rate, the loss, SGD and the batch size; epochs, momentum, "
        "normalisation and the selection of the epoch by validation AUC are those of MedMNIST's "
        "script.",
    ),
}
METHOD_NOTES = (
    "ζ-mixup mixes as the authors' code does (kakumarabhishek/zeta-mixup on GitHub, utils.py, "
    "commit 39207c9): each sample of a batch dominates one output. Their equation draws the "
    "dominant samples at random, so that more than a third of a batch dominates no output "
    "(zeta:anchor=random).",
    "The paper does not state mixup's α; ours is 1, the default of the authors' code, so that λ is "
    "uniform. Ours draws one λ per output, theirs one per batch (mixup:per=batch).",
)


def cells(artifact: str) -> list[PaperCell]:
    """The models of a table, ordered by seed, so that an unfinished table has all methods."""
    methods, changes, seeds = MODELS_OF[artifact]
    group = artifact.removesuffix("-detailed")
    return [
        TrainingCell(dataset, method, seed, recipe.change(**change))
        for dataset, recipe in RECIPES.items()
        if CATALOGUE[dataset].group == group
        for seed in range(seeds)
        for change in changes
        for method in methods
    ]


def draw(view: View) -> Result:
    runs = runs_of(view)
    tables = {view.artifact: comparison_table(view, runs)}
    comparisons = compare(view, runs)
    if len(comparisons):
        tables["differences"] = _difference_table(view, comparisons)
    return Result(tables=tables)


def runs_of(view: View) -> pd.DataFrame:
    """The table of runs in the paper's units, with the columns `model`, `variant` and `run`.

    A score is that of the epoch with the best validation score, or of the last one without
    validation.
    """
    rows = []
    for cell, label in _settings(view).items():
        for run in view.store.runs_of(cell):
            scores = run.last if run.best is None else run.best
            for metric in SHOWN_METRICS[view.artifact]:
                if scores[metric] is not None:
                    value = paper.METRICS[metric].scale * scores[metric]
                    row = (cell.dataset, cell.recipe.model, cell.method, label, metric)
                    rows.append((*row, run.cell.seed, value, run))
    return pd.DataFrame(rows, columns=[*KEYS, "seed", "value", "run"])


def _settings(view: View) -> dict[TrainingCell, str]:
    """One cell for each setting, of any seed, with the label of its recipe."""
    cells = {cell.index: cell for cell in view.trainings}
    skin = view.artifact.startswith("skin")
    return {cell: "from scratch" if skin else cell.label for cell in cells.values()}


def compare(view: View, runs: pd.DataFrame) -> pd.DataFrame:
    """ζ-mixup minus each baseline in the first metric, with Holm's correction over γ.

    The columns are those of `paired_tests`, `baseline`, `printed` (the paper's difference) and
    `outcome`.
    """
    metric = SHOWN_METRICS[view.artifact][0]
    own, found = runs[runs["metric"] == metric], [pd.DataFrame({"method": []})]
    for (dataset, model, _), group in own.groupby(["dataset", "model", "variant"], sort=False):
        sizes = torch.tensor(group["run"].iloc[0].confusion).sum(1)
        steps = {metric: paper.METRICS[metric].scale * resolution(metric, sizes)}
        zeta = group["method"].str.startswith("zeta:")
        for baseline in BASELINES:
            pair = group[zeta | (group["method"] == baseline)].drop(columns="run")
            tests = paired_tests(pair, baseline, steps=steps).assign(baseline=baseline)
            printed = [
                paper.printed(view.artifact, dataset, model, method, metric)
                for method in (baseline, *tests["method"])
            ]
            tests["printed"] = [value - printed[0] for value in printed[1:]]
            found.append(tests)
    table = pd.concat(found[1:] or found, ignore_index=True)
    if len(table):
        ahead = METRICS[metric].sign * table["mean"] > 0
        table["outcome"] = ahead.map({True: "ahead", False: "behind"})
        table.loc[~table["significant"], "outcome"] = "not significant"
        table.loc[table["n"] < 2, "outcome"] = "one seed"
    return table


def _difference_table(view: View, comparisons: pd.DataFrame) -> Table:
    """ζ-mixup minus each baseline, with confidence intervals."""
    metric, interval = SHOWN_METRICS[view.artifact][0], f"{100 * CONFIDENCE:.0f} %"
    frame = pd.DataFrame(
        {
            "dataset": [CATALOGUE[name].title for name in comparisons["dataset"]],
            "model": comparisons["model"].map(paper.MODELS),
            "recipe": comparisons["variant"].replace("", "paper's recipe"),
            "difference": comparisons["method"].map(method_name)
            + " − "
            + comparisons["baseline"].map(method_name),
        }
    )
    names = {"ours": "mean", f"{interval} low": "low", f"{interval} high": "high"}
    for name, column in (names | {"paper": "printed"}).items():
        frame[name] = signed_cells(comparisons[column], paper.METRICS[metric].digits)
    frame["n"], frame["outcome"] = comparisons["n"], comparisons["outcome"]
    note = (
        "Student's t interval, paired by seed; ahead or behind: significant after Holm correction "
        f"over the values of γ ({METRICS[metric].better})."
    )
    caption = f"{sentence_case(_column_title(metric))}: ζ-mixup minus mixup and no mixing"
    return Table.of(frame, caption, [note])


def _column_title(metric: str) -> str:
    """The name of a metric with the paper's unit: "error rate %", "AUC"."""
    return METRICS[metric].title + (" %" if paper.METRICS[metric].scale == 100 else "")


def comparison_table(view: View, runs: pd.DataFrame) -> Table:
    """A row per dataset, model and method; per metric the paper's value, ours, the difference."""
    settings, metrics = _settings(view), SHOWN_METRICS[view.artifact]
    labels = list(dict.fromkeys(settings.values()))
    rows = list(dict.fromkeys((cell.dataset, cell.recipe.model, cell.method) for cell in settings))
    groups = list(dict.fromkeys(row[:2] for row in rows))
    rows.sort(key=lambda row: groups.index(row[:2]))
    heads = ["dataset", *(["model"] if len({model for _, model, _ in rows}) > 1 else []), "method"]
    values = {key: own["value"] for key, own in runs.groupby(KEYS)}
    lines = []
    for row in rows:
        names = {"dataset": CATALOGUE[row[0]].title, "model": paper.MODELS[row[1]]}
        names["method"] = method_name(row[2])
        line: list[Cell | str] = [names[head] for head in heads]
        for metric in metrics:
            printed = paper.printed(view.artifact, *row, metric)
            digits = paper.METRICS[metric].digits
            line.append(Cell(printed, digits=digits))
            for label in labels:
                own = values.get((*row, label, metric), pd.Series(dtype=float))
                line.append(mean_cell(own, digits))
                # NaN without runs
                line += signed_cells([float(own.mean()) - printed], digits)
        lines.append(line)
    explanation = (
        f"{sentence_case(METRICS[metrics[0]].better)}. Paper: as printed, without bold and "
        "underlined values; no mixing is its ERM. Ours: mean ± standard deviation over n seeds; – "
        "no run yet. Ours is at the epoch with the best validation score, or at the last one for "
        "datasets without a validation split. The table of differences says what is significant."
    )
    notes = [explanation, *METHOD_NOTES, *NOTES[view.artifact], *_data_notes(runs)]
    notes += paper.footnotes(view.artifact)
    caption = f"{sentence_case(view.title)}, the paper's and ours"
    heads += [name for metric in metrics for name in _column_names(metric, labels)]
    return Table(heads, lines, caption, notes)


def _column_names(metric: str, labels: Iterable[str]) -> list[str]:
    names = [f"{_column_title(metric)}, paper"]
    for suffix in (f", {label}" if label else "" for label in labels):
        names += [f"ours{suffix}", f"ours − paper{suffix}"]
    return names


def _data_notes(runs: pd.DataFrame) -> list[str]:
    """Notes of the records about their data that are not in the catalogue: copies, duplicates."""
    notes: dict[str, None] = {}
    for dataset, run in zip(runs["dataset"], runs["run"], strict=True):
        spec = CATALOGUE[dataset]
        own = [note for note in run.extra.get("notes", ()) if note not in spec.notes]
        notes |= dict.fromkeys(f"{spec.title}: {note}." for note in own)
    return list(notes)
