"""Which implementation mixes a batch: a kernel on a GPU, `cpu` on a CPU, else `reference`.

The environment variable ZETAMIX_KERNELS=reference selects plain torch everywhere, for debugging.
"""

import importlib.util
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from zetamix.boxes import Size
from zetamix.checks import has_memory
from zetamix.kernels import cpu, reference
from zetamix.plan import MixPlan, PlanRule
from zetamix.sampling import MOST_FEW, Draw, precise_dtype

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# what the kernels take: more numbers would not fit into their 32-bit counters
KERNEL_DTYPES = {torch.float32, torch.float16, torch.bfloat16, torch.uint8}
LABEL_DTYPES = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
MOST_FEATURES, MOST_NUMBERS = 2**30, 2**38
# the oldest torch with whose Triton the kernels are tested; before, GPUs mix by plain torch
KERNELS_SINCE = (2, 10)
# read once: a call reads no environment
REFERENCE_ONLY = os.environ.get("ZETAMIX_KERNELS") == "reference"


def mix_labelled(
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    keeps: bool,
    size: Size | None,
    mean: float | Sequence[float] | None,
    draw: Draw,
) -> tuple[Tensor, Tensor] | None:
    """Draw a plan, mix samples and class indices by the kernels; None if they cannot.

    keeps: whether the variance of these samples is kept.
    """
    if not _mixes_by_kernels(samples, labels, rule, ignore_index):
        return None
    if keeps and not _has_mean(samples, mean):
        return None
    device = samples.device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        # Triton launches on the current device
        with torch.cuda.device(device):
            return mix_labelled(
                samples, labels, num_classes, ignore_index, rule, keeps, size, mean, draw
            )
    classes = num_classes, ignore_index
    labels = labels if labels.is_contiguous() else labels.contiguous()
    if _triton().sources_of(rule, samples.shape[0]) <= MOST_FEW:
        # dense, with the batch outermost; the order of the other dimensions does not matter
        dense = samples.is_contiguous() or _is_channels_last(samples)
        ready = samples if dense else samples.contiguous()
        few: tuple[Tensor, Tensor] | None = _triton().mix_few(
            ready, labels, *classes, rule, keeps, size, mean, draw
        )
        return few
    rows, channels_last = _flatten(samples)
    many = None if keeps else _triton().mix_many(rows, labels, *classes, rule, draw)
    return None if many is None else (_unflatten(many[0], samples, channels_last), many[1])


def _mixes_by_kernels(
    samples: Tensor, labels: Tensor, rule: PlanRule, ignore_index: int | None
) -> bool:
    """Whether the kernels draw such plans, and take such samples and labels."""
    if torch.compiler.is_compiling() or REFERENCE_ONLY or not _has_kernels(samples.device):
        return False
    gamma = rule.gamma
    return (
        samples.dtype in KERNEL_DTYPES
        and labels.dtype in LABEL_DTYPES
        and (labels.ndim == 1 or labels.shape[1:].numel() == 1)
        and (ignore_index is None or abs(ignore_index) < 2**31)
        and 0 < samples.shape[1:].numel() < MOST_FEATURES
        and samples.numel() < MOST_NUMBERS
        and has_memory(samples)
        and has_memory(labels)
        and not samples.is_neg()
        and not needs_gradients(samples)
        and not (isinstance(gamma, Tensor) and (needs_gradients(gamma) or not has_memory(gamma)))
        and _triton().draws(rule, samples.shape[0])
    )


def _has_mean(samples: Tensor, mean: float | Sequence[float] | None) -> bool:
    """Whether the variance of such samples can be kept, and by the kernels."""
    if mean is None:
        return samples.is_floating_point()
    means = len(mean) if isinstance(mean, Sequence) else 1
    return means == 1 or (means <= _triton().MOST_MEANS and samples.shape[1] == means)


@lru_cache(maxsize=16)
def _has_kernels(device: torch.device) -> bool:
    """Whether the Triton kernels run on a device: a CUDA GPU since Ampere."""
    # a fake tensor is on a GPU where there is none
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < KERNELS_SINCE or importlib.util.find_spec("triton") is None:
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)


@lru_cache(maxsize=1)
def _triton() -> Any:
    # imported on first use: importing triton is slow, and most machines do not need it
    from zetamix.kernels import triton_launch

    return triton_launch


def mix_samples(
    samples: Tensor, plan: MixPlan, keep_variance: bool = False, mean: Tensor | None = None
) -> Tensor:
    """Eq. 2 for samples [batch, ...], with the boxes of the plan where they are of its size.

    keep_variance: scale to mean + scale · Σ wᵢ (xᵢ − mean), clipped to the range of the samples.
    mean: [1 or channels, 1, ...], in the unit of the samples; None for normalised ones.
    """
    on_cpu = mixes_on_cpu(samples, plan)
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
    # else a product with the matrix of weights is faster
    few = plan.sources <= MOST_FEW or plan.sources * 4 <= samples.shape[0]
    mix = cpu.mix_rows if on_cpu and few and samples.numel() else reference.mix_rows
    mixed = _unflatten(mix(rows, indices, weights, moved, feature_means), samples, channels_last)
    if boxes is None:
        return mixed
    if pasted is None or not on_cpu:
        return reference.paste(mixed, samples, plan.indices, boxes)
    cpu.copy_boxes(mixed, samples, cpu.list_boxes(plan.indices, boxes, pasted))
    return mixed


def mix_targets(values: Tensor, plan: MixPlan) -> Tensor:
    """Average targets [batch, ...] in float64, so that TF32 or bfloat16 settings do not matter."""
    mixed = mix_samples(values.to(precise_dtype(values.device)), plan)
    return mixed.to(torch.float64 if values.dtype == torch.float64 else torch.float32)


def mixes_on_cpu(values: Tensor, plan: MixPlan) -> bool:
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


def _flatten(samples: Tensor) -> tuple[Tensor, bool]:
    """Samples as rows in memory order, so that channels_last is not copied, and whether it is."""
    channels_last = _is_channels_last(samples)
    ordered = samples.movedim(1, -1) if channels_last else samples
    return ordered.reshape(samples.shape[0], samples.shape[1:].numel()), channels_last


def _is_channels_last(samples: Tensor) -> bool:
    return (
        not samples.is_contiguous()
        and samples.ndim in CHANNELS_LAST
        and samples.is_contiguous(memory_format=CHANNELS_LAST[samples.ndim])
    )


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


def needs_gradients(tensor: Tensor) -> bool:
    """Whether autograd tracks the tensor, in reverse or in forward mode."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    # Torch's own name, for speed: below 0 there are no tangents. Without it they are looked for
    if getattr(forward_ad, "_current_level", 0) < 0:
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]
