"""The settings of a study and of its sampler, checked before anything is trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zetamix.data import DataError, Dataset
from zetamix.data.groups import Group
from zetamix.data.load_dataset import load_or_take
from zetamix.data.source import Progress
from zetamix.metrics import check_metric, primary_metric
from zetamix.models import initialise
from zetamix.results.search_space import Space, SpaceError, parse_space
from zetamix.results.tuning import HELD_OUT, SearchPlan, StudySpec
from zetamix.train import Recipe, make_recipe

SAMPLERS = ("tpe", "grid", "random")
TRIALS = 50
GRID_SEEDS = (0, 1, 2)


class StudyError(ValueError):
    """A study that cannot be opened or continued; the message says why and what to do."""


def make_spec(
    data: str | Path | Dataset,
    space: str,
    *,
    recipe: Recipe | None = None,
    metric: str | None = None,
    seed: int = 0,
    train_size: int | float | None = None,
    data_dir: Path | None = None,
    size: int | None = None,
    group: Group = None,
    progress: Progress | None = None,
    **changes: Any,
) -> StudySpec:
    """The spec of a study; raises if a setting of the space cannot be trained.

    data: a dataset, its name or its path.
    recipe: None uses that of the dataset, changed as in `zetamix.train.make_recipe`.
    metric: the metric to optimise; None uses the error rate if classes are balanced, else balanced
        accuracy, and the mean average precision for several labels per sample.
    size: side in pixels to which images of a path are resized.
    group: keep the images of a patient or lesion in one split, as in `zetamix.data.load`.
    progress: called while the files of a path are prepared, as in `zetamix.data.load`.
    """
    dataset, ref = load_or_take(data, data_dir, train_size, size, group, progress)
    parsed = parse_space(space)
    if recipe is None:
        recipe = make_recipe(dataset, **changes)
    _check_dataset(dataset)
    held_out = dataset.val is None
    if held_out:
        dataset = dataset.holdout(HELD_OUT)
    if metric is None:
        counts = dataset.splits["val"].counts()
        metric = primary_metric(counts, auc=False, multi_label=dataset.multi_label)
    try:
        check_metric(metric, multi_label=dataset.multi_label)
    except ValueError as error:
        raise SpaceError(str(error)) from None
    _check_space(dataset, parsed, recipe)
    return StudySpec(dataset, ref, recipe, parsed, metric, seed, held_out)


def make_plan(
    spec: StudySpec,
    sampler: str = "tpe",
    trials: int | None = None,
    prune: bool | None = None,
    seeds: Sequence[int] | None = None,
) -> SearchPlan:
    """The checked settings of the sampler.

    trials: total number, including the existing trials of the study; a grid has a fixed number.
    prune: None prunes except in a grid.
    seeds: seeds of every setting of a grid.
    """
    if sampler not in SAMPLERS:
        raise SpaceError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}.")
    if sampler == "grid":
        if trials is not None or prune:
            raise SpaceError(
                "A grid trains every setting with every seed. Do not pass trials or prune."
            )
        seeds = GRID_SEEDS if seeds is None else tuple(seeds)
        grid = tuple(spec.space.grid())
        return SearchPlan("grid", len(grid) * len(seeds), False, grid, seeds)
    if seeds is not None:
        raise SpaceError(f"seeds need a grid; with {sampler}, every trial has its own seed.")
    if not spec.space.searched:
        raise SpaceError(f"Nothing to search: every parameter of {spec.space.text} has one value.")
    trials = TRIALS if trials is None else trials
    if trials < 1:
        raise SpaceError(f"trials must be at least 1, got {trials}.")
    return SearchPlan(sampler, trials, prune is not False)


def check_settings(
    stored: Mapping[str, Any] | None, requested: Mapping[str, Any], name: str
) -> None:
    """Raise if a study was created with other settings."""
    if stored is None:
        raise StudyError(f"Study {name} was not created by zetamix. Choose another --study NAME.")
    old, new = ({**study, "recipe": None, **study["recipe"]} for study in (stored, requested))
    changed = [
        f"{key}: {old.get(key)} ≠ {new.get(key)}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if changed:
        raise StudyError(
            f"Study {name} was created with other settings ({'; '.join(changed)}). Rerun with "
            "those, or start a new study with --study NAME."
        )


def _check_dataset(dataset: Dataset) -> None:
    if dataset.num_classes < 2:
        raise DataError(
            f"{dataset.name} has one class, {dataset.classes[0]!r}. Tuning needs at least two."
        )
    for name, count in zip(dataset.classes, dataset.train.counts().tolist(), strict=True):
        if count < 2 and dataset.val is None:
            raise DataError(
                f"Class {name!r} of {dataset.name} has {count} training samples. Holding out a "
                "validation split needs at least 2 of every class: add some, or remove the class."
            )


def _check_space(dataset: Dataset, space: Space, recipe: Recipe) -> None:
    """Build every model, and check the largest number of sources with the smallest batch."""
    ends = {parameter.name: parameter.ends for parameter in space.parameters}
    for model in ends.get("model", (recipe.model,)):
        changed = recipe if model == recipe.model else recipe.change(model=str(model))
        initialise(changed.model, dataset.num_classes, dataset.shape, 0, **changed.network)
    if counts := [value for value in ends.get("sources", ()) if isinstance(value, int)]:
        setting = {name: values[0] for name, values in ends.items()} | {"sources": max(counts)}
        if "batch_size" in ends:
            setting["batch_size"] = min(int(value) for value in ends["batch_size"])
        space.recipe(setting, recipe).check_sources(space.method(setting), len(dataset.train))
