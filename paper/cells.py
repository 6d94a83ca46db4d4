"""Cells of the paper's figures and tables: training runs and measurements; requests for them."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from paper.datasets import CATALOGUE
from paper.recipes import RECIPES
from zetamix_lab.data import Dataset
from zetamix_lab.provenance import FileRef
from zetamix_lab.train.recipe import Recipe


class PaperError(ValueError):
    """An invalid request, or records that cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Subset:
    """A part of the training split to train on, and the samples to evaluate on."""

    train: int
    """Number of training samples."""
    validation: int | None = None
    """Samples of the training split that replace the test split; None: the test split itself."""

    def apply(self, dataset: Dataset) -> Dataset:
        """The reduced dataset. With `validation`, it does not contain the official test split."""
        if self.validation is not None:
            held = dataset.holdout(self.validation / len(dataset.train))
            note = "evaluated on samples of the training split, not on the test split"
            dataset = replace(held, val=None, test=held.val, notes=(*held.notes, note))
        return dataset.with_train_size(self.train)


@dataclass(frozen=True)
class TrainingCell:
    """A model to train."""

    dataset: str
    method: str
    seed: int
    recipe: Recipe
    subset: Subset | None = None
    """None: all of the training split, evaluated on the split that the paper reports on."""

    @property
    def train_size(self) -> int:
        return CATALOGUE[self.dataset].sizes["train"] if self.subset is None else self.subset.train

    @property
    def extra(self) -> dict[str, Any]:
        """Values in the `extra` of the record that distinguish it from a run on all the data."""
        return {} if self.subset is None else {"subset": asdict(self.subset)}

    @property
    def index(self) -> tuple[Any, ...]:
        """What the records of this cell have in common, with any seed."""
        return self.dataset, self.method, self.recipe, self.subset

    @property
    def model(self) -> str:
        return self.recipe.model

    @property
    def label(self) -> str:
        """What distinguishes its recipe from others for this dataset, none of which are averaged.

        >>> request = Request(epochs=30)
        >>> TrainingCell("cifar10", "none", 0, request.recipes("cifar10", "crop-flip")[0]).label
        'crop-flip, shortened to 30 epochs'
        """
        recipe, epochs = self.recipe, RECIPES[self.dataset].epochs
        shortened = "" if recipe.epochs == epochs else f"shortened to {recipe.epochs} epochs"
        start = "" if recipe.weights is None else f"from {recipe.weights.path.name}"
        return ", ".join(filter(None, (recipe.augmentation.replace("none", ""), shortened, start)))


@dataclass(frozen=True)
class MeasurementCell:
    """A measurement that is not a training run."""

    kind: str
    """Which measurement, such as "dimension"."""
    dataset: str
    """Empty if the measurement needs no dataset."""
    method: str
    seed: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)
    """Everything else that determines the result."""

    @property
    def index(self) -> str:
        """What the records of this cell have in common."""
        return json.dumps([self.kind, self.dataset, self.method, self.recipe], sort_keys=True)

    @property
    def device(self) -> str | None:
        """The device type that the measurement requires; None: any."""
        device: str | None = self.recipe.get("device")
        return device

    @property
    def name(self) -> str:
        # without a nested training recipe, which would be six lines long
        flat = {key: value for key, value in self.recipe.items() if not isinstance(value, dict)}
        details = ", ".join(f"{key} {value}" for key, value in flat.items())
        return " ".join(filter(None, (self.kind, self.dataset, self.method, details)))


PaperCell: TypeAlias = TrainingCell | MeasurementCell


@dataclass(frozen=True)
class Request:
    """The cells that a user requests; None means the default of the artifact."""

    seeds: tuple[int, ...] | None = None
    augmentations: tuple[str, ...] | None = None
    epochs: int | None = None
    weights: FileRef | None = None
    datasets: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None

    @property
    def changes_training(self) -> bool:
        changes = (self.seeds, self.augmentations, self.epochs, self.weights, self.models)
        return any(change is not None for change in changes)

    def recipes(self, dataset: str, *augmentations: str | None, **changes: Any) -> list[Recipe]:
        """The paper's recipe with each augmentation, unless others are requested.

        None leaves a field as it is.
        """
        changes |= {"epochs": self.epochs, "weights": self.weights}
        every = [{**changes, "augmentation": name} for name in self.augmentations or augmentations]
        return [
            RECIPES[dataset].change(**{k: v for k, v in each.items() if v is not None})
            for each in every
        ]
