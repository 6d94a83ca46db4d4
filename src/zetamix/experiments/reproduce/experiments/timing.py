"""The table of times: an epoch of training for each method, and one batch of large images."""

import dataclasses
import shutil
import time
from itertools import pairwise
from statistics import mean, stdev

import torch

from zetamix.baselines import Local
from zetamix.bench.contenders import CONTENDERS, COPY, OURS, Contender
from zetamix.bench.run import Case
from zetamix.bench.run import measure as measure_case
from zetamix.experiments.reproduce.cells import Measuring
from zetamix.experiments.reproduce.experiments.workbench import Found, Workbench
from zetamix.methods import parse
from zetamix.train import RECIPES, Recipe, Run
from zetamix.train.cuda_graph import compiling_pays

METHODS = ("none", "mixup:1.0", "zeta:2.8")
# dataset: epochs of the paper's table of times
EPOCHS = {"cifar10": 200, "stl10": 200, "imagenette": 80}
TIMED = 5
SHAPE = (32, 3, 224, 224)
ROUNDS = 50
LOCAL = "local synthetic instances"
BATCH_CONTENDERS = (
    *(each for each in CONTENDERS if each.name in (COPY, OURS, "zetamix Mixup", "paper listing")),
    *(each for each in CONTENDERS if each.name == "mixup, original"),
    Contender(LOCAL, lambda classes: Local(num_classes=classes)),
)


def cells() -> list[Measuring]:
    """Training is timed on a GPU, as the paper's was; a batch on both kinds of device."""
    training = [
        Measuring(
            "training-time",
            name,
            method,
            recipe={"device": "cuda", "timed": TIMED, "training": RECIPES[name].as_dict()},
        )
        for name in EPOCHS
        for method in METHODS
    ]
    batches = [
        Measuring(
            "batch-time",
            "",
            "all",
            recipe={"device": device, "shape": list(SHAPE), "rounds": ROUNDS},
        )
        for device in ("cuda", "cpu")
    ]
    return [*training, *batches]


def measure_training(cell: Measuring, bench: Workbench) -> Found:
    """Seconds of an epoch of a model that trains alone, without the first and without evaluation.

    The first epoch holds what is done once: compiling, and capturing the step.
    """
    recipe = Recipe.from_dict(cell.recipe["training"])
    timed = cell.recipe["timed"]
    steps = recipe.epochs * (len(bench.dataset.train) // recipe.batch_size)
    folder = bench.work / "timing"
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(
        bench.dataset,
        parse(cell.method),
        # one epoch more, in which the evaluation falls
        dataclasses.replace(recipe, epochs=timed + 2, evaluate_every=timed + 2),
        seed=cell.seed,
        out=folder,
        device=bench.device,
        compile=compiling_pays(bench.device, steps),
        save_every=float("inf"),
    )
    ends = []
    for progress in run.advance():
        if progress.line is not None:
            _wait(bench.device)
            ends.append(time.perf_counter())
    shutil.rmtree(folder, ignore_errors=True)
    seconds = [late - early for early, late in pairwise(ends[:-1])]
    return Found(
        {
            "epoch_s": round(mean(seconds), 5),
            "epoch_s_std": round(stdev(seconds), 5),
            "timed": len(seconds),
            "compiled": run.compile,
        }
    )


def measure_batch(cell: Measuring, bench: Workbench) -> Found:
    """Every contender on the paper's batch, behind the check of results of `zetamix bench`."""
    case = Case(tuple(cell.recipe["shape"]), torch.float32, bench.device)
    rows = measure_case(case, cell.recipe["rounds"], BATCH_CONTENDERS)
    return Found(
        {
            "rows": [
                {
                    "contender": row.contender,
                    "mode": row.mode,
                    "median_us": round(row.median_us, 3),
                    "p20_us": round(row.p20_us, 3),
                    "p80_us": round(row.p80_us, 3),
                }
                for row in rows
            ]
        }
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
