"""Significance: intervals, p-values, Holm's correction, and what the report claims from them."""

import math
from dataclasses import replace

import pytest
import torch
from comparisons import make_comparison, make_dataset
from golden import check_golden
from scipy import stats

from zetamix_lab import statistics
from zetamix_lab.metrics import METRICS, choose_metrics, classify
from zetamix_lab.report.compare_text import describe_differences, summarise
from zetamix_lab.statistics import holm, paired_difference, paired_power, seeds_needed


def paired(ours, theirs, **how):
    return paired_difference(
        "a", "b", "error", dict(enumerate(ours)), dict(enumerate(theirs)), **how
    )


# numbers


def test_mean_and_deviation_over_seeds():
    found = statistics.summarise({0: 0.1, 1: 0.2, 2: 0.6})
    assert found.mean == pytest.approx(0.3)
    assert found.sd == pytest.approx(torch.tensor([0.1, 0.2, 0.6], dtype=torch.float64).std())
    assert found.n == 3
    assert statistics.summarise({4: 0.5}).sd is None


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_intervals_and_p_values_are_those_of_scipy(seeds, generator):
    ours, theirs = torch.rand(2, seeds, generator=generator, dtype=torch.float64).tolist()
    found, expected = paired(ours, theirs), stats.ttest_rel(ours, theirs)
    low, high = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.mean == pytest.approx(sum(ours) / seeds - sum(theirs) / seeds)


def test_three_seeds_need_a_factor_of_4_3():
    found = paired([0.1, 0.2, 0.3], [0.0, 0.0, 0.0])
    assert found.high - found.mean == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)


def test_differences_are_paired_by_seed_and_not_by_place():
    found = paired_difference("a", "b", "error", {0: 0.5, 2: 0.4, 3: 0.9}, {3: 0.8, 2: 0.1, 1: 0.0})
    assert found.values == {2: pytest.approx(0.3), 3: pytest.approx(0.1)}
    assert found.n == 2
    assert paired_difference("a", "b", "error", {0: 0.5}, {1: 0.5}) is None


def test_one_seed_has_a_difference_and_no_interval():
    found = paired([0.1], [0.3])
    assert found.mean == pytest.approx(-0.2)
    assert (found.low, found.high, found.p) == (None, None, None)
    assert not found.excludes_zero
    assert not holm([found])[0].significant


def test_the_same_few_samples_in_every_seed_are_no_certainty():
    # one test sample of 360 in each of three seeds: a deviation of 0
    exact = paired([2 / 360] * 3, [1 / 360] * 3)
    assert exact.p == 0
    assert exact.excludes_zero
    counted = paired([2 / 360] * 3, [1 / 360] * 3, resolution=1 / 360)
    assert not counted.excludes_zero
    assert counted.p > 0.05
    # a real deviation is not touched
    assert paired([0.1, 0.2], [0.3, 0.1], resolution=1e-6) == paired([0.1, 0.2], [0.3, 0.1])


def test_equal_methods_do_not_differ():
    found = paired([0.1, 0.2], [0.1, 0.2])
    assert (found.mean, found.p, found.excludes_zero) == (0, 1, False)


def test_holm_by_hand():
    made = [paired([k / 100, k / 50 + 0.1, 0.3], [0, 0, 0]) for k in range(1, 5)]
    found = holm(made)
    by_p = sorted(found, key=lambda difference: difference.p)
    running = 0.0
    for rank, difference in enumerate(by_p):
        running = max(running, min(1.0, difference.p * (4 - rank)))
        assert difference.p_holm == pytest.approx(running)
    # the order of methods is kept
    assert [d.values for d in found] == [d.values for d in made]


def test_without_a_difference_hardly_anything_is_claimed():
    # 5 methods against one, all alike: Holm keeps the chance of any wrong claim below 5 %
    generator = torch.Generator().manual_seed(3)
    wrong = 0
    for _ in range(1500):
        values = torch.randn(6, 3, generator=generator).tolist()
        wrong += any(d.significant for d in holm([paired(v, values[0]) for v in values[1:]]))
    assert 0.005 < wrong / 1500 < 0.06


def test_a_large_difference_is_claimed():
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(5, generator=generator)
    shifted = (base + 10 + 0.1 * torch.randn(5, generator=generator)).tolist()
    assert holm([paired(shifted, base.tolist())])[0].significant


@pytest.mark.parametrize("level", [0.05, 0.05 / 15])
@pytest.mark.parametrize(("effect", "n"), [(0.3, 10), (0.5, 34), (1.0, 10), (2.0, 4)])
def test_power_is_that_of_scipys_noncentral_t(effect, n, level):
    expected = stats.nct.sf(stats.t.ppf(1 - level / 2, n - 1), n - 1, effect * math.sqrt(n))
    assert paired_power(effect, 1.0, n, level) == pytest.approx(expected)
    assert paired_power(-3 * effect, 3.0, n, level) == pytest.approx(expected)


@pytest.mark.parametrize("sd", [0.001, 0.01, 0.03])
@pytest.mark.parametrize("level", [0.05, 0.05 / 15])
def test_the_seeds_needed_are_the_fewest_with_enough_power(sd, level):
    n = seeds_needed(0.005, sd, level)
    assert paired_power(0.005, sd, n, level) >= 0.8
    assert n == 2 or paired_power(0.005, sd, n - 1, level) < 0.8


def test_with_the_seeds_needed_four_of_five_tests_find_the_difference():
    n = seeds_needed(0.01, 0.02)
    drawn = 0.01 + 0.02 * torch.randn(2000, n, generator=torch.Generator().manual_seed(0)).double()
    found = sum(paired(values, [0.0] * n).excludes_zero for values in drawn.tolist())
    assert found / 2000 == pytest.approx(0.8, abs=0.03)


# metrics that suit the data


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((10, 10, 10), ["error", "nll", "ece"]),
        ((10, 15, 12), ["error", "nll", "ece"]),
        ((10, 16, 12), ["balanced_accuracy", "f1_macro", "error", "nll", "ece"]),
        ((10, 10), ["auc", "error", "nll", "ece"]),
        ((10, 90), ["auc", "balanced_accuracy", "f1_macro", "error", "nll", "ece"]),
    ],
)
def test_metrics_suit_the_data(counts, expected):
    assert choose_metrics(make_dataset(counts).test.counts()) == expected


# claims

# so many test samples that their number sets no limit
MANY = (4000, 4000, 4000)
CLEAR = {
    "none": [0.100, 0.110, 0.105],
    "mixup": [0.150, 0.161, 0.154],
    "zeta:2.8": [0.050, 0.061, 0.055],
    "zeta:4.0": [0.100, 0.112, 0.101],
}
NOISY = {
    "none": [0.20, 0.20, 0.20],
    "zeta:2.8": [0.15, 0.17, 0.16],
    **{f"zeta:{k}.0": [0.30 + k / 50, 0.20, 0.10] for k in range(2, 6)},
}


def texts(scores, counts=MANY, **more):
    """The sentences of the report of a comparison, by heading."""
    return dict(summarise(make_comparison(scores, dataset=make_dataset(counts), **more)))


def test_the_text_of_a_report():
    cases = {
        "significant": make_comparison(CLEAR, dataset=make_dataset(MANY)),
        "not after correction": make_comparison(NOISY, dataset=make_dataset(MANY)),
        "nothing learned": make_comparison(
            {"none": [0.673, 0.671], "zeta:2.8": [0.664, 0.68]}, dataset=make_dataset(MANY)
        ),
        "one seed": make_comparison({"none": [0.2], "zeta:2.8": [0.1]}),
        "one method": make_comparison({"zeta:2.8": [0.1, 0.12]}),
        "incomplete": make_comparison(
            {"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.1]},
            missing=[("zeta:2.8", 0), ("zeta:2.8", 1)],
            unfinished={("zeta:2.8", 0): 1.7},
            failures={("zeta:2.8", 1): "The loss is not finite."},
        ),
    }
    lines = []
    for name, comparison in cases.items():
        lines += [f"# {name}", *(f"{heading}: {text}" for heading, text in summarise(comparison))]
    check_golden("compare.txt", "\n".join(lines))


def test_significant_differences_are_stated_with_their_direction_and_interval():
    made = make_comparison(CLEAR, dataset=make_dataset(MANY))
    text = describe_differences(made, "none", "error")
    better, worse = text.split(" and significantly ")
    assert "lower (better) for zeta:2.8 (−4.97 points, 95 % interval −5.11 to −4.82, Holm" in better
    assert worse.startswith("higher (worse) for mixup:1.0 (+5.00 points")
    assert text.endswith("Not significantly different: zeta:4.0.")
    brief = describe_differences(made, "none", "error", brief=True)
    assert "zeta:2.8 (−4.97 points)" in brief
    assert "interval" not in brief


def test_higher_is_better_for_some_metrics():
    scores = {
        label: [{"balanced_accuracy": 1 - error, "error": 0.1} for error in errors]
        for label, errors in CLEAR.items()
    }
    made = make_comparison(scores, dataset=make_dataset((10, 30, 10)))
    assert made.primary == "balanced_accuracy"
    text = describe_differences(made, "none", "balanced_accuracy")
    assert "lower (worse) for mixup:1.0 (−5.00 points" in text
    assert "higher (better) for zeta:2.8 (+4.97 points" in text


def test_an_interval_that_contains_0_claims_nothing():
    made = make_comparison({"none": [0.10, 0.12, 0.14], "zeta:2.8": [0.11, 0.10, 0.12]})
    text = describe_differences(made, "none", "error")
    assert text.startswith("No method differs significantly from no mixing in error rate")
    assert "−5.30 to +3.30" in text
    # there is no improvement over the better one to quote
    assert "improvement" not in describe_differences(made, "zeta:2.8", "error")


def test_significance_on_its_own_is_not_enough():
    made = make_comparison(NOISY, dataset=make_dataset(MANY))
    (near,) = [found for found in made.differences("none") if found.excludes_zero]
    assert near.p_holm > 0.05
    text = describe_differences(made, "none", "error")
    assert text.startswith("No method differs significantly")
    assert "after it: zeta:2.8 (better, −4.00 points, uncorrected p = 0.020)." in text


def test_a_worse_method_is_called_worse_before_correction():
    worse = {label: [0.5 - error for error in errors] for label, errors in NOISY.items()}
    text = describe_differences(make_comparison(worse, dataset=make_dataset(MANY)), "none", "error")
    assert "not after it: zeta:2.8 (worse, +4.00 points, uncorrected p = 0.020)." in text


def test_methods_that_tie_share_the_largest_improvement():
    scores = {
        "none": [0.3, 0.32, 0.31],
        "mixup:1.0": [0.2, 0.3, 0.31],
        "zeta:2.8": [0.3, 0.2, 0.31],
    }
    text = describe_differences(make_comparison(scores), "none", "error")
    assert "The largest improvement is that of mixup:1.0 (" in text
    assert ") and zeta:2.8 (−4.00 points" in text


def test_one_seed_claims_nothing():
    made = make_comparison({"none": [0.2], "zeta:2.8": [0.1]})
    assert "cannot be tested with one seed" in describe_differences(made, "none", "error")
    # after Ctrl-C the user need not be told to ask for the seeds that were asked for
    scores = {"none": [0.2, 0.2, 0.2], "zeta:2.8": [0.1, 0.1, 0.1]}
    missing = [(label, seed) for label in scores for seed in (1, 2)]
    text = describe_differences(make_comparison(scores, missing=missing), "none", "error")
    assert "cannot be tested yet: no method has two finished runs" in text


def test_a_temperature_at_its_limit_is_no_temperature():
    made = make_comparison(CLEAR, dataset=make_dataset(MANY), temperature=100.0)
    assert "is the limit of the fit" in dict(summarise(made))["Calibration"]
    made = make_comparison(CLEAR, dataset=make_dataset(MANY))
    assert "is the limit of the fit" not in dict(summarise(made))["Calibration"]


def test_an_improvement_in_some_seeds_leaves_convergence_open():
    made = make_comparison(CLEAR, dataset=make_dataset(MANY), epochs=6)
    rates = [[0.5, 0.4, 0.3, 0.2, 0.15, 0.1], [0.5, 0.3, 0.2, 0.19, 0.19, 0.19]]
    curves = {
        (label, seed): [
            {"epoch": k, "test": {"error": value}} for k, value in enumerate(rates[seed > 0], 1)
        ]
        for label, seed in made.curves
    }
    text = dict(summarise(replace(made, curves=curves)))["Training"]
    assert "Whether training had converged is unclear" in text
    assert "did not improve in every seed (12,000 samples)" in text


def test_a_method_without_a_common_seed_is_reported_once():
    made = make_comparison(
        {"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.1]}, missing=[("none", 0), ("zeta:2.8", 1)]
    )
    assert list(dict(summarise(made))) == ["Incomplete", "Verdict", "Training"]
    assert "the same seed as no mixing" in dict(summarise(made))["Verdict"]


@pytest.mark.parametrize(
    ("metric", "step"),
    [
        ("error", 1 / 40),
        ("auc", 1 / 60),
        ("balanced_accuracy", 1 / 60),
        ("f1_macro", 1 / 60),
        ("nll", 0.0),
        ("ece", 0.0),
    ],
)
def test_the_same_in_every_seed_is_no_certainty_for_any_count_of_samples(metric, step):
    same = {"auc": 1.0, "error": 0.0, "balanced_accuracy": 1.0, "f1_macro": 1.0}
    scores = {"none": [same] * 3, "zeta:2.8": [same] * 3}
    made = make_comparison(scores, dataset=make_dataset((10, 30)))
    assert made.primary == "auc"
    (found,) = made.differences("none", metric)
    half = stats.t.ppf(0.975, 2) * step / math.sqrt(6) / math.sqrt(3)
    assert found.high == pytest.approx(half)
    assert found.low == pytest.approx(-half)


def test_one_method_has_a_result_and_no_verdict():
    first = texts({"none": [0.1], "zeta:2.8": [0.1]}, missing=[("zeta:2.8", 0)])
    assert list(first) == ["Incomplete", "Result", "Training"]
    assert first["Result"].endswith("No other method has a finished run yet.")


def test_of_many_runs_in_progress_some_are_named():
    many = {("zeta:2.8", k): 2.0 for k in range(8)}
    scores = {"none": [0.1] * 8, "zeta:2.8": [0.1] * 8}
    text = texts(scores, missing=list(many), unfinished=many)["Incomplete"]
    assert text.endswith("zeta:2.8 seed 5 at epoch 2 of 3 and 2 more.")


def test_the_report_has_a_verdict_for_each_baseline():
    headings = texts(CLEAR)
    assert list(headings) == ["Verdict", "Power", "Training", "Versus mixup:1.0", "Calibration"]
    assert "NLL after temperature scaling" in headings["Calibration"]
    assert "ECE after temperature scaling" in headings["Calibration"]


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
def test_that_no_method_is_better_than_chance_follows_the_verdict(errors, counts, is_chance):
    labels = ["zeta:2.8", "none"][: len(errors)]
    scores = {label: [error] * 2 for label, error in zip(labels, errors, strict=True)}
    found = texts(scores, counts)
    assert ("significantly better than chance" in found.get("Caution", "")) is is_chance
    if is_chance:
        assert list(found)[1] == "Caution"
        assert "chance (balanced accuracy 33.33 % with 3 classes; guessing" in found["Caution"]
        # nothing is said about the calibration of a guesser
        assert "Calibration" not in found


def test_chance_is_reported_for_finished_runs():
    scores = {"none": [0.67, 0.67], "zeta:2.8": [0.67, 0.67]}
    found = texts(scores, missing=[("zeta:2.8", 1)])
    assert list(found)[:3] == ["Incomplete", "Verdict", "Caution"]
    assert found["Caution"].startswith("No method so far is significantly better than chance")


@pytest.mark.parametrize(("auc", "is_chance"), [(0.9, False), (0.51, True)])
def test_for_two_classes_chance_is_judged_by_the_auc(auc, is_chance):
    # no sample of the rare class is predicted
    scores = {"error": 0.09, "balanced_accuracy": 0.5, "auc": auc}
    found = texts({"none": [scores] * 2, "zeta:2.8": [scores] * 2}, (30, 300))
    assert ("chance" in found.get("Caution", "")) is is_chance
    if is_chance:
        assert "AUC 0.5000 with 2 classes" in found["Caution"]


def test_hardly_any_guesser_counts_as_better():
    generator = torch.Generator().manual_seed(0)
    dataset = make_dataset((60, 30, 10))
    labels = dataset.test.labels
    cautioned = 0
    for _ in range(200):
        scores = classify(torch.randn(len(labels), 3, generator=generator), labels)
        made = make_comparison({"none": [scores]}, dataset=dataset)
        cautioned += made.not_better_than is not None
    assert cautioned >= 190


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


@pytest.mark.parametrize(
    ("metric", "value", "text", "difference"),
    [
        ("error", 0.05, "5.00 %", "+5.00 points"),
        ("error", 0.00001, "0.00 %", "0.00 points"),
        ("auc", 0.5, "0.5000", "+0.5000"),
        ("ece", 0.12, "12.00 %", "+12.00 points"),
        ("error", -0.12, "-12.00 %", "−12.00 points"),
        ("error", -0.00001, "-0.00 %", "0.00 points"),
    ],
)
def test_numbers_have_their_units(metric, value, text, difference):
    assert METRICS[metric].format(value) == text
    assert METRICS[metric].format_difference(value) == difference


# what it would take


def test_the_correction_covers_methods_and_metrics():
    made = make_comparison(CLEAR, dataset=make_dataset(MANY))
    assert made.tested == ["error", "nll_scaled", "ece_scaled"]
    family = [d for name in made.tested for d in made.differences("none", name)]
    expected = {(d.method, d.metric): d.p_holm for d in holm(family)}
    assert len(family) == 9
    for d in family:
        assert d.p_holm == pytest.approx(expected[d.method, d.metric])
    smallest = min(family, key=lambda d: d.p)
    assert smallest.p_holm == pytest.approx(9 * smallest.p)
    # of the other metrics nothing is claimed
    assert not any(d.significant or d.p_holm for d in made.differences("none", "ece"))
    assert "over 9 comparisons, 3 methods × 3 metrics" in texts(CLEAR)["Verdict"]


def test_the_report_says_how_many_seeds_it_would_take():
    made = make_comparison(NOISY, dataset=make_dataset(MANY))
    deviations = [d.sd for d in made.differences("none")]
    spread = math.sqrt(sum(sd**2 for sd in deviations) / len(deviations))
    assert made.spread("none") == pytest.approx(spread)
    close = {"none": [0.10, 0.12, 0.11], "zeta:2.8": [0.103, 0.118, 0.112]}
    made = make_comparison(close, dataset=make_dataset(MANY), temperature=None)
    counts = [seeds_needed(target, made.spread("none")) for target in (0.01, 0.005)]
    text = texts(close, temperature=None)["Power"]
    assert f"{counts[0]} seeds for a difference of 1 point and {counts[1]} for 0.5 points" in text
    corrected = [seeds_needed(target, made.spread("none"), 0.05 / 3) for target in (0.01, 0.005)]
    text = texts(close)["Power"]
    assert f"needs {corrected[0]} seeds for a difference of 1 point and {corrected[1]} for" in text
    assert f"({counts[0]} and {counts[1]} for one method and one metric, without correc" in text
    assert "Power" not in texts({"none": [0.1], "zeta:2.8": [0.1]})


def test_a_small_test_split_cannot_show_small_differences():
    scores = {"none": [0.10, 0.12, 0.11], "zeta:2.8": [0.11, 0.12, 0.13]}
    text = texts(scores, (50, 50, 50))["Power"]
    assert "0.5 points" not in text
    assert "one of the 150 test samples changes it by 0.667 points" in text
    text = texts(scores, (10, 10, 10))["Power"]
    assert text.startswith("A difference of 1 point cannot be resolved: one of the 30 test samples")


def test_two_seeds_with_wide_intervals_are_cautioned():
    wide = {"none": [0.10, 0.12], "zeta:2.8": [0.11, 0.10]}
    assert "With two seeds, 95 % intervals reach ±19.1 points" in texts(wide)["Caution"]
    assert "Caution" not in texts({label: [*runs, 0.11] for label, runs in wide.items()})
    assert "Caution" not in texts({"none": [0.10, 0.12], "zeta:2.8": [0.1001, 0.12]})


def test_leaks_in_the_data_come_before_what_it_would_take():
    leak = "Duplicates across splits: 3 groups of identical samples in more than one split"
    dataset = replace(make_dataset(MANY), notes=("resized to 64 × 64", leak))
    found = dict(summarise(make_comparison(CLEAR, dataset=dataset)))
    assert list(found)[:3] == ["Verdict", "Caution", "Power"]
    assert found["Caution"] == f"{leak}."


@pytest.mark.parametrize(
    ("rate", "converged"),
    [([0.5, 0.3, 0.2, 0.19, 0.188, 0.187], True), ([0.6, 0.5, 0.4, 0.3, 0.2, 0.1], False)],
)
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_report_says_whether_training_had_converged(rate, converged, split):
    made = make_comparison(CLEAR, dataset=make_dataset(MANY), epochs=6)
    # the validation curve counts, where there is one
    other = {"test": {"error": 0.5}} if split == "val" else {}
    curve = [{"epoch": k, **other, split: {"error": value}} for k, value in enumerate(rate, 1)]
    curves = dict.fromkeys(made.curves, curve)
    text = dict(summarise(replace(made, curves=curves)))["Training"]
    assert text.startswith("558 optimiser steps per run (6 epochs of 93, batch size 128)")
    assert "an epoch skips 96 of 12,000 samples (0.8 %)" in text
    title = {"val": "validation", "test": "test"}[split]
    if converged:
        # by the line through the last three epochs
        assert f"Training had converged: towards the end, {title} error rate" in text
        assert "(largest mean change −0.30 points)" in text
    else:
        assert f"Training had not converged: towards the end, {title} error rate" in text
        assert "no mixing (−20.00 points)" in text
        assert "--epochs 12" in text


def test_a_flat_curve_at_chance_is_not_called_converged():
    scores = {"none": [0.67, 0.66, 0.67], "zeta:2.8": [0.66, 0.67, 0.67]}
    made = make_comparison(scores, dataset=make_dataset(MANY), epochs=6)
    flat = [{"epoch": k, "test": {"error": 0.67}, "val": {"error": 0.67}} for k in range(1, 7)]
    text = dict(summarise(replace(made, curves=dict.fromkeys(made.curves, flat))))["Training"]
    assert "had converged" not in text
    assert text.endswith("Convergence cannot be judged, because no method is better than chance.")


def test_a_few_epochs_do_not_tell_whether_training_had_converged():
    assert "Too few epochs" in texts(CLEAR, epochs=3)["Training"]
    assert "converged" in texts(CLEAR, epochs=4)["Training"]


def test_a_kept_last_batch_skips_nothing():
    made = make_comparison(CLEAR, dataset=make_dataset(MANY))
    kept = replace(made, recipe=made.recipe.change(last_batch="keep"))
    text = dict(summarise(kept))["Training"]
    assert text.startswith("282 optimiser steps per run (3 epochs of 94, batch size 128). ")


def test_the_verdict_on_calibration_goes_by_scaled_scores():
    """Worse as they come, equal after scaling: that is mixing's underconfidence, no finding."""

    def run(nll, error):
        return {"error": error, "nll": nll, "ece": nll, "nll_scaled": 0.3, "ece_scaled": 0.02}

    errors = [0.10, 0.11, 0.12]
    scores = {"none": [run(0.3, e) for e in errors], "zeta:2.8": [run(0.6, e) for e in errors]}
    text = texts(scores, temperature=0.5)["Calibration"]
    assert "No method differs significantly from no mixing in NLL after temperature" in text
    assert "0.50 for no mixing and 0.50 for zeta:2.8" in text


def test_without_a_temperature_there_is_no_verdict_on_calibration():
    made = make_comparison(CLEAR, dataset=replace(make_dataset(MANY), val=None), temperature=None)
    assert made.tested == ["error"]
    assert dict(summarise(made))["Calibration"].startswith(
        "NLL and ECE are shown without temperature scaling, because made has no validation split."
    )
    assert "earlier version" in texts(CLEAR, temperature=None)["Calibration"]


@pytest.mark.parametrize(
    ("counts", "start"),
    [
        ((10, 30), "AUC: the area under"),
        ((10, 30, 10), "balanced accuracy: the mean of"),
        (MANY, None),
    ],
)
def test_a_primary_metric_that_is_not_the_error_is_explained(counts, start):
    found = texts({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.1]}, counts)
    assert found.get("Metric", "").startswith(start or "")
    assert ("Metric" in found) is (start is not None)
