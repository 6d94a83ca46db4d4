"""Every artifact in seconds: stand-ins for the data, shortened recipes. It shows that cells run.

Nothing that comes out means anything, so it is kept in a folder of its own and says so wherever it
is shown.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix.data import CATALOGUE, Dataset, DatasetSpec, from_tensors, load
from zetamix.data.dataset import SPLITS
from zetamix.data.loading import DataDir, status
from zetamix.data.manifolds import MANIFOLDS
from zetamix.experiments.reproduce.cells import Cell, Training
from zetamix.train import Recipe

LABEL = "quick: stand-ins and shortened recipes, these numbers mean nothing"
SIDE = 16
# ten images of each of ten digits are shown; training does with two batches
MEASURED, TRAINED = 100, 16
NEIGHBOURS = 16
# two networks for two, so that no cell is mistaken for another
SMALL = {"resnet18": "digitnet", "resnet50": "lenet5"}
# models of a sweep
SWEPT = 4
RECIPES: dict[str, dict[str, Any]] = {
    "oracle": {"epochs": 1},
    "batch-time": {"shape": [4, 3, SIDE, SIDE], "rounds": 5},
    "training-time": {"timed": 2},
}


def shorten(cells: Sequence[Cell], device: torch.device) -> list[Cell]:
    """The same cells, each once and with one seed, small enough for a second or less."""
    short: list[Cell] = []
    swept: Counter[str] = Counter()
    for cell in cells:
        if isinstance(cell, Training) and cell.of_sweep:
            swept[cell.dataset] += 1
            if swept[cell.dataset] > SWEPT:
                continue
        if isinstance(cell, Training):
            new: Cell = dataclasses.replace(cell, seed=0, recipe=shorten_recipe(cell.recipe))
        else:
            recipe = {**cell.recipe, **RECIPES.get(cell.kind, {})}
            if cell.device is not None:
                recipe["device"] = device.type
            if "neighbours" in recipe:
                recipe["neighbours"] = min(recipe["neighbours"], NEIGHBOURS)
            if "training" in recipe:
                recipe["training"] = shorten_recipe(Recipe.from_dict(recipe["training"])).as_dict()
            new = dataclasses.replace(cell, recipe=recipe)
        if new not in short:
            short.append(new)
    return short


def shorten_recipe(recipe: Recipe) -> Recipe:
    model = SMALL[recipe.model]
    return recipe.change(model=model, epochs=1, batch_size=8, evaluate_every=1, precision="float32")


def small_data(name: str, data_dir: DataDir, *, training: bool) -> Dataset:
    """A few small samples of a dataset that is here, or drawn ones in its place."""
    spec, count = CATALOGUE[name], TRAINED if training else MEASURED
    if spec.split == "drawn":
        points = MANIFOLDS[name](count=count)
        return from_tensors(name, dict.fromkeys(("train", "test"), points), spec.classes)
    splits = drawn_images(spec, count)
    note = f"{LABEL}; drawn images"
    if status(spec, data_dir):
        splits = _shrunk(load(name, data_dir), count)
        note = f"{LABEL}; a few images, {SIDE} pixels wide"
    return from_tensors(name, splits, spec.classes, notes=(note,))


def drawn_images(spec: DatasetSpec, count: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Noise around a grey of each class: something that can be learnt, of the right form."""
    classes = len(spec.classes)
    labels = torch.arange(count) % classes
    splits = {}
    for seed, split in enumerate(SPLITS):
        if split in spec.sizes:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randint(56, (count, spec.shape[0], SIDE, SIDE), generator=generator)
            grey = (200 * labels // classes).view(-1, 1, 1, 1)
            splits[split] = (noise + grey).to(torch.uint8), labels
    return splits


def _shrunk(dataset: Dataset, count: int) -> dict[str, tuple[Tensor, Tensor]]:
    splits = {}
    for name, split in dataset.splits.items():
        # evenly over the split, which may be in the order of classes; again and again if need be
        rows = torch.linspace(0, len(split) - 1, count).round().long()
        images = F.adaptive_avg_pool2d(split.take(rows).float(), SIDE)
        splits[name] = images.round().to(torch.uint8), split.labels[rows]
    return splits
