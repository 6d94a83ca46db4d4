"""What tests make and compare: small runs, the files in their folders."""

import json
from dataclasses import replace

import torch
from torch import nn

from zetamix.methods import parse
from zetamix_lab import data
from zetamix_lab.seeds import seeded
from zetamix_lab.train import Recipe, Run, train
from zetamix_lab.train.run_folder import RunFolder

# 100 digits in batches of 32: three steps an epoch, and four samples left over
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


def small_digits(data_dir, train=100, val=40, test=50):
    whole = data.load("digits", data_dir=data_dir)
    return replace(
        whole,
        train=whole.train.subset(train),
        val=whole.val.subset(val),
        test=whole.test.subset(test),
    )


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
    (record,) = train([run]).records
    return record


def stop_after(rounds):
    """A stop condition that returns True in its n-th call."""
    calls = iter(range(1, 1000))
    return lambda: next(calls) == rounds


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
