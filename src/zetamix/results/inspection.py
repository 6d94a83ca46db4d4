"""What an inspection is asked for, and what it found."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from zetamix.experiments.inspect.oracle import Oracle
from zetamix.measure import Estimate, Judgement

# the paper draws γ from 0 to 15; at 0 every output of a batch is its mean
GAMMAS = (0.5, 1.0, 1.5, 2.0, 2.4, 2.8, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0)
# originals with this share of the largest dimension that can be found leave it no room to grow
NO_ROOM = 0.95


class InspectionError(ValueError):
    """Data or settings that nothing can be measured with; the message says what would do."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers of an inspection."""

    samples: int = 2000
    """How many originals to measure, at most."""
    batch: int = 128
    neighbours: int = 128
    """Of local dimension; an eighth of the originals where there are fewer than 1024."""
    gammas: tuple[float, ...] = GAMMAS
    tolerance: float = 0.1
    """How far a mean dimension may lie from that of the originals to count as kept."""
    seed: int = 0
    oracle: str = "auto"
    """Model of the oracle; "none" measures no realism, and neither does data of one class."""
    oracle_epochs: int | None = None
    oracle_size: int = 64
    """Images are scaled down for the oracle until their shorter side has this many pixels."""
    memory_gb: float = 1.0


@dataclass(frozen=True)
class Subject:
    """What was measured of one method's outputs, or of the originals."""

    label: str
    estimates: dict[str, Estimate]
    judgement: Judgement | None
    shown: Tensor
    """[shown, ...]: some outputs to look at, each in the place of the original beside it."""
    shown_targets: Tensor


@dataclass(frozen=True)
class Inspection:
    """All that a report is made of."""

    dataset: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    notes: tuple[str, ...]
    settings: Settings
    samples: int
    judged: int
    neighbours: int
    oracle: Oracle | None
    original: Subject
    subjects: tuple[Subject, ...]
    sweep: tuple[tuple[float, Estimate], ...]
    """(γ, local dimension of ζ-mixup's outputs)."""

    @property
    def limit(self) -> int:
        """The largest local dimension that can be found: k points around their mean have k − 1."""
        return min(self.neighbours - 1, math.prod(self.shape))

    @property
    def at_limit(self) -> bool:
        """Whether local dimension cannot tell outputs from originals, for want of room."""
        # where even the limit lies within tolerance, no output can have too many directions
        return self.full or self._counts_as_kept(self.limit)

    @property
    def full(self) -> bool:
        """Whether the originals themselves fill nearly all directions that can be found."""
        return self.original.estimates["local_dimension"].value >= NO_ROOM * self.limit

    @property
    def kept(self) -> tuple[float, ...]:
        """The γ at which the mean local dimension is that of the originals, within tolerance."""
        return tuple(gamma for gamma, found in self.sweep if self._counts_as_kept(found.value))

    def keeps(self, subject: Subject) -> bool:
        """Whether a method keeps the mean local dimension of the originals, within tolerance."""
        return self._counts_as_kept(subject.estimates["local_dimension"].value)

    def _counts_as_kept(self, found: float) -> bool:
        wanted = self.original.estimates["local_dimension"].value
        return abs(found - wanted) <= self.settings.tolerance * wanted

    def as_dict(self) -> dict[str, Any]:
        subjects = {subject.label: subject for subject in (self.original, *self.subjects)}
        return {
            "dataset": self.dataset,
            "shape": list(self.shape),
            "classes": list(self.classes),
            "notes": list(self.notes),
            "settings": asdict(self.settings),
            "samples": self.samples,
            "judged_samples": self.judged,
            "neighbours": self.neighbours,
            "local_dimension_limit": self.limit,
            "local_dimension_at_limit": self.at_limit,
            "oracle": None if self.oracle is None else self.oracle.as_dict(),
            "measures": {
                label: {key: value.as_dict() for key, value in subject.estimates.items()}
                for label, subject in subjects.items()
            },
            "gamma_sweep": [
                {"gamma": gamma, "local_dimension": found.as_dict()} for gamma, found in self.sweep
            ],
            # at its limit the dimension says of no γ whether it does
            "gammas_that_keep_the_dimension": None if self.at_limit else list(self.kept),
        }
