"""PlanSpec: the arguments of a plan to draw, checked and with defaults filled in."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from torch import Tensor

# plans of at most this many sources are drawn without sorting and mixed without a matrix
MOST_FEW = 4
# with one mean per channel, images of at most this many channels are mixed in a single launch
MOST_CHANNELS = 4

Origin: TypeAlias = tuple[Tensor | None, int]
"""The seed that a GPU expands into random numbers: the sum of both parts (`Draw.origin`)."""


class Law(Enum):
    ZETA = "zeta"
    MIXUP = "mixup"


class PlanShape(NamedTuple):
    """The part of a plan that a kernel is compiled for: everything but the value of γ or α."""

    batch_size: int
    sources: int
    outputs: int
    order_width: int  # random integers per output: one per source (digits) or per row (keys)
    law: Law = Law.ZETA
    own_anchor: bool = True  # output k begins with sample k
    gamma_tensor: bool = False
    gamma_range: bool = False  # each output draws its own γ
    one_lam: bool = False  # mixup draws one λ for all outputs
    uniform_lam: bool = False  # α is 1: Beta(1, 1) is the uniform distribution
    dominant: bool = False  # γ ≥ GAMMA_MIN: one sample outweighs any number of others


class PlanSpec(NamedTuple):
    """A plan to draw, with its parameter: γ, one γ per output, the range of γ, or α of mixup."""

    shape: PlanShape
    parameter: float | Tensor | tuple[float, float]


class Finish(NamedTuple):
    """How a drawn plan is changed before samples are mixed; see `zetamix.ZetaMix`."""

    p: float = 1.0
    paste: float = 0.0
    keep_variance: bool = False
    mean: float | Sequence[float] | None = None


PLAIN = Finish()
