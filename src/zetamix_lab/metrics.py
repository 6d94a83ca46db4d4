"""Classification metrics: how each is computed and printed, its chance level, calibration."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# bins of the expected calibration error, as in Guo et al. (2017)
BINS = 15
# a split whose largest class is at most this many times its smallest counts as balanced
BALANCED = 1.5
# up to this many classes a record has the confusion matrix, 6 MB for 1,000, and the AUC
DENSE_CLASSES = 100
# logits that are processed at a time, in 64 MB
MANY_LOGITS = 1 << 24
# a method is better than chance if it is this many standard errors above it: 97.7 % of random
# classifiers are below; the tolerance is for means of equal fractions, which differ by rounding
CHANCE_ERRORS, ROUNDING = 2.0, 1e-6


@dataclass(frozen=True)
class Metric:
    """How a metric is named, printed and ordered. Values are stored as fractions."""

    name: str
    title: str
    """In sentences: "error rate"."""
    short: str
    """In table headings: "error"."""
    sign: int
    """1 if higher is better, else -1."""
    percent: bool = True
    """Whether it is printed in percent, and its differences in percentage points."""
    meaning: str = ""
    """A one-line explanation, if the name needs one."""

    @property
    def digits(self) -> int:
        return 2 if self.percent else 4

    @property
    def heading(self) -> str:
        """The heading of a column: "error %"."""
        return f"{self.short} %" if self.percent else self.short

    @property
    def better(self) -> str:
        return f"{'higher' if self.sign > 0 else 'lower'} is better"

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


RECALLS = "the mean of the per-class recalls, so that a rare class counts as much as a frequent one"
RANKING = (
    "the area under the ROC curve, the probability that a random sample of a class gets a higher "
    "score for it than a random sample of another; 0.5 is chance"
)
PRECISIONS = "the area under the precision-recall curve, averaged over labels"
_TABLE = (
    # name, title, heading, sign, percent, meaning
    Metric("error", "error rate", "error", -1),
    Metric("accuracy", "accuracy", "accuracy", 1),
    Metric("balanced_accuracy", "balanced accuracy", "balanced accuracy", 1, meaning=RECALLS),
    Metric("f1_micro", "micro F1", "micro F1", 1),
    Metric("f1_macro", "macro F1", "macro F1", 1),
    Metric("auc", "AUC", "AUC", 1, False, RANKING),
    Metric("nll", "negative log-likelihood", "NLL", -1, False),
    Metric("ece", "expected calibration error", "ECE", -1),
    Metric("nll_scaled", "NLL after temperature scaling", "NLL (T)", -1, False),
    Metric("ece_scaled", "ECE after temperature scaling", "ECE (T)", -1),
    Metric("map", "mean average precision", "mAP", 1, meaning=PRECISIONS),
    Metric("hamming", "Hamming loss", "Hamming loss", -1),
)
METRICS = {metric.name: metric for metric in _TABLE}
# with the temperature fitted on the validation split after training; `classify` has the others
SCALED = {"nll_scaled": "nll", "ece_scaled": "ece"}
MULTI_LABEL_ONLY = ("map", "hamming")
# of samples with one class each
EVALUATED = tuple(name for name in METRICS if name not in (*SCALED, *MULTI_LABEL_ONLY))


def evaluated(classes: int, *, multi_label: bool) -> list[str]:
    """The metrics of an evaluation of this kind of dataset."""
    names = [*EVALUATED, *MULTI_LABEL_ONLY] if multi_label else [*EVALUATED]
    return [name for name in names if multi_label or name != "auc" or classes <= DENSE_CLASSES]


def choose_metrics(counts: Tensor, *, multi_label: bool = False) -> list[str]:
    """The metrics to report for a split with `counts` samples per class, the primary one first.

    The primary metric is the mean average precision for several labels per sample, the AUC for two
    classes, the error rate for balanced classes, and balanced accuracy otherwise. Calibration (NLL,
    ECE) comes last.

    >>> choose_metrics(torch.tensor([1, 1, 2]))
    ['balanced_accuracy', 'f1_macro', 'error', 'nll', 'ece']
    """
    if multi_label:
        return ["map", "auc", "f1_macro", "hamming", "nll", "ece"]
    balanced = bool(counts.min() > 0 and counts.max() <= BALANCED * counts.min())
    names = ["error"] if balanced else ["balanced_accuracy", "f1_macro", "error"]
    if len(counts) == 2:
        names.insert(0, "auc")
    return [*names, "nll", "ece"]


@dataclass(frozen=True)
class ChanceLevel:
    """What a classifier that ignores its input reaches on a split."""

    metric: str
    value: float
    highest: float
    """Two standard errors above `value`, which guessing rarely exceeds."""
    classes: int
    samples: int


def guessing(primary: str, counts: Tensor, samples: int | None = None) -> ChanceLevel | None:
    """The chance level by which methods are judged; None if only one class has samples.

    It is that of the AUC if this is the primary metric, else of balanced accuracy: rare classes may
    be ranked well and never be predicted. The standard error is that over the samples of the split,
    not over seeds: all seeds are scored on the same samples, so that their mean is hardly more
    precise than a single one.

    counts: samples per class.
    samples: the number of samples of a multi-label split, whose counts are those of each label.

    >>> level = guessing("error", torch.tensor([50, 50]))
    >>> level.metric, level.value, round(level.highest, 3)
    ('balanced_accuracy', 0.5, 0.6)
    """
    present = counts[counts > 0].double()
    if samples is None and len(present) < 2:
        return None
    total = int(counts.sum()) if samples is None else samples
    if samples is None and primary != "auc":
        # a recall is a fraction of the samples of a class, each guessed with the same probability
        metric, value = "balanced_accuracy", 1 / len(present)
        error = math.sqrt(value * (1 - value) * float((1 / present).sum())) / len(present)
    else:
        metric, value = "auc", 0.5
        positive = (counts[:1] if samples is None else counts).double()
        pairs = (positive * (total - positive))[(positive > 0) & (positive < total)]
        # the variance of the Mann-Whitney U statistic; all labels are guessed for the same samples,
        # so that their errors may be correlated
        error = float(((total + 1) / (12 * pairs)).sqrt().sum()) / max(1, len(pairs))
    return ChanceLevel(metric, value, value + CHANCE_ERRORS * error + ROUNDING, len(present), total)


def resolution(metric: str, counts: Tensor) -> float:
    """The smallest change of a metric when one test prediction flips.

    counts: test samples per class. 0 for metrics that change with every probability.

    >>> counts = torch.tensor([30, 10])
    >>> resolution("error", counts), round(resolution("auc", counts), 4)
    (0.025, 0.0167)
    """
    if metric in ("error", "accuracy", "f1_micro"):
        return 1 / int(counts.sum())
    if metric in ("balanced_accuracy", "f1_macro", "auc"):
        # means over classes of fractions of their samples, as is the AUC of a confident model: a
        # sample of the largest class changes them least
        return 1 / (int((counts > 0).sum()) * int(counts.max()))
    return 0.0


def classify(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """All EVALUATED metrics as fractions; classes without a sample in `labels` do not count.

    labels: classes [n], or a 0/1 matrix [n, classes] (`classify_multi_label`).

    The AUC is MedMNIST's: the mean of one-against-rest areas, for two classes that of class 1. It
    is NaN for more than DENSE_CLASSES.

    >>> scores = classify(torch.eye(3) * 9, torch.tensor([0, 1, 1]))
    >>> round(scores["error"], 3), scores["balanced_accuracy"]
    (0.333, 0.75)
    """
    logits, labels = logits.detach().float(), labels.detach()
    if labels.ndim == 2:
        return classify_multi_label(logits, labels)
    classes, probabilities = logits.shape[1], logits.softmax(1)
    # from the logits: after softmax, two different ones may be equal
    predictions = logits.argmax(1)
    right = predictions == labels
    hits, actual, predicted = (
        torch.bincount(part, minlength=classes).double()
        for part in (labels[right], labels, predictions)
    )
    recalls, f1 = hits / actual, 2 * hits / (actual + predicted)
    # of two classes the AUC of the second: the scores of the first may have ties by rounding. That
    # of 10,000 classes takes minutes, and no report has it
    first = 1 if classes == 2 else 0 if classes <= DENSE_CLASSES else classes
    truth = labels[:, None] == torch.arange(first, classes, device=labels.device)
    # with one label per sample, micro F1 is the accuracy
    accuracy = int(right.sum()) / len(labels)
    return {
        "error": 1 - accuracy,
        "accuracy": accuracy,
        "balanced_accuracy": float(recalls[actual > 0].mean()),
        "f1_micro": accuracy,
        # a class that is absent but predicted counts as a mistake, as in scikit-learn
        "f1_macro": float(f1[actual + predicted > 0].mean()),
        "auc": float(_mean_area(binary_auroc, probabilities[:, first:], truth)),
        "nll": float(F.cross_entropy(logits, labels)),
        "ece": float(
            binary_calibration_error(probabilities.amax(1), probabilities.argmax(1) == labels, BINS)
        ),
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
    wrong = (logits > 0) != truth
    tn, fp, fn, tp = confusion(logits, labels).T.double()
    scored = (tp + fn > 0) & (tn + fp > 0)
    f1 = 2 * tp / (2 * tp + fp + fn).clamp_min(1)
    recalls = (tp / (tp + fn).clamp_min(1) + tn / (tn + fp).clamp_min(1)) / 2
    accuracy = int((~wrong).all(1).sum()) / len(labels)
    return {
        "error": 1 - accuracy,
        "accuracy": accuracy,
        "balanced_accuracy": float(recalls[scored].mean()),
        "f1_micro": float(2 * tp.sum() / (2 * tp.sum() + wrong.sum()).clamp_min(1)),
        "f1_macro": float(f1[scored].mean()),
        "auc": float(_mean_area(binary_auroc, probabilities, truth)),
        "nll": float(F.binary_cross_entropy_with_logits(logits, labels)),
        "ece": float(binary_calibration_error(probabilities.flatten(), truth.flatten(), BINS)),
        "map": float(_mean_area(binary_average_precision, probabilities, truth)),
        "hamming": int(wrong.sum()) / wrong.numel(),
    }


def _mean_area(area: Callable[[Tensor, Tensor], Tensor], scores: Tensor, truth: Tensor) -> Tensor:
    """The mean of `area` over the columns with both positive and negative samples; NaN for none."""
    positives = truth.sum(0)
    columns = ((positives > 0) & (positives < len(truth))).nonzero().flatten().tolist()
    areas = [area(scores[:, k], truth[:, k].int()) for k in columns]
    return torch.stack(areas).mean() if areas else scores.new_tensor(math.nan)


# torchmetrics has these as well, with the same last bit, and takes longer to import than torch


def binary_auroc(scores: Tensor, truth: Tensor) -> Tensor:
    right, wrong = _count_positives(scores, truth)
    return torch.trapezoid(right / right[-1], wrong / wrong[-1])


def binary_average_precision(scores: Tensor, truth: Tensor) -> Tensor:
    """The precision at each threshold, weighted by the recall it adds."""
    right, wrong = _count_positives(scores, truth)
    parts = (right / right[-1]).diff() * (right / (right + wrong))[1:]
    return parts.flip(0).sum()


def _count_positives(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """True and false positives at every threshold, from none at the highest to all samples."""
    order = scores.argsort(descending=True)
    scores, hits = scores[order], truth[order].cumsum(0)
    # samples of one score pass a threshold together
    last = F.pad(scores.diff().nonzero().flatten(), (0, 1), value=len(scores) - 1)
    return F.pad(hits[last], (1, 0)), F.pad(last + 1 - hits[last], (1, 0))


def binary_calibration_error(confidence: Tensor, truth: Tensor, bins: int) -> Tensor:
    """The gap between confidence and frequency in bins of equal width, weighted by samples."""
    edges = torch.linspace(0, 1, bins + 1, device=confidence.device)
    index = torch.bucketize(confidence, edges, right=True) - 1
    zeros = confidence.new_zeros(bins + 1)
    count = zeros.index_add(0, index, torch.ones_like(confidence))
    hits, sure = (zeros.index_add(0, index, x) for x in (truth.float(), confidence))
    gaps = hits / count.clamp_min(1) - sure / count.clamp_min(1)
    return (gaps.abs() * (count / len(confidence))).sum()


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T for which softmax(logits / T) has the least cross entropy (Guo et al., 2017).

    Targets are smoothed by 1 / (n + 2), as Platt (1999) does: T of a split without a mistake would
    be 0. Below 1 the network is underconfident on these samples, above 1 overconfident.

    labels: classes [n], or a 0/1 matrix [n, classes], for sigmoid instead of softmax.

    >>> logits = torch.tensor([[1.0, -1.0]] * 3 + [[-1.0, 1.0]])
    >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 0])), 2)
    2.25
    """
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

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

    # the loss has one minimum; temperatures from 1/100 to 100
    bounds = (-math.log(100), math.log(100))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return math.exp(found.x)


def scaled_scores(logits: Tensor, labels: Tensor, temperature: float) -> dict[str, float]:
    """The SCALED metrics of a split at a temperature that was fitted on another one."""
    scores = classify(logits / temperature, labels)
    return {name: scores[plain] for name, plain in SCALED.items()}


def confusion(logits: Tensor, labels: Tensor) -> Tensor:
    """Counts [true class, predicted class].

    Of a 0/1 matrix, [label, 4]: true negatives, false positives, false negatives, true positives.
    """
    classes = logits.shape[1]
    if labels.ndim == 2:
        kinds = 2 * (labels > 0.5) + (logits > 0)
        return torch.stack([(kinds == kind).sum(0) for kind in range(4)], 1)
    pairs = labels * classes + logits.argmax(1)
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def count_confusion(logits: Tensor, labels: Tensor) -> list[list[int]]:
    """`confusion` as a record stores it; empty for more than DENSE_CLASSES.

    >>> count_confusion(torch.eye(3), torch.tensor([0, 1, 1]))
    [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    """
    few = labels.ndim == 2 or logits.shape[1] <= DENSE_CLASSES
    rows: list[list[int]] = confusion(logits, labels).tolist() if few else []
    return rows
