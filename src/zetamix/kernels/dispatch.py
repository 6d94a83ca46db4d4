"""Which implementation mixes a batch: a kernel on a GPU, bags and slices on a CPU, or `reference`.

The environment variable ZETAMIX_KERNELS=reference selects plain torch everywhere, for debugging.
"""

import importlib.util
import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from zetamix.boxes import Size
from zetamix.checks import has_memory
from zetamix.kernels import reference
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

# On a CPU, columns are mixed in blocks once the rows exceed a typical last-level cache, so that
# every row of a block is read from memory once and then from the cache
# (2 cores, 32 MiB cache, 8 sources: 128 × 3 × 224² 41 ms against 53, 256 × 3 × 224² 80 against 108)
CACHE_BYTES = 2**25
BLOCK_BYTES = 2**20
# torch copies more numbers than this in several threads; where there are fewer, NumPy's copies take
# less time (2 cores, 64 boxes: 66 µs against 320 in images of 3 × 32², 223 against 410 in 3 × 96²,
# but 1.6 ms against 1.0 in 3 × 224²)
MOST_BY_NUMPY = 32768
# copied as integers of the same width, because NumPy has no bfloat16
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def mix_labelled(
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    keeps: bool,
    size: Size | None,
    means: Sequence[float] | None,
    draw: Draw,
) -> tuple[Tensor, Tensor] | None:
    """Draw a plan, mix samples and class indices by the kernels; None if they cannot.

    keeps: whether the variance of these samples is kept.
    """
    if not _mixes_by_kernels(samples, labels, rule, ignore_index):
        return None
    # importing triton is slow, and most machines do not need it
    from zetamix.kernels import triton_launch

    # dense, with the batch outermost; the order of the other dimensions does not matter
    ready = samples if _is_channels_last(samples) else samples.contiguous()
    options = labels.contiguous(), num_classes, ignore_index, rule, keeps, size, means, draw
    device = samples.device
    elsewhere = device.type == "cuda" and device.index != torch.cuda.current_device()
    # Triton launches on the current device
    with torch.cuda.device(device) if elsewhere else nullcontext():
        return triton_launch.mix(ready, *options)


def _mixes_by_kernels(
    samples: Tensor, labels: Tensor, rule: PlanRule, ignore_index: int | None
) -> bool:
    """Whether the kernels take such samples and labels."""
    gamma = [rule.gamma] if isinstance(rule.gamma, Tensor) else []
    return (
        _has_kernels(samples.device)
        and is_plain(samples, labels, *gamma)
        and samples.dtype in KERNEL_DTYPES
        and labels.dtype in LABEL_DTYPES
        and (labels.ndim == 1 or labels.shape[1:].numel() == 1)
        and (ignore_index is None or abs(ignore_index) < 2**31)
        and 0 < samples.shape[1:].numel() < MOST_FEATURES
        and samples.numel() < MOST_NUMBERS
        and not samples.is_neg()
    )


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


def mix_samples(
    samples: Tensor,
    plan: MixPlan,
    keep_variance: bool = False,
    means: Sequence[float] | None = None,
) -> Tensor:
    """Eq. 2 for samples [batch, ...], with the boxes of the plan where they are of its size.

    keep_variance: scale to mean + scale · Σ wᵢ (xᵢ − mean), clipped to the range of the samples.
    means: one number or one per channel, in [0, 1]; None for normalised samples.
    """
    indices, weights, boxes = plan.indices, plan.weights, plan.boxes
    on_cpu = samples.device.type == "cpu" and is_plain(samples, weights)
    if on_cpu and samples.is_neg():
        # NumPy has no such views
        samples = samples.resolve_neg()
    if samples.ndim < 3 or samples.shape[-2:] != plan.size:
        boxes = None
    if on_cpu and boxes is not None and plan._shift is not None and boxes.stride(0) == 0:
        whole, corners = boxes[0].tolist()
        if whole[2] > 0:
            return _paste_one(samples, plan._shift, corners)
        boxes = None
    pasted = None if boxes is None else boxes[:, 0, 2] > 0
    wide = torch.promote_types(weights.dtype, samples.dtype)
    weights = weights.to(torch.promote_types(wide, torch.float32))
    moved = None
    if keep_variance:
        scale = 1 / torch.linalg.vector_norm(weights, dim=1, keepdim=True)
        scale = scale if pasted is None else torch.where(pasted[:, None], 1, scale)
        weights = weights * scale
        moved = None if means is None else 1 - scale[:, 0]
    if on_cpu and pasted is not None:
        indices, weights = _unblended(indices, weights, pasted)
    # rows in memory order, so that channels_last is not copied
    channels_last = not samples.is_contiguous() and _is_channels_last(samples)
    ordered = samples.movedim(1, -1) if channels_last else samples
    rows = ordered.reshape(samples.shape[0], samples.shape[1:].numel())
    mean = None if means is None else _mean_of_features(means, samples, channels_last)
    # else a product with the matrix of weights is faster
    sources = indices.shape[1]
    few = sources <= MOST_FEW or sources * 4 <= samples.shape[0]
    mix = _mix_rows if on_cpu and few and samples.numel() else reference.mix_rows
    mixed = mix(rows, indices, weights, moved, mean)
    mixed = mixed.view(indices.shape[0], *ordered.shape[1:])
    mixed = mixed.movedim(-1, 1) if channels_last else mixed
    if boxes is None:
        return mixed
    if not on_cpu:
        return reference.paste(mixed, samples, plan.indices, boxes)
    _copy_boxes(mixed, samples, plan.indices, boxes)
    return mixed


def mix_targets(values: Tensor, plan: MixPlan) -> Tensor:
    """Average targets [batch, ...] in float64, so that TF32 or bfloat16 settings do not matter."""
    mixed = mix_samples(values.to(precise_dtype(values.device)), plan)
    return mixed.to(torch.float64 if values.dtype == torch.float64 else torch.float32)


def is_plain(*tensors: Tensor) -> bool:
    """Whether faster ways than `reference` may be taken: for memory that autograd does not track.

    That is neither in reverse nor in forward mode.
    """
    if torch.compiler.is_compiling() or REFERENCE_ONLY or not has_memory(*tensors):
        return False
    # Torch's own name, for speed: below 0 there are no tangents. Without it they are looked for
    forward = getattr(forward_ad, "_current_level", 0) >= 0
    for tensor in tensors:
        if tensor.requires_grad and torch.is_grad_enabled():
            return False
        if forward and forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
            return False
    return True


def _is_channels_last(samples: Tensor) -> bool:
    form = CHANNELS_LAST.get(samples.ndim)
    return form is not None and samples.is_contiguous(memory_format=form)


def _mean_of_features(means: Sequence[float], samples: Tensor, channels_last: bool) -> Tensor:
    """The mean of each feature in memory order, in its unit: [features], or [1] for one mean."""
    kind = torch.promote_types(samples.dtype, torch.float32)
    largest = reference.range_end(samples.dtype)
    # filled on the device: a CUDA graph cannot capture a copy from the host
    each = torch.cat([samples.new_full((1,), largest * mean, dtype=kind) for mean in means])
    pixels = samples.shape[2:].numel()
    if len(means) == 1:
        return each
    return each.repeat(pixels) if channels_last else each.repeat_interleave(pixels)


def _unblended(indices: Tensor, weights: Tensor, pasted: Tensor) -> tuple[Tensor, Tensor]:
    """Sources with which a pasted output begins as a copy of its first one.

    All of them are the first, with weights that are powers of 1/2, so that their sum is exact.
    """
    sources = weights.shape[1]
    indices = torch.where(pasted[:, None], indices[:, :1], indices)
    part = 2.0 ** -(sources - 1).bit_length()
    parts = weights.new_full((sources,), part)
    parts[0] = 1 - part * (sources - 1)
    return indices, torch.where(pasted[:, None], parts, weights)


def _mix_rows(
    rows: Tensor, indices: Tensor, weights: Tensor, moved: Tensor | None, mean: Tensor | None
) -> Tensor:
    """As `reference.mix_rows`, without gradients, and in blocks where that is faster."""
    wide = weights.dtype
    batch, features = rows.shape
    # few sources reuse rows too rarely for blocks to help (2 of 128 × 3 × 224²: 27 ms against 64)
    few = indices.shape[1] <= MOST_FEW
    if wide == rows.dtype and (few or rows.numel() * wide.itemsize <= CACHE_BYTES):
        whole = _sum_rows(rows, indices, weights)
        if moved is None or mean is None:
            return whole
        if mean.numel() == 1:
            # addcmul of two numbers a row takes 823 µs instead of 73 (64 × 27648 numbers)
            whole.add_(moved[:, None] * mean)
        else:
            torch.addcmul(whole, moved[:, None], mean, out=whole)
        return whole.clamp_(0, 1)
    if moved is not None:
        # the mean is one more source: no passes of its own
        weights = torch.cat([weights, moved[:, None]], 1)
        indices = torch.cat([indices, torch.full_like(indices[:, :1], batch)], 1)
    height = batch + (mean is not None)
    block = max(512, BLOCK_BYTES // (height * wide.itemsize))
    mixed = rows.new_empty(indices.shape[0], features)
    scratch = rows.new_empty(height * block, dtype=wide)
    sums: Tensor | None = None
    for start in range(0, features, block):
        columns = slice(start, min(start + block, features))
        sources = scratch[: height * (columns.stop - start)].view(height, -1)
        sources[:batch].copy_(rows[:, columns])
        if mean is not None:
            sources[batch] = mean if mean.numel() == 1 else mean[columns]
        # keep the last sums until the next are made: if freed, their memory would be returned to
        # the system and page-faulted again each time (41 ms become 55 to 110)
        last, sums = sums, _sum_rows(sources, indices, weights)
        clips = mean is not None and rows.dtype.is_floating_point
        mixed[:, columns] = sums.clamp_(0, 1) if clips else reference.round_(sums, rows.dtype)
        del last
    return mixed


def _sum_rows(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """`_mix_rows` in one call of torch, for rows and weights of the same floating point dtype."""
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return _sum_rows(rows, indices, weights)
    outputs, sources = indices.shape
    starts = torch.arange(0, outputs * sources, sources, device="cpu")
    # the operator under torch.nn.functional.embedding_bag, whose checks take 10 µs
    mode_sum = 0
    bags = indices.reshape(-1), starts, False, mode_sum, False, weights.reshape(-1)
    sums: Tensor = torch.embedding_bag(rows, *bags)[0]
    return sums


def _copy_boxes(mixed: Tensor, samples: Tensor, indices: Tensor, boxes: Tensor) -> None:
    """Paste as `reference.paste`, but for the first source, of which a pasted output is a copy.

    One copy per box moves less memory than masks of whole images do. (2 cores, 64 × 3 × 224², one
    box of a quarter of the image each: 1.6 ms against 128.)
    """
    parts = boxes[:, 1:]
    chosen, ranks = (parts[..., 2:] > parts[..., :2]).all(-1).nonzero(as_tuple=True)
    places = torch.stack([chosen, indices[chosen, ranks + 1]], 1)
    listed = torch.cat([places, parts[chosen, ranks]], 1).tolist()
    bits = BITS[mixed.dtype.itemsize]
    target: Any = mixed.view(bits)
    source: Any = samples.view(bits)
    # slices of arrays are faster, where NumPy is installed
    with suppress(RuntimeError):
        target, source = target.numpy(), source.numpy()
    small = mixed[0].numel() <= MOST_BY_NUMPY
    for output, row, top, left, bottom, right in listed:
        place = target[output, ..., top:bottom, left:right]
        pixels = source[row, ..., top:bottom, left:right]
        if small or isinstance(place, Tensor):
            place[...] = pixels
        else:
            torch.from_numpy(place).copy_(torch.from_numpy(pixels))


def _paste_one(samples: Tensor, shift: int, corners: list[int]) -> Tensor:
    """The same box of sample k − shift in every output k: two slices."""
    top, left, bottom, right = corners
    mixed = samples.clone()
    place = (..., slice(top, bottom), slice(left, right))
    target, source = mixed[place], samples[place]
    target[shift:].copy_(source[:-shift])
    target[:shift].copy_(source[-shift:])
    return mixed


def add_by_class(
    labels: Tensor, plan: MixPlan, num_classes: int, ignore_index: int | None
) -> Tensor:
    """[outputs, num_classes, ...]: every source's weight added to its class, in float32.

    labels: [batch, ..., height, width] on a CPU, int64, in range. Faster than a pass for each
        class.
    """
    counted = None
    if ignore_index is not None:
        counted = labels != ignore_index
        labels = labels.masked_fill(~counted, 0)
    weights, each = plan.weights.float(), (-1, *[1] * (labels.ndim - 1))
    mixed = torch.zeros(plan.outputs, num_classes, *labels.shape[1:], dtype=torch.float32)
    if plan.boxes is not None:
        alone = torch.eye(1, plan.sources)
        weights = torch.where(plan.pasted[:, None], alone, weights)
    for source in range(plan.sources):
        rows = plan.indices[:, source]
        classes = labels[rows]
        masses = weights[:, source].view(each).expand(classes.shape)
        masses = masses if counted is None else masses * counted[rows]
        if source == 0 and plan.boxes is not None:
            _copy_boxes(classes, labels, plan.indices, plan.boxes)
            if counted is not None:
                masses = masses.contiguous()
                _copy_boxes(masses, counted.to(masses.dtype), plan.indices, plan.boxes)
        mixed.scatter_add_(1, classes[:, None], masses[:, None])
    return mixed
