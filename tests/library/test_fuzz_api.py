"""Plans and `apply_plan` with random shapes, dtypes, strides, devices and options.

`make test` tries a hundred examples of each property, the same ones every time; `make fuzz` goes on
with new ones for as long as it is told.
"""

from contextlib import nullcontext

import by_hand
import pytest
import torch
from conftest import assert_close
from fuzz import count
from hypothesis import given
from hypothesis import strategies as st
from transform_kinds import STRIDES, plain_torch, seeded

from zetamix import MixPlan, apply_plan, zeta_plan

pytestmark = pytest.mark.fuzz

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SAMPLE_DTYPES = [*FLOATS, torch.uint8, torch.int8, torch.int16]
WEIGHT_DTYPES = [torch.float32, torch.float64]
LAYOUTS = STRIDES | {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 1 else x,
}

seeds = st.integers(0, 2**32 - 1)
streams = st.none() | st.integers(0, 2**20)
devices = st.sampled_from(DEVICES)
feature_shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def random_values(shape, dtype, seed):
    if dtype.is_floating_point:
        return torch.randn(shape, generator=seeded(seed), dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, generator=seeded(seed)).to(dtype)


@st.composite
def sample_batches(draw, batch):
    """Samples [batch, ...] of any dtype and any strides."""
    shape, dtype = draw(feature_shapes), draw(st.sampled_from(SAMPLE_DTYPES))
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
