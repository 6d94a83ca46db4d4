"""Measures of a classifier against scikit-learn, MedMNIST's definitions, and by hand."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from zetamix_lab.metrics import (
    BINS,
    DENSE_CLASSES,
    EVALUATED,
    METRICS,
    classify,
    confusion,
    count_confusion,
    evaluated,
    fit_temperature,
    guessing,
    scaled_scores,
)


def batch(classes, size, *, missing=(), sure=1.0, seed=0):
    """Logits that are right more often than not, and labels without the missing classes."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.tensor([k for k in range(classes) if k not in missing])
    labels = allowed[torch.randint(len(allowed), (size,), generator=generator)]
    logits = torch.randn(size, classes, generator=generator)
    logits[torch.arange(size), labels] += sure
    return logits, labels


CASES = {
    "two": batch(2, 50),
    "three": batch(3, 40),
    "ten": batch(10, 500),
    "one missing": batch(5, 60, missing=(2,)),
    "three missing": batch(6, 60, missing=(0, 3, 5)),
    "two, both wrong half the time": batch(2, 31, sure=0.0),
    "perfect": batch(4, 30, sure=60.0),
    "one sample each": (torch.eye(3), torch.arange(3)),
    "ties": (
        torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 2.0]]),
        torch.tensor([0, 1, 0, 1]),
    ),
}


def calibration_error(truth, scores):
    gaps = (scores.argmax(1) == truth) - scores.max(1)
    bins = np.digitize(scores.max(1), np.linspace(0, 1, BINS + 1)[1:-1])
    return sum(abs(gaps[bins == k].sum()) for k in range(BINS)) / len(truth)


def medmnists_auc(truth, scores):
    """`getAUC` of MedMNIST's evaluator, for its multi-class and its binary tasks."""
    if scores.shape[1] == 2:
        return sk.roc_auc_score(truth, scores[:, -1])
    # MedMNIST's test splits have every class; a class that is missing has no area
    return np.mean([sk.roc_auc_score(truth == k, scores[:, k]) for k in np.unique(truth)])


# scikit-learn warns that a class is predicted which does not occur
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_scikit_learn_and_medmnist(case):
    logits, labels = CASES[case]
    classes = range(logits.shape[1])
    found, scores = classify(logits, labels), logits.double().softmax(1).numpy()
    truth, predicted = labels.numpy(), logits.argmax(1).numpy()
    expected = {
        "error": 1 - sk.accuracy_score(truth, predicted),
        "accuracy": sk.accuracy_score(truth, predicted),
        "balanced_accuracy": sk.balanced_accuracy_score(truth, predicted),
        "f1_micro": sk.f1_score(truth, predicted, average="micro"),
        "f1_macro": sk.f1_score(truth, predicted, average="macro"),
        "auc": medmnists_auc(truth, logits.softmax(1).numpy()),
        "nll": sk.log_loss(truth, scores, labels=classes),
        "ece": calibration_error(truth, scores),
    }
    assert found == pytest.approx(expected, abs=1e-5)
    # logits of half precision are measured in float32
    half = logits.bfloat16()
    assert classify(half, labels) == classify(half.float(), labels)
    assert list(found) == list(EVALUATED)
    table = sk.confusion_matrix(truth, predicted, labels=classes)
    assert confusion(logits, labels).tolist() == table.tolist()


def test_one_class_has_no_auc():
    logits, labels = torch.randn(5, 3), torch.full((5,), 1)
    found = classify(logits, labels)
    assert math.isnan(found["auc"])
    assert found["balanced_accuracy"] == pytest.approx(found["accuracy"])


def test_whole_numbers_stay_exact():
    logits = torch.eye(2)[torch.tensor([0] * 357 + [1] * 2)]
    found = classify(logits, torch.zeros(359, dtype=torch.int64))
    assert (found["accuracy"], found["error"]) == (357 / 359, 1 - 357 / 359)


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_every_measure_is_of_the_same_predictions(seed, classes):
    """Logits so close that softmax makes them one: no measure may choose another class."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1e-9 * torch.randint(0, 4, (20, classes), generator=generator)
    labels = torch.randint(classes, (20,), generator=generator)
    table, found = confusion(logits, labels), classify(logits, labels)
    assert found["accuracy"] == int(table.diagonal().sum()) / 20
    rows = table.sum(1)
    recalls = table.diagonal()[rows > 0] / rows[rows > 0]
    assert found["balanced_accuracy"] == pytest.approx(recalls.mean().item(), abs=1e-6)


def test_a_metric_says_which_way_is_better():
    good, bad = (classify(*batch(3, 200, sure=sure)) for sure in (5.0, 0.5))
    # confidence can be right by accident; the expected calibration error is not compared
    for name in {*EVALUATED} - {"ece"}:
        assert METRICS[name].sign * (good[name] - bad[name]) > 0


def likely(size, classes=3, *, factor, seed=0):
    """Logits whose softmax at temperature `factor` has the frequencies of the labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(size, classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return factor * logits, labels


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_temperature_undoes_a_factor(factor):
    (logits, labels), test = likely(4000, factor=factor), likely(4000, factor=factor, seed=1)
    temperature = fit_temperature(logits, labels)
    assert temperature == pytest.approx(factor, rel=0.1)
    nll = classify(logits / temperature, labels)["nll"]
    for other in (0.9, 1.1):
        assert nll < classify(logits / (other * temperature), labels)["nll"]
    plain, scaled = classify(*test), scaled_scores(*test, temperature)
    assert (plain["ece"] > 0.1) == (factor != 1.0)
    assert scaled["ece_scaled"] < 0.03
    assert (scaled["nll_scaled"] < plain["nll"] - 0.02) == (factor != 1.0)


def test_a_split_without_mistakes_has_a_finite_temperature():
    logits, labels = batch(4, 30, sure=60.0)
    temperature = fit_temperature(logits, labels)
    assert 0.1 < temperature < 100
    # about as sure as 30 samples allow
    assert classify(logits / temperature, labels)["nll"] == pytest.approx(1 / 32, rel=0.6)


@pytest.mark.slow
def test_ten_thousand_classes_take_seconds_and_a_small_record():
    """A confusion matrix took 600 MB of text, the areas minutes in which no signal was answered."""
    labels = torch.arange(10_000)
    logits = torch.randn(10_000, 10_000)
    began = time.perf_counter()
    assert math.isnan(classify(logits, labels)["auc"])
    assert count_confusion(logits, labels) == []
    assert time.perf_counter() - began < 15
    assert evaluated(DENSE_CLASSES + 1, multi_label=False) == [n for n in EVALUATED if n != "auc"]


def test_guessing_rarely_exceeds_two_standard_errors():
    """Of a balanced split: by the recalls of guessing, whose deviation a simulation gives."""
    counts = torch.tensor([40, 60, 20])
    chance = guessing("error", counts)
    assert (chance.metric, chance.value) == ("balanced_accuracy", pytest.approx(1 / 3))
    hits = torch.distributions.Binomial(counts.double(), torch.tensor(1 / 3)).sample((20_000,))
    deviation = (hits / counts).mean(1).std().item()
    assert chance.highest - chance.value == pytest.approx(2 * deviation, rel=0.03)
    # the AUC where it is the primary metric, and for several labels per sample
    assert guessing("auc", torch.tensor([30, 30])).metric == "auc"
    assert guessing("map", torch.tensor([30, 10]), 60).value == 0.5
    assert guessing("error", torch.tensor([30, 0])) is None
