"""ZetaMix, plans with boxes, and the transforms that paste: every pixel, share and factor."""

import copy
import math
import pickle
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.stats
import torch
from conftest import assert_close
from hypothesis import given
from hypothesis import strategies as st
from transform_kinds import plain_torch

from zetamix import MixPlan, Mixup, ZetaMix, ZetaMixup, apply_plan, sampling
from zetamix.boxes import place_inside
from zetamix.kernels import reference
from zetamix.rules import Average, Blend, FromAnchor, OneHot
from zetamix.transforms import CutMix, LabelSmoothing, MixupOrCutMix

LEAST_P_VALUE = 1e-3

TRANSFORMS = {
    "zetamix": lambda **kwargs: ZetaMix(**kwargs),
    "zetamix, pasted": lambda **kwargs: ZetaMix(paste=1.0, sources=3, **kwargs),
    "zetamix, some pasted": lambda **kwargs: ZetaMix(paste=0.5, **kwargs),
    "cutmix": lambda **kwargs: CutMix(**kwargs),
    "cutmix per sample": lambda **kwargs: CutMix(per="sample", **kwargs),
    "switch": lambda **kwargs: MixupOrCutMix(**kwargs),
    "switch per sample": lambda **kwargs: MixupOrCutMix(per="sample", **kwargs),
}
every_transform = pytest.mark.parametrize("make", TRANSFORMS.values(), ids=TRANSFORMS.keys())


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=8, height=9, width=7, channels=3):
    return torch.randn(n, channels, height, width, generator=seeded()), torch.arange(n)


def paint(sample_of, plan, output):
    """The owner of each pixel by hand: the column that covers it last, or None for a blend."""
    height, width = plan.size
    owners = [[None] * width for _ in range(height)]
    for column, (top, left, bottom, right) in enumerate(plan.boxes[output].tolist()):
        for row in range(top, bottom):
            for position in range(left, right):
                owners[row][position] = sample_of(column)
    return owners


def same_plans(first, second):
    pairs = [(getattr(first, name), getattr(second, name)) for name in ("indices", "weights")]
    if first.boxes is not None or second.boxes is not None:
        pairs.append((first.boxes, second.boxes))
    rest = [(plan.batch_size, plan.size, plan.keep_variance) for plan in (first, second)]
    return rest[0] == rest[1] and all(torch.equal(a, b) for a, b in pairs)


# the family


def test_the_default_blends_each_sample_with_one_other():
    plan = ZetaMix(generator=seeded()).make_plan(2000)
    assert torch.equal(plan.indices[:, 0], torch.arange(2000))
    assert (plan.indices[:, 1] != plan.indices[:, 0]).all()
    # γ ~ U(0, 4): one sample dominates, by a share that differs from output to output
    gammas = torch.log2(plan.weights[:, 0] / plan.weights[:, 1]).numpy()
    assert scipy.stats.kstest(gammas, "uniform", args=(0, 4)).pvalue > LEAST_P_VALUE


def test_the_default_pastes_half_of_the_images():
    mix = ZetaMix(num_classes=10, generator=seeded())
    plan = mix.make_plan(4000, size=(8, 8))
    assert scipy.stats.binomtest(int(plan.pasted.sum()), 4000, 0.5).pvalue > LEAST_P_VALUE
    samples, labels = torch.randn(16, 3, 8, 8), torch.arange(16) % 10
    again = ZetaMix(num_classes=10, paste=0.5, generator=seeded())
    mix = ZetaMix(num_classes=10, generator=seeded())
    for ours, theirs in zip(mix(samples, labels), again(samples, labels), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "shape",
    [(6,), (3, 9), (2, 1, 9), (2, 9, 1)],
    ids=["table", "sequence", "signal", "column"],
)
def test_the_default_blends_what_is_no_image(shape):
    samples, labels = torch.randn(9, *shape), torch.arange(9)
    default = ZetaMix(num_classes=9, generator=seeded())(samples, labels)
    blended = ZetaMix(num_classes=9, paste=0, generator=seeded())(samples, labels)
    for ours, theirs in zip(default, blended, strict=True):
        assert torch.equal(ours, theirs)


def test_without_its_options_it_is_zeta_mixup():
    samples, labels = images()
    options = {"num_classes": 8, "gamma": 2.8, "sources": None}
    plain = ZetaMix(**options, keep_variance=False, paste=0, generator=seeded())
    for ours, theirs in zip(
        plain(samples, labels),
        ZetaMixup(**options, generator=seeded())(samples, labels),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_gamma_follows_its_schedule_and_can_be_set_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix = ZetaMix(gamma=lambda epoch: float(epoch), until=1, generator=seeded())
        assert_close(mix.make_plan(4).weights, torch.full((4, 2), 0.5))
        mix.set_epoch(1)
        assert_close(mix.make_plan(4).weights[:, 0], torch.full((4,), 2 / 3))
        mix.gamma = (0.0, 1.0)
        assert mix.gamma == (0.0, 1.0)


# the variance


@pytest.mark.parametrize("options", [{}, {"gamma": 0.0, "sources": 4}, {"paste": 0.5}, {"p": 0.5}])
def test_the_variance_of_independent_samples_is_kept(options):
    samples, labels = torch.randn(400, 3, 8, 8, generator=seeded()), torch.zeros(400).long()
    kept, _ = ZetaMix(num_classes=1, generator=seeded(), **options)(samples, labels)
    assert kept.var().item() == pytest.approx(1, abs=0.03)
    options = {**options, "keep_variance": False}
    lost, _ = ZetaMix(num_classes=1, generator=seeded(), **options)(samples, labels)
    assert lost.var().item() < 0.95


def test_targets_keep_the_weights():
    samples, labels = images()
    plan = ZetaMix(num_classes=8, generator=seeded()).make_plan(8)
    mixed, targets = ZetaMix(num_classes=8, paste=0, generator=seeded())(samples, labels)
    assert_close(targets, plan.matrix())
    norms = plan.weights.double().square().sum(1).sqrt()
    expected = torch.einsum("on,n...->o...", targets.double(), samples.double())
    assert_close(mixed, expected / norms.view(-1, 1, 1, 1))
    assert_close(plan.scale, 1 / norms)


@pytest.mark.parametrize("shape", [(4096,), (4096, 1)])
def test_a_regression_keeps_its_slopes(shape):
    samples = torch.randn(4096, 3, generator=seeded(), dtype=torch.float64)
    slopes = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    targets = (samples @ slopes).view(shape)
    rules = {"x": Blend(), "y": [Average()]}
    mixed = ZetaMix(rules=rules)({"x": samples, "y": [targets]})
    for x, y in (ZetaMix()(samples, targets), (mixed["x"], mixed["y"][0])):
        assert_close(torch.linalg.lstsq(x, y.view(-1, 1)).solution.flatten(), slopes)


@pytest.mark.parametrize("mean", [0.4, (0.5, 0.4, 0.1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
def test_deviations_from_the_mean_are_scaled_and_clipped(mean, dtype):
    generator = seeded()
    samples = torch.rand(8, 3, 9, 7, generator=generator, dtype=torch.float64)
    largest = 1
    if dtype == torch.uint8:
        samples, largest = (255 * samples).round(), 255
    samples = samples.to(dtype)
    mix = ZetaMix(num_classes=8, gamma=0.5, generator=generator)
    plan = mix.make_plan(8, dtype=torch.float64)
    mixed = apply_plan(samples, plan, mean=mean)
    assert mixed.dtype == dtype
    centre = largest * torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1)
    blend = torch.einsum("on,n...->o...", plan.matrix(), samples.double() - centre)
    exact = centre + plan.scale.view(-1, 1, 1, 1) * blend
    assert (exact.min() < 0) & (exact.max() > largest), "nothing to clip"
    assert_close(
        mixed, exact.clamp(0, largest).round() if dtype == torch.uint8 else exact.clamp(0, 1)
    )


def test_samples_that_are_alone_or_pasted_are_not_scaled():
    samples, labels = images()
    mix = ZetaMix(num_classes=8, p=0.0)
    mixed, targets = mix(samples, labels)
    assert torch.equal(mixed, samples)
    assert torch.equal(targets, torch.eye(8))
    pasted = ZetaMix(num_classes=8, paste=1.0).make_plan(8, size=(9, 7))
    assert torch.equal(pasted.scale, torch.ones(8))


def test_samples_without_negative_numbers_warn_once():
    samples, labels = images()
    positive = samples.abs()
    mix = ZetaMix(num_classes=8)
    mix.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix(positive, labels)
        mix.train()
        # normalised samples, samples with a mean, blends that lose their variance, and bytes
        ZetaMix(num_classes=8)(samples, labels)
        ZetaMix(num_classes=8, mean=0.5)(positive.clamp_max(1), labels)
        ZetaMix(num_classes=8, keep_variance=False)(positive, labels)
        ZetaMix(rules={"x": Blend(mean=0.5), "y": Average()})(
            {"x": positive.clamp_max(1), "y": positive}
        )
    with pytest.warns(UserWarning, match="pass mean=") as caught:
        mix(positive, labels)
    with pytest.warns(UserWarning, match=r"in rules, Blend\(mean=...\)") as in_rules:
        ZetaMix(rules={"x": Blend()})({"x": positive.expand(-1, -1, -1, 7)})
    # at the caller's line, not at one of torch's
    assert [each[0].filename for each in (caught, in_rules)] == [__file__, __file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix(positive, labels)


@pytest.mark.parametrize(
    ("samples", "warns"),
    [
        # dark images in [-1, 1]
        (torch.rand(64, 1, 8, 8, generator=seeded()) ** 4 * 2 - 1, True),
        # normalised, whatever the batch
        (torch.randn(64, 200, generator=seeded()), False),
        (torch.randn(16, 200, generator=seeded()), False),
        (torch.randn(3, 200, generator=seeded()), False),
        (torch.randn(64, 3, 8, 8, generator=seeded()) + 0.3, False),
    ],
)
def test_samples_that_are_not_centred_warn(samples, warns):
    labels = torch.zeros(len(samples)).long()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ZetaMix(num_classes=1)(samples, labels)
    assert [("not normalised" in str(warning.message)) for warning in caught] == [True] * warns


# boxes


@given(
    seed=st.integers(0, 2**32),
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    sources=st.integers(2, 5),
    share=st.sampled_from([0.5, 1.0]),
)
def test_every_pixel_comes_from_the_last_box_that_covers_it(seed, size, sources, share):
    options = {"gamma": (0.0, 1.0), "sources": sources, "paste": share, "p": 0.9}
    mix = ZetaMix(num_classes=6, generator=seeded(seed), **options)
    plan = mix.make_plan(6, size=size)
    height, width = size
    samples = torch.randn(6, 2, height, width, generator=seeded(seed))
    outputs = apply_plan(samples, plan)
    blend = apply_plan(samples, MixPlan(plan.indices, plan.weights, 6, keep_variance=True))
    assert_close(plan.weights.sum(1), torch.ones(6))
    for k in range(6):
        owners = paint(lambda column: column, plan, k)
        counts = [0] * plan.sources
        for row in range(height):
            for position in range(width):
                owner = owners[row][position]
                if owner is None:
                    assert not plan.pasted[k]
                    source = blend[k]
                else:
                    assert plan.pasted[k]
                    source = samples[plan.indices[k, owner]]
                    counts[owner] += 1
                assert torch.equal(outputs[k, :, row, position], source[:, row, position])
        if plan.pasted[k]:
            assert_close(plan.weights[k], torch.tensor(counts) / (height * width))


def test_shares_are_as_exact_as_the_plan():
    plan = CutMix(per="sample").make_plan(64, size=(7, 11), dtype=torch.float64)
    counts = plan.weights * 77
    assert_close(counts, counts.round())


def test_areas_of_boxes_are_the_weights():
    mix = ZetaMix(gamma=(0.0, 4.0), sources=3, paste=1.0, generator=seeded())
    blended = sampling.weigh(torch.full((500,), 1.5), 3)
    mix = ZetaMix(gamma=1.5, sources=3, paste=1.0, generator=seeded())
    plan = mix.make_plan(500, size=(40, 60))
    top, left, bottom, right = plan.boxes[:, 1:].unbind(-1)
    sides = blended[:, 1:, None].sqrt().squeeze(-1)
    assert torch.equal(bottom - top, (sides * 40).round().long())
    assert torch.equal(right - left, (sides * 60).round().long())
    assert (top >= 0).all() & (left >= 0).all() & (bottom <= 40).all() & (right <= 60).all()
    assert plan.boxes[:, 0].unique(dim=0).tolist() == [[0, 0, 40, 60]]


def test_boxes_lie_uniformly_inside_the_image():
    uniform = torch.rand(8000, 2, generator=seeded(), dtype=torch.float64)
    boxes = place_inside(torch.full((8000,), 0.25), uniform, (8, 12))
    # 4 × 6 pixels: 5 places for the top row, 7 for the left column
    counts = torch.bincount(boxes[:, 0] * 7 + boxes[:, 1], minlength=35)
    assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE


def test_a_uniform_number_rounded_to_one_stays_inside():
    box = place_inside(torch.tensor([0.25]), torch.ones(1, 2, dtype=torch.float64), (8, 12))
    assert box.tolist() == [[4, 6, 8, 12]]


def test_paste_is_the_share_of_pasted_outputs():
    mix = ZetaMix(num_classes=2, paste=0.3, generator=seeded())
    plan = mix.make_plan(4000, size=(8, 8))
    count = int(plan.pasted.sum())
    assert scipy.stats.binomtest(count, 4000, 0.3).pvalue > LEAST_P_VALUE
    blended = ~plan.pasted
    assert (plan.boxes[blended] == 0).all()
    assert (plan.scale[blended] > 1).all()


def test_masks_and_maps_are_pasted_with_their_image():
    labels = torch.arange(8)
    batch = {
        "image": labels.view(8, 1, 1, 1).expand(8, 1, 9, 7) - 3.5,
        "mask": labels.view(8, 1, 1).expand(8, 9, 7),
        "depth": labels.view(8, 1, 1, 1).expand(8, 1, 9, 7).double(),
        "label": labels,
        "age": labels.float(),
        "name": list("abcdefgh"),
    }
    rules = {
        "image": Blend(), "mask": OneHot(8, ignore_index=7), "depth": Average(),
        "label": OneHot(8), "age": Average(), "name": FromAnchor(),
    }  # fmt: skip
    mixed = ZetaMix(rules=rules, paste=1.0, sources=3, generator=seeded())(batch)
    owners = (mixed["image"][:, 0] + 3.5).round().long()
    assert len(owners.unique()) > 3
    hot = torch.nn.functional.one_hot(owners, 8).movedim(-1, 1).float()
    hot[:, 7] = 0
    assert torch.equal(mixed["mask"], hot)
    assert torch.equal(mixed["depth"][:, 0].long(), owners)
    shares = torch.nn.functional.one_hot(owners, 8).double().mean((1, 2))
    assert_close(mixed["label"], shares)
    assert_close(mixed["age"], shares @ labels.double())
    assert mixed["name"] == ["abcdefgh"[k] for k in shares.argmax(1).tolist()]


def test_dense_labels_of_a_pair_are_pasted():
    samples, labels = images()
    dense = labels.view(8, 1, 1).expand(8, 9, 7)
    plan = CutMix(per="sample", generator=seeded()).make_plan(8, size=(9, 7))
    mixed, targets = CutMix(num_classes=8, per="sample", generator=seeded())(samples, dense)
    assert torch.equal(mixed, apply_plan(samples, plan))
    for k in range(8):
        owners = paint(lambda column, k=k: int(plan.indices[k, column]), plan, k)
        assert torch.equal(targets[k].argmax(0), torch.tensor(owners))


def test_what_has_no_pixels_is_blended_with_the_shares():
    samples, _ = images()
    text, boxes = torch.randn(8, 5), torch.randn(8, 4, 2)
    mix = CutMix(rules=(Blend(), Blend(), Average()), per="sample", generator=seeded())
    plan = CutMix(per="sample", generator=seeded()).make_plan(8, size=(9, 7))
    _, mixed_text, mixed_boxes = mix(samples, text, boxes)
    assert_close(mixed_text, plan.matrix().double() @ text.double())
    assert_close(mixed_boxes, torch.einsum("on,nij->oij", plan.matrix().double(), boxes.double()))


def test_the_size_is_that_of_the_first_images_that_are_blended():
    samples, labels = images()
    rules = {"target": Average(), "text": Blend(), "image": Blend()}
    batch = {"target": torch.randn(8, 2, 3, 3), "text": torch.randn(8, 5), "image": samples}
    mixed = CutMix(rules=rules, generator=seeded())(batch)
    assert torch.equal(
        mixed["image"], CutMix(num_classes=8, generator=seeded())(samples, labels)[0]
    )


@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (6, 3, 4, 8, 8)], ids=["images", "videos"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("channels_last", [False, True])
def test_dtype_and_memory_format_are_kept(shape, dtype, channels_last):
    samples = (20 * torch.randn(shape, generator=seeded())).abs().to(dtype)
    layout = torch.contiguous_format
    if channels_last:
        layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    samples = samples.contiguous(memory_format=layout)
    plan = ZetaMix(paste=0.5, keep_variance=False, generator=seeded()).make_plan(6, size=(8, 8))
    mixed = apply_plan(samples, plan)
    assert (mixed.dtype, mixed.shape) == (dtype, shape)
    assert mixed.is_contiguous(memory_format=layout)
    blend = apply_plan(samples, MixPlan(plan.indices, plan.weights, 6))
    slow = reference.paste(blend, samples, plan.indices, plan.boxes)
    assert torch.equal(mixed, slow)
    assert slow.is_contiguous(memory_format=layout)


WHOLE, EMPTY, CORNER, MIDDLE = (0, 0, 5, 4), (0, 0, 0, 0), (0, 0, 2, 3), (1, 1, 4, 3)


@pytest.mark.parametrize(
    "boxes",
    [
        [[WHOLE, MIDDLE], [EMPTY, EMPTY], [WHOLE, EMPTY]],
        [[WHOLE, CORNER, MIDDLE], [WHOLE, WHOLE, CORNER], [EMPTY] * 3],
        [[WHOLE, MIDDLE, CORNER, EMPTY], [WHOLE, EMPTY, EMPTY, WHOLE], [EMPTY] * 4],
        [[WHOLE], [WHOLE], [EMPTY]],
        [[WHOLE, MIDDLE, CORNER, EMPTY, MIDDLE]] * 3,
    ],
)
@pytest.mark.parametrize("mean", [None, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_copied_boxes_are_those_of_the_reference(boxes, mean, dtype):
    boxes = torch.tensor(boxes)
    sources = boxes.shape[1]
    samples = torch.rand(6, 3, 10, 8, generator=seeded())[::2, :, ::2, ::2]
    samples = (255 * samples if dtype == torch.uint8 else samples).to(dtype)
    indices = torch.stack([torch.arange(3).roll(-k) for k in range(sources)], 1)
    weights = torch.rand(3, sources, generator=seeded()).softmax(1)
    plan = MixPlan(indices, weights, 3, keep_variance=mean is not None, boxes=boxes, size=(5, 4))
    fast = apply_plan(samples, plan, mean=mean)
    with plain_torch():
        slow = apply_plan(samples, plan, mean=mean)
    if dtype == torch.uint8:
        assert (fast.int() - slow.int()).abs().max() <= 1
    else:
        assert_close(fast, slow)
    for k, row in enumerate(boxes):
        top, left, bottom, right = row[-1].tolist()
        pixels = (..., slice(top, bottom), slice(left, right))
        assert torch.equal(fast[k][pixels], samples[indices[k, -1]][pixels])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_pasted_pixels_are_exact_beside_numbers_that_are_not_finite(value):
    samples = torch.randn(2, 1, 5, 4)
    samples[1] = value
    boxes = torch.tensor([[WHOLE, MIDDLE], [WHOLE, MIDDLE]])
    plan = MixPlan(
        torch.tensor([[0, 1], [1, 0]]), torch.full((2, 2), 0.5), 2, boxes=boxes, size=(5, 4)
    )
    for context in (nullcontext, plain_torch):
        with context():
            mixed = apply_plan(samples, plan)
        assert int((~mixed[0].isfinite()).sum()) == 6
        assert int(mixed[1].isfinite().sum()) == 6
        assert mixed[1, 0, 0, 0].isnan() == samples[1, 0, 0, 0].isnan()


@pytest.mark.parametrize("options", [{}, {"paste": 0.5}, {"mean": 0.5, "paste": 0.5}])
def test_gradients(options):
    mean = options.pop("mean", None)
    plan = ZetaMix(generator=seeded(), **options).make_plan(3, size=(4, 3), dtype=torch.float64)
    # away from the ends, where clipping has no gradient
    samples = 0.45 + 0.1 * torch.rand(3, 2, 4, 3, generator=seeded(), dtype=torch.float64)
    samples.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: apply_plan(x, plan, mean=mean), samples)


# plans


@every_transform
def test_a_plan_is_replayed_exactly(make):
    samples, labels = images()
    mixed, targets = make(num_classes=8, p=0.8, generator=seeded())(samples, labels)
    plan = make(num_classes=8, p=0.8, generator=seeded()).make_plan(8, size=(9, 7))
    for again in (
        plan,
        plan.to("cpu"),
        copy.deepcopy(plan),
        pickle.loads(pickle.dumps(plan)),
    ):
        assert same_plans(again, plan)
        assert repr(again) == repr(plan)
        assert torch.equal(apply_plan(samples, again), mixed)
        assert torch.equal(OneHot(8).mix(labels, again), targets)
    assert plan.to("meta").device.type == "meta"


def test_repr_names_boxes_and_variance():
    plan = ZetaMix(num_classes=3, paste=0.5).make_plan(64, size=(32, 48))
    assert repr(plan) == (
        "MixPlan(64 outputs of 2 sources each, boxes in images of 32 × 48, variance kept, "
        "batch_size=64, torch.float32, cpu)"
    )
    assert repr(ZetaMix(num_classes=3, paste=0.5)) == (
        "ZetaMix(gamma=(0.0, 4.0), sources=2, keep_variance=True, paste=0.5, num_classes=3, p=1.0, "
        "until=0.8, enabled=True)"
    )


# every transform


@every_transform
def test_a_seed_fixes_the_result_and_the_input_is_left_alone(make):
    samples, labels = images()
    kept = samples.clone()
    first, again, other = (
        make(num_classes=8, generator=seeded(seed))(samples, labels) for seed in (3, 3, 4)
    )
    assert torch.equal(samples, kept)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert_close(first[1].sum(1), torch.ones(8))


@every_transform
def test_the_switch_eval_mode_and_one_sample(make):
    samples, labels = images()
    mix = make(num_classes=8)
    mix.enabled = False
    assert torch.equal(mix(samples, labels)[0], samples)
    mix.enabled = True
    mix.eval()
    mixed, targets = mix(samples, labels)
    assert torch.equal(mixed, samples)
    assert torch.equal(targets, torch.eye(8))
    mixed, targets = make(num_classes=8)(samples[:1], labels[:1])
    assert_close(mixed, samples[:1])
    assert_close(targets, torch.eye(8)[:1])


@every_transform
def test_nothing_is_read_from_the_device(make):
    """Tensors on the meta device hold no values: a host that reads one raises."""
    samples = torch.empty(8, 3, 9, 7, device="meta", dtype=torch.bfloat16)
    plan = make(p=0.5).make_plan(8, size=(9, 7), device="meta")
    mixed = apply_plan(samples, plan)
    assert (mixed.shape, mixed.dtype) == (samples.shape, samples.dtype)
    targets = Average().mix(torch.empty(8, 4, device="meta"), plan)
    assert targets.shape == (8, 4)


@pytest.mark.parametrize("name", ["zetamix, some pasted", "cutmix", "switch per sample"])
def test_compiles_into_one_graph(name):
    torch.compiler.reset()
    torch.manual_seed(0)
    samples, labels = images()
    mix = TRANSFORMS[name](num_classes=8, p=0.9)
    compiled = torch.compile(mix, fullgraph=True, backend="eager")
    mixed, targets = compiled(samples, labels)
    assert not torch.equal(mixed, samples)
    assert_close(targets.sum(1), torch.ones(8))
    # another size of batch and of images
    assert compiled(samples[:5, :, :8, :6], labels[:5])[0].shape == (5, 3, 8, 6)


@every_transform
def test_copies_and_pickles_mix_alike(make):
    samples, labels = images()
    mix = make(num_classes=8, generator=seeded())
    twins = [copy.deepcopy(mix), pickle.loads(pickle.dumps(mix))]
    expected = mix(samples, labels)
    for twin in twins:
        assert repr(twin) == repr(mix)
        assert all(torch.equal(a, b) for a, b in zip(twin(samples, labels), expected, strict=True))


# CutMix per sample, mixup or CutMix, label smoothing


def test_cutmix_per_sample_draws_partner_box_and_share_for_each():
    plan = CutMix(per="sample", generator=seeded()).make_plan(4000, size=(32, 32))
    assert plan.pasted.all()
    assert (plan.indices[:, 0] == torch.arange(4000)).all()
    assert (plan.indices[:, 0] != plan.indices[:, 1]).all()
    assert len(plan.boxes[:, 1].unique(dim=0)) > 1000
    assert len(((plan.indices[:, 1] - plan.indices[:, 0]) % 4000).unique()) == 1


def test_switch_tosses_once_per_batch():
    mix = MixupOrCutMix(generator=seeded())
    plans = [mix.make_plan(6, size=(16, 16)) for _ in range(600)]
    cut = [plan for plan in plans if plan.pasted.any()]
    assert all(plan.pasted.all() for plan in cut)
    assert scipy.stats.binomtest(len(cut), 600, 0.5).pvalue > LEAST_P_VALUE
    # one λ and one box for a batch
    assert all(plan.weights.unique(dim=0).shape[0] == 1 for plan in plans)
    lams = [plan.weights[0, 0].item() for plan in plans if not plan.pasted.any()]
    assert scipy.stats.kstest(lams, scipy.stats.beta(0.8, 0.8).cdf).pvalue > LEAST_P_VALUE


def test_switch_per_sample_tosses_for_each():
    mix = MixupOrCutMix(per="sample", switch_prob=0.25, generator=seeded())
    plan = mix.make_plan(4000, size=(16, 16))
    assert scipy.stats.binomtest(int(plan.pasted.sum()), 4000, 0.25).pvalue > LEAST_P_VALUE
    lams = plan.weights[~plan.pasted, 0]
    assert scipy.stats.kstest(lams.numpy(), scipy.stats.beta(0.8, 0.8).cdf).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize(("switch_prob", "expected"), [(0.0, False), (1.0, True)])
def test_switch_at_its_ends(switch_prob, expected):
    plan = MixupOrCutMix(switch_prob=switch_prob, per="sample").make_plan(500, size=(8, 8))
    assert (plan.pasted == expected).all()


def test_label_smoothing_is_that_of_the_cross_entropy():
    logits, labels = torch.randn(8, 5, generator=seeded()), torch.arange(8) % 5
    samples = torch.rand(8, 3)
    same, targets = LabelSmoothing(num_classes=5, amount=0.1)(samples, labels)
    assert same is samples
    loss = torch.nn.functional.cross_entropy
    assert_close(loss(logits, targets), loss(logits, labels, label_smoothing=0.1))


def test_scale_of_even_blends():
    plan = ZetaMix(num_classes=8, gamma=0.0, sources=4).make_plan(8)
    assert_close(plan.scale, torch.full((8,), math.sqrt(4)))


# few sources on a CPU take a path of their own

FEW = {
    "default": lambda **given: ZetaMix(**given),
    "blended": lambda **given: ZetaMix(paste=0, **given),
    "fixed gamma": lambda **given: ZetaMix(gamma=2.0, **given),
    "range above 0": lambda **given: ZetaMix(gamma=(1.0, 3.0), sources=3, **given),
    "variance not kept": lambda **given: ZetaMix(sources=4, keep_variance=False, **given),
    "all of a small batch": lambda **given: ZetaMixup(gamma=2.8, **given),
    "mixup": lambda **given: Mixup(**given),
    "mixup, one beta": lambda **given: Mixup(alpha=0.3, per="batch", **given),
}
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [1, 2, 4, 9])
@pytest.mark.parametrize("make", FEW.values(), ids=FEW.keys())
def test_the_path_of_few_sources_mixes_by_the_plan_of_the_seed(make, batch, layout):
    samples = torch.randn(batch, 3, 5, 4).to(memory_format=layout)
    labels = torch.randint(7, (batch,))
    mixed, targets = make(num_classes=7, generator=seeded(3))(samples, labels)
    plan = make(num_classes=7, generator=seeded(3)).make_plan(batch, size=(5, 4))
    assert torch.equal(mixed, apply_plan(samples, plan))
    assert_close(mixed, apply_plan(samples.double(), plan))
    assert torch.equal(targets, OneHot(7).mix(labels, plan))
    assert mixed.stride() == samples.stride()


def test_the_path_of_few_sources_keeps_its_precision_under_autocast():
    samples, labels = torch.randn(8, 6), torch.arange(8)
    expected = ZetaMix(num_classes=8, generator=seeded(1))(samples, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, targets = ZetaMix(num_classes=8, generator=seeded(1))(samples, labels)
    assert torch.equal(mixed, expected[0])
    assert torch.equal(targets, expected[1])


@pytest.mark.parametrize("wrong", [-1, 5, 255])
def test_a_wrong_label_among_few_sources_is_refused(wrong):
    labels = torch.tensor([0, 1, wrong, 2])
    with pytest.raises(ValueError, match=rf"labels must lie in \[0, 5\), got {wrong}"):
        ZetaMix(num_classes=5)(torch.randn(4, 3), labels)


def test_a_plan_drawn_in_inference_mode_leaves_gradients_of_gamma_alone():
    with torch.inference_mode():
        ZetaMix(num_classes=4)(torch.randn(4, 3), torch.arange(4))
    gamma = torch.tensor(1.0, requires_grad=True)
    weights = sampling.weigh(gamma, 2)
    weights[0].backward()
    lam = weights[0].item()
    assert gamma.grad.item() == pytest.approx(math.log(2) * lam * (1 - lam))


@pytest.mark.parametrize("kind", [tuple, torch.tensor, np.array], ids=["tuple", "tensor", "array"])
def test_a_mean_may_be_a_tensor_or_an_array(kind):
    samples, labels = torch.rand(4, 3, 5, 5), torch.arange(4)
    expected, _ = ZetaMix(num_classes=4, mean=(0.5, 0.25, 0.75), generator=seeded(1))(
        samples, labels
    )
    mix = ZetaMix(num_classes=4, mean=kind([0.5, 0.25, 0.75]), generator=seeded(1))
    assert torch.equal(mix(samples, labels)[0], expected)
    assert "mean=(0.5, 0.25, 0.75)" in repr(mix)


def test_samples_of_an_impossible_dtype_are_refused_before_their_mean_is_asked_for():
    with pytest.raises(TypeError, match="samples must be floating point of 16 bits or more"):
        ZetaMix(num_classes=4)(torch.zeros(4, 3, dtype=torch.int64), torch.arange(4))


def test_images_of_two_sizes_are_blended_by_default():
    """Boxes would cover one of them, and the labels of the other would be wrong."""
    options = {"keep_variance": False, "generator": seeded()}
    mix = ZetaMix(rules=(Blend(), Blend(), OneHot(64)), **options)
    small = torch.arange(64.0).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    large = torch.arange(64.0).view(-1, 1, 1, 1).expand(-1, 3, 16, 16)
    first, second, targets = mix((small, large, torch.arange(64)))
    expected = targets @ torch.arange(64.0)
    for mixed in (first, second):
        torch.testing.assert_close(mixed, expected.view(-1, 1, 1, 1).expand_as(mixed))


def test_images_with_channels_last_are_doubted():
    images, labels = torch.randn(8, 16, 16, 3), torch.arange(8)
    with pytest.warns(UserWarning, match=r"look like \[batch, height, width, channels\].*permute"):
        ZetaMix(num_classes=8)(images, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ZetaMix(num_classes=8)(images.permute(0, 3, 1, 2), labels)
        ZetaMix(num_classes=8, paste=0)(images, labels)
    grey = torch.randn(8, 16, 16, 1)
    for cut in (ZetaMix(num_classes=8, paste=1.0), CutMix(num_classes=8)):
        with pytest.warns(UserWarning, match="look like .*permute"):
            cut(grey, labels)


def test_images_that_are_only_pasted_need_not_be_normalised():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ZetaMix(num_classes=8, paste=1.0)(torch.rand(8, 3, 8, 8), torch.arange(8))
    with pytest.warns(UserWarning, match="not normalised"):
        ZetaMix(num_classes=8, paste=0.9)(torch.rand(8, 3, 8, 8), torch.arange(8))
