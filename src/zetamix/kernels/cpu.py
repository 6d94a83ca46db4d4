"""Mixing on a CPU: weighted sums by torch's embedding bags, and boxes copied as slices."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from zetamix.plan import MixPlan
from zetamix.sampling import MOST_FEW

# columns are mixed in blocks once the rows exceed a typical last-level cache, so that every row of
# a block is read from memory once and then from the cache
# (2 cores, 32 MiB cache, 8 sources: 128 × 3 × 224² 41 ms against 53, 256 × 3 × 224² 80 against 108)
CACHE_BYTES = 2**25
BLOCK_BYTES = 2**20
# torch copies more numbers than this in several threads; where there are fewer, NumPy's copies take
# less time (2 cores, 64 boxes: 66 µs against 320 in images of 3 × 32², 223 against 410 in 3 × 96²,
# but 1.6 ms against 1.0 in 3 × 224²)
MOST_BY_NUMPY = 32768
# copied as integers of the same width, because NumPy has no bfloat16
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def unblended(indices: Tensor, weights: Tensor, pasted: Tensor) -> tuple[Tensor, Tensor]:
    """Sources with which a pasted output begins as a copy of its first one.

    All of them are the first, with weights that are powers of 1/2, so that their sum is exact.
    """
    sources = weights.shape[1]
    indices = torch.where(pasted[:, None], indices[:, :1], indices)
    part = 2.0 ** -(sources - 1).bit_length()
    parts = weights.new_full((sources,), part)
    parts[0] = 1 - part * (sources - 1)
    return indices, torch.where(pasted[:, None], parts, weights)


def mix_rows(
    rows: Tensor,
    indices: Tensor,
    weights: Tensor,
    moved: Tensor | None = None,
    mean: Tensor | None = None,
    *,
    cache_bytes: int = CACHE_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """As `reference.mix_rows`, without gradients, and in blocks where that is faster."""
    wide = weights.dtype
    column = None if moved is None else moved[:, None]
    batch, features = rows.shape
    # few sources reuse rows too rarely for blocks to help (2 of 128 × 3 × 224²: 27 ms against 64)
    few = indices.shape[1] <= MOST_FEW
    if wide == rows.dtype and (few or rows.numel() * wide.itemsize <= cache_bytes):
        whole = sum_rows(rows, indices, weights)
        return whole if column is None or mean is None else _move(whole, column, mean)
    if column is not None and mean is not None:
        # the mean is one more source: no passes of its own
        weights = torch.cat([weights, column], 1)
        indices = torch.cat([indices, torch.full_like(indices[:, :1], batch)], 1)
    height = batch + (mean is not None)
    block = max(512, block_bytes // (height * wide.itemsize))
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
        last, sums = sums, sum_rows(sources, indices, weights)
        mixed[:, columns] = _narrow(sums, rows.dtype, mean is not None)
        del last
    return mixed


def _move(sums: Tensor, moved: Tensor, mean: Tensor) -> Tensor:
    """Add moved · mean and clip, in place."""
    if mean.numel() == 1:
        # addcmul of two numbers a row takes 823 µs instead of 73 (64 × 27648 numbers)
        sums.add_(moved * mean)
    else:
        torch.addcmul(sums, moved, mean, out=sums)
    return sums.clamp_(0, 1)


def _narrow(sums: Tensor, dtype: torch.dtype, clips: bool) -> Tensor:
    """As `reference.narrow`, in place."""
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return sums.round_().clamp_(info.min, info.max)
    return sums.clamp_(0, 1) if clips else sums


def sum_rows(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """`mix_rows` in one call of torch, for rows and weights of the same floating point dtype."""
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return sum_rows(rows, indices, weights)
    outputs, sources = indices.shape
    starts = torch.arange(0, outputs * sources, sources, device="cpu")
    # the operator under torch.nn.functional.embedding_bag, whose checks take 10 µs
    mode_sum = 0
    bags = indices.reshape(-1), starts, False, mode_sum, False, weights.reshape(-1)
    sums: Tensor = torch.embedding_bag(rows, *bags)[0]
    return sums


def list_boxes(indices: Tensor, boxes: Tensor, pasted: Tensor) -> list[list[int]]:
    """[output, row, top, left, bottom, right] of the boxes to copy, in their order.

    pasted: which outputs begin as a copy of their first source, whose box is not listed.
    """
    if indices.shape[1] == 2:
        chosen = pasted.nonzero()[:, 0]
        ranks = torch.ones_like(chosen)
    else:
        parts = boxes[:, 1:]
        chosen, ranks = (parts[..., 2:] > parts[..., :2]).all(-1).nonzero(as_tuple=True)
        ranks = ranks + 1
    places = torch.stack([chosen, indices[chosen, ranks]], 1)
    return torch.cat([places, boxes[chosen, ranks]], 1).tolist()


def copy_boxes(mixed: Tensor, samples: Tensor, boxes: Iterable[list[int]]) -> None:
    """One copy per box moves less memory than masks of whole images do.

    (2 cores, 64 × 3 × 224², one box of a quarter of the image each: 1.6 ms against 128.)
    """
    source: Any = samples
    target: Any = mixed
    small = False
    if (bits := BITS.get(mixed.dtype.itemsize)) is not None:
        source, target, small = _as_arrays(samples.view(bits), mixed.view(bits))
    for output, row, top, left, bottom, right in boxes:
        place = target[output, ..., top:bottom, left:right]
        pixels = source[row, ..., top:bottom, left:right]
        if small or isinstance(place, Tensor):
            place[...] = pixels
        else:
            torch.from_numpy(place).copy_(torch.from_numpy(pixels))


def _as_arrays(samples: Tensor, mixed: Tensor) -> tuple[Any, Any, bool]:
    """Both as NumPy arrays, whose slices are faster, and whether NumPy should copy them."""
    try:
        return samples.numpy(), mixed.numpy(), mixed[0].numel() <= MOST_BY_NUMPY
    except RuntimeError:
        # without NumPy
        return samples, mixed, False


def paste_one(samples: Tensor, plan: MixPlan, corners: list[int]) -> Tensor:
    """The same box for all outputs of a plan that rotates: two slices."""
    top, left, bottom, right = corners
    shift = plan._shift or 0
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

    labels: [batch, ..., height, width], int64, in range. Faster than a pass for each class.
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
        listed = list_boxes(plan.indices, plan.boxes, plan.pasted)
    for source in range(plan.sources):
        rows = plan.indices[:, source]
        classes = labels[rows]
        masses = weights[:, source].view(each).expand(classes.shape)
        masses = masses if counted is None else masses * counted[rows]
        if source == 0 and plan.boxes is not None:
            copy_boxes(classes, labels, listed)
            if counted is not None:
                masses = masses.contiguous()
                copy_boxes(masses, counted.to(masses.dtype), listed)
        mixed.scatter_add_(1, classes[:, None], masses[:, None])
    return mixed
