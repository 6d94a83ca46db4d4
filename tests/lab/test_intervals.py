"""Intervals for new seeds and new test samples: coverage, and what they are made of."""

import numpy as np
import pandas as pd
import pytest
import torch
from factories import finish
from lab.intervals import SAMPLES, SEEDS, simulate

from zetamix_lab.metrics import classify, scaled_scores
from zetamix_lab.records import SampleResults
from zetamix_lab.statistics import (
    KEYS,
    combine,
    paired_tests,
    pooled_variance,
    sample_variance,
)
from zetamix_lab.train.run_folder import FolderError, RunFolder


@pytest.mark.slow
@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize("seeds", SEEDS)
def test_95_percent_of_intervals_hold_and_5_percent_of_claims_are_false(seeds, samples):
    """Of 3,000 intervals in 1,000 comparisons; two standard errors of the simulation are 1 %."""
    held, wrong = simulate("both count", seeds, samples)
    assert 0.93 < held < 0.97
    assert wrong < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


def test_without_the_test_sample_intervals_are_too_short():
    held, wrong = simulate("samples decide", 5, 200, comparisons=200)
    assert 0.92 < held < 0.98
    assert wrong < 0.08
    alone, _ = simulate("samples decide", 5, 200, comparisons=200, sampled=False)
    assert alone < 0.65


def table(values, metric="error"):
    """Runs of [methods, seeds] values; NaN is a run that is missing."""
    rows = [("d", f"m{m}", s, metric, value) for (m, s), value in np.ndenumerate(values)]
    return pd.DataFrame(rows, columns=[*KEYS, "value"]).dropna()


def test_the_variance_is_pooled_over_methods_and_needs_no_complete_table():
    values = np.random.default_rng(0).normal(size=(4, 5))
    runs = table(values)
    differences = [np.var(values[a] - values[b], ddof=1) for a in range(4) for b in range(a)]
    variance, freedom = pooled_variance(runs["method"], runs["seed"], runs["value"].to_numpy())
    assert variance == pytest.approx(np.mean(differences))
    assert freedom == 3 * 4
    values[3, 1:3] = np.nan
    runs = table(values)
    assert pooled_variance(runs["method"], runs["seed"], runs["value"].to_numpy())[1] == 10
    found = paired_tests(runs, "m0", pooled=True).set_index("method")
    assert found["n"].tolist() == [5, 5, 3]
    assert (found["seed_error"] * np.sqrt(found["n"])).std() < 1e-12


def test_a_value_that_is_no_number_claims_nothing():
    runs = table(np.random.default_rng(0).normal(size=(2, 5)))
    runs.loc[0, "value"] = np.nan
    found = paired_tests(runs, "m0", pooled=True).iloc[0]
    assert np.isnan(found["p"])
    assert not found["significant"]


def test_the_part_of_the_samples_is_found():
    dice, seeds, samples = np.random.default_rng(0), 4, 100
    drawn = 0.2 * dice.normal(size=(2000, 1, samples)) + dice.normal(size=(2000, seeds, samples))
    drawn += dice.normal(size=(2000, seeds, 1))
    found = sample_variance(drawn)
    assert found.mean() == pytest.approx(0.04 / samples, rel=0.5)
    # the larger, the less what is cut off at zero counts
    drawn += 2 * dice.normal(size=(2000, 1, samples))
    assert sample_variance(drawn).mean() == pytest.approx(4.04 / samples, rel=0.02)


def test_degrees_of_freedom_lie_between_those_of_both_parts():
    error, freedom = combine(
        np.array([1.0, 1.0, 0.0]), np.array([0.0, 3.0, 1.0]), np.array([4] * 3)
    )
    assert error == pytest.approx([1, np.sqrt(10), 1])
    assert freedom[0] == pytest.approx(4)
    assert 4 < freedom[1] < 100
    assert freedom[2] == np.inf


@pytest.mark.parametrize("counts", [(30, 50), (5, 40, 20)])
def test_contributions_are_of_the_metrics(counts, generator):
    labels = torch.cat([torch.full((count,), k) for k, count in enumerate(counts)])
    logits = (
        torch.randn(len(labels), len(counts), generator=generator)
        + 2 * torch.eye(len(counts))[labels]
    )
    metrics = classify(logits, labels) | scaled_scores(logits, labels, 0.7)
    found = SampleResults.of(logits, labels, 0.7)
    names = {"error", "accuracy", "f1_micro", "balanced_accuracy", "nll", "nll_scaled"}
    names |= {"auc"} if len(counts) == 2 else set()
    given = {name: found.contributions(name) for name in metrics}
    assert {name for name, values in given.items() if values is not None} == names
    for name in names:
        assert given[name].mean() == pytest.approx(metrics[name], rel=1e-5), name


def test_contributions_have_the_variance_of_the_metric():
    """Over 3,000 samples drawn anew."""
    dice = np.random.default_rng(0)
    drawn = {"auc": [], "balanced_accuracy": []}
    claimed = {"auc": [], "balanced_accuracy": []}
    labels = torch.tensor([0] * 40 + [1] * 20)
    for _ in range(3000):
        score = torch.from_numpy(dice.normal(size=60)) + labels
        logits = torch.stack([-score / 2, score / 2], 1)
        found = SampleResults.of(logits, labels)
        for name in drawn:
            drawn[name].append(found.contributions(name).mean())
            claimed[name].append(found.contributions(name).var(ddof=1) / 60)
    for name in drawn:
        assert np.mean(claimed[name]) == pytest.approx(np.var(drawn[name]), rel=0.08), name


def test_several_labels(generator):
    logits, labels = torch.randn(2, 50, 4, generator=generator)
    labels = (labels > 0).float()
    metrics, found = classify(logits, labels), SampleResults.of(logits, labels)
    for name in ("error", "accuracy", "nll"):
        assert found.contributions(name).mean() == pytest.approx(metrics[name], rel=1e-5)
    assert found.contributions("map") is None
    assert found.contributions("balanced_accuracy") is None


def test_a_run_keeps_the_result_of_every_test_sample(new, tmp_path):
    run = new()
    record = finish(run)
    found = RunFolder(run.folder.path).read_samples()
    for name in ("error", "nll", "nll_scaled", "balanced_accuracy"):
        assert found.contributions(name).mean() == pytest.approx(record.last[name], rel=1e-5)
    path = run.folder.path / "test.npz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FolderError, match=r"test.npz cannot be read: .*train this run again"):
        RunFolder(run.folder.path).read_samples()
    path.unlink()
    assert RunFolder(run.folder.path).read_samples() is None
