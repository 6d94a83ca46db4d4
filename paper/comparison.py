"""ZetaMix compared with common baselines on test data, and the contrast of training images."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pandas as pd
import torch

from paper.context import Context
from paper.datasets import CATALOGUE
from paper.drawing import ZETAMIX, Result, finish, mean_cell, method_name, signed_cells
from paper.measure.estimate import mean_of
from paper.recipes import ZETAMIX_RECIPES
from paper.records import MeasurementCell, PaperCell, Subset, TrainingCell, View
from zetamix.methods import parse
from zetamix_lab.data.loader import Loader, measure_scale
from zetamix_lab.metrics import METRICS, Metric, resolution
from zetamix_lab.report import Cell, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS, GREY
from zetamix_lab.report.table import Mark
from zetamix_lab.statistics import paired_tests
from zetamix_lab.text import plural

# ZetaMix with every option: if a default changes, the comparison has to be run again
METHODS = ("none", "mixup:1.0", "cutmix:1.0", "switch", "smoothing:0.1", "zeta:2.8", ZETAMIX)
# with the schedule of ZetaMix, which mixes in the first 80 % of training
LATE = {
    "mixup:1.0": "mixup:alpha=1.0,until=0.8",
    "cutmix:1.0": "cutmix:alpha=1.0,until=0.8",
    "switch": "switch:until=0.8",
}
SHOWN = [each for method in METHODS for each in (method, LATE.get(method)) if each]
# datasets, parts of them and seeds, whose number was fixed before the first run: three seeds
# everywhere, then more where a run takes seconds, because with three a difference has to be eleven
# times its standard error to be significant after Holm's correction over six methods
STAGES: tuple[tuple[str, Subset | None, Sequence[int]], ...] = (
    ("cifar10", Subset(5_000), range(3)),
    ("breastmnist", None, range(10)),
    ("isic2017", None, range(3)),
    ("fashion_mnist", Subset(10_000), range(3)),
    ("cifar10", None, range(3)),
    ("cifar10", Subset(5_000), range(3, 10)),
    ("cifar100", None, range(3)),
    ("isic2017", None, range(3, 5)),
    ("fashion_mnist", Subset(10_000), range(3, 5)),
)
CONTRAST_IMAGES, CONTRAST_BATCH = 10_000, 128
# bins of the histogram of contrast, from 0 to the top
CONTRAST_BINS, CONTRAST_TOP = 60, 2.4
RIVAL = "ZetaMix minus the best other"
BREAST = (
    "BreastMNIST: 84 groups of near-duplicates lie across its official splits, some with opposite "
    "labels. Seeds 0–3 of all rows but those named until = 0.8 were trained in float32 on a CPU, "
    "all other runs in bfloat16 on an H200."
)


def cells() -> list[PaperCell]:
    """The contrast of training images, then the models of all stages."""
    recipe: dict[str, Any] = {"images": CONTRAST_IMAGES, "batch": CONTRAST_BATCH}
    recipe |= {"bins": CONTRAST_BINS, "top": CONTRAST_TOP}
    images = [("test", "none"), *(("train", method) for method in METHODS)]
    contrast = [
        MeasurementCell("contrast", "cifar10", method, recipe={"split": split, **recipe})
        for split, method in images
    ]
    trainings = [
        TrainingCell(dataset, method, seed, ZETAMIX_RECIPES[dataset], subset)
        for dataset, subset, seeds in STAGES
        for seed in seeds
        for method in SHOWN
    ]
    return [*contrast, *trainings]


def measure_contrast(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """The standard deviation of the pixels of each image, normalised and mixed as in training.

    Without crops, because their black borders add contrast (1.0 instead of 0.84 on CIFAR-10).
    """
    recipe, dataset = cell.recipe, context.dataset
    loader = Loader(
        dataset.splits[recipe["split"]],
        recipe["batch"],
        scale=measure_scale(dataset.train.samples),
        seed=cell.seed,
        device=context.device,
    )
    generator = torch.Generator(context.device).manual_seed(cell.seed)
    mix = parse(cell.method).transform(dataset.num_classes, generator)
    batches = islice(loader, -(-recipe["images"] // recipe["batch"]))
    mixed = ((images if mix is None else mix(images, labels)[0]) for images, labels in batches)
    contrast = torch.cat([images.flatten(1).std(1) for images in mixed])[: recipe["images"]]
    counts = torch.histc(contrast, recipe["bins"], 0, recipe["top"])
    return {"contrast": mean_of(contrast), "counts": counts.int().tolist()}


def draw(view: View) -> Result:
    runs = read_runs(view)
    tests = compare(view, runs)
    tables = {"zetamix": main_table(view, runs, tests)}
    if len(tests):
        tables["differences"] = _difference_table(tests)
    return Result(_contrast_picture(view), tables)


def _metric(cell: TrainingCell) -> Metric:
    """The metric by which the paper compares methods on a dataset."""
    selected = cell.recipe.select
    return METRICS["error" if selected == "accuracy" else selected]


def _column(cell: TrainingCell) -> str:
    """The dataset and its metric: "CIFAR-10 at 5,000, error %"."""
    size = "" if cell.subset is None else f" at {cell.subset.train:,}"
    return f"{CATALOGUE[cell.dataset].title}{size}, {_metric(cell).heading}"


def columns_of(view: View) -> dict[str, TrainingCell]:
    """A cell of each column of the table, of any method and seed."""
    return {_column(cell): cell for cell in view.trainings}


def read_runs(view: View) -> pd.DataFrame:
    """The table of runs, all by one rule: the test split after the last epoch.

    `dataset` is the column of the table.
    """
    rows = [
        (column, method, run.cell.seed, metric.name, metric.scale(run.last[metric.name]))
        for column, cell in columns_of(view).items()
        for metric in (_metric(cell),)
        for method in SHOWN
        for run in view.store.runs_of(replace(cell, method=method))
    ]
    return pd.DataFrame(rows, columns=["dataset", "method", "seed", "metric", "value"])


def compare(view: View, runs: pd.DataFrame) -> pd.DataFrame:
    """ZetaMix minus each other method: `paired_tests` with Holm's correction over a column."""
    found = [pd.DataFrame(columns=["dataset", "method", "significant"])]
    for column, cell in columns_of(view).items():
        own, metric = runs[runs["dataset"] == column], _metric(cell)
        if ZETAMIX in set(own["method"]):
            run = view.store.runs_of(replace(cell, method=ZETAMIX))[0]
            sizes = torch.tensor(run.confusion).sum(1)
            steps = {metric.name: metric.scale(resolution(metric.name, sizes))}
            tests = paired_tests(own, ZETAMIX, steps=steps)
            ends = {"low": -tests["high"], "high": -tests["low"]}
            found.append(tests.assign(mean=-tests["mean"], **ends))
    return pd.concat(found[1:] or found, ignore_index=True)


def main_table(view: View, runs: pd.DataFrame, tests: pd.DataFrame) -> Table:
    """A row per method, a column per dataset with runs; last, the difference to the best other."""
    frame = pd.DataFrame({"method": [*map(method_name, SHOWN), RIVAL]})
    for column, cell in columns_of(view).items():
        metric, own = _metric(cell), runs[runs["dataset"] == column]
        if not len(own):
            continue
        means = metric.sign * own.groupby("method")["value"].mean()
        found = tests[tests["dataset"] == column].set_index("method")
        apart = found["significant"].to_dict()
        most = int(own["method"].value_counts().max())
        cells: list[Cell | str] = []
        for method in SHOWN:
            shown = mean_cell(own.loc[own["method"] == method, "value"], metric.digits)
            is_best = len(means) > 1 and means.idxmax() == method
            certain = all(apart.values()) if method == ZETAMIX else apart.get(method, False)
            mark: Mark = "best" if is_best and certain and len(found) else ""
            n, star = None if shown.n == most else shown.n, "*" if apart.get(method) else ""
            cells.append(replace(shown, n=n, mark=mark, suffix=star))
        others, difference = means.drop(ZETAMIX, errors="ignore"), "–"
        if len(others) and (rival := str(others.idxmax())) in found.index:
            ends = signed_cells(found.loc[rival, ["mean", "low", "high"]], metric.digits)
            mean, low, high = (cell.text() for cell in ends)
            interval = "" if pd.isna(found.loc[rival, "low"]) else f" ({low} to {high})"
            difference = f"{method_name(rival)}: {mean}{interval}"
        frame[f"{column}, {plural(most, 'seed')}"] = [*cells, difference]
    notes = [
        "Test split, last epoch, mean ± standard deviation over seeds, of which n are fewer than "
        "the column says; – no run yet. Lower is better for errors, higher for AUC and balanced "
        "accuracy. until = 0.8: mixes in the first 80 % of training, as ZetaMix does.",
        "* significantly different from ZetaMix (95 %, paired by seed, Holm's correction over the "
        "methods of a column); bold: the best of a column, if that is significant. Last row: the "
        "other method with the best mean, and the difference with its 95 % interval.",
        BREAST,
        "ResNet-18 from scratch, the paper's recipe for each dataset, crops and flips on CIFAR, "
        "flips on Fashion-MNIST. The numbers of seeds were fixed before the first run.",
    ]
    return Table.of(frame, "ZetaMix and common baselines", notes)


def _difference_table(tests: pd.DataFrame) -> Table:
    frame = pd.DataFrame(
        {"dataset": tests["dataset"], "ZetaMix minus": tests["method"].map(method_name)}
    )
    digits = [METRICS[name].digits for name in tests["metric"]]
    for name, column in {"difference": "mean", "95 % low": "low", "95 % high": "high"}.items():
        numbers = zip(tests[column], digits, strict=True)
        frame[name] = [Cell(float(value), digits=most, signed=True) for value, most in numbers]
    for name, column in {"p": "p", "p, Holm": "p_holm"}.items():
        frame[name] = [Cell(value, digits=4) for value in tests[column]]
    frame["n"] = tests["n"].astype(int)
    frame["significant"] = tests["significant"].map({True: "yes", False: "no"})
    note = "Student's t, paired by seed; Holm's correction over the methods of a dataset."
    return Table.of(frame, "ZetaMix minus each other method", [note])


def readme_section(view: View) -> str:
    """The columns that have runs, as Markdown, and how many runs are missing."""
    runs = read_runs(view)
    table = main_table(view, runs, compare(view, runs))
    parts = [table.markdown(), " ".join(table.notes[:2]), table.notes[2]]
    if missing := sum(isinstance(cell, TrainingCell) for cell in view.empty):
        total = len(view.trainings)
        parts.append(f"{missing} of the {total} runs of this comparison have not been made yet.")
    return "\n\n".join(parts)


def _contrast_picture(view: View) -> list[Picture]:
    """The contrast of training images with each method, and of test images."""
    measured = {
        (record.recipe["split"], record.method): torch.tensor(record.values["counts"]).double()
        for record in view.measurements("contrast")
    }
    methods = [method for split, method in measured if split == "train"]
    if ("test", "none") not in measured or not methods:
        return []
    top = max(float(counts.max() / counts.sum()) for counts in measured.values())
    heights = {key: 0.85 * counts / counts.sum() / top for key, counts in measured.items()}
    places = [CONTRAST_TOP * (k + 0.5) / CONTRAST_BINS for k in range(CONTRAST_BINS)]
    with drawing(5.6, 1.3 + 0.62 * len(methods)) as figure:
        axes = figure.subplots()
        for k, method in enumerate(methods):
            names = ["test images", "training images"] if k == 0 else [None, None]
            colour = COLOURS[2] if method == ZETAMIX else COLOURS[0]
            style: dict[str, Any] = {"color": colour, "alpha": 0.45, "lw": 0, "label": names[1]}
            axes.plot(places, heights["test", "none"] - k, color=GREY, label=names[0])
            axes.fill_between(places, heights["train", method] - k, -k, **style)
            axes.axhline(-k, color="#dddddd", lw=0.6)
        axes.set(xlim=(0, CONTRAST_TOP), xlabel="standard deviation of the pixels of an image")
        axes.set_yticks([-k for k in range(len(methods))], [method_name(m) for m in methods])
        axes.set_ylim(-len(methods) + 0.8, 0.95)
        axes.tick_params(axis="y", length=0)
        axes.set_title("contrast of training images")
        axes.legend(loc="upper right")
        axes.grid(visible=False)
        picture = finish(
            figure,
            "why",
            alt="For each method, the contrast of its training images and of test images.",
            caption="The contrast of CIFAR-10 training images after mixing with each method "
            "(filled), and of test images (line); normalised pixels, before crops. Averaging "
            "reduces contrast; ZetaMix restores it.",
        )
    return [picture]
