"""The Triton kernel for up to four sources: draw the plan, mix samples and labels in one launch.

Every program draws the plan of its output itself, from the same random number: a few dozen integer
operations, while its loads are in flight. Neighbouring programs mix the same columns of different
outputs, so that a row is read from memory once and then from L2.

`sampling.py`, `plan.py` and `rules.py` are the specification, to float32's precision.
"""

import triton
import triton.language as tl

from zetamix.kernels.triton_kernels import (
    BOX,
    MIXED,
    PASTED,
    expand,
    gamma_of,
    lam_of,
    narrow,
    uniform,
)


@triton.jit
def _draw_rows(seed, row, batch, SOURCES: tl.constexpr, SELF: tl.constexpr):
    """Four batch rows, of which SOURCES count, as `sampling._order_by_digits`."""
    first = row * SOURCES
    if SELF:
        a = row % batch
    else:
        a = expand(seed, first) % batch
    b = a
    c = a
    d = a
    if SOURCES > 1:
        b = expand(seed, first + 1) % (batch - 1)
    if SOURCES > 2:
        c = expand(seed, first + 2) % (batch - 2)
    if SOURCES > 3:
        d = expand(seed, first + 3) % (batch - 3)
        d += (d >= c).to(tl.int64)
    if SOURCES > 2:
        c += (c >= b).to(tl.int64)
        d += (d >= b).to(tl.int64)
    if SOURCES > 1:
        b += (b >= a).to(tl.int64)
        c += (c >= a).to(tl.int64)
        d += (d >= a).to(tl.int64)
    return a, b, c, d


@triton.jit
def _draw_weights(
    seed,
    row,
    gamma_p,
    number,
    span,
    SOURCES: tl.constexpr,
    LAW: tl.constexpr,
    GAMMA_KIND: tl.constexpr,
):
    """Four weights, of which SOURCES are not 0, as `plan._draw_weights`."""
    if LAW == "zeta":
        gamma = gamma_of(seed, row, gamma_p, number, span, GAMMA_KIND)
        # rank ** -γ
        second = tl.exp2(-gamma)
        third = tl.exp2(-gamma * 1.584962500721156)
        fourth = tl.exp2(-gamma * 2.0)
        first = second * 0.0 + 1.0
    else:
        drawn = row
        if LAW == "uniform, one" or LAW == "beta, one":
            drawn = row * 0
        first = lam_of(seed, drawn, number, LAW == "uniform" or LAW == "uniform, one")
        second = 1 - first
        third = first * 0.0
        fourth = third
    if SOURCES < 2:
        second = first * 0.0
    if SOURCES < 3:
        third = first * 0.0
    if SOURCES < 4:
        fourth = first * 0.0
    total = first + second + third + fourth
    return first / total, second / total, third / total, fourth / total


@triton.jit
def _place(seed, counter, area, LENGTH: tl.constexpr):
    """The first pixel of a side and the one behind its last, as `boxes.place_inside`."""
    # half to even, as torch.round: see `narrow`
    side = ((tl.sqrt_rn(area) * LENGTH + 12582912.0) - 12582912.0).to(tl.int64)
    # ⌊u · places⌋ with 40 bits of u: float32 would be off by a pixel once in 10⁵ draws
    first = ((expand(seed, counter) >> 22) * (LENGTH - side + 1)) >> 40
    return first.to(tl.int32), (first + side).to(tl.int32)


@triton.jit
def _draw_box(
    seed,
    row,
    weight,
    pasted,
    RANK: tl.constexpr,
    SOURCES: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """(top, left, bottom, right) of a source, as `plan.paste_plan`; empty unless it is pasted."""
    top = (row * 0).to(tl.int32)
    left = top
    bottom = top
    right = top
    if RANK < SOURCES and HEIGHT > 0:
        counter = BOX + 2 * (row * (SOURCES - 1) + RANK - 1)
        top, bottom = _place(seed, counter, weight, HEIGHT)
        left, right = _place(seed, counter + 1, weight, WIDTH)
        top = tl.where(pasted, top, 0)
        left = tl.where(pasted, left, 0)
        bottom = tl.where(pasted, bottom, 0)
        right = tl.where(pasted, right, 0)
    return top, left, bottom, right


@triton.jit
def _overlap(a, b):
    """The box that two boxes share, empty where they are apart."""
    top = tl.maximum(a[0], b[0])
    left = tl.maximum(a[1], b[1])
    return (
        top,
        left,
        tl.maximum(tl.minimum(a[2], b[2]), top),
        tl.maximum(tl.minimum(a[3], b[3]), left),
    )


@triton.jit
def _pixels(box):
    return (box[2] - box[0]) * (box[3] - box[1])


@triton.jit
def _share(pasted, pixels, weight, SIZE: tl.constexpr):
    return tl.where(pasted, tl.div_rn(pixels.to(tl.float32), SIZE * 1.0), weight)


@triton.jit
def _pixel_shares(weights, boxes, pasted, SIZE: tl.constexpr):
    """The weights of pasted outputs: pixels that no later box covers, as `boxes.visible_pixels`."""
    first, second, third = boxes
    both = _overlap(first, second)
    # by inclusion and exclusion
    n3 = _pixels(third)
    n2 = _pixels(second) - _pixels(_overlap(second, third))
    n1 = _pixels(first) - _pixels(both) - _pixels(_overlap(first, third))
    n1 += _pixels(_overlap(both, third))
    w0 = _share(pasted, SIZE - n1 - n2 - n3, weights[0], SIZE)
    w1 = _share(pasted, n1, weights[1], SIZE)
    w2 = _share(pasted, n2, weights[2], SIZE)
    return w0, w1, w2, _share(pasted, n3, weights[3], SIZE)


@triton.jit
def _draw_plan(
    seed,
    row,
    gamma_p,
    number,
    span,
    p,
    paste,
    batch,
    SOURCES: tl.constexpr,
    LAW: tl.constexpr,
    GAMMA_KIND: tl.constexpr,
    SELF: tl.constexpr,
    MIXES_ALL: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Four rows, four weights, three boxes and whether it is pasted, as `plan.draw_finished`."""
    rows = _draw_rows(seed, row, batch, SOURCES, SELF)
    weights = _draw_weights(seed, row, gamma_p, number, span, SOURCES, LAW, GAMMA_KIND)
    pasted = row < 0
    if HEIGHT > 0:
        pasted = uniform(seed, PASTED + row) < paste
    if not MIXES_ALL:
        mixed = uniform(seed, MIXED + row) < p
        pasted = pasted & mixed
        rows = _where(mixed, rows, row % batch, row % batch)
        weights = _where(mixed, weights, 1.0, 0.0)
    boxes = (
        _draw_box(seed, row, weights[1], pasted, 1, SOURCES, HEIGHT, WIDTH),
        _draw_box(seed, row, weights[2], pasted, 2, SOURCES, HEIGHT, WIDTH),
        _draw_box(seed, row, weights[3], pasted, 3, SOURCES, HEIGHT, WIDTH),
    )
    if HEIGHT > 0:
        weights = _pixel_shares(weights, boxes, pasted, HEIGHT * WIDTH)
    return rows, weights, boxes, pasted


@triton.jit
def _where(condition, four, first, others):
    """The four numbers where the condition holds, else `first` and three times `others`."""
    a = tl.where(condition, four[0], first)
    b = tl.where(condition, four[1], others)
    return a, b, tl.where(condition, four[2], others), tl.where(condition, four[3], others)


@triton.jit
def _store_plan(
    indices_p,
    weights_p,
    boxes_p,
    row,
    rows,
    weights,
    boxes,
    pasted,
    SOURCES: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    for rank in tl.static_range(SOURCES):
        tl.store(indices_p + row * SOURCES + rank, rows[rank])
        tl.store(weights_p + row * SOURCES + rank, weights[rank])
    if HEIGHT > 0:
        boxes_p += row * SOURCES * 4
        tl.store(boxes_p, row * 0)
        tl.store(boxes_p + 1, row * 0)
        tl.store(boxes_p + 2, pasted.to(tl.int64) * HEIGHT)
        tl.store(boxes_p + 3, pasted.to(tl.int64) * WIDTH)
        for rank in tl.static_range(1, SOURCES):
            for corner in tl.static_range(4):
                tl.store(boxes_p + 4 * rank + corner, boxes[rank - 1][corner].to(tl.int64))


@triton.jit
def _blend(
    xs,
    weights,
    mean,
    SOURCES: tl.constexpr,
    KEEP: tl.constexpr,
    CHANNELS: tl.constexpr,
    MODE: tl.constexpr,
):
    """The weighted sum, scaled where the variance is kept, as `rules.Blend`."""
    w0, w1, w2, w3 = weights
    scale = w0 * 0.0 + 1.0
    if KEEP:
        scale = tl.div_rn(1.0, tl.sqrt_rn(w0 * w0 + w1 * w1 + w2 * w2 + w3 * w3))
    blend = (w0 * scale) * xs[0].to(tl.float32)
    for rank in tl.static_range(1, SOURCES):
        blend += (weights[rank] * scale) * xs[rank].to(tl.float32)
    if CHANNELS > 0:
        blend += mean * (1 - scale)
        # bytes are clipped when they are rounded
        if MODE != "bytes":
            blend = tl.maximum(tl.minimum(blend, 1.0), 0.0)
    return narrow(blend, MODE, xs[0].dtype)


@triton.jit
def _cover(
    xs,
    boxes,
    chunks,
    SOURCES: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    PIXEL: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The first source under the boxes of the others, as `reference.paste`."""
    # a chunk lies in one line of one channel, so that lines are found once for each
    line = (chunks * CHUNK) // (WIDTH * PIXEL)
    column = chunks * CHUNK - line * (WIDTH * PIXEL)
    y = line % HEIGHT
    numbers = tl.arange(0, CHUNK)[None, :]
    covered = xs[0]
    for rank in tl.static_range(1, SOURCES):
        top, left, bottom, right = boxes[rank - 1]
        crosses = (y >= top) & (y < bottom)
        first = left * PIXEL - column
        end = tl.where(crosses, right * PIXEL - column, 0)
        covered = tl.where((numbers >= first) & (numbers < end), xs[rank], covered)
    return covered


@triton.jit
def _choose_mean(
    means,
    chunks,
    CHANNEL: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The mean of each number: one for all, one for each chunk, or one for each number."""
    if CHANNELS <= 1:
        mean = means[0]
    else:
        d = chunks * CHUNK
        if CHANNEL % CHUNK != 0:
            d += tl.arange(0, CHUNK)[None, :]
        channel = (d // CHANNEL) % CHANNELS
        mean = tl.where(channel == 0, means[0], means[1])
        if CHANNELS > 2:
            mean = tl.where(channel == 2, means[2], mean)
        if CHANNELS > 3:
            mean = tl.where(channel == 3, means[3], mean)
    return mean


@triton.jit
def _store_target(
    targets_p,
    labels_p,
    row,
    rows,
    weights,
    classes,
    ignore,
    SOURCES: tl.constexpr,
    IGNORE: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
):
    """The weight of each class."""
    labels = (
        tl.load(labels_p + rows[0]).to(tl.int64),
        tl.load(labels_p + rows[1]).to(tl.int64),
        tl.load(labels_p + rows[2]).to(tl.int64),
        tl.load(labels_p + rows[3]).to(tl.int64),
    )
    all_good = row >= 0
    for rank in tl.static_range(SOURCES):
        good = (labels[rank] >= 0) & (labels[rank] < classes)
        if IGNORE:
            good = good | (labels[rank] == ignore)
        all_good = all_good & good
    tl.device_assert(all_good, "labels must lie in [0, num_classes). Is num_classes right?")
    # should assertions be compiled out, a wrong label must still not pass as a target
    nothing = tl.where(all_good, 0.0, float("nan"))
    for first in range(0, classes, CLASS_BLOCK):
        names = first + tl.arange(0, CLASS_BLOCK)
        target = tl.zeros([CLASS_BLOCK], tl.float32) + nothing
        for rank in tl.static_range(SOURCES):
            hits = names == labels[rank]
            if IGNORE:
                hits = hits & (names != ignore)
            target += tl.where(hits, weights[rank], 0.0)
        tl.store(targets_p + row * classes + names, target, mask=names < classes)


@triton.jit(debug=True)
def few_kernel(
    rows_p,
    out_p,
    labels_p,
    targets_p,
    indices_p,
    weights_p,
    boxes_p,
    seed_p,
    gamma_p,
    offset,
    number,
    span,
    p,
    paste,
    mean0,
    mean1,
    mean2,
    mean3,
    batch,
    outputs,
    features,
    classes,
    ignore,
    SOURCES: tl.constexpr,
    LAW: tl.constexpr,
    GAMMA_KIND: tl.constexpr,
    SELF: tl.constexpr,
    MIXES_ALL: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    PIXEL: tl.constexpr,
    CHANNEL: tl.constexpr,
    CHANNELS: tl.constexpr,
    KEEP: tl.constexpr,
    PLAN: tl.constexpr,
    IGNORE: tl.constexpr,
    MODE: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    CLASS_BLOCK: tl.constexpr,
):
    """Mix one tile of one output, and with the first tile its target; or write its PLAN.

    LAW: "zeta", or for mixup "beta" or "uniform" (α = 1), with ", one" for one λ in all outputs.
    MIXES_ALL: p is 1. HEIGHT, WIDTH: of the images, where some are pasted, else 0.
    PIXEL: numbers of a pixel side by side in memory: 1, or the channels where they come last.
    CHANNEL: numbers of a channel side by side. CHANNELS: how many means there are, 0 for none.
    BLOCK, CHUNK: numbers of a tile, and of its parts, none of which leaves a line of an image.
    """
    row = (tl.program_id(0) % outputs).to(tl.int64)
    tile = tl.program_id(0) // outputs
    chunks = tile * (BLOCK // CHUNK) + tl.arange(0, BLOCK // CHUNK)[:, None]
    d = chunks * CHUNK + tl.arange(0, CHUNK)[None, :]
    inside = d < features
    if SELF and not PLAN:
        # the anchor needs no random number: its samples are loaded while the plan is drawn
        x0 = tl.load(rows_p + (row % batch) * features + d, mask=inside, other=0.0)
    rows, weights, boxes, pasted = _draw_plan(
        tl.load(seed_p) + offset,
        row,
        gamma_p,
        number,
        span,
        p,
        paste,
        batch,
        SOURCES,
        LAW,
        GAMMA_KIND,
        SELF,
        MIXES_ALL,
        HEIGHT,
        WIDTH,
    )
    if PLAN:
        _store_plan(
            indices_p,
            weights_p,
            boxes_p,
            row,
            rows,
            weights,
            boxes,
            pasted,
            SOURCES,
            HEIGHT,
            WIDTH,
        )
    else:
        if not SELF:
            x0 = tl.load(rows_p + rows[0] * features + d, mask=inside, other=0.0)
        x1 = x0
        x2 = x0
        x3 = x0
        if SOURCES > 1:
            x1 = tl.load(rows_p + rows[1] * features + d, mask=inside, other=0.0)
        if SOURCES > 2:
            x2 = tl.load(rows_p + rows[2] * features + d, mask=inside, other=0.0)
        if SOURCES > 3:
            x3 = tl.load(rows_p + rows[3] * features + d, mask=inside, other=0.0)
        xs = (x0, x1, x2, x3)
        mean = _choose_mean((mean0, mean1, mean2, mean3), chunks, CHANNEL, CHANNELS, CHUNK)
        if HEIGHT > 0:
            if pasted:
                y = _cover(xs, boxes, chunks, SOURCES, HEIGHT, WIDTH, PIXEL, CHUNK)
            else:
                y = _blend(xs, weights, mean, SOURCES, KEEP, CHANNELS, MODE)
        else:
            y = _blend(xs, weights, mean, SOURCES, KEEP, CHANNELS, MODE)
        tl.store(out_p + row * features + d, y, mask=inside)
        if tile == 0:
            _store_target(
                targets_p,
                labels_p,
                row,
                rows,
                weights,
                classes,
                ignore,
                SOURCES,
                IGNORE,
                CLASS_BLOCK,
            )
