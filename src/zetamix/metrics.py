"""How good a classifier is: the measures of the paper's tables, and calibration."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_auroc,
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
    multiclass_f1_score,
)

# bins of the expected calibration error, as in Guo et al. (2017)
BINS = 15

# shares of test samples, and shares of each class on average; areas under the curve of two classes
# are such a mean where a model is sure of itself
SHARES = ("error", "accuracy", "f1_micro")
MEAN_SHARES = ("balanced_accuracy", "f1_macro", "auc")
# name: (what a reader calls it, whether more is better)
METRICS = {
    "error": ("error rate", False),
    "accuracy": ("accuracy", True),
    "balanced_accuracy": ("balanced accuracy", True),
    "f1_micro": ("micro F1", True),
    "f1_macro": ("macro F1", True),
    "auc": ("AUC", True),
    "nll": ("negative log-likelihood", False),
    "ece": ("expected calibration error", False),
}


def guessed(metric: str, counts: Tensor) -> float | None:
    """The best that guessing without a look at the samples gets; None where it is not known.

    counts: samples of each class. Of shares of all samples that is the share of the most frequent
        class.

    >>> counts = torch.tensor([3, 1])
    >>> [guessed(metric, counts) for metric in ("error", "accuracy", "balanced_accuracy", "ece")]
    [0.25, 0.75, 0.5, None]
    """
    present = counts[counts > 0].double()
    if len(present) < 2:
        return None
    shares = present / present.sum()
    most = float(shares.max())
    return {
        "error": 1 - most,
        "accuracy": most,
        "f1_micro": most,
        "balanced_accuracy": 1 / len(present),
        "auc": 0.5,
        "nll": float(-(shares * shares.log()).sum()),
    }.get(metric)


def classify(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Every measure of METRICS, as fractions; classes without a sample in `labels` do not count.

    AUC is MedMNIST's: the mean of one-against-rest areas, for two classes the area of class 1.

    >>> scores = classify(torch.eye(3) * 9, torch.tensor([0, 1, 1]))
    >>> round(scores["error"], 3), scores["balanced_accuracy"]
    (0.333, 0.75)
    """
    logits, labels = logits.detach().float(), labels.detach()
    classes = logits.shape[1]
    probabilities = logits.softmax(1)
    present = torch.bincount(labels, minlength=classes) > 0
    # by the logits: two that differ can be the same probability
    chosen = logits.argmax(1)
    how: dict[str, Any] = {"num_classes": classes, "validate_args": False}
    recalls = multiclass_accuracy(chosen, labels, average=None, **how)
    f1 = multiclass_f1_score(chosen, labels, average=None, **how)
    predicted = torch.bincount(chosen, minlength=classes) > 0
    # in whole numbers, so that 2 mistakes in 359 are 2/359 and not a rounding of it
    accuracy = int((chosen == labels).sum()) / len(labels)
    return {
        "error": 1 - accuracy,
        "accuracy": accuracy,
        "balanced_accuracy": float(recalls[present].mean()),
        # with one label each, micro F1 is the accuracy
        "f1_micro": accuracy,
        # a class that is never seen but predicted is a mistake, and counts as scikit-learn's does
        "f1_macro": float(f1[present | predicted].mean()),
        "auc": _auc(probabilities, labels, present),
        "nll": float(torch.nn.functional.cross_entropy(logits, labels)),
        "ece": float(multiclass_calibration_error(probabilities, labels, n_bins=BINS, **how)),
    }


def confusion(logits: Tensor, labels: Tensor) -> Tensor:
    """Counts [true class, predicted class]."""
    return multiclass_confusion_matrix(logits, labels, logits.shape[1], validate_args=False)


def smallest_step(metric: str, counts: Tensor) -> float:
    """How far one test sample that is told right or wrong moves a measure, at the least.

    counts: test samples of each class. 0 for measures that change with every probability.

    >>> counts = torch.tensor([30, 10])
    >>> smallest_step("error", counts), round(smallest_step("auc", counts), 4)
    (0.025, 0.0167)
    """
    if metric in SHARES:
        return 1 / int(counts.sum())
    if metric in MEAN_SHARES:
        # of a sample of the largest class
        return 1 / (int((counts > 0).sum()) * int(counts.max()))
    return 0.0


def _auc(probabilities: Tensor, labels: Tensor, present: Tensor) -> float:
    known = [int(k) for k in present.nonzero()]
    if len(known) < 2:
        return float("nan")
    if probabilities.shape[1] == 2:
        known = [1]
    areas = [binary_auroc(probabilities[:, k], (labels == k).int()) for k in known]
    return float(torch.stack(areas).mean())
