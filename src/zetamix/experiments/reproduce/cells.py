"""What an artifact needs: cells to fill, each by one training run or one measurement."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from zetamix.records import Measurement, RunRecord
from zetamix.records import Record as Record
from zetamix.train.paper_recipes import RECIPES
from zetamix.train.recipe import Recipe


class ReproduceError(ValueError):
    """A request that cannot be met; the message says what can."""


@dataclass(frozen=True)
class Variant:
    """One reading of the paper's recipe. Different variants are never shown as one."""

    augmentation: str | None = None
    """None for the recipe's own."""
    epochs: int | None = None
    """None for the recipe's own; fewer is a shortened recipe, and labelled so."""

    def recipe(self, dataset: str, model: str | None = None) -> Recipe:
        """The recipe of a dataset under this variant.

        >>> Variant("crop-flip", epochs=30).recipe("cifar10").milestones
        (12, 18, 24)
        """
        changes = {"model": model, "augmentation": self.augmentation, "epochs": self.epochs}
        base = RECIPES[dataset]
        return base.change(**{key: value for key, value in changes.items() if value is not None})

    @property
    def label(self) -> str:
        parts = [self.augmentation or ""]
        if self.epochs is not None:
            parts.append(f"shortened to {self.epochs} epochs")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Training:
    """A model to train, before its data has been looked at."""

    dataset: str
    method: str
    seed: int
    recipe: Recipe
    model: str
    """As the paper names it; the recipe of a quick run has a smaller one."""
    variant: Variant = Variant()
    of_sweep: bool = False
    """One of many settings drawn at random, of which any number makes a sweep."""

    def fits(self, record: "Record", *, any_seed: bool = False) -> bool:
        """Whether a record is of this cell."""
        if not isinstance(record, RunRecord):
            return False
        cell = record.cell
        return (
            (cell.dataset, cell.method) == (self.dataset, self.method)
            and (any_seed or cell.seed == self.seed)
            # through Recipe, so that a field that a later version adds has its default
            and Recipe.from_dict(cell.recipe) == self.recipe
        )

    @property
    def device(self) -> str | None:
        """A model can be trained on any."""
        return None

    @property
    def name(self) -> str:
        words = [self.dataset, self.model, self.method, self.variant.label, f"seed {self.seed}"]
        words += [f"weight decay {self.recipe.weight_decay:g}"] if self.of_sweep else []
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class Measuring:
    """Something to measure, before its data has been looked at."""

    kind: str
    dataset: str
    method: str
    seed: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)

    def fits(self, record: "Record") -> bool:
        """Whether a record is of this cell."""
        return isinstance(record, Measurement) and (
            (record.kind, record.dataset, record.method, record.seed, record.recipe)
            == (self.kind, self.dataset, self.method, self.seed, self.recipe)
        )

    @property
    def device(self) -> str | None:
        """The kind of device that it has to be measured on, where that is part of it."""
        device: str | None = self.recipe.get("device")
        return device

    @property
    def name(self) -> str:
        # a recipe within it would fill six lines
        told = {key: value for key, value in self.recipe.items() if not isinstance(value, dict)}
        details = ", ".join(f"{key} {value}" for key, value in told.items())
        return " ".join(filter(None, (self.kind, self.dataset, self.method, details)))


Cell: TypeAlias = Training | Measuring
