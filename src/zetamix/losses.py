"""Cross entropy of soft targets, which agrees with torch's cross entropy of hard labels."""

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zetamix import checks
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
    """Cross entropy on soft targets, on the scale of `F.cross_entropy` on class indices.

    The mean divides by Σ weight·target, as `F.cross_entropy` does for class indices. For soft
    targets `F.cross_entropy` divides by n, so with class weights its scale changes when mixing
    begins (PyTorch issue 107680), and it differs from this function. Rows count by the sum of their
    targets: a row of zeros does not count.

    logits, targets: [n, classes] or [n, classes, *dense]. Class indices, [n] or [n, *dense], are
        accepted as well.
    ignore_index: the class, or the class index, that does not count.

    >>> logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> weight = torch.tensor([1.0, 5.0, 2.0])
    >>> soft = soft_cross_entropy(logits, F.one_hot(labels).float(), weight=weight)
    >>> torch.allclose(soft, F.cross_entropy(logits, labels, weight=weight))
    True
    """
    checks.check_choice("reduction", reduction, REDUCTIONS)
    checks.check_number("label_smoothing", label_smoothing, low=0, high=1)
    checks.check_tensor("targets", targets)
    if checks.check_tensor("logits", logits).ndim < 2:
        raise ValueError(f"logits must be [n, classes, ...], got {list(logits.shape)}.")
    if targets.is_complex():
        raise TypeError(f"targets must be real numbers or class indices, got {targets.dtype}.")
    classes, logits = logits.shape[1], logits.to(torch.promote_types(logits.dtype, torch.float32))
    if weight is not None:
        if checks.check_tensor("weight", weight).shape != (classes,):
            raise ValueError(
                f"weight must have one number per class, [{classes}], got {list(weight.shape)}."
            )
        weight = weight.to(logits)
    targets = targets.float() if targets.dtype == torch.bool else targets
    if not targets.is_floating_point():
        dense = targets.shape == logits.shape[:1] + logits.shape[2:]
        return F.cross_entropy(
            logits,
            (targets if dense else drop_column(targets)).long(),
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
    checks.check_same("shape", "logits", logits, "targets", targets)
    costs = -logits.log_softmax(1)
    shape = (1, classes, *[1] * (logits.ndim - 2))
    scale = costs.new_ones(shape) if weight is None else weight.view(shape)
    counted = torch.arange(classes, device=targets.device) != ignore_index
    mass = targets.to(logits.dtype) * counted.view(shape)
    # a class with logit -inf and target 0 contributes 0, although inf · 0 is NaN
    finite = costs.masked_fill(torch.isinf(costs) & (mass == 0), 0)
    loss = (1 - label_smoothing) * (finite * scale * mass).sum(1)
    if label_smoothing:
        loss = loss + label_smoothing / classes * (costs * scale).sum(1) * mass.sum(1)
    if reduction == "mean":
        return loss.sum() / (scale * mass).sum()
    return loss.sum() if reduction == "sum" else loss


class SoftCrossEntropy(nn.CrossEntropyLoss):
    """`soft_cross_entropy` as a module, with the arguments of `nn.CrossEntropyLoss`.

    They agree except on soft targets with class weights, where the loss of `nn.CrossEntropyLoss`
    has another scale than on hard labels. This one has the same.

    >>> SoftCrossEntropy(label_smoothing=0.1)(torch.zeros(4, 10), torch.full((4, 10), 0.1))
    tensor(2.3026)
    """

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return soft_cross_entropy(
            logits,
            targets,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,  # type: ignore[arg-type]
        )
