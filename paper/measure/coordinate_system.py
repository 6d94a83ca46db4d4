"""Coordinates in the span of n points: at most n - 1 numbers each, for any number of features."""

from collections.abc import Callable

import torch
from torch import Tensor

from paper.measure.neighbours import FLOAT64, blocks, check_finite
from zetamix.checks import check_number, check_tensor

# squared distances below this fraction of the largest square may be rounding errors: the points
# themselves are compared to find duplicates
ROUNDING = 1e-10
# a direction with less than this fraction of the largest variance is a rounding error as well
MIN_VARIANCE = 1e-13


def coordinates(
    points: Tensor, *, memory_gb: float = 1.0, watch: Callable[[int, int], None] | None = None
) -> Tensor:
    """Coordinates [n, rank] of `points` [n, ...] around their mean, float32.

    Distances are preserved, also between weighted sums whose weights sum to 1, such as mixed
    samples. 169 photos of 150,528 numbers become 169 rows of 168. Equal points have bitwise equal
    coordinates.

    memory_gb: memory limit in addition to the points and their n × n inner products.
    watch: called with the number of features done and the total number.

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
    kept = values > MIN_VARIANCE * values[-1]
    kept[-1] = True  # where all points are equal
    rows = (vectors[:, kept] * values[kept].clamp_min(0).sqrt()).float()
    return _equalise(rows, flat, products)


def _products(flat: Tensor, memory: float, watch: Callable[[int, int], None] | None) -> Tensor:
    """Inner products [n, n] around the mean; features are converted to float64 once."""
    count, features = flat.shape
    products = flat.new_zeros(count, count, dtype=torch.float64)
    for part in blocks(features, max(1, int(memory / (3 * FLOAT64 * count)))):
        piece = flat[:, part].double()
        piece -= piece.mean(0)
        products.addmm_(piece, piece.T)
        if watch is not None:
            watch(part.stop, features)
    return products


def _equalise(rows: Tensor, flat: Tensor, products: Tensor) -> Tensor:
    """Give every duplicate the coordinates of the first point equal to it."""
    squares = products.diagonal()
    distances = squares + squares.unsqueeze(1) - 2 * products
    first = (distances <= ROUNDING * squares.amax()).int().argmax(1).tolist()
    for index, same in enumerate(first):
        if same != index and torch.equal(flat[index], flat[same]):
            rows[index] = rows[same]
    return rows
