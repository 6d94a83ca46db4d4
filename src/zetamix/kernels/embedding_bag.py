"""Few sources on a CPU: weighted sums of rows through torch's embedding bags."""

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix._checks import needs_gradients
from zetamix.kernels.reference import narrow, wide_dtype

# columns are taken a stretch at a time once the rows outgrow a typical last-level cache, so that
# every row of the stretch is read from memory once and from cache for all its other uses
# (2 cores, 32 MiB cache, 8 sources: 128 × 3 × 224² 41 ms against 53, 256 × 3 × 224² 80 against 108)
CACHE_BYTES = 2**25
STRETCH_BYTES = 2**20


def suits(rows: Tensor, indices: Tensor, weights: Tensor) -> bool:
    """Whether this path takes the rows: on a CPU, few sources, nobody watching gradients."""
    return (
        rows.device.type == "cpu"
        and indices.shape[1] * 4 <= rows.shape[0]
        and rows.shape[1] > 0
        and not needs_gradients(rows)
        and not needs_gradients(weights)
        and not torch.compiler.is_compiling()
    )


def mix_rows(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """Output k is Σ_i weights[k, i] · rows[indices[k, i]], as in `reference.mix_rows`."""
    wide = wide_dtype(rows, weights)
    weights = weights.to(wide).contiguous()
    batch, features = rows.shape
    nbytes = rows.numel() * wide.itemsize
    if wide == rows.dtype and nbytes <= CACHE_BYTES:
        return _add_up(rows, indices, weights)
    stretch = max(512, STRETCH_BYTES // (batch * wide.itemsize))
    mixed = rows.new_empty(indices.shape[0], features)
    scratch = rows.new_empty(batch * stretch, dtype=wide)
    sums = None
    for start in range(0, features, stretch):
        columns = slice(start, min(start + stretch, features))
        sources = scratch[: batch * (columns.stop - start)].view(batch, -1)
        sources.copy_(rows[:, columns])
        # the last sums live until the next are made: freed on top of the heap, their memory would
        # go back to the system and be faulted in again each time (41 ms become 55 to 110)
        last, sums = sums, _add_up(sources, indices, weights)
        mixed[:, columns] = narrow(sums, rows.dtype)
        del last
    return mixed


def _add_up(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return F.embedding_bag(indices, rows, per_sample_weights=weights, mode="sum")
