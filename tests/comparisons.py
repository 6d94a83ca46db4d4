"""Comparisons made of given numbers, without training anything."""

from pathlib import Path

import torch

from zetamix.methods import parse
from zetamix_lab.comparison import Comparison
from zetamix_lab.data import from_tensors
from zetamix_lab.metrics import SCALED
from zetamix_lab.provenance import machine_info
from zetamix_lab.records import RunRecord
from zetamix_lab.runs.compare import Grid, make_examples
from zetamix_lab.train import default_recipe

MACHINE = machine_info(torch.device("cpu"))


def make_dataset(counts=(10, 10, 10), shape=(1, 8, 8), name="made", classes=None):
    """Random samples, the same number of each class in training and test."""
    labels = torch.cat([torch.full((count,), k) for k, count in enumerate(counts)])
    generator = torch.Generator().manual_seed(0)
    if len(shape) == 3:
        samples = torch.randint(256, (len(labels), *shape), generator=generator).to(torch.uint8)
    else:
        samples = torch.randn(len(labels), *shape, generator=generator)
    splits = dict.fromkeys(("train", "val", "test"), (samples, labels))
    return from_tensors(name, splits, classes)


def make_comparison(
    scores, *, dataset=None, epochs=3, failures=None, missing=(), temperature=0.8, **more
):
    """A comparison of `scores`, {method: [{metric: value} for each seed]}.

    temperature: of every run; None for runs without a validation split, or of an earlier version.

    A number instead of a dict is the error rate. missing: (method, seed) without a record. more:
    fields of the comparison.
    """
    dataset = make_dataset() if dataset is None else dataset
    recipe = default_recipe(dataset.shape, len(dataset.train)).change(epochs=epochs)
    methods = tuple(parse(label) for label in scores)
    seeds = tuple(range(max(len(runs) for runs in scores.values())))
    grid = Grid(dataset, None, methods, seeds, recipe, Path("nowhere"))
    given = {parse(label).label: runs for label, runs in scores.items()}
    records, curves = {}, {}
    evaluated = ("test",) if dataset.val is None else ("test", "val")
    for cell in grid.cells:
        runs = given[cell.method]
        if cell.seed >= len(runs) or (cell.method, cell.seed) in missing:
            continue
        last = metrics(runs[cell.seed])
        if temperature is None:
            last = {name: value for name, value in last.items() if name not in SCALED}
        key = cell.method, cell.seed
        records[key] = RunRecord(
            cell=cell,
            last=last,
            best=None,
            confusion=confusion(dataset, last["error"]),
            test_size=len(dataset.test),
            wall_s=30.0,
            step_ms=2.5,
            machine=dict(MACHINE),
            extra={} if temperature is None else {"temperature": temperature},
        )
        curves[key] = [
            {
                "epoch": k,
                "train_loss": 1 / k,
                **dict.fromkeys(evaluated, scaled(last, 1 + epochs - k)),
            }
            for k in range(1, epochs + 1)
        ]
    return Comparison(
        dataset=dataset,
        requested=tuple(method.label for method in methods),
        seeds=seeds,
        recipe=recipe,
        records=records,
        curves=curves,
        failures=failures or {},
        examples=make_examples(grid),
        **more,
    )


def metrics(given):
    """All measures; those that are not given follow from the error rate."""
    given = {"error": given} if isinstance(given, float) else given
    error = given.get("error", 0.1)
    rest = dict.fromkeys(("accuracy", "balanced_accuracy", "f1_micro", "f1_macro"), 1 - error)
    calibration = {"nll": 2 * error, "ece": error, "nll_scaled": error, "ece_scaled": error / 2}
    return {"error": error, **rest, "auc": 1 - error / 2, **calibration, **given}


def scaled(last, factor):
    return {name: value * factor for name, value in last.items()}


def confusion(dataset, error):
    """The wrong ones go to the next class."""
    counts = dataset.test.counts().tolist()
    rows = [[0] * len(counts) for _ in counts]
    for k, count in enumerate(counts):
        wrong = round(error * count)
        rows[k][k] = count - wrong
        rows[k][(k + 1) % len(counts)] += wrong
    return rows
