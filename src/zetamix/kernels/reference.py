"""Mixing and pasting in plain torch: the specification that every faster path must match.

Rows are samples flattened to [batch, features]. All functions are differentiable to any order.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from zetamix.boxes import covers
from zetamix.checks import holds_for_all_sizes


def mix_rows(
    rows: Tensor,
    indices: Tensor,
    weights: Tensor,
    moved: Tensor | None = None,
    mean: Tensor | None = None,
) -> Tensor:
    """Eq. 2: output k is Σ_i weights[k, i] · rows[indices[k, i]], in the dtype of `rows`.

    The sums have the dtype of the weights; integers are rounded to the nearest.

    moved, mean: [outputs] and [features] or [1]: moved[k] · mean is added to output k, and the
        outputs are clipped to the range of images, [0, 1] or [0, 255].
    """
    sources, batch = indices.shape[1], rows.shape[0]
    # the matrix is faster until it is larger than the rows
    gathers = sources * 64 <= batch
    if torch.compiler.is_compiling():
        # only by the number of sources, if it is fixed: one graph for all batch sizes
        gathers = holds_for_all_sizes(sources <= 32) and not holds_for_all_sizes(sources == batch)
    wide = rows.to(weights.dtype)
    # autocast would run the product in half precision; the meta device does not know it
    kind = rows.device.type
    with nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False):
        if gathers:
            mixed = wide.index_select(0, indices[:, 0]) * weights[:, :1]
            for rank in range(1, sources):
                mixed = mixed + wide.index_select(0, indices[:, rank]) * weights[:, rank, None]
        else:
            matrix = weights.new_zeros(indices.shape[0], batch)
            mixed = matrix.scatter_add(1, indices, weights) @ wide
    if moved is not None and mean is not None:
        mixed = (mixed + moved[:, None] * mean).clamp(0, range_end(rows.dtype))
    return round_(mixed, rows.dtype).to(rows.dtype)


def paste(mixed: Tensor, samples: Tensor, indices: Tensor, boxes: Tensor) -> Tensor:
    """Paste boxes of the sources into outputs [outputs, ..., height, width], in their order.

    Source i of output k covers boxes[k, i] by the same pixels of samples[indices[k, i]].
    """
    height, width = mixed.shape[-2:]
    rows, columns = (torch.arange(length, device=boxes.device) for length in (height, width))
    between = [1] * (mixed.ndim - 3)
    for source in range(boxes.shape[1]):
        covered = covers(boxes[:, source], rows, columns).view(-1, *between, height, width)
        # indexing, not index_select, which would lose channels_last
        mixed = torch.where(covered, samples[indices[:, source]], mixed)
    return mixed


def round_(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """For integer dtypes, round to the nearest and clamp to their range, in place."""
    if dtype.is_floating_point:
        return sums
    info = torch.iinfo(dtype)
    return sums.round_().clamp_(info.min, info.max)


def range_end(dtype: torch.dtype) -> int:
    """The largest value of images: 1, or 255 for bytes."""
    return 1 if dtype.is_floating_point else 255
