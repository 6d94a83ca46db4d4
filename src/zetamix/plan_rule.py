"""PlanRule: what the plan of a transform draws for each output."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class PlanRule:
    """What is drawn for each output. GPU kernels are compiled for it, apart from its numbers."""

    gamma: float | tuple[float, float] | Tensor | None = None
    """γ of ζ-mixup: one number, a range from which each output draws, a tensor [] or [outputs].
    None: λ ~ Beta(`alpha`, `alpha`) of mixup."""
    alpha: float = 1.0
    sources: int | None = None
    """None: all of the batch. Without γ: two."""
    partner: Literal["drawn", "rotated"] = "drawn"
    """Of two sources. "drawn": each output draws the other sample. "rotated": all outputs take the
    sample that is s rows before their own, with one s for the batch: a permutation."""
    anchor: Literal["self", "random"] = "self"
    per: Literal["sample", "batch"] = "sample"
    """Whether λ, the box and the choice to paste are drawn for each output or once."""
    p: float = 1.0
    """The probability that an output is mixed."""
    paste: float = 0.0
    """The probability that an output is pasted rather than blended."""
    box_alpha: float | None = None
    """None: boxes lie inside the image, with the weights as areas (ZetaMix). Else the boxes of
    CutMix, cut off at the edges, of area 1 − λ with λ ~ Beta(`box_alpha`, `box_alpha`)."""
    keep_variance: bool = False
    """Whether blended samples are scaled to the variance of a single one."""
