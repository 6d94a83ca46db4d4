"""The mathematics of ζ-mixup as properties of random plans and batches."""

import by_hand
import torch
from conftest import assert_close
from hypothesis import given
from hypothesis import strategies as st
from transform_kinds import mixed_by_hand, seeded

from zetamix import GAMMA_MIN, MixPlan, apply_plan, describe_gamma, mixup_plan, zeta_plan
from zetamix.gamma import dominance_threshold, gamma_from_lam

gammas = st.floats(0, 12, allow_subnormal=False)
seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple)


@st.composite
def zeta_plans(draw, gamma=gammas):
    """(γ, float64 plan) for any batch, sources, outputs and anchor; both ways of ordering."""
    batch = draw(st.integers(1, 40))
    value = draw(gamma)
    plan = zeta_plan(
        batch,
        value,
        sources=draw(st.none() | st.integers(2, batch)) if batch > 1 else None,
        outputs=draw(st.none() | st.integers(1, 50)),
        anchor=draw(st.sampled_from(["self", "random"])),
        generator=seeded(draw(seeds)),
        dtype=torch.float64,
    )
    return value, plan


def random_batch(batch, shape, seed):
    return torch.randn(batch, *shape, dtype=torch.float64, generator=seeded(seed))


@given(zeta_plans(), shapes, seeds)
def test_each_row_is_the_p_series_and_mixing_agrees_with_the_loop(drawn, shape, seed):
    gamma, plan = drawn
    series = by_hand.weights_from_ranks(list(range(1, plan.sources + 1)), gamma)
    assert_close(plan.weights, torch.tensor([series] * plan.outputs, dtype=torch.float64))
    assert_close(plan.matrix().sum(1), torch.ones(plan.outputs))
    samples = random_batch(plan.batch_size, shape, seed)
    mixed = apply_plan(samples, plan)
    assert_close(mixed, mixed_by_hand(samples, plan))
    # an output stays within the batch
    assert (mixed <= samples.amax(0) + 1e-12).all()
    assert (mixed >= samples.amin(0) - 1e-12).all()


@given(zeta_plans(gamma=st.floats(GAMMA_MIN, 12)))
def test_theorem_1_one_sample_dominates_from_gamma_min_on(drawn):
    _, plan = drawn
    assert plan.dominates().all()
    assert torch.equal(plan.anchors(), plan.indices[:, 0])


@given(st.integers(3, 60), st.floats(1e-6, 1))
def test_theorem_1_is_sharp_for_a_finite_number_of_sources(sources, step):
    threshold = dominance_threshold(sources)
    below = max(threshold - step, 0.0)
    assert zeta_plan(sources, threshold + step, dtype=torch.float64).dominates().all()
    assert not zeta_plan(sources, below, dtype=torch.float64).dominates().any()
    assert describe_gamma(threshold + step, sources).dominates
    assert not describe_gamma(below, sources).dominates


@given(st.integers(2, 20), st.floats(0.1, 8), shapes, seeds)
def test_theorem_2_mixup_is_two_source_zeta_mixup(batch, alpha, shape, seed):
    generator = seeded(seed)
    mixup = mixup_plan(batch, alpha, generator=generator, dtype=torch.float64)
    lam = mixup.weights[:, 0].clamp(1e-9, 1 - 1e-9)
    samples = random_batch(batch, shape, seed)
    own, partner = samples[mixup.indices[:, 0]], samples[mixup.indices[:, 1]]
    share = lam.view(-1, *[1] * len(shape))
    blended = share * own + (1 - share) * partner

    # γ is not negative where the heavier of the two comes first
    gamma = gamma_from_lam(torch.maximum(lam, 1 - lam))
    zeta = zeta_plan(batch, gamma, sources=2, generator=generator, dtype=torch.float64)
    heavier_first = torch.where((lam < 0.5)[:, None], mixup.indices.flip(1), mixup.indices)
    as_zeta = MixPlan(heavier_first, zeta.weights, batch)
    torch.testing.assert_close(apply_plan(samples, as_zeta), blended, rtol=1e-9, atol=1e-9)


@given(st.integers(1, 40), st.integers(1, 60), shapes, seeds)
def test_a_large_gamma_returns_the_input_and_zero_the_mean(batch, outputs, shape, seed):
    samples = random_batch(batch, shape, seed)
    plan = zeta_plan(batch, 2000.0, outputs=outputs)
    assert torch.equal(apply_plan(samples, plan), samples[torch.arange(outputs) % batch])
    plan = zeta_plan(batch, 0.0, dtype=torch.float64)
    assert_close(apply_plan(samples, plan), samples.mean(0).expand(batch, *shape))
