"""Smoke tests: every artifact in seconds, on synthetic data with shortened recipes.

The numbers are meaningless. They are stored in a separate folder and labelled everywhere.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from paper.datasets import CATALOGUE, MANIFOLDS
from paper.results.paper_cells import PaperCell, Subset, TrainingCell
from zetamix_lab.data import Dataset, from_tensors
from zetamix_lab.data.splits import SPLITS
from zetamix_lab.train import Recipe

LABEL = "smoke test on synthetic data, these numbers are meaningless"
SIDE = 16
# the figure shows ten images of each of ten digits; training needs only two batches
MEASURED, TRAINED = 100, 16
NEIGHBOURS = 16
# two networks for two: with one, cells of the two models would be equal
SMALL_MODELS = {"resnet18": "digitnet", "resnet50": "lenet5"}
SWEEP_MODELS = 4
CHANGES: dict[str, dict[str, Any]] = {
    "oracle": {"epochs": 1},
    "batch-time": {"shape": [4, 3, SIDE, SIDE], "rounds": 5},
    "training-time": {"timed": 2},
}


def shorten(cells: Sequence[PaperCell], device: torch.device) -> list[PaperCell]:
    """The same cells with one seed, each small enough for a second or less."""
    short: list[PaperCell] = []
    swept: Counter[str] = Counter()
    for cell in cells:
        if isinstance(cell, TrainingCell):
            swept[cell.dataset] += cell.in_sweep
            if cell.in_sweep and swept[cell.dataset] > SWEEP_MODELS:
                continue
            classes, subset = len(CATALOGUE[cell.dataset].classes), cell.subset
            if subset is not None:
                # one sample of each class in every split
                held = None if subset.validation is None else classes
                subset = Subset(train=classes, validation=held)
            new: PaperCell = dataclasses.replace(
                cell, seed=0, recipe=_shorten(cell.recipe), subset=subset
            )
        else:
            recipe = {**cell.recipe, **CHANGES.get(cell.kind, {})}
            if cell.device is not None:
                recipe["device"] = device.type
            if "neighbours" in recipe:
                recipe["neighbours"] = min(recipe["neighbours"], NEIGHBOURS)
            if "training" in recipe:
                recipe["training"] = _shorten(Recipe.from_dict(recipe["training"])).as_dict()
            new = dataclasses.replace(cell, recipe=recipe)
        if new not in short:
            short.append(new)
    return short


def _shorten(recipe: Recipe) -> Recipe:
    model = SMALL_MODELS[recipe.model]
    return recipe.change(model=model, epochs=1, batch_size=8, evaluate_every=1, precision="float32")


def synthetic_data(name: str, *, training: bool, cut: bool = False) -> Dataset:
    """A few samples instead of a dataset: points on a manifold, or images that can be classified.

    cut: whether a `Subset` will be taken of it, which needs several samples of every class.
    """
    spec, count = CATALOGUE[name], TRAINED if training else MEASURED
    count = 3 * len(spec.classes) if cut else count
    if spec.split == "drawn":
        points = MANIFOLDS[name](count=count)
        return from_tensors(name, dict.fromkeys(("train", "test"), points), spec.classes)
    labels = torch.arange(count) % len(spec.classes)
    # noise around a grey level per class
    grey = (200 * labels // len(spec.classes)).view(-1, 1, 1, 1)
    splits = {}
    for seed, split in enumerate(SPLITS):
        if split in spec.sizes:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randint(56, (count, spec.shape[0], SIDE, SIDE), generator=generator)
            splits[split] = (noise + grey).to(torch.uint8), labels
    return from_tensors(name, splits, spec.classes, notes=(LABEL,))
