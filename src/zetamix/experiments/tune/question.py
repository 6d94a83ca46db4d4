"""What a study asks: which data, which recipe, what is searched, and what trials are judged by."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zetamix.data import DataError, Dataset, DatasetRef, check_fingerprint, load_cached
from zetamix.experiments.tune.checks import check_dataset, check_models, check_sources
from zetamix.metrics import METRICS, primary_metric
from zetamix.results.search_space import Space, SpaceError, parse_space
from zetamix.train import Recipe, make_recipe

# of the training split, where a dataset has no validation split
HELD_OUT = 0.1


class StudyError(ValueError):
    """A study that cannot be opened or gone on with; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Question:
    """Everything that decides what a setting is worth; one study asks one question."""

    dataset: Dataset
    """With the validation split that is held out, where it has none of its own."""
    source: DatasetRef | None
    """Where other processes get the dataset from; None hands it to them."""
    recipe: Recipe
    space: Space
    metric: str
    seed: int = 0
    held_out: bool = False
    """Whether the validation split was held out of the training split by us."""
    judge: str = "val"
    """The split that trials are judged by. "test" repeats a published analysis, in which nothing
    is chosen; a search never reads that split."""

    @property
    def lower_is_better(self) -> bool:
        return not METRICS[self.metric].higher_is_better

    def seen(self, judge: str | None = None) -> Dataset:
        """What runs train on and are judged by; None stands for how trials are."""
        return seen_by(self.dataset, self.judge if judge is None else judge)

    def as_dict(self) -> dict[str, Any]:
        """What has to be the same for trials to be comparable."""
        return {
            "dataset": self.dataset.name,
            "fingerprint": self.dataset.fingerprint,
            "train_size": len(self.dataset.train),
            "judge": self.judge,
            "metric": self.metric,
            "space": self.space.text,
            "recipe": self.recipe.as_dict(),
            "seed": self.seed,
        }


def make_question(
    data: str | Path | Dataset,
    space: str | Space,
    *,
    metric: str | None = None,
    seed: int = 0,
    train_size: int | float | None = None,
    model: str | None = None,
    epochs: int | None = None,
    changes: Sequence[str] = (),
    data_dir: Path | None = None,
    size: int | None = None,
    judge: str = "val",
) -> Question:
    """A question that can be asked; what cannot is told before anything is trained.

    data: a dataset, its name or its path.
    metric: what trials are judged by; None takes the error rate where classes are balanced, else
        balanced accuracy.
    model, epochs, changes: instead of the recipe's; changes as in "lr=0.05".
    size: side in pixels that images of a path get; other images are another question.
    """
    if isinstance(data, Dataset) and size is not None:
        raise DataError(f"size is for image files; {data.name} is read already.")
    source = (
        None if isinstance(data, Dataset) else DatasetRef.resolve(data, data_dir, train_size, size)
    )
    dataset = data.with_train_size(train_size) if isinstance(data, Dataset) else load_cached(source)
    return ask(
        dataset,
        space if isinstance(space, Space) else parse_space(space),
        make_recipe(dataset, model=model, epochs=epochs, changes=changes),
        source=source,
        metric=metric,
        seed=seed,
        judge=judge,
    )


def ask(
    dataset: Dataset,
    space: Space,
    recipe: Recipe,
    *,
    source: DatasetRef | None = None,
    metric: str | None = None,
    seed: int = 0,
    judge: str = "val",
) -> Question:
    """The question about a dataset and a recipe that are there already."""
    if judge not in ("val", "test"):
        raise ValueError(f"judge must be val or test, got {judge!r}.")
    check_dataset(dataset)
    held_out = judge == "val" and dataset.val is None
    if held_out:
        dataset = dataset.holdout(HELD_OUT)
    if judge == "test" and dataset.test is None:
        raise DataError(f"{dataset.name} has no test split to judge by.")
    split = dataset.splits[judge]
    metric = primary_metric(split.counts(), auc=False) if metric is None else metric
    if metric not in METRICS:
        raise SpaceError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}.")
    check_models(dataset, space, recipe)
    check_sources(dataset, space, recipe)
    return Question(dataset, source, recipe, space, metric, seed, held_out, judge)


def seen_by(dataset: Dataset, judge: str) -> Dataset:
    """The dataset as runs see it: the split that judges stands where a run looks for test.

    Judged by val there is no test split left to read; the training split is the same for both.
    """
    if judge == "test":
        return replace(dataset, val=None)
    if dataset.val is None:
        dataset = dataset.holdout(HELD_OUT)
    note = "test is the validation split: while choosing, the test split is not read"
    return replace(
        dataset,
        val=None,
        test=dataset.val,
        fingerprint=f"{dataset.fingerprint}-val",
        notes=(*dataset.notes, note),
    )


def dataset_of(
    shared: DatasetRef | Dataset, judge: str, held_out: bool, fingerprint: str
) -> Dataset:
    """The dataset in a worker, as runs see it; it must be the one that was asked about."""
    dataset = shared
    if isinstance(dataset, DatasetRef):
        dataset = load_cached(dataset)
        dataset = seen_by(dataset.holdout(HELD_OUT) if held_out else dataset, judge)
    return check_fingerprint(dataset, fingerprint)


def check_same(there: Mapping[str, Any] | None, asked: Mapping[str, Any], where: str) -> None:
    """Refuse to go on with a study that asks something else; it is left as it is."""
    if there is None:
        raise StudyError(
            f"The study {where} was not made by zetamix. Choose another --study, or another "
            "--storage."
        )
    old, new = _flat(there), _flat(asked)
    changed = [
        f"{name}: {old.get(name)} there, {new.get(name)} asked for"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if changed:
        raise StudyError(
            f"The study {where} asks something else ({'; '.join(changed)}). Nothing was changed: "
            "go on with the settings it has, or choose another --out, --study or --storage."
        )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    recipe = {f"recipe.{name}": value for name, value in values.get("recipe", {}).items()}
    return {name: value for name, value in values.items() if name != "recipe"} | recipe


def without_password(address: str) -> str:
    """A storage's address as it may be shown and kept.

    >>> without_password("postgresql://ann:secret@host:5432/studies")
    'postgresql://ann:***@host:5432/studies'
    """
    # up to the last @, for a password may hold one
    return re.sub(r"(://[^/:@]*):.*@", r"\1:***@", address)
