"""The table of times: an epoch of training with each method, and one batch of large images."""

import dataclasses
import shutil
import time
from itertools import pairwise
from statistics import mean, stdev

import torch

from benchmarks.contenders import CONTENDERS, COPY, Contender
from benchmarks.run import Case
from benchmarks.run import measure as measure_case
from paper.reproduce.measure_context import MeasureContext, Measured
from paper.results.paper_cells import MeasurementCell
from zetamix.methods import parse
from zetamix.transforms import LocalMixup
from zetamix_lab.train import RECIPES, Recipe, Run
from zetamix_lab.train.cuda_graph import compiling_pays

METHODS = ("none", "mixup:1.0", "zeta:2.8")
DATASETS = ("cifar10", "stl10", "imagenette")
TIMED = 5
SHAPE = (32, 3, 224, 224)
ROUNDS = 50
OURS = ("zetamix ZetaMixup", "zetamix Mixup", "paper listing")
BATCH_CONTENDERS = (
    *(c for c in CONTENDERS if c.name in (COPY, *OURS)),
    *(c for c in CONTENDERS if c.name == "mixup, original"),
    Contender("local synthetic instances", lambda classes: LocalMixup(num_classes=classes)),
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
    """Every contender on the paper's batch; `zetamix bench` checks their results first."""
    case = Case(tuple(cell.recipe["shape"]), torch.float32, context.device)
    rows = measure_case(case, cell.recipe["rounds"], BATCH_CONTENDERS)
    return Measured(
        {
            "rows": [
                {"contender": row.contender, "mode": row.mode}
                | {key: round(getattr(row, key), 3) for key in ("median_us", "p20_us", "p80_us")}
                for row in rows
            ]
        }
    )
