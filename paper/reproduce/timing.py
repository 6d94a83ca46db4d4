"""The table of times: an epoch of training with each method, and one batch of large images."""

import dataclasses
import shutil
import time
from itertools import pairwise
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.contenders import CLASSES, CONTENDERS, COPY, Call, Contender
from benchmarks.mixing import Case
from benchmarks.mixing import measure as measure_case
from paper.local_mixup import LocalMixup
from paper.recipes import RECIPES
from paper.reproduce.measure_context import MeasureContext, Measured
from paper.results.paper_cells import MeasurementCell
from zetamix.methods import parse
from zetamix_lab.train import Recipe, Run
from zetamix_lab.train.cuda_graph import compiling_pays

METHODS = ("none", "mixup:1.0", "zeta:2.8")
DATASETS = ("cifar10", "stl10", "imagenette")
TIMED = 5
SHAPE = (32, 3, 224, 224)
ROUNDS = 50
OURS = ("zetamix ZetaMixup", "zetamix Mixup")


def listing(gamma: float = 2.8) -> Call:
    """The paper's Listing 1, with weights made on the CPU as in the authors' code.

    Rewritten: the printed one multiplies integers by floats and does not run.
    """

    def zeta_mixup(samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
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

    return zeta_mixup


BATCH_CONTENDERS = (
    *(c for c in CONTENDERS if c.name in (COPY, *OURS)),
    Contender("paper listing", listing, dtypes=(torch.float32,)),
    *(c for c in CONTENDERS if c.name == "mixup, original"),
    Contender("local synthetic instances", lambda: LocalMixup(num_classes=CLASSES)),
)


def cells() -> list[MeasurementCell]:
    """Training is timed on a GPU, as in the paper; a batch on both device types."""
    recipes = {
        name: {"device": "cuda", "timed": TIMED, "training": RECIPES[name].as_dict()}
        for name in DATASETS
    }
    training = [
        MeasurementCell("training-time", name, method, recipe=recipe)
        for name, recipe in recipes.items()
        for method in METHODS
    ]
    batch = {"shape": list(SHAPE), "rounds": ROUNDS}
    batches = [
        MeasurementCell("batch-time", "", "all", recipe={"device": device, **batch})
        for device in ("cuda", "cpu")
    ]
    return [*training, *batches]


def measure_training(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Seconds per epoch of a single model, without evaluation.

    The first epoch, which includes compilation and graph capture, is excluded.
    """
    recipe = Recipe.from_dict(cell.recipe["training"])
    timed = cell.recipe["timed"]
    steps = recipe.steps(len(context.dataset.train))
    folder = context.scratch / "timing"
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(
        context.dataset,
        parse(cell.method),
        # the last epoch, which includes the evaluation, is not timed either
        dataclasses.replace(recipe, epochs=timed + 2, evaluate_every=timed + 2),
        seed=cell.seed,
        out=folder,
        device=context.device,
        compile=compiling_pays(context.device, steps),
        save_every=float("inf"),
    )
    ends = []
    for progress in run.advance():
        if progress.line is not None:
            if context.device.type == "cuda":
                torch.cuda.synchronize(context.device)
            ends.append(time.perf_counter())
    shutil.rmtree(folder, ignore_errors=True)
    seconds = [late - early for early, late in pairwise(ends[:-1])]
    return Measured(
        {
            "epoch_s": round(mean(seconds), 5),
            "epoch_s_std": round(stdev(seconds), 5),
            "timed": len(seconds),
            "compiled": run.compile,
        }
    )


def measure_batch(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Every contender on the paper's batch; `benchmarks.mixing` checks their results first."""
    case = Case(tuple(cell.recipe["shape"]), "float32", context.device)
    rows = measure_case(case, cell.recipe["rounds"], BATCH_CONTENDERS)
    return Measured(
        {
            "rows": [
                {key: row[key] for key in ("contender", "mode")}
                | {key: round(row[key], 3) for key in ("median_us", "p20_us", "p80_us")}
                for row in rows
            ]
        }
    )
