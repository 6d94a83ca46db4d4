"""Few sources on a CPU: weighted sums of rows through torch's embedding bags."""

from functools import lru_cache

import torch
from torch import Tensor

from zetamix.kernels.plan_spec import MOST_FEW
from zetamix.kernels.reference import narrow, wide_dtype

# columns are mixed in blocks once the rows exceed a typical last-level cache, so that every row of
# a block is read from memory once and then from the cache
# (2 cores, 32 MiB cache, 8 sources: 128 × 3 × 224² 41 ms against 53, 256 × 3 × 224² 80 against 108)
CACHE_BYTES = 2**25
BLOCK_BYTES = 2**20


def mix_rows(
    rows: Tensor,
    indices: Tensor,
    weights: Tensor,
    *,
    cache_bytes: int = CACHE_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """Output k is Σ_i weights[k, i] · rows[indices[k, i]], as in `reference.mix_rows`."""
    wide = wide_dtype(rows, weights)
    weights = weights.to(wide).contiguous()
    batch, features = rows.shape
    # few sources reuse rows too rarely for blocks to help (2 of 128 × 3 × 224²: 27 ms against 64)
    few = indices.shape[1] <= MOST_FEW
    if wide == rows.dtype and (few or rows.numel() * wide.itemsize <= cache_bytes):
        return sum_rows(rows, indices, weights)
    block = max(512, block_bytes // (batch * wide.itemsize))
    mixed = rows.new_empty(indices.shape[0], features)
    scratch = rows.new_empty(batch * block, dtype=wide)
    sums = None
    for start in range(0, features, block):
        columns = slice(start, min(start + block, features))
        sources = scratch[: batch * (columns.stop - start)].view(batch, -1)
        sources.copy_(rows[:, columns])
        # keep the last sums until the next are made: if freed, their memory would be returned to
        # the system and page-faulted again each time (41 ms become 55 to 110)
        last, sums = sums, sum_rows(sources, indices, weights)
        mixed[:, columns] = narrow(sums, rows.dtype)
        del last
    return mixed


def sum_rows(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """`mix_rows` in one call of torch, for rows and weights of the same floating point dtype."""
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return sum_rows(rows, indices, weights)
    # the operator under torch.nn.functional.embedding_bag, whose checks take 10 µs
    starts, mode_sum = _starts(*indices.shape), 0
    bags = indices.reshape(-1), starts, False, mode_sum, False, weights.reshape(-1)
    sums: Tensor = torch.embedding_bag(rows, *bags)[0]
    return sums


@lru_cache(maxsize=64)
def _starts(outputs: int, sources: int) -> Tensor:
    """Where the bag of each output begins; cached, do not modify."""
    return torch.arange(0, outputs * sources, sources, device="cpu")
