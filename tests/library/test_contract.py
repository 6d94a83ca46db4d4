"""What every transform promises, each promise held against mixing by hand or the plain call.

In `numbered` batches every sample is one number, that of its class, so that the mean of an output
must be what its target says, whatever was blended or pasted.
"""

import collections
import copy
import inspect
import io
import pickle
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import by_hand
import numpy as np
import pytest
import safetensors.torch
import torch
from conftest import assert_close, assert_same
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.optim.swa_utils import AveragedModel
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import tv_tensors
from torchvision.transforms import v2
from transform_kinds import (
    CLASSES,
    KINDS,
    STRIDES,
    VARIANTS,
    mixed_by_hand,
    normalised_only,
    plain_torch,
    seeded,
    sharper,
    size_of,
)

import zetamix
from zetamix import (
    MixPlan,
    Mixup,
    ZetaMix,
    ZetaMixup,
    apply_plan,
    mixup,
    mixup_plan,
    sampling,
    zeta_mixup,
    zeta_plan,
)
from zetamix.rules import Average, Blend, FromAnchor, OneHot

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
SIZE = (5, 4)
LABELS = torch.tensor([3, 0, 2, 2, 1, 3])
every_kind = pytest.mark.parametrize("kind", KINDS)
every_variant = pytest.mark.parametrize("name", VARIANTS)
slow = pytest.mark.slow


def table(**cases):
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def images(*shape):
    return torch.randn(6, *(shape or (3, *SIZE)), generator=seeded(1), dtype=torch.float64)


def numbered(n=6, size=(8, 6)):
    """Images of one number each, and their classes: the same numbers."""
    labels = torch.arange(n)
    return labels.view(n, 1, 1, 1).expand(n, 3, *size).float(), labels


def assert_consistent(samples, targets):
    """The mean of every numbered output is what its target says."""
    means = samples.double().flatten(1).mean(1)
    classes = torch.arange(targets.shape[1], dtype=torch.float64, device=targets.device)
    assert_close(means.float(), targets.double() @ classes)
    assert_close(targets.sum(1), torch.ones(len(targets), device=targets.device))


def is_unmixed(targets):
    return bool(((targets == 0) | (targets == 1)).all())


# samples of any dtype, in any layout


def bytes_of(x, dtype=torch.uint8):
    info = torch.iinfo(dtype)
    return (x * 1000).round().clamp(info.min, info.max).to(dtype)


LAYOUTS = {
    "float64": lambda x: x,
    "float32": lambda x: x.float(),
    "float16": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "uint8": bytes_of,
    "int8": lambda x: bytes_of(x, torch.int8),
    "int16": lambda x: bytes_of(x, torch.int16),
    "channels last": lambda x: x.float().contiguous(memory_format=torch.channels_last),
    "uint8, channels last": lambda x: bytes_of(x).contiguous(memory_format=torch.channels_last),
    "channels last, volumes": lambda x: (
        x.float()[:, :, None].repeat(1, 1, 2, 1, 1).contiguous(memory_format=torch.channels_last_3d)
    ),
    "flipped": lambda x: x.float().flip(3),
    "transposed": lambda x: x.float().mT.contiguous().mT,
    **{name: lambda x, view=view: view(x.float()) for name, view in STRIDES.items()},
    "one channel for all": lambda x: x[:, :1].expand(x.shape).float(),
    "negative bit": lambda x: torch.complex(x, -x).conj().imag,
    "needs gradients": lambda x: x.float().requires_grad_(),
    "parameter": lambda x: nn.Parameter(x.float()),
    "of torchvision": lambda x: tv_tensors.Image(x.float()),
    "videos": lambda x: images(2, 3, 2, *SIZE).float(),
    "one pixel high": lambda x: images(3, 1, 4).float(),
    "table": lambda x: images(5).float(),
    "sequence": lambda x: images(3, 9).float(),
    "values": lambda x: images()[:, 0, 0, 0],
    "no features": lambda x: images(0).float(),
}


def check_mixing(name, samples, labels, *, seed=0, device="cpu", **options):
    """Mixing by hand by the plan of the seed, and by plain torch, gives the same."""
    samples, labels = samples.to(device), labels.to(device)
    options |= {} if samples.is_floating_point() else normalised_only(name)

    def made():
        return VARIANTS[name](generator=torch.Generator(device).manual_seed(seed), **options)

    kept, version = (samples.detach().clone(), labels.clone()), samples._version
    mixed, targets = made()(samples, labels)
    assert type(mixed) is (tv_tensors.Image if type(samples) is tv_tensors.Image else torch.Tensor)
    assert type(targets) is torch.Tensor
    assert_same((samples, labels), kept)
    assert samples._version == version
    plain, given = mixed.as_subclass(torch.Tensor), samples.as_subclass(torch.Tensor)
    assert plain.data_ptr() != given.data_ptr() or not plain.numel()
    dtype = torch.float64 if torch.float64 in (samples.dtype, labels.dtype) else torch.float32
    size = size_of(samples, made())
    plan = made().make_plan(len(samples), size=size, device=device, dtype=dtype)
    assert (plain.dtype, plain.shape) == (samples.dtype, samples.shape)
    assert_close(plain.cpu(), mixed_by_hand(given, plan))
    values = labels.double()
    if not labels.is_floating_point() and (labels.ndim != 2 or labels.shape[1] == 1):
        indices = labels.squeeze(1) if labels.ndim in (2, 4) and labels.shape[1] == 1 else labels
        counted = indices.long() != options.get("ignore_index", -1000)
        values = torch.stack([(indices.long() == k) & counted for k in range(CLASSES)], 1)
    assert targets.dtype == (torch.float64 if labels.dtype == torch.float64 else torch.float32)
    assert_close(targets.cpu(), mixed_by_hand(values, replace(plan, keep_variance=False)))
    with plain_torch():
        slow, slow_targets = made()(samples, labels)
    assert_close(slow.as_subclass(torch.Tensor), plain)
    assert_close(slow_targets, targets)
    for layout, ndim in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if given.ndim == ndim and given.is_contiguous(memory_format=layout):
            assert plain.is_contiguous(memory_format=layout)
            assert slow.is_contiguous(memory_format=layout)


def is_no_image(name, samples):
    return VARIANTS[name]().needs_images and size_of(samples, VARIANTS["zetamix"]()) is None


@pytest.mark.parametrize("mean", [0.375, (0.5, 0.375, 0.125)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("kind", [tuple, torch.tensor, np.array])
def test_deviations_from_the_mean_are_scaled_and_clipped(mean, dtype, kind):
    samples, largest = torch.rand(6, 3, *SIZE, generator=seeded(), dtype=torch.float64), 1
    if dtype == torch.uint8:
        samples, largest = (255 * samples).round(), 255
    samples = samples.to(dtype)
    given = mean if isinstance(mean, float) else kind(mean)
    options = {"num_classes": CLASSES, "gamma": 0.5, "mean": given}
    mixed, _ = ZetaMix(generator=seeded(), **options)(samples, LABELS)
    plan = ZetaMix(generator=seeded(), **options).make_plan(6, size=SIZE, dtype=torch.float64)
    each = torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1).expand(3, *SIZE)
    exact = mixed_by_hand(samples, plan, mean=(largest * each).flatten().tolist())
    assert_close(mixed, exact.round() if dtype == torch.uint8 else exact)
    assert ((exact == 0) | (exact == largest)).any(), "nothing was clipped"
    with plain_torch():
        slow, _ = ZetaMix(generator=seeded(), **options)(samples, LABELS)
    assert_close(slow, mixed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
def test_large_batches_are_mixed_in_blocks_as_by_gathering(dtype):
    samples = torch.rand(300, 3, 20, 25, generator=seeded())
    samples = (255 * samples).to(dtype) if dtype == torch.uint8 else samples.to(dtype)
    mix, labels = ZetaMix(num_classes=300, sources=4, mean=(0.5, 0.4, 0.3)), torch.arange(300)
    torch.manual_seed(0)
    mixed, _ = mix(samples, labels)
    torch.manual_seed(0)
    with plain_torch():
        assert_close(mixed, mix(samples, labels)[0])


def test_half_precision_is_accumulated_in_float32():
    # a running sum in half precision stops growing long before 512 terms of 1/512
    samples = torch.ones(512, 8, dtype=torch.float16)
    assert torch.equal(ZetaMixup(gamma=0.0)(samples, samples)[0], samples)


# targets of any kind


def soft(dtype=torch.float32):
    return torch.rand(6, CLASSES, generator=seeded(2), dtype=torch.float64).to(dtype)


def holes(labels, value):
    return labels.masked_fill(torch.rand(labels.shape, generator=seeded(3)) < 0.3, value)


MASKS = torch.randint(CLASSES, (6, *SIZE), generator=seeded(3))
INTEGERS = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip
# labels, and the options other than num_classes
TARGETS = {
    **{str(dtype): (LABELS.to(dtype), {}) for dtype in INTEGERS},
    "[n, 1]": (LABELS[:, None], {}),
    "ignored": (holes(LABELS, -100), {"ignore_index": -100}),
    "one-hot integers": (nn.functional.one_hot(LABELS, CLASSES), {}),
    "multi-hot bool": (soft() > 0.5, {}),
    "soft": (soft(), {}),
    "soft, half": (soft(torch.float16), {}),
    "soft, double": (soft(torch.float64), {}),
    "regression [n]": (soft()[:, 0] * 40 - 20, {"num_classes": None}),
    "regression [n, 1]": (soft()[:, :1], {"num_classes": None}),
    "heat maps": (images(2, *SIZE).float(), {"num_classes": None}),
    "maps of another size": (images(2, 3, 3).float(), {"num_classes": None}),
    "masks": (MASKS, {}),
    "masks with a channel": (MASKS[:, None], {}),
    "masks, ignored": (holes(MASKS, 255), {"ignore_index": 255}),
    "masks, a class ignored": (MASKS, {"ignore_index": 1}),
    "masks of bytes, ignored": (holes(MASKS, 255).byte(), {"ignore_index": 255}),
    "volumes of masks": (MASKS[:, None].repeat(1, 3, 1, 1), {}),
}


# masks of volumes go with volumes
BATCHES = {name: (case(images()), LABELS, {}) for name, case in LAYOUTS.items()} | {
    name: (images(2, 3, *SIZE).float() if "volumes" in name else images().float(), *case)
    for name, case in TARGETS.items()
}


@every_variant
@table(**BATCHES)
def test_samples_and_targets_are_those_by_hand(name, case):
    samples, labels, options = case
    if is_no_image(name, samples):
        pytest.skip("boxes are pasted into images alone")
    check_mixing(name, samples, labels, **options)


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore:The samples are not normalised")
@given(st.data())
def test_any_samples_with_any_targets_are_those_by_hand(data):
    """In batches of any size, with any seed, stream and p."""
    name = data.draw(st.sampled_from(list(VARIANTS)))
    samples = LAYOUTS[data.draw(st.sampled_from(list(LAYOUTS)))](images())
    assume(not is_no_image(name, samples))
    labels, options = TARGETS[data.draw(st.sampled_from(list(TARGETS)))]
    batch = data.draw(st.integers(1, 6))
    check_mixing(
        name,
        samples[:batch],
        labels[:batch],
        seed=data.draw(st.integers(0, 2**32)),
        device=data.draw(st.sampled_from(DEVICES)),
        stream=data.draw(st.none() | st.integers(0, 2**20)),
        p=data.draw(st.floats(0.01, 1)),
        **options,
    )


def test_more_classes_than_a_small_dtype_can_count_and_ids_beyond_half_precision():
    labels = torch.tensor([255, 0, 7], dtype=torch.uint8)
    targets = ZetaMixup(num_classes=300)(torch.zeros(3, 1), labels)[1]
    assert targets.argmax(1).tolist() == [255, 0, 7]
    # kornia#4657: ids cast to the dtype of the images are no longer the same ids
    labels = torch.tensor([999, 998, 997])
    targets = ZetaMixup(num_classes=1000)(torch.zeros(3, 2, dtype=torch.bfloat16), labels)[1]
    assert targets.argmax(1).tolist() == [999, 998, 997]


@pytest.mark.parametrize("declared", [{"num_classes": 4}, {}, {"rules": (Blend(), Average())}])
def test_the_variance_is_kept_however_the_target_is_declared(declared):
    """It depended on `num_classes`: a standard deviation of 1.006 with it, 0.817 without."""
    samples = torch.randn(400, 3, 8, 8, generator=seeded())
    hot = torch.eye(4).repeat(100, 1)
    mixed, _ = ZetaMix(generator=seeded(), **declared)(samples, hot)
    assert mixed.std().item() == pytest.approx(1, abs=0.02)
    lost, _ = ZetaMix(generator=seeded(), keep_variance=False, **declared)(samples, hot)
    assert lost.std().item() < 0.95
    # a regression keeps its slopes: points are not scaled
    points, slopes = torch.randn(4096, 3, dtype=torch.float64), torch.tensor([1.0, 2.0, -1.0])
    x, y = ZetaMix()(points, points @ slopes.double())
    assert_close(torch.linalg.lstsq(x, y[:, None]).solution[:, 0].float(), slopes)


@pytest.mark.parametrize("kind", [tv_tensors.Video, tv_tensors.Mask])
def test_tv_tensors_keep_their_type(kind):
    value = kind(torch.randint(3, (4, 2, 5, 5), dtype=torch.uint8))
    # soft masks are masks: geometric transforms still move them with their image
    masks = tv_tensors.Mask(torch.randint(3, (4, 5, 5)))
    for mixed, soft in (ZetaMixup(num_classes=3)(value, masks), zeta_mixup(value, masks, 3)):
        assert (type(mixed), type(soft), soft.shape) == (kind, tv_tensors.Mask, (4, 3, 5, 5))
    assert type(apply_plan(value, zeta_plan(4))) is kind


# in every form that a batch has, and back in the same


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


def with_rest(mix, x, y):
    rest = [torch.arange(6), ["a"] * 6, None]
    samples, targets, *entries = mix(x, y, *rest)
    assert all(entry is given for entry, given in zip(entries, rest, strict=True))
    return samples, targets


def as_arrays(mix, x, y):
    mixed = mix(x.numpy(), y.numpy())
    assert [type(part) for part in mixed] == [np.ndarray] * 2
    return map(torch.from_numpy, mixed)


def listed(mix, batch):
    mixed = mix(batch)
    assert type(mixed) is type(batch)
    assert not isinstance(batch, dict) or list(mixed) == list(batch)
    return mixed


FORMS = {
    "keywords": lambda mix, x, y: mix(samples=x, labels=y),
    "tuple": lambda mix, x, y: listed(mix, (x, y)),
    "list": lambda mix, x, y: listed(mix, [x, y]),
    "list with more": lambda mix, x, y: listed(mix, [x, y, "more"])[:2],
    "named tuple": lambda mix, x, y: listed(mix, Pair(x, y)),
    "dict": lambda mix, x, y: listed(mix, {"pixel_values": x, "labels": y}).values(),
    "dict, one image": lambda mix, x, y: mix({"label": y, "image": x}).values().__reversed__(),
    "user's dict": lambda mix, x, y: mix(collections.UserDict(x=x, target=y)).values(),
    "with the rest": with_rest,
    "arrays": as_arrays,
    "collated": lambda mix, x, y: mix.collate(list(zip(x, y.tolist(), strict=True))),
    "v2.Compose": lambda mix, x, y: v2.Compose([v2.Identity(), mix])(x, y),
}


@every_kind
@table(**FORMS)
def test_a_batch_comes_back_in_the_form_it_had(kind, case):
    samples = images().float()
    expected = KINDS[kind](generator=seeded())(samples, LABELS)
    assert_same(case(KINDS[kind](generator=seeded()), samples, LABELS), expected)


@pytest.mark.parametrize("p", [1.0, 0.5])
@pytest.mark.parametrize("kind", [*KINDS, "zeta, few"])
def test_a_dict_with_every_rule(kind, p):
    batch = {
        "image": images().float(),
        "views": (torch.randn(6, 2), [torch.randn(6)]),
        "label": LABELS,
        "mask": holes(MASKS, 255),
        "meta": collections.UserDict(age=torch.rand(6), id=torch.arange(100, 106)),
        "array": np.ones((6, 2), dtype=np.float16),
        "file": list("abcdef"),
        "pair": Pair(tv_tensors.Image(images().float()), LABELS),
    }
    rules = {
        "image": Blend(),
        "views": Blend(),
        "label": OneHot(4),
        "mask": OneHot(4, ignore_index=255),
        "meta": {"age": Average(), "id": FromAnchor()},
        "array": Blend(),
        "file": FromAnchor(),
        "pair": (Blend(), OneHot(4)),
    }
    mixed = VARIANTS[kind](rules=rules, p=p, generator=seeded())(batch)
    plan = VARIANTS[kind](p=p, generator=seeded()).make_plan(6, size=SIZE)
    assert list(mixed) == list(batch)
    assert_close(mixed["image"], mixed_by_hand(batch["image"], plan))
    assert_close(mixed["views"][0], mixed_by_hand(batch["views"][0], plan))
    assert_close(mixed["views"][1][0], mixed_by_hand(batch["views"][1][0], plan))
    hot = nn.functional.one_hot(LABELS, 4)
    assert_close(mixed["label"], mixed_by_hand(hot, plan))
    masks = torch.stack([batch["mask"] == k for k in range(4)], 1).double()
    assert_close(mixed["mask"], mixed_by_hand(masks, replace(plan, keep_variance=False)))
    assert type(mixed["meta"]) is dict
    assert_close(mixed["meta"]["age"], mixed_by_hand(batch["meta"]["age"], plan))
    assert torch.equal(mixed["meta"]["id"], plan.anchors() + 100)
    assert (type(mixed["array"]), mixed["array"].dtype) == (np.ndarray, np.float16)
    assert mixed["file"] == [batch["file"][k] for k in plan.anchors().tolist()]
    assert (type(mixed["pair"]), type(mixed["pair"].image)) == (Pair, tv_tensors.Image)
    assert_close(mixed["pair"].label, mixed_by_hand(hot, plan))


def test_apply_plan_keeps_every_kind_of_nest():
    plan = zeta_plan(6, 1.2)
    nest = collections.OrderedDict(b=images(3), a=(images(), [images()]))
    mixed = apply_plan(nest, plan)
    assert (type(mixed), list(mixed)) == (collections.OrderedDict, ["b", "a"])
    assert (type(mixed["a"]), type(mixed["a"][1])) == (tuple, list)
    assert_close(mixed["b"], mixed_by_hand(nest["b"], plan))
    assert_close(mixed["a"][1][0], mixed_by_hand(images(), plan))


def test_a_rule_for_one_tensor():
    samples = torch.randn(4, 3)
    assert torch.equal(ZetaMixup(rules=Blend(), gamma=3000.0)(samples), samples)


@pytest.mark.parametrize("first", ["label", "image"])
def test_float64_entries_get_float64_weights_wherever_they_stand(first):
    batch = {"label": torch.arange(4), "image": torch.eye(4, dtype=torch.float64)}
    batch = {first: batch.pop(first), **batch}
    rules = {"image": Blend(), "label": OneHot(4)}
    mixed = ZetaMixup(rules={name: rules[name] for name in batch})(batch)
    series = by_hand.weights_from_ranks([1, 2, 3, 4], 2.8)
    ranked = mixed["image"].sort(dim=1, descending=True).values
    assert_close(ranked, torch.tensor([series] * 4, dtype=torch.float64))


class Refuses:
    def mix(self, value, plan):
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "no name")


X = torch.rand(8, 3)
# the rules, the batch, and the note of the error
BAD_ENTRIES = {
    "length": ({"x": Blend(), "y": Average()}, {"x": X, "y": torch.rand(7)}, "In batch['y']."),
    "one rule for a dict": (
        {"x": Blend(), "y": FromAnchor()},
        {"x": X, "y": {"id": LABELS}},
        "In batch['y']. A dict needs a dict of rules.",
    ),
    "nested": (
        {"x": Blend(), "y": {"id": (Average(), Average())}},
        {"x": X, "y": {"id": (torch.rand(8), torch.rand(3))}},
        "In batch['y']['id'][1].",
    ),
    "the first": (({"x": Blend()}, Blend()), ({"x": torch.tensor(1.0)}, X), "In batch[0]['x']."),
    "no rule": ({"y": (Average(), FromAnchor)}, {"y": (X, X)}, "In rules['y'][1]."),
    "custom": ({"x": Blend(), "y": Refuses()}, {"x": X, "y": "a" * 8}, "In batch['y']."),
}


@table(**BAD_ENTRIES)
def test_an_error_names_its_entry(case):
    rules, batch, note = case
    with pytest.raises((TypeError, ValueError)) as caught:
        ZetaMixup(rules=rules)(batch)
    assert caught.value.__notes__ == [note]


# whatever surrounds the call


@contextmanager
def setting(name, value):
    """A setting of torch as a context."""
    before = getattr(torch, f"get_{name}")()
    getattr(torch, f"set_{name}")(value)
    try:
        yield
    finally:
        getattr(torch, f"set_{name}")(before)


SURROUNDINGS = {
    "autocast, bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast, float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "default double": lambda: setting("default_dtype", torch.float64),
    "default bfloat16": lambda: setting("default_dtype", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "matmul precision": lambda: setting("float32_matmul_precision", "medium"),
    "deterministic": lambda: setting("deterministic_debug_mode", "error"),
}


@every_variant
@table(**SURROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_surroundings_change_nothing(name, case, dtype):
    samples = images().to(dtype)
    expected = VARIANTS[name](generator=seeded())(samples, LABELS)
    mix = VARIANTS[name](generator=seeded())
    with case():
        results = mix(samples, LABELS)
        made_inside = VARIANTS[name]()
    assert_same(results, expected)
    # a transform made inside can be set, copied and used outside
    for inside in (made_inside, copy.copy(made_inside), copy.deepcopy(made_inside)):
        inside.p = 0.5
        inside.set_epoch(0, 5)
        assert (inside.p, inside.eval().training) == (0.5, False)
        assert inside.train()(samples, LABELS)[0].shape == samples.shape


def test_a_plan_drawn_in_inference_mode_leaves_gradients_of_gamma_alone():
    with torch.inference_mode():
        ZetaMix(num_classes=4)(torch.randn(4, 3), torch.arange(4))
    gamma = torch.tensor(1.0, requires_grad=True)
    mixed, _ = ZetaMix(gamma=gamma)(torch.eye(4), torch.eye(4))
    mixed.square().sum().backward()
    assert gamma.grad.abs() > 0


# one source of randomness


@every_variant
def test_a_seed_fixes_the_result_and_a_generator_is_the_only_source(name):
    samples = images().float()
    before = torch.get_rng_state()
    first, again, other = (
        VARIANTS[name](p=0.9, generator=seeded(seed))(samples, LABELS) for seed in (3, 3, 5)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(first, again)
    assert not torch.equal(first[0], other[0])
    defaults = []
    for _ in range(2):
        torch.manual_seed(5)
        defaults.append(VARIANTS[name]()(samples, LABELS))
    assert_same(*defaults)
    assert not torch.equal(torch.get_rng_state(), before)


@every_kind
def test_streams_are_those_of_ranks_unless_one_is_given(kind, monkeypatch):
    """Ranks of a tensor-parallel group must mix alike: `stream=` on every transform."""

    def drawn(rank, **options):
        monkeypatch.setattr(sampling, "LAUNCHED_RANK", rank)
        mix = KINDS[kind](generator=seeded(), **options)
        return torch.stack([mix(images(), LABELS)[0] for _ in range(4)])

    assert not torch.equal(drawn(0), drawn(1))
    assert_same([drawn(0, stream=3)], [drawn(1, stream=np.int64(3))])
    assert_same([drawn(3)], [drawn(7, stream=3)])
    assert not torch.equal(drawn(0, stream=3), drawn(0, stream=4))


@every_kind
def test_a_missing_numpy_does_not_change_the_rows_of_a_seed(kind, monkeypatch):
    """It gave different plans, as did γ as a number and as a tensor (`test_plan.py`)."""
    samples = images().float()
    expected = KINDS[kind](generator=seeded())(samples, LABELS)
    mix = KINDS[kind](generator=seeded())
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "numpy", lambda *_, **__: (_ for _ in ()).throw(RuntimeError()))
        mixed = mix(samples, LABELS)
    assert_same(mixed, expected)


# switched off


OFF = {
    "eval": lambda mix: mix.eval(),
    "training": lambda mix: setattr(mix, "training", False),
    "enabled": lambda mix: setattr(mix, "enabled", False),
    "a bool of NumPy": lambda mix: setattr(mix, "enabled", np.int64(9) < np.float64(8)),
    "p of 0": lambda mix: setattr(mix, "p", 0.0),
    "the last epochs": lambda mix: mix.set_epoch(4, 5),
    "the last steps": lambda mix: mix.set_progress(0.8),
}


@every_kind
@table(**OFF)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_off_returns_the_input_with_targets_of_the_same_form_and_draws_nothing(kind, case, dtype):
    mix = KINDS[kind](until=0.8)
    samples = images().to(dtype)
    if dtype.is_floating_point:
        samples[0] = torch.inf
    case(mix)
    assert not mix.mixing
    before = torch.get_rng_state()
    mixed, targets = mix(samples, LABELS)
    assert mixed is samples
    assert_same([targets], [nn.functional.one_hot(LABELS, CLASSES).float()])
    regression = KINDS[kind](num_classes=None, until=0.8)
    case(regression)
    values = torch.full((6,), torch.inf)
    assert_same([regression(samples, values)[1]], [values])
    rules = KINDS[kind](rules={"x": Blend(), "y": OneHot(CLASSES)}, until=0.8)
    case(rules)
    entries = rules({"x": samples, "y": LABELS})
    assert entries["x"] is samples
    assert_same([entries["y"]], [targets])
    assert torch.equal(torch.get_rng_state(), before)
    mix.train()
    mix.enabled, mix.p = True, 1.0
    mix.set_epoch(0, 5)
    assert mix.mixing
    assert not is_unmixed(mix(images(), LABELS)[1])


@pytest.mark.parametrize("kind", [*KINDS, "zeta, few"])
def test_p_is_drawn_for_each_output(kind):
    """Also with a random anchor, what is not mixed is sample k itself."""
    # `switch` pastes a box of no pixels now and then
    mix = VARIANTS[kind](num_classes=2000, p=0.3, **({"sources": 2} if kind == "zeta" else {}))
    plan = mix.make_plan(2000, size=(64, 64))
    alone = plan.weights.amax(1) == 1
    shared = plan.weights.amax(1)[~alone].numel()
    assert abs(shared / 2000 - 0.3) < 0.04
    assert torch.equal(plan.anchors()[alone], torch.arange(2000)[alone])


@every_kind
@pytest.mark.parametrize("until", [0.05, 0.29, 0.5, 0.8, 1.0])
def test_the_first_epochs_are_mixed(kind, until):
    """The line that people wrote by hand never ended mixing in trainings of 3 and 4 epochs."""
    mix = KINDS[kind](until=until)
    for epochs in (1, 2, 3, 4, 5, 10, 100):
        mixes = []
        for epoch in range(epochs):
            mix.set_epoch(epoch, epochs)
            mixes.append(mix.mixing)
        mixed = max(1, int(round(until * epochs, 6)))
        assert mixes == [True] * mixed + [False] * (epochs - mixed)
    assert KINDS["zetamix"]().until == 0.8
    assert KINDS["mixup"]().until == KINDS["zeta"]().until == 1


@every_kind
@pytest.mark.parametrize("flip", ["enabled", "training"])
def test_a_switch_at_any_moment_of_a_call_has_its_effect_as_a_whole(kind, flip):
    """Controls were read twice: a change in between gave unmixed samples with mixed labels."""
    folder = str(zetamix.__path__[0])
    samples, labels = numbered(8)
    options = normalised_only(kind)
    mixes = {
        "pair": (KINDS[kind](num_classes=8, **options), lambda mix: mix(samples, labels)),
        "rules": (
            KINDS[kind](rules={"x": Blend(), "y": OneHot(8)}, **options),
            lambda mix: mix({"x": samples, "y": labels}).values(),
        ),
    }
    for mix, call in mixes.values():
        moment, outcomes = 0, set()
        while True:
            moment += 1
            count = 0

            def switch(frame, event, argument, mix=mix, moment=moment):
                nonlocal count
                if event == "call" and frame.f_code.co_filename.startswith(folder):
                    count += 1
                    if count == moment:
                        sys.setprofile(None)
                        setattr(mix, flip, not getattr(mix, flip))

            mix.enabled, mix.training = True, True
            sys.setprofile(switch)
            try:
                mixed, targets = call(mix)
            finally:
                sys.setprofile(None)
            assert_consistent(mixed, targets)
            outcomes.add(is_unmixed(targets))
            if count < moment:
                break
        assert moment > 5
        assert False in outcomes


# copies, states, models


def saved_and_loaded(mix):
    file = io.BytesIO()
    torch.save(mix, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda mix: pickle.loads(pickle.dumps(mix)),
    "save": saved_and_loaded,
    # a generator and the epoch are no options
    "repr": lambda mix: eval(repr(mix).replace(", enabled=True", ""), vars(zetamix)),
}


@every_variant
@table(**COPIES)
def test_copies_carry_everything_and_share_no_switch(name, case):
    options = {} if case in (copy.copy, COPIES["repr"]) else {"generator": seeded()}
    epoch = 0 if case is COPIES["repr"] else 3
    mix = VARIANTS[name](p=0.9, stream=2, **options)
    mix.set_epoch(epoch, 10)
    twin = case(mix)
    assert repr(twin) == repr(mix)
    assert (twin.p, twin.enabled, twin.epoch, twin.mixing) == (0.9, True, epoch, True)
    torch.manual_seed(0)
    expected = mix(images(), LABELS)
    torch.manual_seed(0)
    assert_same(twin(images(), LABELS), expected)
    twin.enabled, twin.p = False, 0.1
    twin.eval().set_epoch(7, 10)
    assert (mix.p, mix.enabled, mix.epoch, mix.training) == (0.9, True, epoch, True)


@every_kind
def test_state_dict_resumes_a_run_and_holds_no_options(kind):
    def made(seed, **options):
        return KINDS[kind](generator=seeded(seed), **options)

    first = made(1)
    first(images(), LABELS)
    first.p, first.enabled = 0.75, True
    first.set_epoch(5, 10)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    went_on = [first(images(), LABELS)[1] for _ in range(2)]
    state = torch.load(file, weights_only=True)
    assert sorted(state) == ["epoch", "generator"]
    second = made(2, p=0.5)
    second.load_state_dict(state)
    # options and switches belong to the program, not to a checkpoint
    assert (second.p, second.enabled, second.epoch) == (0.5, True, 5)
    second.p = 0.75
    assert_same([second(images(), LABELS)[1] for _ in range(2)], went_on)
    # and a state does not follow later changes
    first.set_epoch(6, 10)
    assert state["epoch"] == 5
    for wrong in ({**state, "weight": torch.ones(1)}, {"generator": state["generator"]}):
        with pytest.raises(RuntimeError, match="key"):
            made(0).load_state_dict(wrong)
    assert KINDS[kind]().load_state_dict({}, strict=False).missing_keys == ["epoch"]
    for saved, loaded in ((first, KINDS[kind]()), (KINDS[kind](), first)):
        with pytest.warns(UserWarning, match="will not resume with the same random plans"):
            loaded.load_state_dict(saved.state_dict())


class MixingModel(nn.Module):
    """A model that mixes its own batches, as users of Lightning or Keras write them."""

    def __init__(self, mix):
        super().__init__()
        self.body = nn.Linear(3, 6)
        if mix is not None:
            self.mix = mix


@every_kind
def test_a_model_is_saved_loaded_and_averaged_with_and_without_its_transform(kind, tmp_path):
    with_mix, without = MixingModel(KINDS[kind](generator=seeded())), MixingModel(None)
    assert with_mix.state_dict().keys() == without.state_dict().keys()
    file = str(tmp_path / "model.safetensors")
    for saved, loaded in [(with_mix, without), (without, with_mix), (with_mix, with_mix)]:
        safetensors.torch.save_model(saved, file)
        assert safetensors.torch.load_model(loaded, file, strict=True) == (set(), [])
        loaded.load_state_dict(saved.state_dict(), strict=True)
    safetensors.torch.save_file(with_mix.mix.state_dict(), file)
    resumed = KINDS[kind](generator=seeded(5))
    resumed.load_state_dict(safetensors.torch.load_file(file))
    expected = with_mix.mix(images(), LABELS)
    assert_same(resumed(images(), LABELS), expected)
    averaged = AveragedModel(with_mix)
    averaged.update_parameters(with_mix)
    assert averaged.module.mix.p == 1
    # modes of the model are modes of its transform
    assert with_mix.eval().mix.mixing is False
    assert with_mix.train().mix.mixing


# compiled, exported, without values, differentiated


@pytest.fixture
def _fresh_compiler():
    """Graphs of other tests count towards torch's limit for one function."""
    torch.compiler.reset()


# pasting drawn for each sample takes another way than for the batch
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    "name",
    ["mixup", *(pytest.param(n, marks=slow) for n in (*KINDS, "switch, sample") if n != "mixup")],
)
def test_one_compiled_graph_serves_all_batch_sizes_and_settings(name):
    graphs = []

    def count_graphs(graph, inputs):
        graphs.append(graph)
        return graph.forward

    mix = VARIANTS[name](num_classes=200, **normalised_only(name))
    compiled = torch.compile(mix, fullgraph=True, dynamic=True, backend=count_graphs)
    seen = []
    for batch in (16, 5, 130):
        mixed, targets = compiled(*numbered(batch))
        assert not is_unmixed(targets)
        assert_consistent(mixed, targets)
        seen.append(compiled(*numbered(batch))[1])
        assert not torch.equal(seen[-1], targets)
    for epoch in range(4):
        mix.set_epoch(epoch, 100)
        mix.p = 0.65 + epoch / 10
        if name.startswith("zeta"):
            mix.gamma = 2.0 + epoch
        assert_consistent(*compiled(*numbered(16)))
    count = len(graphs)
    assert count <= 2
    mix.enabled = False
    samples, labels = numbered(16)
    mixed, targets = compiled(samples, labels)
    assert_same([mixed, targets.argmax(1)], [samples, labels])
    assert len(graphs) <= count + 1


BY_RULE = ZetaMixup(rules={"x": Blend(), "meta": {"y": OneHot(4)}})


def ruled(samples, labels):
    mixed = BY_RULE({"x": samples, "meta": {"y": labels}})
    return mixed["x"], mixed["meta"]["y"]


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    "mix", [ruled, *(pytest.param(function, marks=slow) for function in (zeta_mixup, mixup))]
)
def test_rules_and_functions_compile_into_one_graph(mix):
    options = {} if mix is ruled else {"num_classes": 4}
    compiled = torch.compile(mix, fullgraph=True, backend="aot_eager", dynamic=False)
    samples, labels = torch.rand(4, 3), torch.arange(4)
    (mixed, targets), (_, again) = (compiled(samples, labels, **options) for _ in range(2))
    assert_close(mixed, targets @ samples)
    assert not torch.equal(targets, again)


@slow
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(("kind", "dtype"), [("zetamix", torch.bfloat16), ("mixup", torch.float32)])
def test_compiled_by_inductor_with_batches_of_changing_size(kind, dtype):
    mix = KINDS[kind](num_classes=12, **normalised_only(kind))
    compiled = torch.compile(mix, fullgraph=True, dynamic=True)
    for batch in (12, 7):
        samples, labels = numbered(batch)
        mixed, targets = compiled(samples.to(dtype), labels)
        assert (mixed.dtype, mixed.shape) == (dtype, samples.shape)
        assert_close(targets.sum(1), torch.ones(batch))
        means = mixed.double().mean((1, 2, 3))
        torch.testing.assert_close(means, targets.double() @ torch.arange(12).double(),
                                   rtol=2e-2, atol=2e-2)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "strict"),
    [
        ("zetamix", False),
        *(pytest.param(kind, False, marks=slow) for kind in KINDS if kind != "zetamix"),
        *(pytest.param(kind, True, marks=slow) for kind in ("zetamix", "switch")),
    ],
)
def test_an_exported_program_takes_any_batch_and_draws_anew(kind, strict):
    mix = KINDS[kind](num_classes=32, **normalised_only(kind))
    size = torch.export.Dim("batch", min=8, max=64)
    shapes = {"samples": {0: size}, "labels": {0: size}}
    program = torch.export.export(mix, numbered(16), dynamic_shapes=shapes, strict=strict).module()
    for batch in (16, 20):
        first, second = (program(*numbered(batch)) for _ in range(2))
        assert_consistent(*first)
        assert not torch.equal(first[1], second[1])
    assert list(inspect.signature(mix.forward).parameters) == ["samples", "labels", "rest"]


@every_variant
def test_tensors_without_values_give_shapes_and_dtypes(name):
    """On the meta device and in FakeTensorMode, where transforms are made as well."""
    results, outside = [], VARIANTS[name]()
    with FakeTensorMode():
        for mix in (VARIANTS[name](p=0.5), outside):
            samples = torch.empty(300, 3, 9, 7, dtype=torch.float16)
            results.append(mix(samples, torch.empty(300, dtype=torch.int64)))
    samples = torch.empty(300, 3, 9, 7, dtype=torch.float16, device="meta")
    labels = torch.empty(300, dtype=torch.int64, device="meta")
    results.append(VARIANTS[name](p=0.5)(samples, labels))
    results.append(VARIANTS[name]().eval()(samples, labels))
    with torch.device("meta"):
        results.append(VARIANTS[name]()(samples, labels))
    for mixed, targets in results:
        assert (mixed.shape, mixed.dtype) == (samples.shape, samples.dtype)
        assert (targets.shape, targets.dtype) == ((300, CLASSES), torch.float32)


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


@every_variant
def test_nothing_waits_for_the_device(fake_cuda, name):
    samples = torch.empty(32, 3, 8, 8, device=fake_cuda)
    for shape, options in (((32,), {"ignore_index": -1}), ((32, 8, 8), {}), ((32, CLASSES), {})):
        labels = torch.empty(shape, dtype=torch.int64, device=fake_cuda)
        mixed, targets = VARIANTS[name](p=0.5, **options)(samples, labels)
        assert mixed.device.type == targets.device.type == "cuda"
        assert mixed.shape == samples.shape
    rules = {"x": Blend(), "y": FromAnchor(), "z": Average()}
    batch = {"x": samples, "y": labels, "z": labels.double()}
    assert VARIANTS[name](rules=rules)(batch)["z"].device.type == "cuda"
    gamma = torch.rand(32, device=fake_cuda)
    assert zeta_mixup(samples, labels.double(), gamma=gamma)[0].device.type == "cuda"


def test_the_watch_does_see_a_read_and_a_copy(fake_cuda):
    with pytest.raises(Exception, match="_local_scalar_dense"):
        torch.empty(1, device=fake_cuda).item()
    with pytest.raises(AssertionError, match="moves data between devices"):
        torch.ones(2).to(fake_cuda)


@pytest.mark.gpu
@every_variant
def test_on_a_real_device_nothing_waits_and_captured_graphs_draw_fresh_plans(name):
    mix = VARIANTS[name](num_classes=16, **normalised_only(name))
    samples, labels = (part.cuda() for part in numbered(16))
    mix(samples, labels)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        mixed, targets = mix(samples, labels)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_consistent(mixed, targets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mixed, targets = mix(samples, labels)
    seen = []
    for _ in range(3):
        graph.replay()
        assert_consistent(mixed, targets)
        seen.append(targets.clone())
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


# torch scripts its own formulas for forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated")
@every_variant
def test_gradients_are_those_of_the_plan(name):
    """By differences, and in torch.func, whose tensors have no memory to read."""
    # numerical gradients take two calls for each number
    samples, tangents = images(1, 3, 2), torch.flip(images(1, 3, 2), (0,))

    def mix(x):
        return VARIANTS[name](generator=seeded())(x, LABELS)[0]

    assert torch.autograd.gradcheck(mix, samples.clone().requires_grad_())
    plan = VARIANTS[name](generator=seeded()).make_plan(6, size=(3, 2), dtype=torch.float64)
    expected = mixed_by_hand(tangents, plan)
    with forward_ad.dual_level():
        mixed = mix(forward_ad.make_dual(samples, tangents))
        assert_close(forward_ad.unpack_dual(mixed).tangent, expected)
    assert_close(torch.func.jvp(mix, (samples,), (tangents,))[1], expected)
    gradient = torch.func.grad(lambda x: (mix(x) * tangents).sum())(samples)
    plain = samples.clone().requires_grad_()
    (mix(plain) * tangents).sum().backward()
    assert_close(gradient, plain.grad)
    assert torch.autograd.gradgradcheck(mix, samples.clone().requires_grad_())
    # a plan that was drawn outside is applied inside vmap
    batches = torch.stack([samples, tangents])
    expected = torch.stack([mixed_by_hand(each, plan) for each in batches])
    assert_close(torch.vmap(lambda x: apply_plan(x, plan))(batches), expected)
    # and so is one that is drawn inside
    assert_close(torch.vmap(mix, randomness="same")(batches), expected)


# many sources go through a matrix product, few of many rows are gathered
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated")
@pytest.mark.parametrize(("batch", "sources"), [(6, None), (16, 2)])
def test_gradients_reach_the_weights_to_second_order(batch, sources):
    plan = zeta_plan(batch, 1.2, sources=sources, dtype=torch.float64)
    samples = torch.randn(batch, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = plan.weights.clone().requires_grad_()

    def mix(x, w):
        return apply_plan(x, MixPlan(plan.indices, w, plan.batch_size))

    assert torch.autograd.gradcheck(mix, (samples, weights))
    assert torch.autograd.gradgradcheck(mix, (samples, weights))
    plain, given = samples.detach(), (plan.weights.clone(),)
    assert torch.autograd.gradgradcheck(lambda w: mix(plain, w), (weights,))
    # mixing is linear in the weights
    derivative = torch.func.jvp(lambda w: mix(plain, w), given, given)[1]
    assert_close(derivative, mixed_by_hand(samples, plan))


@every_kind
def test_gradients_reach_soft_targets_and_keep_channels_last(kind):
    labels = soft(torch.float64).requires_grad_()
    mix = lambda y: KINDS[kind](generator=seeded())(images(), y)[1]  # noqa: E731
    assert torch.autograd.gradcheck(mix, labels)
    samples = images().bfloat16().to(memory_format=torch.channels_last).requires_grad_()
    KINDS[kind](generator=seeded(), **normalised_only(kind))(samples, LABELS)[0].sum().backward()
    assert samples.grad.is_contiguous(memory_format=torch.channels_last)
    # every pixel of an output is a weighted sum of that pixel of the sources
    assert samples.grad.double().mean().item() == pytest.approx(1, rel=2e-3)


# options and what is said of them


@every_kind
def test_options_are_fixed(kind):
    """They were set and silently ignored by running loader workers."""
    mix = KINDS[kind]()
    for option in {*inspect.signature(type(mix)).parameters} - {"p", "gamma"}:
        with pytest.raises(AttributeError, match=f"^{option} cannot be set. What can: enabled, p"):
            setattr(mix, option, 2)
    with pytest.raises(AttributeError, match=r"^pastee cannot be set"):
        mix.pastee = 0.5
    mix._own_mark = 1


@every_variant
def test_a_batch_of_one_is_left_alone(name):
    samples, labels = images().float()[:1], LABELS[:1]
    mixed, targets = VARIANTS[name]()(samples, labels)
    assert_close(mixed, samples)
    assert_close(targets, nn.functional.one_hot(labels, CLASSES).float())


def test_the_class_is_the_function():
    samples = images().float()
    options = {"gamma": 1.9, "sources": 4, "anchor": "random"}
    ours = ZetaMixup(num_classes=4, generator=seeded(), **options)(samples, LABELS)
    assert_same(zeta_mixup(samples, LABELS, 4, generator=seeded(), **options), ours)
    ours = Mixup(num_classes=4, alpha=0.4, generator=seeded())(samples, LABELS)
    assert_same(mixup(samples, LABELS, 4, alpha=0.4, generator=seeded()), ours)
    # in NumPy out NumPy, also from memory that may not be written
    array = np.broadcast_to(samples.numpy(), samples.shape)
    mixed = mixup(array, LABELS.numpy(), 4, alpha=0.4, generator=seeded())
    assert [type(part) for part in mixed] == [np.ndarray] * 2
    assert_same(map(torch.from_numpy, mixed), ours)
    # the functions alone make as many outputs as one likes
    for mix, draw in ((zeta_mixup, zeta_plan), (mixup, mixup_plan)):
        mixed, targets = mix(samples, LABELS, 4, outputs=9, generator=seeded())
        plan = draw(6, outputs=9, generator=seeded())
        assert_close(mixed, mixed_by_hand(samples, plan))
        assert_close(targets, mixed_by_hand(nn.functional.one_hot(LABELS, 4), plan))
    without = ZetaMix(
        num_classes=4, gamma=2.8, sources=None, keep_variance=False, paste=0, generator=seeded()
    )
    expected = ZetaMixup(num_classes=4, generator=seeded())(samples, LABELS)
    assert_same(without(samples, LABELS), expected)


# γ


def test_gamma_follows_its_schedule_and_can_be_set():
    transform = ZetaMixup(num_classes=4, gamma=sharper)

    def heaviest():
        return transform(torch.randn(4, 3), torch.arange(4))[1].amax(1)

    def weight(gamma):
        return by_hand.weights_from_ranks([1, 2, 3, 4], gamma)[0]

    assert "gamma=sharper" in repr(transform)
    for epoch in (0, 1, 3):
        transform.set_epoch(epoch)
        assert (transform.epoch, transform.gamma) == (epoch, sharper(epoch))
        assert_close(heaviest(), torch.full((4,), weight(sharper(epoch))))
    transform.gamma = 3
    assert "gamma=3.0" in repr(transform)
    assert_close(heaviest(), torch.full((4,), weight(3.0)))
    transform.gamma = (5.0, 6.0)
    assert ((heaviest() > weight(5.0)) & (heaviest() < weight(6.0))).all()
    assert len(heaviest().unique()) == 4
    with pytest.raises(ValueError, match="gamma must be finite and at least 0"):
        transform.gamma = -1.0
    assert transform.gamma == copy.deepcopy(transform).gamma == (5.0, 6.0)


def test_a_bad_epoch_of_a_schedule_changes_nothing():
    transform = ZetaMixup(num_classes=4, gamma=lambda epoch: 2.0 - epoch * 5)
    with pytest.raises(ValueError, match="gamma must be finite and at least 0, got -3"):
        transform.set_epoch(1)
    assert (transform.epoch, transform.gamma) == (0, 2.0)


@pytest.mark.parametrize(("batch", "used"), [(12, 8), (8, 8), (5, 5), (2, 2), (1, 1)])
def test_sources_are_clipped_for_a_partial_batch(batch, used):
    targets = ZetaMixup(num_classes=batch, sources=8)(torch.randn(batch, 3), torch.arange(batch))[1]
    assert ((targets > 0).sum(1) == used).all()
    series = by_hand.weights_from_ranks(list(range(1, used + 1)), 2.8)
    assert_close(targets.sort(descending=True).values[:, :used], torch.tensor([series] * batch))


# warnings, at the line of the caller


def said(action, *arguments):
    """What was warned of, and that it was here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action(*arguments)
    assert {warning.filename for warning in caught} <= {__file__}
    return [str(warning.message) for warning in caught]


POSITIVE = torch.rand(64, 3, 8, 8, generator=seeded())
CENTRED = torch.randn(64, 3, 8, 8, generator=seeded())
CHANNELS_LAST = CENTRED.movedim(1, -1)
# samples, options of ZetaMix, and what the warning says
DOUBTED = {
    "in [0, 1]": (POSITIVE, {}, "not normalised"),
    "dark, in [-1, 1]": (POSITIVE[:, :1] ** 4 * 2 - 1, {}, "not normalised"),
    "mostly blended": (POSITIVE, {"paste": 0.9}, "not normalised"),
    "rules": (POSITIVE, {"rules": (Blend(), OneHot(4))}, "in rules, Blend(mean=...)"),
    "few": (POSITIVE[:3], {}, "not normalised"),
    "channels last": (CHANNELS_LAST, {}, "look like [batch, height, width, channels]"),
    "normalised": (CENTRED, {}, None),
    "normalised, few": (CENTRED[:3], {}, None),
    "almost": (CENTRED + 0.3, {}, None),
    "a mean": (POSITIVE, {"mean": 0.5}, None),
    "a mean in rules": (POSITIVE, {"rules": (Blend(mean=0.5), OneHot(4))}, None),
    "variance not kept": (POSITIVE, {"keep_variance": False}, None),
    "only pasted": (POSITIVE, {"paste": 1.0}, None),
    "points": (POSITIVE.flatten(1), {}, None),
    "channels last, blended": (CHANNELS_LAST, {"paste": 0.0}, None),
}


def compiled(mix):
    torch.compiler.reset()
    return torch.compile(mix, fullgraph=True, backend="eager", dynamic=False)


WAYS = [(name, "eager") for name in DOUBTED]
COMPILED = ("in [0, 1]", "rules", "few", "normalised", "a mean")
WAYS += [pytest.param(name, "compiled", marks=slow) for name in COMPILED]
WAYS += [pytest.param(name, "on a GPU", marks=pytest.mark.gpu) for name in DOUBTED]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_the_first_batch_is_looked_at_once_and_alike_on_every_way(name, way):
    """Compiled code and GPUs never warned."""
    samples, options, message = DOUBTED[name]
    samples = samples.cuda() if way == "on a GPU" else samples
    labels = torch.zeros(len(samples), dtype=torch.long, device=samples.device)
    mix = ZetaMix(**({} if "rules" in options else {"num_classes": 4}), **options)
    call = compiled(mix) if way == "compiled" else mix
    mix.eval()
    assert mix(samples, labels)[0] is samples
    mix.train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(samples, labels)
    texts = [str(warning.message) for warning in caught if "zetamix" not in warning.filename]
    assert [message in text for text in texts] == ([] if message is None else [True])
    assert said(call, samples, labels) == []


@pytest.mark.parametrize("way", [lambda mix: mix, pytest.param(compiled, marks=slow)])
@pytest.mark.parametrize("bad", [CENTRED, POSITIVE * 255])
def test_a_mean_for_samples_outside_of_0_and_1_is_refused_and_nothing_clamped(way, bad):
    """Compiled code and GPUs clamped 68 % of the values of normalised images without a word."""
    labels = torch.zeros(64, dtype=torch.long, device=bad.device)
    with pytest.raises(ValueError, match=r"mean needs samples in \[0, 1\] or of dtype uint8"):
        way(ZetaMix(num_classes=4, mean=0.5))(bad, labels)
    with pytest.raises(ValueError, match="mean needs samples"):
        ZetaMix(num_classes=4, mean=0.5, paste=1.0)(bad, labels)


def test_code_without_a_name_is_warned_as_well():
    """It had no `__name__`, and a warning became a KeyError."""
    names = {"mix": ZetaMix(num_classes=4), "x": POSITIVE, "y": torch.arange(64) % 4}
    with pytest.warns(UserWarning, match="not normalised"):
        exec("mix(x, y)", names)
