"""Pasting on a CPU: the pixels of every box are copied, and no others are touched."""

from functools import lru_cache

import torch
from torch import Tensor

# weights that sum a sample with itself to exactly that sample
PARTS = {1: (1.0,), 2: (0.5, 0.5), 3: (0.5, 0.25, 0.25), 4: (0.25, 0.25, 0.25, 0.25)}


def fills_image(boxes: Tensor, height: int, width: int) -> Tensor:
    """[outputs], bool: where boxes [outputs, 4] cover the whole image."""
    top, left, bottom, right = boxes.unbind(1)
    return (bottom - top == height) & (right - left == width)


def blend_alone(alone: Tensor, indices: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The same plan of few sources, but these outputs are their first source."""
    outputs = alone[:, None]
    parts = _parts(indices.shape[1], weights.dtype)
    return torch.where(outputs, indices[:, :1], indices), torch.where(outputs, parts, weights)


@lru_cache(maxsize=16)
def _parts(sources: int, dtype: torch.dtype) -> Tensor:
    return torch.tensor(PARTS[sources], dtype=dtype, device="cpu")


def paste(
    mixed: Tensor, samples: Tensor, indices: Tensor, boxes: Tensor, alone: Tensor | None = None
) -> Tensor:
    """As `reference.paste`, but into `mixed` itself, which must not be anyone else's.

    alone: [outputs], bool: outputs that hold their first source already.

    One copy per box moves less memory than masks of whole images do (2 cores, 64 × 3 × 224², one
    box of a quarter of the image each: 1.6 ms against 128).
    """
    covers = (boxes[..., 2:] > boxes[..., :2]).all(-1)
    if alone is not None:
        covers[:, 0] &= ~alone
    # in the order of sources: later ones over earlier ones
    outputs, ranks = covers.nonzero(as_tuple=True)
    top, left, bottom, right = boxes[outputs, ranks].unbind(1)
    into = _offsets(mixed, outputs, top, left)
    out_of = _offsets(samples, indices[outputs, ranks], top, left)
    inner, in_strides, out_strides = mixed.shape[1:-2], mixed.stride()[1:], samples.stride()[1:]
    sizes = (bottom - top).tolist(), (right - left).tolist()
    # a view by its strides is one call, slices would be four (64 boxes: 0.33 ms against 0.50)
    for target, source, height, width in zip(into, out_of, *sizes, strict=True):
        shape = (*inner, height, width)
        pixels = samples.as_strided(shape, out_strides, source)
        mixed.as_strided(shape, in_strides, target).copy_(pixels)
    return mixed


def _offsets(tensor: Tensor, rows: Tensor, top: Tensor, left: Tensor) -> list[int]:
    """Where the first number of each box is in memory."""
    by_row, *_, by_line, by_column = tensor.stride()
    offsets = rows * by_row + top * by_line + left * by_column
    numbers: list[int] = (offsets + tensor.storage_offset()).tolist()
    return numbers
