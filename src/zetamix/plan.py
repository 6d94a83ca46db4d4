"""Plans: which batch rows go into each output, and how much of each.

Every method of this library is a plan. Making one is random and happens here; applying one is
deterministic and happens in `zetamix.mix`.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from zetamix import boxes as box
from zetamix import checks, sampling
from zetamix.boxes import Size
from zetamix.checks import Gamma
from zetamix.sampling import Draw

AnchorChoice: TypeAlias = Literal["self", "random"]
LamChoice: TypeAlias = Literal["sample", "batch"]
ANCHORS = ("self", "random")
LAMS = ("sample", "batch")


@dataclass(frozen=True)
class PlanRule:
    """What is drawn for each output. GPU kernels are compiled for it, apart from its numbers."""

    gamma: float | tuple[float, float] | Tensor | None = None
    """γ of ζ-mixup: one number, a range from which each output draws, a tensor [] or [outputs].
    None: λ ~ Beta(`alpha`, `alpha`) of mixup."""
    alpha: float = 1.0
    sources: int | None = None
    """None: all of the batch. Without γ: two, sample k and sample k − s, with one s for the batch:
    a permutation."""
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
    batch_size: int
    """Size of the batch that the plan is for."""
    keep_variance: bool = False
    """Whether blended images and volumes, [n, c, ..., h, w], are scaled to the variance of unmixed
    ones (see `scale`)."""
    boxes: Tensor | None = None
    """[outputs, sources, 4], int64: each source covers its box (top, left, bottom, right) of the
    image, later sources over earlier ones. In a pasted output the first box is the whole image, and
    the weights are the fractions of pixels that show each source. A blended output has boxes of
    zeros."""
    size: Size | None = None
    """(height, width) of the images that boxes are for."""
    _shift: int | None = field(default=None, init=False, repr=False)
    # if set, output k mixes samples k and (k − shift) mod batch_size

    def __repr__(self) -> str:
        pasted = "" if self.size is None else ", boxes in images of {} × {}".format(*self.size)
        kept = ", variance kept" if self.keep_variance else ""
        return (
            f"MixPlan({self.outputs} outputs of {self.sources} sources each{pasted}{kept}, "
            f"batch_size={self.batch_size}, {self.weights.dtype}, {self.device})"
        )

    def __post_init__(self) -> None:
        indices, weights, boxes = self.indices, self.weights, self.boxes
        fits = indices.ndim == 2 and indices.shape == weights.shape
        fits = fits and indices.dtype == torch.int64 and weights.is_floating_point()
        if boxes is not None:
            object.__setattr__(self, "size", box.check_size(self.size))
            fits = fits and boxes.dtype == torch.int64 and boxes.shape == (*indices.shape, 4)
        if not fits:
            parts = [part for part in (indices, weights, boxes) if part is not None]
            got = ", ".join(f"{list(part.shape)} {part.dtype}" for part in parts)
            raise ValueError(
                "A plan has indices [outputs, sources], int64, and floating point weights of the "
                f"same shape; where it pastes, boxes [outputs, sources, 4], int64. Got {got}."
            )

    @property
    def scale(self) -> Tensor | None:
        """[outputs]: the factor on deviations from the mean that keeps the variance, or None.

        It is 1/‖w‖₂ for blended outputs (of independent samples) and 1 for pasted ones.
        """
        if not self.keep_variance:
            return None
        scale = 1 / torch.linalg.vector_norm(self.weights, dim=1)
        return scale if self.boxes is None else torch.where(self.pasted, 1, scale)

    @property
    def pasted(self) -> Tensor:
        """[outputs], bool: which outputs are pasted from boxes, not blended."""
        if self.boxes is None:
            return torch.zeros(self.outputs, dtype=torch.bool, device=self.device)
        return self.boxes[:, 0, 2] > 0

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
        """[outputs]: the batch row with the largest weight in each output.

        `labels[plan.anchors()]` are hard labels, for metrics that take no soft targets.
        """
        heaviest = self.weights.argmax(1, keepdim=True)
        return self.indices.gather(1, heaviest).squeeze(1)

    def dominates(self) -> Tensor:
        """[outputs], bool: whether the largest weight exceeds the sum of the rest (Theorem 1)."""
        return self.weights.amax(1) > self.weights.sum(1) / 2

    def matrix(self) -> Tensor:
        """The weights as a dense [outputs, batch_size] matrix.

        `plan.matrix() @ targets` mixes targets, and also samples unless the plan pastes boxes or
        keeps the variance.
        """
        # add, not assign: a plan made by hand may contain the same row twice
        empty = self.weights.new_zeros(self.outputs, self.batch_size)
        return empty.scatter_add_(1, self.indices, self.weights)

    def to(self, device: torch.device | str | int) -> "MixPlan":
        """The same plan on another device."""
        boxes = None if self.boxes is None else self.boxes.to(device)
        indices, weights = self.indices.to(device), self.weights.to(device)
        return replace(self, indices=indices, weights=weights, boxes=boxes)

    def numpy(self) -> tuple[Any, ...]:
        """`indices`, `weights`, `boxes` and `scale` as NumPy arrays, copied to the host.

        `boxes` is None where the plan pastes nothing, `scale` where it does not keep the variance.

        >>> from zetamix import zeta_plan
        >>> indices, weights, boxes, scale = zeta_plan(4, gamma=1.0, sources=2).numpy()
        >>> weights.shape, weights.dtype
        ((4, 2), dtype('float32'))
        """
        # NumPy has no bfloat16
        wide = torch.promote_types(self.weights.dtype, torch.float32)
        scale = None if self.scale is None else self.scale.to(wide)
        parts = (self.indices, self.weights.to(wide), self.boxes, scale)
        return tuple(None if p is None else p.detach().cpu().numpy().copy() for p in parts)


def _trusted_plan(indices: Tensor, weights: Tensor, batch_size: int, **others: Any) -> MixPlan:
    """A plan that is valid by construction, created without the checks of `MixPlan`."""
    plan = object.__new__(MixPlan)
    given = {"indices": indices, "weights": weights, "batch_size": batch_size, **others}
    for name, value in given.items():
        object.__setattr__(plan, name, value)
    return plan


def sources_of(rule: PlanRule, batch: int) -> int:
    """The number of sources of each output."""
    wanted = 2 if rule.gamma is None else rule.sources
    # not min(…), which torch.compile cannot infer to be 2
    return batch if wanted is None or wanted >= batch else wanted


def draw_plan(
    rule: PlanRule,
    batch: int,
    draw: Draw,
    *,
    outputs: int | None = None,
    size: Size | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Draw a plan in plain torch: rows, weights, boxes, and which outputs are mixed.

    size: (height, width) of the images; without it nothing is pasted.
    """
    outputs = batch if outputs is None else outputs
    sources = sources_of(rule, batch)
    once = 1 if rule.per == "batch" else outputs
    boxes = chosen = mixed = shift = None
    if rule.gamma is None and sources == 2:
        rows, step = sampling.rotate_rows(draw, batch, outputs)
        # where the host may read it
        shift = int(step) if draw.on_host and checks.has_memory(step) else None
    else:
        rows = sampling.draw_rows(draw, batch, sources, outputs, rule.anchor == "self")
    # γ is drawn last, so that all else of a seed is the same whether γ is a number or a range
    if size is not None and rule.paste > 0 and sources > 1:
        spots = (outputs, sources - 1, 2) if rule.box_alpha is None else (once, 2)
        boxes = draw.uniform(sampling.BOX, *spots)
        if rule.paste != 1:
            chosen = draw.uniform(sampling.PASTED, once) < rule.paste
    if rule.p != 1:
        mixed = draw.uniform(sampling.MIXED, outputs, 1) < rule.p
    weights, areas = _draw_weights(rule, outputs, sources, once, boxes is not None, draw, dtype)
    if size is not None and boxes is not None:
        if areas is None:
            boxes = box.place_inside(weights[:, 1:], boxes, size)
        else:
            boxes = box.place_around(areas, boxes, size)[:, None]
        boxes = box.with_whole(boxes, size)
        shares = box.visible_pixels(boxes, size).to(dtype) / (size[0] * size[1])
        if chosen is not None:
            shares = torch.where(chosen[:, None], shares, weights)
            boxes = torch.where(chosen[:, None, None], boxes, 0)
        weights, boxes = shares, boxes.expand(outputs, sources, 4)
    # one for all outputs: an expanded view, by which `kernels.dispatch` knows it
    weights = weights.expand(outputs, sources)
    if mixed is not None:
        alone = torch.zeros_like(weights[:1])
        alone[:, :1].fill_(1)
        own = torch.arange(outputs, device=rows.device)[:, None] % batch
        rows, shift = torch.where(mixed, rows, own), None
        weights = torch.where(mixed, weights, alone)
        boxes = None if boxes is None else torch.where(mixed[:, :, None], boxes, 0)
    kept, size = rule.keep_variance, None if boxes is None else size
    others = {"keep_variance": kept, "boxes": boxes, "size": size, "_shift": shift}
    return _trusted_plan(rows, weights, batch, **others)


def _draw_weights(
    rule: PlanRule,
    outputs: int,
    sources: int,
    once: int,
    pastes: bool,
    draw: Draw,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:
    """[outputs or 1, sources], and the areas of CutMix's boxes, [once]."""
    if not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating point dtype, which weights need, got {dtype}.")
    gamma = rule.gamma
    if isinstance(gamma, tuple):
        low, high = gamma
        gamma = low + (high - low) * draw.uniform(sampling.GAMMA, outputs)
    elif gamma is not None:
        gamma = sampling.precise(gamma, draw.device)
    if gamma is not None:
        return sampling.weigh(gamma if gamma.ndim else gamma[None], sources).to(dtype), None
    cuts = pastes and rule.box_alpha is not None
    # one output uses one of the two, so they may come from the same numbers
    alphas = [rule.box_alpha if cuts and rule.paste == 1 else rule.alpha]
    if cuts and rule.paste != 1:
        alphas.append(rule.box_alpha)
    lams = sampling.draw_lam(draw, once, [alpha for alpha in alphas if alpha is not None])
    lam = lams[0]
    both = [lam, 1 - lam] if sources > 1 else [torch.ones_like(lam)]
    return torch.stack(both, 1).to(dtype), 1 - lams[-1] if cuts else None


def zeta_plan(
    batch_size: int,
    gamma: Gamma = 2.8,
    *,
    sources: int | None = None,
    outputs: int | None = None,
    anchor: AnchorChoice = "self",
    generator: torch.Generator | None = None,
    stream: int | None = None,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Draw a ζ-mixup plan: weights `rank**-gamma / C` under a uniformly random order (Eq. 3).

    gamma: one number, a tensor with one number per output, or a range `(low, high)` from which one
        is drawn per output. A 0-d tensor on the device can be changed between CUDA-graph replays.
    sources: number of samples mixed into one output; by default the whole batch.
    outputs: number of outputs; by default the batch size.
    anchor: "self" gives rank 1 in output k to sample k (sample `k % batch_size` if there are more
        outputs than samples), as the authors' code does; "random" draws rank 1 at random as well,
        as in Eq. 3.
    generator: the only source of randomness; None uses torch's default generator of the device.
    stream: index of the random stream. None uses the rank of this process and, in a loader worker,
        the worker's seed, so that no two processes draw the same plans; pass 0 to draw the same
        plan on all ranks, such as those of a tensor-parallel group.

    >>> plan = zeta_plan(8, generator=torch.Generator().manual_seed(0))
    >>> plan.anchors()
    tensor([0, 1, 2, 3, 4, 5, 6, 7])
    """
    draw = Draw(generator, stream, device)
    rule = zeta_rule(batch_size, gamma, sources, anchor, outputs, draw.device)
    return draw_plan(rule, batch_size, draw, outputs=outputs, dtype=dtype)


def zeta_rule(
    batch: int,
    gamma: Gamma,
    sources: int | None,
    anchor: AnchorChoice,
    outputs: int | None,
    device: torch.device,
) -> PlanRule:
    """The rule of a ζ-mixup plan; raises if an argument is invalid."""
    checks.check_sizes(batch, sources, outputs)
    checks.check_gamma(gamma, outputs or batch, device)
    checks.check_choice("anchor", anchor, ANCHORS)
    # a range may be a list
    given = (gamma[0], gamma[1]) if isinstance(gamma, (tuple, list)) else gamma
    return PlanRule(gamma=given, sources=sources, anchor=anchor)


def mixup_plan(
    batch_size: int,
    alpha: float = 1.0,
    *,
    per: LamChoice = "sample",
    outputs: int | None = None,
    generator: torch.Generator | None = None,
    stream: int | None = None,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Draw a mixup plan: weight λ for sample k, 1 − λ for another, with λ ~ Beta(α, α) (Eq. 1).

    The other sample is k − s, modulo the batch size, with one random s for the batch: every sample
    is the partner of exactly one other.

    per: "sample" draws one λ for each output, "batch" one λ for all of them. The other arguments
        are those of `zeta_plan`.

    >>> mixup_plan(4).weights.sum(1)
    tensor([1., 1., 1., 1.])
    """
    draw = Draw(generator, stream, device)
    rule = mixup_rule(batch_size, alpha, per, outputs, draw.device)
    return draw_plan(rule, batch_size, draw, outputs=outputs, dtype=dtype)


def mixup_rule(
    batch: int, alpha: float, per: LamChoice, outputs: int | None, device: torch.device
) -> PlanRule:
    """The rule of a mixup plan; raises if an argument is invalid."""
    checks.check_sizes(batch, None, outputs)
    checks.check_number("alpha", alpha, low=0, above=True)
    checks.check_choice("per", per, LAMS)
    return PlanRule(alpha=alpha, per=per)


def identity_plan(
    batch_size: int, *, device: torch.device | str | int = "cpu", dtype: torch.dtype = torch.float32
) -> MixPlan:
    """The plan that mixes nothing: output k is sample k."""
    rows = torch.arange(batch_size, device=device)[:, None]
    return _trusted_plan(rows, torch.ones(batch_size, 1, device=device, dtype=dtype), batch_size)
