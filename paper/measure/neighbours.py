"""Exact nearest neighbours in float64, block by block within a memory limit."""

from collections.abc import Iterator

import torch
from torch import Tensor

FLOAT64 = 8
# squared distances below this fraction of a squared norm lose eight of their sixteen digits in the
# products, and are recomputed from differences
CLOSE = 1e-8


class Cloud:
    """Points `[n, d]` of any dtype, converted to float64 in parts of at most `memory` bytes.

    All points are relative to the first point, or another `origin`. This keeps large offsets out of
    the products, and integers exact: products of pixels are integers, so that equal distances
    compare equal.
    """

    def __init__(self, points: Tensor, memory: float, origin: Tensor | None = None) -> None:
        self.points = points
        self.memory = memory
        self.origin = points[0].double() if origin is None else origin
        self.squares = torch.cat([self.rows(part).square().sum(1) for part in self.parts()])
        if not bool(torch.isfinite(self.squares).all()):
            raise ValueError(
                "points and their squares must be finite, got NaN, infinity or too large numbers. "
                "Remove such points or scale them down."
            )

    def __len__(self) -> int:
        return len(self.points)

    @property
    def features(self) -> int:
        return self.points.shape[1]

    def rows(self, index: Tensor | slice) -> Tensor:
        """The points at `index`, float64, relative to the first one: [*index, d]."""
        return self.points[index].double() - self.origin

    def parts(self) -> Iterator[slice]:
        """All rows, in parts of which three float64 copies fit into memory."""
        return blocks(len(self), max(1, int(self.memory / (3 * FLOAT64 * self.features))))

    def products(self, queries: slice) -> Tensor:
        """Inner products of the points in `queries` with all points, [b, n]."""
        left = self.rows(queries)
        products = left.new_empty(len(left), len(self))
        for part in self.parts():
            torch.mm(left, self.rows(part).T, out=products[:, part])
        return products


def blocks(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def nearest(cloud: Cloud, queries: slice, products: Tensor, count: int) -> Tensor:
    """Indices `[b, count]` of the points nearest to each query, in ascending order.

    A query is not its own neighbour. Ties in distance are broken by index. (In scikit-learn they
    depend on the number of threads: with two instead of one, 45 of the first 1000 digits get other
    neighbours.)
    """
    squares = cloud.squares
    distances = torch.addcmul(squares, products, products.new_tensor(-2.0))
    distances += squares[queries].unsqueeze(1)
    own = torch.arange(queries.start, queries.stop, device=distances.device)
    distances.scatter_(1, own.unsqueeze(1), torch.inf)
    # one more than needed, to detect ties of the last neighbour
    nearest_squares, indices = distances.topk(count + 1, largest=False)
    is_close = nearest_squares < CLOSE * squares[queries].unsqueeze(1)
    close = is_close[:, count - 1].nonzero().squeeze(1)
    if len(close):
        # usually the candidates include all close points: 128 copies of a sample, not 50,000
        exact = _exact_to(cloud, own[close], indices[close])
        squares_close = torch.where(is_close[close], exact, nearest_squares[close])
        distances[close] = distances[close].scatter(1, indices[close], squares_close)
        crowded = is_close[:, count].nonzero().squeeze(1)
        if len(crowded):
            distances[crowded] = _exact(cloud, own[crowded])
        nearest_squares[close], indices[close] = distances[close].topk(count + 1, largest=False)
    tied = nearest_squares[:, count - 1] == nearest_squares[:, count]
    if bool(tied.any()):
        order = distances[tied].sort(dim=1, stable=True).indices
        indices[tied, :count] = order[:, :count]
    return indices[:, :count]


def _exact_to(cloud: Cloud, queries: Tensor, candidates: Tensor) -> Tensor:
    """Squared distances [b, k] of each query to its own candidates [b, k], from differences."""
    squares = cloud.origin.new_empty(candidates.shape)
    size = max(1, int(cloud.memory / (3 * FLOAT64 * candidates.shape[1] * cloud.features)))
    for part in blocks(len(queries), size):
        differences = cloud.points[candidates[part]].double()
        differences -= cloud.points[queries[part]].double().unsqueeze(1)
        squares[part] = differences.square_().sum(2)
    return squares


def _exact(cloud: Cloud, queries: Tensor) -> Tensor:
    """Squared distances [b, n] from differences, each point infinitely far from itself."""
    left = cloud.rows(queries)
    distances = left.new_empty(len(left), len(cloud))
    for part in cloud.parts():
        right = cloud.rows(part)
        distances[:, part] = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square_().scatter_(1, queries.unsqueeze(1), torch.inf)


def distances_to(queries: Cloud, points: Cloud, count: int, *, itself: bool = True) -> Tensor:
    """Distances [n, count] from each of `queries` to the nearest of `points`, in ascending order.

    itself: False if both are the same points, to exclude the distance 0 of a point to itself.
    """
    results = []
    size = max(1, int(queries.memory / (4 * FLOAT64 * (len(points) + 3 * queries.features))))
    for block in blocks(len(queries), size):
        left = queries.rows(block)
        distances = left.new_empty(len(left), len(points))
        for part in points.parts():
            distances[:, part] = torch.cdist(left, points.rows(part))
        if not itself:
            own = torch.arange(block.start, block.stop, device=distances.device)
            distances.scatter_(1, own.unsqueeze(1), torch.inf)
        results.append(distances.topk(count, largest=False).values)
    return torch.cat(results)
