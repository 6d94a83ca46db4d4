"""A number with what it takes to judge it: how many values it is the mean of, and how sure."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """The mean of `n` values; NaN where there is none.

    The standard error takes the values for independent. Outputs of one batch share sources, so it
    is a lower bound, close where batches are many and one sample dominates each output.
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
        """For JSON, which has no NaN."""
        numbers = {"value": self.value, "spread": self.spread, "standard_error": self.error}
        return {"n": self.n} | {
            name: None if math.isnan(number) else number for name, number in numbers.items()
        }


def mean_of(values: Tensor) -> Estimate:
    """The mean of all elements; of booleans, their share.

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
