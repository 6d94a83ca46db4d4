"""Mixing and pasting in plain torch: the specification that every faster path must match.

Rows are samples flattened to [batch, features]. All functions are differentiable to any order.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from zetamix._checks import holds_for_all_sizes
from zetamix.boxes import inside


def mix_rows(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """Eq. 2: output k is Σ_i weights[k, i] · rows[indices[k, i]], in the dtype of `rows`.

    Half precision and integers are mixed in float32; integers are rounded to the nearest.
    """
    wide = wide_dtype(rows, weights)
    weights = weights.to(wide)
    # autocast would run the product in half precision; the meta device does not know it
    kind = rows.device.type
    with nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False):
        if _is_sparse(indices, rows):
            mixed = gather_rows(rows.to(wide), indices, weights)
        else:
            mixed = dense(indices, weights, rows.shape[0]) @ rows.to(wide)
    return narrow(mixed, rows.dtype)


def _is_sparse(indices: Tensor, rows: Tensor) -> bool:
    """Whether to gather the sources: the matrix is faster until it is larger than the rows."""
    sources, batch = indices.shape[1], rows.shape[0]
    if not torch.compiler.is_compiling():
        return sources * 64 <= batch
    # only by the number of sources, if it is fixed: one graph for all batch sizes
    return holds_for_all_sizes(sources <= 32) and not holds_for_all_sizes(sources == batch)


def wide_dtype(rows: Tensor, weights: Tensor) -> torch.dtype:
    """The dtype of the sums: float32, or float64 where either is."""
    either = torch.promote_types(rows.dtype, weights.dtype)
    return torch.promote_types(either, torch.float32)


def gather_rows(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """A sum over ranks, for few sources, without an [outputs, batch] matrix."""
    mixed = rows.index_select(0, indices[:, 0]) * weights[:, :1]
    for rank in range(1, indices.shape[1]):
        mixed = mixed + rows.index_select(0, indices[:, rank]) * weights[:, rank : rank + 1]
    return mixed


def dense(indices: Tensor, weights: Tensor, batch_size: int) -> Tensor:
    """The plan as an [outputs, batch_size] matrix."""
    # add, not assign: a plan made by hand may contain the same row twice
    return weights.new_zeros(indices.shape[0], batch_size).scatter_add_(1, indices, weights)


def narrow(mixed: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to the dtype of the input; integers are rounded to the nearest and clamped."""
    if dtype.is_floating_point:
        return mixed.to(dtype)
    info = torch.iinfo(dtype)
    return mixed.round().clamp(info.min, info.max).to(dtype)


def paste(mixed: Tensor, samples: Tensor, indices: Tensor, boxes: Tensor) -> Tensor:
    """Paste boxes of the sources into outputs [outputs, ..., height, width], in their order.

    Source i of output k covers boxes[k, i] by the same pixels of samples[indices[k, i]].
    """
    height, width = mixed.shape[-2:]
    between = [1] * (mixed.ndim - 3)
    for source in range(boxes.shape[1]):
        covered = inside(boxes[:, source], (height, width)).view(-1, *between, height, width)
        # indexing, not index_select, which would lose channels_last
        mixed = torch.where(covered, samples[indices[:, source]], mixed)
    return mixed
