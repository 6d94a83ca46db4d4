"""Coordinates in the space that points span: every distance stays what it is."""

import pytest
import torch

from paper.measure import coordinates, local_dimension


def points(n=30, shape=(3, 9, 9), seed=0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    return 255 * torch.rand(n, *shape, generator=generator) + offset


def distances(samples):
    return torch.pdist(samples.flatten(1).double())


# around their mean 30 points have 29 directions, and no more than they have numbers
@pytest.mark.parametrize(
    ("shape", "offset", "size"), [((3, 9, 9), 0.0, 29), ((3, 9, 9), 1e4, 29), ((4,), 0.0, 4)]
)
def test_distances_stay(shape, offset, size):
    samples = points(shape=shape, offset=offset)
    found = coordinates(samples)
    assert found.shape == (30, size)
    assert found.dtype == torch.float32
    torch.testing.assert_close(distances(found), distances(samples), rtol=1e-6, atol=0)


def test_distances_of_mixtures_stay():
    samples = points()
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(40, 30, generator=generator).softmax(1)
    mixed, short = weights @ samples.flatten(1), weights @ coordinates(samples)
    torch.testing.assert_close(distances(short), distances(mixed), rtol=1e-4, atol=1e-3)


def test_duplicates_stay_equal_to_the_last_bit():
    # as in smooth photos, the least direction has 1e-10 of the largest variance, where eigenvectors
    # of equal rows differ by rounding
    scales = torch.logspace(0, -5, 20)
    samples = (points(n=20, shape=(20,)) * scales) @ points(n=20, shape=(900,), seed=1)
    found = coordinates(samples[torch.arange(60) % 20])
    assert torch.equal(found[:20], found[20:40])
    assert torch.equal(found[:20], found[40:])
    # a neighbourhood of one point has no direction
    assert local_dimension(coordinates(samples[torch.arange(200) % 4]), 8).amax() == 0


def test_points_that_nearly_are_duplicates_are_not_made_equal():
    samples = points().double()
    nearly = torch.cat([samples, samples + 1e-4])
    found = coordinates(nearly)
    assert not any(torch.equal(one, two) for one, two in zip(found[:30], found[30:], strict=True))


def test_points_that_are_all_one_have_one_coordinate():
    assert coordinates(torch.ones(5, 300)).tolist() == [[0.0]] * 5


def test_parts_give_the_same_and_report_progress():
    samples, steps = points(n=100, shape=(3, 80, 80)), []
    whole = coordinates(samples)
    # 10 MB: 4166 numbers of each point at a time
    parts = coordinates(samples, memory_gb=0.01, watch=lambda *step: steps.append(step))
    torch.testing.assert_close(distances(parts), distances(whole), rtol=1e-6, atol=0)
    assert steps == [(4166, 19200), (8332, 19200), (12498, 19200), (16664, 19200), (19200, 19200)]
