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
class Variant:
    """One interpretation of the paper's recipe. Results of two variants are never averaged."""

    augmentation: str | None = None
    """None: the recipe's own."""
    epochs: int | None = None
    """None: the recipe's own. A smaller number is a shortened recipe and is labelled as one."""
    weights: FileRef | None = None
    """The weights that training starts from; None: from scratch."""

    def recipe(
        self, dataset: str, model: str | None = None, weight_decay: float | None = None
    ) -> Recipe:
        """The recipe of a dataset under this variant.

        >>> Variant("crop-flip", epochs=30).recipe("cifar10").milestones
        (12, 18, 24)
        """
        changes: dict[str, Any] = {"model": model, "weight_decay": weight_decay}
        changes |= {"augmentation": self.augmentation, "epochs": self.epochs}
        changes |= {"weights": self.weights}
        given = {key: value for key, value in changes.items() if value is not None}
        return RECIPES[dataset].change(**given)

    @property
    def label(self) -> str:
        shortened = "" if self.epochs is None else f"shortened to {self.epochs} epochs"
        start = "" if self.weights is None else f"from {self.weights.path.name}"
        return ", ".join(filter(None, (self.augmentation, shortened, start)))


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
    model: str
    variant: Variant = Variant()
    in_sweep: bool = False
    """Whether it belongs to the sweep over γ and weight decay."""
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
    def device(self) -> str | None:
        """None: any device."""
        return None


@dataclass(frozen=True)
class MeasurementCell:
    """A measurement that is not a training run."""

    kind: str
    dataset: str
    method: str
    seed: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def index(self) -> str:
        """What the records of this cell have in common."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def subset(self) -> Subset | None:
        return None

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

    def seeds_or(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return default if self.seeds is None else self.seeds

    def variants_or(self, *default: str | None) -> list[Variant]:
        """Variants to train; None in `default` is the recipe's own augmentation."""
        augmentations = default if self.augmentations is None else self.augmentations
        return [Variant(name, self.epochs, self.weights) for name in augmentations]
