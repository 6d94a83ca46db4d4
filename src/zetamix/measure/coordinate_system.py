"""Coordinates in the space that points span: as many numbers as there are points, not pixels."""

from collections.abc import Callable

import torch
from torch import Tensor

from zetamix._checks import check_number, check_tensor
from zetamix.measure.neighbours import FLOAT64, blocks, check_finite

# squared distances below this share of the largest square may be rounding: duplicates are told
# apart by looking at the points themselves
ROUNDING = 1e-10
# a direction with less than this share of the largest variance is rounding too
NOTHING = 1e-13


def coordinates(
    points: Tensor, *, memory_gb: float = 1.0, watch: Callable[[int, int], None] | None = None
) -> Tensor:
    """Coordinates [n, rank] of `points` [n, ...] around their mean, float32.

    All distances stay what they are, and those between mixtures too: a sum of coordinates with
    weights that sum to 1 is as far from another one as the same sums of points are. 169 photos of
    150,528 numbers become 169 rows of 168. Points that are equal stay equal to the last bit.

    memory_gb: what may be used beside the points and the n × n products of all of them.
    watch: called with how many of the numbers of a point are done, and how many there are.

    >>> corners = torch.eye(3).repeat_interleave(1000, dim=1)
    >>> coordinates(corners).shape, torch.pdist(coordinates(corners)).square().round()
    (torch.Size([3, 2]), tensor([2000., 2000., 2000.]))
    """
    check_tensor("points", points)
    check_number("memory_gb", memory_gb, low=0.01)
    flat = points.detach().flatten(1)
    products = _products(flat, memory_gb * 1e9, watch)
    check_finite(products)
    values, vectors = torch.linalg.eigh(products)
    known = values > NOTHING * values[-1]
    known[-1] = True  # where all points are one
    found = (vectors[:, known] * values[known].clamp_min(0).sqrt()).float()
    return _equalise(found, flat, products)


def _products(flat: Tensor, memory: float, watch: Callable[[int, int], None] | None) -> Tensor:
    """Inner products [n, n] around the mean; every number is converted to float64 once."""
    count, features = flat.shape
    found = flat.new_zeros(count, count, dtype=torch.float64)
    for part in blocks(features, max(1, int(memory / (3 * FLOAT64 * count)))):
        piece = flat[:, part].double()
        piece -= piece.mean(0)
        found.addmm_(piece, piece.T)
        if watch is not None:
            watch(part.stop, features)
    return found


def _equalise(found: Tensor, flat: Tensor, products: Tensor) -> Tensor:
    """Give every duplicate the coordinates of the first point that is the same."""
    squares = products.diagonal()
    apart = squares + squares.unsqueeze(1) - 2 * products
    first = (apart <= ROUNDING * squares.amax()).int().argmax(1).tolist()
    for place, same in enumerate(first):
        if same != place and torch.equal(flat[place], flat[same]):
            found[place] = found[same]
    return found
