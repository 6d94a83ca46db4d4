"""Pasting on a CPU: the pixels of every box are copied, and no others are touched."""

from torch import Tensor


def paste(mixed: Tensor, samples: Tensor, indices: Tensor, boxes: Tensor) -> Tensor:
    """As `reference.paste`, but into `mixed` itself, which must not be anyone else's.

    One copy per box moves less memory than masks of whole images do (2 cores, 64 × 3 × 224², one
    box of a quarter of the image each: 1.6 ms against 128).
    """
    rows = samples.unbind(0)
    for output, sources, corners in zip(
        mixed.unbind(0), indices.tolist(), boxes.tolist(), strict=True
    ):
        for source, (top, left, bottom, right) in zip(sources, corners, strict=True):
            if bottom > top and right > left:
                box = (..., slice(top, bottom), slice(left, right))
                output[box] = rows[source][box]
    return mixed
