"""Rules: how a plan is applied to each kind of entry, and which rule labels call for."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from zetamix._checks import (
    check_count,
    check_fits,
    check_ignore_index,
    check_label_range,
    check_length,
    check_tensor_labels,
    reads_need_sync,
)
from zetamix.kernels import dispatch
from zetamix.mix.apply import mix
from zetamix.plan import MixPlan
from zetamix.sampling import precise_dtype


@dataclass(frozen=True)
class Samples:
    """Rule for inputs: the weighted sum, in the dtype that came in. Nests of tensors are fine."""

    def mix(self, value: Any, plan: MixPlan) -> Any:
        return mix(value, plan)


@dataclass(frozen=True)
class Classes:
    """Rule for class indices: [n] or [n, 1] become soft targets [outputs, num_classes].

    Dense labels such as masks [n, h, w] become [outputs, num_classes, h, w]. Where a source holds
    `ignore_index` it contributes nothing, so the targets there sum to the weight of the rest, and
    `soft_cross_entropy` counts the place by that weight.
    """

    num_classes: int
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_count("num_classes", self.num_classes, 1)
        check_ignore_index(self.ignore_index)

    def mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        check_fits("labels", value, plan.batch, plan.device)
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"Class labels must be integers, got {value.dtype}.")
        labels = drop_column(value)
        # small unsigned dtypes cannot hold every class index that they are compared with
        labels = labels.long()
        check_label_range(labels, self.num_classes, self.ignore_index)
        if labels.ndim == 1 and reads_need_sync(labels):
            return _mix_exactly(self._encode(labels), plan)
        if labels.ndim == 1:
            return self._add_up(labels, plan)
        # one class at a time: a one-hot tensor of all classes is as large as the result again
        ignored = range(0) if self.ignore_index is None else (self.ignore_index,)
        layers = [(labels == k).flatten(1) & (k not in ignored) for k in range(self.num_classes)]
        soft = torch.stack([_mix_exactly(layer, plan) for layer in layers], dim=1)
        return soft.view(plan.outputs, self.num_classes, *labels.shape[1:])

    def _add_up(self, labels: Tensor, plan: MixPlan) -> Tensor:
        """Each source's weight added to its class.

        On a CPU faster than a product (128 rows, 8 sources: 48 µs against 127). On a GPU the order
        of the additions, and with it the last bit, would be left to chance.
        """
        weights = plan.weights.double()
        if self.ignore_index is not None:
            labels, counted = self._set_aside(labels)
            weights = weights * counted[plan.indices]
        empty = weights.new_zeros(plan.outputs, self.num_classes)
        return empty.scatter_add_(1, labels[plan.indices], weights).float()

    def _encode(self, labels: Tensor) -> Tensor:
        """One-hot [n, num_classes]; a row that is ignored is all zero."""
        labels, counted = self._set_aside(labels)
        empty = torch.zeros(
            labels.shape[0], self.num_classes, dtype=torch.bool, device=labels.device
        )
        return empty.scatter_(1, labels[:, None], counted[:, None])

    def _set_aside(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Labels with class 0 in place of ignored ones, and which of them count."""
        if self.ignore_index is None:
            return labels, torch.ones_like(labels, dtype=torch.bool)
        counted = labels != self.ignore_index
        return torch.where(counted, labels, 0), counted


@dataclass(frozen=True)
class Soft:
    """Rule for targets that are numbers already: soft labels, multi-hot labels, regression values.

    Any shape; the result is float32, or float64 for float64 targets.
    """

    def mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        check_fits("targets", value, plan.batch, plan.device)
        if value.is_complex():
            raise TypeError(f"Targets must be real numbers, got {value.dtype}.")
        shape = value.shape[1:]
        mixed = _mix_exactly(value.reshape(plan.batch, shape.numel()), plan)
        return mixed.view(plan.outputs, *shape)


@dataclass(frozen=True)
class Anchor:
    """Rule for what cannot be blended, such as file ids: the entry of the heaviest source.

    Besides tensors it takes lists, such as file names; with a plan on a GPU that waits for it.
    """

    def mix(self, value: Any, plan: MixPlan) -> Any:
        if isinstance(value, (list, tuple)):
            check_length("an Anchor entry", len(value), plan.batch)
            return [value[k] for k in plan.anchors().tolist()]
        check_fits("an Anchor entry", value, plan.batch, plan.device)
        return value.index_select(0, plan.anchors())


Rule: TypeAlias = Samples | Classes | Soft | Anchor


def _mix_exactly(rows: Tensor, plan: MixPlan) -> Tensor:
    """Mix targets in float64, so that TF32 or bfloat16 matmul settings cannot reach them."""
    result = torch.float64 if rows.dtype == torch.float64 else torch.float32
    wide = rows.to(precise_dtype(rows.device))
    return dispatch.mix_rows(wide, plan.indices, plan.weights).to(result)


def drop_column(labels: Tensor) -> Tensor:
    """Labels [n, 1] as [n]; all others as they are."""
    return labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels


def infer_rule(labels: Tensor, num_classes: int | None, ignore_index: int | None = None) -> Rule:
    """The rule that the dtype and shape of `labels` call for; an error where they leave it open."""
    check_tensor_labels(labels)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        if num_classes is not None and (labels.ndim < 2 or labels.shape[1] != num_classes):
            hint = "For regression leave num_classes out."
            if labels.dtype == torch.bool and drop_column(labels).ndim == 1:
                hint = "For two classes as false and true pass labels.long()."
            raise ValueError(
                f"Soft labels must be [n, num_classes={num_classes}], got {list(labels.shape)}. "
                f"{hint}"
            )
        return Soft()
    if num_classes is None:
        raise ValueError(
            f"labels are integers ({labels.dtype}), so num_classes is needed to make soft targets. "
            "For regression on integers pass labels.float()."
        )
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise ValueError(
            f"Integer labels of shape {list(labels.shape)} could be multi-hot or dense. Pass "
            "labels.float() for multi-hot labels, or rules=(Samples(), Classes(...)) to ZetaMixup "
            "for dense ones."
        )
    return Classes(num_classes, ignore_index)
