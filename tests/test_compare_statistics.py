"""What may be claimed: intervals, p-values, several comparisons at once, and the sentences."""

import math

import pytest
import torch
from comparisons import make_comparison, make_dataset
from scipy import stats

from zetamix.measure.statistics import holm, paired_difference, summarise
from zetamix.metrics import METRICS, choose_metrics, classify
from zetamix.report.compare_text import claim, read


def paired(ours, theirs, **how):
    return paired_difference(
        "a", "b", "error", dict(enumerate(ours)), dict(enumerate(theirs)), **how
    )


# numbers


def test_mean_and_deviation_over_seeds():
    found = summarise({0: 0.1, 1: 0.2, 2: 0.6})
    assert found.mean == pytest.approx(0.3)
    assert found.sd == pytest.approx(torch.tensor([0.1, 0.2, 0.6], dtype=torch.float64).std())
    assert found.n == 3
    assert summarise({4: 0.5}).sd is None


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
    by_p = sorted(found, key=lambda each: each.p)
    running = 0.0
    for rank, each in enumerate(by_p):
        running = max(running, min(1.0, each.p * (4 - rank)))
        assert each.p_holm == pytest.approx(running)
    # the order of methods is kept
    assert [each.values for each in found] == [each.values for each in made]


def test_without_a_difference_hardly_anything_is_claimed():
    # 5 methods against one, all alike: Holm keeps the chance of any wrong claim below 5 %
    generator = torch.Generator().manual_seed(3)
    wrong = 0
    for _ in range(1500):
        values = torch.randn(6, 3, generator=generator).tolist()
        wrong += any(each.significant for each in holm([paired(v, values[0]) for v in values[1:]]))
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


# sentences

# so many test samples that their number sets no limit
MANY = (4000, 4000, 4000)
CLEAR = {
    "none": [0.100, 0.110, 0.105],
    "mixup": [0.150, 0.161, 0.154],
    "zeta:2.8": [0.050, 0.061, 0.055],
    "zeta:4.0": [0.100, 0.112, 0.101],
}


def test_what_is_claimed_is_told_with_its_interval():
    made = make_comparison(CLEAR, dataset=make_dataset(MANY))
    assert claim(made, "none", "error") == (
        "Compared with none, error rate is lower (better) with zeta:2.8 by −4.97 points (95 % "
        "interval −5.11 to −4.82), and higher (worse) with mixup:1.0 by +5.00 points (95 % "
        "interval +4.75 to +5.25). Nothing can be claimed for zeta:4.0."
    )
    assert claim(made, "none", "error", brief=True) == (
        "Compared with none, error rate is lower (better) with zeta:2.8 (−4.97 points), and higher "
        "(worse) with mixup:1.0 (+5.00 points). Nothing can be claimed for zeta:4.0."
    )


def test_more_is_better_for_some():
    scores = {
        label: [{"balanced_accuracy": 1 - error, "error": 0.1} for error in errors]
        for label, errors in CLEAR.items()
    }
    made = make_comparison(scores, dataset=make_dataset((10, 30, 10)))
    assert made.primary == "balanced_accuracy"
    assert claim(made, "none", "balanced_accuracy").startswith(
        "Compared with none, balanced accuracy is lower (worse) with mixup:1.0 by −5.00 points (95 "
        "% interval −6.13 to −3.87), and higher (better) with zeta:2.8 by +4.97 points"
    )
    assert made.ranked("balanced_accuracy")[0] == "zeta:2.8"


def test_an_interval_that_contains_0_claims_nothing():
    made = make_comparison({"none": [0.10, 0.12, 0.14], "zeta:2.8": [0.11, 0.10, 0.12]})
    assert claim(made, "none", "error") == (
        "No difference to none in error rate can be claimed (3 seeds). The best mean of all, 11.00 "
        "% with zeta:2.8, differs by −1.00 points, and the 95 % interval, −5.30 to +3.30, contains "
        "0."
    )
    assert claim(made, "zeta:2.8", "error") == (
        "No difference to zeta:2.8 in error rate can be claimed (3 seeds). The best mean beside "
        "zeta:2.8, 12.00 % with none, differs by +1.00 points, and the 95 % interval, −3.30 to "
        "+5.30, contains 0."
    )
    assert claim(made, "none", "nll", brief=True) == (
        "No difference to none in negative log-likelihood can be claimed."
    )


def test_an_interval_that_excludes_0_alone_is_not_enough():
    noisy = {f"zeta:{k}.0": [0.30 + k / 50, 0.20, 0.10] for k in range(2, 6)}
    scores = {"none": [0.20, 0.20, 0.20], "zeta:2.8": [0.15, 0.17, 0.16], **noisy}
    made = make_comparison(scores, dataset=make_dataset(MANY))
    (near,) = [found for found in made.differences("none") if found.excludes_zero]
    assert near.p_holm > 0.05
    assert claim(made, "none", "error") == (
        "No difference to none in error rate can be claimed (3 seeds). The best mean of all, 16.00 "
        "% with zeta:2.8, differs by −4.00 points (95 % interval −6.48 to −1.52). Taken alone, the "
        "interval of zeta:2.8 (p = 0.10) excludes 0; as one of 5 comparisons that may be chance (p "
        "after Holm)."
    )


def test_one_seed_claims_nothing():
    made = make_comparison({"none": [0.2], "zeta:2.8": [0.1]})
    assert claim(made, "none", "error") == (
        "With one seed no difference to none in error rate can be claimed: no interval can be "
        "given. Train more (--seeds 3)."
    )


def test_a_method_without_a_common_seed_is_told():
    made = make_comparison(
        {"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.1]}, missing=[("none", 0), ("zeta:2.8", 1)]
    )
    sentence = "There is no run to hold against none on the same seed."
    assert claim(made, "none", "error") == sentence
    # and told once
    assert [told for word, told in read(made) if word != "Unfinished"] == [sentence]


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
    assert "−0.0169 to +0.0169, contains 0." in claim(made, "none", "auc")


def test_one_method_alone_is_measured():
    alone = make_comparison({"zeta:2.8": [0.1, 0.12]})
    assert read(alone) == [
        (
            "Measured",
            "zeta:2.8 over 2 seeds: error rate 11.00 ± 1.41 %, negative log-likelihood 0.2200 ± "
            "0.0283, expected calibration error 11.00 ± 1.41 %. One method is measured, not "
            "compared.",
        )
    ]
    first = make_comparison({"none": [0.1], "zeta:2.8": [0.1]}, missing=[("zeta:2.8", 0)])
    words = dict(read(first))
    assert list(words) == ["Unfinished", "Measured"]
    assert words["Measured"].endswith(
        "Nothing can be compared before another method has a finished run."
    )


def test_how_far_runs_under_way_are():
    far = {("zeta:2.8", 0): 1.7}
    made = make_comparison(
        {"none": [0.1], "zeta:2.8": [0.1]}, missing=[("zeta:2.8", 0)], unfinished=far
    )
    assert dict(read(made))["Unfinished"] == (
        "1 of 2 runs are finished, and only those are counted. Under way: zeta:2.8 seed 0 at epoch "
        "1 of 3."
    )
    many = {("zeta:2.8", k): 2.0 for k in range(8)}
    made = make_comparison(
        {"none": [0.1] * 8, "zeta:2.8": [0.1] * 8}, missing=list(many), unfinished=many
    )
    assert dict(read(made))["Unfinished"].endswith("zeta:2.8 seed 5 at epoch 2 of 3 and 2 more.")


def test_the_reading_has_an_answer_for_each_reference():
    words = dict(read(make_comparison(CLEAR, dataset=make_dataset(MANY))))
    assert list(words) == ["Answer", "Against mixup:1.0", "Calibration"]
    assert words["Answer"].startswith("Compared with none, error rate is lower (better) with")
    assert words["Against mixup:1.0"].startswith("Compared with mixup:1.0, error rate is lower")
    assert "negative log-likelihood" in words["Calibration"]
    assert "expected calibration error" in words["Calibration"]


GUESSES = "guessing among 3 classes (33.3 % balanced accuracy): train longer, or look at the data"


@pytest.mark.parametrize(
    ("errors", "counts", "caution"),
    [
        ([0.673, 0.664], MANY, f"No method does clearly better than {GUESSES}, before comparing."),
        # always naming one class is right about a third, up to roundings
        ([2 / 3 - 1e-9, 2 / 3], (40, 5, 5), f"No method does clearly better than {GUESSES}, before "
         "comparing."),
        # two standard errors are 2.7 points with 400 of each class, and 17 with 10 of each
        ([0.66, 0.638], MANY, None),
        ([0.66, 0.5], (10, 10, 10), f"No method does clearly better than {GUESSES}, before "
         "comparing."),
        ([0.66, 0.49], (10, 10, 10), None),
        ([0.67], MANY, f"zeta:2.8 does not clearly do better than {GUESSES}."),
        ([0.1], MANY, None),
    ],
)  # fmt: skip
def test_that_no_method_is_better_than_guessing_is_told(errors, counts, caution):
    labels = ["zeta:2.8", "none"][: len(errors)]
    scores = {label: [error] * 2 for label, error in zip(labels, errors, strict=True)}
    words = dict(read(make_comparison(scores, dataset=make_dataset(counts))))
    assert words.get("Caution") == caution
    if caution is not None:
        assert next(iter(words)) == "Caution"


def test_guessing_is_told_for_what_is_finished():
    made = make_comparison(
        {"none": [0.67, 0.67], "zeta:2.8": [0.67, 0.67]},
        dataset=make_dataset(MANY),
        missing=[("zeta:2.8", 1)],
    )
    words = dict(read(made))
    assert list(words)[:2] == ["Unfinished", "Caution"]
    assert words["Caution"].startswith("No method so far does clearly better than guessing among")


def test_of_two_classes_guessing_is_told_by_the_auc():
    dataset = make_dataset((30, 300))

    def told(auc):
        # no sample of the rare class is named
        scores = {"error": 0.09, "balanced_accuracy": 0.5, "auc": auc}
        made = make_comparison({"none": [scores] * 2, "zeta:2.8": [scores] * 2}, dataset=dataset)
        return dict(read(made)).get("Caution")

    assert told(0.9) is None
    assert told(0.51) == (
        "No method does clearly better than guessing among 2 classes (AUC 0.5): train longer, or "
        "look at the data, before comparing."
    )


def test_hardly_any_guesser_counts_as_better():
    # the margin of what is called guessing against guesses that were really made
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
def test_what_methods_are_held_against(labels, expected):
    made = make_comparison({label: [0.1, 0.2] for label in labels})
    assert made.baselines == expected


def test_unfinished_and_failed_runs_are_told():
    made = make_comparison(
        {"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.1]},
        missing=[("zeta:2.8", 1)],
        failures={("zeta:2.8", 1): "The loss is not finite."},
    )
    assert dict(read(made))["Unfinished"] == (
        "3 of 4 runs are finished, and only those are counted. zeta:2.8 seed 1 failed: The loss is "
        "not finite."
    )
    nothing = make_comparison({"none": [0.1]}, missing=[("none", 0)])
    assert [word for word, _ in read(nothing)] == ["Unfinished"]


@pytest.mark.parametrize(
    ("metric", "value", "text", "difference"),
    [
        ("error", 0.05, "5.00 %", "+5.00 points"),
        ("error", 0.00001, "0.00 %", "0.00 points"),
        ("auc", 0.5, "0.5000", "+0.5000"),
        ("ece", 0.12, "12.00 %", "+12.00 points"),
    ],
)
def test_numbers_have_their_units(metric, value, text, difference):
    assert METRICS[metric].format(value) == text
    assert METRICS[metric].format_difference(value) == difference


def test_a_minus_is_a_minus():
    assert METRICS["error"].format_difference(-0.12) == "−12.00 points"
    assert METRICS["error"].format_difference(-0.00001) == "0.00 points"
