"""Local intrinsic dimension: how many directions a neighbourhood of the data really fills."""

import torch
from torch import Tensor

from zetamix._checks import check_count, check_number, check_tensor
from zetamix.measure.eigenvalue_count import count_above
from zetamix.measure.neighbours import FLOAT64, Cloud, blocks, nearest

# a neighbourhood this small beside its distance from the origin, in squares, is taken from
# differences of points: by the usual error bound products alone keep about ten digits of its
# eigenvalues at this size, and fewer below
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

    memory_gb: what may be used beside the points, in gigabytes; at least what the distances of
        one point to all others take.
    device: where to compute; None stands for where the points are. The result comes back there.

    >>> line = torch.arange(100.0).unsqueeze(1) * torch.tensor([3.0, 4.0, 0.0])
    >>> local_dimension(line, neighbours=8).unique()
    tensor([1.])
    """
    _check(points, neighbours, eigenvalue_ratio, memory_gb)
    place = points.device if device is None else torch.device(device)
    budget = memory_gb * 1e9
    # a quarter for copies of points; of the rest half for all products, or more for each block
    cloud = Cloud(points.detach().flatten(1).to(place), budget / 4)
    shared = _shared_products(cloud, neighbours, budget / 2)
    budget *= 0.75 if shared is None else 0.25
    found = []
    for queries in blocks(len(cloud), _block_size(cloud, neighbours, budget)):
        products = cloud.products(queries) if shared is None else shared[queries]
        near = nearest(cloud, queries, products, neighbours)
        del products
        if shared is None:
            moments = _moments(cloud, near)
        else:
            moments = _moments_from_products(cloud, near, shared)
        found.append(count_above(moments, eigenvalue_ratio))
    return torch.cat(found).to(points.device, torch.float32)


def _shared_products(cloud: Cloud, neighbours: int, memory: float) -> Tensor | None:
    """All inner products [n, n], where they fit and save work.

    A Gram matrix of neighbours is a piece of them. For 1000 images of 3072 numbers and 128
    neighbours that is 6 GFLOP instead of 101.
    """
    if cloud.features <= neighbours or len(cloud) ** 2 * FLOAT64 > memory:
        return None
    return cloud.products(slice(0, len(cloud)))


def _block_size(cloud: Cloud, neighbours: int, memory: float) -> int:
    """How many points at once: products, distances and a sort, then matrices and their work."""
    width = min(neighbours, cloud.features)
    per_point = FLOAT64 * max(6 * len(cloud) + 2 * cloud.features, 4 * width**2)
    return max(1, int(memory / per_point))


def _moments(cloud: Cloud, near: Tensor) -> Tensor:
    """For each row of `near` a matrix with the eigenvalues of its neighbours' covariance.

    Up to a factor, and the smaller one of two: features × features, or the Gram matrix.
    """
    count = near.shape[1]
    width = min(count, cloud.features)
    moments = cloud.origin.new_empty(len(near), width, width)
    size = max(1, int(cloud.memory / (3 * FLOAT64 * count * cloud.features)))
    for part in blocks(len(near), size):
        points = cloud.points[near[part]].double()
        # differences first: where all neighbours are one point, zero and not its rounding
        points -= points[:, :1].clone()
        points -= points.mean(1, keepdim=True)
        pair = (points.mT, points) if width == cloud.features else (points, points.mT)
        torch.bmm(*pair, out=moments[part])
    return moments


def _moments_from_products(cloud: Cloud, near: Tensor, shared: Tensor) -> Tensor:
    """Gram matrices of the neighbours around their mean, read off all inner products."""
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
            "Ask for fewer neighbours."
        )
