"""The table of runs: new statistics equal those by seed, which go once the paper uses the table."""

import numpy as np
import pandas as pd
import pytest
from lab.test_records import RUN, record

from zetamix_lab import statistics
from zetamix_lab.statistics import KEYS, paired_tests, runs_table, summarise


def random_runs(dice):
    """Up to five methods with up to seven seeds, some of them missing."""
    rows = [
        ("d", f"m{method}", seed, metric, value)
        for method in range(dice.integers(2, 6))
        for seed in range(dice.integers(2, 8))
        if dice.random() > 0.2 or seed + method == 0
        for metric, value in [
            ("error", dice.integers(0, 4) / 40),
            ("nll", dice.normal()),
            ("ece", 0.25),
        ]
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "value"])


def by_seed(runs, method, metric):
    own = runs[(runs.method == method) & (runs.metric == metric)]
    return dict(zip(own.seed, own.value, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_equal_to_the_statistics_by_seed(seed):
    runs, steps, tested = random_runs(np.random.default_rng(seed)), {"error": 1 / 40}, ["error"]
    methods = [method for method in dict.fromkeys(runs.method) if method != "m0"]
    old = [
        statistics.paired_difference(
            method,
            "m0",
            metric,
            by_seed(runs, method, metric),
            by_seed(runs, "m0", metric),
            resolution=steps.get(metric, 0),
        )
        for metric in ("error", "nll", "ece")
        for method in methods
    ]
    old = [found for found in old if found is not None]
    corrected = statistics.holm([found for found in old if found.metric in tested])
    old = corrected + [found for found in old if found.metric not in tested]
    new = paired_tests(runs, "m0", tested, steps).set_index(["method", "metric"])
    assert len(new) == len(old)
    for found in old:
        row = new.loc[(found.method, found.metric)]
        for name in ("mean", "sd", "low", "high", "p", "p_holm"):
            expected = getattr(found, name)
            expected = np.nan if expected is None else expected
            assert row[name] == pytest.approx(expected, abs=1e-9, nan_ok=True), name
        assert (row.n, row.significant) == (found.n, found.significant)


def test_records_become_rows():
    runs = runs_table([RUN, record(1)])
    assert runs.to_dict("list") == {
        "dataset": ["digits"] * 2,
        "method": ["zeta:2.8"] * 2,
        "seed": [0, 1],
        "metric": ["error"] * 2,
        "value": [0.25] * 2,
    }
    assert summarise(runs).iloc[0].to_dict() == {
        "dataset": "digits", "method": "zeta:2.8", "metric": "error",
        "mean": 0.25, "sd": 0.0, "n": 2,
    }  # fmt: skip
    assert runs_table([RUN], lambda found: found.best or {"auc": None}).empty


def test_further_columns_keep_runs_apart():
    """Two recipes of one dataset: paired and corrected each by itself."""
    one = random_runs(np.random.default_rng(0))
    both = pd.concat([one.assign(recipe="a"), one.assign(recipe="b", value=2 * one.value)])
    alone, found = paired_tests(one, "m0"), paired_tests(both, "m0")
    for recipe, factor in (("a", 1), ("b", 2)):
        own = found[found.recipe == recipe].reset_index(drop=True)
        np.testing.assert_allclose(own["mean"], factor * alone["mean"])
        np.testing.assert_allclose(own["p_holm"], alone["p_holm"])
