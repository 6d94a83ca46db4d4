"""Classification metrics: how each is computed, printed and selected, and its chance level.

Also temperature scaling of a trained network.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_calibration_error,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multilabel_confusion_matrix,
)

# bins of the expected calibration error, as in Guo et al. (2017)
BINS = 15
# a split whose largest class is at most this many times its smallest counts as balanced
BALANCED = 1.5
# up to this many classes a record has the whole confusion matrix; for 1,000 it would be 6 MB
DENSE_CLASSES = 100
# logits that are processed at a time, in 64 MB
MANY_LOGITS = 1 << 24
Confusion: TypeAlias = list[list[int]] | dict[str, Any]
"""The rows of a confusion matrix, or {"classes": n, "cells": [[true, predicted, count], …]}."""
# temperatures from 1/100 to 100
LOG_TEMPERATURES = (-math.log(100), math.log(100))


@dataclass(frozen=True)
class Metric:
    """How a metric is named, printed and ordered. Values are stored as fractions."""

    name: str
    title: str
    """In sentences: "error rate"."""
    short: str
    """In table headings: "error"."""
    higher_is_better: bool
    percent: bool = True
    """Whether it is printed in percent, and its differences in percentage points."""
    digits: int = 2
    meaning: str = ""
    """A one-line explanation, if the name needs one."""

    @property
    def heading(self) -> str:
        """The heading of a column: "error %"."""
        return f"{self.short} %" if self.percent else self.short

    @property
    def axis_label(self) -> str:
        """The label of an axis: "error rate, %"."""
        return f"{self.title}, %" if self.percent else self.title

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.higher_is_better else -1

    def scale(self, value: float) -> float:
        """A value in the unit that is printed."""
        return 100 * value if self.percent else value

    def number(self, value: float) -> str:
        """A value without its unit."""
        return f"{self.scale(value):.{self.digits}f}"

    def format(self, value: float, spread: float | None = None) -> str:
        """A value with its unit, and ± `spread` if given.

        >>> METRICS["error"].format(0.0312), METRICS["auc"].format(0.98765, 0.001)
        ('3.12 %', '0.9877 ± 0.0010')
        """
        text = self.number(value)
        if spread is not None:
            text += f" ± {self.number(spread)}"
        return f"{text} %" if self.percent else text

    @property
    def better(self) -> str:
        return f"{'higher' if self.higher_is_better else 'lower'} is better"

    def signed(self, value: float) -> str:
        """A difference with its sign and without its unit; zero has no sign."""
        text = f"{self.scale(value):+.{self.digits}f}".replace("-", "−")
        return text if text.strip("+−0.") else text[1:]

    def format_difference(self, value: float) -> str:
        """A difference with its sign and unit.

        >>> METRICS["error"].format_difference(-0.0031), METRICS["nll"].format_difference(0.25)
        ('−0.31 points', '+0.2500')
        """
        return f"{self.signed(value)} points" if self.percent else self.signed(value)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("error", "error rate", "error", False),
        Metric("accuracy", "accuracy", "accuracy", True),
        Metric(
            "balanced_accuracy",
            "balanced accuracy",
            "balanced accuracy",
            True,
            meaning="the mean of the per-class recalls, so that a rare class counts as much as a "
            "frequent one",
        ),
        Metric("f1_micro", "micro F1", "micro F1", True),
        Metric("f1_macro", "macro F1", "macro F1", True),
        Metric(
            "auc",
            "AUC",
            "AUC",
            True,
            percent=False,
            digits=4,
            meaning="the area under the ROC curve, the probability that a random sample of a class "
            "gets a higher score for it than a random sample of another; 0.5 is chance",
        ),
        Metric("nll", "negative log-likelihood", "NLL", False, percent=False, digits=4),
        Metric("ece", "expected calibration error", "ECE", False),
        Metric("nll_scaled", "NLL after temperature scaling", "NLL (T)", False, False, 4),
        Metric("ece_scaled", "ECE after temperature scaling", "ECE (T)", False),
        Metric(
            "map",
            "mean average precision",
            "mAP",
            True,
            meaning="the area under the precision-recall curve, averaged over labels",
        ),
        Metric("hamming", "Hamming loss", "Hamming loss", False),
    )
}
# with the temperature fitted on the validation split after training; `classify` has the others
SCALED = {"nll_scaled": "nll", "ece_scaled": "ece"}
MULTI_LABEL_ONLY = ("map", "hamming")
# of samples with one class each
EVALUATED = tuple(name for name in METRICS if name not in (*SCALED, *MULTI_LABEL_ONLY))
# the metrics in a report on a multi-label dataset, the primary one first
MULTI_LABEL_METRICS = ("map", "auc", "f1_macro", "hamming", "nll", "ece")


def check_metric(name: str, *, multi_label: bool) -> str:
    """The name of a metric; raises if there is none of that name for this kind of dataset."""
    names = (*EVALUATED, *MULTI_LABEL_ONLY) if multi_label else EVALUATED
    if name not in names:
        raise ValueError(f"metric must be one of {', '.join(names)}, got {name!r}.")
    return name


# fractions of all samples
FRACTIONS = ("error", "accuracy", "f1_micro")
# means over classes of fractions of their samples; so is the AUC of a confident model
CLASS_MEANS = ("balanced_accuracy", "f1_macro", "auc")


def choose_metrics(counts: Tensor, *, multi_label: bool = False) -> list[str]:
    """The metrics to report for a split with `counts` samples per class, the primary one first.

    The primary metric is the mean average precision for several labels per sample, the AUC for two
    classes, the error rate for balanced classes, and balanced accuracy otherwise. Calibration (NLL,
    ECE) comes last.

    >>> choose_metrics(torch.tensor([1, 1, 2]))
    ['balanced_accuracy', 'f1_macro', 'error', 'nll', 'ece']
    """
    if multi_label:
        return list(MULTI_LABEL_METRICS)
    balanced = bool(counts.min() > 0 and counts.max() <= BALANCED * counts.min())
    names = ["error"] if balanced else ["balanced_accuracy", "f1_macro", "error"]
    if len(counts) == 2:
        names.insert(0, "auc")
    return [*names, "nll", "ece"]


def primary_metric(counts: Tensor, *, auc: bool = True, multi_label: bool = False) -> str:
    """The first of `choose_metrics`.

    auc: False excludes the AUC, whose standard error cannot be computed from a confusion matrix.

    >>> primary_metric(torch.tensor([30, 10])), primary_metric(torch.tensor([30, 10]), auc=False)
    ('auc', 'balanced_accuracy')
    """
    names = choose_metrics(counts, multi_label=multi_label)
    return next(name for name in names if auc or name != "auc")


def chance_level(metric: str, counts: Tensor, *, samples: int | None = None) -> float | None:
    """The best value of a classifier that ignores its input; None if no formula is known.

    counts: samples per class. For the error rate this is the majority-class baseline.
    samples: the number of samples of a multi-label split, whose counts are those of each label.

    >>> counts = torch.tensor([3, 1])
    >>> [chance_level(name, counts) for name in ("error", "accuracy", "balanced_accuracy", "ece")]
    [0.25, 0.75, 0.5, None]
    """
    present = counts[counts > 0].double()
    if samples is not None:
        shares = present / samples
        rarer = torch.minimum(shares, 1 - shares)
        values = {"map": shares, "hamming": rarer, "auc": torch.full_like(shares, 0.5)}
        return float(values[metric].mean()) if metric in values else None
    if len(present) < 2:
        return None
    shares = present / present.sum()
    majority = float(shares.max())
    return {
        "error": 1 - majority,
        "accuracy": majority,
        "f1_micro": majority,
        "balanced_accuracy": 1 / len(present),
        "auc": 0.5,
        "nll": float(-(shares * shares.log()).sum()),
    }.get(metric)


def resolution(metric: str, counts: Tensor) -> float:
    """The smallest change of a metric when one test prediction flips.

    counts: test samples per class. 0 for metrics that change with every probability.

    >>> counts = torch.tensor([30, 10])
    >>> resolution("error", counts), round(resolution("auc", counts), 4)
    (0.025, 0.0167)
    """
    if metric in FRACTIONS:
        return 1 / int(counts.sum())
    if metric in CLASS_MEANS:
        # a sample of the largest class changes the mean least
        return 1 / (int((counts > 0).sum()) * int(counts.max()))
    return 0.0


def classify(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """All EVALUATED metrics as fractions; classes without a sample in `labels` do not count.

    labels: classes [n], or a 0/1 matrix [n, classes] (`classify_multi_label`).

    The AUC is MedMNIST's: the mean of one-against-rest areas, for two classes that of class 1.

    >>> scores = classify(torch.eye(3) * 9, torch.tensor([0, 1, 1]))
    >>> round(scores["error"], 3), scores["balanced_accuracy"]
    (0.333, 0.75)
    """
    logits, labels = logits.detach().float(), labels.detach()
    if labels.ndim == 2:
        return classify_multi_label(logits, labels)
    classes = logits.shape[1]
    probabilities = logits.softmax(1)
    # from the logits: after softmax, two different ones may be equal
    predictions = logits.argmax(1)
    # not from the whole matrix, which takes 800 MB for 10,000 classes
    zeros, ones = probabilities.new_zeros(classes, dtype=torch.float64), torch.ones_like(labels)
    hits = zeros.index_add(0, labels, (predictions == labels).double())
    actual, predicted = (zeros.index_add(0, x, ones.double()) for x in (labels, predictions))
    recalls, f1 = hits / actual.clamp_min(1), 2 * hits / (actual + predicted).clamp_min(1)
    # read all at once: every read of a number synchronises with the device
    right, recall, f1_macro, auc, nll, ece = torch.stack(
        [
            hits.sum(),
            recalls.sum() / (actual > 0).sum(),
            # a class that is absent but predicted counts as a mistake, as in scikit-learn
            f1.sum() / (actual + predicted > 0).sum(),
            _auc(probabilities, labels, actual),
            F.cross_entropy(logits, labels),
            multiclass_calibration_error(
                probabilities, labels, num_classes=classes, n_bins=BINS, validate_args=False
            ),
        ]
    ).tolist()
    # from integers, so that 2 errors in 359 are exactly 2/359
    accuracy = right / len(labels)
    return {
        "error": 1 - accuracy,
        "accuracy": accuracy,
        "balanced_accuracy": recall,
        # with one label per sample, micro F1 is the accuracy
        "f1_micro": accuracy,
        "f1_macro": f1_macro,
        "auc": auc,
        "nll": nll,
        "ece": ece,
    }


def classify_multi_label(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """The metrics of a multi-label set; probabilities above one half are predictions.

    Average precision, AUC and F1 are means over labels that have both positive and negative
    samples. `error` counts samples with any wrong label, `hamming` wrong labels.

    >>> scores = classify_multi_label(torch.tensor([[9.0, -9], [9, 9]]), torch.eye(2))
    >>> scores["hamming"], scores["error"], scores["map"]
    (0.25, 0.5, 0.75)
    """
    probabilities, truth = logits.sigmoid(), labels > 0.5
    right = (logits > 0) == truth
    true_negative, false_positive, false_negative, true_positive = confusion(
        logits, labels
    ).T.double()
    positives, negatives = true_positive + false_negative, true_negative + false_positive
    scored = (positives > 0) & (negatives > 0)
    f1 = 2 * true_positive / (2 * true_positive + false_positive + false_negative).clamp_min(1)
    recalls = true_positive / positives.clamp_min(1), true_negative / negatives.clamp_min(1)
    ranked = [(probabilities[:, k], truth[:, k].int()) for k in scored.nonzero().flatten().tolist()]
    areas, precisions = (
        torch.stack([area(*pair) for pair in ranked]).mean() if ranked else math.nan
        for area in (binary_auroc, binary_average_precision)
    )
    total = true_positive.sum()
    return {
        "error": 1 - int(right.all(1).sum()) / len(labels),
        "accuracy": int(right.all(1).sum()) / len(labels),
        "balanced_accuracy": float(((recalls[0] + recalls[1]) / 2)[scored].mean()),
        "f1_micro": float(2 * total / (2 * total + (~right).sum()).clamp_min(1)),
        "f1_macro": float(f1[scored].mean()),
        "auc": float(areas),
        "nll": float(F.binary_cross_entropy_with_logits(logits, labels)),
        "ece": float(binary_calibration_error(probabilities.flatten(), truth.flatten(), BINS)),
        "map": float(precisions),
        "hamming": int((~right).sum()) / right.numel(),
    }


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T for which softmax(logits / T) has the least cross entropy (Guo et al., 2017).

    Targets are smoothed by 1 / (n + 2), as Platt (1999) does: T of a split without a mistake would
    be 0. Below 1 the network is underconfident on these samples, above 1 overconfident.

    labels: classes [n], or a 0/1 matrix [n, classes], for sigmoid instead of softmax.

    >>> logits = torch.tensor([[1.0, -1.0]] * 3 + [[-1.0, 1.0]])
    >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 0])), 2)
    2.25
    """
    # enough samples to fit one parameter
    some = slice(None, None, 1 + logits.numel() // MANY_LOGITS)
    # on the CPU, because every value of the loss is read
    logits, labels = logits[some].detach().cpu().double(), labels[some].cpu()
    smoothing = 1 / (len(labels) + 2)

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        if labels.ndim == 2:
            targets = labels + smoothing * (0.5 - labels)
            return float(F.binary_cross_entropy_with_logits(scaled, targets.double()))
        return float(F.cross_entropy(scaled, labels, label_smoothing=smoothing))

    # golden-section search, as the loss has one minimum: training needs no scipy
    low, high = LOG_TEMPERATURES
    while high - low > 1e-4:
        step = (math.sqrt(5) - 1) / 2 * (high - low)
        if loss(high - step) < loss(low + step):
            high = low + step
        else:
            low = high - step
    return math.exp((low + high) / 2)


def scaled_scores(logits: Tensor, labels: Tensor, temperature: float) -> dict[str, float]:
    """The SCALED metrics of a split at a temperature that was fitted on another one."""
    scores = classify(logits / temperature, labels)
    return {name: scores[plain] for name, plain in SCALED.items()}


def confusion(logits: Tensor, labels: Tensor) -> Tensor:
    """Counts [true class, predicted class].

    Of a 0/1 matrix, [label, 4]: true negatives, false positives, false negatives, true positives.
    """
    if labels.ndim == 2:
        predictions, classes = (logits > 0).int(), logits.shape[1]
        counts = multilabel_confusion_matrix(predictions, labels.int(), classes)
        return counts.flatten(1)
    return multiclass_confusion_matrix(logits, labels, logits.shape[1], validate_args=False)


def count_confusion(logits: Tensor, labels: Tensor) -> Confusion:
    """`confusion` as a record stores it; of many classes, only the pairs that occur.

    >>> count_confusion(torch.eye(3), torch.tensor([0, 1, 1]))
    [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    """
    classes = logits.shape[1]
    if labels.ndim == 2 or classes <= DENSE_CLASSES:
        rows: list[list[int]] = confusion(logits, labels).tolist()
        return rows
    pairs, counts = torch.unique(labels * classes + logits.argmax(1), return_counts=True)
    cells = torch.stack([pairs // classes, pairs % classes, counts], 1)
    return {"classes": classes, "cells": cells.tolist()}


def dense_confusion(stored: Confusion) -> Tensor:
    """The matrix of `count_confusion`, [true class, predicted class]."""
    if isinstance(stored, list):
        return torch.tensor(stored)
    true, predicted, counts = torch.tensor(stored["cells"]).T
    matrix = torch.zeros(stored["classes"], stored["classes"], dtype=torch.int64)
    matrix[true, predicted] = counts
    return matrix


def count_right(stored: Confusion) -> tuple[Tensor, Tensor]:
    """Correctly predicted and all samples of each class, [classes], from `count_confusion`."""
    if isinstance(stored, list):
        matrix = torch.tensor(stored)
        return matrix.diag(), matrix.sum(1)
    true, predicted, counts = torch.tensor(stored["cells"]).T
    zeros = counts.new_zeros(stored["classes"])
    right = zeros.index_add(0, true, counts * (true == predicted))
    return right, zeros.index_add(0, true, counts)


def _auc(probabilities: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Mean area over the classes with samples, from the ranks of all scores; ties count half.

    One sort for all classes: class by class, 100 classes take 6,000 GPU operations instead of 20.
    """
    if probabilities.shape[1] > DENSE_CLASSES:
        return _mean_area(probabilities, labels, counts)
    scores = probabilities.T.contiguous()
    ordered = scores.sort(1).values
    below, to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    ranks = (below + to + 1).double() / 2
    own = labels == torch.arange(len(scores), device=labels.device)[:, None]
    others = len(labels) - counts
    areas = ((ranks * own).sum(1) - counts * (counts + 1) / 2) / (counts * others)
    present = counts > 0
    mean = areas[1] if len(areas) == 2 else torch.where(present, areas, 0).sum() / present.sum()
    return torch.where(present.sum() > 1, mean, float("nan"))


def _mean_area(probabilities: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """The mean over classes of one-against-rest areas, by comparing all pairs of samples.

    10,000 samples of 10,000 classes take a second, and four minutes with one curve per class.
    """
    wins = []
    step = MANY_LOGITS // len(labels) + 1
    for first in range(0, len(labels), step):
        rows = slice(first, first + step)
        own = labels[rows]
        # the scores of all samples for the class of each of these rows, and of the rows themselves
        others, value = probabilities[:, own], probabilities[rows].gather(1, own[:, None])[:, 0]
        negative = labels[:, None] != own
        wins.append((((others < value) + 0.5 * (others == value)) * negative).sum(0))
    total = torch.zeros_like(counts).index_add(0, labels, torch.cat(wins).double())
    present = counts > 0
    areas = total / (counts * (len(labels) - counts))
    mean = torch.where(present, areas, 0).sum() / present.sum()
    return torch.where(present.sum() > 1, mean, float("nan"))
