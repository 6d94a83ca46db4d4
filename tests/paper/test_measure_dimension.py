"""Local dimension: scikit-dimension's numbers point by point, on every path, in bounded memory."""

import math
import warnings

import pytest
import torch
from memory import peak_bytes
from sklearn.datasets import load_digits

from paper.datasets import manifolds
from paper.measure.dimension import local_dimension as dimension
from paper.measure.neighbours import Cloud, nearest

skdim = pytest.importorskip("skdim")


def helix(n, generator):
    return manifolds.helix(n).samples.double()


def paraboloid(n, generator):
    return manifolds.paraboloid(n).samples[:, :4].double()


def digits(n, generator):
    return torch.from_numpy(load_digits().data[:n])


def textures(n, generator):
    """More features than neighbours, with a spectrum that falls off like that of images."""
    spread = torch.arange(1, 401, dtype=torch.float64) ** -0.7
    return torch.randn(n, 400, generator=generator, dtype=torch.float64) * spread


DATA = {"helix": helix, "paraboloid": paraboloid, "digits": digits, "textures": textures}


def by_skdim(points, neighbours, **options):
    estimator = skdim.id.lPCA(ver="FO", alphaFO=0.05)
    with warnings.catch_warnings():
        # it divides eigenvalues by those behind them, some of which are zero
        warnings.simplefilter("ignore", RuntimeWarning)
        fitted = estimator.fit_pw(points.numpy(), n_neighbors=neighbours, n_jobs=1, **options)
    return torch.from_numpy(fitted.dimension_pw_).float()


def neighbours_of(points, neighbours):
    cloud, everything = Cloud(points, 1e9), slice(0, len(points))
    return nearest(cloud, everything, cloud.products(everything), neighbours)


def contested(points, neighbours):
    """Points whose last neighbour is exactly as far away as the next point."""
    squares = (points.unsqueeze(1) - points).square().sum(2).fill_diagonal_(torch.inf)
    ordered = squares.sort(1).values
    return ordered[:, neighbours - 1] == ordered[:, neighbours]


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", [8, 128])
@pytest.mark.parametrize("name", DATA)
def test_equals_scikit_dimension_point_by_point(name, neighbours, generator):
    points = DATA[name](250, generator)
    found = dimension(points, neighbours)
    assert found.dtype == torch.float32
    near = neighbours_of(points, neighbours)
    # the same neighbours: equal everywhere
    assert torch.equal(found, by_skdim(points, neighbours, precomputed_knn=near.numpy()))
    # its own neighbours: equal wherever they are not a matter of choice
    sure = ~contested(points, neighbours)
    assert sure.double().mean() > (0.7 if name == "digits" else 0.999)
    assert torch.equal(found[sure], by_skdim(points, neighbours)[sure])


@pytest.mark.parametrize(("shift", "scale"), [(1e4, 1.0), (0.0, 1e-6), (3e5, 1e3)], ids=str)
def test_neither_offset_nor_scale_nor_blocks_matter(shift, scale, generator):
    points = textures(900, generator)
    before, expected = points.clone(), dimension(points, 64)
    assert torch.equal(dimension(points * scale + shift, 64), expected)
    assert torch.equal(dimension(points, 64, memory_gb=0.01), expected)
    assert torch.equal(points, before)


def test_single_precision_and_pixels_are_computed_in_double(generator):
    points, pixels = textures(300, generator).float(), digits(300, generator).to(torch.uint8)
    for given, double in ((points, points.double()), (pixels.view(-1, 1, 8, 8), pixels.double())):
        assert torch.equal(dimension(given, 40), dimension(double, 40))
    # a tight cluster far away keeps its digits
    wide, tight = textures(200, generator), textures(200, generator) * 1e-5 + 50
    found = dimension(torch.cat([wide, tight]), 40)
    assert torch.equal(found[200:], dimension(tight, 40))


@pytest.mark.slow
def test_memory_stays_within_the_setting(generator):
    points = textures(2500, generator).float()
    limit = 0.05
    peak = peak_bytes(lambda: dimension(points, 64, memory_gb=limit))
    # all distances alone would take 50 MB, all neighbourhoods 512
    assert 0.01e9 < peak < limit * 1e9


@pytest.mark.parametrize("features", [3, 100], ids=["covariance", "Gram"])
def test_duplicates_are_neighbours_and_one_point_has_no_dimension(features, generator):
    points = torch.rand(60, features, generator=generator, dtype=torch.float64)
    points[20:50] = points[20]
    found = dimension(points, 10)
    assert torch.equal(found[20:50], torch.zeros(30))
    # duplicates that do not fill the neighbourhood count as any other point does
    twice = torch.cat([points[:20], points[:20]])
    assert torch.equal(dimension(twice, 12), by_skdim(twice, 12))
    assert torch.equal(dimension(torch.full((30, features), 0.1), 10), torch.zeros(30))


@pytest.mark.parametrize("count", [8, 12, 15])
def test_neighbours_among_many_copies(count, generator):
    # 16 copies of each point, 5 of which lie a little apart: closer than products can tell
    points = textures(20, generator).repeat_interleave(16, 0) + 100
    points[torch.arange(320) % 16 >= 11] += 1e-7 * torch.rand(
        100, 400, generator=generator, dtype=torch.float64
    )
    squares = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").square()
    expected = squares.fill_diagonal_(torch.inf).sort(dim=1, stable=True).indices
    cloud, everything = Cloud(points, 1e9), slice(0, len(points))
    found = nearest(cloud, everything, cloud.products(everything), count)
    assert torch.equal(found.sort(1).values, expected[:, :count].sort(1).values)


def test_neighbours_are_other_points_and_points_finite():
    for count in (20, 1):
        with pytest.raises(ValueError, match="neighbours must be from 2 to 19 for 20 points, got"):
            dimension(torch.rand(20, 3), count)
    with pytest.raises(ValueError, match="must be finite, got NaN"):
        dimension(torch.full((20, 3), math.nan), 3)


@pytest.mark.gpu
@pytest.mark.parametrize("neighbours", [8, 128])
@pytest.mark.parametrize("name", DATA)
def test_a_gpu_gives_the_same(name, neighbours, generator):
    points = DATA[name](600, generator)
    expected = dimension(points, neighbours)
    for memory in (0.02, 1.0):
        found = dimension(points.cuda(), neighbours, memory_gb=memory)
        assert torch.equal(found.cpu(), expected)
