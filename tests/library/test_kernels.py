"""The Triton kernels against plain torch: in Triton's interpreter on any machine, on a GPU if any.

`conftest.py` switches the interpreter on where there is no GPU. It rounds to bfloat16 by cutting
off, a GPU to the nearest, so what comes out of bfloat16 halves may be four times as far off there.
"""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from zetamix import MixPlan, ZetaMix, apply_plan, mix, mixup, mixup_plan, zeta_mixup, zeta_plan
from zetamix import plan as plans
from zetamix.gamma import weigh
from zetamix.kernels import dispatch, embedding_bag, reference
from zetamix.kernels.plan_spec import PLAIN, Finish, Law, PlanShape, PlanSpec
from zetamix.plan import draw_finished
from zetamix.prepared_calls import PreparedCalls
from zetamix.rules import Blend, OneHot
from zetamix.sampling import ORDER, Draw, draw_lam, expand, order_rows, order_width

fused = pytest.importorskip("zetamix.kernels.triton_launch", reason="needs the package triton")
few = pytest.importorskip("zetamix.kernels.triton_few_launch", reason="needs the package triton")

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
# relative error in norm against float64
LIMITS = {
    torch.float32: 5e-6 if GPU else 2e-5,
    torch.bfloat16: 2.5e-3 if GPU else 5e-3,
    torch.float16: 4.0e-4,
    torch.uint8: 4.0e-3,
}


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """Fresh memory holds NaN (or 255), so that an element nobody wrote shows."""
    empty, new_empty, strided = torch.empty, torch.Tensor.new_empty, torch.empty_strided

    def poisoned(tensor):
        return tensor.fill_(float("nan") if tensor.is_floating_point() else 255)

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poisoned(empty(*a, **k)))
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: poisoned(new_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_strided", lambda *a, **k: poisoned(strided(*a, **k)))


def seed_of(number):
    return torch.tensor([number * 0x5DEECE66D + 11], device=DEVICE)


def expanded(seed, *shape, **lane):
    return expand(seed, 0, *shape, device=DEVICE, **lane)


def rows_of(batch, features, dtype):
    rows = torch.randn(batch, features, device=DEVICE)
    return (rows * 50 + 128).clamp(0, 255).to(dtype) if dtype == torch.uint8 else rows.to(dtype)


def error(actual, expected):
    return ((actual.double() - expected).norm() / expected.norm()).item()


def spec_of(batch, sources, parameter=2.8, *, outputs=None, **shape):
    """A plan to draw: of ζ-mixup unless the shape says otherwise."""
    width = order_width(batch, sources)
    shape = {"gamma_range": isinstance(parameter, tuple), **shape}
    shape = {"gamma_tensor": isinstance(parameter, torch.Tensor), **shape}
    return PlanSpec(PlanShape(batch, sources, outputs or batch, width, **shape), parameter)


def mixup_spec_of(batch, alpha, *, one_lam=False, outputs=None):
    shape = {"law": Law.MIXUP, "uniform_lam": alpha == 1, "one_lam": one_lam}
    return spec_of(batch, min(2, batch), alpha, outputs=outputs, **shape)


def draw_plan(spec, offset=0):
    return dispatch.draw_plan(spec, (seed_of(spec.shape.batch_size), offset), DEVICE)


def mix_labelled(samples, labels, classes, ignored, spec, finish, origin):
    call = dispatch.prepare_labelled(samples, labels, classes, ignored, spec, finish)
    return call(samples, labels, origin)


def matrix_of(batch, sources, outputs=None):
    """The plan as a float64 matrix, from its indices and weights."""
    indices, weights = draw_plan(spec_of(batch, sources, outputs=outputs))
    return reference.dense(indices, weights.double(), batch)


def launch_plan(spec, buffers, classes=0, ignore=None, **forms):
    """One launch of the plan kernel that writes the buffers."""
    launch = fused.plan_launch(spec.shape, classes=classes, ignore=ignore is not None, **forms)
    origin = (seed_of(spec.shape.batch_size), 0)
    fused.launch_plan(launch, spec, origin, DEVICE, buffers, classes, ignore or 0)


def halves_of(batch, sources):
    """The plan as the two bfloat16 halves that the kernels multiply with."""
    halves = fused.empty_halves(batch, batch, torch.bfloat16, DEVICE)
    launch_plan(spec_of(batch, sources), fused.PlanBuffers(matrix=halves), matrix="halves")
    return halves


def targets_of(labels, classes, batch, ignore=None):
    targets = torch.empty(batch, classes, device=DEVICE)
    buffers = fused.PlanBuffers(labels=labels, targets=targets)
    launch_plan(spec_of(batch, batch), buffers, classes, ignore)
    return targets.double()


def multiply(rows, halves, loose=False):
    """A product by the path that `choose_path` takes for all sources."""
    batch = rows.shape[0]
    outputs = halves.numel() // (2 * (batch + 1))
    out = torch.empty(outputs, rows.shape[1], dtype=rows.dtype, device=DEVICE)
    path = "whole" if batch <= fused.MAX_WHOLE else "loop"
    shape = spec_of(batch, batch, outputs=outputs).shape
    fused.make_mixer(path, fused.Batch.of(rows, rows), shape, loose)(rows, out, halves, None, None)
    return out


SHAPES = {
    "pair": (2, 2),
    "odd": (7, 7),
    "power of two": (16, 16),
    "some sources": (20, 9),
    "few sources, by digits": (48, 3),
    "single": (1, 1),
}
every_shape = pytest.mark.parametrize(("batch", "sources"), SHAPES.values(), ids=SHAPES.keys())


@every_shape
@pytest.mark.parametrize("own_anchor", [True, False])
def test_the_plan_is_the_one_torch_draws(batch, sources, own_anchor):
    indices, weights = draw_plan(spec_of(batch, sources, own_anchor=own_anchor))
    bits = expanded(seed_of(batch), batch, order_width(batch, sources))
    assert torch.equal(indices, order_rows(bits, batch, sources, own_anchor))
    expected = weigh(torch.tensor(2.8, dtype=torch.float64), sources).to(DEVICE)
    torch.testing.assert_close(weights, expected.float().expand(batch, -1), rtol=1e-6, atol=1e-9)


@every_shape
def test_the_halves_of_the_matrix_say_the_same(batch, sources):
    halves = halves_of(batch, sources)
    high, low = halves[: 2 * batch * batch].view(2, batch, batch).double()
    scale = halves[2 * batch * batch :].view(torch.float32).double()
    # the anchor's entry is exactly 1 until the row is scaled
    assert torch.equal(high.diagonal(), torch.ones_like(scale))
    expected = matrix_of(batch, sources)
    torch.testing.assert_close((high + low) * scale[:, None], expected, rtol=2**-14, atol=1e-9)


def test_a_stream_shifts_the_seed():
    indices, _ = draw_plan(spec_of(8, 8), offset=99)
    assert torch.equal(indices, order_rows(expanded(seed_of(8) + 99, 8, 8), 8, 8, True))


def test_an_origin_on_the_host_is_as_good_as_one_on_the_device():
    number = 2**62 + 12345
    host = dispatch.draw_plan(spec_of(9, 9), (None, number), DEVICE)
    on_device = dispatch.draw_plan(
        spec_of(9, 9), (torch.tensor([number], device=DEVICE), 0), DEVICE
    )
    assert torch.equal(host[0], on_device[0])
    bits = expand(None, number, 9, 9, device=DEVICE)
    assert torch.equal(host[0], order_rows(bits, 9, 9, True))


def test_gamma_can_differ_between_outputs_and_outputs_from_the_batch():
    gammas = torch.tensor([0.0, 1.0, 2.5, 6.0, 900.0, 3.0, 1.7], device=DEVICE)
    indices, weights = draw_plan(spec_of(5, 5, gammas, outputs=7))
    torch.testing.assert_close(weights, weigh(gammas.double(), 5).float())
    assert indices[:, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]


def test_one_gamma_on_the_device_serves_all_outputs():
    gamma = torch.tensor(4.0, dtype=torch.float64, device=DEVICE)
    expected = draw_plan(spec_of(6, 6, 4.0))[1]
    assert torch.equal(draw_plan(spec_of(6, 6, gamma))[1], expected)


class Expanded(Draw):
    """A Draw that expands one number on any device, as a GPU does."""

    def __init__(self, seed):
        self.given = seed
        # as on a GPU, whatever runs the kernels here
        self.device = torch.device("cuda")

    def integers(self, lane, *shape):
        return expanded(self.given, *shape, lane=lane)

    def uniform(self, lane, *shape):
        return (self.integers(lane, *shape).double() + 0.5) / 2**62


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 4.0])
@pytest.mark.parametrize("one_lam", [False, True])
def test_lam_is_the_one_torch_draws(alpha, one_lam):
    _, weights = draw_plan(mixup_spec_of(40, alpha, one_lam=one_lam))
    lam = draw_lam(Expanded(seed_of(40)), alpha, 1 if one_lam else 40).expand(40)
    torch.testing.assert_close(weights.sum(1), torch.ones(40, device=DEVICE))
    torch.testing.assert_close(weights[:, 0], lam.float(), rtol=2e-4, atol=2e-5)


def test_mixup_of_one_sample_is_that_sample():
    indices, weights = draw_plan(mixup_spec_of(1, 0.3))
    assert (indices.tolist(), weights.tolist()) == ([[0]], [[1.0]])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_labels_of_any_integer_dtype_become_targets(dtype):
    labels = torch.tensor([0, 2, 1, 2, 0], dtype=dtype, device=DEVICE)
    expected = matrix_of(5, 5) @ torch.nn.functional.one_hot(labels.long(), 3).double()
    torch.testing.assert_close(targets_of(labels, 3, 5), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("labels", "ignored"), [([0, 2, 1, 1, 0], 2), ([0, 2, 1, -5, 0], -5)])
def test_ignored_labels_leave_their_share_out(labels, ignored):
    labels = torch.tensor(labels, device=DEVICE)
    kept = torch.nn.functional.one_hot(labels.clamp_min(0), 3) * (labels != ignored)[:, None]
    targets = targets_of(labels, 3, 5, ignore=ignored)
    torch.testing.assert_close(targets, matrix_of(5, 5) @ kept.double(), rtol=1e-6, atol=1e-7)


def test_classes_come_in_blocks():
    labels = torch.randint(150, (9,), device=DEVICE)
    expected = matrix_of(9, 9) @ torch.nn.functional.one_hot(labels, 150).double()
    torch.testing.assert_close(targets_of(labels, 150, 9), expected, rtol=1e-6, atol=1e-7)


PRODUCTS = {
    "even": (32, 32, 64),
    "one feature": (8, 8, 1),
    "ragged": (21, 21, 77),
    "more outputs than samples": (10, 37, 50),
    "fewer outputs": (40, 3, 129),
    "a loop over the batch": (150, 150, 40),
    "a loop, ragged": (131, 5, 33),
}


@pytest.mark.parametrize(("batch", "outputs", "features"), PRODUCTS.values(), ids=PRODUCTS.keys())
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_the_product_is_right_in_every_dtype(batch, outputs, features, dtype):
    rows = rows_of(batch, features, dtype)
    weights = torch.rand(outputs, batch, device=DEVICE) ** 8
    weights /= weights.sum(1, keepdim=True)
    mixed = multiply(rows, fused.split(weights, dtype))
    assert mixed.dtype == dtype
    assert error(mixed, weights.double() @ rows.double()) < LIMITS[dtype]


def test_copies_by_the_memory_engine_reach_every_corner():
    # only large float32 batches take this path: 100 of 128 rows, the last tile half empty
    features = 16384 + 32
    assert fused.tiling(128, features, "split3")[-1]
    rows = rows_of(100, features, torch.float32)
    weights = torch.rand(100, 100, device=DEVICE)
    mixed = multiply(rows, fused.split(weights, torch.float32))
    assert error(mixed, weights.double() @ rows.double()) < LIMITS[torch.float32]


def test_tf32_drops_one_product_and_no_more():
    rows = rows_of(32, 96, torch.float32)
    halves = halves_of(32, 32)
    expected = matrix_of(32, 32) @ rows.double()
    exact = error(multiply(rows, halves), expected)
    loose = error(multiply(rows, halves, loose=True), expected)
    # TF32 itself is at 4.2e-4
    assert exact < LIMITS[torch.float32] < loose < 5e-4


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("features", [1, 130])
def test_gathering_adds_up_the_sources(dtype, features):
    rows = rows_of(200, features, dtype)
    plan = zeta_plan(200, sources=3, outputs=17)
    indices, weights = plan.indices.to(DEVICE), plan.weights.to(DEVICE)
    assert fused.choose_path(200, 3, dtype, False) == "gather"
    mixed = fused.mix_rows(rows, indices, weights, tf32=False)
    expected = reference.dense(indices, weights.double(), 200) @ rows.double()
    assert mixed.dtype == dtype
    assert error(mixed, expected) < LIMITS[dtype]


def test_bytes_are_rounded_to_the_nearest():
    rows = torch.tensor([[0, 255, 10], [1, 255, 20]], dtype=torch.uint8, device=DEVICE)
    weights = torch.tensor([[0.4, 0.6], [0.7, 0.3]], device=DEVICE)
    assert multiply(rows, fused.split(weights, torch.uint8)).tolist() == [
        [1, 255, 16],
        [0, 255, 13],
    ]


def test_nothing_to_write_is_no_error():
    rows = torch.zeros(4, 0, device=DEVICE)
    assert fused.mix_rows(rows, *draw_plan(spec_of(4, 4)), tf32=False).shape == (4, 0)


PATHS = {
    "whole": (12, 12, torch.float32, False),
    "whole, some": (12, 5, torch.bfloat16, False),
    "whole, by digits": (96, 5, torch.float32, False),
    "torch": (130, 130, torch.bfloat16, False),
    "torch, TF32": (130, 130, torch.float32, True),
    "loop": (130, 130, torch.float32, False),
    "gather": (330, 5, torch.uint8, False),
}


@pytest.mark.parametrize(("batch", "sources", "dtype", "tf32"), PATHS.values(), ids=PATHS.keys())
def test_each_path_as_a_whole(batch, sources, dtype, tf32, request, monkeypatch):
    """The launches of each path together, with a CPU standing in where there is no GPU."""
    name = request.node.callspec.id
    assert fused.choose_path(batch, sources, dtype, tf32) == name.split(",")[0]
    monkeypatch.setattr(dispatch, "missing_for_kernels", lambda device: None)
    monkeypatch.setattr(dispatch, "allows_tf32", lambda: tf32)
    samples = rows_of(batch, 24, dtype).view(batch, 2, 3, 4)
    samples = samples.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(4, (batch,), device=DEVICE)
    # five outputs: the interpreter takes a second for each
    spec = spec_of(batch, sources, 0.7, outputs=5)
    for _ in range(2):  # the second time from the cache
        mixed, targets = mix_labelled(samples, labels, 4, None, spec, PLAIN, (seed_of(batch), 5))
    indices, weights = draw_plan(spec, offset=5)
    matrix = reference.dense(indices, weights.double(), batch)
    expected = (matrix @ samples.double().flatten(1)).view(5, 2, 3, 4)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    assert error(mixed, expected) < (1e-3 if tf32 else 2 * LIMITS[dtype])
    onehot = torch.nn.functional.one_hot(labels, 4).double()
    torch.testing.assert_close(targets.double(), matrix @ onehot, rtol=1e-5, atol=1e-6)
    rows = samples.flatten(1)
    again = dispatch.mix_rows(rows, indices, weights, "fused")
    assert error(again, matrix @ rows.double()) < (1e-3 if tf32 else 2 * LIMITS[dtype])


def torch_plan(spec, finish, size, monkeypatch):
    """The plan in plain torch, from the same numbers that a GPU expands."""
    draw = Expanded(seed_of(spec.shape.batch_size))
    monkeypatch.setattr(dispatch, "plan_drawer", lambda *_: None)
    monkeypatch.setattr(plans, "weigh", lambda gamma, sources: weigh(gamma.cpu(), sources))
    monkeypatch.setattr(plans.sampling, "precise", lambda x, _: torch.as_tensor(x).double())
    monkeypatch.setattr(
        plans.sampling,
        "draw_rows",
        lambda draw, batch, sources, outputs, width, own: order_rows(
            draw.integers(ORDER, outputs, width), batch, sources, own
        ),
    )
    plan = draw_finished(spec, finish, size, draw, torch.float32)
    monkeypatch.undo()
    return plan


FEW = {
    "two": (6, 2, (0.0, 4.0), PLAIN),
    "two, scaled": (7, 2, (0.0, 4.0), Finish(keep_variance=True)),
    "three, half pasted": (9, 3, (0.5, 3.0), Finish(paste=0.5)),
    "four, everything": (8, 4, (0.0, 2.0), Finish(0.6, 0.7, True)),
    "four, with means": (8, 4, (0.0, 2.0), Finish(0.8, 0.5, True, (0.4, 0.5, 0.6))),
    "two, one mean": (5, 2, 1.5, Finish(keep_variance=True, mean=0.45)),
    "two, means, blended": (5, 2, 1.5, Finish(keep_variance=True, mean=(0.1, 0.5, 0.9))),
    "the whole batch": (3, 3, 0.7, Finish(paste=1.0)),
    "alone": (1, 1, 2.0, Finish(0.5, 0.5, True)),
}


def few_samples(batch, finish, dtype, channels_last):
    samples = torch.randn(batch, 3, 7, 9, device=DEVICE)
    if finish.mean is not None:
        samples = torch.rand(batch, 3, 7, 9, device=DEVICE)
    if dtype == torch.uint8:
        samples = torch.rand(batch, 3, 7, 9, device=DEVICE) * 255
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return samples.to(dtype).contiguous(memory_format=layout)


@pytest.mark.parametrize(("batch", "sources", "gamma", "finish"), FEW.values(), ids=FEW.keys())
@pytest.mark.parametrize("own_anchor", [True, False])
def test_the_plan_of_few_sources_is_the_one_torch_draws(
    batch, sources, gamma, finish, own_anchor, monkeypatch
):
    spec = spec_of(batch, sources, gamma, outputs=batch + 2, own_anchor=own_anchor)
    expected = torch_plan(spec, finish, (7, 9), monkeypatch)
    origin = (seed_of(batch), 0)
    indices, weights, boxes = dispatch.draw_few(spec, finish, (7, 9), origin, DEVICE)
    assert torch.equal(indices, expected.indices)
    torch.testing.assert_close(weights, expected.weights)
    if finish.paste and sources > 1:
        assert torch.equal(boxes, expected.boxes)


@pytest.mark.parametrize(("batch", "sources", "gamma", "finish"), FEW.values(), ids=FEW.keys())
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_few_sources_are_mixed_as_their_plan_says(
    batch, sources, gamma, finish, dtype, channels_last, monkeypatch
):
    if dtype == torch.uint8 and finish.keep_variance and finish.mean is None:
        pytest.skip("bytes need a mean")
    spec = spec_of(batch, sources, gamma)
    plan = torch_plan(spec, finish, (7, 9), monkeypatch)
    samples = few_samples(batch, finish, dtype, channels_last)
    labels = torch.randint(20, (batch,), device=DEVICE)
    assert dispatch.mixes_labelled(spec, finish, samples)
    arguments = (samples, labels, 20, None, spec, finish, (seed_of(batch), 0))
    mixed, targets = mix_labelled(*arguments)
    expected = Blend(finish.mean).mix(samples, plan, "reference")
    assert (mixed.dtype, mixed.stride()) == (samples.dtype, samples.stride())
    if dtype == torch.uint8:
        # torch's sum may end on the other side of a half
        assert (mixed.int() - expected.int()).abs().max() <= 1
        assert (mixed != expected).float().mean() < 0.01
    else:
        torch.testing.assert_close(mixed, expected)
    torch.testing.assert_close(targets, OneHot(20).mix(labels, plan))
    assert torch.equal(mix_labelled(*arguments)[0], mixed)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("one_lam", [False, True])
def test_mixup_of_few_sources(alpha, one_lam):
    spec = mixup_spec_of(9, alpha, one_lam=one_lam)
    samples, labels = torch.randn(9, 33, device=DEVICE), torch.arange(9, device=DEVICE)
    origin = (seed_of(9), 3)
    mixed, targets = mix_labelled(samples, labels, 9, None, spec, PLAIN, origin)
    indices, weights = draw_plan(spec, offset=3)
    lam = draw_lam(Expanded(seed_of(9) + 3), alpha, 1 if one_lam else 9).expand(9)
    torch.testing.assert_close(weights[:, 0], lam.float(), rtol=2e-4, atol=2e-5)
    matrix = reference.dense(indices, weights, 9)
    torch.testing.assert_close(mixed, matrix @ samples)
    torch.testing.assert_close(targets, matrix)


def test_pasted_samples_may_hold_anything():
    # a weighted sum would spread NaN from what the boxes hide
    spec, finish = spec_of(2, 2, 4.0), Finish(paste=1.0)
    samples = torch.full((2, 1, 8, 8), float("nan"), device=DEVICE)
    samples[0] = 1.0
    labels = torch.arange(2, device=DEVICE)
    arguments = (samples, labels, 2, None, spec, finish, (seed_of(2), 0))
    mixed, targets = mix_labelled(*arguments)
    shares = mixed.isnan().float().mean((1, 2, 3))
    torch.testing.assert_close(shares, targets[:, 1])
    assert 0 < targets[0, 1] < 0.1


@pytest.mark.parametrize(("labels", "ignored"), [([0, 2, 1], 2), ([0, 2, -5], -5)])
def test_few_sources_leave_the_share_of_ignored_labels_out(labels, ignored):
    spec, labels = spec_of(3, 3, 1.0), torch.tensor(labels, dtype=torch.int16, device=DEVICE)
    samples = torch.nn.functional.one_hot(labels.long().clamp_min(0), 3).float()
    samples *= (labels != ignored)[:, None]
    arguments = (samples, labels, 3, ignored, spec, PLAIN, (seed_of(3), 0))
    mixed, targets = mix_labelled(*arguments)
    torch.testing.assert_close(targets, mixed)
    assert targets.sum() < 2.9


def test_classes_of_few_sources_come_in_blocks():
    labels = torch.randint(300, (6,), device=DEVICE)
    samples = torch.nn.functional.one_hot(labels, 300).float()
    arguments = (samples, labels, 300, None, spec_of(6, 2), PLAIN, (seed_of(6), 0))
    mixed, targets = mix_labelled(*arguments)
    torch.testing.assert_close(targets, mixed)


def test_what_the_kernel_for_few_sources_leaves_to_torch():
    images, bytes_ = torch.zeros(4, 3, 2, 2), torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    two, kept = spec_of(4, 2), Finish(keep_variance=True)
    assert dispatch.mixes_labelled(two, kept, images)
    assert not dispatch.mixes_labelled(two, kept, bytes_)
    assert dispatch.mixes_labelled(two, kept._replace(mean=0.5), bytes_)
    assert not dispatch.mixes_labelled(two, kept._replace(mean=(0.5, 0.5)), bytes_)
    assert not dispatch.mixes_labelled(two, kept._replace(mean=(0.5,) * 5), torch.zeros(4, 5, 2, 2))
    assert not dispatch.mixes_labelled(spec_of(20, 9), kept, images)


def test_every_kernel_compiles_for_real_gpus():
    # the interpreter forgives what a compiler does not
    program = Path(__file__).with_name("compile_kernels.py")
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "compiled 109\n"


@pytest.fixture
def fused_everywhere(monkeypatch):
    """Let a CPU stand in for a GPU: the kernels run in the interpreter."""
    monkeypatch.setattr(dispatch, "missing_for_kernels", lambda device: None)


@pytest.mark.usefixtures("fused_everywhere")
@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([[0, 3], [1, 2], [2, 1], [3, 0]])[:, 0],
        torch.tensor([[9, 0], [9, 1], [9, 2], [9, 3]])[:, 1:],
        torch.tensor([9, 0, 1, 2, 3], dtype=torch.int32)[1:],
        torch.tensor(1).expand(4),
    ],
    ids=["a column", "a column kept", "an offset", "expanded"],
)
def test_labels_of_any_stride_on_the_fused_path(labels):
    samples = torch.nn.functional.one_hot(labels.flatten().long(), 4).float()
    mixed, targets = zeta_mixup(samples.to(DEVICE), labels.to(DEVICE), 4, implementation="fused")
    torch.testing.assert_close(mixed, targets, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fused_everywhere")
def test_masks_keep_their_shape_on_the_fused_path():
    masks = torch.randint(3, (4, 2, 5), device=DEVICE)
    samples = torch.nn.functional.one_hot(masks, 3).movedim(-1, 1).float()
    mixed, targets = zeta_mixup(samples, masks, 3, implementation="fused")
    assert targets.shape == (4, 3, 2, 5)
    torch.testing.assert_close(mixed, targets, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fused_everywhere")
def test_samples_with_an_offset_on_the_fused_path():
    samples = torch.randn(6, 9, device=DEVICE)[1:]
    labels = torch.arange(5, device=DEVICE)
    mixed, targets = zeta_mixup(samples, labels, 5, implementation="fused")
    assert error(mixed, targets.double() @ samples.double()) < LIMITS[torch.float32]


@pytest.mark.usefixtures("fused_everywhere")
@pytest.mark.parametrize(
    "view",
    [lambda x: x[::2], lambda x: x[:5, :5], lambda x: x.t()[:5], lambda x: x[:5, ::2]],
    ids=["every second row", "crop", "transposed", "every second column"],
)
def test_tables_of_any_stride_on_the_fused_path(view):
    samples, plan = view(torch.randn(10, 7, device=DEVICE)), zeta_plan(5, sources=3, device=DEVICE)
    mixed = apply_plan(samples, plan, implementation="fused")
    assert error(mixed, plan.matrix().double() @ samples.double()) < LIMITS[torch.float32]
    mixed, targets = zeta_mixup(samples, torch.arange(5, device=DEVICE), 5, implementation="fused")
    assert error(mixed, targets.double() @ samples.double()) < LIMITS[torch.float32]


@pytest.mark.usefixtures("fused_everywhere")
def test_targets_are_float32_whatever_the_default(monkeypatch):
    torch.set_default_dtype(torch.float64)
    try:
        _, targets = zeta_mixup(torch.randn(3, 2).float().to(DEVICE), torch.arange(3).to(DEVICE), 3)
        assert zeta_plan(3, device=DEVICE).weights.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert targets.dtype == torch.float32


@pytest.mark.usefixtures("fused_everywhere")
def test_gradients_to_weights_and_gamma_are_not_lost():
    plan = zeta_plan(4)
    weights = plan.weights.clone().to(DEVICE).requires_grad_()
    learnt = MixPlan(plan.indices.to(DEVICE), weights, 4)
    assert apply_plan(torch.randn(4, 3, device=DEVICE), learnt).requires_grad
    gamma = torch.tensor(2.0, device=DEVICE, requires_grad=True)
    samples, labels = torch.randn(4, 3, device=DEVICE), torch.arange(4, device=DEVICE)
    mixed, targets = zeta_mixup(samples, labels, 4, gamma=gamma)
    assert mixed.requires_grad
    assert targets.requires_grad


@pytest.mark.usefixtures("fused_everywhere")
def test_a_single_sample_comes_back_to_the_bit():
    samples = torch.randn(1, 50, device=DEVICE)
    mixed, targets = zeta_mixup(samples, torch.tensor([2], device=DEVICE), 4)
    assert torch.equal(mixed, samples)
    assert targets.tolist() == [[0, 0, 1, 0]]


@pytest.fixture
def prepared(monkeypatch, fused_everywhere):
    """Names of what was worked out anew; a prepared call works out nothing."""
    names = []
    prepare = dispatch.prepare_labelled

    def counted(*arguments):
        names.append(arguments[0].dtype)
        return prepare(*arguments)

    monkeypatch.setattr(dispatch, "prepare_labelled", counted)
    monkeypatch.setattr(mix, "_calls", PreparedCalls())
    return names


def test_batches_alike_are_planned_once(prepared):
    samples, labels = torch.randn(6, 2, 3, 4, device=DEVICE), torch.arange(6, device=DEVICE)
    transform = ZetaMix(num_classes=6, generator=torch.Generator(DEVICE).manual_seed(1))
    again = ZetaMix(num_classes=6, generator=torch.Generator(DEVICE).manual_seed(1))
    pairs = [transform(samples, labels) for _ in range(3)]
    assert prepared == [torch.float32]
    # a callback may set the controls at every step
    transform.enabled, transform.p = True, 1.0
    pairs.append(transform.train()(samples, labels))
    assert prepared == [torch.float32]
    # each with numbers of its own, and the same as without the prepared call
    assert not torch.equal(pairs[0][0], pairs[1][0])
    for mixed, targets in pairs:
        again._calls.clear()
        expected = again(samples, labels)
        assert torch.equal(mixed, expected[0])
        assert torch.equal(targets, expected[1])


def test_other_batches_and_options_are_planned_anew(prepared):
    samples, labels = torch.randn(6, 2, 3, 4, device=DEVICE), torch.arange(6, device=DEVICE)
    transform = ZetaMix(num_classes=6, gamma=1000.0, keep_variance=False)
    transform(samples, labels)
    transform(samples[:5], labels[:5])
    transform(samples.half(), labels)
    transform(samples, labels.int())
    transform(samples.to(memory_format=torch.channels_last), labels)
    transform(samples.movedim(-1, 1), labels)
    assert len(prepared) == 6
    # γ of 1,000 leaves samples as they are, γ of 0 averages two
    assert torch.equal(transform(samples, labels)[0], samples)
    transform.gamma = 0.0
    assert not torch.equal(transform(samples, labels)[0], samples)
    transform.gamma, transform.p = 0.0, 0.0
    assert torch.equal(transform(samples, labels)[0], samples)
    transform.p, transform.num_classes = 1.0, 9
    assert transform(samples, labels)[1].shape == (6, 9)
    transform.enabled = False
    assert torch.equal(transform(samples, labels)[0], samples)
    transform.enabled = True
    assert transform(samples.clone().requires_grad_(), labels)[0].requires_grad
    assert torch.equal(transform.eval()(samples, labels)[0], samples)
    with pytest.raises(ValueError, match="6 samples and 5 labels"):
        transform.train()(samples, labels[:5])


def test_a_schedule_reaches_prepared_calls(prepared):
    samples, labels = torch.randn(4, 3, device=DEVICE), torch.arange(4, device=DEVICE)
    transform = ZetaMix(num_classes=4, gamma=lambda epoch: 1000.0 if epoch else 0.0, sources=2)
    for _ in range(2):
        assert not torch.equal(transform(samples, labels)[0], samples)
    transform.set_epoch(1)
    assert torch.equal(transform(samples, labels)[0], samples)


def test_functions_prepare_calls_too(prepared):
    samples, labels = torch.randn(5, 3, device=DEVICE), torch.arange(5, device=DEVICE)
    for gamma in (1000.0, 1000.0, 0.0):
        mixed, _ = zeta_mixup(samples, labels, 5, gamma=gamma, sources=3)
        assert torch.equal(mixed, samples) == (gamma > 0)
    for _ in range(2):
        mixup(samples, labels, 5)
    gammas = torch.zeros(5, device=DEVICE)
    for _ in range(2):
        zeta_mixup(samples, labels, 5, gamma=gammas)
    # a tensor of γ may need gradients at the next call
    assert len(prepared) == 5
    for gamma in ([0.0, 4.0], (0.0, 4.0)):
        zeta_mixup(samples, labels, 5, gamma=gamma, sources=3)
    assert len(prepared) == 6


def test_transforms_with_prepared_calls_can_be_copied(prepared):
    samples, labels = torch.randn(4, 3, device=DEVICE), torch.arange(4, device=DEVICE)
    transform = ZetaMix(num_classes=4)
    transform(samples, labels)
    for twin in (copy.copy(transform), copy.deepcopy(transform)):
        twin.num_classes = 7
        assert twin(samples, labels)[1].shape == (4, 7)
    assert transform(samples, labels)[1].shape == (4, 4)


def test_prepared_calls_do_not_pile_up(prepared):
    calls, labels = PreparedCalls(), torch.zeros(1)
    for size in range(3 * PreparedCalls.LIMIT):
        calls.keep(torch.zeros(1, size), labels, None, lambda *_: (labels, labels))
    assert len(calls) <= PreparedCalls.LIMIT
    assert calls.find(torch.zeros(1, size), labels, None) is not None


def test_small_gpus_get_small_tiles():
    assert fused.choose_path(128, 128, torch.float32, False, fused.SMALL) == "loop"
    assert fused.choose_path(64, 64, torch.float32, False, fused.SMALL) == "whole"
    assert fused.choose_path(128, 128, torch.float32, False, fused.AMPERE) == "whole"
    assert fused.tiling(128, 150528, "split3", fused.AMPERE)[0] == 32


@pytest.mark.usefixtures("fused_everywhere")
def test_dispatch_says_why_not(monkeypatch):
    rows = torch.zeros(2, 2, device=DEVICE)
    assert dispatch.why_not_fused(rows) is None
    assert "torch.float64" in dispatch.why_not_fused(rows.double())
    assert "samples require gradients" in dispatch.why_not_fused(rows.clone().requires_grad_())
    assert "weights of the plan" in dispatch.why_not_fused(rows, rows.clone().requires_grad_())
    with torch.no_grad():
        assert dispatch.why_not_fused(rows.clone().requires_grad_()) is None
    monkeypatch.undo()
    dispatch.missing_for_kernels.cache_clear()
    assert "not cpu" in dispatch.why_not_fused(torch.zeros(2, 2))


def test_a_machine_without_triton_falls_back(monkeypatch):
    monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda name: None)
    dispatch.missing_for_kernels.cache_clear()
    with pytest.raises(ValueError, match="triton is not installed"):
        dispatch.uses_fused("fused", torch.zeros(2, 2))
    assert not dispatch.uses_fused("auto", torch.zeros(2, 2))
    dispatch.missing_for_kernels.cache_clear()


@pytest.mark.parametrize(
    ("batch", "sources", "path"),
    [(64, 64, "reference"), (64, 17, "reference"), (64, 16, "gather"), (9, 2, "gather")],
)
def test_few_sources_on_a_cpu_are_gathered(batch, sources, path, monkeypatch):
    monkeypatch.setattr(dispatch.embedding_bag, "mix_rows", lambda *_: "gather")
    monkeypatch.setattr(dispatch.reference, "mix_rows", lambda *_: "reference")
    plan = zeta_plan(batch, sources=sources)
    assert dispatch.mix_rows(torch.zeros(batch, 3), plan.indices, plan.weights) == path
    assert (
        dispatch.mix_rows(torch.zeros(batch, 3), plan.indices, plan.weights, "reference")
        == "reference"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embedding_bags_in_blocks_change_nothing(dtype):
    rows, plan = torch.randn(40, 1100, dtype=dtype), zeta_plan(40, sources=4, outputs=30)
    whole = embedding_bag.mix_rows(rows, plan.indices, plan.weights)
    blocks = embedding_bag.mix_rows(rows, plan.indices, plan.weights, cache_bytes=1, block_bytes=1)
    torch.testing.assert_close(blocks, whole)
    torch.testing.assert_close(whole, reference.mix_rows(rows, plan.indices, plan.weights))


GPU_SIZES = {
    "photos": (32, None, (3, 224, 224)),
    "thumbnails": (128, None, (3, 32, 32)),
    "larger than a tile": (200, None, (3, 33, 35)),
    "few": (128, 8, (3, 50, 50)),
    "few of many": (4096, 8, (3, 16, 16)),
    "many": (4096, None, (300,)),
    "half of many": (3000, 1500, (7,)),
    "odd": (37, None, (3, 31, 29)),
    "one": (1, None, (5,)),
}


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "sources", "shape"), GPU_SIZES.values(), ids=GPU_SIZES.keys())
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_a_gpu_agrees_with_float64_at_every_size(batch, sources, shape, dtype):
    samples = rows_of(batch, torch.Size(shape).numel(), dtype).view(batch, *shape)
    labels = torch.randint(10, (batch,), device="cuda")

    def again():
        return torch.Generator("cuda").manual_seed(5)

    mixed, targets = zeta_mixup(samples, labels, 10, sources=sources, generator=again())
    plan = zeta_plan(batch, sources=sources, generator=again())
    matrix = plan.matrix().double()
    expected = (matrix @ samples.double().flatten(1)).view(-1, *shape)
    assert error(mixed, expected) < max(1e-5, 1.5 * LIMITS[dtype])
    onehot = torch.nn.functional.one_hot(labels, 10).double()
    torch.testing.assert_close(targets.double(), matrix @ onehot, rtol=1e-5, atol=1e-6)
    same, _ = zeta_mixup(samples, labels, 10, sources=sources, generator=again())
    assert torch.equal(mixed, same)
    assert error(apply_plan(samples, plan), expected) < max(1e-5, 1.5 * LIMITS[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("alpha", [0.2, 1.0])
@pytest.mark.parametrize("batch", [32, 500])
def test_a_gpu_agrees_on_mixup(batch, alpha):
    samples = torch.randn(batch, 3, 30, 30, device="cuda")
    labels = torch.randint(10, (batch,), device="cuda")

    def again():
        return torch.Generator("cuda").manual_seed(5)

    mixed, targets = mixup(samples, labels, 10, alpha=alpha, generator=again())
    matrix = mixup_plan(batch, alpha, generator=again()).matrix().double()
    assert error(mixed, (matrix @ samples.double().flatten(1)).view_as(samples)) < 1e-5
    onehot = torch.nn.functional.one_hot(labels, 10).double()
    torch.testing.assert_close(targets.double(), matrix @ onehot, rtol=1e-5, atol=1e-6)


@pytest.fixture
def _tf32_allowed():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = "ieee"


@pytest.mark.gpu
@pytest.mark.usefixtures("_tf32_allowed")
@pytest.mark.parametrize("batch", [64, 128, 256])
def test_a_gpu_uses_tf32_where_it_is_allowed(batch):
    samples = torch.randn(batch, 3, 64, 64, device="cuda")
    labels = torch.zeros(batch, dtype=torch.int64, device="cuda")
    plan = zeta_plan(batch, generator=torch.Generator("cuda").manual_seed(1))
    expected = (plan.matrix().double() @ samples.double().flatten(1)).view_as(samples)
    # cuBLAS takes TF32 for large batches; our kernels stay exact for plans of any kind
    assert error(apply_plan(samples, plan), expected) < 5e-4
    mixed, targets = zeta_mixup(
        samples, labels, 10, generator=torch.Generator("cuda").manual_seed(1)
    )
    assert 1e-5 < error(mixed, expected) < 5e-4
    torch.testing.assert_close(targets.sum(1), torch.ones(batch, device="cuda"))


@pytest.mark.gpu
def test_a_gpu_generator_moves_on_and_can_be_set_back():
    generator = torch.Generator("cuda").manual_seed(3)
    state = generator.get_state()
    plans = [zeta_plan(64, generator=generator).indices for _ in range(3)]
    assert not torch.equal(plans[0], plans[1])
    assert not torch.equal(plans[1], plans[2])
    generator.set_state(state)
    assert torch.equal(plans[0], zeta_plan(64, generator=generator).indices)
    torch.cuda.manual_seed(5)
    first = zeta_plan(64, device="cuda").indices
    torch.cuda.manual_seed(5)
    assert torch.equal(first, zeta_plan(64, device="cuda").indices)
    torch.cuda.manual_seed(6)
    assert not torch.equal(first, zeta_plan(64, device="cuda").indices)


@pytest.mark.gpu
def test_a_gpu_keeps_channels_last():
    samples = torch.randn(16, 3, 20, 24, device="cuda").to(memory_format=torch.channels_last)
    mixed, _ = zeta_mixup(samples, torch.arange(16, device="cuda"), 16)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
