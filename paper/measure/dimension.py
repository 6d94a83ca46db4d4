"""Local intrinsic dimension: the number of directions in which a neighbourhood varies."""

import torch
from torch import Tensor

from paper.measure.neighbours import FLOAT64, Cloud, blocks, nearest

# bytes of neighbourhoods that a CPU works on at a time, so that they stay in its cache: 612
# neighbourhoods of 128 images of 3072 numbers take 1.6 s on one core, 2.9 s in parts of 500 MB
CACHE = 16e6
# a component counts if its variance exceeds this fraction of the largest
EIGENVALUE_RATIO = 0.05


def local_dimension(points: Tensor, neighbours: int, *, memory_gb: float = 1.0) -> Tensor:
    """The local intrinsic dimension at each of `points` [n, ...], float32 [n].

    It is the number of principal components of the nearest points, without the point itself, whose
    variance exceeds 5 % of the largest (Fukunaga and Olsen; Appendix C of the paper).

    The result equals that of scikit-dimension's `lPCA(ver="FO", alphaFO=0.05).fit_pw`, computed in
    float64 for any dtype of the points. If all neighbours are the same point, the dimension is 0.
    Ties in distance are broken by index.

    memory_gb: memory limit in gigabytes, in addition to the points; the distances of one point to
        all others are always needed.

    >>> line = torch.arange(100.0).unsqueeze(1) * torch.tensor([3.0, 4.0, 0.0])
    >>> local_dimension(line, 16).unique()
    tensor([1.])
    """
    if not 2 <= neighbours < len(points):
        raise ValueError(
            f"neighbours must be from 2 to {len(points) - 1} for {len(points)} points, got "
            f"{neighbours}."
        )
    # a quarter for copies of points, three for blocks
    cloud = Cloud(points.detach().flatten(1), memory_gb * 1e9 / 4)
    # products, distances and a sort, then matrices
    width = min(neighbours, cloud.features)
    per_point = FLOAT64 * max(6 * len(cloud) + 2 * cloud.features, 4 * width**2)
    result = torch.empty(len(cloud), device=points.device, dtype=torch.float32)
    for queries in blocks(len(cloud), max(1, int(0.75e9 * memory_gb / per_point))):
        near = nearest(cloud, queries, cloud.products(queries), neighbours)
        # LAPACK, matrix by matrix: 0.6 ms for 128 × 128 on one core, 0.7 ms on an H200
        values = torch.linalg.eigvalsh(_moments(cloud, near))
        result[queries] = (values > EIGENVALUE_RATIO * values[:, -1:]).sum(1).to(result)
    return result


def _moments(cloud: Cloud, near: Tensor) -> Tensor:
    """For each row of `near`, a matrix with the eigenvalues of the covariance of its neighbours.

    Up to a factor; features × features, or the Gram matrix if that is smaller.
    """
    count = near.shape[1]
    width = min(count, cloud.features)
    moments = cloud.origin.new_empty(len(near), width, width)
    memory = cloud.memory
    if cloud.origin.device.type == "cpu":
        memory = min(memory, CACHE)
    size = max(1, int(memory / (3 * FLOAT64 * count * cloud.features)))
    for part in blocks(len(near), size):
        points = cloud.points[near[part]].double()
        # differences first: exactly zero where all neighbours are equal
        points -= points[:, :1].clone()
        points -= points.mean(1, keepdim=True)
        pair = (points.mT, points) if width == cloud.features else (points, points.mT)
        torch.bmm(*pair, out=moments[part])
    return moments
