"""Transforms, plans and `apply_plan` with random shapes, dtypes, strides, labels and options.

`make test` tries a hundred examples of each property, the same ones every time; `make fuzz` goes on
with new ones for as long as it is told.
"""

from contextlib import nullcontext
from dataclasses import replace

import by_hand
import pytest
import torch
from conftest import assert_close
from fuzz import count
from hypothesis import given
from hypothesis import strategies as st
from transform_kinds import VARIANTS, mixed_by_hand, normalised_only, plain_torch, seeded, size_of

from zetamix import MixPlan, apply_plan, zeta_plan

# samples that transforms doubt are tried as well
pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

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
streams = st.none() | st.integers(0, 2**20)
devices = st.sampled_from(DEVICES)
feature_shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
image_shapes = st.tuples(st.integers(1, 3), st.integers(2, 5), st.integers(2, 5))


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
    expected, before = mix_in_float64(samples, plan), samples.clone()
    with plain_torch() if plain else nullcontext():
        mixed = apply_plan(samples, plan)
    assert_close(mixed.cpu(), expected)
    assert (mixed.dtype, mixed.device) == (samples.dtype, samples.device)
    assert torch.equal(samples, before)
    assert mixed.data_ptr() != samples.data_ptr() or not samples.numel()
    if device == "cpu" and samples.dtype != torch.bfloat16:
        # the same numbers in memory that runs backwards, and may not be written
        array = samples.flip(0).numpy()[::-1]
        array.flags.writeable = data.draw(st.booleans())
        assert_close(torch.from_numpy(apply_plan(array, plan)), expected)
    count("API calls")


# labels of every kind, and the targets that a matrix of weights makes of them

LABEL_DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
]  # fmt: skip


@st.composite
def labels_of(draw, batch, size):
    """(labels, num_classes, ignore_index, one-hot or soft labels in float64); masks of a size."""
    classes = draw(st.integers(1, 7))
    if draw(st.booleans()):
        soft = random_values((batch, classes), torch.float64, draw(seeds)).abs()
        dtype = draw(st.sampled_from([torch.float16, torch.float32, torch.float64, torch.bool]))
        soft = soft > 0.5 if dtype == torch.bool else soft.to(dtype)
        return soft, draw(st.sampled_from([classes, None])), None, soft.double()
    shape = draw(st.sampled_from([(), (1,), size, (1, *size), (2, *size), (1, 2, *size)]))
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


@given(st.sampled_from(sorted(VARIANTS)), st.integers(1, 12), devices, seeds, st.data())
def test_transforms_mix_samples_and_labels_by_the_plan_of_their_seed(
    name, batch, device, seed, data
):
    shapes = image_shapes if VARIANTS[name]().needs_images else image_shapes | feature_shapes
    samples = data.draw(sample_batches(batch, shapes)).to(device)
    size = size_of(samples, VARIANTS[name]())
    labels, classes, ignored, soft = data.draw(labels_of(batch, size or (3, 4)))
    options = {"p": data.draw(st.floats(0.01, 1)), "stream": data.draw(streams)}
    options |= {} if samples.is_floating_point() else normalised_only(name)
    mix, twin = (
        VARIANTS[name](
            num_classes=classes,
            ignore_index=ignored,
            generator=torch.Generator(device).manual_seed(seed),
            **options,
        )
        for _ in range(2)
    )
    default = torch.get_rng_state()
    mixed, targets = mix(samples, labels.to(device))
    assert torch.equal(torch.get_rng_state(), default)
    double = torch.float64 in (samples.dtype, labels.dtype)
    dtype = torch.float64 if double else torch.float32
    plan = twin.make_plan(batch, size=size, device=device, dtype=dtype)
    assert_close(mixed, mixed_by_hand(samples, plan))
    assert_close(targets, mixed_by_hand(soft, replace(plan, keep_variance=False)))
    assert targets.dtype == (torch.float64 if labels.dtype == torch.float64 else torch.float32)
    count("API calls", 2)


@given(st.integers(1, 300), seeds, st.floats(0, 8), devices, st.data())
def test_plans_are_orders_of_distinct_rows_by_the_p_series(batch, seed, gamma, device, data):
    own = data.draw(st.booleans())
    options = {
        "sources": data.draw(st.none() | st.integers(2, batch)) if batch > 1 else None,
        "outputs": data.draw(st.integers(1, 40)),
        "anchor": "self" if own else "random",
        "stream": data.draw(streams),
        "dtype": data.draw(st.sampled_from(FLOATS)),
    }
    plan, again = (
        zeta_plan(batch, gamma, generator=torch.Generator(device).manual_seed(seed), **options)
        for _ in range(2)
    )
    rows = plan.indices.sort(1).values
    assert (rows[:, 1:] > rows[:, :-1]).all()
    assert (rows[:, 0] >= 0).all()
    assert (rows[:, -1] < batch).all()
    series = by_hand.weights_from_ranks(range(1, plan.sources + 1), gamma)
    assert plan.weights.dtype == options["dtype"]
    assert_close(
        plan.weights.cpu(), torch.tensor(series, dtype=torch.float64).expand(plan.outputs, -1)
    )
    if own:
        assert torch.equal(plan.indices[:, 0].cpu(), torch.arange(plan.outputs) % batch)
    assert torch.equal(again.indices, plan.indices)
    assert torch.equal(again.weights, plan.weights)
    count("API calls", 2)
