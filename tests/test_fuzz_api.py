"""The public API with random shapes, dtypes, strides, devices, generators and plans.

`make test` tries a hundred examples of each property, the same ones every time; `make fuzz` goes on
with new ones for as long as it is told.
"""

import pytest
import torch
from conftest import assert_close
from fuzz import count
from hypothesis import given
from hypothesis import strategies as st

from zetamix import MixPlan, apply_plan

pytestmark = pytest.mark.fuzz

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
SAMPLE_DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.uint8, torch.int8, torch.int16,
]  # fmt: skip
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
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, generator=generator).to(dtype)


@st.composite
def sample_batches(draw, batch, shapes=feature_shapes):
    """Samples [batch, ...] of any dtype and any strides."""
    shape, dtype = draw(shapes), draw(st.sampled_from(SAMPLE_DTYPES))
    samples = random_values((batch, *shape), dtype, draw(seeds))
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](samples)


@st.composite
def any_plan(draw, batch):
    """A plan made by hand: any rows, also twice, and weights of which only the sum is 1."""
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(draw(seeds))
    indices = torch.randint(batch, shape, generator=generator)
    weights = torch.rand(shape, generator=generator, dtype=torch.float64) + 1e-3
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return MixPlan(indices, (weights / weights.sum(1, keepdim=True)).to(dtype), batch)


def mix_in_float64(samples, plan):
    """The reference: the plan's matrix times the samples; integers are rounded and clamped."""
    rows = samples.detach().cpu().double().reshape(plan.batch_size, samples[0].numel())
    indices, weights = plan.indices.cpu(), plan.weights.cpu().double()
    matrix = torch.zeros(plan.outputs, plan.batch_size, dtype=torch.float64)
    mixed = matrix.scatter_add_(1, indices, weights) @ rows
    if not samples.dtype.is_floating_point:
        info = torch.iinfo(samples.dtype)
        mixed = mixed.round().clamp(info.min, info.max)
    return mixed.view(plan.outputs, *samples.shape[1:])


@given(st.integers(1, 24), devices, st.data())
def test_a_plan_is_applied_as_the_matrix_product_says(batch, device, data):
    samples = data.draw(sample_batches(batch)).to(device)
    plan = data.draw(any_plan(batch)).to(device)
    before = samples.clone()
    mixed = apply_plan(samples, plan)
    assert_close(mixed.cpu(), mix_in_float64(samples, plan))
    assert (mixed.dtype, mixed.device) == (samples.dtype, samples.device)
    assert torch.equal(samples, before)
    count("API calls")
