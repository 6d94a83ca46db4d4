"""What is compared: every method with every seed, on one dataset, by one recipe."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from zetamix.data import Dataset, DatasetRef
from zetamix.methods import Method, parse_list
from zetamix.models import UnknownModelError, initialise
from zetamix.records import Cell
from zetamix.train import Recipe, make_recipe

METHODS = "none,mixup,cutmix,zeta:2.4,zeta:2.8,zeta:4.0"
# samples that a method and a model are tried out on before anything is trained
TRIED = 4


class CompareError(ValueError):
    """Data or settings that cannot be compared; the message says what would do."""


@dataclass(frozen=True)
class Place:
    """One cell of the grid and the folder, inside that of the comparison, where it is trained."""

    cell: Cell

    @property
    def method(self) -> str:
        return self.cell.method

    @property
    def seed(self) -> int:
        return self.cell.seed

    @property
    def key(self) -> str:
        return self.cell.key

    @property
    def name(self) -> str:
        return f"{self.method} seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Other settings have another key, so nothing is ever mixed up."""
        plain = re.sub(r"[^\w.-]+", "-", self.method)
        return Path("runs") / f"{plain}-s{self.seed}-{self.key}"


@dataclass(frozen=True, eq=False)
class Grid:
    """Same splits, same schedule, and for each seed the same initial weights for all methods."""

    dataset: Dataset
    source: DatasetRef | None
    """Where other processes get the dataset from; None hands it to them."""
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    out: Path

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """All methods with the first seed, then with the next: early results can be compared."""
        return tuple(
            Place(
                Cell(
                    dataset=self.dataset.name,
                    fingerprint=self.dataset.fingerprint,
                    method=method.label,
                    seed=seed,
                    recipe=self.recipe.as_dict(),
                    train_size=len(self.dataset.train),
                )
            )
            for seed in self.seeds
            for method in self.methods
        )


def make_grid(
    data: str | Path | Dataset,
    methods: Sequence[Method] | None = None,
    *,
    out: Path | None = None,
    seeds: int = 3,
    train_size: int | float | None = None,
    model: str | None = None,
    epochs: int | None = None,
    changes: Sequence[str] = (),
    data_dir: Path | None = None,
    size: int | None = None,
) -> Grid:
    """Everything that will be trained, checked before any of it is.

    data: a dataset, its name or its path.
    out: the folder of the comparison; out/compare-NAME if none is given.
    methods: None takes those of METHODS that can mix the data.
    seeds: how many; 5 after 3 has the same three first.
    train_size: a number of training samples, or a fraction: the same ones for every run.
    model, epochs, changes: instead of the recipe's; changes as in "lr=0.05".
    size: side in pixels that images of a path get; other images are another comparison.
    """
    if seeds < 1:
        raise CompareError(f"seeds must be at least 1, got {seeds}.")
    source = None
    if isinstance(data, Dataset):
        if size is not None:
            raise CompareError(f"size is for image files; {data.name} is read already.")
        dataset = data.with_train_size(train_size)
    else:
        source = DatasetRef.resolve(data, data_dir, train_size, size)
        dataset = source.load()
    _check_dataset(dataset)
    recipe = make_recipe(dataset, model=model, epochs=epochs, changes=changes)
    chosen = suitable_methods(dataset) if methods is None else tuple(methods)
    folder = (out or Path("out") / f"compare-{dataset.name}").absolute()
    grid = Grid(dataset, source, chosen, tuple(range(seeds)), recipe, folder)
    _try_out(grid)
    return grid


def suitable_methods(dataset: Dataset) -> tuple[Method, ...]:
    """The methods to compare where none are named; CutMix is for images only."""
    found = parse_list(METHODS)
    return tuple(each for each in found if each.name != "cutmix" or len(dataset.shape) == 3)


def _check_dataset(dataset: Dataset) -> None:
    if dataset.test is None:
        raise CompareError(f"{dataset.name} has no test split to compare on.")
    counts = dataset.train.counts().tolist()
    if len(counts) < 2:
        raise CompareError(
            f"{dataset.name} has one class, {dataset.classes[0]!r}. A comparison needs at least "
            "two classes to tell apart."
        )
    for name, count in zip(dataset.classes, counts, strict=True):
        if count == 0:
            raise CompareError(
                f"Class {name!r} of {dataset.name} has no training sample. Add some, or leave the "
                "class out."
            )
    if int((dataset.test.counts() > 0).sum()) < 2:
        raise CompareError(
            f"The test split of {dataset.name} has samples of one class only. Nothing can be "
            "compared on it: split the data anew, with every class in every split."
        )


def _try_out(grid: Grid) -> None:
    """What cannot work is told before anything is trained."""
    train, recipe = grid.dataset.train, grid.recipe
    samples = train.take(torch.arange(min(TRIED, len(train)))).float()
    labels = train.labels[: len(samples)]
    for method in grid.methods:
        recipe.check_sources(method, len(train))
        try:
            mix_batch(method, samples, labels, grid.dataset.num_classes, seed=0)
        except (TypeError, ValueError) as error:
            raise CompareError(f"{method.label} cannot mix this data: {error}") from error
    shape = grid.dataset.shape
    try:
        initialise(recipe.model, grid.dataset.num_classes, shape, 0, stem=recipe.stem)
    except UnknownModelError:
        raise
    except ValueError as error:
        raise CompareError(
            f"{recipe.model} cannot take samples of shape {list(shape)}: {error}"
        ) from error


def mix_batch(
    method: Method, samples: torch.Tensor, labels: torch.Tensor, num_classes: int, *, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a method makes of a batch: samples and targets."""
    with warnings.catch_warnings():
        # a γ that lets no sample dominate is what some are here to compare
        warnings.simplefilter("ignore", UserWarning)
        transform = method.transform(num_classes, torch.Generator().manual_seed(seed))
        if transform is None:
            return samples, torch.nn.functional.one_hot(labels, num_classes).to(samples)
        return transform(samples, labels)
