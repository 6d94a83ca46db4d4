"""Synthetic points lie where they should."""

import math

import numpy as np
import pytest
import torch
from skdim.datasets import BenchmarkManifolds
from sklearn.utils import check_random_state

from paper import datasets as data
from paper.datasets import manifolds
from zetamix_lab.data import from_tensors

FLOAT32 = {"atol": 1e-6, "rtol": 0}


def test_crescents_are_half_circles():
    assert torch.bincount(manifolds.crescents(5).labels).tolist() == [2, 3]
    points = manifolds.crescents(seed=0, noise=0.0)
    noise = manifolds.crescents(20_000).samples - manifolds.crescents(20_000, noise=0.0).samples
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    upper, lower = points.samples[points.labels == 0], points.samples[points.labels == 1]
    torch.testing.assert_close(upper.norm(dim=1), torch.ones(256))
    assert (upper[:, 1] >= -1e-6).all()
    torch.testing.assert_close((lower - torch.tensor([1.0, 0.5])).norm(dim=1), torch.ones(256))
    assert (lower[:, 1] <= 0.5 + 1e-6).all()


def test_spirals_are_a_unit_apart():
    points = manifolds.spirals(4000, noise=0.0)
    first, second = points.samples[points.labels == 0], points.samples[points.labels == 1]
    radius = first.norm(dim=1)
    angle = math.pi * radius
    on_arm = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    torch.testing.assert_close(first, on_arm, atol=1e-4, rtol=0)
    gap = torch.cdist(first, second).min(1).values
    assert gap.min().item() > 0.85
    # even along the arm: neighbours are equally far from each other
    steps = first.diff(dim=0).norm(dim=1)
    assert (steps.max() / steps.min()).item() < 1.25


@pytest.mark.parametrize(("name", "dimension"), [("helix", 3), ("helix12", 12)])
def test_helix_is_the_one_of_scikit_dimension(name, dimension):
    samples = manifolds.MANIFOLDS[name]().samples.double()
    assert samples.shape == (8192, dimension)
    x, y, z = samples[:, 0], samples[:, 1], samples[:, 2]
    ring = (x.square() + y.square()).sqrt() - 2
    torch.testing.assert_close(ring.square() + z.square(), torch.ones(8192).double(), **FLOAT32)
    turns = torch.atan2(z, ring) - 8 * torch.atan2(y, x)
    off = torch.remainder(turns + math.pi, 2 * math.pi) - math.pi
    assert off.abs().max().item() < 1e-5
    assert (samples[:, 3:] == 0).all()
    same_law(samples, reference()._gen_helix1_data(8192, dim=dimension))


def test_paraboloid_is_the_one_of_scikit_dimension():
    samples = manifolds.paraboloid().samples
    base = samples[:, :4]
    torch.testing.assert_close(base[:, 3], base[:, :3].square().sum(1))
    torch.testing.assert_close(samples[:, 4:8], base.sin())
    torch.testing.assert_close(samples[:, 8:], base.square())
    same_law(samples, reference()._gen_paraboloid_data(8192, dim=12, d=3))


def reference():
    """scikit-dimension's generators without its constructor, which wants pandas for a table."""
    made = object.__new__(BenchmarkManifolds)
    made.random_state = check_random_state(0)
    return made


def same_law(ours, theirs):
    """Means and spreads of two samples of 8,192 points agree up to chance (five sigma)."""
    ours = ours.double().numpy()
    for mine, other in zip(ours.T, theirs.T, strict=True):
        error = 5 * (np.hypot(mine.std(), other.std()) / math.sqrt(len(mine)) + 1e-9)
        assert abs(mine.mean() - other.mean()) < error
        assert abs(mine.std() - other.std()) < error


def test_a_seed_fixes_the_points_and_two_classes_have_a_second_draw():
    flat = data.load("spirals")
    assert {name: len(split) for name, split in flat.splits.items()} == {"train": 512, "test": 512}
    assert not torch.equal(flat.train.samples, flat.test.samples)
    assert list(data.load("helix12").splits) == ["train"]
    for draw in manifolds.MANIFOLDS.values():
        first, again, other = (draw(seed=seed).samples for seed in (3, 3, 4))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


# computed with the code of commit 99cc921; committed records carry such fingerprints
def test_fingerprints_never_change():
    assert data.load("crescents").fingerprint == "4d8258de2f90f64d"
    helix = from_tensors("helix", manifolds.draw_splits("helix", 3), ("helix",))
    assert helix.fingerprint == "f620f49d91ca79a1"
    assert data.load("crescents").holdout(0.1).fingerprint == "ce20b1a7f9276be2"
