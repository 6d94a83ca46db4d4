"""The files in the folder of a run, and when two runs are the same."""

import json

import torch

from zetamix.train.run_folder import RunFolder

# of a finished run, besides lock files
FINISHED = ["cell.json", "final.pt", "metrics.jsonl", "model.json", "record.json"]


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
    found, expected = weights(folder), weights(other)
    assert found.keys() == expected.keys()
    for key in expected:
        assert torch.equal(found[key], expected[key]), key


def checkpoint(folder):
    """The trainer's state in a checkpoint, which must be readable if there is one."""
    path = folder / "checkpoint.pt"
    return torch.load(path, weights_only=True)["trainer"] if path.exists() else None
