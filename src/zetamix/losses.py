"""Losses for soft targets, weighted by class as in `F.cross_entropy`, and training accuracy."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zetamix._checks import check_choice, check_number, check_same_shape, check_tensor
from zetamix.plan import MixPlan, check_is_plan
from zetamix.rules import drop_column

Reduction: TypeAlias = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")


def soft_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross entropy against soft targets that agrees with `F.cross_entropy` on hard ones.

    `logits` and `targets` are [n, classes] or [n, classes, *dense]; integer targets are passed to
    `F.cross_entropy`. "mean" divides by the class-weighted sum of the targets, Σ weight·target; for
    one-hot targets that is the divisor of `F.cross_entropy` for class indices (for soft targets it
    divides by n). The class `ignore_index`, and positions whose targets are all 0, do not count.

    >>> logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> weight = torch.tensor([1.0, 5.0, 2.0])
    >>> soft = soft_cross_entropy(logits, F.one_hot(labels).float(), weight=weight)
    >>> torch.allclose(soft, F.cross_entropy(logits, labels, weight=weight))
    True
    """
    check_choice("reduction", reduction, REDUCTIONS)
    check_number("label_smoothing", label_smoothing, low=0, high=1)
    check_tensor("logits", logits)
    check_tensor("targets", targets)
    if logits.ndim < 2:
        raise ValueError(f"logits must be [n, classes, ...], got {list(logits.shape)}.")
    if targets.is_complex():
        raise TypeError(f"targets must be real numbers or class indices, got {targets.dtype}.")
    classes = logits.shape[1]
    wide = torch.promote_types(logits.dtype, torch.float32)
    if weight is not None:
        weight = _check_class_weights(weight, classes).to(logits.device, wide)
    if targets.dtype == torch.bool:
        targets = targets.float()
    if not targets.is_floating_point():
        return F.cross_entropy(
            logits.to(wide),
            _check_class_indices(targets, logits),
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
    check_same_shape("logits", logits, "targets", targets)
    costs = -logits.to(wide).log_softmax(1)
    shape = (1, classes, *[1] * (logits.ndim - 2))
    scale = costs.new_ones(shape) if weight is None else weight.view(shape)
    counted = torch.arange(classes, device=targets.device) != ignore_index
    mass = targets.to(wide) * counted.view(shape)
    # a class with logit -inf and target 0 contributes 0, although inf · 0 is NaN
    finite = costs.masked_fill(torch.isinf(costs) & (mass == 0), 0)
    loss = (1 - label_smoothing) * (finite * scale * mass).sum(1)
    if label_smoothing:
        loss = loss + label_smoothing / classes * (costs * scale).sum(1) * mass.sum(1)
    if reduction == "mean":
        return loss.sum() / (scale * mass).sum()
    return loss.sum() if reduction == "sum" else loss


def _check_class_weights(weight: Tensor, classes: int) -> Tensor:
    if check_tensor("weight", weight).shape != (classes,):
        raise ValueError(
            f"weight must have one number per class, [{classes}], got {list(weight.shape)}."
        )
    return weight


def _check_class_indices(targets: Tensor, logits: Tensor) -> Tensor:
    """Class indices [n, *dense], int64, for logits [n, classes, *dense]; [n, 1] becomes [n]."""
    expected = logits.shape[:1] + logits.shape[2:]
    indices = targets if targets.shape == expected else drop_column(targets)
    if indices.shape != expected:
        raise ValueError(
            f"Class indices for logits {list(logits.shape)} must be {list(expected)}, got "
            f"{list(targets.shape)}. Soft or multi-hot targets must be floating point."
        )
    return indices.long()


class SoftCrossEntropy(nn.Module):
    """`soft_cross_entropy` as a module; a replacement for `nn.CrossEntropyLoss`.

    >>> SoftCrossEntropy(label_smoothing=0.1)(torch.zeros(4, 10), torch.full((4, 10), 0.1))
    tensor(2.3026)
    """

    weight: Tensor | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        check_number("label_smoothing", label_smoothing, low=0, high=1)
        if weight is not None:
            check_tensor("weight", weight)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return soft_cross_entropy(
            logits,
            targets,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )


def soft_binary_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Binary cross entropy for mixed multi-label or binary targets, smoothed towards 1/2.

    >>> soft_binary_cross_entropy(torch.zeros(4, 5), torch.rand(4, 5))
    tensor(0.6931)
    """
    check_choice("reduction", reduction, REDUCTIONS)
    check_number("label_smoothing", label_smoothing, low=0, high=1)
    check_tensor("logits", logits)
    check_tensor("targets", targets)
    check_same_shape("logits", logits, "targets", targets)
    wide = torch.promote_types(logits.dtype, torch.float32)
    smooth = targets.to(wide) * (1 - label_smoothing) + label_smoothing / 2
    return F.binary_cross_entropy_with_logits(
        logits.to(wide), smooth, weight=weight, pos_weight=pos_weight, reduction=reduction
    )


def expected_loss(
    criterion: Callable[[Tensor, Tensor], Tensor],
    predictions: Tensor,
    targets: Tensor,
    plan: MixPlan,
) -> Tensor:
    """Σ_i w_i · criterion(prediction, target_i) for a criterion that cannot take soft targets.

    `targets` are those of the original batch, before mixing; `criterion` returns one loss per
    sample (`reduction="none"`). Returns one loss per output: take `.mean()` of it. For cross
    entropy this equals the loss against the mixed target, at `plan.sources` times the cost.

    >>> from zetamix.plan import zeta_plan
    >>> plan = zeta_plan(4, sources=2)
    >>> l1 = lambda prediction, target: (prediction - target).abs()
    >>> expected_loss(l1, torch.zeros(4), torch.ones(4), plan)
    tensor([1., 1., 1., 1.])
    """
    check_is_plan(plan)
    _check_rows("predictions", predictions, plan.outputs)
    _check_rows("targets", targets, plan.batch_size)
    terms = []
    for rank in range(plan.sources):
        losses = criterion(predictions, targets.index_select(0, plan.indices[:, rank]))
        if losses.shape != (plan.outputs,):
            raise ValueError(
                f"criterion must return one loss per output, [{plan.outputs}], got "
                f"{list(losses.shape)}. Use reduction='none' and average over other dimensions."
            )
        terms.append(losses * plan.weights[:, rank].to(losses.dtype))
    return sum(terms[1:], terms[0])


def _check_rows(name: str, value: Tensor, rows: int) -> None:
    check_tensor(name, value)
    if value.shape[0] != rows:
        raise ValueError(f"{name} must have {rows} rows for this plan, got {value.shape[0]}.")


def dominant_accuracy(predictions: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The fraction of outputs whose predicted class is the class with the largest target.

    Targets are soft targets or class indices. Outputs whose targets are all 0, and class indices
    equal to `ignore_index`, do not count. For training curves: with ζ-mixup above `GAMMA_MIN`, the
    class with the largest target is that of the anchor.

    >>> dominant_accuracy(torch.eye(3), torch.tensor([[0.9, 0.1, 0.0]] * 3))
    tensor(0.3333)
    """
    check_tensor("predictions", predictions)
    check_tensor("targets", targets)
    if predictions.ndim < 2:
        raise ValueError(f"predictions must be [n, classes, ...], got {list(predictions.shape)}.")
    if targets.is_floating_point() or targets.dtype == torch.bool:
        check_same_shape("predictions", predictions, "targets", targets)
        targets = targets.to(torch.promote_types(targets.dtype, torch.float32))
        best, counted = targets.argmax(1), targets.sum(1) > 0
    else:
        best = _check_class_indices(targets, predictions)
        counted = best != ignore_index
    return ((predictions.argmax(1) == best) & counted).sum() / counted.sum()
