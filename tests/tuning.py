"""Questions, trials and whole searches made of given numbers, and data that trains in a moment."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy
import torch

from zetamix.data import from_tensors
from zetamix.experiments.tune import Trial, parse_space
from zetamix.experiments.tune.final import Evaluated, contenders
from zetamix.experiments.tune.question import Question, ask
from zetamix.experiments.tune.run import Tuning
from zetamix.experiments.tune.storage import Storage, sqlite_in
from zetamix.experiments.tune.study import Study
from zetamix.records import Cell, RunRecord
from zetamix.train import Recipe

RECIPE = Recipe(source="test", model="mlp", epochs=4, batch_size=16, lr=0.05, augmentation="none")
SPACE = "gamma=1..6,weight_decay=log:5e-5..1e-3"


@pytest.fixture
def hasty_sqlite():
    """Databases of tests are not forced to disk at every step: four times as fast on a busy one."""

    def hurry(connection, _):
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", hurry)
    yield
    sqlalchemy.event.remove(sqlalchemy.engine.Engine, "connect", hurry)


def make_dataset(counts=(40, 40, 40), val=True, name="blobs"):
    """Three clouds of points, some of them in each other; 120 to train, 60 for each other split."""
    sizes = {"train": 1.0, "val": 0.5, "test": 0.5}
    splits = {}
    for seed, (split, share) in enumerate(sizes.items()):
        if split == "val" and not val:
            continue
        labels = torch.cat([torch.full((int(share * n),), k) for k, n in enumerate(counts)])
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(labels), 2, generator=generator)
        splits[split] = (torch.eye(3, 2)[labels] * 2 + noise, labels)
    return from_tensors(name, splits)


def make_question(space=SPACE, recipe=RECIPE, dataset=None, **how) -> Question:
    dataset = make_dataset() if dataset is None else dataset
    return ask(dataset, parse_space(space), recipe, **how)


def make_study(folder: Path, question=None, *, trials=6, name="study", **how) -> Study:
    """A study in `folder`, to be entered; several of one folder are several commands."""
    storage = Storage(sqlite_in(folder), name)
    question = make_question() if question is None else question
    return Study(storage, question, commands=folder / ".commands", trials=trials, **how)


def make_trial(number, value=None, *, gamma=2.8, state="complete", seed=None, error=None, **more):
    setting = {} if gamma is None else {"gamma": gamma}
    nll = more.pop("nll", 0.5)
    return Trial(
        number=number,
        setting={**setting, **more},
        seed=number if seed is None else seed,
        state=state,
        value=value,
        error=error,
        scores={"nll": nll} if state == "complete" else {},
        curve={1: 0.5, 2: value} if value is not None else {},
        seconds=2.5,
    )


def make_grid(values, seeds=3, step=0.2, first=1.8, spread=0.002):
    """Trials of a grid over γ: a mean error for each γ, and seeds evenly around it."""
    offsets = [spread * (k - (seeds - 1) / 2) for k in range(seeds)]
    return [
        make_trial(
            place * seeds + k,
            mean + offset,
            gamma=round(first + step * place, 1),
            seed=k,
            error=0.01,
        )
        for place, mean in enumerate(values)
        for k, offset in enumerate(offsets)
    ]


def make_record(question, contender, seed, error) -> RunRecord:
    names = ("accuracy", "balanced_accuracy", "f1_micro", "f1_macro", "auc")
    last = {"error": error, "nll": 0.3, "ece": 0.05, **dict.fromkeys(names, 1 - error)}
    cell = Cell(
        dataset=question.dataset.name,
        fingerprint=question.dataset.fingerprint,
        method=contender.method,
        seed=seed,
        recipe=contender.recipe.as_dict(),
        train_size=len(question.dataset.train),
    )
    return RunRecord(
        cell=cell,
        last=last,
        best=None,
        confusion=[[334, 0, 0], [0, 333, 0], [0, 0, 333]],
        test_size=1000,
        wall_s=1.0,
        step_ms=1.0,
        machine={},
    )


def make_tuning(trials, question=None, *, errors=None, **how) -> Tuning:
    """A search of these trials; errors: of each contender on the test split, one for each seed."""
    question = make_question() if question is None else question
    found = Tuning(
        question=question,
        trials=tuple(trials),
        **{"total": len(trials), "where": "1 process", "settings_tested": bool(errors), **how},
    )
    if errors is None:
        return found
    tested = [
        Evaluated(
            each,
            tuple(make_record(question, each, s, e) for s, e in enumerate(errors[each.name])),
        )
        for each in contenders(question, found.chosen.setting)
    ]
    return Tuning(**{**vars(found), "tested": tuple(tested)})
