"""The Triton kernels against plans and mixing in plain torch, for the rules of all transforms.

Without a GPU they run in Triton's interpreter, which `conftest.py` switches on. On a GPU all tests
of this file are of interest, not only those marked so; they need torch, triton and pytest only.
"""

import gc
import itertools
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch.nn.functional import one_hot
from transform_kinds import plain_torch

from zetamix import CutMix, Mixup, MixupOrCutMix, ZetaMix, ZetaMixup, apply_plan, rules
from zetamix.kernels import dispatch
from zetamix.plan import draw_plan
from zetamix.rules import is_image
from zetamix.sampling import MOST_FEW, Draw

triton_launch = pytest.importorskip("zetamix.kernels.triton_launch", reason="needs triton")

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
CLASSES = 13
# relative error in norm against float64; the interpreter cuts bfloat16 off instead of rounding it
LIMITS = {
    torch.float32: 1e-5 if GPU else 6e-5,
    torch.bfloat16: 4e-3 if GPU else 5e-3,
    torch.float16: 6e-4,
    torch.uint8: 4e-3,
}
MIXES = {
    "zetamix": (ZetaMix, {}),
    "zetamix, blended": (ZetaMix, {"paste": 0.0}),
    "zetamix, pasted": (ZetaMix, {"paste": 1.0}),
    "zetamix, 3 sources": (ZetaMix, {"sources": 3}),
    "zetamix, 4 sources": (ZetaMix, {"sources": 4, "p": 0.6}),
    "zetamix, variance not kept": (ZetaMix, {"keep_variance": False, "gamma": 1.0}),
    "zeta, 2 sources": (ZetaMixup, {"sources": 2, "p": 0.5}),
    "zeta, 4 sources": (ZetaMixup, {"sources": 4, "anchor": "random", "gamma": (2.0, 4.0)}),
    "zeta, 8 sources": (ZetaMixup, {"sources": 8}),
    "zeta": (ZetaMixup, {}),
    "zeta, random": (ZetaMixup, {"anchor": "random", "gamma": (2.0, 4.0), "p": 0.6}),
    "mixup": (Mixup, {}),
    "mixup, batch": (Mixup, {"alpha": 0.2, "per": "batch", "p": 0.6}),
    "cutmix": (CutMix, {}),
    "cutmix, sample": (CutMix, {"alpha": 0.3, "per": "sample", "p": 0.6}),
    "switch": (MixupOrCutMix, {}),
    "switch, sample": (MixupOrCutMix, {"per": "sample"}),
}
every_rule = pytest.mark.parametrize("name", MIXES)
LAYOUTS = {"contiguous": lambda x: x, "channels last": lambda x: x.to(memory_format=LAST)}
LAST = torch.channels_last


@pytest.fixture(autouse=True)
def _kernels_everywhere(monkeypatch):
    """The kernels on a CPU too, and NaN or 255 in fresh memory: what nobody wrote shows."""

    def poisoned(make):
        def made(*args, **kwargs):
            fresh = make(*args, **kwargs)
            return fresh.fill_(float("nan") if fresh.is_floating_point() else 255)

        return made

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))
    if not GPU:
        monkeypatch.setattr(dispatch, "_has_kernels", lambda device: True)


def rule_of(name):
    kind, options = MIXES[name]
    return kind(**options)._rule


def batch_of(*shape, dtype=torch.float32, unit=False):
    """Normalised samples, or samples in [0, 1] (`unit`), or bytes, and their labels."""
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(shape, generator=generator)
    if unit or dtype == torch.uint8:
        samples = (samples * 0.2 + 0.45).clamp(0, 1) * (255 if dtype == torch.uint8 else 1)
    labels = torch.randint(CLASSES, shape[:1], generator=generator)
    return samples.to(DEVICE, dtype), labels.to(DEVICE)


def draw_of(seed=7, stream=0):
    """The numbers that a kernel draws, also where the reference draws on a CPU."""
    draw = Draw(torch.Generator(DEVICE).manual_seed(seed), stream, DEVICE)
    draw.on_host = False
    return draw


def by_kernel(rule, samples, labels, *, mean=None, ignore=None, **numbers):
    size = tuple(samples.shape[-2:]) if rule.paste and is_image(samples.shape) else None
    keeps = rule.keep_variance and is_image(samples.shape)
    facts = CLASSES, ignore, rule, keeps, size, rules.Blend(mean).means
    return dispatch.mix_labelled(samples, labels, *facts, draw_of(**numbers))


def by_plan(rule, samples, labels, *, mean=None, **numbers):
    """The same in float64 by the plan of the specification."""
    size = tuple(samples.shape[-2:]) if rule.paste and is_image(samples.shape) else None
    plan = draw_plan(rule, len(samples), draw_of(**numbers), size=size)
    unit = 255 if samples.dtype == torch.uint8 else 1
    with plain_torch():
        mixed = unit * apply_plan(samples.double() / unit, plan, mean=mean)
    hot = labels.view(-1, 1).int() == torch.arange(CLASSES, device=DEVICE)
    return mixed, plan.matrix().double() @ hot.double()


def assert_same(found, expected, dtype=torch.float32):
    samples, targets = found
    assert samples.dtype == dtype
    error = (samples.double() - expected[0]).norm() / expected[0].norm()
    # a wrong pixel, of the brightest ones, shows here
    furthest = (samples.double() - expected[0]).abs().max() / expected[0].abs().max()
    assert error < LIMITS[dtype], f"relative error {error:.2e}"
    assert furthest < 8 * LIMITS[dtype], f"a number is off by {furthest:.2e}"
    torch.testing.assert_close(targets, expected[1].float(), rtol=1e-5, atol=5e-6)


@every_rule
def test_every_rule_mixes_as_its_plan_says(name):
    rule, batch = rule_of(name), batch_of(9, 3, 11, 7)
    for seed in range(3):
        assert_same(by_kernel(rule, *batch, seed=seed), by_plan(rule, *batch, seed=seed))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("name", ["zetamix", "cutmix, sample", "zeta"])
def test_every_dtype_and_layout(name, dtype, layout):
    rule, (samples, labels) = rule_of(name), batch_of(6, 3, 11, 32, dtype=dtype)
    mean = (0.5, 0.4, 0.3) if dtype == torch.uint8 and rule.keep_variance else None
    samples = LAYOUTS[layout](samples)
    found = by_kernel(rule, samples, labels, mean=mean)
    assert found[0].stride() == samples.stride()
    assert_same(found, by_plan(rule, samples, labels, mean=mean), dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mean", [0.45, (0.5, 0.4, 0.3)], ids=str)
@pytest.mark.parametrize("width", [7, 32])
def test_means_of_all_and_of_each_channel(width, mean, layout):
    rule, (samples, labels) = rule_of("zetamix"), batch_of(8, 3, 9, width, unit=True)
    samples = LAYOUTS[layout](samples)
    expected = by_plan(rule, samples, labels, mean=mean)
    assert_same(by_kernel(rule, samples, labels, mean=mean), expected)


SHAPES = {
    "larger than a tile": (4, 3, 40, 36),
    "even lines": (4, 3, 16, 64),
    "one channel": (5, 1, 28, 28),
    "volumes": (4, 2, 3, 9, 8),
    "rows": (6, 50),
    "two samples": (2, 3, 8, 8),
    "one sample": (1, 3, 8, 8),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("name", ["zetamix, 4 sources", "switch, sample", "zeta"])
def test_every_shape(name, shape):
    rule, batch = rule_of(name), batch_of(*shape)
    assert_same(by_kernel(rule, *batch), by_plan(rule, *batch))


LABELS = {
    "int32": lambda y: y.int(),
    "uint8": lambda y: y.byte(),
    "a column": lambda y: y[:, None],
    "every second": lambda y: torch.stack([y, y], 1).flatten()[::2],
    "not aligned": lambda y: torch.cat([y[:1], y]).int()[1:],
    "ignored": lambda y: y.where(torch.arange(len(y), device=DEVICE) % 3 > 0, -1),
}


@pytest.mark.parametrize("convert", LABELS.values(), ids=LABELS.keys())
@pytest.mark.parametrize("name", ["zetamix", "zeta"])
def test_labels_of_any_kind(name, convert):
    rule, (samples, labels) = rule_of(name), batch_of(7, 3, 4, 4)
    # first aligned: a kernel that was compiled for that must not be used for the others
    assert_same(by_kernel(rule, samples, labels), by_plan(rule, samples, labels))
    given = samples, convert(labels)
    assert_same(by_kernel(rule, *given, ignore=-1), by_plan(rule, *given))


@pytest.mark.skipif(GPU, reason="an assertion, which the interpreter skips, ends the process")
@pytest.mark.parametrize("name", ["zetamix", "zeta"])
def test_a_label_out_of_range_is_no_target(name):
    samples, labels = batch_of(7, 3, 4, 4)
    labels[3] = CLASSES
    assert by_kernel(rule_of(name), samples, labels)[1][3].isnan().all()


@pytest.mark.parametrize("name", ["zetamix", "mixup", "zeta"])
def test_every_stream_has_its_own_plans(name):
    rule, batch = rule_of(name), batch_of(8, 1, 4, 4)
    first, third = by_kernel(rule, *batch), by_kernel(rule, *batch, stream=3)
    assert_same(third, by_plan(rule, *batch, stream=3))
    assert not torch.equal(first[1], third[1])


@pytest.mark.parametrize("shape", [(), (8,)], ids=["one", "each"])
@pytest.mark.parametrize("sources", [2, None])
def test_a_tensor_of_gamma(sources, shape):
    gamma = torch.rand(shape, device=DEVICE, dtype=torch.float64) + 2
    rule, batch = ZetaMixup(gamma=gamma, sources=sources)._rule, batch_of(8, 1, 4, 4)
    assert_same(by_kernel(rule, *batch), by_plan(rule, *batch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("batch", [17, 40, pytest.param(130, marks=pytest.mark.gpu)])
def test_products_of_any_size(batch, dtype):
    rule, given = rule_of("zeta"), batch_of(batch, 131, dtype=dtype)
    assert_same(by_kernel(rule, *given), by_plan(rule, *given), dtype)


def test_image_sizes_and_values_share_a_kernel():
    seen, options = [], ({}, {"gamma": 16.0, "p": 0.5}, {"gamma": (0.0, 4.0), "paste": 0.3})
    for side, given in itertools.product((96, 128, 160, 224), options):
        samples, rule = torch.zeros(4, 3, side, side, device=DEVICE), ZetaMix(**given)._rule
        seen.append(triton_launch._prepare_few(samples, CLASSES, rule, True, ())[0].constants)
    assert all(constants == seen[0] for constants in seen)


@pytest.mark.parametrize("name", ["zetamix", "zeta", "cutmix"])
def test_no_tensor_of_a_call_is_kept(name):
    mixed, targets = by_kernel(rule_of(name), *batch_of(6, 1, 3, 4))
    kept = weakref.ref(mixed), weakref.ref(targets)
    del mixed, targets
    # the interpreter leaves cycles
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


WITHOUT = {
    "float64": lambda x, y: (x.double(), y),
    "gradients": lambda x, y: (x.requires_grad_(), y),
    "soft labels": lambda x, y: (x, one_hot(y, CLASSES).float()),
    "masks": lambda x, y: (x, y[:, None, None].expand(-1, 4, 4)),
    "nothing in a sample": lambda x, y: (x[:, :0], y),
}


@pytest.mark.parametrize("change", WITHOUT.values(), ids=WITHOUT.keys())
def test_what_the_kernels_leave_to_torch(change):
    assert by_kernel(rule_of("zetamix"), *change(*batch_of(6, 1, 4, 4))) is None


@pytest.mark.skipif(GPU, reason="they are compiled for this one")
def test_every_kernel_compiles_for_real_gpus():
    """In a process of its own: in this one they are interpreted."""
    program = Path(__file__).parents[1] / "compile_kernels.py"
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "compiled" in done.stdout


# on a GPU, through the transforms


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@every_rule
def test_transforms_mix_by_the_kernels(name, dtype, monkeypatch):
    rule, batch = rule_of(name), batch_of(32, 3, 224, 224, dtype=dtype)
    mean = 0.45 if dtype == torch.uint8 and rule.keep_variance else None
    options = MIXES[name][1] | ({} if mean is None else {"mean": mean})
    generator = torch.Generator("cuda").manual_seed(7)
    mix = MIXES[name][0](num_classes=CLASSES, generator=generator, stream=0, **options)
    expected = by_plan(rule, *batch, mean=mean)
    # plain torch refuses to mix
    monkeypatch.delattr(rules.Blend, "mix")
    assert_same(mix(*batch), expected, dtype)


@pytest.mark.gpu
def test_a_first_call_in_a_capture_is_left_to_torch():
    mix, batch = ZetaMixup(num_classes=CLASSES, sources=3), batch_of(13, 3, 10, 6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, targets = mix(*batch)
    graph.replay()
    torch.testing.assert_close(targets.sum(1), torch.ones(13, device="cuda"))


@pytest.mark.gpu
@every_rule
def test_memory_of_a_call_is_returned(name):
    rule, (samples, labels) = rule_of(name), batch_of(64, 3, 32, 32)
    by_kernel(rule, samples, labels)
    before = torch.cuda.memory_allocated()
    by_kernel(rule, samples, labels)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.gpu
@pytest.mark.parametrize("sources", [2, 2 * MOST_FEW])
def test_a_label_out_of_range_on_a_gpu_is_never_quiet(sources):
    # a device-side assertion ends the CUDA context, so it gets a process of its own
    program = (
        f"import torch, zetamix; mix = zetamix.ZetaMixup(num_classes=5, sources={sources});"
        "_, t = mix(torch.zeros(9, 1, device='cuda'), torch.arange(9, device='cuda'));"
        "torch.cuda.synchronize(); print('quiet')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode != 0
    assert "quiet" not in done.stdout
    assert "labels must lie in [0, " in done.stderr + done.stdout
