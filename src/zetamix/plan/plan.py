"""What a plan is: for each output, the batch rows that are mixed into it and their weights."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from zetamix._checks import check_plan
from zetamix.kernels.reference import dense


@dataclass(frozen=True, eq=False)
class MixPlan:
    """For each output, the batch rows that are mixed into it and their weights.

    >>> from zetamix import zeta_plan
    >>> plan = zeta_plan(4, gamma=2.0, sources=3)
    >>> plan.indices.shape, plan.weights[0]
    (torch.Size([4, 3]), tensor([0.7347, 0.1837, 0.0816]))
    """

    indices: Tensor
    """[outputs, sources], int64: batch rows, by rank for ζ-mixup (column 0 is the anchor)."""
    weights: Tensor
    """[outputs, sources], floating point: rows of every plan made here sum to 1."""
    batch: int
    """How many rows the batch has that this plan is for."""

    def __repr__(self) -> str:
        return (
            f"MixPlan({self.outputs} outputs of {self.sources} sources each, batch={self.batch}, "
            f"{self.weights.dtype}, {self.device})"
        )

    def __post_init__(self) -> None:
        check_plan(self.indices, self.weights, self.batch)

    @property
    def outputs(self) -> int:
        return self.indices.shape[0]

    @property
    def sources(self) -> int:
        return self.indices.shape[1]

    @property
    def device(self) -> torch.device:
        return self.indices.device

    def anchors(self) -> Tensor:
        """[outputs]: the batch row with the largest weight in each output."""
        heaviest = self.weights.argmax(1, keepdim=True)
        return self.indices.gather(1, heaviest).squeeze(1)

    def dominance(self) -> Tensor:
        """[outputs], bool: whether the largest weight exceeds the sum of the rest (Theorem 1)."""
        return self.weights.amax(1) > self.weights.sum(1) / 2

    def matrix(self) -> Tensor:
        """The plan as a dense [outputs, batch] matrix: mixing is `plan.matrix() @ samples`."""
        return dense(self.indices, self.weights, self.batch)

    def to(self, device: torch.device | str | int) -> "MixPlan":
        """The same plan on another device."""
        return MixPlan(self.indices.to(device), self.weights.to(device), self.batch)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file that `MixPlan.load` reads back exactly."""
        # clone: weights may be an expanded view, and the file should hold what it shows
        state = {"indices": self.indices, "weights": self.weights.clone(), "batch": self.batch}
        torch.save(state, path)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> "MixPlan":
        """Read a plan written by `save`; nothing in the file is executed."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception:
            # torch has many words for a file that is not its own
            state = None
        if not isinstance(state, dict) or set(state) != {"indices", "weights", "batch"}:
            raise ValueError(f"{path} does not hold a plan. Write one with MixPlan.save.")
        return cls(**state).to(device)
