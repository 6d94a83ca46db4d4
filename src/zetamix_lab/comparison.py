"""The result of a comparison: every record, and the statistics computed from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, linear_regression
from typing import Any

import torch
from torch import Tensor

from zetamix_lab.data import Dataset
from zetamix_lab.metrics import (
    SCALED,
    ChanceLevel,
    Confusion,
    better_than_chance,
    choose_metrics,
    count_right,
    dense_confusion,
    guessing,
    resolution,
)
from zetamix_lab.records import RunRecord
from zetamix_lab.statistics import (
    Difference,
    Summary,
    holm,
    paired_difference,
    summarise,
)
from zetamix_lab.train import Recipe

# the last part of training, by which convergence is judged, and its minimum of evaluated epochs
LATE, LATE_EPOCHS = 1 / 3, 3


@dataclass(frozen=True)
class Examples:
    """Training samples mixed by one method; row k has the same original for all methods."""

    method: str
    samples: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods trained with the same seeds, recipe and splits."""

    dataset: Dataset
    requested: tuple[str, ...]
    """All requested methods."""
    seeds: tuple[int, ...]
    recipe: Recipe
    records: Mapping[tuple[str, int], RunRecord]
    """Finished runs by method and seed."""
    curves: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
    """The epochs of each finished run, as in its metrics.jsonl."""
    failures: Mapping[tuple[str, int], str]
    examples: Sequence[Examples]
    """The originals as method `none`, then every method that mixes."""
    description: str = ""
    """Where runs were trained, as in "2 processes side by side"; empty if all had a record."""
    unfinished: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Epochs of runs that were stopped early."""
    epochs_trained: float = 0.0
    """Epochs of all runs that this call trained."""

    @cached_property
    def methods(self) -> list[str]:
        """Methods with at least one finished run, in the order of the request."""
        return [label for label in self.requested if any(key[0] == label for key in self.records)]

    @property
    def total(self) -> int:
        """Number of requested runs."""
        return len(self.requested) * len(self.seeds)

    @property
    def complete(self) -> bool:
        return len(self.records) == self.total

    @property
    def compared(self) -> bool:
        """Whether any two methods have a seed in common."""
        return any(self.differences(baseline) for baseline in self.baselines)

    @cached_property
    def test_counts(self) -> Tensor:
        """Test samples per class."""
        return self.dataset.splits["test"].counts()

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics to report for the test split, the primary one first."""
        names = choose_metrics(self.test_counts, multi_label=self.dataset.multi_label)
        return [*names, *SCALED] if self.has_temperatures else names

    @cached_property
    def has_temperatures(self) -> bool:
        """Whether every run has a temperature fitted on the validation split."""
        return all("temperature" in record.extra for record in self.records.values())

    def temperature(self, method: str) -> float:
        """The mean temperature over seeds."""
        fitted = [r.extra["temperature"] for (m, _), r in self.records.items() if m == method]
        return fmean(fitted)

    @property
    def tested(self) -> list[str]:
        """The metrics of the verdict; Holm's correction covers the tests of all of them."""
        return [self.primary, *SCALED] if self.has_temperatures else [self.primary]

    @property
    def primary(self) -> str:
        return self.metrics[0]

    @cached_property
    def baselines(self) -> list[str]:
        """The methods that others are compared with: `none` and mixup, or the first method."""
        labels = [label for label in self.methods if label.partition(":")[0] == "none"]
        labels += [label for label in self.methods if label.partition(":")[0] == "mixup"][:1]
        return labels or self.methods[:1]

    def values(self, method: str, metric: str) -> dict[int, float]:
        """By seed, after the last epoch, on the test split."""
        return {
            seed: record.last.get(metric, math.nan)
            for (label, seed), record in sorted(self.records.items())
            if label == method
        }

    def summary(self, method: str, metric: str) -> Summary:
        found: Summary = summarise(self.values(method, metric))
        return found

    def differences(self, baseline: str, metric: str | None = None) -> list[Difference]:
        """Every other method minus `baseline`, paired by seed.

        p-values are Holm-corrected over all methods and all metrics of `tested`; a difference in
        another metric has no corrected p, and is never significant.
        """
        metric = self.primary if metric is None else metric
        if metric not in self.tested:
            return self._paired(baseline, metric)
        family = holm([d for name in self.tested for d in self._paired(baseline, name)])
        return [difference for difference in family if difference.metric == metric]

    def _paired(self, baseline: str, metric: str) -> list[Difference]:
        step = resolution(metric, self.test_counts)
        values = self.values(baseline, metric)
        differences = [
            paired_difference(
                method, baseline, metric, self.values(method, metric), values, resolution=step
            )
            for method in self.methods
            if method != baseline
        ]
        return [difference for difference in differences if difference is not None]

    def spread(self, baseline: str) -> float | None:
        """Standard deviation of the differences from a baseline in the primary metric.

        Pooled over methods, and at least that of rounding (`paired_difference`); None for one seed.
        """
        pairs = [(d.n - 1, d.sd) for d in self.differences(baseline) if d.sd is not None]
        if not pairs:
            return None
        pooled = math.sqrt(sum(f * sd**2 for f, sd in pairs) / sum(f for f, _ in pairs))
        return max(pooled, resolution(self.primary, self.test_counts) / math.sqrt(6))

    def late_changes(self, split: str) -> dict[str, list[float]]:
        """By method and for each seed, how the primary metric changed in the last third of epochs.

        From a line fitted to the evaluated epochs; empty if there are too few of them.
        """
        changes: dict[str, list[float]] = {}
        for (method, _), curve in self.curves.items():
            points = [(line["epoch"], line[split][self.primary]) for line in curve if split in line]
            late = points[-max(LATE_EPOCHS, round(LATE * len(points))) :]
            if len(points) > LATE_EPOCHS and all(math.isfinite(value) for _, value in late):
                epochs, values = zip(*late, strict=True)
                slope = linear_regression(epochs, values).slope
                changes.setdefault(method, []).append(slope * (epochs[-1] - epochs[0]))
        return changes

    def confusion(self, method: str) -> Tensor:
        """[true class, predicted class] over all seeds."""
        return torch.stack(list(map(dense_confusion, self._confusions(method)))).sum(0)

    def _confusions(self, method: str) -> list[Confusion]:
        """By seed."""
        return [record.confusion for (label, _), record in self.records.items() if label == method]

    def recalls(self, method: str) -> Tensor:
        """[seeds, classes]: recall per class; NaN for a class without test samples."""
        stored = self._confusions(method)
        if self.dataset.multi_label:
            # [seeds, label, 4], as `metrics.confusion`
            counts = torch.tensor(stored).double()
            return counts[:, :, 3] / counts[:, :, 2:].sum(2)
        return torch.stack([right.double() / sizes for right, sizes in map(count_right, stored)])

    @cached_property
    def not_better_than(self) -> ChanceLevel | None:
        """The chance level if no method is significantly better; None if one is."""
        chance = guessing(self.primary, self.test_counts, self._multi_label_samples)
        if chance is None or not self.methods:
            return None
        means = [self.summary(label, chance.metric).mean for label in self.methods]
        return None if better_than_chance(chance, means) else chance

    @property
    def _multi_label_samples(self) -> int | None:
        """Number of test samples if they have several labels, else None."""
        return len(self.dataset.splits["test"]) if self.dataset.multi_label else None
