"""The result of an inspection: what was measured of the outputs of every method."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from zetamix.measure import Estimate, Judgement

# the paper draws γ from 0 to 15; at 0 every output of a batch is its mean
GAMMAS = (0.5, 1.0, 1.5, 2.0, 2.4, 2.8, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0)
# above this fraction of the largest measurable dimension, the originals are saturated
SATURATED = 0.95
# quantile of a two-sided 95 % interval
NORMAL_QUANTILE = 1.96


@dataclass(frozen=True)
class Settings:
    """Everything that determines the results of an inspection."""

    samples: int = 2000
    """The maximum number of originals to measure."""
    batch_size: int = 128
    neighbours: int = 128
    """Neighbours k of the local dimension; an eighth of the originals if that is less."""
    gammas: tuple[float, ...] = GAMMAS
    tolerance: float = 0.1
    """Relative change of the mean local dimension that counts as preserved."""
    seed: int = 0
    oracle: str = "auto"
    """Model of the oracle; "none", or data of a single class, measures no realism."""
    oracle_epochs: int | None = None
    oracle_size: int = 64
    """Images are downscaled for the oracle to a shorter side of at most this many pixels."""
    memory_gb: float = 1.0


@dataclass(frozen=True)
class Oracle:
    """A classifier of samples as the dataset stores them, with its accuracy."""

    classify: Callable[[Tensor], Tensor]
    """Logits [n, classes] for samples [n, ...]."""
    accuracy: Estimate
    """On samples that it was not trained on."""
    description: str
    """The model and its training."""
    measured_on: str = "test"
    """The samples that the accuracy was measured on: "test" or "held-out"."""
    majority: float = 0.0
    """Accuracy of the majority-class baseline on those."""

    def __call__(self, samples: Tensor) -> Tensor:
        return self.classify(samples)

    @property
    def statement(self) -> str:
        """Model and accuracy, for captions and notes."""
        value, error = 100 * self.accuracy.value, 100 * self.accuracy.error
        return (
            f"{self.description}, {self.measured_on} accuracy {value:.2f} ± {error:.2f} % "
            f"(n = {self.accuracy.n:,})"
        )

    @property
    def accuracy_low(self) -> float:
        """Lower end of the 95 % interval of the accuracy (Wilson, valid for few samples)."""
        share, n, z = self.accuracy.value, self.accuracy.n, NORMAL_QUANTILE
        if not n:
            return 0.0
        half = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        return (share + z**2 / (2 * n) - half) / (1 + z**2 / n)

    @property
    def accuracy_needed(self) -> float:
        """Halfway from the majority-class baseline to 1."""
        return (1 + self.majority) / 2

    @property
    def reliable(self) -> bool:
        """Whether the oracle is accurate enough to judge outputs."""
        return self.accuracy_low > self.accuracy_needed

    def as_dict(self) -> dict[str, Any]:
        names = ("description", "measured_on", "majority", "accuracy_low", "accuracy_needed")
        values = {name: getattr(self, name) for name in (*names, "reliable")}
        return {**values, "accuracy": self.accuracy.as_dict()}


@dataclass(frozen=True)
class MeasuredOutputs:
    """Measurements of the outputs of one method, or of the originals."""

    label: str
    estimates: dict[str, Estimate]
    judgement: Judgement | None
    examples: Tensor
    """[shown, ...]: outputs to show, in the order of their originals."""
    example_targets: Tensor


@dataclass(frozen=True)
class Inspection:
    """The measurements of a dataset and of every method's outputs."""

    dataset: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    notes: tuple[str, ...]
    settings: Settings
    samples: int
    judged: int
    """Outputs that the oracle judged: those made of samples that it was not trained on."""
    neighbours: int
    oracle: Oracle | None
    original: MeasuredOutputs
    methods: tuple[MeasuredOutputs, ...]
    sweep: tuple[tuple[float, Estimate], ...]
    """(γ, local dimension of ζ-mixup's outputs)."""

    @property
    def rows(self) -> tuple[MeasuredOutputs, ...]:
        """The originals, then every method."""
        return (self.original, *self.methods)

    @property
    def limit(self) -> int:
        """The largest measurable local dimension: k points around their mean span k - 1."""
        return min(self.neighbours - 1, math.prod(self.shape))

    @property
    def saturated(self) -> bool:
        """Whether the originals themselves vary in nearly all measurable directions."""
        return self.original.estimates["local_dimension"].value >= SATURATED * self.limit

    @property
    def uninformative(self) -> bool:
        """Whether the local dimension is saturated: outputs cannot exceed the originals."""
        # if even the limit is within the tolerance, no output can exceed it
        return self.saturated or self._within_tolerance(self.limit)

    @property
    def cut_down(self) -> bool:
        """Whether there were too few originals for the requested number of neighbours."""
        return self.neighbours < self.settings.neighbours

    @property
    def all_preserve(self) -> bool:
        """Whether every γ of the sweep preserves the local dimension, so it distinguishes none.

        At the smallest γ no sample dominates.
        """
        return len(self.preserving_gammas) == len(self.sweep)

    @property
    def inconclusive(self) -> bool:
        """Whether the local dimension allows no conclusion."""
        return self.uninformative or self.cut_down or self.all_preserve

    @property
    def preserving_gammas(self) -> tuple[float, ...]:
        """The γ at which the mean local dimension is that of the originals, within tolerance."""
        return tuple(gamma for gamma, value in self.sweep if self._within_tolerance(value.value))

    @property
    def preserving_from(self) -> float | None:
        """The smallest γ such that it and all larger ones measured preserve the local dimension."""
        start = None
        for gamma, _ in reversed(self.sweep):
            if gamma not in self.preserving_gammas:
                break
            start = gamma
        return start

    def preserves(self, outputs: MeasuredOutputs) -> bool:
        """Whether a method preserves the mean local dimension, within tolerance."""
        return self._within_tolerance(outputs.estimates["local_dimension"].value)

    def _within_tolerance(self, dimension: float) -> bool:
        original = self.original.estimates["local_dimension"].value
        return abs(dimension - original) <= self.settings.tolerance * original

    def as_dict(self) -> dict[str, Any]:
        names = ("dataset", "shape", "classes", "notes", "samples", "judged", "neighbours")
        return {
            **{name: getattr(self, name) for name in names},
            "settings": asdict(self.settings),
            "local_dimension_limit": self.limit,
            "local_dimension_uninformative": self.uninformative,
            "neighbours_cut_down": self.cut_down,
            "all_gammas_preserve": self.all_preserve,
            "oracle": None if self.oracle is None else self.oracle.as_dict(),
            "measures": {
                row.label: {name: value.as_dict() for name, value in row.estimates.items()}
                for row in self.rows
            },
            "gamma_sweep": [
                {"gamma": gamma, "local_dimension": value.as_dict()} for gamma, value in self.sweep
            ],
            "preserving_gammas": None if self.inconclusive else list(self.preserving_gammas),
        }
