"""CutMix against torchvision's own, and the local synthetic instances."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from torchvision.transforms import v2

from zetamix import apply_plan
from zetamix.boxes import inside, place_around, visible_pixels, with_whole
from zetamix.plan import MixPlan
from zetamix.rules import OneHot
from zetamix.transforms import CutMix

CLASSES = 7


class Drawn:
    """A distribution that has been drawn from already."""

    def __init__(self, value):
        self.value = torch.tensor(value, dtype=torch.float64)

    def sample(self, shape):
        return self.value


def torchvisions(monkeypatch, lam, row, column):
    """torchvision's CutMix, with what it draws injected: λ, then a column, then a row."""
    theirs = v2.CutMix(num_classes=CLASSES)
    monkeypatch.setattr(theirs, "_dist", Drawn(lam))
    draws = iter([column, row])
    monkeypatch.setattr(torch, "randint", lambda high, size: torch.tensor([next(draws)]))
    return theirs


def ours(samples, labels, lam, row, column):
    """Our CutMix with the same draws: a centre anywhere in a pixel is that pixel."""
    height, width = size = tuple(samples.shape[-2:])
    centre = torch.tensor([[(row + 0.5) / height, (column + 0.5) / width]], dtype=torch.float64)
    box = place_around(torch.tensor([1 - lam], dtype=torch.float64), centre, size)
    rows = torch.arange(len(samples))
    pairs = MixPlan(torch.stack([rows, rows.roll(1)], 1), torch.ones(len(rows), 2), len(rows))
    boxes = with_whole(box.expand(len(rows), 1, 4), size)
    weights = visible_pixels(boxes, size) / (height * width)
    plan = MixPlan(pairs.indices, weights, len(rows), boxes=boxes, size=size)
    return apply_plan(samples, plan), OneHot(CLASSES).mix(labels, plan)


CASES = [
    pytest.param(lam, row, column, height, width, id=f"{lam}-{row}-{column}-{height}x{width}")
    for height, width in [(32, 32), (7, 12), (1, 5)]
    for lam in [0.0, 0.1, 0.36, 0.75, 0.999, 1.0]
    for row, column in [(0, 0), (height // 2, width // 3), (height - 1, width - 1)]
]


@pytest.mark.parametrize(("lam", "row", "column", "height", "width"), CASES)
def test_cutmix_is_torchvisions(monkeypatch, lam, row, column, height, width):
    samples, labels = torch.rand(6, 3, height, width), torch.tensor([0, 3, 6, 1, 1, 2])
    with monkeypatch.context() as patch:
        expected, targets = torchvisions(patch, lam, row, column)(samples, labels)
    mixed, mixed_targets = ours(samples, labels, lam, row, column)
    assert torch.equal(mixed, expected)
    torch.testing.assert_close(mixed_targets, targets)


def test_the_cases_cut_something():
    """The table above does not compare empty boxes only."""
    samples = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 32, 32)
    mixed, targets = ours(samples, torch.arange(4), 0.36, 16, 10)
    # √(1 − 0.36) = 0.8: half of it is 12.8 pixels, rounded down to 12, cut off at the left edge
    taken = (mixed[1] == 0).sum().item()
    assert taken == 24 * 22
    assert targets[1].tolist() == pytest.approx([taken / 1024, 1 - taken / 1024, 0, 0, 0, 0, 0])
    assert (mixed[1, 0, 4:28, 0:22] == 0).all()


@given(
    lam=st.floats(0, 1),
    centre=st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_the_share_kept_is_the_share_of_pixels(lam, centre, size):
    area, centre = torch.tensor([1 - lam]), torch.tensor([centre], dtype=torch.float64)
    box = place_around(area, centre, size)
    boxes = with_whole(box[None], size)
    pasted = inside(box, size)
    assert pasted.shape == (1, *size)
    kept, taken = visible_pixels(boxes, size)[0].tolist()
    assert taken == pasted.sum()
    assert kept + taken == size[0] * size[1]


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_shares_are_distributed_as_torchvisions(alpha):
    samples = torch.zeros(2, 1, 24, 32)
    theirs = v2.CutMix(num_classes=2, alpha=alpha)
    cut = CutMix(num_classes=2, alpha=alpha, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1])
    expected = [theirs.make_params([samples])["lam_adjusted"] for _ in range(600)]
    shares = [cut(samples, labels)[1][0, 0].item() for _ in range(600)]
    # the draws are the same in every run of the suite; 0.01 is what one pair in a hundred misses
    assert ks_2samp(shares, expected).pvalue > 0.01


def test_boxes_lie_anywhere():
    samples = torch.zeros(2, 1, 8, 8)
    samples[0] = 1
    cut = CutMix(num_classes=2, generator=torch.Generator().manual_seed(0))
    mixed = torch.stack([cut(samples, torch.tensor([0, 1]))[0][1, 0] for _ in range(400)])
    share = mixed.mean(0)
    assert (share > 0.05).all()
    # the middle is covered more often than a corner, which a box reaches only when cut off
    assert share[4, 4] > share[0, 0] + 0.1


def test_sample_k_gets_the_box_of_sample_k_minus_s():
    plan = CutMix(generator=torch.Generator().manual_seed(1)).make_plan(4, size=(8, 8))
    shift = int(plan.indices[0, 0] - plan.indices[0, 1]) % 4
    cut = CutMix(num_classes=4, generator=torch.Generator().manual_seed(1))
    samples = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 8, 8)
    mixed, targets = cut(samples, torch.arange(4))
    assert not torch.equal(mixed, samples)
    for k in range(4):
        assert set(mixed[k].unique().tolist()) == {float(k), float((k - shift) % 4)}
        share = (mixed[k] == k).float().mean().item()
        assert targets[k, k].item() == pytest.approx(share)
        assert targets[k, k - shift].item() == pytest.approx(1 - share)


def test_cutmix_leaves_its_input_alone():
    samples = torch.rand(4, 1, 8, 8)
    kept = samples.clone()
    CutMix(num_classes=4, generator=torch.Generator().manual_seed(1))(samples, torch.arange(4))
    assert torch.equal(samples, kept)


def test_a_single_sample_stays():
    samples = torch.rand(1, 3, 8, 8)
    mixed, targets = CutMix(num_classes=3)(samples, torch.tensor([2]))
    assert torch.equal(mixed, samples)
    torch.testing.assert_close(targets, torch.tensor([[0.0, 0.0, 1.0]]))
