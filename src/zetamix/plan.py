"""Plans: which batch rows go into each output, and how much of each.

Every method of this library is a plan. Making one is random and happens here; applying one is
deterministic and happens in `zetamix.mix`.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from zetamix import _checks, sampling
from zetamix import boxes as box
from zetamix._checks import Gamma
from zetamix.atomic_io import load_tensors, write_file
from zetamix.boxes import Size
from zetamix.gamma import GAMMA_MIN, weigh
from zetamix.kernels import dispatch, numpy_few
from zetamix.kernels.numpy_few import FewPlan
from zetamix.kernels.plan_spec import PLAIN, Finish, Law, PlanShape, PlanSpec
from zetamix.kernels.reference import dense
from zetamix.sampling import Draw

AnchorChoice: TypeAlias = Literal["self", "random"]
LamChoice: TypeAlias = Literal["sample", "batch"]
ANCHORS = ("self", "random")
LAMS = ("sample", "batch")


class PlanArrays(NamedTuple):
    """A plan as NumPy arrays, for NumPy, JAX and other libraries; see `MixPlan`."""

    indices: Any
    """[outputs, sources], int64."""
    weights: Any
    """[outputs, sources], float32 or float64."""
    boxes: Any
    """[outputs, sources, 4], int64, where the plan pastes."""
    scale: Any
    """[outputs], where the plan keeps the variance."""


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
    """Whether mixed samples are scaled to the variance of unmixed ones (see `scale`)."""
    boxes: Tensor | None = None
    """[outputs, sources, 4], int64: each source covers its box (top, left, bottom, right) of the
    image, later sources over earlier ones, and pixels outside all boxes are blended. A blended
    output has empty boxes. In a pasted output the first box is the whole image, and the weights are
    the fractions of pixels that show each source."""
    size: Size | None = None
    """(height, width) of the images that boxes are for."""

    def __repr__(self) -> str:
        pasted = "" if self.size is None else ", boxes in images of {} × {}".format(*self.size)
        kept = ", variance kept" if self.keep_variance else ""
        return (
            f"MixPlan({self.outputs} outputs of {self.sources} sources each{pasted}{kept}, "
            f"batch_size={self.batch_size}, {self.weights.dtype}, {self.device})"
        )

    def __post_init__(self) -> None:
        indices = _checks.check_tensor("indices", self.indices)
        weights = _checks.check_tensor("weights", self.weights)
        _checks.check_batch_size(self.batch_size)
        if indices.ndim != 2 or indices.shape != weights.shape or indices.shape[1] == 0:
            raise ValueError(
                "indices and weights must both be [outputs, sources], got "
                f"{list(indices.shape)} and {list(weights.shape)}."
            )
        if indices.dtype != torch.int64:
            raise TypeError(f"indices must be int64, got {indices.dtype}.")
        if not weights.is_floating_point():
            raise TypeError(f"weights must be floating point, got {weights.dtype}.")
        if indices.device != weights.device:
            raise ValueError(
                "indices and weights must be on the same device, got "
                f"{indices.device} and {weights.device}."
            )
        # on a GPU, the gather that uses the indices asserts that they are in range
        if not _checks.reads_need_sync(indices) and indices.numel():
            low, high = (int(bound) for bound in indices.aminmax())
            if low < 0 or high >= self.batch_size:
                raise ValueError(
                    f"indices must lie in [0, {self.batch_size}) for this batch, "
                    f"got {low if low < 0 else high}."
                )
        if self.boxes is not None or self.size is not None:
            self._check_boxes()

    def _check_boxes(self) -> None:
        shape = (*self.indices.shape, 4)
        boxes = self.boxes
        if not isinstance(boxes, Tensor) or boxes.shape != shape or boxes.dtype != torch.int64:
            got = f"{list(boxes.shape)}, {boxes.dtype}" if isinstance(boxes, Tensor) else boxes
            raise ValueError(
                f"boxes must be [outputs, sources, 4] = {list(shape)}, int64, got {got}."
            )
        height, width = size = box.check_size(self.size)
        object.__setattr__(self, "size", size)
        if boxes.device != self.device:
            raise ValueError(
                f"indices and boxes must be on the same device, got {self.device} and "
                f"{boxes.device}."
            )
        if not _checks.reads_need_sync(boxes) and boxes.numel():
            rows, columns = boxes[..., ::2], boxes[..., 1::2]
            if boxes.min() < 0 or rows.max() > height or columns.max() > width:
                raise ValueError(f"boxes must lie inside images of {height} × {width} pixels.")

    @property
    def scale(self) -> Tensor | None:
        """[outputs]: the factor on deviations from the mean that keeps the variance, or None.

        It is 1/‖w‖₂ for blended outputs (of independent samples) and 1 for pasted ones.
        """
        if not self.keep_variance:
            return None
        scale = 1 / torch.linalg.vector_norm(self.weights, dim=1)
        return scale if self.boxes is None else torch.where(self.pasted, 1, scale)

    def sample_weights(self) -> Tensor:
        """[outputs, sources]: the weights of samples, scaled where the variance is kept."""
        if not self.keep_variance:
            return self.weights
        norm: Tensor = torch.linalg.vector_norm(self.weights, dim=1, keepdim=True)
        scaled = self.weights / norm
        return scaled if self.boxes is None else self.weights.where(self.pasted[:, None], scaled)

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
        """[outputs]: the batch row with the largest weight in each output."""
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
        return dense(self.indices, self.weights, self.batch_size)

    def to(self, device: torch.device | str | int) -> "MixPlan":
        """The same plan on another device."""
        return _changed(
            self,
            indices=self.indices.to(device),
            weights=self.weights.to(device),
            boxes=None if self.boxes is None else self.boxes.to(device),
        )

    def numpy(self) -> PlanArrays:
        """The plan as NumPy arrays, copied to the host.

        >>> from zetamix import zeta_plan
        >>> indices, weights, boxes, scale = zeta_plan(4, gamma=1.0, sources=2).numpy()
        >>> weights.shape, weights.dtype
        ((4, 2), dtype('float32'))
        """
        # NumPy has no bfloat16
        wide = torch.promote_types(self.weights.dtype, torch.float32)
        scale = None if self.scale is None else self.scale.to(wide)
        parts = (self.indices, self.weights.to(wide), self.boxes, scale)
        arrays = [None if part is None else part.detach().cpu().numpy().copy() for part in parts]
        return PlanArrays(*arrays)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file that `MixPlan.load` reads back exactly."""
        # clone: weights may be an expanded view, and the file should hold all values
        state = {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        write_file(Path(path), lambda file: torch.save(state, file))

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> "MixPlan":
        """Read a plan written by `save`; nothing in the file is executed."""
        try:
            state = load_tensors(Path(path))
        except OSError:
            raise
        except Exception:
            # torch.load raises errors of many types for other files
            state = None
        known = {field.name for field in fields(cls)}
        if (
            not isinstance(state, dict)
            or not {"indices", "weights", "batch_size"} <= set(state) <= known
        ):
            raise ValueError(f"{path} is damaged or was not written by MixPlan.save.")
        return cls(**state).to(device)


PLAN_FIELDS = tuple(field.name for field in fields(MixPlan))


def check_is_plan(plan: object) -> None:
    if not isinstance(plan, MixPlan):
        raise TypeError(f"plan must be a MixPlan, got {type(plan).__name__}.")


def _trusted_plan(indices: Tensor, weights: Tensor, batch_size: int) -> MixPlan:
    """A plan that is valid by construction, created without the checks of `MixPlan`."""
    plan = object.__new__(MixPlan)
    object.__setattr__(plan, "indices", indices)
    object.__setattr__(plan, "weights", weights)
    object.__setattr__(plan, "batch_size", batch_size)
    return plan


def _changed(plan: MixPlan, **parts: Any) -> MixPlan:
    """A copy of the plan with these fields, which are valid by construction."""
    changed = object.__new__(MixPlan)
    # by name: the compiler of torch 2.10 cannot trace vars()
    for name in PLAN_FIELDS:
        value = parts[name] if name in parts else getattr(plan, name)
        object.__setattr__(changed, name, value)
    return changed


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
    spec = zeta_spec(batch_size, gamma, sources, outputs, anchor, draw)
    return draw_plan(spec, draw, dtype)


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

    per: "sample" draws one λ for each output, "batch" one λ for all of them. The other sample is
        drawn uniformly, and never sample k itself. The other arguments are those of `zeta_plan`.

    >>> mixup_plan(4).weights.sum(1)
    tensor([1., 1., 1., 1.])
    """
    draw = Draw(generator, stream, device)
    return draw_plan(mixup_spec(batch_size, alpha, per, outputs), draw, dtype)


def local_plan(
    samples: Tensor,
    gamma: float = 2.8,
    *,
    sources: int | None = None,
    outputs: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Plan of the local synthetic instances of Brown et al. (2015), the predecessor of ζ-mixup.

    The weights are those of `zeta_plan`, but sources are ranked by Euclidean distance to the
    anchor, sample k. Nothing is random; all pairwise distances are computed.

    >>> local_plan(torch.tensor([[0.0], [1.0], [5.0]])).indices
    tensor([[0, 1, 2],
            [1, 0, 2],
            [2, 1, 0]])
    """
    _checks.check_tensor("samples", samples)
    batch_size = samples.shape[0]
    _check_sizes(batch_size, sources, outputs)
    sources, outputs = sources or batch_size, outputs or batch_size
    _checks.check_number("gamma", gamma, low=0)
    wide = torch.promote_types(samples.dtype, torch.float32)
    rows = samples.detach().reshape(batch_size, -1).to(wide)
    anchors = torch.arange(outputs, device=samples.device) % batch_size
    # exact differences: the matrix-product formula has errors that can reorder close neighbours
    distances = torch.cdist(
        rows[anchors], rows, compute_mode="donot_use_mm_for_euclid_dist"
    ).scatter_(1, anchors[:, None], -1.0)
    indices = distances.topk(sources, dim=1, largest=False, sorted=True).indices
    weights = weigh(sampling.precise(gamma, samples.device), sources).to(dtype)
    return _trusted_plan(indices, weights.expand(outputs, sources), batch_size)


def identity_plan(
    batch_size: int, *, device: torch.device | str | int = "cpu", dtype: torch.dtype = torch.float32
) -> MixPlan:
    """The plan that mixes nothing: output k is sample k."""
    _checks.check_batch_size(batch_size)
    rows = torch.arange(batch_size, device=device)[:, None]
    return _trusted_plan(rows, torch.ones(batch_size, 1, device=device, dtype=dtype), batch_size)


def with_probability(plan: MixPlan, p: float, draw: Draw) -> MixPlan:
    """Mix output k with probability `p`; otherwise it is sample k alone."""
    mixed = draw.uniform(sampling.MIXED, plan.outputs, 1) < p
    alone = torch.zeros_like(plan.weights)
    alone[:, 0] = 1
    own = torch.arange(plan.outputs, device=plan.device)[:, None] % plan.batch_size
    return _changed(
        plan,
        indices=torch.where(mixed, plan.indices, own),
        weights=torch.where(mixed, plan.weights, alone),
        boxes=None if plan.boxes is None else torch.where(mixed[:, :, None], plan.boxes, 0),
    )


def with_variance(plan: MixPlan) -> MixPlan:
    """The same plan, with samples scaled to the variance of unmixed ones."""
    return _changed(plan, keep_variance=True)


def with_boxes(plan: MixPlan, boxes: Tensor, size: Size, chosen: Tensor | None = None) -> MixPlan:
    """Paste instead of blending: source 0 is the background, source r ≥ 1 covers boxes[:, r − 1].

    boxes: [outputs, sources − 1, 4]. chosen: [outputs] or [1], bool: the outputs to paste; all by
    default. Their weights become the fractions of pixels that show each source.
    """
    boxes = torch.cat([box.whole(plan.outputs, size, plan.device), boxes], 1)
    height, width = size
    weights = box.visible_pixels(boxes, size).to(plan.weights.dtype) / (height * width)
    if chosen is not None:
        weights = torch.where(chosen[:, None], weights, plan.weights)
        boxes = torch.where(chosen[:, None, None], boxes, 0)
    return _changed(plan, weights=weights, boxes=boxes, size=size)


def paste_plan(plan: MixPlan, share: float, size: Size, draw: Draw) -> MixPlan:
    """Paste outputs with probability `share`: source r covers a box whose area is its weight."""
    corners = draw.uniform(sampling.BOX, plan.outputs, plan.sources - 1, 2)
    boxes = box.place_inside(plan.weights[:, 1:], corners, size)
    chosen = draw.uniform(sampling.PASTED, plan.outputs) < share
    return with_boxes(plan, boxes, size, chosen)


def cutmix_plan(
    plan: MixPlan, alpha: float, per: LamChoice, size: Size, draw: Draw, share: float = 1.0
) -> MixPlan:
    """Paste a CutMix box with probability `share`, 1 − λ of the image, λ ~ Beta(α, α).

    plan: of two sources. per: "sample" draws λ, the box and whether to paste for each output,
    "batch" once for all outputs.
    """
    count = 1 if per == "batch" else plan.outputs
    areas = 1 - sampling.draw_lam(draw, alpha, count)
    boxes = box.place_around(areas, draw.uniform(sampling.BOX, count, 2), size)
    boxes = boxes.expand(plan.outputs, 4)[:, None][:, : plan.sources - 1]
    chosen = None if share == 1 else draw.uniform(sampling.PASTED, count) < share
    return with_boxes(plan, boxes, size, chosen)


def rolled(plan: MixPlan) -> MixPlan:
    """The plan with the pairs of torchvision's CutMix and MixUp: samples k and k − 1."""
    rows = torch.arange(plan.batch_size, device=plan.device)
    return _changed(plan, indices=torch.stack([rows, rows.roll(1)], 1)[:, : plan.sources])


def draw_finished(
    spec: PlanSpec, finish: Finish, size: Size | None, draw: Draw, dtype: torch.dtype
) -> MixPlan:
    """Draw the plan of a spec and apply `finish`. size: of the images, if some are pasted."""
    drawer = dispatch.plan_drawer(spec, draw.device, dtype)
    if drawer == "numpy" or (drawer == "triton" and dispatch.is_few(spec)):
        if drawer == "numpy":
            parts = draw_by_numpy(spec, finish, size, draw, dtype).tensors()
        else:
            parts = dispatch.draw_few(spec, finish, size, draw.origin(), draw.device)
        indices, weights, boxes = parts
        plan = _trusted_plan(indices, weights, spec.shape.batch_size)
        if boxes is not None:
            plan = _changed(plan, boxes=boxes, size=size)
    else:
        plan = draw_plan(spec, draw, dtype)
        if finish.paste:
            plan = paste_plan(plan, finish.paste, box.check_size(size), draw)
        if finish.p != 1:
            plan = with_probability(plan, finish.p, draw)
    return with_variance(plan) if finish.keep_variance else plan


def draw_by_numpy(
    spec: PlanSpec, finish: Finish, size: Size | None, draw: Draw, dtype: torch.dtype
) -> FewPlan:
    """A finished plan of few sources on a CPU, drawn with NumPy (see `dispatch.plan_drawer`)."""
    lam = _draw_lam(spec, draw) if spec.shape.law is Law.MIXUP else None
    # all random numbers in one call: each call takes 7 µs
    count = numpy_few.count_numbers(spec.shape, finish)
    uniform = draw.uniform(sampling.ORDER, count, spec.shape.outputs)
    return numpy_few.make_plan(spec, finish, size, uniform, lam, dtype)


def draw_plan(spec: PlanSpec, draw: Draw, dtype: torch.dtype) -> MixPlan:
    """Draw the plan of a spec with Triton, NumPy or plain torch (see `dispatch.plan_drawer`)."""
    shape = spec.shape
    drawer = dispatch.plan_drawer(spec, draw.device, dtype)
    if drawer == "numpy":
        indices, weights, _ = draw_by_numpy(spec, PLAIN, None, draw, dtype).tensors()
        return _trusted_plan(indices, weights, shape.batch_size)
    if drawer == "triton":
        indices, weights = dispatch.draw_plan(spec, draw.origin(), draw.device)
        return _trusted_plan(indices, weights, shape.batch_size)
    parameter = spec.parameter
    if isinstance(parameter, tuple):
        low, high = parameter
        parameter = low + (high - low) * draw.uniform(sampling.GAMMA, shape.outputs)
    indices = sampling.draw_rows(
        draw,
        shape.batch_size,
        shape.sources,
        shape.outputs,
        shape.order_width,
        shape.own_anchor,
    )
    # always a copy: the caller must not get the cached weights
    weights = _draw_weights(spec, parameter, draw).to(dtype, copy=True)
    if weights.shape != indices.shape:
        weights = weights.expand(shape.outputs, shape.sources)
    return _trusted_plan(indices, weights, shape.batch_size)


def _draw_weights(spec: PlanSpec, parameter: float | Tensor, draw: Draw) -> Tensor:
    """[sources] or [outputs, sources], in the precision of the device; `parameter`: γ or α."""
    shape = spec.shape
    if shape.law is Law.ZETA:
        on_host = draw.device.type == "cpu" and not torch.compiler.is_compiling()
        if on_host and not isinstance(parameter, Tensor):
            return _cached_weights(float(parameter), shape.sources)
        return weigh(sampling.precise(parameter, draw.device), shape.sources)
    lam = _draw_lam(spec, draw)
    if shape.sources == 1:
        return torch.ones_like(lam)[:, None]
    return torch.stack([lam, 1 - lam], dim=1)


def _draw_lam(spec: PlanSpec, draw: Draw) -> Tensor:
    """λ of mixup, [outputs] or [1]."""
    count = 1 if spec.shape.one_lam else spec.shape.outputs
    return sampling.draw_lam(draw, float(spec.parameter), count)  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _cached_weights(gamma: float, sources: int) -> Tensor:
    return weigh(torch.tensor(gamma, dtype=torch.float64, device="cpu"), sources)


def zeta_spec(
    batch_size: int,
    gamma: Gamma,
    sources: int | None,
    outputs: int | None,
    anchor: AnchorChoice,
    draw: Draw,
    *,
    checked: bool = False,
) -> PlanSpec:
    """The spec of a ζ-mixup plan. checked: the arguments are known valid."""
    if not checked:
        _check_sizes(batch_size, sources, outputs)
        _checks.check_gamma(gamma, outputs or batch_size, draw.device)
        _checks.check_choice("anchor", anchor, ANCHORS)
    width = sampling.order_width(batch_size, sources)
    sources, outputs = sources or batch_size, outputs or batch_size
    gamma = (gamma[0], gamma[1]) if isinstance(gamma, (tuple, list)) else gamma
    lowest = gamma[0] if isinstance(gamma, tuple) else gamma
    shape = PlanShape(
        batch_size,
        sources,
        outputs,
        width,
        own_anchor=anchor == "self",
        gamma_tensor=isinstance(gamma, Tensor),
        gamma_range=isinstance(gamma, tuple),
        dominant=not isinstance(lowest, Tensor) and lowest >= GAMMA_MIN,
    )
    return PlanSpec(shape, gamma)


def mixup_spec(
    batch_size: int, alpha: float, per: LamChoice, outputs: int | None, *, checked: bool = False
) -> PlanSpec:
    """The spec of a mixup plan. checked: the arguments are known valid."""
    if not checked:
        _check_sizes(batch_size, None, outputs)
        _checks.check_alpha(alpha)
        _checks.check_choice("per", per, LAMS)
    # not min(2, …), which torch.compile cannot infer to be 2
    sources = 2 if batch_size > 1 else 1
    shape = PlanShape(
        batch_size,
        sources,
        outputs or batch_size,
        sampling.order_width(batch_size, sources),
        Law.MIXUP,
        one_lam=per == "batch",
        uniform_lam=bool(alpha == 1),
    )
    return PlanSpec(shape, alpha)


def _check_sizes(batch_size: int, sources: int | None, outputs: int | None) -> None:
    _checks.check_batch_size(batch_size)
    if outputs is not None:
        _checks.check_count("outputs", outputs, 1)
    if sources is not None:
        _checks.check_count("sources", sources, 2)
        if sources > batch_size:
            raise ValueError(
                f"sources must be at most the batch size, {batch_size}, got {sources}. "
                "Use fewer, or sources=None for the whole batch."
            )
