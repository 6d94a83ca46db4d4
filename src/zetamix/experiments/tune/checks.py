"""What cannot be searched throughout, told before anything is trained and not in trial 17."""

import torch

from zetamix.data import DataError, Dataset
from zetamix.models import build
from zetamix.results.search_space import Space
from zetamix.train import Recipe


def check_dataset(dataset: Dataset) -> None:
    if dataset.num_classes < 2:
        raise DataError(
            f"{dataset.name} has one class, {dataset.classes[0]!r}. Tuning needs at least two "
            "classes to tell apart."
        )
    for name, count in zip(dataset.classes, dataset.train.counts().tolist(), strict=True):
        if count < 2 and dataset.val is None:
            raise DataError(
                f"Class {name!r} of {dataset.name} has {count} training samples. Holding out a "
                "validation split needs at least 2 of every class: add some, or leave it out."
            )


def check_models(dataset: Dataset, space: Space, recipe: Recipe) -> None:
    """A model that cannot be built is told; nothing is allocated."""
    named = [each.values for each in space.parameters if each.name == "model"]
    for name in (str(value) for value in (named[0] if named else (recipe.model,))):
        with torch.device("meta"):
            build(name, dataset.num_classes, dataset.shape, stem=recipe.stem)


def check_sources(dataset: Dataset, space: Space, recipe: Recipe) -> None:
    """The most sources of the space with its smallest batch."""
    ends = {each.name: each.ends for each in space.parameters}
    counts = [int(value) for value in ends.get("sources", ()) if not isinstance(value, str)]
    if not counts:
        return
    setting = {name: values[0] for name, values in ends.items()} | {"sources": max(counts)}
    if "batch_size" in ends:
        setting["batch_size"] = min(float(value) for value in ends["batch_size"])
    chosen = space.recipe(setting, recipe)
    chosen.check_sources(space.method(setting), len(dataset.train))
