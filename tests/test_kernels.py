"""The Triton kernels against plain torch: in Triton's interpreter on any machine, on a GPU if any.

`conftest.py` switches the interpreter on where there is no GPU. It rounds to bfloat16 by cutting
off, a GPU to the nearest, so what comes out of bfloat16 halves may be four times as far off there.
"""

import pytest
import torch

from zetamix import mix, zeta_mixup, zeta_plan
from zetamix.draw import expand
from zetamix.kernels import dispatch, gather, reference
from zetamix.plan import order_rows
from zetamix.series import weigh

fused = pytest.importorskip("zetamix.kernels.fused", reason="needs the package triton")

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
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
    empty, new_empty = torch.empty, torch.Tensor.new_empty

    def poisoned(tensor):
        return tensor.fill_(float("nan") if tensor.is_floating_point() else 255)

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poisoned(empty(*a, **k)))
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: poisoned(new_empty(*a, **k)))


def seed_of(number):
    return torch.tensor([number * 0x5DEECE66D + 11], device=DEVICE)


def rows_of(batch, features, dtype):
    rows = torch.randn(batch, features, device=DEVICE)
    return (rows * 50 + 128).clamp(0, 255).to(dtype) if dtype == torch.uint8 else rows.to(dtype)


def error(actual, expected):
    return ((actual.double() - expected).norm() / expected.norm()).item()


def draw(batch, sources, anchor="self", outputs=None, gamma=2.8, **what):
    return fused.draw(
        seed_of(batch),
        0,
        gamma,
        batch=batch,
        sources=sources,
        outputs=outputs or batch,
        digits=dispatch.order_width(batch, sources) != batch,
        anchor=anchor,
        **what,
    )


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
@pytest.mark.parametrize("anchor", ["self", "random"])
def test_the_plan_is_the_one_torch_draws(batch, sources, anchor):
    drawn = draw(batch, sources, anchor, plan=True)
    bits = expand(seed_of(batch), batch, dispatch.order_width(batch, sources))
    assert torch.equal(drawn.indices, order_rows(bits, batch, sources, anchor))
    expected = weigh(torch.tensor(2.8, dtype=torch.float64), sources).to(DEVICE)
    torch.testing.assert_close(
        drawn.weights, expected.float().expand(batch, -1), rtol=1e-6, atol=1e-9
    )


@every_shape
def test_every_form_of_a_plan_says_the_same(batch, sources):
    labels = torch.randint(5, (batch,), device=DEVICE)
    drawn = draw(batch, sources, plan=True, halves=torch.bfloat16, labels=labels, classes=5)
    matrix = reference.dense(drawn.indices, drawn.weights.double(), batch)
    high, low, scale = drawn.matrix
    halves = (high.double() + low.double()) * scale[:, None]
    torch.testing.assert_close(halves, matrix, rtol=2**-14, atol=1e-9)
    onehot = torch.nn.functional.one_hot(labels, 5).double()
    torch.testing.assert_close(drawn.targets.double(), matrix @ onehot, rtol=1e-6, atol=1e-7)
    whole = draw(batch, sources, matrix=torch.float32).matrix
    torch.testing.assert_close(whole.double(), matrix, rtol=1e-6, atol=1e-9)


def test_a_stream_shifts_the_seed():
    drawn = fused.draw(
        seed_of(3), 99, 2.8, batch=8, sources=8, outputs=8, digits=False, anchor="self", plan=True
    )
    expected = order_rows(expand(seed_of(3) + 99, 8, 8), 8, 8, "self")
    assert torch.equal(drawn.indices, expected)


def test_gamma_can_differ_between_outputs_and_outputs_from_the_batch():
    gammas = torch.tensor([0.0, 1.0, 2.5, 6.0, 900.0, 3.0, 1.7], device=DEVICE)
    drawn = draw(5, 5, outputs=7, gamma=gammas, plan=True)
    torch.testing.assert_close(drawn.weights, weigh(gammas.double(), 5).float())
    assert drawn.indices[:, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]


def test_one_gamma_on_the_device_serves_all_outputs():
    gamma = torch.tensor(4.0, dtype=torch.float64, device=DEVICE)
    assert torch.equal(
        draw(6, 6, gamma=gamma, plan=True).weights, draw(6, 6, gamma=4.0, plan=True).weights
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_ignored_labels_leave_their_share_out(dtype):
    labels = torch.tensor([0, 2, 1, 2], dtype=dtype, device=DEVICE)
    drawn = draw(4, 4, plan=True, labels=labels, classes=3, ignore_index=2)
    kept = (labels != 2).double()[:, None] * torch.nn.functional.one_hot(labels.long(), 3)
    expected = reference.dense(drawn.indices, drawn.weights.double(), 4) @ kept
    torch.testing.assert_close(drawn.targets.double(), expected, rtol=1e-6, atol=1e-7)


def test_classes_come_in_blocks():
    labels = torch.randint(150, (9,), device=DEVICE)
    drawn = draw(9, 9, plan=True, labels=labels, classes=150)
    onehot = torch.nn.functional.one_hot(labels, 150).double()
    expected = reference.dense(drawn.indices, drawn.weights.double(), 9) @ onehot
    torch.testing.assert_close(drawn.targets.double(), expected, rtol=1e-6, atol=1e-7)


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
    mixed = fused.mix_by_matrix(rows, fused.split(weights, fused.half_dtype(dtype)))
    assert mixed.dtype == dtype
    assert error(mixed, weights.double() @ rows.double()) < LIMITS[dtype]


def test_copies_by_the_memory_engine_reach_every_corner():
    # only large float32 batches take this path: 100 of 128 rows, the last tile half empty
    features = 16384 + 32
    assert fused._tiling(128, features, "split3")[-1]
    rows = rows_of(100, features, torch.float32)
    weights = torch.rand(100, 100, device=DEVICE)
    mixed = fused.mix_by_matrix(rows, fused.split(weights, torch.bfloat16))
    assert error(mixed, weights.double() @ rows.double()) < LIMITS[torch.float32]


def test_tf32_drops_one_product_and_no_more():
    rows = rows_of(32, 96, torch.float32)
    matrix = draw(32, 32, halves=torch.bfloat16).matrix
    weights = (matrix.high.double() + matrix.low.double()) * matrix.scale[:, None].double()
    expected = weights @ rows.double()
    exact = error(fused.mix_by_matrix(rows, matrix), expected)
    loose = error(fused.mix_by_matrix(rows, matrix, tf32=True), expected)
    # TF32 itself is at 4.2e-4
    assert exact < LIMITS[torch.float32] < loose < 5e-4


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("features", [1, 130])
def test_gathering_adds_up_the_sources(dtype, features):
    rows = rows_of(64, features, dtype)
    plan = zeta_plan(64, sources=3, outputs=17)
    indices, weights = plan.indices.to(DEVICE), plan.weights.to(DEVICE)
    mixed = fused.mix_by_gather(rows, indices, weights)
    expected = reference.dense(indices, weights.double(), 64) @ rows.double()
    assert mixed.dtype == dtype
    assert error(mixed, expected) < LIMITS[dtype]


def test_bytes_are_rounded_to_the_nearest():
    rows = torch.tensor([[0, 255, 10], [1, 255, 20]], dtype=torch.uint8, device=DEVICE)
    weights = torch.tensor([[0.4, 0.6], [0.75, 0.25]], device=DEVICE)
    mixed = fused.mix_by_matrix(rows, fused.split(weights, torch.bfloat16))
    assert mixed.tolist() == [[1, 255, 16], [0, 255, 13]]


def test_nothing_to_write_is_no_error():
    rows = torch.zeros(4, 0, device=DEVICE)
    assert fused.mix_by_matrix(rows, draw(4, 4, halves=torch.bfloat16).matrix).shape == (4, 0)
    assert fused.mix_by_gather(rows, *draw(4, 4, plan=True)[:2]).shape == (4, 0)


def test_the_fused_path_as_a_whole(monkeypatch):
    """What dispatch puts together for each size, with a CPU standing in where there is no GPU."""
    monkeypatch.setattr(dispatch, "_why_no_kernels", lambda device: None)
    for batch, sources, dtype in [
        (12, 12, torch.float32),
        (12, 5, torch.bfloat16),
        (130, 130, torch.bfloat16),
        (70, 2, torch.float32),
        (130, 2, torch.uint8),
    ]:
        rows = rows_of(batch, 20, dtype)
        labels = torch.randint(4, (batch,), device=DEVICE)
        seed = (seed_of(batch), 5)
        # five outputs: the interpreter takes a second for each
        request = {"gamma": 2.8, "sources": sources, "outputs": 5, "anchor": "self"}
        mixed, targets = dispatch.mix_zeta(rows, labels, 4, None, seed, **request)
        indices, weights = dispatch.draw_plan(*seed, 2.8, batch, sources, 5, "self")
        matrix = reference.dense(indices, weights.double(), batch)
        assert error(mixed, matrix @ rows.double()) < 2 * LIMITS[dtype]
        onehot = torch.nn.functional.one_hot(labels, 4).double()
        torch.testing.assert_close(targets.double(), matrix @ onehot, rtol=1e-6, atol=1e-7)
        again = dispatch.mix_rows(rows, indices, weights, "fused")
        assert error(again, matrix @ rows.double()) < 2 * LIMITS[dtype]


def test_dispatch_says_why_not(monkeypatch):
    monkeypatch.setattr(dispatch, "_why_no_kernels", lambda device: None)
    rows = torch.zeros(2, 2, device=DEVICE)
    assert dispatch.why_not_fused(rows) is None
    assert "torch.float64" in dispatch.why_not_fused(rows.double())
    assert "gradients" in dispatch.why_not_fused(rows.clone().requires_grad_())
    with torch.no_grad():
        assert dispatch.why_not_fused(rows.clone().requires_grad_()) is None
    monkeypatch.undo()
    assert "not cpu" in dispatch.why_not_fused(torch.zeros(2, 2))


def test_a_machine_without_triton_falls_back(monkeypatch):
    monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda name: None)
    dispatch._why_no_kernels.cache_clear()
    with pytest.raises(ValueError, match="triton is not installed"):
        dispatch.uses_fused("fused", torch.zeros(2, 2))
    assert not dispatch.uses_fused("auto", torch.zeros(2, 2))
    dispatch._why_no_kernels.cache_clear()


@pytest.mark.parametrize(
    ("batch", "sources", "path"),
    [(64, 64, "reference"), (64, 17, "reference"), (64, 16, "gather"), (9, 2, "gather")],
)
def test_few_sources_on_a_cpu_are_gathered(batch, sources, path, monkeypatch):
    def taken(*_):
        raise KeyError(path)

    monkeypatch.setattr(dispatch.gather, "mix_rows", lambda *_: "gather")
    monkeypatch.setattr(dispatch.reference, "mix_rows", lambda *_: "reference")
    plan = zeta_plan(batch, sources=sources)
    assert dispatch.mix_rows(torch.zeros(batch, 3), plan.indices, plan.weights) == path
    assert (
        dispatch.mix_rows(torch.zeros(batch, 3), plan.indices, plan.weights, "reference")
        == "reference"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gathering_in_stretches_changes_nothing(dtype, monkeypatch):
    rows, plan = torch.randn(40, 1100, dtype=dtype), zeta_plan(40, sources=4, outputs=30)
    whole = gather.mix_rows(rows, plan.indices, plan.weights)
    monkeypatch.setattr(gather, "CACHE_BYTES", 1)
    monkeypatch.setattr(gather, "STRETCH_BYTES", 1)
    torch.testing.assert_close(gather.mix_rows(rows, plan.indices, plan.weights), whole)
    expected = reference.mix_rows(rows, plan.indices, plan.weights)
    torch.testing.assert_close(whole, expected)


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
    assert error(mix(samples, plan), expected) < max(1e-5, 1.5 * LIMITS[dtype])


@pytest.mark.gpu
def test_a_gpu_uses_tf32_only_where_it_is_allowed(monkeypatch):
    for batch in (64, 128, 256):
        samples = torch.randn(batch, 3, 64, 64, device="cuda")
        plan = zeta_plan(batch, device="cuda")
        expected = (plan.matrix().double() @ samples.double().flatten(1)).view_as(samples)
        assert error(mix(samples, plan), expected) < 1e-5
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
        assert 1e-5 < error(mix(samples, plan), expected) < 1e-3
        monkeypatch.undo()


@pytest.mark.gpu
def test_a_gpu_keeps_channels_last():
    samples = torch.randn(16, 3, 20, 24, device="cuda").to(memory_format=torch.channels_last)
    mixed, _ = zeta_mixup(samples, torch.arange(16, device="cuda"), 16)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
