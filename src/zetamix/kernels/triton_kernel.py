"""The Triton kernels, which draw a plan on the GPU and mix by it. `triton_launch.py` launches them.

`mix_kernel` mixes up to four sources in one launch, for all transforms. Every program draws the
plan of its output itself, from the same random number: a few dozen operations while its loads are
in flight. Neighbouring programs mix the same columns of different outputs, so that a row is read
from memory once and then from L2.

More sources are a product with the matrix of weights, which `matrix_kernel` draws; in float32 and
for bytes `product_kernel` multiplies it, where torch's own product would take 2.5 times as long.

`plan.draw_plan` and `rules.Blend` are the specification, to float32's precision: a side of a box
may be rounded to the other pixel once in 10⁴ boxes.
"""

import triton
import triton.language as tl

# Triton's interpreter multiplies the bit patterns of bfloat16, so there the same values go in as
# float32; a product of two bfloat16 numbers is exact in float32 either way
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

# the counters of each purpose, as in sampling.py
LAM = tl.constexpr(1 << 40)
GAMMA = tl.constexpr(3 << 40)
MIXED = tl.constexpr(4 << 40)
BOX = tl.constexpr(5 << 40)
PASTED = tl.constexpr(6 << 40)
WRONG_LABEL = tl.constexpr("labels must lie in [0, num_classes). Is num_classes right?")


@triton.jit
def _expand(seed, counter):
    """Random integer number `counter` of a seed, in [0, 2^62): SplitMix64, as `sampling.expand`."""
    z = (seed + counter * -7046029254386353131).to(tl.uint64, bitcast=True)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = (z ^ (z >> 31)) >> 2
    return z.to(tl.int64, bitcast=True)


@triton.jit
def _uniform(seed, counter):
    """A random number in (0, 1], as `Draw.uniform` to float32's precision."""
    return (_expand(seed, counter).to(tl.float32) + 0.5) * 2.168404344971009e-19


@triton.jit
def _happens(seed, counter, probability):
    """True with this probability."""
    return (_uniform(seed, counter) < probability) | (probability >= 1)


@triton.jit
def _draw_gamma(seed, row, gamma_p, gammas):
    """γ of one output: of a tensor, or drawn from `number` to `number + span`."""
    gamma_step, number, span = gammas
    if gamma_p is not None:
        gamma = tl.load(gamma_p + row * gamma_step).to(tl.float32)
    else:
        gamma = number + span * _uniform(seed, GAMMA + row)
    return gamma


@triton.jit
def _draw_rows(seed, row, batch, SOURCES: tl.constexpr, ROWS: tl.constexpr):
    """A batch row for each source, as `sampling.draw_rows` or `rotate_rows`."""
    if ROWS == "rotated":
        rows = (row,)
        if SOURCES > 1:
            rows += ((row + batch - 1 - _expand(seed, row * 0) % (batch - 1)) % batch,)
    else:
        # the digits of a Lehmer code, decoded from the last to the first
        rows = ()
        for step in tl.static_range(SOURCES):
            rank = SOURCES - 1 - step
            digit = row
            if rank > 0 or ROWS == "random":
                digit = _expand(seed, row * SOURCES + rank) % (batch - rank)
            later = rows
            rows = (digit,)
            for k in tl.static_range(step):
                rows += (later[k] + (later[k] >= digit).to(tl.int64),)
    return rows


@triton.jit
def _draw_weights(seed, row, drawn, pasted, gamma_p, gammas, cut, SOURCES, LAW: tl.constexpr):
    """A weight for each source, as `plan._draw_weights` before their sum is 1."""
    if LAW == "zeta":
        gamma = _draw_gamma(seed, row, gamma_p, gammas)
        weights = (gamma * 0.0 + 1.0,)
        for rank in tl.static_range(1, SOURCES):
            weights += (tl.exp2(-gamma * tl.log2(rank + 1.0)),)
    else:
        # λ ~ Beta(α, α) and 1 − λ, as `sampling.draw_lam`, in a form that does not overflow
        alpha = tl.where(pasted, cut, gammas[1])
        radius = _uniform(seed, LAM + 2 * drawn)
        first, second = radius, 1 - radius
        # Beta(1, 1) is the uniform distribution
        if alpha != 1:
            x = 3.141592653589793 * (_uniform(seed, LAM + 2 * drawn + 1) - 0.5)
            # the sine by its series up to x^11, to 6e-8: Triton's takes more registers than all
            # else
            y = x * x
            series = -1.984126984e-4 + y * (2.755731922e-6 - y * 2.505210839e-8)
            sine = x + x * y * (-0.1666666667 + y * (8.333333333e-3 + y * series))
            # with v = u^(1/α), Student's t of `sampling._beta` has t² = sin² · (1 − v) / v
            v = tl.maximum(tl.exp(tl.log(radius) / alpha), 1e-37)
            square = sine * sine * (1 - v)
            smaller = 0.5 * v / ((v + square) * (1 + tl.sqrt_rn(square / (v + square))))
            first = tl.where(sine > 0, 1 - smaller, smaller)
            second = tl.where(sine > 0, smaller, 1 - smaller)
        weights = (first, second)
    return weights


@triton.jit
def _part(seed, counter, length):
    """⌊u · length⌋ with 40 bits of u: float32 would be off by a pixel once in 10⁵ draws."""
    return ((_expand(seed, counter) >> 22) * length) >> 40


@triton.jit
def _span(seed, counter, area, length, BOXES: tl.constexpr):
    """The first pixel of a side and the one behind its last, as `boxes.place_*`."""
    if BOXES == "around":
        middle = _part(seed, counter, length).to(tl.int32)
        reach = (0.5 * tl.sqrt_rn(area) * length).to(tl.int32)
        first = tl.maximum(middle - reach, 0)
        end = tl.minimum(middle + reach, length)
    else:
        side = _round(tl.sqrt_rn(area) * length).to(tl.int32)
        first = _part(seed, counter, length - side + 1).to(tl.int32)
        end = first + side
    return first, end


@triton.jit
def _round(y):
    """Half to even, as torch.round: a sum with 1.5 · 2^23 has no bits for a fraction."""
    return (y + 12582912.0) - 12582912.0


@triton.jit
def _common(a, b, c):
    """The number of pixels that three boxes share."""
    rows = tl.minimum(tl.minimum(a[2], b[2]), c[2]) - tl.maximum(tl.maximum(a[0], b[0]), c[0])
    columns = tl.minimum(tl.minimum(a[3], b[3]), c[3]) - tl.maximum(tl.maximum(a[1], b[1]), c[1])
    return tl.maximum(rows, 0) * tl.maximum(columns, 0)


@triton.jit
def _shares(boxes, size, SOURCES: tl.constexpr):
    """The fractions of pixels that no later box covers, as `boxes.visible_pixels`."""
    shares = ()
    rest = size
    # of the boxes behind the first source, three at most, by inclusion and exclusion
    for i in tl.static_range(SOURCES - 1):
        visible = _common(boxes[i], boxes[i], boxes[i])
        for j in tl.static_range(i + 1, SOURCES - 1):
            visible -= _common(boxes[i], boxes[j], boxes[j])
            for k in tl.static_range(j + 1, SOURCES - 1):
                visible += _common(boxes[i], boxes[j], boxes[k])
        rest -= visible
        shares += (tl.div_rn(visible.to(tl.float32), size * 1.0),)
    # Triton unpacks no tuples
    return (tl.div_rn(rest.to(tl.float32), size * 1.0),) + shares  # noqa: RUF005


@triton.jit
def _draw_plan(seed, row, gamma_p, gammas, options, SOURCES, ROWS, LAW, BOXES: tl.constexpr):
    """A row and a weight for each source, boxes but for the first, and whether it is pasted.

    As `plan.draw_plan`; the boxes are empty where it is blended.
    """
    cut, p, paste, batch, height, width = options
    # λ, the box and the choice to paste are drawn for each output or once
    drawn = row
    if LAW == "batch":
        drawn = row * 0
    mixed = _happens(seed, MIXED + row, p)
    pasted = row < 0
    if BOXES != "none":
        pasted = _happens(seed, PASTED + drawn, paste)
    drawn_rows = _draw_rows(seed, row, batch, SOURCES, ROWS)
    powers = _draw_weights(seed, row, drawn, pasted, gamma_p, gammas, cut, SOURCES, LAW)
    total = powers[0]
    for rank in tl.static_range(1, SOURCES):
        total += powers[rank]
    # an output that is not mixed is its own sample
    pasted = pasted & mixed
    rows = ()
    weights = ()
    for rank in tl.static_range(SOURCES):
        rows += (tl.where(mixed, drawn_rows[rank], row),)
        weights += (tl.where(mixed, powers[rank] / total, 1.0 if rank == 0 else 0.0),)
    boxes = ()
    if BOXES != "none":
        for rank in tl.static_range(1, SOURCES):
            counter = BOX + 2 * (drawn * (SOURCES - 1) + rank - 1)
            top, bottom = _span(seed, counter, weights[rank], height, BOXES)
            left, right = _span(seed, counter + 1, weights[rank], width, BOXES)
            # empty unless it is pasted
            boxes += ((top, left, tl.where(pasted, bottom, top), right),)
        shares = _shares(boxes, height * width, SOURCES)
        blended = weights
        weights = ()
        for rank in tl.static_range(SOURCES):
            weights += (tl.where(pasted, shares[rank], blended[rank]),)
    return rows, weights, boxes, pasted


@triton.jit
def _narrow(y, dtype: tl.constexpr):
    """Convert to the dtype of the input; bytes are rounded to the nearest."""
    if dtype == tl.uint8:
        y = tl.maximum(tl.minimum(_round(y), 255.0), 0.0)
    return y.to(dtype)


@triton.jit
def _blend(xs, weights, mean, SOURCES: tl.constexpr, KEEP: tl.constexpr):
    """The weighted sum, scaled where the variance is kept, as `rules.Blend`."""
    square = weights[0] * weights[0]
    for rank in tl.static_range(1, SOURCES):
        square += weights[rank] * weights[rank]
    scale = tl.div_rn(1.0, tl.sqrt_rn(square)) if KEEP else square * 0.0 + 1.0
    blend = (weights[0] * scale) * xs[0].to(tl.float32)
    for rank in tl.static_range(1, SOURCES):
        blend += (weights[rank] * scale) * xs[rank].to(tl.float32)
    if mean is not None:
        blend += mean * (1 - scale)
        # bytes are clipped when they are rounded
        if xs[0].dtype != tl.uint8:
            blend = tl.maximum(tl.minimum(blend, 1.0), 0.0)
    return _narrow(blend, xs[0].dtype)


@triton.jit
def _cover(xs, boxes, starts, height, line, pixel, SOURCES, CHUNK: tl.constexpr):
    """The first source under the boxes of the others, as `reference.paste`.

    Lines are found once for each chunk, which lies in one.
    """
    y = starts // line
    column = starts - y * line
    y = y % height
    numbers = tl.arange(0, CHUNK)[None, :]
    covered = xs[0]
    for rank in tl.static_range(1, SOURCES):
        top, left, bottom, right = boxes[rank - 1]
        end = tl.where((y >= top) & (y < bottom), right * pixel - column, 0)
        covered = tl.where((numbers >= left * pixel - column) & (numbers < end), xs[rank], covered)
    return covered


@triton.jit
def _choose_mean(starts, d, features, MEANS: tl.constexpr, LAST: tl.constexpr):
    """The mean of each number: none, one for all, one for each number, or one for each chunk."""
    mean = None
    if len(MEANS) > 0:
        mean = MEANS[0]
    if len(MEANS) > 1:
        k = d % len(MEANS) if LAST else starts // (features // len(MEANS))
        for c in tl.static_range(1, len(MEANS)):
            mean = tl.where(k == c, MEANS[c], mean)
    return mean


@triton.jit
def _is_label(label, classes, ignore):
    good = (label >= 0) & (label < classes)
    if ignore is not None:
        good = good | (label == ignore)
    return good


@triton.jit
def _store_target(targets_p, labels_p, row, rows, weights, classes, ignore, SOURCES, CLASS_BLOCK):
    """The weight of each class."""
    labels = ()
    good = row >= 0
    for rank in tl.static_range(SOURCES):
        label = tl.load(labels_p + rows[rank]).to(tl.int64)
        good = good & _is_label(label, classes, ignore)
        labels += (label,)
    tl.device_assert(good, WRONG_LABEL)
    # should assertions be compiled out, a wrong label must still not pass as a target
    nothing = tl.where(good, 0.0, float("nan"))
    for first in range(0, classes, CLASS_BLOCK):
        names = first + tl.arange(0, CLASS_BLOCK)
        target = tl.zeros([CLASS_BLOCK], tl.float32) + nothing
        for rank in tl.static_range(SOURCES):
            hits = names == labels[rank]
            if ignore is not None:
                hits = hits & (names != ignore)
            target += tl.where(hits, weights[rank], 0.0)
        tl.store(targets_p + row * classes + names, target, mask=names < classes)


# not specialised for the values of numbers: no kernel is compiled for an image size
@triton.jit(
    debug=True,
    do_not_specialize=[
        *("gamma_step", "offset", "classes", "ignore", "batch"),
        *("height", "width", "pixel"),
    ],
)
def mix_kernel(
    rows_p,
    out_p,
    labels_p,
    targets_p,
    seed_p,
    gamma_p,
    gamma_step: tl.int32,
    offset: tl.int64,
    number,
    span,
    p,
    cut,
    paste,
    classes: tl.int32,
    ignore,
    batch: tl.int32,
    features: tl.int32,
    height: tl.int32,
    width: tl.int32,
    pixel: tl.int32,
    SOURCES: tl.constexpr,
    ROWS: tl.constexpr,
    LAW: tl.constexpr,
    BOXES: tl.constexpr,
    KEEP: tl.constexpr,
    MEANS: tl.constexpr,
    LAST: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
):
    """Mix one tile of one output, and with the first tile its target.

    gamma_p: a tensor of γ. number, span: γ and 0, or the range of γ, or α. cut: α of CutMix's
    boxes. height, width: of the images. pixel: numbers of a pixel side by side in memory: 1, or the
    channels where they come last (LAST).
    ROWS: "self" or "random", of the anchor, or "rotated". LAW: "zeta", or for λ "sample" or
    "batch". BOXES: "none", "inside" or "around". MEANS: none, one, or one for each channel. BLOCK,
    CHUNK: numbers of a tile and of its parts, which do not leave their line and channel.
    """
    row = (tl.program_id(0) % batch).to(tl.int64)
    tile = tl.program_id(0) // batch
    starts = tile * BLOCK + tl.arange(0, BLOCK // CHUNK)[:, None] * CHUNK
    d = starts + tl.arange(0, CHUNK)[None, :]
    inside = d < features
    if ROWS != "random":
        # the anchor needs no random number: its samples are loaded while the plan is drawn
        x0 = tl.load(rows_p + row * features + d, mask=inside, other=0.0)
    seed = tl.load(seed_p) + offset
    gammas = (gamma_step, number, span)
    options = (cut, p, paste, batch, height, width)
    rows, weights, boxes, pasted = _draw_plan(
        seed, row, gamma_p, gammas, options, SOURCES, ROWS, LAW, BOXES
    )
    if ROWS == "random":
        x0 = tl.load(rows_p + rows[0] * features + d, mask=inside, other=0.0)
    xs = (x0,)
    for rank in tl.static_range(1, SOURCES):
        xs += (tl.load(rows_p + rows[rank] * features + d, mask=inside, other=0.0),)
    mean = _choose_mean(starts, d, features, MEANS, LAST)
    if BOXES != "none":
        if pasted:
            y = _cover(xs, boxes, starts, height, width * pixel, pixel, SOURCES, CHUNK)
        else:
            y = _blend(xs, weights, mean, SOURCES, KEEP)
    else:
        y = _blend(xs, weights, mean, SOURCES, KEEP)
    tl.store(out_p + row * features + d, y, mask=inside)
    if tile == 0:
        _store_target(
            targets_p, labels_p, row, rows, weights, classes, ignore, SOURCES, CLASS_BLOCK
        )


@triton.jit(
    debug=True,
    do_not_specialize=["gamma_step", "offset", "classes", "ignore", "batch", "sources"],
)
def matrix_kernel(
    matrix_p,
    labels_p,
    targets_p,
    seed_p,
    gamma_p,
    gamma_step: tl.int32,
    offset: tl.int64,
    number,
    span,
    p,
    classes: tl.int32,
    ignore,
    batch: tl.int32,
    sources: tl.int32,
    SELF: tl.constexpr,
    DIGITS: tl.constexpr,
    BLOCK: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
):
    """One row of the matrix of weights of ζ-mixup, which holds zeros where DIGITS, and its target.

    DIGITS: whether rows are drawn as digits, one for each source, or by sorting keys of the batch.
    SELF: whether row k begins with sample k.
    """
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    seed = tl.load(seed_p) + offset
    if DIGITS:
        # decoded as in `sampling.draw_rows`
        order = (_expand(seed, row * sources + cols) % tl.maximum(batch - cols, 1)).to(tl.int32)
        if SELF:
            order = tl.where(cols == 0, row.to(tl.int32), order)
        for step in range(1, sources):
            rank = sources - 1 - step
            chosen = tl.sum(tl.where(cols == rank, order, 0), 0)
            order += ((cols > rank) & (order >= chosen)).to(tl.int32)
    else:
        # the lowest bits of a key are replaced by the column, so that sorting keeps it
        keys = (_expand(seed, row * batch + cols) & -BLOCK) | cols
        if SELF:
            keys = tl.where(cols == row, (cols * 0).to(tl.int64) + (1 << 62) + cols, keys)
        # padding sorts behind everything
        keys = tl.where(cols < batch, keys, cols.to(tl.int64) - BLOCK)
        order = (tl.sort(keys, descending=True) & (BLOCK - 1)).to(tl.int32)
    gamma = _draw_gamma(seed, row, gamma_p, (gamma_step, number, span))
    power = tl.exp2(-gamma * tl.log2((cols + 1).to(tl.float32)))
    power = tl.where(cols < sources, power, 0.0)
    share = power / tl.sum(power, 0)
    # an output that is not mixed is its own sample
    mixed = _happens(seed, MIXED + row, p)
    order = tl.where(mixed, order, ((row + cols) % batch).to(tl.int32))
    share = tl.where(mixed, share, tl.where(cols == 0, 1.0, 0.0))
    valid = cols < sources if DIGITS else cols < batch
    weight = share.to(matrix_p.dtype.element_ty)
    tl.store(matrix_p + row * batch + order, weight, mask=valid)
    label = tl.load(labels_p + order, mask=valid, other=0).to(tl.int64)
    good = _is_label(label, classes, ignore)
    tl.device_assert(good, WRONG_LABEL)
    # should assertions be compiled out, a wrong label must still not pass as a target
    share = tl.where(tl.min(good.to(tl.int32), 0) == 1, share, float("nan"))
    for first in range(0, classes, CLASS_BLOCK):
        names = first + tl.arange(0, CLASS_BLOCK)
        hits = label[None, :] == names[:, None]
        if ignore is not None:
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
def _halves(x):
    """Two bfloat16 numbers whose sum is x, to 16 bits."""
    x = x.to(tl.float32)
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit(do_not_specialize=["batch"])
def product_kernel(
    matrix_p,
    rows_p,
    out_p,
    batch: tl.int32,
    features: tl.int32,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = matrix @ rows, in bfloat16 halves on the tensor cores, summed in float32.

    With the matrix as H + L and the rows as h + l this is H·h + H·l + L·h. What is left out is
    below 2^-17 of each term: 2.5e-6 of the norm.
    """
    groups = tl.cdiv(batch, BLOCK_OUT)
    # neighbouring programs share a tile of the rows, so that all but one read it from L2
    m = (tl.program_id(0) % groups) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    d = (tl.program_id(0) // groups) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK_OUT, BLOCK], tl.float32)
    for start in range(0, batch, BLOCK_IN):
        k = start + tl.arange(0, BLOCK_IN)
        here = (m < batch)[:, None] & (k < batch)[None, :]
        weights = tl.load(matrix_p + m[:, None] * batch + k[None, :], mask=here, other=0.0)
        high, low = _halves(weights)
        here = (k < batch)[:, None] & (d < features)[None, :]
        into = k[:, None].to(tl.int64) * features
        x_high, x_low = _halves(tl.load(rows_p + into + d[None, :], mask=here, other=0.0))
        # bytes are exact in bfloat16
        if rows_p.dtype.element_ty != tl.uint8:
            acc = _dot(high, x_low, acc)
        acc = _dot(low, x_high, acc)
        acc = _dot(high, x_high, acc)
    y = _narrow(acc, out_p.dtype.element_ty)
    here = (m < batch)[:, None] & (d < features)[None, :]
    tl.store(out_p + m[:, None].to(tl.int64) * features + d[None, :], y, mask=here)
