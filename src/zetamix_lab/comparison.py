"""A comparison of methods over the same seeds: its runs, and tables of statistics made of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from zetamix.methods import display_name, parse
from zetamix_lab.data import Dataset
from zetamix_lab.data.source import count_labels
from zetamix_lab.metrics import (
    METRICS,
    SCALED,
    ChanceLevel,
    Metric,
    choose_metrics,
    guessing,
    resolution,
)
from zetamix_lab.records import Array, RunRecord, SampleResults
from zetamix_lab.statistics import KEYS, paired_tests, summarise
from zetamix_lab.train import Recipe

Key: TypeAlias = tuple[str, int]
"""The method and the seed of a run."""
# names of metrics of one's own of which less is better
LESS = {"error", "loss", "nll", "ece", "mae", "mse", "rmse"}


def metric_of(name: str) -> Metric:
    """A metric of `METRICS` or of one's own, of which more is better unless its name says less.

    >>> metric_of("error").title, metric_of("dice").sign, metric_of("val_loss").sign
    ('error rate', 1, -1)
    """
    less = LESS & {*re.findall("[a-z]+", name.lower())}
    return METRICS.get(name) or Metric(name, name, name, -1 if less else 1, percent=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Methods trained with the same seeds on the same splits: here, or by a loop of one's own."""

    name: str
    """Of the data."""
    requested: tuple[str, ...]
    """All requested methods."""
    seeds: tuple[int, ...]
    records: Mapping[Key, RunRecord] = field(default_factory=dict)
    """Finished runs that were trained here."""
    given: pd.DataFrame | None = None
    """The table of runs that were trained elsewhere; the first metric is the primary one."""
    samples: Mapping[Key, SampleResults] = field(default_factory=dict)
    """The results of each test sample, of the runs that keep them."""
    dataset: Dataset | None = None
    recipe: Recipe | None = None
    curves: Mapping[Key, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The epochs of each finished run, as in its metrics.jsonl."""
    failures: Mapping[Key, str] = field(default_factory=dict)
    examples: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Some training samples and targets as "original", then as mixed by each method."""
    description: str = ""
    """Where runs were trained, as in "2 processes side by side"; empty if all had a record."""
    unfinished: Mapping[Key, float] = field(default_factory=dict)
    """Epochs of runs that were stopped early."""

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The table of runs, in the order of the request."""
        rows = [
            (self.name, method, seed, metric, value)
            for method in self.requested
            for seed in self.seeds
            if (method, seed) in self.records
            for metric, value in self.records[method, seed].last.items()
            if value is not None
        ]
        own = pd.DataFrame(rows, columns=[*KEYS, "value"]).astype({"seed": int, "value": float})
        return own if self.given is None else pd.concat([own, self.given], ignore_index=True)

    @cached_property
    def finished(self) -> list[Key]:
        return list(dict.fromkeys(zip(self.runs["method"], self.runs["seed"], strict=True)))

    @cached_property
    def methods(self) -> list[str]:
        """Methods with at least one finished run, in the order of the request."""
        return [label for label in self.requested if any(key[0] == label for key in self.finished)]

    @property
    def missing(self) -> int:
        """The number of requested runs that are not finished."""
        return len(self.requested) * len(self.seeds) - len(self.finished)

    # the test split

    @cached_property
    def targets(self) -> Array | None:
        """The labels of the test samples; None if they are not known or not the same for all."""
        if self.dataset is not None:
            return self.dataset.splits["test"].labels.numpy()
        found = [own.targets for own in self.samples.values()]
        return found[0] if found and all(np.array_equal(found[0], own) for own in found) else None

    @property
    def test_size(self) -> int | None:
        return None if self.targets is None else len(self.targets)

    @property
    def multi_label(self) -> bool:
        return self.targets is not None and self.targets.ndim == 2

    @cached_property
    def test_counts(self) -> Tensor | None:
        """Test samples of each class."""
        classes = 0 if self.dataset is None else self.dataset.num_classes
        return None if self.targets is None else count_labels(torch.tensor(self.targets), classes)

    # metrics

    @cached_property
    def recorded(self) -> list[str]:
        """The metrics that every run has."""
        counts = self.runs.groupby("metric", sort=False).size()
        names: list[str] = counts.index[counts == len(self.finished)].tolist()
        return names

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics to report for the test split, the primary one first."""
        if self.test_counts is None:
            return self.recorded
        chosen = [*choose_metrics(self.test_counts, multi_label=self.multi_label), *SCALED]
        own = [name for name in self.recorded if name not in METRICS]
        return [name for name in chosen if name in self.recorded] + own or self.recorded

    @property
    def metric(self) -> Metric:
        """The primary metric."""
        return metric_of(self.metrics[0])

    @property
    def tested(self) -> list[str]:
        """The metrics of the verdict; Holm's correction covers the tests of all of them.

        The scaled ones, if every run has a temperature fitted on the validation split.
        """
        return [self.metrics[0], *(name for name in SCALED if name in self.recorded)]

    # statistics

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Mean, deviation and number of seeds, by method and metric."""
        return summarise(self.runs).set_index(["method", "metric"])[["mean", "sd", "n"]]

    def values(self, method: str, metric: str) -> dict[int, float]:
        """By seed, after the last epoch, on the test split."""
        own = self.runs[(self.runs["method"] == method) & (self.runs["metric"] == metric)]
        return dict(zip(own["seed"].tolist(), own["value"].tolist(), strict=True))

    @cached_property
    def baselines(self) -> list[str]:
        """The methods that others are compared with: `none` and mixup, or the first method.

        Of runs that were trained elsewhere, `none` or the first method alone.
        """
        labels = [label for label in self.methods if label.partition(":")[0] == "none"]
        if self.given is not None:
            return labels or self.methods[:1]
        labels += [label for label in self.methods if label.partition(":")[0] == "mixup"][:1]
        return labels or self.methods[:1]

    @cached_property
    def tests(self) -> pd.DataFrame:
        """`paired_tests` of every metric against each baseline."""
        runs, counts = self.runs.drop(columns="dataset"), self.test_counts
        # neither is known without the labels of the test split
        steps, samples = {}, {}
        if counts is not None:
            steps = {name: resolution(name, counts) for name in self.recorded}
            samples = {
                name: {key: own.contributions(name) for key, own in self.samples.items()}
                for name in self.recorded
            }
        parts = [
            paired_tests(runs, base, self.tested, steps, samples, pooled=True).assign(baseline=base)
            for base in self.baselines
        ]
        return pd.concat(parts, ignore_index=True)

    def differences(self, baseline: str, metric: str | None = None) -> pd.DataFrame:
        """The tests of a metric against a baseline: every other method that shares a seed.

        metric: the primary one unless given.
        """
        own = self.tests[self.tests["baseline"] == baseline]
        return own[own["metric"] == (metric or self.metrics[0])]

    @cached_property
    def at_chance(self) -> ChanceLevel | None:
        """The chance level if no method is significantly better; None if one is."""
        if self.test_counts is None:
            return None
        size = self.test_size if self.multi_label else None
        chance = guessing(self.metrics[0], self.test_counts, size)
        if chance is None or chance.metric not in self.recorded:
            return None
        means = self.summary.xs(chance.metric, level="metric")["mean"]
        # a mean that is not known is not at chance
        return chance if (means <= chance.highest).all() else None

    # training

    @cached_property
    def until(self) -> dict[float, list[str]]:
        """Methods by the fraction of training in which they mix, where their names say so."""
        found = dict[float, list[str]]()
        for method in map(parse, self.methods if self.given is None else ()):
            if method.name != "none":
                found.setdefault(method.until, []).append(method.label)
        return found

    def name_of(self, label: str) -> str:
        """The name of a method in a report, without an `until` that most methods share."""
        if self.given is not None:
            return label
        return display_name(label, max(self.until, key=lambda k: len(self.until[k]), default=None))

    def curve(self, split: str, metric: str) -> pd.DataFrame:
        """[epochs, (method, seed)]: a metric of every run, NaN where it was not evaluated."""
        columns = {
            key: {line["epoch"]: line[split][metric] for line in curve if split in line}
            for key, curve in self.curves.items()
        }
        return pd.DataFrame(columns, dtype=float).sort_index()

    def records_of(self, method: str) -> list[RunRecord]:
        return [record for (label, _), record in self.records.items() if label == method]

    @cached_property
    def recalls(self) -> dict[str, Tensor]:
        """By method, [seeds, classes]: recall per class; NaN for a class without test samples.

        Empty unless every run has a confusion matrix: those of many classes have none.
        """
        found = {}
        for label in self.methods if self.dataset is not None else ():
            stored = [record.confusion for record in self.records_of(label)]
            if not all(matrix for matrix in stored):
                return {}
            counts = torch.tensor(stored).double()
            # of several labels [seeds, label, 4], as `metrics.confusion`
            right = counts[:, :, 3] if self.multi_label else counts.diagonal(dim1=1, dim2=2)
            found[label] = right / (counts[:, :, 2:] if self.multi_label else counts).sum(2)
        return found
