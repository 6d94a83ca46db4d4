"""Local intrinsic dimension: the number of directions in which a neighbourhood varies."""

import torch
from torch import Tensor

from zetamix._checks import check_count, check_number, check_tensor
from zetamix.measure.eigenvalue_count import count_above
from zetamix.measure.neighbours import FLOAT64, Cloud, blocks, nearest

# a neighbourhood smaller than this, relative to its distance from the origin, in squares, is
# computed from differences of points: inner products keep about ten digits of its eigenvalues at
# this size, and fewer below
TIGHT = 0.01


def local_dimension(
    points: Tensor,
    neighbours: int = 128,
    *,
    eigenvalue_ratio: float = 0.05,
    memory_gb: float = 1.0,
    device: torch.device | str | None = None,
) -> Tensor:
    """The local intrinsic dimension at each of `points` [n, ...], float32 [n].

    It is the number of principal components of the `neighbours` nearest points, without the point
    itself, whose variance exceeds `eigenvalue_ratio` times the largest (Fukunaga and Olsen;
    Appendix C of the paper).

    The same numbers as scikit-dimension's `lPCA(ver="FO", alphaFO=0.05).fit_pw`, computed in
    float64 whatever the dtype of the points. Where all neighbours are one point the dimension is
    0. Of points at exactly the same distance the first ones count as nearer.

    memory_gb: memory limit beside the points, in gigabytes; the distances of one point to all
        others are needed in any case.
    device: device of the computation; None for that of the points, on which the result is.

    >>> line = torch.arange(100.0).unsqueeze(1) * torch.tensor([3.0, 4.0, 0.0])
    >>> local_dimension(line, neighbours=8).unique()
    tensor([1.])
    """
    _check(points, neighbours, eigenvalue_ratio, memory_gb)
    device = points.device if device is None else torch.device(device)
    budget = memory_gb * 1e9
    # a quarter for copies of points, half for all products or else three quarters for blocks
    cloud = Cloud(points.detach().flatten(1).to(device), budget / 4)
    shared = _shared_products(cloud, neighbours, budget / 2)
    budget *= 0.75 if shared is None else 0.25
    counts = []
    for queries in blocks(len(cloud), _block_size(cloud, neighbours, budget)):
        products = cloud.products(queries) if shared is None else shared[queries]
        near = nearest(cloud, queries, products, neighbours)
        del products
        if shared is None:
            moments = _moments(cloud, near)
        else:
            moments = _moments_from_products(cloud, near, shared)
        counts.append(count_above(moments, eigenvalue_ratio))
    return torch.cat(counts).to(points.device, torch.float32)


def _shared_products(cloud: Cloud, neighbours: int, memory: float) -> Tensor | None:
    """All inner products [n, n], where they fit into memory and save work.

    Gram matrices of neighbours are parts of them. For 1000 images of 3072 numbers and 128
    neighbours that is 6 GFLOP instead of 101.
    """
    if cloud.features <= neighbours or len(cloud) ** 2 * FLOAT64 > memory:
        return None
    return cloud.products(slice(0, len(cloud)))


def _block_size(cloud: Cloud, neighbours: int, memory: float) -> int:
    """Points per block: memory for products, distances and a sort, then for matrices."""
    width = min(neighbours, cloud.features)
    per_point = FLOAT64 * max(6 * len(cloud) + 2 * cloud.features, 4 * width**2)
    return max(1, int(memory / per_point))


def _moments(cloud: Cloud, near: Tensor) -> Tensor:
    """For each row of `near` a matrix with the eigenvalues of its neighbours' covariance.

    Up to a factor; features × features, or the Gram matrix where that is smaller.
    """
    count = near.shape[1]
    width = min(count, cloud.features)
    moments = cloud.origin.new_empty(len(near), width, width)
    size = max(1, int(cloud.memory / (3 * FLOAT64 * count * cloud.features)))
    for part in blocks(len(near), size):
        points = cloud.points[near[part]].double()
        # differences first: exactly zero where all neighbours are equal
        points -= points[:, :1].clone()
        points -= points.mean(1, keepdim=True)
        pair = (points.mT, points) if width == cloud.features else (points, points.mT)
        torch.bmm(*pair, out=moments[part])
    return moments


def _moments_from_products(cloud: Cloud, near: Tensor, shared: Tensor) -> Tensor:
    """Gram matrices of the neighbours around their mean, from all inner products."""
    moments = shared[near.unsqueeze(2), near.unsqueeze(1)]
    means = moments.mean(2, keepdim=True)
    moments -= means
    moments -= means.mT
    moments += means.mean(1, keepdim=True)
    radius = moments.diagonal(dim1=1, dim2=2).mean(1)
    tight = (radius < TIGHT * cloud.squares[near].amax(1)).nonzero().squeeze(1)
    if len(tight):
        moments[tight] = _moments(cloud, near[tight])
    return moments


def _check(points: Tensor, neighbours: int, eigenvalue_ratio: float, memory_gb: float) -> None:
    check_tensor("points", points)
    check_count("neighbours", neighbours, 2)
    check_number("eigenvalue_ratio", eigenvalue_ratio, low=0, high=1)
    check_number("memory_gb", memory_gb, low=0.01)
    if points.is_complex():
        raise TypeError(f"points must be real numbers, got {points.dtype}.")
    if points.ndim < 2 or points[0].numel() == 0:
        raise ValueError(f"points must be [n, features], got {list(points.shape)}.")
    if neighbours >= len(points):
        raise ValueError(
            f"neighbours={neighbours} needs at least {neighbours + 1} points, got {len(points)}. "
            "Use fewer neighbours."
        )
