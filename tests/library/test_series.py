"""The p-series, its two theorems as numbers, and γ in words."""

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zetamix import zeta_plan
from zetamix.gamma import (
    GAMMA_MIN,
    describe_gamma,
    dominance_threshold,
    gamma_from_lam,
    lam_from_gamma,
)

# γ = log₂(λ/(1−λ)) is negative below one half: that of the swapped pair
LAMS = [0.2, 0.5, 0.500001, 0.6, 0.75, 0.8, 0.99, 1 - 1e-9]


def harmonic(gamma, sources):
    """Σ_{j=1..sources} j^-γ to the working precision of mpmath."""
    return mpmath.fsum(mpmath.mpf(j) ** -gamma for j in range(1, sources + 1))


def test_gamma_min_is_the_root_of_zeta_equals_two():
    with mpmath.workdps(40):
        root = mpmath.findroot(lambda s: mpmath.zeta(s) - 2, 1.7)
        assert float(root) == GAMMA_MIN


@pytest.mark.parametrize("sources", [3, 4, 8, 32, 128, 1000, 10_000])
def test_finite_threshold_against_mpmath(sources):
    with mpmath.workdps(40):
        root = mpmath.findroot(lambda s: harmonic(s, sources) - 2, (0.1, 1.8), solver="anderson")
        assert dominance_threshold(sources) == pytest.approx(float(root), rel=4e-15)


def test_threshold_limits():
    thresholds = [dominance_threshold(sources) for sources in (2, 3, 4, 5, 10, 100, 10_000, None)]
    assert thresholds == sorted(set(thresholds))
    assert thresholds[-1] == GAMMA_MIN
    assert dominance_threshold(2) == pytest.approx(0, abs=1e-15)
    assert dominance_threshold(2) > 0


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.7286, 2.8, 6.0, 60.0])
@pytest.mark.parametrize("sources", [2, 3, 64])
def test_describe_against_mpmath(gamma, sources):
    with mpmath.workdps(40):
        normaliser = harmonic(mpmath.mpf(gamma), sources)
        squares = harmonic(2 * mpmath.mpf(gamma), sources)
        description = describe_gamma(gamma, sources)
        assert description.dominant_weight == pytest.approx(float(1 / normaliser), rel=1e-14)
        assert description.effective_samples == pytest.approx(
            float(normaliser**2 / squares), rel=1e-14
        )
        assert description.dominates == bool(normaliser - 1 < 1)
        assert description.threshold == dominance_threshold(sources)
    assert (description.gamma, description.sources) == (gamma, sources)


def test_describe_reads_as_a_sentence():
    assert str(describe_gamma(2.8, 128)) == (
        "gamma=2.8 over 128 sources: the anchor weighs 0.802, an output blends 1.52 effective "
        "samples, one sample dominates (threshold 1.7039)."
    )
    assert "no sample dominates the others together" in str(describe_gamma(1.0, 128))


@given(st.integers(3, 60), st.floats(1e-6, 1))
def test_theorem_1_one_sample_dominates_above_the_threshold_and_none_below(sources, step):
    threshold = dominance_threshold(sources)
    for gamma, dominates in ((threshold + step, True), (max(threshold - step, 0.0), False)):
        plan = zeta_plan(sources, gamma, dtype=torch.float64)
        assert (plan.dominates() == dominates).all()
        assert describe_gamma(gamma, sources).dominates == dominates
    assert zeta_plan(sources, GAMMA_MIN).dominates().all()


@pytest.mark.parametrize("lam", LAMS)
def test_theorem_2_conversions_against_mpmath(lam):
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.mpf(lam) / (1 - mpmath.mpf(lam)), 2)
        assert gamma_from_lam(lam) == pytest.approx(float(exact), rel=1e-12, abs=1e-15)
        if lam >= 0.5:
            # mixup is ζ-mixup of two sources
            weights = zeta_plan(2, gamma_from_lam(lam), dtype=torch.float64).weights[0]
            assert weights.tolist() == pytest.approx([lam, 1 - lam], rel=1e-6)
        back = 1 / (1 + mpmath.mpf(2) ** -mpmath.mpf(gamma_from_lam(lam)))
        assert lam_from_gamma(gamma_from_lam(lam)) == pytest.approx(float(back), rel=1e-15)


@pytest.mark.parametrize("gamma", [-1000, 1000, 1e6], ids=str)
def test_lam_of_an_extreme_gamma_is_a_finite_weight(gamma):
    assert lam_from_gamma(gamma) == pytest.approx(0 if gamma < 0 else 1, abs=1e-300)
