"""Boxes: the parts of an image that are pasted from a source, as CutMix does.

A box is (top, left, bottom, right) in pixels, int64; bottom and right are exclusive, and a box that
covers no pixel is empty. Sizes are (height, width). No function synchronises with the device.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor

Size: TypeAlias = tuple[int, int]


def check_size(size: Any) -> Size:
    is_pair = isinstance(size, (tuple, list)) and len(size) == 2
    if not is_pair or any(type(length) is bool or length < 1 for length in size):
        raise ValueError(f"size must be the (height, width) of the images to paste, got {size}.")
    return size[0], size[1]


def place_inside(areas: Tensor, uniform: Tensor, size: Size) -> Tensor:
    """Boxes [..., 4] for areas [...] as fractions of the image, placed uniformly inside it.

    The sides are √area times those of the image, rounded. uniform: [..., 2], numbers in [0, 1].
    """
    # filled on the device: a CUDA graph cannot capture a copy from the host
    lengths = torch.stack([areas.new_full((), size[0]), areas.new_full((), size[1])])
    sides = (areas.sqrt().unsqueeze(-1) * lengths).round_()
    room = lengths - sides
    # a uniform number can be rounded to 1
    first = torch.minimum((uniform * (room + 1)).floor_(), room)
    return torch.cat([first, first + sides], -1).long()


def place_around(areas: Tensor, uniform: Tensor, size: Size) -> Tensor:
    """Boxes [..., 4] as torchvision's CutMix places them, for areas [...] as image fractions.

    The centre is uniform in the image; half a side, √area / 2 of the image's, is rounded down, and
    boxes are clipped at the border. In float32, as in a kernel. uniform: [..., 2], in [0, 1].
    """
    edges, half = [], 0.5 * areas.float().sqrt()
    for length, position in zip(size, uniform.unbind(-1), strict=True):
        middle, reach = (position * length).floor(), (half * length).floor()
        edges += [(middle - reach).clamp_min(0), (middle + reach).clamp_max(length)]
    top, bottom, left, right = edges
    return torch.stack([top, left, bottom, right], -1).long()


def with_whole(boxes: Tensor, size: Size) -> Tensor:
    """Boxes [outputs, sources − 1, 4] behind a first one that is the whole image."""
    first = torch.zeros_like(boxes[:, :1])
    # filled on the device: a CUDA graph cannot capture a copy from the host
    first[..., 2].fill_(size[0])
    first[..., 3].fill_(size[1])
    return torch.cat([first, boxes], 1)


def covers(boxes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Whether boxes [outputs, 4] cover the pixels in these rows and columns of each output."""
    top, left, bottom, right = boxes[..., None].unbind(1)
    in_rows = (rows >= top) & (rows < bottom)
    in_columns = (columns >= left) & (columns < right)
    return in_rows[:, :, None] & in_columns[:, None, :]


def visible_pixels(boxes: Tensor, size: Size) -> Tensor:
    """[outputs, sources]: the number of pixels where a source's box is not covered by later ones.

    The first box is the whole image.
    """
    if boxes.shape[1] == 2:
        sides = boxes[:, 1, 2:] - boxes[:, 1, :2]
        pixels = sides[:, 0] * sides[:, 1]
        return torch.stack([size[0] * size[1] - pixels, pixels], 1)
    # the edges of the boxes divide the image into cells that are covered as a whole or not at all
    rows = _grid_lines(boxes[..., ::2].flatten(1), size[0])
    columns = _grid_lines(boxes[..., 1::2].flatten(1), size[1])
    pixels = rows.diff()[:, :, None] * columns.diff()[:, None, :]
    counts = []
    for source in reversed(range(boxes.shape[1])):
        covered = covers(boxes[:, source], rows[:, :-1], columns[:, :-1])
        counts.append((pixels * covered).sum((1, 2)))
        pixels = pixels * ~covered
    return torch.stack(counts[::-1], 1)


def _grid_lines(edges: Tensor, length: int) -> Tensor:
    """Edges [outputs, n], sorted, or every row (column) if the image has fewer of them."""
    if edges.shape[1] <= length:
        return edges.sort(1).values
    return torch.arange(length + 1, device=edges.device).expand(edges.shape[0], -1)
