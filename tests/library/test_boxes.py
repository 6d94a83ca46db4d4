"""Boxes: every pixel, the shares of targets, and the laws of what is pasted and what is blended."""

from contextlib import nullcontext

import pytest
import scipy.stats
import torch
from conftest import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.transforms import v2
from transform_kinds import mixed_by_hand, plain_torch, seeded

from zetamix import MixPlan, ZetaMix, apply_plan
from zetamix.boxes import place_around, place_inside, visible_pixels, with_whole
from zetamix.rules import Average, Blend, OneHot
from zetamix.transforms import CutMix, LabelSmoothing, MixupOrCutMix

# a fixed seed makes the p-values fixed numbers: what fails here fails always
LEAST_P_VALUE = 1e-3
CLASSES = 7


def as_likely_as(count, of, share):
    return scipy.stats.binomtest(int(count), of, share).pvalue > LEAST_P_VALUE


# pixels and shares


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    sources=st.integers(2, 5),
    share=st.sampled_from([0.5, 1.0]),
)
def test_every_pixel_comes_from_the_last_box_that_covers_it(seed, size, sources, share):
    mix = ZetaMix(gamma=(0.0, 1.0), sources=sources, paste=share, p=0.9, generator=seeded(seed))
    plan = mix.make_plan(6, size=size)
    samples = torch.randn(6, 2, *size, generator=seeded(seed))
    assert_close(apply_plan(samples, plan), mixed_by_hand(samples, plan))
    assert_close(plan.weights.sum(1), torch.ones(6))
    # a target is the share of pixels
    owners = mixed_by_hand(torch.eye(6).view(6, 6, 1, 1).expand(6, 6, *size), plan).mean((2, 3))
    assert_close(plan.matrix()[plan.pasted], owners[plan.pasted])
    assert (plan.boxes[~plan.pasted] == 0).all()
    assert_close(plan.scale[plan.pasted], torch.ones(int(plan.pasted.sum())))
    assert (plan.scale >= 1).all()


WHOLE, EMPTY, CORNER, MIDDLE = (0, 0, 5, 4), (0, 0, 0, 0), (0, 0, 2, 3), (1, 1, 4, 3)
BY_HAND = [
    [[WHOLE, MIDDLE], [EMPTY, EMPTY], [WHOLE, EMPTY]],
    [[WHOLE, CORNER, MIDDLE], [WHOLE, WHOLE, CORNER], [EMPTY] * 3],
    [[WHOLE, MIDDLE, CORNER, EMPTY], [WHOLE, EMPTY, EMPTY, WHOLE], [EMPTY] * 4],
    [[WHOLE], [WHOLE], [EMPTY]],
    [[WHOLE, MIDDLE, CORNER, EMPTY, MIDDLE]] * 3,
]


def plan_of(boxes, keep_variance=False):
    boxes = torch.tensor(boxes)
    indices = torch.stack([torch.arange(3).roll(-k) for k in range(boxes.shape[1])], 1)
    weights = torch.rand(indices.shape, generator=seeded()).softmax(1)
    return MixPlan(indices, weights, 3, keep_variance=keep_variance, boxes=boxes, size=(5, 4))


@pytest.mark.parametrize("boxes", BY_HAND)
@pytest.mark.parametrize("mean", [None, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("context", [nullcontext, plain_torch])
def test_boxes_may_overlap_be_empty_and_cover_everything(boxes, mean, dtype, context):
    samples = torch.rand(6, 3, 10, 8, generator=seeded())[::2, :, ::2, ::2]
    samples = (255 * samples if dtype == torch.uint8 else samples).to(dtype)
    plan = plan_of(boxes, keep_variance=mean is not None)
    with context():
        mixed = apply_plan(samples, plan, mean=mean)
    centre = None if mean is None else [mean * (255 if dtype == torch.uint8 else 1)] * 60
    assert_close(mixed, mixed_by_hand(samples, plan, mean=centre))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("context", [nullcontext, plain_torch])
def test_pasted_pixels_are_exact_beside_numbers_that_are_not_finite(value, context):
    samples = torch.randn(3, 1, 5, 4)
    samples[1] = value
    with context():
        mixed = apply_plan(samples, plan_of([[WHOLE, MIDDLE]] * 3))
    # MIDDLE is of sample k + 1, and 6 of 20 pixels
    assert (~mixed.isfinite()).flatten(1).sum(1).tolist() == [6, 14, 0]
    assert_close(mixed[2, :, 1:4, 1:3], samples[0, :, 1:4, 1:3])


def test_shares_are_as_exact_as_the_plan():
    plan = CutMix(per="sample").make_plan(64, size=(7, 11), dtype=torch.float64)
    assert_close(plan.weights * 77, (plan.weights * 77).round())


def test_the_size_is_that_of_the_images_that_are_blended():
    samples = torch.randn(8, 3, 9, 7)
    rules = {"target": Average(), "text": Blend(), "image": Blend()}
    batch = {"target": torch.randn(8, 2, 3, 3), "text": torch.randn(8, 5), "image": samples}
    mixed = CutMix(rules=rules, generator=seeded())(batch)
    expected = CutMix(num_classes=8, generator=seeded())(samples, torch.arange(8))[0]
    assert torch.equal(mixed["image"], expected)


def test_images_of_two_sizes_are_blended_by_default():
    """Boxes would cover one of them, and the labels of the other would be wrong."""
    mix = ZetaMix(rules=(Blend(), Blend(), OneHot(64)), keep_variance=False, generator=seeded())
    numbers = torch.arange(64.0).view(-1, 1, 1, 1)
    *mixed, targets = mix((numbers.expand(-1, 3, 8, 8), numbers.expand(-1, 3, 16, 16),
                           torch.arange(64)))  # fmt: skip
    for images in mixed:
        expected = (targets @ torch.arange(64.0)).view(-1, 1, 1, 1).expand_as(images)
        torch.testing.assert_close(images, expected)


# the boxes of ZetaMix: inside the image, with the weights as areas


def test_areas_of_boxes_are_the_weights():
    mix = ZetaMix(gamma=1.5, sources=3, paste=1.0, generator=seeded())
    plan = mix.make_plan(500, size=(40, 60))
    top, left, bottom, right = plan.boxes[:, 1:].unbind(-1)
    powers = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) ** -1.5
    sides = (powers / powers.sum())[1:].sqrt()
    assert torch.equal(bottom - top, (sides * 40).round().long().expand(500, 2))
    assert torch.equal(right - left, (sides * 60).round().long().expand(500, 2))
    assert (top >= 0).all() & (left >= 0).all() & (bottom <= 40).all() & (right <= 60).all()
    assert plan.boxes[:, 0].unique(dim=0).tolist() == [[0, 0, 40, 60]]


def test_boxes_lie_uniformly_inside_the_image():
    uniform = torch.rand(8000, 2, generator=seeded(), dtype=torch.float64)
    boxes = place_inside(torch.full((8000,), 0.25), uniform, (8, 12))
    # 4 × 6 pixels: 5 places for the top row, 7 for the left column
    counts = torch.bincount(boxes[:, 0] * 7 + boxes[:, 1], minlength=35)
    assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE
    # a uniform number may be rounded to 1
    last = place_inside(torch.tensor([0.25]), torch.ones(1, 2, dtype=torch.float64), (8, 12))
    assert last.tolist() == [[4, 6, 8, 12]]


@pytest.mark.parametrize("share", [None, 0.3])
def test_paste_is_the_share_of_pasted_outputs_and_half_by_default(share):
    mix = ZetaMix(generator=seeded(), **({} if share is None else {"paste": share}))
    plan = mix.make_plan(4000, size=(8, 8))
    assert as_likely_as(plan.pasted.sum(), 4000, share or 0.5)
    own, other = plan.indices.unbind(1)
    assert torch.equal(own, torch.arange(4000))
    assert (own != other).all()
    # γ ~ U(0, 4) of what is blended
    gammas = torch.log2(plan.weights[:, 0] / plan.weights[:, 1])[~plan.pasted]
    law = scipy.stats.kstest(gammas.numpy(), "uniform", args=(0, 4))
    assert law.pvalue > LEAST_P_VALUE


# the boxes of CutMix: torchvision's


class Drawn:
    """A distribution that has been drawn from already."""

    def __init__(self, value):
        self.value = torch.tensor(value, dtype=torch.float64)

    def sample(self, shape):
        return self.value


@pytest.mark.parametrize("lam", [0.0, 0.1, 0.36, 0.75, 0.999, 1.0])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (7, 12), (1, 5)])
def test_cutmix_is_torchvisions(monkeypatch, lam, height, width):
    theirs = v2.CutMix(num_classes=CLASSES)
    monkeypatch.setattr(theirs, "_dist", Drawn(lam))
    for row, column in [(0, 0), (height // 2, width // 3), (height - 1, width - 1)]:
        centre = torch.tensor([[(row + 0.5) / height, (column + 0.5) / width]]).double()
        box = place_around(torch.tensor([1 - lam]).double(), centre, (height, width))
        shares = visible_pixels(with_whole(box[None], (height, width)), (height, width))[0]
        # torchvision draws the column first
        draws = iter([column, row])
        with monkeypatch.context() as patch:
            patch.setattr(
                torch, "randint", lambda high, size, draws=draws: torch.tensor([next(draws)])
            )
            expected = theirs.make_params([torch.zeros(2, 3, height, width)])
        left, top, right, bottom = expected["box"]
        assert box[0].tolist() == [top, left, bottom, right]
        kept = expected["lam_adjusted"] * height * width
        assert shares.tolist() == pytest.approx([kept, height * width - kept])
        # half a side of √(1 − λ) is less than a pixel, or it is not
        cut = int(32 * (1 - lam) ** 0.5 / 2) > 0
        assert height != 32 or (shares[1] > 0) == cut


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_shares_are_distributed_as_torchvisions(alpha):
    samples, labels = torch.zeros(2, 1, 24, 32), torch.tensor([0, 1])
    theirs = v2.CutMix(num_classes=2, alpha=alpha)
    cut = CutMix(num_classes=2, alpha=alpha, generator=seeded())
    expected = [theirs.make_params([samples])["lam_adjusted"] for _ in range(600)]
    shares = [cut(samples, labels)[1][0, 0].item() for _ in range(600)]
    assert scipy.stats.ks_2samp(shares, expected).pvalue > LEAST_P_VALUE


def test_cutmix_per_sample_draws_box_and_share_for_each_and_one_rotation():
    plan = CutMix(per="sample", generator=seeded()).make_plan(4000, size=(32, 32))
    assert plan.pasted.all()
    assert len(plan.boxes[:, 1].unique(dim=0)) > 1000
    shifts = ((plan.indices[:, 1] - plan.indices[:, 0]) % 4000).unique()
    assert len(shifts) == 1
    assert shifts != 0


# mixup or CutMix


def test_switch_tosses_once_per_batch():
    mix = MixupOrCutMix(generator=seeded())
    plans = [mix.make_plan(6, size=(16, 16)) for _ in range(600)]
    cut = [plan for plan in plans if plan.pasted.any()]
    assert all(plan.pasted.all() for plan in cut)
    assert as_likely_as(len(cut), 600, 0.5)
    # one λ and one box for a batch
    assert all(plan.weights.unique(dim=0).shape[0] == 1 for plan in plans)
    lams = [plan.weights[0, 0].item() for plan in plans if not plan.pasted.any()]
    assert scipy.stats.kstest(lams, scipy.stats.beta(0.8, 0.8).cdf).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("switch_prob", [0.0, 0.25, 1.0])
def test_switch_per_sample_tosses_for_each(switch_prob):
    mix = MixupOrCutMix(per="sample", switch_prob=switch_prob, generator=seeded())
    plan = mix.make_plan(4000, size=(16, 16))
    assert as_likely_as(plan.pasted.sum(), 4000, switch_prob)
    if switch_prob < 1:
        lams = plan.weights[~plan.pasted, 0].numpy()
        assert scipy.stats.kstest(lams, scipy.stats.beta(0.8, 0.8).cdf).pvalue > LEAST_P_VALUE


def test_label_smoothing_is_that_of_the_cross_entropy():
    logits, labels, samples = torch.randn(8, 5), torch.arange(8) % 5, torch.rand(8, 3)
    same, targets = LabelSmoothing(num_classes=5, amount=0.1)(samples, labels)
    assert same is samples
    loss = nn.functional.cross_entropy
    assert_close(loss(logits, targets), loss(logits, labels, label_smoothing=0.1))
    # of multi-hot targets it is that of the binary loss
    hot = (torch.rand(8, 5) > 0.5).float()
    _, targets = LabelSmoothing(num_classes=5, amount=0.1)(samples, hot)
    assert_close(targets, 0.9 * hot + 0.05)
