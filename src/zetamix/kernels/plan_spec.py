"""PlanSpec: a plan that is still to be drawn, every argument checked and filled in."""

from enum import Enum
from typing import NamedTuple, TypeAlias

from torch import Tensor

Origin: TypeAlias = tuple[Tensor | None, int]
"""The seed that a GPU expands into random numbers: the sum of both parts (`Draw.origin`)."""


class Law(Enum):
    """How the weights of a plan are drawn."""

    ZETA = "zeta"
    MIXUP = "mixup"


class PlanShape(NamedTuple):
    """All of a plan that a kernel is compiled for: everything but the number γ or α."""

    batch_size: int
    sources: int
    outputs: int
    order_width: int
    """Random integers per output: one per source (digits) or one per batch row (keys)."""
    law: Law = Law.ZETA
    own_anchor: bool = True
    """Whether output k begins with sample k."""
    gamma_tensor: bool = False
    one_lam: bool = False
    """Whether mixup draws one λ for all outputs."""
    uniform_lam: bool = False
    """Whether α is 1: Beta(1, 1) is uniform and needs none of the work for other α."""
    dominant: bool = False
    """Whether one sample outweighs all others in every output, however many they are."""


class PlanSpec(NamedTuple):
    """A plan that is still to be drawn."""

    shape: PlanShape
    parameter: float | Tensor
    """γ, a number or one per output, for ζ-mixup; α for mixup."""
