"""Compare methods on one dataset: every method with every seed, by one recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from zetamix.methods import Method, parse, parse_list
from zetamix_lab.comparison import Comparison
from zetamix_lab.data import DataError, Dataset, DatasetRef
from zetamix_lab.data.splits import Group, classes_in_turn, strata
from zetamix_lab.metrics import choose_metrics
from zetamix_lab.models import check_model, initialise
from zetamix_lab.progress import Progress
from zetamix_lab.records import Cell
from zetamix_lab.runs import METHODS, SEEDS, UNTIL
from zetamix_lab.runs.own import OwnGrid, call
from zetamix_lab.runs.run_cells import run_cells, run_name
from zetamix_lab.text import plural
from zetamix_lab.train import Recipe, default_recipe, make_cell, make_recipe
from zetamix_lab.train.run_folder import RunFolder, hold

# any images, for what is checked before the data is read
SOME_SHAPE = (3, 64, 64)
# samples that each method mixes before anything is trained
CHECKED_SAMPLES = 4
# images in a report
EXAMPLES = 10


@dataclass(frozen=True, eq=False)
class Grid:
    """Methods × seeds, with the same splits and schedule, and the same initial weights per seed."""

    dataset: Dataset
    ref: DatasetRef | None
    """How other processes load the dataset; None sends it to them."""
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    out: Path
    until: float = UNTIL
    """The fraction of training in which methods mix that do not name their own."""

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All methods with the first seed, then with the next: early results are comparable."""
        return tuple(
            make_cell(self.dataset, method, self.recipe, seed)
            for seed in self.seeds
            for method in self.methods
        )


def make_grid(
    data: str | Path | Dataset,
    methods: Sequence[Method] | None = None,
    *,
    out: Path | None = None,
    seeds: Sequence[int] = range(SEEDS),
    until: float = UNTIL,
    train_size: int | float | None = None,
    size: int | None = None,
    group: Group = None,
    skip_broken: bool = False,
    progress: Progress | None = None,
    device: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Grid:
    """All runs of a comparison, checked before any of them is trained.

    data: a dataset, its name or its path.
    methods: None uses those of METHODS that can mix the data.
    out: the folder of the comparison; out/compare-NAME if None.
    seeds: a later call with more of them adds runs.
    until: the fraction of training in which the methods of METHODS mix.
    train_size: a number of training samples or a fraction; the same ones for every run.
    size: resize the images of a path to this number of pixels.
    group, skip_broken, progress: as in `zetamix_lab.data.load`.
    device: what trains, as in `run_cells`; without a GPU, the default model is a smaller one where
        the images allow it.
    changes: of the recipe, by name, as in `zetamix_lab.train.make_recipe`.
    """
    # a recipe or a model that no data could have is reported before the data is read
    changes = changes or {}
    check_model(default_recipe(SOME_SHAPE, 500).change(**changes).model)
    if isinstance(data, Dataset):
        if size is not None or group is not None:
            raise DataError(f"size and group are for paths only; {data.name} is already loaded.")
        dataset, ref = data.with_train_size(train_size), None
    else:
        ref = DatasetRef(data, train_size, size, group)
        dataset = ref.load(progress, skip_broken=skip_broken)
    _check_dataset(dataset)
    if methods is None:
        images, given = len(dataset.shape) == 3, parse_list(METHODS, until)
        methods = [m for m in given if images or m.name not in ("cutmix", "switch")]
    folder = (out or Path("out") / f"compare-{dataset.name}").absolute()
    gpu = torch.cuda.is_available() and device != "cpu"
    recipe = make_recipe(dataset, gpu=gpu, **changes)
    # what a method, or the model, cannot do with the data is raised here
    samples = dataset.train.take(torch.arange(min(CHECKED_SAMPLES, len(dataset.train)))).float()
    for method in methods:
        recipe.check_sources(method, len(dataset.train))
        labels = dataset.train.labels[: len(samples)]
        method.mix(samples, labels, dataset.num_classes, torch.Generator())
    initialise(recipe.model, dataset.num_classes, dataset.shape, 0, **recipe.network)
    return Grid(dataset, ref, tuple(methods), tuple(seeds), recipe, folder, until)


def _check_dataset(dataset: Dataset) -> None:
    for k in (dataset.train.counts() == 0).nonzero().flatten().tolist():
        raise DataError(
            f"Class {dataset.classes[k]!r} of {dataset.name} has no training samples. Add some, "
            "or remove the class."
        )
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        classes = 0 if split is None else int((split.counts() > 0).sum())
        if classes < 2:
            raise DataError(
                f"The {name} split of {dataset.name} has samples of "
                f"{plural(classes, 'class', 'classes')}. A comparison needs at least two: split "
                "the data so that every split has every class."
            )


def compare(grid: Grid | OwnGrid, **options: Any) -> Comparison:
    """Train every run that has no record yet, and return all results.

    options: those of `run_cells`.
    """
    runs, name_of = grid.out / "runs", partial(run_name, until=grid.until)
    shared: dict[str, Any]
    about: dict[str, Any]
    if isinstance(grid, OwnGrid):
        shared = {"dataset": None, "function": partial(call, grid, runs), "metric": ""}
        about = {}
    else:
        test = grid.dataset.splits["test"]
        metric = choose_metrics(test.counts(), multi_label=test.multi_label)[0]
        shared = {"dataset": grid.dataset, "ref": grid.ref, "metric": metric}
        about = {"dataset": grid.dataset, "recipe": grid.recipe, "examples": make_examples(grid)}
    # another command on the same comparison would write the same report
    with hold([grid.out]):
        results = run_cells(grid.cells, out=runs, name_of=name_of, **shared, **options)
    keys = {cell.key: (cell.method, cell.seed) for cell in grid.cells}
    folders = {keys[key]: RunFolder(runs / r.cell.folder) for key, r in results.records.items()}
    samples = {key: folder.read_samples() for key, folder in folders.items()}
    if isinstance(grid, Grid):
        about["curves"] = {key: folder.read_curve() for key, folder in folders.items()}
    return Comparison(
        samples={key: found for key, found in samples.items() if found is not None},
        name=grid.cells[0].dataset,
        requested=tuple(method.label for method in grid.methods),
        seeds=grid.seeds,
        records={keys[key]: record for key, record in results.records.items()},
        failures={keys[key]: message for key, message in results.failures.items()},
        description=results.description,
        unfinished={keys[key]: epochs for key, epochs in results.unfinished.items()},
        **about,
    )


def make_examples(grid: Grid) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Outputs of every method for the same batch of training images, some of each class.

    Empty for points.
    """
    train = grid.dataset.train
    if len(train.shape) != 3:
        return {}
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(train), generator=generator)
    chosen = order[classes_in_turn(strata(train.labels)[order], EXAMPLES)]
    batch = torch.cat([chosen, order[~torch.isin(order, chosen)]])
    batch = batch[: max(EXAMPLES, grid.recipe.batch_size)]
    # shuffled, or CutMix would pair every class with the one before it
    places = torch.randperm(len(batch), generator=generator)
    rows = places.argsort()[: len(chosen)]
    samples, labels = train.take(batch[places]).float(), train.labels[batch[places]]
    examples = {}
    for method in (parse("none"), *grid.methods):
        own = torch.Generator().manual_seed(0)
        mixed, targets = method.mix(samples, labels, train.num_classes, own)
        label = "original" if method.name == "none" else method.label
        examples[label] = mixed[rows], targets[rows]
    return examples
