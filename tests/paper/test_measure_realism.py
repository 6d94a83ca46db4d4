"""Realism and label correctness: what an oracle's logits come to, and densities that add up."""

import math

import pytest
import torch
from torch import nn

from paper.measure.realism import density, judge

LOGITS = torch.tensor([[0.0, 0.0, 0.0], [30.0, 0.0, 0.0], [0.0, 30.0, 0.0], [1.0, 2.0, 3.0]])
TARGETS = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.1, 0.2, 0.7]])


def judged():
    return judge(lambda samples: LOGITS, torch.rand(4, 1), TARGETS)


def test_entropy_and_cross_entropy_are_the_textbook_ones():
    found = judged()
    expected = torch.distributions.Categorical(logits=LOGITS.double()).entropy()
    torch.testing.assert_close(found.entropies, expected)
    wanted = nn.functional.cross_entropy(
        TARGETS.double().clamp_min(1e-7).log(), LOGITS.double().softmax(1), reduction="none"
    )
    torch.testing.assert_close(found.cross_entropies, wanted, rtol=1e-6, atol=1e-6)
    loss = nn.functional.cross_entropy(LOGITS.double(), TARGETS.double(), reduction="none")
    torch.testing.assert_close(found.losses, loss)
    assert found.entropies[0] == pytest.approx(math.log(3))
    assert found.agrees.tolist() == [False, True, False, True]


def test_the_summary_restricts_to_certain_outputs():
    found, means = judged(), judged().summary()
    assert means["certain_share"]["value"] == 0.5
    assert means["cross_entropy"]["value"] == pytest.approx(float(found.cross_entropies.mean()))
    # a label that is right, and one that has a quarter on what the oracle sees
    assert means["cross_entropy_certain"]["value"] == pytest.approx(math.log(4) / 2, rel=1e-6)
    assert means["cross_entropy_certain"]["n"] == 2
    assert (means["agreement"]["value"], means["agreement_certain"]["value"]) == (0.5, 0.5)
    # without certain outputs there is no mean
    unsure = judge(lambda samples: torch.zeros(2, 2), torch.rand(2, 1), torch.eye(2))
    assert unsure.summary()["cross_entropy_certain"]["value"] is None


@pytest.mark.parametrize(
    ("target", "cost"), [([1.0, 0.0], 0.0), ([0.0, 1.0], 7 * math.log(10)), ([0.8, 0.2], 0.2231)]
)
def test_excluded_classes_cost_their_cross_entropy(target, cost):
    # the oracle rules the second class out
    logits = torch.tensor([[0.0, -torch.inf]])
    found = judge(lambda samples: logits, torch.rand(1, 1), torch.tensor([target]))
    assert found.cross_entropies.tolist() == pytest.approx([cost], abs=1e-4)
    assert found.entropies.tolist() == [0.0]


NORMAL = torch.randn(500, generator=torch.Generator().manual_seed(7)).abs()


@pytest.mark.parametrize(
    "values", [1e-4 * NORMAL, 0.1 * NORMAL, NORMAL, [0.3], [0.3, 0.3, 0.3], [0.0, 0.0, 1.0]]
)
def test_a_density_has_area_one_and_stays_above_zero(values):
    grid = torch.linspace(0, 8, 2001)
    found = density(torch.as_tensor(values), grid)
    assert torch.trapezoid(found, grid) == pytest.approx(1, abs=2e-3)
    assert (found >= 0).all()
    assert found.isfinite().all()


def test_a_density_is_that_of_its_values(generator):
    values = torch.randn(20_000, generator=generator).double() * 0.1 + 3
    grid = torch.linspace(2.6, 3.4, 81).double()
    true = torch.distributions.Normal(3.0, 0.1).log_prob(grid).exp()
    torch.testing.assert_close(density(values, grid), true, rtol=0.05, atol=0.15)


def test_a_density_has_the_height_of_a_peak_and_no_spikes_in_the_tail(generator):
    # four values of five around 0.2, the others over three nats
    peak = torch.randn(8_000, generator=generator).double().mul(0.02).add(0.2).abs()
    tail = torch.rand(2_000, generator=generator).double() * 3
    grid = torch.linspace(0, 3, 601).double()
    found = density(torch.cat([peak, tail]), grid)
    assert found[40] == pytest.approx(0.8 / (0.02 * math.sqrt(2 * math.pi)) + 0.2 / 3, rel=0.08)
    level = torch.full((201,), 0.2 / 3).double()
    torch.testing.assert_close(found[200:401], level, rtol=0.4, atol=0)
