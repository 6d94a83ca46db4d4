"""Significance: intervals, p-values, Holm's correction, and what the report claims from them."""

import math

import pytest
import torch
from comparisons import make_comparison, make_dataset
from golden import check_golden
from scipy import stats

from zetamix.measure import statistics
from zetamix.measure.statistics import holm, paired_difference
from zetamix.metrics import METRICS, choose_metrics, classify
from zetamix.report.compare_text import describe_differences, summarise


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
    assert "lower (better) for zeta:2.8 (−4.97 points, 95 % interval −5.11 to −4.82)" in better
    assert worse.startswith("higher (worse) for mixup:1.0 (+5.00 points")
    assert text.endswith("zeta:4.0 does not differ significantly.")
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
    assert made.ranked("balanced_accuracy")[0] == "zeta:2.8"


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
    assert "zeta:2.8 (p = 0.02, corrected 0.10) is significant on its own" in text


def test_one_seed_claims_nothing():
    made = make_comparison({"none": [0.2], "zeta:2.8": [0.1]})
    assert "cannot be tested with one seed" in describe_differences(made, "none", "error")


def test_a_method_without_a_common_seed_is_reported_once():
    made = make_comparison(
        {"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.1]}, missing=[("none", 0), ("zeta:2.8", 1)]
    )
    assert list(dict(summarise(made))) == ["Incomplete", "Verdict"]
    assert "a seed of no mixing" in dict(summarise(made))["Verdict"]


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
    assert list(first) == ["Incomplete", "Result"]
    assert first["Result"].endswith("No other method has a finished run yet.")


def test_of_many_runs_in_progress_some_are_named():
    many = {("zeta:2.8", k): 2.0 for k in range(8)}
    scores = {"none": [0.1] * 8, "zeta:2.8": [0.1] * 8}
    text = texts(scores, missing=list(many), unfinished=many)["Incomplete"]
    assert text.endswith("zeta:2.8 seed 5 at epoch 2 of 3 and 2 more.")


def test_the_report_has_a_verdict_for_each_baseline():
    headings = texts(CLEAR)
    assert list(headings) == ["Verdict", "Versus mixup:1.0", "Calibration"]
    assert "negative log-likelihood" in headings["Calibration"]
    assert "expected calibration error" in headings["Calibration"]


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
def test_that_no_method_is_better_than_chance_comes_first(errors, counts, is_chance):
    labels = ["zeta:2.8", "none"][: len(errors)]
    scores = {label: [error] * 2 for label, error in zip(labels, errors, strict=True)}
    found = texts(scores, counts)
    assert (next(iter(found)) == "Caution") is is_chance
    if is_chance:
        assert "chance (balanced accuracy 33.33 % with 3 classes)" in found["Caution"]
        # nothing is said about the calibration of a guesser
        assert "Calibration" not in found


def test_chance_is_reported_for_finished_runs():
    scores = {"none": [0.67, 0.67], "zeta:2.8": [0.67, 0.67]}
    found = texts(scores, missing=[("zeta:2.8", 1)])
    assert list(found)[:2] == ["Incomplete", "Caution"]
    assert found["Caution"].startswith("No method so far is significantly better than chance")


@pytest.mark.parametrize(("auc", "is_chance"), [(0.9, False), (0.51, True)])
def test_for_two_classes_chance_is_judged_by_the_auc(auc, is_chance):
    # no sample of the rare class is predicted
    scores = {"error": 0.09, "balanced_accuracy": 0.5, "auc": auc}
    found = texts({"none": [scores] * 2, "zeta:2.8": [scores] * 2}, (30, 300))
    assert ("Caution" in found) is is_chance
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
