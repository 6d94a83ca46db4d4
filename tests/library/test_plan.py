"""Plans: what is drawn, from which generator, with which law, and what they make of samples."""

import copy
import pickle
import re
from contextlib import nullcontext
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import by_hand
import numpy as np
import pytest
import scipy.stats
import torch
from conftest import assert_close
from hypothesis import given
from hypothesis import strategies as st
from transform_kinds import CLASSES, STRIDES, VARIANTS, plain_torch, seeded

from zetamix import MixPlan, ZetaMix, apply_plan, mixup_plan, zeta_plan
from zetamix.rules import OneHot

# a fixed seed makes the p-values fixed numbers: what fails here fails always
LEAST_P_VALUE = 1e-3
DOCS = Path(__file__).parents[2] / "docs"
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LAYOUTS = STRIDES | {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 1 else x,
}
seeds = st.integers(0, 2**32 - 1)
devices = st.sampled_from(["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])


def same(first, second):
    return torch.equal(first.indices, second.indices) and torch.equal(first.weights, second.weights)


# any plan; `make test` tries the same hundred of each, `make fuzz` new ones


@st.composite
def sample_batches(draw, batch):
    """Samples [batch, ...] of any shape, dtype and strides."""
    shape = (batch, *draw(st.lists(st.integers(0, 5), max_size=4)))
    dtype = draw(st.sampled_from([*FLOATS, torch.uint8, torch.int8, torch.int16]))
    samples = torch.randn(shape, generator=seeded(draw(seeds)), dtype=torch.float64)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        samples = (samples * limits.max).round().clamp(limits.min, limits.max)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](samples.to(dtype))


@st.composite
def plans(draw, batch):
    """A plan made by hand: any rows, also twice, and any weights, also negative ones."""
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    generator = seeded(draw(seeds))
    indices = torch.randint(batch, shape, generator=generator)
    weights = torch.rand(shape, generator=generator, dtype=torch.float64) + 1e-3
    weights = weights / weights.sum(1, keepdim=True) * draw(st.sampled_from([1.0, 1.0, 2.0, -1.0]))
    return MixPlan(indices, weights.to(draw(st.sampled_from(FLOATS[2:]))), batch)


@pytest.mark.fuzz
@given(st.integers(1, 24), devices, st.booleans(), st.data())
def test_a_plan_is_applied_as_its_matrix_says(batch, device, plain, data):
    samples = data.draw(sample_batches(batch)).to(device)
    plan = data.draw(plans(batch)).to(device)
    matrix = replace(plan, weights=plan.weights.double()).matrix()
    exact = matrix @ samples.double().reshape(batch, samples[0].numel())
    exact, before = exact.view(plan.outputs, *samples.shape[1:]), samples.clone()

    def check(mixed):
        if mixed.dtype.is_floating_point:
            assert_close(mixed, exact)
            return
        # integers are rounded to the nearest, and do not wrap round
        limits = torch.iinfo(mixed.dtype)
        error = mixed.double() - exact.clamp(limits.min, limits.max)
        assert (error.abs() <= 0.51).all()

    with plain_torch() if plain else nullcontext():
        mixed = apply_plan(samples, plan)
    check(mixed)
    assert (mixed.dtype, mixed.device) == (samples.dtype, samples.device)
    assert torch.equal(samples, before)
    assert mixed.data_ptr() != samples.data_ptr() or not samples.numel()
    if device == "cpu" and samples.dtype != torch.bfloat16:
        # the same numbers in memory that runs backwards, and may not be written
        array = samples.flip(0).numpy()[::-1]
        array.flags.writeable = data.draw(st.booleans())
        check(torch.from_numpy(apply_plan(array, plan)))


@pytest.mark.fuzz
@given(st.integers(1, 300), seeds, st.floats(0, 8), devices, st.data())
def test_plans_are_orders_of_distinct_rows_by_the_p_series(batch, seed, gamma, device, data):
    own = data.draw(st.booleans())
    options = {
        "sources": data.draw(st.none() | st.integers(2, batch)) if batch > 1 else None,
        "outputs": data.draw(st.integers(1, 40)),
        "anchor": "self" if own else "random",
        "stream": data.draw(st.none() | st.integers(0, 2**20)),
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
    assert_close(plan.weights[0].cpu(), torch.tensor(series, dtype=torch.float64))
    assert (plan.weights == plan.weights[0]).all()
    if own:
        assert torch.equal(plan.indices[:, 0].cpu(), torch.arange(plan.outputs) % batch)
    assert same(again, plan)


# gamma


@pytest.mark.parametrize("sources", [None, 3])
def test_gamma_as_a_number_or_a_tensor(sources):
    gammas = [0.0, 1.0, 2.5, 40.0]
    ranks = list(range(1, (sources or 4) + 1))
    expected = [by_hand.weights_from_ranks(ranks, gamma) for gamma in gammas]
    each = torch.tensor(gammas, dtype=torch.float64)
    options = {"sources": sources, "dtype": torch.float64}
    rows = torch.tensor(expected, dtype=torch.float64)
    assert_close(zeta_plan(4, each, **options).weights, rows)
    for gamma, row in zip(gammas, rows, strict=True):
        number = zeta_plan(4, gamma, generator=seeded(), **options)
        tensor = zeta_plan(4, torch.tensor(gamma).double(), generator=seeded(), **options)
        assert_close(number.weights, row.expand(4, len(ranks)))
        assert same(number, tensor)
        assert_close(zeta_plan(4, (gamma, gamma), **options).weights, number.weights)


def test_gamma_range_is_uniform(generator):
    plan = zeta_plan(2, (1.0, 3.0), outputs=20_000, generator=generator, dtype=torch.float64)
    gammas = torch.log2(plan.weights[:, 0] / plan.weights[:, 1])
    assert scipy.stats.kstest(gammas.numpy(), "uniform", args=(1, 2)).pvalue > LEAST_P_VALUE


def test_mixup_pairs_by_a_permutation(generator):
    shifts = torch.zeros(10, dtype=torch.int64)
    for _ in range(900):
        own, partner = mixup_plan(10, generator=generator).indices.unbind(1)
        assert torch.equal(own, torch.arange(10))
        assert partner.sort().values.tolist() == list(range(10))
        steps = ((own - partner) % 10).unique()
        shifts[steps.item()] += 1
    assert shifts[0] == 0
    assert scipy.stats.chisquare(shifts[1:]).pvalue > LEAST_P_VALUE
    own, partner = mixup_plan(5, outputs=200).indices.unbind(1)
    assert torch.equal(own, torch.arange(200) % 5)
    assert (own != partner).all()


def test_mixup_per_batch_draws_one_lam():
    assert mixup_plan(50, per="batch").weights.unique(dim=0).shape[0] == 1
    assert mixup_plan(50, per="sample").weights.unique(dim=0).shape[0] == 50


# the order is uniform over all permutations


SOME_ORDERS = [(6, 5), (5, 5), (4, 4), (5, 4), (4, 3), (5, 2), (48, 3)]


@pytest.mark.parametrize("anchor", ["self", "random"])
@pytest.mark.parametrize(("batch", "sources"), SOME_ORDERS)
def test_order_is_uniform(batch, sources, anchor, generator):
    """Every order is as frequent as any; with own anchors every row begins its equal share."""
    outputs = 10 * 48 * 47 * 46 if batch == 48 else 60_000
    plan = zeta_plan(batch, sources=sources, outputs=outputs, anchor=anchor, generator=generator)
    places = batch ** torch.arange(sources)
    found = torch.bincount(plan.indices @ places, minlength=batch**sources)
    counts = found[torch.tensor(list(permutations(range(batch), sources))) @ places]
    assert counts.sum() == outputs
    assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("anchor", ["self", "random"])
def test_order_of_a_large_batch_is_uniform(anchor, generator):
    batch = 256
    plan = zeta_plan(batch, outputs=40 * batch, anchor=anchor, generator=generator)
    for rank in (1, 2, batch - 1):
        counts = torch.bincount(plan.indices[:, rank], minlength=batch)
        assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE
    # the next source says nothing about the one after it
    steps = (plan.indices[:, 2] - plan.indices[:, 1]) % batch
    assert scipy.stats.chisquare(torch.bincount(steps, minlength=batch)[1:]).pvalue > LEAST_P_VALUE


def test_outputs_of_one_plan_are_ordered_independently(generator):
    plan = zeta_plan(3, outputs=30_000, generator=generator)
    # with own anchors an output has two orders; those of consecutive outputs must not be related
    flips = (plan.indices[:, 1] - plan.indices[:, 0]) % 3 - 1
    pairs = torch.bincount(2 * flips[::2] + flips[1::2], minlength=4)
    assert scipy.stats.chisquare(pairs).pvalue > LEAST_P_VALUE


# the law of λ


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 4.0])
@pytest.mark.parametrize("stream", [0, 5])
def test_lam_follows_the_beta_law(alpha, stream, generator):
    plan = mixup_plan(
        2, alpha, outputs=20_000, generator=generator, stream=stream, dtype=torch.float64
    )
    lam = plan.weights[:, 0]
    # by halves: for α = 0.05 one λ in twelve lies so close to 1 that no float64 can tell
    low = lam[lam < 0.5]
    assert scipy.stats.binomtest(len(low), 20_000, 0.5).pvalue > LEAST_P_VALUE
    law = scipy.stats.beta(alpha, alpha)
    assert scipy.stats.kstest(low.numpy(), lambda x: 2 * law.cdf(x)).pvalue > LEAST_P_VALUE
    high = 1 - lam[(lam >= 0.5) & (lam < 1 - 1e-9)]
    tail = law.cdf(1e-9)
    span = law.cdf(0.5) - tail
    fitted = scipy.stats.kstest(high.numpy(), lambda x: (law.cdf(x) - tail) / span)
    assert fitted.pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1e3])
def test_lam_of_extreme_alpha_is_a_weight(alpha):
    weights = mixup_plan(2, alpha, outputs=10_000).weights
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert_close(weights.sum(1), torch.ones(10_000))
    # Beta(α, α) has mean 1/2 and variance 1/(4(2α + 1))
    assert weights[:, 0].mean() == pytest.approx(0.5, abs=0.02)
    assert weights[:, 0].var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


# generators and streams


@pytest.mark.parametrize("name", VARIANTS)
def test_streams_of_one_generator_differ_and_take_the_same_amount_of_it(name):
    """Ranks begin with the state that one of them saved: another amount would set them apart."""
    plans, states = [], []
    for stream in (0, 1, 2, 5, 1):
        mix = VARIANTS[name](p=0.9, generator=seeded(3), stream=stream)
        plans.append(mix.make_plan(64, size=(8, 8)))
        states.append(mix.generator.get_state())
    assert all(torch.equal(state, states[0]) for state in states)
    assert same(plans.pop(), plans[1])
    assert not any(same(*pair) for pair in permutations(plans, 2))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_streams_are_not_correlated(alpha):
    options = {"outputs": 30_000, "dtype": torch.float64}
    lams, orders = [], []
    for stream in (0, 1):
        plan = mixup_plan(2, alpha, generator=seeded(3), stream=stream, **options)
        lams.append(plan.weights[:, 0])
        plan = zeta_plan(3, alpha, generator=seeded(3), stream=stream, **options)
        orders.append(plan.indices[:, 1])
    assert scipy.stats.pearsonr(*lams).pvalue > LEAST_P_VALUE
    agree = (orders[0] == orders[1]).sum().item()
    assert scipy.stats.binomtest(agree, 30_000, 0.5).pvalue > LEAST_P_VALUE


# what a plan tells


def test_rows_that_are_named_twice_count_twice_and_weights_say_who_dominates():
    plan = MixPlan(torch.tensor([[0, 0, 1]]), torch.tensor([[0.5, 0.25, 0.25]]), 2)
    assert plan.matrix().tolist() == [[0.75, 0.25]]
    plan = MixPlan(torch.tensor([[2, 0], [1, 2]]), torch.tensor([[0.25, 0.75], [0.5, 0.5]]), 3)
    assert plan.anchors()[0] == 0
    assert plan.dominates().tolist() == [True, False]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_plan_is_copied_moved_and_replayed_exactly(name):
    samples, labels = torch.randn(8, 3, 9, 7), torch.arange(8) % CLASSES
    mixed, targets = VARIANTS[name](p=0.8, generator=seeded())(samples, labels)
    plan = VARIANTS[name](p=0.8, generator=seeded()).make_plan(8, size=(9, 7))
    copies = [plan.to("cpu"), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))]
    for again in (plan, *copies):
        assert same(again, plan)
        assert repr(again) == repr(plan)
        assert_close(apply_plan(samples, again), mixed)
        assert_close(OneHot(CLASSES).mix(labels, again), targets)
    assert plan.to("meta").device.type == zeta_plan(4, device="meta").device.type == "meta"
    with pytest.raises(AttributeError):
        plan.batch_size = 4


def test_a_plan_is_shown_in_a_line():
    plan = zeta_plan(64, sources=8)
    assert repr(plan) == "MixPlan(64 outputs of 8 sources each, batch_size=64, torch.float32, cpu)"
    assert repr(ZetaMix(num_classes=3).make_plan(64, size=(32, 48))) == (
        "MixPlan(64 outputs of 2 sources each, boxes in images of 32 × 48, variance kept, "
        "batch_size=64, torch.float32, cpu)"
    )


def recipe(name):
    """The function of this name that applies a plan to arrays, as the documentation has it."""
    page = (DOCS / "how-to" / "numpy-and-jax.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    namespace = {}
    exec(next(block for block in blocks if f"def {name}(" in block), namespace)
    return namespace[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_plan_as_numpy_arrays_is_applied_by_the_recipes(name):
    images = torch.randn(6, 3, 8, 5, generator=seeded(1))
    plan = VARIANTS[name](generator=seeded()).make_plan(6, size=(8, 5))
    mixed = recipe("blend" if plan.boxes is None else "paste")(images.numpy(), plan)
    assert (type(mixed), mixed.dtype) == (np.ndarray, np.float32)
    assert_close(torch.from_numpy(mixed), apply_plan(images, plan))
    targets = recipe("average")(np.eye(6, dtype=np.float32), plan)
    assert_close(torch.from_numpy(targets), plan.matrix())


def test_numpy_arrays_of_a_plan_are_copies():
    plan = zeta_plan(6, sources=3)
    _, weights, boxes, scale = plan.numpy()
    assert (boxes, scale) == (None, None)
    # the weights of a fixed γ are one row, expanded: a write must reach neither them nor the plan
    weights[0, 0] = 7
    assert (weights[1:, 0] != 7).all()
    assert (plan.weights != 7).all()
    plan = ZetaMix(num_classes=2).make_plan(16, size=(8, 8), dtype=torch.bfloat16)
    assert [array.dtype.name for array in plan.numpy()] == ["int64", "float32", "int64", "float32"]
