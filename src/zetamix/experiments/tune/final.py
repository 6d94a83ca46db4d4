"""The chosen setting on the test split, once, beside no mixing and the default γ."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.special import stdtrit  # type: ignore[import-untyped]

from zetamix.experiments.tune.crew import Crew
from zetamix.experiments.tune.oversee import Stop, overseeing
from zetamix.experiments.tune.question import Question
from zetamix.experiments.tune.work import Job, Task, train_tasks
from zetamix.measure import Estimate
from zetamix.methods import parse
from zetamix.metrics import resolution
from zetamix.records import Cell, RunRecord
from zetamix.results.search_space import Setting
from zetamix.results.tuning import Evaluating, Watch
from zetamix.train import Recipe

# seeds that no trial has had: what was lucky while choosing is not lucky again
FIRST_SEED = 1_000_000
CONFIDENCE = 0.95
CHOSEN = "chosen"


@dataclass(frozen=True)
class Contender:
    """What is trained for the test split: a method and its recipe."""

    name: str
    """"chosen", or the label of a method."""
    method: str
    recipe: Recipe


@dataclass(frozen=True)
class Evaluated:
    """A contender and its results, one for each seed."""

    contender: Contender
    records: tuple[RunRecord, ...]

    def values(self, metric: str) -> dict[int, float]:
        return {record.cell.seed: record.last[metric] for record in self.records}

    def estimate(self, metric: str) -> Estimate:
        return _estimate(list(self.values(metric).values()))


@dataclass(frozen=True)
class Difference:
    """How far the chosen setting lies from another contender, seed by seed."""

    reference: str
    estimate: Estimate
    low: float | None
    high: float | None
    """Student's interval at CONFIDENCE; None for one seed."""

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def contenders(question: Question, chosen: Setting) -> list[Contender]:
    """No mixing and the default γ by the recipe as it is, and what was chosen."""
    recipe = question.recipe
    ours = Contender(
        CHOSEN, question.space.method(chosen).label, question.space.recipe(chosen, recipe)
    )
    others = [Contender(parse(name).label, parse(name).label, recipe) for name in ("none", "zeta")]
    return [each for each in others if (each.method, each.recipe) != (ours.method, ours.recipe)] + [
        ours
    ]


def evaluate(
    question: Question, chosen: Setting, seeds: int, crew: Crew, watch: Watch, stop: Stop
) -> list[Evaluated]:
    """Train every contender with every seed, on the training split alone, and test it.

    Empty where it was stopped before the end.
    """
    found = contenders(question, chosen)
    first = FIRST_SEED + question.seed
    tasks = {
        _task(question, contender, seed): contender
        for seed in range(first, first + seeds)
        for contender in found
    }
    records = _finished(crew, list(tasks))
    missing = [task for task in tasks if task not in records]

    def look() -> None:
        words = [crew.workers.board.get(task.name) for task in tasks if task not in records]
        under_way = sum(float(word["epochs"]) for word in words if word is not None)
        each = question.recipe.epochs
        epochs = each * len(records) + under_way
        died = crew.workers.died
        watch(Evaluating(len(records), len(tasks), epochs, each * len(tasks), died))

    with overseeing(crew.workers, stop, look) as stopped:
        if missing and not stopped():
            jobs = _jobs(crew, missing)
            for job, ended in crew.workers.run(train_tasks, jobs, crew.shared("test")):
                for task in job.tasks:
                    record = ended[task.name].record
                    if record is not None:
                        records[task] = record
    look()
    if len(records) < len(tasks):
        return []
    return [
        Evaluated(each, tuple(records[task] for task in tasks if tasks[task] == each))
        for each in found
    ]


def differences(tested: Sequence[Evaluated], metric: str) -> list[Difference]:
    """The chosen setting minus every other contender."""
    by_name = {each.contender.name: each for each in tested}
    ours = by_name[CHOSEN].values(metric)
    record = next(record for each in tested for record in each.records)
    grain = resolution(metric, torch.tensor(record.confusion).sum(1))
    return [
        _difference(
            name, [ours[seed] - value for seed, value in each.values(metric).items()], grain
        )
        for name, each in by_name.items()
        if name != CHOSEN
    ]


def _difference(reference: str, values: Sequence[float], grain: float) -> Difference:
    """Mean and interval of paired differences.

    grain: the smallest step of the measure. Three seeds that differ by the same two samples are no
        proof of certainty: a deviation is taken for no smaller than that of rounding.
    """
    estimate = _estimate(values)
    if estimate.n < 2:
        return Difference(reference, estimate, None, None)
    error = max(estimate.spread, grain / math.sqrt(6)) / math.sqrt(estimate.n)
    half = error * float(stdtrit(estimate.n - 1, 0.5 + CONFIDENCE / 2))
    return Difference(reference, estimate, estimate.value - half, estimate.value + half)


def _estimate(values: Sequence[float]) -> Estimate:
    n = len(values)
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return Estimate(mean, n, spread)


def _task(question: Question, contender: Contender, seed: int) -> Task:
    dataset = question.seen("test")
    cell = Cell(
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        method=contender.method,
        seed=seed,
        recipe=contender.recipe.as_dict(),
        train_size=len(dataset.train),
    )
    plain = re.sub(r"[^\w.-]+", "-", contender.method)
    return Task(
        name=f"test-{cell.key}",
        method=contender.method,
        recipe=contender.recipe,
        seed=seed,
        # another setting has another key: a study that goes on may choose another one
        folder=f"test/{plain}-s{seed}-{cell.key}",
        keep_model=True,
    )


def _finished(crew: Crew, tasks: Sequence[Task]) -> dict[Task, RunRecord]:
    """What an earlier command has tested already."""
    found = {}
    for task in tasks:
        path = crew.home / task.folder / "record.json"
        if path.exists():
            found[task] = RunRecord.from_dict(json.loads(path.read_text()))
    return found


def _jobs(crew: Crew, tasks: list[Task]) -> list[Job]:
    groups = [tasks[k : k + crew.at_once] for k in range(0, len(tasks), crew.at_once)]
    return [crew.job(group, "test") for group in groups]
