"""The Triton kernels: the code that runs on the GPU. `triton_launch.py` launches it.

`reference.py` and `sampling.py` are the specification: from the same random number these kernels
make the same plan, and from the same plan the same product.

- One program sorts the keys of one output and writes its row of the matrix and its target.
- The matrix holds rank**-gamma, not the weight: the anchor's entry is then exactly 1, and the
  normaliser is applied to the float32 accumulator.
- A float32 sample is split into two bfloat16 halves, x = h + l, and multiplied on the tensor cores
  as H·h + H·l + L·h, where H + L is the matrix split the same way. What is dropped is below 2^-17
  of each term: 2.5e-6 of the norm, measured (H200, 256 × 3 × 224²: 161 µs against 413 for torch's
  float32 matrix product).
- Where the user allows TF32, L·h is left out: 3.7e-5 of the norm, against TF32's own 4.2e-4.
- Up to four sources are no product: `triton_few.py`.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# Triton's interpreter multiplies the bit patterns of bfloat16, so there the same values go in as
# float32; a product of two bfloat16 numbers is exact in float32 either way
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

# as in sampling.py
LAM = tl.constexpr(1 << 40)
TRIES = tl.constexpr(2 << 40)
GAMMA = tl.constexpr(3 << 40)
MIXED = tl.constexpr(4 << 40)
BOX = tl.constexpr(5 << 40)
PASTED = tl.constexpr(6 << 40)


@triton.jit
def expand(seed, counter):
    """Random integer number `counter` of a seed, in [0, 2^62): SplitMix64, as `sampling.expand`."""
    z = (seed + counter * -7046029254386353131).to(tl.uint64, bitcast=True)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = (z ^ (z >> 31)) >> 2
    return z.to(tl.int64, bitcast=True)


@triton.jit
def uniform(seed, counter):
    """A random number in (0, 1], as `Draw.uniform` to float32's precision."""
    return (expand(seed, counter).to(tl.float32) + 0.5) * 2.168404344971009e-19


@triton.jit
def _sort(seed, row, cols, batch, SELF: tl.constexpr, BLOCK: tl.constexpr):
    """Batch rows in the order of random keys, as `sampling._order_by_keys`."""
    bits = expand(seed, row * batch + cols)
    # 30 random bits, the lowest of them replaced by the column XOR a mask, so that sorting keeps it
    mask = (expand(seed, row * batch) & (BLOCK - 1)).to(tl.int32)
    names = cols ^ mask
    keys = ((bits >> 32).to(tl.int32) & ~(BLOCK - 1)) | names
    if SELF:
        keys = tl.where(cols == row % batch, 0x40000000 | names, keys)
    # padding sorts behind everything
    keys = tl.where(cols < batch, keys, names - BLOCK)
    return (tl.sort(keys, descending=True) & (BLOCK - 1)) ^ mask


@triton.jit
def _decode(seed, row, cols, batch, sources, SELF: tl.constexpr):
    """Batch rows from the digits of a Lehmer code, as `sampling._order_by_digits`."""
    bits = expand(seed, row * sources + cols)
    digits = (bits % tl.maximum(batch - cols, 1)).to(tl.int32)
    if SELF:
        digits = tl.where(cols == 0, (row % batch).to(tl.int32), digits)
    for step in range(1, sources):
        rank = sources - 1 - step
        chosen = tl.sum(tl.where(cols == rank, digits, 0), 0)
        digits += ((cols > rank) & (digits >= chosen)).to(tl.int32)
    return digits


@triton.jit
def _log_gamma_variate(seed, first, shape):
    """log of a Gamma(shape) variate, as `sampling._log_gamma_variate`."""
    d = shape - 1 / 3
    log_v = 0.0
    waiting = 1
    for step in tl.static_range(8):
        # backwards, so that the first accepted try is the last to be written; try 0 always counts
        counter = first + (7 - step) * 3
        radius = tl.sqrt(-2 * tl.log(uniform(seed, counter)))
        normal = radius * tl.cos(6.283185307179586 * uniform(seed, counter + 1))
        v = 1 + normal / tl.sqrt(9 * d)
        v = v * v * v
        attempt = tl.log(tl.maximum(v, 1.1754944e-38))
        limit = normal * normal / 2 + d - d * v + d * attempt
        accepted = (v > 0) & (tl.log(uniform(seed, counter + 2)) < limit)
        if step == 7:
            accepted = accepted | (waiting == 1)
        log_v = tl.where(accepted, attempt, log_v)
        waiting = tl.where(accepted, 0, waiting)
    return tl.log(d) + log_v


@triton.jit
def lam_of(seed, row, alpha, UNIFORM: tl.constexpr):
    """λ ~ Beta(α, α) of one output, as `sampling.draw_lam`."""
    lam = uniform(seed, LAM + 2 * row)
    if not UNIFORM:
        first = tl.log(lam) / alpha + _log_gamma_variate(seed, TRIES + 48 * row, alpha + 1)
        second = tl.log(uniform(seed, LAM + 2 * row + 1)) / alpha
        second += _log_gamma_variate(seed, TRIES + 48 * row + 24, alpha + 1)
        lam = 1 / (1 + tl.exp(second - first))
    return lam


@triton.jit
def gamma_of(seed, row, gamma_p, number, span, GAMMA_KIND: tl.constexpr):
    """γ of one output: the number itself, one of a tensor, or drawn from a range."""
    gamma = number
    if GAMMA_KIND == "tensor":
        gamma = tl.load(gamma_p + row).to(tl.float32)
    if GAMMA_KIND == "range":
        gamma = number + span * uniform(seed, GAMMA + row)
    return gamma


@triton.jit
def _wait(OVERLAP: tl.constexpr):
    """Wait for the previous kernel, with which this one may overlap (`Launch`)."""
    if OVERLAP and not INTERPRETED:
        gdc_wait()


@triton.jit
def _scale_p(matrix_p, size):
    """Behind the two halves of a matrix, one float32 per row (`triton_launch.empty_halves`)."""
    return (matrix_p + size).to(tl.pointer_type(tl.float32), bitcast=True)


@triton.jit(debug=True)
def plan_kernel(
    seed_p,
    gamma_p,
    labels_p,
    indices_p,
    weights_p,
    matrix_p,
    targets_p,
    offset,
    number,
    span,
    batch,
    sources,
    outputs,
    classes,
    ignore,
    GAMMA_KIND: tl.constexpr,
    DIGITS: tl.constexpr,
    SELF: tl.constexpr,
    PLAN: tl.constexpr,
    MATRIX: tl.constexpr,
    TARGETS: tl.constexpr,
    IGNORE: tl.constexpr,
    BLOCK: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The plan of one output: as indices and weights, as a row of the matrix, as a soft target.

    γ is `number`, one per output from `gamma_p`, or drawn from `number` to `number + span`
    (GAMMA_KIND). Plans of up to four sources, and with them mixup's, are `triton_few.py`'s.
    """
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    size = tl.cast(outputs, tl.int64) * batch
    if OVERLAP and not INTERPRETED:
        # from here on the mixing kernel may start on free multiprocessors (−0.3 to −1.6 µs, H200)
        gdc_launch_dependents()
    seed = tl.load(seed_p) + offset
    if DIGITS:
        order = _decode(seed, row, cols, batch, sources, SELF)
    else:
        order = _sort(seed, row, cols, batch, SELF, BLOCK)
    live = cols < sources
    gamma = gamma_of(seed, row, gamma_p, number, span, GAMMA_KIND)
    power = tl.exp2(-gamma * tl.log2((cols + 1).to(tl.float32)))
    power = tl.where(live, power, 0.0)
    share = power / tl.sum(power, 0)
    if PLAN:
        tl.store(indices_p + row * sources + cols, order.to(tl.int64), mask=live)
        tl.store(weights_p + row * sources + cols, share, mask=live)
    if DIGITS and MATRIX != "none":
        # only `sources` entries of the row are written below
        for first in range(0, batch, BLOCK):
            inside = first + cols < batch
            tl.store(matrix_p + row * batch + first + cols, tl.zeros_like(power), mask=inside)
            if MATRIX == "halves":
                low_p = matrix_p + size + row * batch + first + cols
                tl.store(low_p, tl.zeros_like(power), mask=inside)
        tl.debug_barrier()
    valid = live if DIGITS else cols < batch
    if MATRIX == "halves":
        high = power.to(matrix_p.dtype.element_ty)
        low = (power - high.to(tl.float32)).to(matrix_p.dtype.element_ty)
        tl.store(matrix_p + row * batch + order, high, mask=valid)
        tl.store(matrix_p + size + row * batch + order, low, mask=valid)
        tl.store(_scale_p(matrix_p, 2 * size) + row, 1 / tl.sum(power, 0))
    if MATRIX == "plain":
        tl.store(matrix_p + row * batch + order, share, mask=valid)
    if TARGETS:
        label = tl.load(labels_p + order, mask=valid, other=0).to(tl.int64)
        good = (label >= 0) & (label < classes)
        if IGNORE:
            good = good | (label == ignore)
        tl.device_assert(good, "labels must lie in [0, num_classes). Is num_classes right?")
        # should assertions be compiled out, a wrong label must still not pass as a target
        share = tl.where(tl.min(good.to(tl.int32), 0) == 1, share, float("nan"))
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
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    else:
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def _product(high, low, x, acc, MODE: tl.constexpr):
    """acc + matrix @ x, from the matrix's two halves; see the top of this file."""
    # no early returns: Triton also compiles the code after them
    if MODE == "half":
        acc = _dot(high, x, acc)
    elif MODE == "bytes":
        whole = x.to(tl.float32).to(tl.bfloat16)
        acc = _dot(low, whole, _dot(high, whole, acc))
    else:
        x_high = x.to(tl.bfloat16)
        x_low = (x - x_high.to(tl.float32)).to(tl.bfloat16)
        acc = _dot(high, x_low, _dot(high, x_high, acc))
        if MODE == "split3":
            acc = _dot(low, x_high, acc)
    return acc


@triton.jit
def _load_halves(matrix_p, offsets, inside, size, MODE: tl.constexpr):
    """Both halves of a block of the matrix; the low one only where it is used."""
    high = tl.load(matrix_p + offsets, mask=inside, other=0.0)
    low = high
    if MODE == "split3" or MODE == "bytes":
        low = tl.load(matrix_p + size + offsets, mask=inside, other=0.0)
    return high, low


@triton.jit
def narrow(y, MODE: tl.constexpr, dtype: tl.constexpr):
    """Convert to the dtype of the input; bytes are rounded to the nearest."""
    if MODE == "bytes":
        # adding 1.5 · 2^23 leaves no bits for a fraction: rounds half to even, as torch.round
        y = tl.maximum(tl.minimum((y + 12582912.0) - 12582912.0, 255.0), 0.0)
    return y.to(dtype)


@triton.jit
def mix_whole_kernel(
    x_desc,
    out_desc,
    rows_p,
    out_p,
    matrix_p,
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
    OVERLAP: tl.constexpr,
):
    """out = matrix @ rows, the matrix held on chip, the rows read and written once."""
    _wait(OVERLAP)
    groups = tl.cdiv(outputs, BLOCK_OUT)
    first = (tl.program_id(0) % groups) * BLOCK_OUT
    m = first + tl.arange(0, BLOCK_OUT)
    k = tl.arange(0, BLOCK_IN)
    inside = (m < outputs)[:, None] & (k < batch)[None, :]
    size = tl.cast(outputs, tl.int64) * batch
    offsets = m[:, None].to(tl.int64) * batch + k[None, :]
    high, low = _load_halves(matrix_p, offsets, inside, size, MODE)
    scale = tl.load(_scale_p(matrix_p, 2 * size) + m, mask=m < outputs, other=0.0)
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
        y = narrow(acc * scale[:, None], MODE, out_p.dtype.element_ty)
        if TMA:
            out_desc.store([first, tile * BLOCK], y)
        elif EVEN:
            tl.store(out_p + out_of + d[None, :], y)
        else:
            wanted = (m < outputs)[:, None] & (d < features)[None, :]
            tl.store(out_p + out_of + d[None, :], y, mask=wanted)


@triton.jit
def mix_loop_kernel(
    rows_p,
    out_p,
    matrix_p,
    outputs,
    batch,
    features,
    MODE: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The same product for batches whose matrix does not fit on chip: a loop over the batch."""
    _wait(OVERLAP)
    groups = tl.cdiv(outputs, BLOCK_OUT)
    # neighbouring programs share a tile of the rows, so that all but one read it from L2
    m = (tl.program_id(0) % groups) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    d = (tl.program_id(0) // groups) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK_OUT, BLOCK], tl.float32)
    size = tl.cast(outputs, tl.int64) * batch
    for start in tl.range(0, batch, BLOCK_IN, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_IN)
        inside = (m < outputs)[:, None] & (k < batch)[None, :]
        offsets = m[:, None].to(tl.int64) * batch + k[None, :]
        high, low = _load_halves(matrix_p, offsets, inside, size, MODE)
        present = (k < batch)[:, None] & (d < features)[None, :]
        into = k[:, None].to(tl.int64) * features
        x = tl.load(rows_p + into + d[None, :], mask=present, other=0.0)
        acc = _product(high, low, x, acc, MODE)
    scale = tl.load(_scale_p(matrix_p, 2 * size) + m, mask=m < outputs, other=0.0)
    y = narrow(acc * scale[:, None], MODE, out_p.dtype.element_ty)
    wanted = (m < outputs)[:, None] & (d < features)[None, :]
    tl.store(out_p + m[:, None].to(tl.int64) * features + d[None, :], y, mask=wanted)


@triton.jit(debug=True)
def mix_gather_kernel(
    rows_p,
    out_p,
    indices_p,
    weights_p,
    batch,
    sources,
    features,
    outputs,
    MODE: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """out[k] = Σ_i weights[k, i] · rows[indices[k, i]]: one tile of one output per program."""
    # neighbouring programs mix the same columns, so that a row is read from memory once and from
    # L2 for its other uses
    row = (tl.program_id(0) % outputs).to(tl.int64)
    d = (tl.program_id(0) // outputs) * BLOCK + tl.arange(0, BLOCK)
    _wait(OVERLAP)
    acc = tl.zeros([BLOCK], tl.float32)
    for rank in range(sources):
        index = tl.load(indices_p + row * sources + rank)
        inside = (index >= 0) & (index < batch)
        tl.device_assert(inside, "the plan names a row that the batch does not have")
        weight = tl.load(weights_p + row * sources + rank).to(tl.float32)
        index = tl.where(inside, index, 0)
        x = tl.load(rows_p + index * features + d, mask=d < features, other=0.0)
        acc += weight * x.to(tl.float32)
    y = narrow(acc, MODE, out_p.dtype.element_ty)
    tl.store(out_p + row * features + d, y, mask=d < features)
