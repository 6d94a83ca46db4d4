"""What tests make: points and digits, runs of them, records, comparisons; and what runs leave."""

import hashlib
import io
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from paper.datasets import CATALOGUE
from paper.datasets.manifolds import crescents, draw_splits
from paper.records import Measurement
from zetamix.methods import parse
from zetamix_lab import data
from zetamix_lab.atomic_io import write_bytes
from zetamix_lab.comparison import Comparison
from zetamix_lab.data import from_tensors
from zetamix_lab.metrics import DENSE_CLASSES, SCALED
from zetamix_lab.provenance import machine_info
from zetamix_lab.records import Cell, RunRecord
from zetamix_lab.runs.compare import Grid, make_examples
from zetamix_lab.seeds import seeded
from zetamix_lab.train import Recipe, Run, default_recipe, train
from zetamix_lab.train.run_folder import RunFolder

# data


def two_crescents():
    """512 training and 512 test points of two classes, without a validation split."""
    return from_tensors("crescents", draw_splits("crescents", 0), ("upper", "lower"))


def _write_crescents():
    """As `two_crescents`, each point drawn as a spot in 8 × 8 pixels, as a file of a user's.

    With a validation split of 64. All processes of xdist must agree on the path, which is part of
    the names of tests.
    """
    parts = {"train": crescents(), "val": crescents(64, seed=2), "test": crescents(seed=1)}
    # columns from -1.5 to 2.5, rows from -1 to 1.5
    grid = np.stack(np.meshgrid(np.linspace(-1.5, 2.5, 8), np.linspace(-1, 1.5, 8)), -1)
    arrays = {}
    for split, points in parts.items():
        squares = ((points.samples.numpy()[:, None, None] - grid) ** 2).sum(-1)
        arrays[f"{split}_images"] = (255 * np.exp(-2 * squares)).astype(np.uint8)
        arrays[f"{split}_labels"] = points.labels.numpy()
    content = io.BytesIO()
    np.savez(content, **arrays)
    digest = hashlib.sha256(content.getvalue()).hexdigest()[:12]
    path = Path(tempfile.gettempdir(), f"zetamix-points-{os.getuid()}-{digest}", "crescents.npz")
    if not path.exists():
        write_bytes(path, content.getvalue())
    return str(path)


CRESCENTS = _write_crescents()


def small_digits(data_dir, train=100):
    whole = data.load("digits", data_dir=data_dir)
    sizes = {"train": train, "val": 40, "test": 50}
    parts = {split: getattr(whole, split).subset(size) for split, size in sizes.items()}
    return replace(whole, **parts)


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


# runs of 100 digits in batches of 32: three steps an epoch, and four samples left over

RECIPE = Recipe(
    source="test",
    model="digitnet",
    epochs=2,
    batch_size=32,
    lr=0.05,
    milestones=(1,),
    augmentation="none",
)
STEPS = 3
METHODS = ["none", "mixup", "cutmix", "switch", "zeta:2.8", "zetamix:until=1"]
# of a finished run, besides lock files
FINISHED = ["cell.json", "final.pt", "metrics.jsonl", "model.json", "record.json", "test.npz"]


class Runs:
    """Makes runs, each in a folder of its own unless one is named."""

    def __init__(self, dataset, folder, recipe=RECIPE, **options):
        self.dataset, self.folder, self.recipe, self.options = dataset, folder, recipe, options
        self.made = 0

    def __call__(self, method="zeta:2.8", recipe=None, *, seed=0, out=None, **options):
        self.made += 1
        return Run(
            options.pop("dataset", self.dataset),
            parse(method),
            self.recipe if recipe is None else recipe,
            seed=seed,
            out=self.folder / (f"run{self.made}" if out is None else out),
            **{**self.options, **options},
        )


def finish(run):
    """Train a run to its end, and return its record."""
    assert train([run]) == {}
    return run.record


def stop_after(rounds):
    """A stop condition that returns True in its n-th call."""
    calls = iter(range(1, 1000))
    return lambda: next(calls) == rounds


def resume(new, *arguments, rounds, **options):
    """A run that was stopped by `stop_after(rounds)`, and then trained to its end."""
    part = new(*arguments, out="part", **options)
    train([part], stop=stop_after(rounds))
    assert part.record is None
    last = new(*arguments, out="part", **options)
    finish(last)
    return last


def dropout_model(name, num_classes, shape, seed, **options):
    """In place of `zetamix_lab.models.initialise`: a model with dropout."""
    with seeded(seed):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10))


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def result(folder):
    """Everything of a finished run that must not depend on how it was interrupted."""
    record = json.loads((folder / "record.json").read_text())
    kept = ("cell", "last", "best", "confusion", "test_size", "parameters")
    curve = RunFolder(folder).read_curve()
    for line in curve:
        del line["seconds"]
    return {name: record[name] for name in kept}, curve


def weights(folder):
    return torch.load(folder / "final.pt", weights_only=True, map_location="cpu")


def assert_same(folder, other):
    """The same metrics, curve and weights, bit by bit."""
    assert result(folder) == result(other)
    torch.testing.assert_close(weights(folder), weights(other), rtol=0, atol=0)


def checkpoint(folder):
    """The trainer's state in a checkpoint, which must be readable if there is one."""
    path = folder / "checkpoint.pt"
    return torch.load(path, weights_only=True)["trainer"] if path.exists() else None


# records of given numbers, without training

MACHINE = machine_info(torch.device("cpu"))
FACTS = {
    "processor": "a processor", "cores": "2", "threads": "2", "python": "3.12", "torch": "2.11",
    "gpu": "a GPU", "commit": "abc1234", "command": "zetamix reproduce",
}  # fmt: skip


def metrics(given):
    """All measures; those that are not given follow from the error rate."""
    given = {"error": given} if isinstance(given, float) else given
    error = given.get("error", 0.1)
    rest = dict.fromkeys(("accuracy", "balanced_accuracy", "f1_micro", "f1_macro"), 1 - error)
    calibration = {"nll": 2 * error, "ece": error, "nll_scaled": error, "ece_scaled": error / 2}
    return {"error": error, **rest, "auc": 1 - error / 2, **calibration, **given}


def scores(error):
    return metrics({"error": error, "auc": 1 - error, "nll": 0.2, "ece": 0.05})


def run_record(cell, error, *, best=None, test_size=10_000, **changes):
    """A finished run of a `Training` cell; `best`: the same for the best validation epoch."""
    of_cell = {"dataset": cell.dataset, "method": cell.method, "seed": cell.seed}
    size = cell.subset.train if cell.subset else CATALOGUE[cell.dataset].sizes["train"]
    recipe = {"recipe": cell.recipe.as_dict(), "train_size": size}
    return RunRecord(
        cell=Cell(fingerprint="f", **of_cell, **recipe),
        last=scores(error),
        best=None if best is None else scores(best) | {"epoch": 3, "val_score": 0.5},
        confusion=[[round((1 - error) * test_size), round(error * test_size)], [0, 0]],
        test_size=test_size,
        wall_s=100.0,
        machine=FACTS,
        **changes,
    )


def measurement(**changes):
    """A measurement of kind "overview"; any field can be changed."""
    values = {
        "kind": "overview", "dataset": "crescents", "fingerprint": "f", "method": "mixup:1.0",
        "seed": 0, "recipe": {"sources": 8}, "values": {"x": 1.5}, "wall_s": 0.1, "machine": FACTS,
    }  # fmt: skip
    return Measurement(**(values | changes))


def make_comparison(
    scores, *, dataset=None, epochs=3, failures=None, missing=(), temperature=0.8, **more
):
    """A comparison of `scores`, {method: [{metric: value} for each seed]}.

    A number instead of a dict is the error rate. missing: (method, seed) without a record.
    temperature: of every run; None for runs without a validation split, or of an earlier version.
    more: fields of the comparison.
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
        records[cell.method, cell.seed] = RunRecord(
            cell=cell,
            last=last,
            best=None,
            confusion=_confusion(dataset, last["error"]),
            test_size=len(dataset.test),
            wall_s=30.0,
            machine=dict(MACHINE),
            extra={} if temperature is None else {"temperature": temperature},
        )
        curves[cell.method, cell.seed] = [
            {"epoch": k, "train_loss": 1 / k, **dict.fromkeys(evaluated, _scaled(last, factor))}
            for k, factor in enumerate(range(epochs, 0, -1), 1)
        ]
    return Comparison(
        name=dataset.name,
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


def _scaled(last, factor):
    return {name: value * factor for name, value in last.items()}


def _confusion(dataset, error):
    """The wrong ones go to the next class."""
    counts = dataset.test.counts()
    if len(counts) > DENSE_CLASSES:
        return []
    wrong = (error * counts).round().long()
    return (torch.diag(counts - wrong) + torch.diag(wrong).roll(1, 1)).tolist()
