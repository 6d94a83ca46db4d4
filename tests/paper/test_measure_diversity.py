"""Diversity and richness: against values worked out by hand, and against plain formulas."""

import math

import pytest
import torch

from paper.measure.diversity import (
    classes_per_label,
    coverage,
    effective_samples,
    label_entropy,
    relative_distance,
)
from paper.measure.estimate import mean_of
from zetamix import zeta_plan

LINE = torch.arange(10.0).unsqueeze(1)


@pytest.mark.parametrize(
    ("values", "mean", "spread", "error"),
    [
        ([1.0, 2.0, 3.0, 6.0], 3.0, math.sqrt(14 / 3), math.sqrt(14 / 3) / 2),
        ([2.0], 2.0, None, None),
        ([], None, None, None),
    ],
)
def test_an_estimate_is_mean_deviation_and_standard_error(values, mean, spread, error):
    expected = {"n": len(values), "value": mean, "spread": spread, "standard_error": error}
    assert mean_of(torch.tensor(values)) == pytest.approx(expected)


def test_the_error_shrinks_as_the_mean_of_draws_does(generator):
    draws = torch.rand(400, 200, generator=generator)
    stated = torch.tensor([mean_of(row)["standard_error"] for row in draws]).mean()
    assert stated == pytest.approx(float(draws.mean(1).std()), rel=0.1)


def test_distance_is_in_units_of_the_originals_own(generator):
    assert relative_distance(LINE, LINE)["value"] == 0
    # 3 from the last one
    assert relative_distance(torch.tensor([[12.0]]), LINE)["value"] == pytest.approx(3)
    originals = torch.rand(50, 3, 4, generator=generator)
    outputs = torch.rand(20, 3, 4, generator=generator)
    apart = torch.cdist(originals.flatten(1), originals.flatten(1)).fill_diagonal_(torch.inf)
    wanted = torch.cdist(outputs.flatten(1), originals.flatten(1)).amin(1) / apart.amin(1).mean()
    found = relative_distance(outputs, originals)
    assert found["value"] == pytest.approx(float(wanted.mean()), rel=1e-4)
    assert found["spread"] == pytest.approx(float(wanted.std()), rel=1e-4)
    assert found["n"] == 20
    with pytest.raises(ValueError, match="Every original has an exact duplicate"):
        relative_distance(LINE, 0 * LINE)
    # neither an offset nor a scale changes it
    moved = relative_distance(outputs * 9 + 500, originals * 9 + 500)
    assert moved["value"] == pytest.approx(found["value"], rel=1e-4)


def test_coverage_counts_originals_with_an_output_in_reach(generator):
    # within 1 of 4.5: the originals 4 and 5; within 2 of it: 3 to 6
    outputs = torch.tensor([[4.5], [4.6], [40.0]])
    assert coverage(outputs, LINE, neighbours=1)["value"] == pytest.approx(0.2)
    assert coverage(outputs, LINE, neighbours=3)["value"] == pytest.approx(0.4)
    assert coverage(outputs, LINE)["n"] == 10
    originals = torch.rand(60, 5, generator=generator)
    outputs = torch.rand(10, 5, generator=generator)
    apart = torch.cdist(originals, originals).fill_diagonal_(torch.inf)
    radius = apart.sort(1).values[:, 4]
    wanted = (torch.cdist(originals, outputs).amin(1) <= radius).float().mean()
    assert 0 < wanted < 1
    assert coverage(outputs, originals)["value"] == pytest.approx(float(wanted))


def test_richness_of_labels():
    targets = torch.tensor([[0.98, 0.02, 0.0], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]])
    assert classes_per_label(targets)["value"] == 2
    assert classes_per_label(targets, threshold=0.05)["value"] == pytest.approx(5 / 3)
    uniform = torch.full((4, 8), 1 / 8)
    assert label_entropy(uniform)["value"] == pytest.approx(math.log(8))
    assert label_entropy(torch.eye(3))["value"] == 0


def test_effective_samples_of_a_plan(generator):
    plan = zeta_plan(16, gamma=2.0, generator=generator)
    series = torch.arange(1, 17, dtype=torch.float64) ** -2.0
    wanted = series.sum() ** 2 / series.square().sum()
    assert effective_samples(plan.weights)["value"] == pytest.approx(float(wanted), rel=1e-5)
    assert effective_samples(plan.matrix())["value"] == pytest.approx(float(wanted), rel=1e-5)
