"""Means with their sample size and standard error."""

import math
from dataclasses import dataclass

from torch import Tensor

from zetamix_lab.atomic_io import json_safe


@dataclass(frozen=True)
class Estimate:
    """The mean of `n` values; NaN for n = 0.

    The standard error assumes independent values. Outputs of one batch share sources, so it is a
    lower bound; it is close for many batches and if one sample dominates each output.
    """

    value: float
    n: int
    spread: float
    """Standard deviation of the values, NaN for fewer than two."""

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.spread / math.sqrt(self.n) if self.n else math.nan

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON: None instead of NaN."""
        numbers = {"value": self.value, "spread": self.spread, "standard_error": self.error}
        return {"n": self.n, **json_safe(numbers)}


def mean_of(values: Tensor) -> Estimate:
    """The mean of all elements; of booleans, the fraction of True.

    >>> from torch import tensor
    >>> mean_of(tensor([True, False, True, True])).value
    0.75
    """
    flat = values.detach().double().flatten()
    n = len(flat)
    return Estimate(
        value=float(flat.mean()) if n else math.nan,
        n=n,
        spread=float(flat.std()) if n > 1 else math.nan,
    )
