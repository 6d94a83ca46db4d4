"""The search for ZetaMix's default: its settings, its rounds, and the selection rule.

Successive halving: a round trains the better settings of the previous rounds with another seed or
on another dataset, so that the time is spent on settings that may still win.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any, TypeAlias

from paper.results.paper_cells import Subset, TrainingCell, Variant
from paper.results.record_store import RecordStore
from zetamix_lab.records import RunRecord

# 5,000 samples of the training split replace the test split, which is not used
DATASETS: Mapping[str, Subset] = {
    "cifar10": Subset(5_000, validation=5_000),
    "cifar100": Subset(10_000, validation=5_000),
    "fashion_mnist": Subset(5_000, validation=5_000),
}
# with crops, which the paper's appendix does not mention, errors are close to its (`natural`)
AUGMENTATION = {"cifar10": "crop-flip", "cifar100": "crop-flip"}
BASELINES = (
    *("none", "switch", "mixup:1.0", "cutmix:1.0", "cutmix:alpha=1.0,per=sample"),
    *("smoothing:0.1", "zeta:2.8"),
)
# baselines that stop mixing as early as the best setting, to measure the gain of stopping early
CONTROLS = ("mixup:alpha=1.0,until=0.8", "switch:until=0.8")
CENTRE: Mapping[str, Any] = {
    "gamma": "0.0..4.0",
    "sources": 2,
    "keep_variance": "yes",
    "paste": 0.5,
    "p": 1.0,
    "until": 1.0,
}
# changes of the centre, one option at a time, the most informative first
SINGLE_CHANGES: tuple[Mapping[str, Any], ...] = (
    {"paste": 0.0},
    {"keep_variance": "no"},
    {"sources": 3},
    {"gamma": "0.0..2.0"},
    {"p": 0.8},
    {"until": 0.9},
    {"paste": 1.0},
    {"gamma": "0.0..6.0"},
    {"paste": 0.25},
    {"gamma": "0.0..3.0"},
    {"until": 0.8},
    {"p": 0.5},
    {"gamma": "1.0..4.0"},
    {"sources": 4},
)
# several options at once, where they may depend on each other
JOINT_CHANGES: tuple[Mapping[str, Any], ...] = (
    {"sources": 3, "gamma": "0.0..3.0"},
    {"sources": 3, "gamma": "0.0..3.0", "paste": 0.0},
    {"paste": 0.0, "keep_variance": "no"},
    {"paste": 0.0, "gamma": "0.0..2.0"},
    {"paste": 0.0, "until": 0.9},
    {"paste": 0.0, "p": 0.8},
    {"p": 0.8, "until": 0.9},
    {"gamma": "0.0..2.0", "until": 0.9},
    {"sources": 3, "gamma": "0.0..3.0", "paste": 0.0, "keep_variance": "no"},
)


def spell(change: Mapping[str, Any]) -> str:
    """The label of a setting with every option, so that it does not depend on defaults.

    >>> spell({"paste": 0.25})
    'zetamix:gamma=0.0..4.0,sources=2,keep_variance=yes,paste=0.25,p=1.0,until=1.0'
    """
    return "zetamix:" + ",".join(f"{key}={value}" for key, value in {**CENTRE, **change}.items())


CHANGES: tuple[Mapping[str, Any], ...] = ({}, *SINGLE_CHANGES, *JOINT_CHANGES)
FAMILY = tuple(spell(change) for change in CHANGES)
METHODS = (*FAMILY, *BASELINES)


@dataclass(frozen=True)
class Round:
    """Runs of the `keep` best settings of the family so far, and of the baselines above them.

    None keeps everything.
    """

    datasets: Sequence[str]
    seeds: Sequence[int]
    keep: int | None = None
    controls: Sequence[str] = ()
    """Methods that are also run, but neither ranked nor chosen."""

    @property
    def pairs(self) -> list[tuple[str, int]]:
        return list(product(self.datasets, self.seeds))


ROUNDS = (
    Round(("cifar10",), (0,)),
    Round(("cifar100", "fashion_mnist"), (0,), keep=8),
    Round(tuple(DATASETS), (1,), keep=4),
    Round(tuple(DATASETS), (2, 3), keep=2, controls=CONTROLS),
)

Runs: TypeAlias = Mapping[str, Mapping[tuple[str, int], RunRecord]]
"""Runs by method, and by dataset and seed."""
Errors: TypeAlias = Mapping[str, Mapping[tuple[str, int], float]]
"""Validation error by method, and by dataset and seed."""


def make_cell(
    dataset: str,
    method: str,
    seed: int,
    subset: Subset | None,
    variant: Variant,
) -> TrainingCell:
    """A ResNet-18 with the paper's recipe; None means the default of the dataset."""
    variant = replace(variant, augmentation=variant.augmentation or AUGMENTATION.get(dataset))
    recipe = variant.recipe(dataset, "resnet18")
    in_sweep = subset is not None and subset.validation is not None
    return TrainingCell(dataset, method, seed, recipe, "resnet18", variant, in_sweep, subset)


def read_runs(store: RecordStore, cells: Mapping[str, TrainingCell]) -> Runs:
    """All runs of the search, including those of the controls.

    cells: a cell of each dataset, of any method and seed.
    """
    methods = (*METHODS, *CONTROLS)
    runs: dict[str, dict[tuple[str, int], RunRecord]] = {method: {} for method in methods}
    for (dataset, cell), method in product(cells.items(), methods):
        for run in store.runs_of(replace(cell, method=method)):
            runs[method][dataset, run.cell.seed] = run
    return runs


def errors_of(runs: Runs) -> Errors:
    """The validation error after the last epoch."""
    return {
        method: {pair: run.last["error"] for pair, run in own.items()}
        for method, own in runs.items()
    }


def read_errors(store: RecordStore, cells: Mapping[str, TrainingCell]) -> Errors:
    """`errors_of` the runs of `read_runs`."""
    return errors_of(read_runs(store, cells))


def plan_rounds(errors: Errors) -> Iterator[tuple[Round, list[str]]]:
    """Every round with its settings, the best first; future rounds by the errors so far."""
    methods, pairs = list(METHODS), list[tuple[str, int]]()
    for part in ROUNDS:
        methods = rank(methods, errors, pairs)
        if part.keep is not None:
            last = [method for method in methods if method in FAMILY][: part.keep][-1]
            methods = methods[: methods.index(last) + 1]
        yield part, methods
        pairs += part.pairs


def rank(methods: Sequence[str], errors: Errors, pairs: Sequence[tuple[str, int]]) -> list[str]:
    """Methods by their relative error over datasets and seeds; those that lack runs come last."""

    def order(method: str) -> tuple[int, float]:
        relative = relative_errors(method, errors, pairs)
        return len(pairs) - len(relative), fmean(relative.values()) if relative else 0.0

    return sorted(methods, key=order)


def relative_errors(
    method: str, errors: Errors, pairs: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], float]:
    """Its errors, each divided by the mean of all runs with that dataset, without controls.

    A dataset with an error of 30 % thus counts as much as one with 8 %, and the controls do not
    affect the choice.

    >>> errors = {"a": {("d", 0): 0.1, ("e", 0): 0.3}, "b": {("d", 0): 0.3, ("e", 0): 0.3}}
    >>> relative_errors("a", errors, [("d", 0), ("e", 0)])
    {('d', 0): 0.5, ('e', 0): 1.0}
    """
    own = errors.get(method, {})
    means = {
        dataset: fmean(
            error
            for other, found in errors.items()
            for (name, _), error in found.items()
            if name == dataset and other not in CONTROLS
        )
        for dataset in {dataset for dataset, _ in own}
    }
    return {pair: own[pair] / means[pair[0]] for pair in pairs if pair in own}


@dataclass(frozen=True)
class Choice:
    """The setting of the family with the smallest relative error in the last complete round."""

    method: str
    rounds: int
    """Complete rounds, of all of `ROUNDS`."""
    finalists: Sequence[str]
    """Settings of that round, baselines included, the best first."""
    pairs: Sequence[tuple[str, int]]
    """Datasets and seeds that all finalists were run with."""


def choose(errors: Errors) -> Choice | None:
    """The choice after the complete rounds; None before the first."""
    pairs, choice = list[tuple[str, int]](), None
    for number, (part, methods) in enumerate(plan_rounds(errors), 1):
        pairs += part.pairs
        if any(pair not in errors.get(method, {}) for method in methods for pair in pairs):
            break
        finalists = rank(methods, errors, pairs)
        best = next(method for method in finalists if method in FAMILY)
        choice = Choice(best, number, finalists, list(pairs))
    return choice


@dataclass(frozen=True)
class OptionChange:
    """The effect of another value of one option on settings that are otherwise equal."""

    option: str
    value: Any
    comparisons: Mapping[tuple[str, str, int], tuple[float, float]]
    """Errors with the centre's value and with this one, by setting, dataset and seed."""

    def relative(self, dataset: str | None = None) -> list[float]:
        """The change of each error, divided by the error with the centre's value."""
        return [
            changed / error - 1
            for (_, name, _), (error, changed) in self.comparisons.items()
            if dataset in (None, name)
        ]

    def points(self, dataset: str) -> list[float]:
        """The change of each error on a dataset, in percentage points."""
        return [
            100 * (changed - error)
            for (_, name, _), (error, changed) in self.comparisons.items()
            if name == dataset
        ]


def compare_options(errors: Errors) -> list[OptionChange]:
    """Every pair of settings that differ in one option, with the datasets and seeds they share."""
    found = []
    for change in sorted(SINGLE_CHANGES, key=_place):
        ((option, value),) = change.items()
        others = {
            spell(setting): spell({**setting, **change})
            for setting in CHANGES
            if option not in setting
        }
        comparisons = {
            (label, *pair): (error, errors[other][pair])
            for label, other in others.items()
            for pair, error in errors.get(label, {}).items()
            if pair in errors.get(other, {})
        }
        found.append(OptionChange(option, value, comparisons))
    return found


def _place(change: Mapping[str, Any]) -> tuple[int, str]:
    """By option in the order of the centre, then by value."""
    ((option, value),) = change.items()
    return list(CENTRE).index(option), str(value)
