"""Means with their sample size and standard error."""

import math
from typing import Any, TypeAlias

from torch import Tensor

from zetamix_lab.atomic_io import json_safe

Estimate: TypeAlias = dict[str, Any]
"""`n` values: their mean (`value`), standard deviation (`spread`) and `standard_error`.

For JSON: None instead of NaN, without values or, for the last two, with one. The standard error
assumes independent values. Outputs of one batch share sources, so it is a lower bound; it is close
for many batches and if one sample dominates each output.
"""


def mean_of(values: Tensor) -> Estimate:
    """The mean of all elements; of booleans, the fraction of True.

    >>> from torch import tensor
    >>> mean_of(tensor([True, False, True, True]))["value"]
    0.75
    """
    flat = values.detach().double().flatten()
    n = len(flat)
    spread = float(flat.std()) if n > 1 else math.nan
    numbers = {"value": float(flat.mean()) if n else math.nan, "spread": spread}
    numbers["standard_error"] = spread / math.sqrt(n) if n else math.nan
    return {"n": n, **json_safe(numbers)}
