"""The table of times: an epoch of training with each method, and one batch of large images."""

import shutil
import time
from dataclasses import replace
from itertools import pairwise, product
from statistics import mean, stdev
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.contenders import CLASSES, CONTENDERS, COPY, Contender
from benchmarks.mixing import Case
from benchmarks.mixing import measure as measure_case
from paper import values as paper
from paper.context import Context
from paper.datasets import CATALOGUE
from paper.drawing import Result, method_name
from paper.recipes import RECIPES
from paper.records import MeasurementCell, View
from zetamix import MixPlan, apply_plan
from zetamix.methods import parse
from zetamix.rules import OneHot
from zetamix.sampling import precise, weigh
from zetamix_lab.report import Cell, Table
from zetamix_lab.train import Recipe, Run
from zetamix_lab.train.cuda_graph import compiling_pays

METHODS = ("none", "mixup:1.0", "zeta:2.8")
DATASETS = ("cifar10", "stl10", "imagenette")
TIMED = 5
SHAPE = (32, 3, 224, 224)
ROUNDS = 50
OURS, OUR_MIXUP = "zetamix ZetaMixup", "zetamix Mixup"
LOCAL, LISTING, ORIGINAL = "local synthetic instances", "paper listing", "mixup, original"
# contender: (description, row of the paper's table)
SHOWN = {
    COPY: ("a plain copy of the batch", None),
    OUR_MIXUP: ("mixup, zetamix", "mixup"),
    ORIGINAL: ("mixup, its authors' code", "mixup"),
    OURS: ("ζ-mixup, zetamix", "zeta_mixup"),
    LISTING: ("ζ-mixup, the paper's listing and its weights", "zeta_mixup"),
    LOCAL: ("local synthetic instances, zetamix", "local_synthetic_instances"),
}
PAPER_ROWS = {"mixup:1.0": "mixup", "zeta:2.8": "zeta_mixup"}
# a column of the paper's table
BATCH = "batch_tensor"


def listing(samples: Tensor, labels: Tensor, gamma: float = 2.8) -> tuple[Tensor, Tensor]:
    """The paper's Listing 1, with weights made on the CPU as in the authors' code.

    Rewritten: the printed one multiplies integers by floats and does not run.
    """
    batch = len(samples)
    orders = torch.stack([torch.randperm(batch - 1) for _ in range(batch)]) + 2
    ranks = torch.ones(batch, batch)
    for k in range(batch):
        ranks[k, :k], ranks[k, k + 1 :] = orders[k, :k], orders[k, k:]
    weights = ranks**-gamma
    weights = (weights / weights.sum(1, keepdim=True)).to(samples)
    mixed = torch.einsum("ijkl,pi->pjkl", samples, weights)
    targets = torch.einsum("pq,qj->pj", weights, F.one_hot(labels, CLASSES).to(weights))
    return mixed, targets


def local_plan(samples: Tensor, gamma: float = 2.8) -> MixPlan:
    """The local synthetic instances of Brown et al. (2015), the predecessor of ζ-mixup.

    The weights are those of `zeta_plan`, but sources are ranked by Euclidean distance to the
    anchor, sample k. Nothing is random; all pairwise distances are computed.

    >>> local_plan(torch.tensor([[0.0], [1.0], [5.0]])).indices
    tensor([[0, 1, 2],
            [1, 0, 2],
            [2, 1, 0]])
    """
    count = len(samples)
    rows = samples.detach().flatten(1).to(torch.promote_types(samples.dtype, torch.float32))
    # exact differences: the matrix-product formula has errors that can reorder close neighbours
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    indices = distances.fill_diagonal_(-1.0).sort(dim=1).indices
    weights = weigh(precise(gamma, samples.device), count).to(torch.float32)
    return MixPlan(indices, weights.expand(count, count), count)


def local_mixup(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    plan = local_plan(samples)
    return apply_plan(samples, plan), OneHot(CLASSES).mix(labels, plan)


BATCH_CONTENDERS = (
    *(c for c in CONTENDERS if c.name in (COPY, OURS, OUR_MIXUP)),
    Contender(LISTING, lambda: listing, dtypes=(torch.float32,)),
    *(c for c in CONTENDERS if c.name == ORIGINAL),
    Contender(LOCAL, lambda: local_mixup),
)


def cells() -> list[MeasurementCell]:
    """Training is timed on a GPU, as in the paper; a batch on both device types."""
    training = []
    for name in DATASETS:
        recipe = {"device": "cuda", "timed": TIMED, "training": RECIPES[name].as_dict()}
        training += [MeasurementCell("training-time", name, m, recipe=recipe) for m in METHODS]
    batch = {"shape": list(SHAPE), "rounds": ROUNDS}
    batches = [
        MeasurementCell("batch-time", "", "all", recipe={"device": device, **batch})
        for device in ("cuda", "cpu")
    ]
    return [*training, *batches]


def measure_training(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Seconds per epoch of a single model, without evaluation.

    The first epoch, which includes compilation and graph capture, is excluded, as is the last one,
    which includes the evaluation.
    """
    epochs = cell.recipe["timed"] + 2
    recipe = Recipe.from_dict(
        {**cell.recipe["training"], "epochs": epochs, "evaluate_every": epochs}
    )
    folder = context.store.folder / "runs" / "timing"
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(
        context.dataset,
        parse(cell.method),
        recipe,
        seed=cell.seed,
        out=folder,
        device=context.device,
        compile=compiling_pays(context.device, recipe.steps(len(context.dataset.train))),
        save_every=float("inf"),
    )
    ends = []
    for line in run.advance():
        if line:
            if context.device.type == "cuda":
                torch.cuda.synchronize(context.device)
            ends.append(time.perf_counter())
    shutil.rmtree(folder, ignore_errors=True)
    seconds = [late - early for early, late in pairwise(ends[:-1])]
    values = {"epoch_s": round(mean(seconds), 5), "epoch_s_std": round(stdev(seconds), 5)}
    return {**values, "timed": len(seconds), "compiled": run.compile}


def measure_batch(cell: MeasurementCell, context: Context) -> dict[str, Any]:
    """Every contender on the paper's batch; `benchmarks.mixing` checks their results first."""
    case = Case(tuple(cell.recipe["shape"]), "float32", context.device)
    rows = [
        {key: row[key] for key in ("contender", "mode")}
        | {key: round(row[key], 3) for key in ("median_us", "p20_us", "p80_us")}
        for row in measure_case(case, cell.recipe["rounds"], BATCH_CONTENDERS)
    ]
    return {"rows": rows}


def draw(view: View) -> Result:
    tables = {"training": _training_table(view)}
    if view.measurements("batch-time"):
        tables["batch"] = _batch_table(view)
    return Result(tables=tables)


def _training_table(view: View) -> Table:
    benchmarks, rows = paper.read()["tables"]["benchmarks"], []
    records = {(r.dataset, r.method): r.values for r in view.measurements("training-time")}
    for dataset, method in product(DATASETS, METHODS):
        printed = benchmarks["values_seconds"].get(PAPER_ROWS.get(method), {})
        theirs = _scaled(printed.get(dataset), 1 / 60, digits=2)
        ours = seconds = Cell(None)
        if values := records.get((dataset, method)):
            epoch = {"mean": values["epoch_s"], "std": values["epoch_s_std"]}
            ours = _scaled(epoch, benchmarks["columns"][dataset]["epochs"] / 60, digits=2)
            seconds = replace(_scaled(epoch, 1, digits=3), n=values["timed"])
        row = {"dataset": CATALOGUE[dataset].title, "method": method_name(method)}
        row |= _compare(theirs, ours, "minutes")
        rows.append({**row, "ours, seconds per epoch": seconds, "device": "cuda"})
    note = (
        f"Mean ± standard deviation. Paper: {benchmarks['hardware']}. Ours: a single model; "
        "minutes are the epochs of the paper's table of times (200, 200, 80) × the time of an "
        "epoch without evaluation; n: epochs timed."
    )
    return Table.of(pd.DataFrame(rows), "Training time", [note])


def _scaled(value: dict[str, float] | None, scale: float, digits: int) -> Cell:
    """A mean ± standard deviation in another unit."""
    if value is None:
        return Cell(None)
    return Cell(scale * value["mean"], error=scale * value["std"], digits=digits)


def _compare(theirs: Cell, ours: Cell, unit: str) -> dict[str, Any]:
    """The columns of the paper's value, ours, and the difference."""
    difference = Cell(None)
    if isinstance(ours.value, float) and isinstance(theirs.value, float):
        difference = Cell(ours.value - theirs.value, digits=ours.digits, signed=True)
    return {f"paper, {unit}": theirs, f"ours, {unit}": ours, f"ours − paper, {unit}": difference}


def _batch_table(view: View) -> Table:
    printed = paper.read()["tables"]["benchmarks"]["values_seconds"]
    rows, shape, order = [], "", list(SHOWN)
    for record in view.measurements("batch-time"):
        shape, device = " × ".join(map(str, record.recipe["shape"])), record.recipe["device"]
        measured = record.values["rows"]
        for values in sorted(measured, key=lambda r: (order.index(r["contender"]), r["mode"])):
            description, paper_row = SHOWN[values["contender"]]
            # the paper measured on a GPU
            is_comparable = paper_row is not None and device == "cuda"
            theirs = _scaled(printed[paper_row][BATCH] if is_comparable else None, 1e6, digits=1)
            median, low, high = (
                Cell(values[f"{q}_us"], digits=1) for q in ("median", "p20", "p80")
            )
            row = {"device": device, "method": description, "mode": values["mode"]}
            rows.append({**row, **_compare(theirs, median, "µs"), "p20": low, "p80": high})
    note = (
        "Ours: median, and 20 % and 80 % quantiles, of a call that draws the plan and mixes "
        "samples and labels; eager: a plain call, graph: the replay of a captured CUDA graph. The "
        "paper measured on its own GPU, and local synthetic instances with other code. Its "
        "listing takes the weights as an argument; here they are drawn on the host and copied to "
        "the device."
    )
    return Table.of(pd.DataFrame(rows), f"One batch of {shape}, float32", [note])
