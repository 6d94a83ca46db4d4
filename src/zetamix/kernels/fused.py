"""ζ-mixup on a GPU in Triton: ranks, weights, targets and samples without a host round trip.

The only file that imports triton. `reference.py` is the specification: from the same random
number these kernels make the same plan, and from the same plan the same product.

- One program sorts the keys of one output and writes its row of the matrix and its target.
- The matrix holds rank**-gamma, not the weight: the anchor's entry is then exactly 1, and the
  normaliser is applied to the float32 accumulator.
- A float32 sample is split into two bfloat16 halves, x = h + l, and multiplied on the tensor cores
  as H·h + H·l + L·h, where H + L is the matrix split the same way. What is dropped is below 2^-17
  of each term: 2.5e-6 of the norm, measured, at three products instead of plain float32's eight
  (H200, 256 × 3 × 224²: 161 µs against 413 for the float32 matrix product).
- Where the user allows TF32, L·h is left out: 3.7e-5 of the norm, against TF32's own 4.2e-4.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

# Triton's interpreter multiplies the bit patterns of bfloat16, so there the same values go in as
# float32; a product of two bfloat16 numbers is exact in float32 either way
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

# one program sorts a whole row of keys; past this, torch's segmented sort takes over
MAX_SORTED = 1024
# up to here the whole matrix stays on the multiprocessor while the samples stream by
MAX_WHOLE = 128


@triton.jit
def _expand(seed, counter):
    """Random integer number `counter` of a seed, in [0, 2^62): SplitMix64, as `draw.expand`."""
    z = (seed + counter * -7046029254386353131).to(tl.uint64, bitcast=True)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = (z ^ (z >> 31)) >> 2
    return z.to(tl.int64, bitcast=True)


@triton.jit
def _powers(ranks, gamma):
    """(rank + 1)**-gamma in float32."""
    return tl.exp2(-gamma * tl.log2((ranks + 1).to(tl.float32)))


@triton.jit
def _sort(seed, row, cols, batch, SELF: tl.constexpr, BLOCK: tl.constexpr):
    """Batch rows in the order of random keys, as `plan._order_by_keys`."""
    bits = _expand(seed, row * batch + cols)
    # 30 random bits, the lowest of them replaced by the column: no ties, and the sort carries it
    keys = ((bits >> 32).to(tl.int32) & ~(BLOCK - 1)) | cols
    if SELF:
        keys = tl.where(cols == row % batch, 0x40000000 | cols, keys)
    # padding sorts behind everything
    keys = tl.where(cols < batch, keys, cols - BLOCK)
    return tl.sort(keys, descending=True) & (BLOCK - 1)


@triton.jit
def _decode(seed, row, cols, batch, sources, SELF: tl.constexpr):
    """Batch rows from the digits of a Lehmer code, as `plan._order_by_digits`."""
    bits = _expand(seed, row * sources + cols)
    digits = (bits % tl.maximum(batch - cols, 1)).to(tl.int32)
    if SELF:
        digits = tl.where(cols == 0, (row % batch).to(tl.int32), digits)
    for step in range(1, sources):
        rank = sources - 1 - step
        chosen = tl.sum(tl.where(cols == rank, digits, 0), 0)
        digits += ((cols > rank) & (digits >= chosen)).to(tl.int32)
    return digits


@triton.jit(debug=True)
def _plan_kernel(
    seed_p,
    offset,
    gamma_p,
    gamma,
    labels_p,
    indices_p,
    weights_p,
    high_p,
    low_p,
    scale_p,
    targets_p,
    batch,
    sources,
    classes,
    ignore,
    DIGITS: tl.constexpr,
    SELF: tl.constexpr,
    GAMMAS: tl.constexpr,
    PLAN: tl.constexpr,
    MATRIX: tl.constexpr,
    TARGETS: tl.constexpr,
    IGNORE: tl.constexpr,
    BLOCK: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
):
    """The plan of one output: as indices and weights, as a row of the matrix, as a soft target."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    seed = tl.load(seed_p) + offset
    if DIGITS:
        order = _decode(seed, row, cols, batch, sources, SELF)
    else:
        order = _sort(seed, row, cols, batch, SELF, BLOCK)
    live = cols < sources
    if GAMMAS:
        gamma = tl.load(gamma_p + row).to(tl.float32)
    power = tl.where(live, _powers(cols, gamma), 0.0)
    total = tl.sum(power, 0)
    if PLAN:
        place = row * sources + cols
        tl.store(indices_p + place, order.to(tl.int64), mask=live)
        tl.store(weights_p + place, power / total, mask=live)
    if DIGITS and MATRIX != "none":
        # only `sources` places of the row are written below
        for first in range(0, batch, BLOCK):
            place = row * batch + first + cols
            tl.store(high_p + place, tl.zeros_like(power), mask=first + cols < batch)
            if MATRIX == "split":
                tl.store(low_p + place, tl.zeros_like(power), mask=first + cols < batch)
        tl.debug_barrier()
    known = live if DIGITS else cols < batch
    if MATRIX == "split":
        high = power.to(high_p.dtype.element_ty)
        low = (power - high.to(tl.float32)).to(low_p.dtype.element_ty)
        tl.store(high_p + row * batch + order, high, mask=known)
        tl.store(low_p + row * batch + order, low, mask=known)
        tl.store(scale_p + row, 1.0 / total)
    if MATRIX == "whole":
        tl.store(high_p + row * batch + order, power / total, mask=known)
    if TARGETS:
        label = tl.load(labels_p + order, mask=known, other=0).to(tl.int64)
        good = (label >= 0) & (label < classes)
        if IGNORE:
            good = good | (label == ignore)
        tl.device_assert(good, "labels must lie in [0, num_classes). Is num_classes right?")
        # should assertions be compiled out, a wrong label must still not pass as a target
        share = tl.where(tl.min(good.to(tl.int32), 0) == 1, power / total, float("nan"))
        for first in range(0, classes, CLASS_BLOCK):
            names = first + tl.arange(0, CLASS_BLOCK)
            hits = label[None, :] == names[:, None]
            if IGNORE:
                hits = hits & (label != ignore)[None, :]
            target = tl.sum(tl.where(hits, share[None, :], 0.0 * share[None, :]), 1)
            tl.store(targets_p + row * classes + names, target, mask=names < classes)


@triton.jit
def _dot(a, b, acc):
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(a, b, acc)


@triton.jit
def _product(high, low, x, acc, MODE: tl.constexpr):
    """acc + matrix @ x, from the matrix's two halves; see the top of this file."""
    if MODE == "half":
        return _dot(high, x, acc)
    if MODE == "bytes":
        whole = x.to(tl.float32).to(tl.bfloat16)
        return _dot(low, whole, _dot(high, whole, acc))
    x_high = x.to(tl.bfloat16)
    x_low = (x - x_high.to(tl.float32)).to(tl.bfloat16)
    acc = _dot(high, x_low, _dot(high, x_high, acc))
    if MODE == "split3":
        acc = _dot(low, x_high, acc)
    return acc


@triton.jit
def _narrow(y, MODE: tl.constexpr, dtype: tl.constexpr):
    """Back to the dtype that came in; bytes are rounded to the nearest."""
    if MODE == "bytes":
        y = tl.minimum(tl.floor(y + 0.5), 255.0)
    return y.to(dtype)


@triton.jit
def _mix_whole_kernel(
    x_desc,
    out_desc,
    rows_p,
    out_p,
    high_p,
    low_p,
    scale_p,
    outputs,
    batch,
    features,
    TMA: tl.constexpr,
    EVEN: tl.constexpr,
    MODE: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out = scale · matrix @ rows, the matrix held on chip, the rows read and written once."""
    groups = tl.cdiv(outputs, BLOCK_OUT)
    first = (tl.program_id(0) % groups) * BLOCK_OUT
    m = first + tl.arange(0, BLOCK_OUT)
    k = tl.arange(0, BLOCK_IN)
    inside = (m < outputs)[:, None] & (k < batch)[None, :]
    high = tl.load(high_p + m[:, None] * batch + k[None, :], mask=inside, other=0.0)
    low = high
    if MODE == "split3" or MODE == "bytes":
        low = tl.load(low_p + m[:, None] * batch + k[None, :], mask=inside, other=0.0)
    scale = tl.load(scale_p + m, mask=m < outputs, other=0.0)
    into = k[:, None].to(tl.int64) * features
    out_of = m[:, None].to(tl.int64) * features
    tiles = tl.cdiv(features, BLOCK)
    step = tl.num_programs(0) // groups
    for tile in tl.range(tl.program_id(0) // groups, tiles, step, num_stages=STAGES):
        d = tile * BLOCK + tl.arange(0, BLOCK)
        if TMA:
            x = x_desc.load([0, tile * BLOCK])
        elif EVEN:
            x = tl.load(rows_p + into + d[None, :])
        else:
            present = (k < batch)[:, None] & (d < features)[None, :]
            x = tl.load(rows_p + into + d[None, :], mask=present, other=0.0)
        acc = _product(high, low, x, tl.zeros([BLOCK_OUT, BLOCK], tl.float32), MODE)
        y = _narrow(acc * scale[:, None], MODE, out_p.dtype.element_ty)
        if TMA:
            out_desc.store([first, tile * BLOCK], y)
        elif EVEN:
            tl.store(out_p + out_of + d[None, :], y)
        else:
            wanted = (m < outputs)[:, None] & (d < features)[None, :]
            tl.store(out_p + out_of + d[None, :], y, mask=wanted)


@triton.jit
def _mix_loop_kernel(
    rows_p,
    out_p,
    high_p,
    low_p,
    scale_p,
    outputs,
    batch,
    features,
    MODE: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The same product for batches whose matrix does not fit on chip: a loop over the batch."""
    groups = tl.cdiv(outputs, BLOCK_OUT)
    # neighbouring programs share a tile of the rows, so that all but one read it from L2
    m = (tl.program_id(0) % groups) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    d = (tl.program_id(0) // groups) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK_OUT, BLOCK], tl.float32)
    for start in tl.range(0, batch, BLOCK_IN, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_IN)
        inside = (m < outputs)[:, None] & (k < batch)[None, :]
        place = m[:, None].to(tl.int64) * batch + k[None, :]
        high = tl.load(high_p + place, mask=inside, other=0.0)
        low = high
        if MODE == "split3" or MODE == "bytes":
            low = tl.load(low_p + place, mask=inside, other=0.0)
        present = (k < batch)[:, None] & (d < features)[None, :]
        x = tl.load(
            rows_p + k[:, None].to(tl.int64) * features + d[None, :], mask=present, other=0.0
        )
        acc = _product(high, low, x, acc, MODE)
    scale = tl.load(scale_p + m, mask=m < outputs, other=0.0)
    y = _narrow(acc * scale[:, None], MODE, out_p.dtype.element_ty)
    wanted = (m < outputs)[:, None] & (d < features)[None, :]
    tl.store(out_p + m[:, None].to(tl.int64) * features + d[None, :], y, mask=wanted)


@triton.jit
def _mix_gather_kernel(
    rows_p,
    out_p,
    indices_p,
    weights_p,
    sources,
    features,
    MODE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[k] = Σ_i weights[k, i] · rows[indices[k, i]]: one tile of one output per program."""
    row = tl.program_id(1).to(tl.int64)
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for rank in range(sources):
        index = tl.load(indices_p + row * sources + rank)
        weight = tl.load(weights_p + row * sources + rank).to(tl.float32)
        x = tl.load(rows_p + index * features + d, mask=d < features, other=0.0)
        acc += weight * x.to(tl.float32)
    y = _narrow(acc, MODE, out_p.dtype.element_ty)
    tl.store(out_p + row * features + d, y, mask=d < features)


class Matrix(NamedTuple):
    """A plan as the kernels multiply by it: (high + low) · scale, rows by outputs."""

    high: Tensor
    low: Tensor
    scale: Tensor


class Drawn(NamedTuple):
    """What the plan kernel was asked to write; the rest is None."""

    indices: Tensor | None
    weights: Tensor | None
    matrix: Matrix | Tensor | None
    targets: Tensor | None


def draw(
    seed: Tensor,
    offset: int,
    gamma: float | Tensor,
    *,
    batch: int,
    sources: int,
    outputs: int,
    digits: bool,
    anchor: str,
    plan: bool = False,
    matrix: torch.dtype | None = None,
    halves: torch.dtype | None = None,
    labels: Tensor | None = None,
    classes: int = 0,
    ignore_index: int | None = None,
) -> Drawn:
    """Draw a plan in one launch, in the forms asked for.

    matrix: the dtype of a plain matrix of weights, for torch to multiply with.
    halves: the dtype of the two halves of a `Matrix`, for the kernels below.
    """
    device = seed.device
    if isinstance(gamma, Tensor):
        gamma = gamma.expand(outputs).contiguous()
    indices = weights = targets = high = low = scale = None
    if plan:
        indices = torch.empty(outputs, sources, dtype=torch.int64, device=device)
        weights = torch.empty(outputs, sources, device=device)
    if halves is not None:
        high, low = torch.empty(2, outputs, batch, dtype=halves, device=device).unbind()
        scale = torch.empty(outputs, device=device)
    elif matrix is not None:
        high = torch.empty(outputs, batch, dtype=matrix, device=device)
    if labels is not None:
        targets = torch.empty(outputs, classes, device=device)
    block = triton.next_power_of_2(sources if digits else batch)
    _plan_kernel[(outputs,)](
        seed,
        offset,
        gamma if isinstance(gamma, Tensor) else None,
        0.0 if isinstance(gamma, Tensor) else gamma,
        labels,
        indices,
        weights,
        high,
        low,
        scale,
        targets,
        batch,
        sources,
        classes,
        0 if ignore_index is None else ignore_index,
        DIGITS=digits,
        SELF=anchor == "self",
        GAMMAS=isinstance(gamma, Tensor),
        PLAN=plan,
        MATRIX="split" if halves is not None else "none" if matrix is None else "whole",
        TARGETS=labels is not None,
        IGNORE=ignore_index is not None,
        BLOCK=block,
        CLASS_BLOCK=min(64, triton.next_power_of_2(max(classes, 1))),
        # 1, 2 and 4 warps take 3.2 µs each at 128 rows; at 256 rows 4 warps win, 4.7 against 7.4
        num_warps=4,
        # debug=True above is for the assertion; overflow is what the hash is made of
        sanitize_overflow=False,
    )
    if high is not None and low is not None and scale is not None:
        return Drawn(indices, weights, Matrix(high, low, scale), targets)
    return Drawn(indices, weights, high, targets)


def half_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the matrix halves that rows of this dtype are multiplied with."""
    return torch.float16 if dtype == torch.float16 else torch.bfloat16


def split(matrix: Tensor, halves: torch.dtype) -> Matrix:
    """Any float32 matrix of weights as the kernels take it."""
    high = matrix.to(halves)
    low = (matrix - high.float()).to(halves)
    return Matrix(high, low, matrix.new_ones(matrix.shape[0]))


def mix_by_matrix(rows: Tensor, matrix: Matrix, *, tf32: bool = False) -> Tensor:
    """matrix @ rows on the tensor cores, in the dtype of `rows`; `tf32` allows TF32's precision."""
    outputs, batch = matrix.high.shape
    out = rows.new_empty(outputs, rows.shape[1])
    if out.numel() == 0:
        return out
    mode = _mode(rows.dtype, tf32)
    if batch <= MAX_WHOLE:
        _mix_whole(rows, out, matrix, mode)
    else:
        _mix_loop(rows, out, matrix, mode)
    return out


def _mode(dtype: torch.dtype, tf32: bool) -> str:
    if dtype == torch.float32:
        return "split2" if tf32 else "split3"
    return "bytes" if dtype == torch.uint8 else "half"


def _mix_whole(rows: Tensor, out: Tensor, matrix: Matrix, mode: str) -> None:
    outputs, batch = matrix.high.shape
    features = rows.shape[1]
    block_in = max(16, triton.next_power_of_2(batch))
    block_out = min(block_in, max(16, triton.next_power_of_2(outputs)))
    block, warps, stages, per_core, tma = _tiling(block_in, features, mode)
    groups = triton.cdiv(outputs, block_out)
    tiles = triton.cdiv(features, block)
    programs = min(tiles, max(1, per_core * _cores(rows.device) // groups)) * groups
    tma = tma and features * rows.element_size() % 16 == 0 and rows.data_ptr() % 16 == 0
    _mix_whole_kernel[(programs,)](
        TensorDescriptor.from_tensor(rows, [block_in, block]) if tma else rows,
        TensorDescriptor.from_tensor(out, [block_out, block]) if tma else out,
        rows,
        out,
        *matrix,
        outputs,
        batch,
        features,
        TMA=tma,
        EVEN=batch == block_in and outputs % block_out == 0 and features % block == 0,
        MODE=mode,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        BLOCK=block,
        STAGES=stages,
        num_warps=warps,
    )


def _tiling(block_in: int, features: int, mode: str) -> tuple[int, int, int, int, bool]:
    """(block, warps, stages, programs per multiprocessor, tma), by a sweep on an H200."""
    if block_in <= 64:
        return (128, 4, 3, 3, False) if mode in ("half", "bytes") else (64, 8, 3, 4, False)
    if features < 16384:
        # too few tiles to go round: small ones
        return 32, 8, 4, 2, False
    if mode in ("half", "bytes"):
        return 128, 8, 4, 1, False
    return (64, 4, 4, 1, True) if mode == "split3" else (64, 8, 5, 1, False)


def _mix_loop(rows: Tensor, out: Tensor, matrix: Matrix, mode: str) -> None:
    outputs, batch = matrix.high.shape
    features = rows.shape[1]
    # H200, 256 × 3 × 224², float32: 161 µs with these, 173 to 290 with others
    block_out, block_in, block = 128, 32, 128
    programs = triton.cdiv(outputs, block_out) * triton.cdiv(features, block)
    _mix_loop_kernel[(programs,)](
        rows,
        out,
        *matrix,
        outputs,
        batch,
        features,
        MODE=mode,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        BLOCK=block,
        STAGES=3,
        num_warps=4,
    )


def mix_by_gather(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """Σ_i weights[k, i] · rows[indices[k, i]], in the dtype of `rows`."""
    outputs, sources = indices.shape
    features = rows.shape[1]
    out = rows.new_empty(outputs, features)
    if out.numel() == 0:
        return out
    block = min(1024, max(128, triton.next_power_of_2(features)))
    _mix_gather_kernel[(triton.cdiv(features, block), outputs)](
        rows,
        out,
        indices.contiguous(),
        weights.contiguous(),
        sources,
        features,
        MODE=_mode(rows.dtype, False),
        BLOCK=block,
        num_warps=4,
    )
    return out


@lru_cache(maxsize=16)
def _cores(device: torch.device) -> int:
    """Multiprocessors of a GPU; the interpreter on a CPU pretends to have two."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count
