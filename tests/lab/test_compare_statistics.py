"""What a comparison claims: decision, next step, cautions; never more than is significant."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from factories import make_comparison, make_dataset
from golden import check_golden
from scipy import stats

from zetamix_lab.comparison import Comparison
from zetamix_lab.records import SampleResults
from zetamix_lab.report.compare_text import describe_terms, summarise
from zetamix_lab.statistics import KEYS, detectable, holm_corrected, paired_tests

# numbers


def runs_of(scores, metric="error"):
    """A table of runs from {method: {seed: value}}."""
    rows = [("d", m, s, metric, value) for m, own in scores.items() for s, value in own.items()]
    return pd.DataFrame(rows, columns=[*KEYS, "value"])


def pair(ours, theirs, **how):
    """The test of one method against another."""
    tests = paired_tests(
        runs_of({"a": dict(enumerate(ours)), "b": dict(enumerate(theirs))}), "b", **how
    )
    return tests.iloc[0]


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_intervals_and_p_values_are_those_of_scipy(seeds, pooled, generator):
    """The variance of two methods is that of their differences."""
    ours, theirs = torch.rand(2, seeds, generator=generator, dtype=torch.float64).tolist()
    found, expected = pair(ours, theirs, pooled=pooled), stats.ttest_rel(ours, theirs)
    low, high = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_differences_are_paired_by_seed_and_not_by_place():
    runs = runs_of({"a": {0: 0.5, 2: 0.4, 3: 0.9}, "b": {3: 0.8, 2: 0.1, 1: 0.0}})
    found = paired_tests(runs, "b").iloc[0]
    assert found["mean"] == pytest.approx(0.2)
    assert found["n"] == 2
    assert paired_tests(runs_of({"a": {0: 0.5}, "b": {1: 0.5}}), "b").empty


@pytest.mark.parametrize("pooled", [False, True])
def test_one_seed_has_a_difference_and_no_interval(pooled):
    found = pair([0.1], [0.3], pooled=pooled)
    assert found["mean"] == pytest.approx(-0.2)
    assert found[["low", "high", "p", "p_holm"]].isna().all()
    assert not found.significant


def test_the_same_few_samples_in_every_seed_are_no_certainty():
    # one test sample of 360 in each of three seeds: a deviation of 0
    assert pair([2 / 360] * 3, [1 / 360] * 3).p == 0
    counted = pair([2 / 360] * 3, [1 / 360] * 3, steps={"error": 1 / 360})
    assert counted.p > 0.05
    equal = pair([0.1, 0.2], [0.1, 0.2])
    assert (equal["mean"], equal.p, equal.significant) == (0, 1, False)


def test_holm_by_hand():
    p = pd.Series([0.04, 0.01, np.nan, 0.03, 0.01])
    assert holm_corrected(p).tolist() == pytest.approx(
        [0.06, 0.04, np.nan, 0.06, 0.04], nan_ok=True
    )


@pytest.mark.parametrize("level", [0.05, 0.05 / 15])
@pytest.mark.parametrize(("error", "n"), [(0.3, 10), (0.5, 34), (2.0, 4)])
def test_what_is_detectable_has_a_power_of_80_percent(error, n, level):
    shown = detectable(error, n - 1, level)
    found = stats.nct.sf(stats.t.ppf(1 - level / 2, n - 1), n - 1, shown / error)
    assert found == pytest.approx(0.8)


def test_further_columns_keep_runs_apart():
    """Two recipes of one dataset: paired and corrected each by itself."""
    dice = np.random.default_rng(0)
    one = runs_of({f"m{m}": {s: dice.normal() for s in range(5)} for m in range(4)})
    both = pd.concat([one.assign(recipe="a"), one.assign(recipe="b", value=2 * one.value)])
    alone, found = paired_tests(one, "m0"), paired_tests(both, "m0")
    for recipe, factor in (("a", 1), ("b", 2)):
        own = found[found.recipe == recipe].reset_index(drop=True)
        np.testing.assert_allclose(own["mean"], factor * alone["mean"])
        np.testing.assert_allclose(own["p_holm"], alone["p_holm"])


# what is compared


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["zeta:2.8", "none", "mixup"], ["none", "mixup:1.0"]),
        (["mixup:0.2", "mixup:1.0", "zeta"], ["mixup:0.2"]),
        (["zeta:2.4", "cutmix"], ["zeta:2.4"]),
    ],
)
def test_baselines(labels, expected):
    assert make_comparison({label: [0.1, 0.2] for label in labels}).baselines == expected


# claims

# so many test samples that their number sets no limit
MANY = (4000, 4000, 4000)
CLEAR = {
    "none": [0.100, 0.110, 0.105, 0.107, 0.101],
    "mixup": [0.150, 0.161, 0.154, 0.156, 0.152],
    "zeta:2.8": [0.050, 0.061, 0.055, 0.057, 0.051],
    "zeta:4.0": [0.100, 0.112, 0.101, 0.108, 0.100],
}
NOISY = {
    "none": [0.20, 0.20, 0.20, 0.2, 0.2],
    "zeta:2.8": [0.18, 0.17, 0.16, 0.18, 0.2],
    **{f"zeta:{k}.0": [0.30 + k / 50, 0.20, 0.10, 0.2, 0.2] for k in range(2, 6)},
}


def made(scores, counts=MANY, **more):
    return make_comparison(scores, dataset=make_dataset(counts), **more)


def first_seeds(scores, seeds):
    return {label: values[:seeds] for label, values in scores.items()}


def test_the_text_of_a_report():
    leak = "Duplicates across splits: 3 groups of identical samples in more than one split"
    leaky = replace(make_dataset(MANY), notes=("resized to 64 × 64", leak))
    pair = {"none": [0.1] * 2, "zeta:2.8": [0.1] * 2}
    own = {"none": {0: 0.60, 1: 0.61, 2: 0.6}, "mine": {0: 0.7, 1: 0.71, 2: 0.705}}
    last, many = ("zeta:2.8", 1), {("zeta:2.8", k): 1.7 for k in range(8)}
    elsewhere = {"requested": ("none", "mine"), "seeds": (0, 1, 2), "name": "own"}
    kept = made(CLEAR, temperature=None)
    cases = {
        "significant, leaks": make_comparison(CLEAR, dataset=leaky),
        "not shown": made(NOISY, temperature=100.0),
        "few seeds, test samples": with_samples(made(first_seeds(CLEAR, 2), (400, 400, 400))),
        "nothing learned": made({"none": [0.673, 0.671], "zeta:2.8": [0.664, 0.68]}),
        "one seed": make_comparison({"none": [0.2], "zeta:2.8": [0.1], "switch:until=0.5": [0.1]}),
        "one method": make_comparison({"zeta:2.8": [0.1, 0.12]}),
        "no mixing left out": made({label: CLEAR[label] for label in ("zeta:4.0", "zeta:2.8")}),
        "no temperatures, last batch kept": replace(
            kept, recipe=kept.recipe.change(last_batch="keep")
        ),
        "no common seed": make_comparison(pair, missing=[("none", 0), last]),
        "incomplete": make_comparison(
            {"none": [0.1] * 9, "zeta:2.8": [0.1] * 9},
            missing=[("zeta:2.8", k) for k in range(9)],
            unfinished=many,
            failures={("zeta:2.8", 8): "The loss is not finite."},
        ),
        "made elsewhere": Comparison(given=runs_of(own, "dice"), **elsewhere),
    }
    lines = []
    for name, comparison in cases.items():
        found = summarise(comparison)
        lines += [f"# {name}", *(f"{heading}: {text}" for heading, text in found.items())]
        lines += describe_terms(comparison)
    check_golden("compare.txt", "\n".join(lines))


def test_better_and_worse_follow_the_metric():
    """Of the error rate less is better (as in the golden file), of balanced accuracy more."""
    scores = {
        label: [{"balanced_accuracy": 1 - error, "error": 0.1} for error in errors]
        for label, errors in CLEAR.items()
    }
    text = summarise(made(scores, (10, 30, 10)))["Result"]
    assert "helps and hurts: zeta:2.8 raises the balanced accuracy by" in text
    assert "; mixup:1.0 lowers the balanced accuracy by 5.00 points (" in text


def test_what_could_be_shown_is_named():
    dice = np.random.default_rng(0)
    scores = {label: list(0.1 + 0.01 * dice.normal(size=5)) for label in ("none", "zeta", "mixup")}
    comparison = made(scores, temperature=None)
    tests = comparison.differences("none")
    error, freedom = tests["seed_error"].iloc[0], tests["freedom"].iloc[0]
    shown = detectable(error, freedom, 0.05 / 2)
    assert f"could show {100 * shown:.2f} points" in summarise(comparison)["Result"]
    wide = made({"none": [0.1, 0.9, 0.5], "mixup": [0.9, 0.1, 0.4]}, temperature=None)
    assert "are too few to show any difference." in summarise(wide)["Result"]


def test_the_correction_covers_methods_and_metrics():
    comparison = made(CLEAR)
    assert comparison.tested == ["error", "nll_scaled", "ece_scaled"]
    tests = comparison.tests[comparison.tests["baseline"] == "none"]
    family = tests[tests["metric"].isin(comparison.tested)]
    assert len(family) == 9
    pd.testing.assert_series_equal(family["p_holm"], holm_corrected(family["p"]), check_names=False)
    # of the other metrics nothing is claimed
    others = tests[~tests["metric"].isin(comparison.tested)]
    assert len(others)
    assert others["p_holm"].isna().all()
    assert not others["significant"].any()


@pytest.mark.parametrize(
    ("metric", "step"),
    [("error", 1 / 40), ("auc", 1 / 60), ("balanced_accuracy", 1 / 60), ("nll", 0.0)],
)
def test_the_same_in_every_seed_is_no_certainty_for_any_count_of_samples(metric, step):
    same = {"auc": 1.0, "error": 0.0, "balanced_accuracy": 1.0, "f1_macro": 1.0}
    comparison = made({"none": [same] * 3, "zeta:2.8": [same] * 3}, (10, 30))
    assert comparison.metrics[0] == "auc"
    found = comparison.differences("none", metric).iloc[0]
    half = stats.t.ppf(0.975, 2) * step / math.sqrt(6) / math.sqrt(3)
    assert (found["high"], found["low"]) == (pytest.approx(half), pytest.approx(-half))


# chance


@pytest.mark.parametrize(
    ("errors", "counts", "is_chance"),
    [
        ([0.673, 0.664], MANY, True),
        # always predicting one class is right for a third, up to rounding
        ([2 / 3 - 1e-9, 2 / 3], (40, 5, 5), True),
        # two standard errors are 2.7 points with 400 of each class, and 17 with 10 of each
        ([0.66, 0.638], MANY, False),
        ([0.66, 0.5], (10, 10, 10), True),
        ([0.66, 0.49], (10, 10, 10), False),
        ([0.67], MANY, True),
        ([0.1], MANY, False),
    ],
)
def test_that_no_method_beats_chance_is_the_decision(errors, counts, is_chance):
    labels = ["zeta:2.8", "none"][: len(errors)]
    found = summarise(made({m: [e] * 2 for m, e in zip(labels, errors, strict=True)}, counts))
    assert ("significantly better than chance" in found["Result"]) is is_chance
    if is_chance:
        assert "chance: guessing gives balanced accuracy 33.33 %" in found["Result"]
        assert found["Next"].startswith("Look at the data with zetamix check")
        # nothing is said about the calibration of a guesser
        assert "Calibration" not in found


@pytest.mark.parametrize(("auc", "is_chance"), [(0.9, False), (0.51, True), (math.nan, False)])
def test_for_two_classes_chance_is_judged_by_the_auc(auc, is_chance):
    # no sample of the rare class is predicted
    scores = [{"error": 0.09, "balanced_accuracy": 0.5, "auc": auc}] * 2
    found = summarise(made({"none": scores, "zeta:2.8": scores}, (30, 300)))
    assert ("AUC 0.5000 with 2 classes" in found["Result"]) == is_chance


# the next step and cautions


def test_the_next_step_has_its_command_and_its_time():
    """30 s each were measured; five methods lack two seeds."""
    few = {f"zeta:{k}": [0.2, 0.21, 0.19] for k in range(2, 6)} | {"none": [0.2, 0.2, 0.21]}
    found = summarise(made(few), "zetamix compare --seeds=3 --data digits")
    assert found["Next"] == (
        "Train at least 5 seeds (about 5 min): zetamix compare --data digits --seeds 5"
    )
    longer = summarise(made({"none": [0.1] * 5, "zeta:2.8": [0.2] * 5}))
    assert longer["Next"].endswith("zetamix compare --epochs 6")


def with_samples(comparison):
    """The comparison with results of every test sample, as many errors as its error rates."""
    dice, targets = np.random.default_rng(0), comparison.dataset.test.labels.numpy()
    order, found = dice.normal(size=len(targets)), {}
    for key, record in comparison.records.items():
        wrong = np.argsort(order + 0.3 * dice.normal(size=len(targets)))
        correct = np.ones(len(targets), dtype=bool)
        correct[wrong[: round(record.last["error"] * len(targets))]] = False
        loss = np.where(correct, 0.1, 2.0).astype(np.float32)
        found[key] = SampleResults(targets, correct, loss, loss)
    return replace(comparison, samples=found)


def test_the_test_sample_widens_the_intervals():
    plain = made(CLEAR, (400, 400, 400))
    sampled = with_samples(plain)
    before, after = (c.differences("none").set_index("method") for c in (plain, sampled))
    wider = (after["high"] - after["low"]) / (before["high"] - before["low"])
    assert (wider[["mixup:1.0", "zeta:2.8"]] > 1.5).all()
    assert (wider >= 1 - 1e-9).all()
    assert (after["mean"] == before["mean"]).all()
    assert sampled.differences("none", "ece")["sample_error"].isna().all()
    # in another order they cannot be paired
    key, own = next(iter(sampled.samples.items()))
    elsewhere = replace(sampled, dataset=None, recipe=None, name="own")
    assert elsewhere.targets is not None
    other = replace(
        elsewhere, samples={**sampled.samples, key: replace(own, targets=1 - own.targets)}
    )
    assert other.tests["sample_error"].isna().all()


# training


CONVERGED, FLAT = [0.5, 0.3, 0.2, 0.19, 0.188, 0.187], [0.5, 0.3, 0.2, 0.19, 0.19, 0.19]
IMPROVING = [0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("scores", "rates", "text"),
    [
        # by the line through the last three epochs
        (
            CLEAR,
            [CONVERGED],
            "Training had converged: towards the end, {} changed by at most −0.30",
        ),
        (CLEAR, [IMPROVING], "{} still improved for no mixing (−20.00 points)"),
        (CLEAR, [IMPROVING, FLAT], "Whether training had converged is unclear: "),
        (CLEAR, [[0.5, 0.1]], "Too few epochs were evaluated"),
        # a flat curve at chance level is not called converged
        ({"none": [0.67] * 2}, [[0.67] * 6], "judged, because no method is better than chance."),
    ],
)
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_report_says_whether_training_had_converged(scores, rates, text, split):
    comparison = made(scores, epochs=6)
    # the validation curve counts, where there is one
    other = {"test": {"error": 0.5}} if split == "val" else {}
    curves = {
        (label, seed): [
            {"epoch": k, **other, split: {"error": value}}
            for k, value in enumerate(rates[min(seed, len(rates) - 1)], 1)
        ]
        for label, seed in comparison.curves
    }
    found = summarise(replace(comparison, curves=curves))
    title = f"{ {'val': 'validation', 'test': 'test'}[split] } error rate"
    assert text.format(title) in found.get("Caution", "") + found.get("Training", "")
    improving = rates == [IMPROVING]
    assert ("Training had not converged" in found.get("Caution", "")) is improving
    assert not improving or "--epochs 12" in found["Next"]


def test_the_verdict_on_calibration_goes_by_scaled_scores():
    """Worse as they come, equal after scaling: that is mixing's underconfidence, no finding."""

    def run(nll, error):
        return {"error": error, "nll": nll, "ece": nll, "nll_scaled": 0.3, "ece_scaled": 0.02}

    errors = [0.10, 0.11, 0.12, 0.11, 0.1]
    scores = {"none": [run(0.3, e) for e in errors], "zeta:2.8": [run(0.6, e) for e in errors]}
    comparison = made(scores, temperature=0.5)
    assert not comparison.tests["significant"].any()
    assert made(CLEAR, temperature=None).tested == ["error"]


def test_names_have_the_share_of_training_only_where_it_differs():
    shared = made({m: [0.1] for m in ("none", "mixup:until=0.8", "switch:until=0.8", "cutmix")})
    names = list(map(shared.name_of, shared.methods))
    assert names == ["no mixing", "mixup:1.0", "switch", "cutmix:alpha=1.0,until=1.0"]
