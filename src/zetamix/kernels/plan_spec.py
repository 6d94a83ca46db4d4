"""PlanSpec: a plan that is still to be drawn, every argument checked and filled in."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from torch import Tensor

# plans of up to so many sources are drawn and mixed without sorting and without a matrix
MOST_FEW = 4
# images of up to so many channels with a mean each are mixed in the launch that draws the plan
MOST_CHANNELS = 4

Origin: TypeAlias = tuple[Tensor | None, int]
"""The seed that a GPU expands into random numbers: the sum of both parts (`Draw.origin`)."""


class Law(Enum):
    ZETA = "zeta"
    MIXUP = "mixup"


class PlanShape(NamedTuple):
    """All of a plan that a kernel is compiled for: everything but the number γ or α."""

    batch_size: int
    sources: int
    outputs: int
    order_width: int  # random integers per output: one per source (digits) or per row (keys)
    law: Law = Law.ZETA
    own_anchor: bool = True  # output k begins with sample k
    gamma_tensor: bool = False
    gamma_range: bool = False  # each output draws its own γ
    one_lam: bool = False  # mixup draws one λ for all outputs
    uniform_lam: bool = False  # α is 1: Beta(1, 1) needs none of the work for other α
    dominant: bool = False  # one sample outweighs all others, however many, in every output


class PlanSpec(NamedTuple):
    """A plan that is still to be drawn, and γ, one γ per output, γ's range, or mixup's α."""

    shape: PlanShape
    parameter: float | Tensor | tuple[float, float]


class Finish(NamedTuple):
    """What is done with a drawn plan before samples are mixed; see `zetamix.ZetaMix`."""

    p: float = 1.0
    paste: float = 0.0
    keep_variance: bool = False
    mean: float | Sequence[float] | None = None


PLAIN = Finish()
