"""Specs, trials and whole searches of given numbers, and data that trains in a moment."""

import sqlite3
from dataclasses import replace

import pytest
import sqlalchemy
import torch

from zetamix.data import from_tensors
from zetamix.experiments.tune import make_plan
from zetamix.experiments.tune import make_spec as spec_of
from zetamix.experiments.tune.run import make_candidates, tune
from zetamix.records import Cell, RunRecord
from zetamix.results.tuning import SearchPlan, StudySpec, Trial, Tuning
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


def make_spec(space=SPACE, recipe=RECIPE, dataset=None, **options) -> StudySpec:
    return spec_of(make_dataset() if dataset is None else dataset, space, recipe=recipe, **options)


def search(folder, spec=None, *, trials=3, test_seeds=0, **options) -> Tuning:
    """A search in this process, on the CPU; of γ alone by default."""
    spec = make_spec("gamma=1..6") if spec is None else spec
    given = {name: options.pop(name) for name in ("sampler", "seeds", "prune") if name in options}
    plan = make_plan(spec, trials=None if given.get("sampler") == "grid" else trials, **given)
    options = {"jobs": 1, "device": "cpu", "poll_seconds": 0.05, **options}
    return tune(spec, plan, out=folder, test_seeds=test_seeds, **options)


def make_trial(number, value=None, *, gamma=2.8, state="complete", seed=None, error=None, **more):
    setting = {} if gamma is None else {"gamma": gamma}
    nll = more.pop("nll", 0.5)
    return Trial(
        number=number,
        setting={**setting, **more},
        seed=number if seed is None else seed,
        state=state,
        value=value,
        standard_error=error,
        scores={"nll": nll} if state == "complete" else {},
        curve={1: 0.5, 2: value} if value is not None else {},
        seconds=2.5,
    )


def make_grid(values, seeds=3, step=0.2, first=1.8, spread=0.002):
    """Trials of a grid over γ: a mean error for each γ, and seeds evenly around it."""
    offsets = [spread * (k - (seeds - 1) / 2) for k in range(seeds)]
    return [
        make_trial(
            index * seeds + k,
            mean + offset,
            gamma=round(first + step * index, 1),
            seed=k,
            error=0.01,
        )
        for index, mean in enumerate(values)
        for k, offset in enumerate(offsets)
    ]


def make_record(spec, candidate, seed, error) -> RunRecord:
    names = ("accuracy", "balanced_accuracy", "f1_micro", "f1_macro", "auc")
    last = {"error": error, "nll": 0.3, "ece": 0.05, **dict.fromkeys(names, 1 - error)}
    cell = Cell(
        dataset=spec.dataset.name,
        fingerprint=spec.dataset.fingerprint,
        method=candidate.method,
        seed=seed,
        recipe=candidate.recipe.as_dict(),
        train_size=len(spec.dataset.train),
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


def make_tuning(trials, spec=None, *, errors=None, **options) -> Tuning:
    """A search of these trials; errors: of each candidate on the test split, one for each seed."""
    spec = make_spec() if spec is None else spec
    total, prune = options.pop("total", len(trials)), options.pop("prune", False)
    plan = SearchPlan(options.pop("sampler", "tpe"), total, prune)
    options = {"description": "1 process", "settings_tested": bool(errors), **options}
    tuning = Tuning(spec, plan, tuple(trials), **options)
    if errors is None:
        return tuning
    baselines = {name: spec.recipe for name in errors if name != "chosen"}
    tested = [
        replace(
            candidate,
            records=tuple(
                make_record(spec, candidate, s, e) for s, e in enumerate(errors[candidate.name])
            ),
        )
        for candidate in make_candidates(spec, tuning.chosen.setting, baselines)
    ]
    return replace(tuning, tested=tuple(tested))
