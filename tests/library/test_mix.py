"""Applying a plan: samples of any kind, targets of any kind, and nothing lost on the way."""

import subprocess
import sys
from collections import OrderedDict
from contextlib import nullcontext

import by_hand
import numpy as np
import pytest
import torch
from conftest import assert_close
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import tv_tensors
from transform_kinds import plain_torch

from zetamix import MixPlan, ZetaMixup, apply_plan, mixup, zeta_mixup, zeta_plan
from zetamix.kernels import reference
from zetamix.rules import Average, Blend, FromAnchor, OneHot

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SMALL_INTS = [torch.uint8, torch.int8, torch.int16]
LABEL_INTS = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
SHAPES = {
    "values": (6,),
    "tabular": (6, 5),
    "audio": (6, 2, 31),
    "images": (6, 3, 7, 5),
    "volumes": (6, 1, 4, 3, 5),
    "video": (6, 2, 3, 2, 4, 3),
    "no features": (6, 0),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
every_plan = pytest.mark.parametrize(
    "plan_of",
    [lambda: zeta_plan(6, 1.2, outputs=9), lambda: zeta_plan(6, 1.2, sources=2, outputs=9)],
    ids=["all sources", "two sources"],
)
# many sources go through a matrix product, few of many rows are gathered: both must mix alike
every_path = pytest.mark.parametrize(
    "plan_of",
    [lambda **kwargs: zeta_plan(6, **kwargs), lambda **kwargs: zeta_plan(16, sources=2, **kwargs)],
    ids=["product", "gather"],
)


def by_loop(samples, plan):
    """Mix in float64 with the loops of by_hand, for any plan; the result in float64."""
    rows = samples.double().reshape(plan.batch_size, -1).tolist()
    mixed = []
    for order, weights in zip(plan.indices.tolist(), plan.weights.tolist(), strict=True):
        full = [0.0] * plan.batch_size
        for row, weight in zip(order, weights, strict=True):
            full[row] += weight
        mixed.append(by_hand.mix_samples(rows, full))
    return torch.tensor(mixed, dtype=torch.float64).view(plan.outputs, *samples.shape[1:])


# samples


@every_shape
@every_plan
def test_any_rank(shape, plan_of):
    samples, plan = torch.randn(shape), plan_of()
    mixed = apply_plan(samples, plan)
    assert mixed.shape == (9, *shape[1:])
    assert_close(mixed, by_loop(samples, plan))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@every_path
def test_float_dtypes_are_kept(dtype, plan_of):
    plan = plan_of(gamma=1.2)
    samples = torch.randn(plan.batch_size, 3, 5).to(dtype)
    mixed = apply_plan(samples, plan)
    assert mixed.dtype == dtype
    # float32 weights are all that this plan holds, so float64 samples are compared with them
    assert_close(mixed, by_loop(samples, plan))


@pytest.mark.parametrize("dtype", SMALL_INTS, ids=str)
@every_path
def test_integers_are_rounded_to_the_nearest(dtype, plan_of):
    plan = plan_of(gamma=1.2)
    info = torch.iinfo(dtype)
    samples = torch.randint(info.min, info.max + 1, (plan.batch_size, 50)).to(dtype)
    mixed = apply_plan(samples, plan)
    assert mixed.dtype == dtype
    assert (mixed.double() - by_loop(samples, plan)).abs().max() <= 0.5 + 1e-2


@pytest.mark.parametrize("dtype", SMALL_INTS, ids=str)
def test_the_ends_of_an_integer_range_do_not_wrap_round(dtype):
    info = torch.iinfo(dtype)
    for value in (info.min, info.max):
        samples = torch.full((33, 4), value, dtype=dtype)
        assert torch.equal(apply_plan(samples, zeta_plan(33, 1.0)), samples)


@pytest.mark.parametrize("dtype", SMALL_INTS, ids=str)
@pytest.mark.parametrize("batch", [2, 16, 300], ids=["product", "bags", "gather"])
@pytest.mark.parametrize("plain", [True, False])
def test_integers_are_clamped_where_the_weights_do_not_sum_to_one(dtype, batch, plain):
    info = torch.iinfo(dtype)
    samples = torch.full((batch, 3), info.max, dtype=dtype)
    rows = torch.zeros(batch, 2, dtype=torch.int64)
    for total, expected in ((2.0, info.max), (-2.0, info.min)):
        plan = MixPlan(rows, torch.full((batch, 2), total / 2), batch)
        with plain_torch() if plain else nullcontext():
            mixed = apply_plan(samples, plan)
        assert torch.equal(mixed, torch.full_like(samples, expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_accumulated_in_float32(dtype):
    # a running sum in half precision stops growing long before 512 terms of 1/512
    samples = torch.ones(512, 8, dtype=dtype)
    assert torch.equal(apply_plan(samples, zeta_plan(512, 0.0)), samples)


def test_double_weights_reach_double_samples():
    samples = torch.randn(6, 4, dtype=torch.float64)
    labels = torch.arange(6)
    mixed, _ = zeta_mixup(samples, labels, 6, gamma=1.3, generator=torch.Generator().manual_seed(0))
    plan = zeta_plan(6, 1.3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_close(mixed, by_loop(samples, plan))


@pytest.mark.parametrize(
    ("shape", "memory_format"),
    [((6, 3, 8, 5), torch.channels_last), ((6, 3, 4, 5, 2), torch.channels_last_3d)],
    ids=["channels_last", "channels_last_3d"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_memory_format_is_kept(shape, memory_format, dtype):
    samples = (torch.randn(shape) * 40 + 120).to(dtype)
    plan = zeta_plan(6, 1.2, outputs=4)
    mixed = apply_plan(samples.contiguous(memory_format=memory_format), plan)
    assert mixed.is_contiguous(memory_format=memory_format)
    assert not mixed.is_contiguous()
    plain = apply_plan(samples, plan)
    assert plain.is_contiguous()
    assert_close(mixed, plain)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, ::2],
        lambda x: x[:, :, 1:-1],
        lambda x: x.transpose(1, 3),
        lambda x: x.flip(2),
        lambda x: x[:, :1].expand(-1, 3, -1, -1),
        lambda x: x[:1].expand(6, -1, -1, -1),
        lambda x: x.permute(3, 1, 2, 0)[:6],
    ],
    ids=["steps", "crop", "transposed", "flipped", "same channel", "same row", "batch last"],
)
def test_views_are_mixed_as_what_they_show(view):
    samples = view(torch.randn(6, 4, 5, 7))
    plan = zeta_plan(6, 1.2)
    mixed = apply_plan(samples, plan)
    assert mixed.shape == samples.shape
    assert_close(mixed, by_loop(samples, plan))


def test_result_is_its_own_memory():
    samples = torch.randn(1, 4)
    mixed = apply_plan(samples, zeta_plan(1))
    mixed.zero_()
    assert (samples != 0).all()


@pytest.mark.parametrize("function", [zeta_mixup, mixup])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_inputs_are_left_alone(function, dtype):
    samples, labels = (torch.rand(6, 3, 4, 4) * 200).to(dtype), torch.arange(6)
    kept = samples.clone(), labels.clone()
    versions = samples._version, labels._version
    function(samples, labels, 6)
    assert torch.equal(samples, kept[0])
    assert torch.equal(labels, kept[1])
    assert (samples._version, labels._version) == versions


def test_a_nest_of_samples_is_mixed_entry_by_entry():
    plan = zeta_plan(4, 1.2)
    left, right, deep = torch.randn(4, 3), torch.randn(4), torch.randn(4, 2, 2)
    mixed = apply_plan({"left": left, "more": (right, [deep])}, plan)
    assert_close(mixed["left"], by_loop(left, plan))
    assert_close(mixed["more"][0], by_loop(right, plan))
    assert_close(mixed["more"][1][0], by_loop(deep, plan))


def test_one_plan_mixes_samples_and_labels_alike():
    labels = torch.tensor([2, 0, 1, 1, 2])
    mixed, targets = zeta_mixup(torch.nn.functional.one_hot(labels).float(), labels, 3, gamma=1.5)
    assert_close(mixed, targets)


@every_path
def test_a_row_named_twice_counts_twice(plan_of):
    plan = plan_of()
    indices = plan.indices.clone()
    indices[:, 1] = indices[:, 0]
    twice = MixPlan(indices, plan.weights, plan.batch_size)
    samples = torch.randn(plan.batch_size, 4)
    assert_close(apply_plan(samples, twice), by_loop(samples, twice))


# gradients


@every_path
def test_gradients_to_second_order(plan_of):
    plan = plan_of(dtype=torch.float64)
    samples = torch.randn(plan.batch_size, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: apply_plan(x, plan), samples)
    assert torch.autograd.gradgradcheck(lambda x: apply_plan(x, plan), samples)


@every_path
def test_gradients_reach_the_weights(plan_of):
    plan = plan_of(dtype=torch.float64)
    samples = torch.randn(plan.batch_size, 3, dtype=torch.float64, requires_grad=True)
    weights = plan.weights.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, w: reference.mix_rows(x, plan.indices, w), (samples, weights)
    )


def test_gradients_through_channels_last_and_half_precision():
    plan = zeta_plan(4, 1.2)
    samples = torch.randn(4, 2, 3, 3, dtype=torch.bfloat16)
    samples = samples.to(memory_format=torch.channels_last).requires_grad_()
    apply_plan(samples, plan).sum().backward()
    # the gradient of the sum is, for each row, the weight that all outputs give it
    share = plan.matrix().sum(0)
    assert_close(samples.grad, share.view(4, 1, 1, 1).expand(4, 2, 3, 3))


# torch scripts its own formulas for forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated")
@every_path
def test_forward_mode_derivatives(plan_of):
    plan = plan_of(gamma=1.2)
    samples, tangents = torch.randn(2, plan.batch_size, 3)
    with forward_ad.dual_level():
        mixed = apply_plan(forward_ad.make_dual(samples, tangents), plan)
        assert_close(forward_ad.unpack_dual(mixed).tangent, by_loop(tangents, plan))
    _, moved = torch.func.jvp(lambda x: apply_plan(x, plan), (samples,), (tangents,))
    assert_close(moved, by_loop(tangents, plan))

    def mix_with(weights):
        return apply_plan(samples, MixPlan(plan.indices, weights, plan.batch_size))

    # mixing is linear in the weights
    weights = plan.weights.clone()
    assert_close(torch.func.jvp(mix_with, (weights,), (weights,))[1], by_loop(samples, plan))


@every_path
def test_a_plan_is_applied_inside_vmap(plan_of):
    plan = plan_of(gamma=1.2)
    batches = torch.randn(3, plan.batch_size, 2, 4)
    mixed = torch.vmap(lambda x: apply_plan(x, plan))(batches)
    for batch, result in zip(batches, mixed, strict=True):
        assert_close(result, by_loop(batch, plan))


META = {
    "all sources": lambda x, y: zeta_mixup(x, y, 5),
    "few sources": lambda x, y: zeta_mixup(x, y, 5, sources=2, gamma=(2.0, 4.0)),
    "mixup": lambda x, y: mixup(x, y, 5, alpha=0.4),
    "transform": lambda x, y: ZetaMixup(num_classes=5, p=0.5)(x, y),
    "off": lambda x, y: ZetaMixup(num_classes=5).eval()(x, y),
}


@pytest.mark.parametrize("call", META.values(), ids=META.keys())
def test_meta_tensors_give_shapes_and_dtypes(call):
    samples = torch.empty(300, 2, 4, 4, dtype=torch.float16, device="meta")
    labels = torch.empty(300, dtype=torch.int64, device="meta")
    mixed, targets = call(samples, labels)
    assert (mixed.shape, mixed.dtype) == (samples.shape, samples.dtype)
    assert (targets.shape, targets.dtype) == ((300, 5), torch.float32)
    assert mixed.device.type == targets.device.type == "meta"


def test_gradients_reach_soft_targets_and_not_labels():
    soft = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    plan = zeta_plan(5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda y: Average().mix(y, plan), soft)
    assert not OneHot(3).mix(torch.tensor([0, 1, 2, 0, 1]), plan).requires_grad


# targets


@pytest.mark.parametrize("dtype", LABEL_INTS, ids=str)
@pytest.mark.parametrize("column", [False, True], ids=["[n]", "[n, 1]"])
def test_class_labels_of_any_int_dtype(dtype, column):
    labels = torch.tensor([3, 0, 2, 2, 1])
    plan = zeta_plan(5, 1.3, sources=3, outputs=8)
    given = labels.to(dtype)
    targets = OneHot(4).mix(given[:, None] if column else given, plan)
    assert targets.dtype == torch.float32
    for output in range(8):
        ranks = by_hand.ranks_from_order(plan.indices[output].tolist(), 5)
        weights = by_hand.weights_from_ranks(ranks, 1.3)
        expected = by_hand.mix_labels(labels.tolist(), weights, 4)
        assert_close(targets[output], torch.tensor(expected))


def test_more_classes_than_a_small_dtype_can_count():
    labels = torch.tensor([255, 0, 7], dtype=torch.uint8)
    _, targets = zeta_mixup(torch.zeros(3, 1), labels, 300)
    assert targets.shape == (3, 300)
    assert targets.argmax(1).tolist() == [255, 0, 7]


def test_class_ids_survive_half_precision_samples():
    # kornia#4657: ids cast to the dtype of the images are no longer the same ids
    labels = torch.tensor([999, 998, 997])
    _, targets = zeta_mixup(torch.zeros(3, 2, dtype=torch.bfloat16), labels, 1000)
    assert targets.argmax(1).tolist() == [999, 998, 997]


TARGETS = {
    "soft": torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]),
    "multi-label bool": torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]]).bool(),
    "multi-label float": torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]]).float(),
    "regression [n]": torch.tensor([1.5, -2.0, 40.0]),
    "regression [n, k]": torch.randn(3, 4, generator=torch.Generator().manual_seed(1)),
    "regression [n, 1]": torch.tensor([[1.5], [-2.0], [40.0]]),
    "heat maps [n, k, h, w]": torch.rand(3, 2, 4, 5, generator=torch.Generator().manual_seed(1)),
    "half": torch.tensor([0.5, 0.25, 2.0], dtype=torch.float16),
    "double": torch.tensor([[1 / 3], [2 / 7], [1 / 9]], dtype=torch.float64),
}  # fmt: skip


@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS.keys())
def test_targets_that_are_numbers(targets):
    seed = torch.Generator().manual_seed(5)
    _, mixed = zeta_mixup(torch.zeros(3, 2), targets, gamma=1.4, generator=seed)
    assert mixed.dtype == (torch.float64 if targets.dtype == torch.float64 else torch.float32)
    plan = zeta_plan(3, 1.4, generator=torch.Generator().manual_seed(5), dtype=mixed.dtype)
    assert mixed.shape == targets.shape
    assert_close(mixed, by_loop(targets, plan))


def test_integer_values_are_soft_targets_when_the_rule_says_so():
    plan = zeta_plan(3, 1.4)
    counts = torch.tensor([[1, 10], [2, 20], [3, 30]])
    assert_close(Average().mix(counts, plan), by_loop(counts, plan))


def test_the_anchor_rule_takes_the_heaviest_source():
    weights = torch.tensor([[0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    plan = MixPlan(torch.tensor([[0, 1], [1, 2], [0, 2]]), weights, 3)
    ids = torch.tensor([[100, 1], [200, 2], [300, 3]])
    assert FromAnchor().mix(ids, plan).tolist() == [[200, 2], [200, 2], [300, 3]]


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 3, 2, 2)], ids=["masks", "volumes"])
@pytest.mark.parametrize("ignored", [None, 255, -1, 1], ids=lambda i: f"ignore {i}")
def test_dense_masks_against_the_loop(shape, ignored):
    masks = torch.randint(3, shape)
    if ignored is not None:
        masks[torch.rand(shape) < 0.3] = ignored
    plan = zeta_plan(5, 1.3, sources=4, outputs=6)
    soft = OneHot(3, ignore_index=ignored).mix(masks, plan)
    assert soft.dtype == torch.float32
    assert soft.shape == (6, 3, *shape[1:])
    flat = masks.flatten(1)
    for output in range(6):
        ranks = by_hand.ranks_from_order(plan.indices[output].tolist(), 5)
        weights = by_hand.weights_from_ranks(ranks, 1.3)
        for position in range(flat.shape[1]):
            expected = by_hand.mix_labels(flat[:, position].tolist(), weights, 3, ignored)
            assert_close(soft[output].flatten(1)[:, position], torch.tensor(expected))


def test_ignored_class_labels_give_no_mass():
    plan = MixPlan(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0.75, 0.25]] * 2), 2)
    targets = OneHot(2, ignore_index=-100).mix(torch.tensor([1, -100]), plan)
    assert targets.tolist() == [[0.0, 0.75], [0.0, 0.25]]


@pytest.mark.parametrize("shape", [(6, 1, 5, 4), (6, 1, 3, 5, 4)], ids=str)
def test_masks_with_a_channel_of_one(shape):
    masks = torch.randint(3, shape)
    plan = zeta_plan(6)
    assert torch.equal(OneHot(3).mix(masks, plan), OneHot(3).mix(masks.squeeze(1), plan))
    _, targets = zeta_mixup(torch.randn(6, 2, *shape[2:]), masks, 3)
    assert targets.shape == (6, 3, *shape[2:])


def test_masks_through_the_function():
    masks = torch.randint(4, (3, 5, 5))
    masks[0, 0, 0] = 255
    samples, targets = zeta_mixup(torch.rand(3, 3, 5, 5), masks, 4, ignore_index=255, sources=2)
    assert samples.shape == (3, 3, 5, 5)
    assert targets.shape == (3, 4, 5, 5)
    # the anchor of the first output is ignored there, so its share of the mass is gone
    assert_close(targets[0, :, 0, 0].sum(), torch.tensor(1 / (1 + 2**2.8)))
    assert_close(targets[1, :, 1, 1].sum(), torch.tensor(1.0))


# batches of any size


@pytest.mark.parametrize("function", [zeta_mixup, mixup])
@pytest.mark.parametrize("labels", [torch.tensor([2]), torch.tensor([[2]])], ids=["[1]", "[1, 1]"])
def test_batch_of_one_comes_back_unmixed(function, labels):
    samples = torch.randn(1, 3, 4, 4)
    mixed, targets = function(samples, labels, 4)
    assert torch.equal(mixed, samples)
    assert targets.tolist() == [[0.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize("function", [zeta_mixup, mixup])
@pytest.mark.parametrize(("batch", "outputs"), [(2, 2), (3, 3), (7, 7), (33, 33), (5, 1), (5, 11)])
def test_odd_batches_and_more_or_fewer_outputs(function, batch, outputs):
    samples, targets = function(torch.randn(batch, 2), torch.arange(batch), batch, outputs=outputs)
    assert (samples.shape, targets.shape) == ((outputs, 2), (outputs, batch))
    assert_close(targets.sum(1), torch.ones(outputs))
    assert ((targets > 0).sum(1) == (2 if function is mixup else batch)).all()


def test_unique_classes_reveal_the_sources():
    batch, sources = 8, 3
    targets = zeta_mixup(torch.zeros(batch, 1), torch.arange(batch), batch, sources=sources)[1]
    assert targets.argmax(1).tolist() == list(range(batch))
    series = by_hand.weights_from_ranks([1, 2, 3], 2.8)
    for row in targets:
        heaviest = row.sort(descending=True).values
        assert_close(heaviest[:sources], torch.tensor(series))
        assert (heaviest[sources:] == 0).all()


def test_functions_use_the_generator_given(generator):
    before = torch.get_rng_state()
    state = generator.get_state()
    samples, labels = torch.randn(6, 3, generator=generator), torch.arange(6)
    generator.set_state(state)
    first = zeta_mixup(samples, labels, 6, generator=generator)
    generator.set_state(state)
    second = zeta_mixup(samples, labels, 6, generator=generator)
    assert torch.equal(first[0], second[0])
    assert torch.equal(torch.get_rng_state(), before)


# precision settings of the surroundings


@pytest.mark.parametrize("function", [zeta_mixup, mixup])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_leaves_samples_and_targets_alone(function, dtype):
    samples, labels = torch.randn(32, 3, 4).to(dtype), torch.arange(32) % 5
    seeds = [torch.Generator().manual_seed(0) for _ in range(2)]
    plain, plain_targets = function(samples, labels, 5, generator=seeds[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, targets = function(samples, labels, 5, generator=seeds[1])
    assert targets.dtype == torch.float32
    assert_close(targets.sum(1), torch.ones(32))
    assert torch.equal(targets, plain_targets)
    assert mixed.dtype == dtype
    assert torch.equal(mixed, plain)


@pytest.fixture(params=["high", "medium"])
def matmul_precision(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("matmul_precision")
def test_matmul_precision_does_not_reach_targets():
    plan, labels, soft = zeta_plan(64, 1.2), torch.arange(64) % 5, torch.rand(64, 5)
    one_hot = torch.nn.functional.one_hot(labels, 5)
    assert_close(OneHot(5).mix(labels, plan), by_loop(one_hot, plan))
    assert_close(Average().mix(soft, plan), by_loop(soft, plan))


# arrays and torchvision's tensors come back as what they were

ARRAYS = {
    "as it comes": lambda x: x,
    "read-only": lambda x: np.broadcast_to(x[:1], x.shape),
    "backwards": lambda x: x[::-1],
    "every second": lambda x: np.repeat(x, 2, 0)[::2],
}


@pytest.mark.parametrize("function", [zeta_mixup, mixup])
@pytest.mark.parametrize("view", ARRAYS.values(), ids=ARRAYS.keys())
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
def test_numpy_in_numpy_out(function, view, dtype):
    samples = view((100 * np.random.default_rng(0).random((6, 4, 3))).astype(dtype))
    labels = view(np.arange(6))
    seeded = torch.Generator().manual_seed
    mixed, targets = function(samples, labels, 6, generator=seeded(0))
    assert (type(mixed), type(targets)) == (np.ndarray, np.ndarray)
    assert (mixed.dtype, targets.dtype) == (dtype, "float32")
    tensors = torch.tensor(samples.tolist(), dtype=getattr(torch, dtype))
    expected, soft = function(tensors, torch.tensor(labels.tolist()), 6, generator=seeded(0))
    assert np.array_equal(mixed, expected.numpy())
    assert np.array_equal(targets, soft.numpy())


def test_each_entry_comes_back_as_it_came():
    rules = {"y": OneHot(4), "x": Blend(), "pair": (Average(), FromAnchor()), "file": FromAnchor()}
    batch = {
        "x": np.ones((4, 3, 2, 2), dtype=np.uint8),
        "y": torch.arange(4),
        "pair": (np.arange(4.0), tv_tensors.Image(torch.arange(4)[:, None, None].float())),
        "file": ["a", "b", "c", "d"],
    }
    mixed = ZetaMixup(rules=rules)(batch)
    assert [type(mixed[name]) for name in ("x", "y", "pair", "file")] == [
        np.ndarray, torch.Tensor, tuple, list,
    ]  # fmt: skip
    assert [type(entry) for entry in mixed["pair"]] == [np.ndarray, tv_tensors.Image]
    plan = zeta_plan(4)
    assert isinstance(apply_plan(batch["x"], plan), np.ndarray)
    assert isinstance(apply_plan([batch["x"], batch["y"].float()], plan)[1], torch.Tensor)


def test_a_nest_of_tensors_keeps_its_types():
    nest = OrderedDict(b=torch.ones(4, 2), a=[torch.ones(4)])
    mixed = apply_plan(nest, zeta_plan(4))
    assert (type(mixed), list(mixed), type(mixed["a"])) == (OrderedDict, ["b", "a"], list)


@pytest.mark.parametrize("kind", [tv_tensors.Image, tv_tensors.Video, tv_tensors.Mask])
def test_tv_tensors_keep_their_type(kind):
    value = kind(torch.randint(3, (4, 2, 5, 5), dtype=torch.uint8))
    mixed, targets = ZetaMixup(num_classes=4)(value, torch.arange(4))
    assert (type(mixed), type(targets)) == (kind, torch.Tensor)
    assert type(zeta_mixup(value, torch.arange(4), 4)[0]) is kind
    assert type(apply_plan(value, zeta_plan(4))) is kind
    # soft masks are masks: geometric transforms still move them with their image
    masks = tv_tensors.Mask(torch.randint(3, (4, 5, 5)))
    _, soft = ZetaMixup(num_classes=3)(value, masks)
    assert (type(soft), soft.shape) == (tv_tensors.Mask, (4, 3, 5, 5))


# compiled, and without waiting for the device


@pytest.mark.parametrize("function", [zeta_mixup, mixup])
def test_compiles_into_one_graph(function):
    compiled = torch.compile(
        lambda x, y: function(x, y, 8), fullgraph=True, backend="aot_eager", dynamic=False
    )
    samples, labels = torch.randn(8, 3, 4, 4), torch.arange(8)
    (mixed, targets), (_, again) = compiled(samples, labels), compiled(samples, labels)
    assert_close(targets.sum(1), torch.ones(8))
    # unique labels name the sources of every output: redo the mixing from them
    assert_close(mixed, (targets.double() @ samples.double().flatten(1)).view_as(samples))
    assert not torch.equal(targets, again)


def test_compiled_mix_agrees_with_the_loop():
    plan = zeta_plan(6, 1.2)
    samples = torch.randn(6, 3, 4).to(torch.bfloat16)
    # aot_eager traces and decomposes as inductor does, without a C++ compiler (33 s became 1);
    # test_transforms compiles with inductor
    compiled = torch.compile(lambda x: apply_plan(x, plan), fullgraph=True, backend="aot_eager")
    assert_close(compiled(samples), by_loop(samples, plan))


class NoWaiting(TorchDispatchMode):
    """Refuses what makes the host wait: copies between devices and reads of values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket._qualified_op_name
        if name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"):
            raise AssertionError(f"{name} reads a value from the device")
        tensors = [x for x in (*args, result) if isinstance(x, torch.Tensor) and x.numel() > 0]
        if len({x.device.type for x in tensors}) > 1:
            raise AssertionError(f"{name} moves data between devices")
        return result


@pytest.fixture
def fake_cuda():
    """Tensors that claim to be on CUDA but hold no values: whoever reads one is found out."""
    with FakeTensorMode(), NoWaiting():
        yield torch.device("cuda")


ON_DEVICE = {
    "number": lambda x, y: zeta_mixup(x, y, 10, ignore_index=-1),
    "range": lambda x, y: zeta_mixup(x, y, 10, gamma=(2.0, 4.0), sources=2),
    "tensor": lambda x, y: zeta_mixup(x, y, 10, gamma=torch.rand(32, device="cuda")),
    "random anchor": lambda x, y: zeta_mixup(x, y, 10, anchor="random", outputs=32, sources=2),
    "range, random anchor": lambda x, y: zeta_mixup(x, y, 10, gamma=(2.0, 4.0), anchor="random"),
    "mixup": lambda x, y: mixup(x, y, 10),
    "mixup, alpha": lambda x, y: mixup(x, y, 10, alpha=0.2),
    "mixup, alpha, batch": lambda x, y: mixup(x, y, 10, alpha=0.2, per="batch"),
}


@pytest.mark.parametrize("call", ON_DEVICE.values(), ids=ON_DEVICE.keys())
def test_mixing_never_waits_for_the_device(fake_cuda, call):
    samples = torch.empty(32, 3, 8, 8, device=fake_cuda)
    labels = torch.empty(32, dtype=torch.int64, device=fake_cuda)
    mixed, targets = call(samples, labels)
    assert mixed.device.type == targets.device.type == "cuda"
    assert (mixed.shape, targets.shape) == ((32, 3, 8, 8), (32, 10))


def test_rules_never_wait_for_the_device(fake_cuda):
    plan = zeta_plan(4, device=fake_cuda)
    masks = torch.empty(4, 5, 5, dtype=torch.int64, device=fake_cuda)
    assert OneHot(3, ignore_index=255).mix(masks, plan).device.type == "cuda"
    assert Average().mix(torch.empty(4, 2, device=fake_cuda), plan).device.type == "cuda"
    assert FromAnchor().mix(masks, plan).device.type == "cuda"
    assert Blend().mix(torch.empty(4, 2, device=fake_cuda), plan).device.type == "cuda"


def test_the_watch_does_see_a_read_and_a_copy(fake_cuda):
    with pytest.raises(Exception, match="_local_scalar_dense"):
        torch.empty(1, device=fake_cuda).item()
    with pytest.raises(AssertionError, match="moves data between devices"):
        torch.ones(2).to(fake_cuda)


@pytest.mark.gpu
@pytest.mark.parametrize("function", [zeta_mixup, mixup])
def test_no_synchronisation_on_a_real_device(function):
    samples = torch.randn(32, 3, 8, 8, device="cuda")
    labels = torch.randint(10, (32,), device="cuda")
    function(samples, labels, 10)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        function(samples, labels, 10)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("function", [zeta_mixup, mixup])
def test_a_captured_graph_replays_fresh_plans(function):
    samples, labels = torch.randn(16, 8, device="cuda"), torch.arange(16, device="cuda")
    function(samples, labels, 16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, targets = function(samples, labels, 16)
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(targets.clone())
        assert_close(targets.sum(1), torch.ones(16, device="cuda"))
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


@pytest.mark.gpu
def test_a_label_out_of_range_on_cuda_is_never_quiet():
    # a device-side assertion ends the CUDA context, so it gets a process of its own
    program = (
        "import torch, zetamix;"
        "_, t = zetamix.zeta_mixup(torch.zeros(2, 1, device='cuda'),"
        " torch.tensor([0, 7], device='cuda'), 5); torch.cuda.synchronize(); print('quiet')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode != 0
    assert "quiet" not in done.stdout
    assert "labels must lie in [0, " in done.stderr + done.stdout
