"""The public API with random shapes, dtypes, strides, devices, generators and plans.

`make test` tries a hundred examples of each property, the same ones every time; `make fuzz` goes on
with new ones for as long as it is told.
"""

from contextlib import nullcontext

import pytest
import torch
from conftest import assert_close
from fuzz import count
from hypothesis import given
from hypothesis import strategies as st
from transform_kinds import plain_torch, seeded

from zetamix import (
    MixPlan,
    Mixup,
    ZetaMixup,
    apply_plan,
    mixup,
    mixup_plan,
    zeta_mixup,
    zeta_plan,
)
from zetamix.rules import Blend, FromAnchor, OneHot

# any γ is tried, also those below the threshold
pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("ignore:gamma=.* is below")]

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SAMPLE_DTYPES = [*FLOATS, torch.uint8, torch.int8, torch.int16]
WEIGHT_DTYPES = [torch.float32, torch.float64]
LAYOUTS = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 1 else x,
    "every second row": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
    "every second feature": lambda x: torch.stack([x, x], -1)[..., 0],
    "batch last in memory": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "behind an offset": lambda x: torch.cat([x[:1], x])[1:],
    "one row for all": lambda x: x[:1].expand(x.shape),
}

seeds = st.integers(0, 2**32 - 1)
devices = st.sampled_from(DEVICES)
feature_shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def random_values(shape, dtype, seed):
    if dtype.is_floating_point:
        return torch.randn(shape, generator=seeded(seed), dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, generator=seeded(seed)).to(dtype)


@st.composite
def sample_batches(draw, batch, shapes=feature_shapes):
    """Samples [batch, ...] of any dtype and any strides."""
    shape, dtype = draw(shapes), draw(st.sampled_from(SAMPLE_DTYPES))
    samples = random_values((batch, *shape), dtype, draw(seeds))
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](samples)


@st.composite
def any_plan(draw, batch):
    """A plan made by hand: any rows, also twice, and any weights, also negative ones."""
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    generator = seeded(draw(seeds))
    indices = torch.randint(batch, shape, generator=generator)
    weights = torch.rand(shape, generator=generator, dtype=torch.float64) + 1e-3
    weights = weights / weights.sum(1, keepdim=True) * draw(st.sampled_from([1.0, 1.0, 2.0, -1.0]))
    return MixPlan(indices, weights.to(draw(st.sampled_from(WEIGHT_DTYPES))), batch)


def mix_in_float64(samples, plan):
    """The reference: the plan's matrix times the samples; integers are rounded and clamped."""
    rows = samples.detach().cpu().double().reshape(plan.batch_size, samples[0].numel())
    zeros = torch.zeros(plan.outputs, plan.batch_size, dtype=torch.float64)
    mixed = zeros.scatter_add_(1, plan.indices.cpu(), plan.weights.cpu().double()) @ rows
    if not samples.dtype.is_floating_point:
        info = torch.iinfo(samples.dtype)
        mixed = mixed.round().clamp(info.min, info.max)
    return mixed.view(plan.outputs, *samples.shape[1:])


@given(st.integers(1, 24), devices, st.booleans(), st.data())
def test_a_plan_is_applied_as_the_matrix_product_says(batch, device, plain, data):
    samples = data.draw(sample_batches(batch)).to(device)
    plan = data.draw(any_plan(batch)).to(device)
    before = samples.clone()
    with plain_torch() if plain else nullcontext():
        mixed = apply_plan(samples, plan)
    assert_close(mixed.cpu(), mix_in_float64(samples, plan))
    assert (mixed.dtype, mixed.device) == (samples.dtype, samples.device)
    assert torch.equal(samples, before)
    assert mixed.data_ptr() != samples.data_ptr() or not samples.numel()
    count("API calls")


@given(st.integers(1, 24), st.data())
def test_numpy_arrays_are_mixed_like_tensors(batch, data):
    samples = data.draw(sample_batches(batch).filter(lambda x: x.dtype != torch.bfloat16))
    plan = data.draw(any_plan(batch))
    array = samples.numpy()[:: data.draw(st.sampled_from([1, -1]))]
    array.flags.writeable = data.draw(st.booleans())
    mixed = apply_plan(array, plan)
    assert mixed.dtype == array.dtype
    assert_close(torch.from_numpy(mixed), mix_in_float64(torch.from_numpy(array.copy()), plan))
    count("API calls")


# labels of every kind, and the targets that a matrix of weights makes of them

LABEL_DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
]  # fmt: skip
LABEL_SHAPES = [(), (1,), (3, 4), (1, 3, 4), (2, 3, 4), (1, 2, 3, 4)]


@st.composite
def labels_of(draw, batch):
    """(labels, num_classes, ignore_index, one-hot or soft labels in float64)."""
    classes = draw(st.integers(1, 7))
    if draw(st.booleans()):
        soft = random_values((batch, classes), torch.float64, draw(seeds)).abs()
        dtype = draw(st.sampled_from([torch.float16, torch.float32, torch.float64, torch.bool]))
        soft = soft > 0.5 if dtype == torch.bool else soft.to(dtype)
        return soft, draw(st.sampled_from([classes, None])), None, soft.double()
    shape = draw(st.sampled_from(LABEL_SHAPES))
    generator = seeded(draw(seeds))
    labels = torch.randint(classes, (batch, *shape), generator=generator)
    flat = labels.squeeze(1) if shape[:1] == (1,) else labels
    hot = torch.nn.functional.one_hot(flat, classes).movedim(-1, 1).double()
    ignored = draw(st.none() | st.sampled_from([-1, 100, 0]))
    if ignored is not None:
        holes = torch.rand(labels.shape, generator=generator) < 0.3
        labels = labels.masked_fill(holes, ignored)
        gone = labels == ignored
        hot = hot * ~(gone.squeeze(1) if shape[:1] == (1,) else gone).unsqueeze(1)
    dtype = draw(st.sampled_from(LABEL_DTYPES))
    if ignored == -1 and not dtype.is_signed:
        dtype = torch.int64
    return labels.to(dtype), classes, ignored, hot


gammas = st.floats(0, 8) | st.tuples(st.floats(0, 3), st.floats(3, 8))
streams = st.none() | st.integers(0, 2**20)


@given(st.integers(1, 40), devices, seeds, st.booleans(), st.data())
def test_functions_mix_samples_and_labels_by_the_plan_of_their_seed(
    batch, device, seed, is_zeta, data
):
    samples = data.draw(sample_batches(batch)).to(device)
    labels, classes, ignored, soft = data.draw(labels_of(batch))
    options = {"outputs": data.draw(st.none() | st.integers(1, 50)), "stream": data.draw(streams)}
    if is_zeta:
        options["gamma"] = data.draw(gammas)
        options["anchor"] = data.draw(st.sampled_from(["self", "random"]))
        options["sources"] = data.draw(st.none() | st.integers(2, batch)) if batch > 1 else None
    else:
        options["alpha"] = data.draw(st.sampled_from([0.05, 0.4, 1.0, 3.0]))
        options["per"] = data.draw(st.sampled_from(["sample", "batch"]))
    function, draw_plan = (zeta_mixup, zeta_plan) if is_zeta else (mixup, mixup_plan)
    default = torch.get_rng_state()
    first, second = (torch.Generator(device).manual_seed(seed) for _ in range(2))
    mixed, targets = function(
        samples, labels.to(device), classes, ignore_index=ignored, generator=first, **options
    )
    assert torch.equal(torch.get_rng_state(), default)
    double = torch.float64 in (samples.dtype, labels.dtype)
    dtype = torch.float64 if double else torch.float32
    plan = draw_plan(batch, generator=second, dtype=dtype, **options)
    assert_close(mixed.cpu(), mix_in_float64(samples, plan))
    assert_close(targets.cpu(), mix_in_float64(soft, plan))
    assert targets.dtype == (torch.float64 if labels.dtype == torch.float64 else torch.float32)
    count("API calls", 2)


@given(st.integers(2, 24), seeds, st.floats(0, 1), st.booleans(), st.data())
def test_transforms_mix_every_entry_of_a_nest_by_one_plan(batch, seed, p, enabled, data):
    classes = data.draw(st.integers(1, 7))
    options = {"p": p}
    make = data.draw(st.sampled_from([ZetaMixup, Mixup]))
    if make is ZetaMixup:
        options["anchor"] = data.draw(st.sampled_from(["self", "random"]))
    entries = data.draw(st.lists(sample_batches(batch), min_size=1, max_size=3))
    given_batch = {
        "label": torch.randint(classes, (batch,), generator=seeded(seed)),
        "inputs": tuple(entries),
        "names": [str(row) for row in range(batch)],
    }
    described = {
        "names": FromAnchor(),
        "inputs": tuple(Blend() for _ in entries),
        "label": OneHot(classes),
    }
    mix, twin = (make(rules=described, generator=seeded(seed), **options) for _ in range(2))
    mix.enabled = twin.enabled = enabled
    mixed = mix(given_batch)
    double = any(entry.dtype == torch.float64 for entry in entries)
    plan = twin.make_plan(batch, dtype=torch.float64 if double else torch.float32)
    for entry, result in zip(entries, mixed["inputs"], strict=True):
        assert result.dtype == entry.dtype
        assert_close(result, mix_in_float64(entry, plan))
    hot = torch.nn.functional.one_hot(given_batch["label"], classes)
    assert_close(mixed["label"], mix_in_float64(hot.double(), plan))
    assert mixed["names"] == [str(row) for row in plan.anchors().tolist()]
    count("API calls", 2)


@given(st.integers(1, 300), seeds, gammas, devices, st.data())
def test_plans_are_orders_of_distinct_rows(batch, seed, gamma, device, data):
    own = data.draw(st.booleans())
    options = {
        "sources": data.draw(st.none() | st.integers(2, batch)) if batch > 1 else None,
        "outputs": data.draw(st.integers(1, 40)),
        "anchor": "self" if own else "random",
        "stream": data.draw(streams),
    }
    plan, again = (
        zeta_plan(batch, gamma, generator=torch.Generator(device).manual_seed(seed), **options)
        for _ in range(2)
    )
    rows = plan.indices.sort(1).values
    assert (rows[:, 1:] > rows[:, :-1]).all()
    assert (rows[:, 0] >= 0).all()
    assert (rows[:, -1] < batch).all()
    assert_close(plan.weights.sum(1).cpu(), torch.ones(plan.outputs))
    if own:
        assert torch.equal(plan.indices[:, 0].cpu(), torch.arange(plan.outputs) % batch)
    assert torch.equal(again.indices, plan.indices)
    assert torch.equal(again.weights, plan.weights)
    count("API calls", 2)
