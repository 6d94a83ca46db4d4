"""Which implementation mixes a batch: a kernel on a GPU, `cpu` on a CPU, else `reference`.

The environment variable ZETAMIX_KERNELS=reference selects plain torch everywhere, for debugging.
"""

import os
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from zetamix.boxes import Size
from zetamix.checks import has_memory
from zetamix.kernels import cpu, reference
from zetamix.plan import MixPlan
from zetamix.plan_rule import PlanRule
from zetamix.sampling import MOST_FEW, Draw, precise_dtype

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# read once: a call reads no environment
REFERENCE_ONLY = os.environ.get("ZETAMIX_KERNELS") == "reference"


def mix_labelled(
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    size: Size | None,
    mean: float | Sequence[float] | None,
    draw: Draw,
) -> tuple[Tensor, Tensor] | None:
    """Draw a plan, mix samples and labels in one launch on a GPU; None if no kernel can."""
    return None


def mix_samples(
    samples: Tensor, plan: MixPlan, keep_variance: bool = False, mean: Tensor | None = None
) -> Tensor:
    """Eq. 2 for samples [batch, ...], with the boxes of the plan where they are of its size.

    keep_variance: scale to mean + scale · Σ wᵢ (xᵢ − mean), clipped to the range of the samples.
    mean: [1 or channels, 1, ...], in the unit of the samples; None for normalised ones.
    """
    on_cpu = _mixes_on_cpu(samples, plan)
    boxes, pasted, moved = plan.boxes if plan.fits(samples) else None, None, None
    if on_cpu and samples.is_neg():
        # NumPy has no such views
        samples = samples.resolve_neg()
    if on_cpu and boxes is not None and plan.rotates and boxes.stride(0) == 0:
        whole, corners = boxes[0].tolist()
        if whole[2] > 0:
            return cpu.paste_one(samples, plan, corners)
        boxes = None
    wide = torch.promote_types(plan.weights.dtype, samples.dtype)
    indices, weights = plan.indices, plan.weights.to(torch.promote_types(wide, torch.float32))
    if boxes is not None:
        pasted = boxes[:, 0, 2] > 0
    if keep_variance:
        scale = 1 / torch.linalg.vector_norm(weights, dim=1, keepdim=True)
        scale = scale if pasted is None else torch.where(pasted[:, None], 1, scale)
        weights = weights * scale
        moved = None if mean is None else 1 - scale[:, 0]
    if on_cpu and pasted is not None:
        indices, weights = cpu.unblended(indices, weights, pasted)
    rows, channels_last = _flatten(samples)
    feature_means = None if mean is None else _flatten_mean(mean, samples, channels_last)
    mix = cpu.mix_rows if on_cpu and _uses_bags(samples, plan) else reference.mix_rows
    mixed = _unflatten(mix(rows, indices, weights, moved, feature_means), samples, channels_last)
    if boxes is None:
        return mixed
    if not on_cpu:
        return reference.paste(mixed, samples, plan.indices, boxes)
    cpu.paste(mixed, samples, plan, pasted)
    return mixed


def _flatten(samples: Tensor) -> tuple[Tensor, bool]:
    """Samples as rows in memory order, so that channels_last is not copied, and whether it is."""
    channels_last = (
        not samples.is_contiguous()
        and samples.ndim in CHANNELS_LAST
        and samples.is_contiguous(memory_format=CHANNELS_LAST[samples.ndim])
    )
    ordered = samples.movedim(1, -1) if channels_last else samples
    return ordered.reshape(samples.shape[0], samples.shape[1:].numel()), channels_last


def _flatten_mean(mean: Tensor, samples: Tensor, channels_last: bool) -> Tensor:
    """The mean of every feature, in the order of `_flatten`: [features], or [1] for one mean."""
    if mean.shape[0] == 1:
        return mean.view(1)
    image = mean.expand(samples.shape[1:])
    return (image.movedim(0, -1) if channels_last else image).flatten()


def _unflatten(rows: Tensor, like: Tensor, channels_last: bool) -> Tensor:
    """Rows as samples in the shape and memory format of `like`."""
    shape = like.shape[1:]
    if not channels_last:
        return rows.view(rows.shape[0], *shape)
    return rows.view(rows.shape[0], *shape[1:], shape[0]).movedim(-1, 1)


def mix_targets(values: Tensor, plan: MixPlan) -> Tensor:
    """Average targets [batch, ...] in float64, so that TF32 or bfloat16 settings do not matter."""
    shape, wide = values.shape[1:], precise_dtype(values.device)
    rows = values.to(wide).reshape(plan.batch_size, shape.numel())
    on_cpu = _mixes_on_cpu(values, plan)
    mix = cpu.mix_rows if on_cpu and _uses_bags(values, plan) else reference.mix_rows
    mixed = mix(rows, plan.indices, plan.weights.to(wide))
    mixed = mixed.to(torch.float64 if values.dtype == torch.float64 else torch.float32)
    mixed = mixed.view(plan.outputs, *shape)
    if plan.boxes is None or not plan.fits(values):
        return mixed
    values = values.to(mixed.dtype)
    if not on_cpu:
        return reference.paste(mixed, values, plan.indices, plan.boxes)
    cpu.paste(mixed, values, plan)
    return mixed


def mixes_dense_on_cpu(labels: Tensor, plan: MixPlan) -> bool:
    """Whether `cpu.add_by_class` is the faster way for dense labels."""
    return plan.sources <= MOST_FEW and _mixes_on_cpu(labels, plan)


def _mixes_on_cpu(values: Tensor, plan: MixPlan) -> bool:
    """Whether the memory of values and plan can be read and no gradients are needed."""
    return (
        values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not REFERENCE_ONLY
        and has_memory(values)
        and has_memory(plan.weights)
        and not needs_gradients(values)
        and not needs_gradients(plan.weights)
    )


def _uses_bags(values: Tensor, plan: MixPlan) -> bool:
    """Whether embedding bags are faster than a product with the matrix of weights."""
    few = plan.sources <= MOST_FEW or plan.sources * 4 <= values.shape[0]
    return few and values.numel() > 0


def needs_gradients(tensor: Tensor) -> bool:
    """Whether autograd tracks the tensor, in reverse or in forward mode."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
