"""Rules: how a plan is applied to each entry of a batch, and the rule inferred from labels.

`rules={"image": rules.Blend(), "label": rules.OneHot(10)}` in a transform mixes any batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix._checks import (
    check_count,
    check_ignore_index,
    check_number,
    check_tensor,
    reads_need_sync,
)
from zetamix.kernels import dispatch, numpy_few
from zetamix.kernels.dispatch import Implementation
from zetamix.kernels.numpy_few import FewPlan
from zetamix.kernels.reference import narrow
from zetamix.plan import MixPlan
from zetamix.sampling import precise_dtype

# binary targets of nn.BCEWithLogitsLoss
ONE_LOGIT = "labels.float()[:, None]"


@dataclass(frozen=True)
class Blend:
    """Rule for inputs: the weighted sum of the sources, in the dtype of the input.

    Takes a tensor, or nested dicts, tuples and lists of tensors. Where the plan has boxes, tensors
    [n, ..., height, width] of its size are pasted.

    mean: the mean of the samples, for plans that keep the variance: one number or one per channel,
        in [0, 1] as in torchvision's Normalize. The samples must then lie in [0, 1] or be uint8;
        outputs are clipped to the same range. Without a mean, samples are assumed to be normalised
        to mean 0.
    """

    mean: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        # a tensor or an array becomes a tuple of numbers
        given: Any = self.mean
        numbers = given.tolist() if hasattr(given, "tolist") else given
        object.__setattr__(self, "mean", tuple(numbers) if isinstance(numbers, list) else numbers)
        if self.mean is not None:
            for number in self.mean if isinstance(self.mean, Sequence) else [self.mean]:
                check_number("mean", number, low=0, high=1)

    def mix(self, value: Any, plan: MixPlan, implementation: Implementation = "auto") -> Any:
        def blend(leaf: Tensor) -> Tensor:
            _check_fits("samples", leaf, plan)

            def combine(indices: Tensor, weights: Tensor) -> Tensor:
                return self._blend(leaf, plan, indices, weights, implementation)

            if dispatch.mixes_few(leaf, plan.sources, implementation) and _is_plain(plan.weights):
                few = FewPlan.of(plan.indices, plan.weights, plan.boxes, plan.size)
                if few is not None:
                    pastes = _has_boxes_for(leaf, plan)
                    return dispatch.mix_few(leaf, few, plan.keep_variance, pastes, combine)
            return _paste(combine(plan.indices, plan.sample_weights()), leaf, plan)

        return blend(value) if isinstance(value, Tensor) else pytree.tree_map(blend, value)

    def _blend(
        self,
        leaf: Tensor,
        plan: MixPlan,
        indices: Tensor,
        weights: Tensor,
        implementation: Implementation,
    ) -> Tensor:
        """Eq. 2, or mean + scale · Σ wᵢ (xᵢ − mean) where the plan keeps the variance.

        indices, weights: those of the plan, the weights already scaled.
        """
        if self.mean is None and plan.keep_variance and not leaf.is_floating_point():
            if leaf.dtype not in dispatch.MIXABLE:
                dispatch.refuse_dtype(leaf.dtype)
            # `mean` applies to images in [0, 1] or uint8 only: see `_check_range`
            how = "their mean: pass mean= (in [0, 1], a number or one per channel)"
            if leaf.dtype != torch.uint8:
                how = "floating point: pass samples.float(), normalised"
            raise TypeError(
                f"Keeping the variance of {leaf.dtype} samples needs {how}, or keep_variance=False."
            )
        scale = None if self.mean is None else plan.scale
        if scale is None:
            return dispatch.mix_samples(leaf, indices, weights, implementation)
        largest = self._check_range(leaf)
        wide = leaf.to(torch.promote_types(leaf.dtype, torch.float32))
        mixed = dispatch.mix_samples(wide, indices, weights, implementation)
        each = (-1, *[1] * (leaf.ndim - 1))
        mixed = mixed + largest * self._mean_of(wide) * (1 - scale).to(wide.dtype).view(each)
        return narrow(mixed.clamp(0, largest), leaf.dtype)

    def _check_range(self, leaf: Tensor) -> int:
        """The upper end of the range: 1, or 255 for uint8; raises if `mean` does not apply."""
        if leaf.dtype == torch.uint8:
            return 255
        if not leaf.is_floating_point():
            raise TypeError(f"mean needs samples in [0, 1] or of dtype uint8, got {leaf.dtype}.")
        if not reads_need_sync(leaf) and leaf.numel():
            low, high = (float(bound) for bound in leaf.detach().aminmax())
            if low < 0 or high > 1:
                bytes_as_floats = low >= 0 and high <= 255
                hint = "Do not pass mean for normalised samples."
                raise ValueError(
                    "mean needs samples in [0, 1] or of dtype uint8, got values from "
                    f"{low:g} to {high:g}. {'Divide them by 255.' if bytes_as_floats else hint}"
                )
        return 1

    def _mean_of(self, wide: Tensor) -> float | Tensor:
        """The mean, shaped to fit the channels."""
        if not isinstance(self.mean, Sequence):
            return self.mean or 0.0
        channels = wide.shape[1] if wide.ndim > 1 else 1
        if len(self.mean) != channels:
            raise ValueError(
                f"mean must be one number or one per channel ({channels}), got {len(self.mean)}."
            )
        # filled on the device: a CUDA graph cannot capture a copy from the host
        parts = [wide.new_full((1,), number) for number in self.mean]
        return torch.cat(parts).view(-1, *[1] * (wide.ndim - 2))


@dataclass(frozen=True)
class OneHot:
    """Rule for class indices: [n] or [n, 1] become soft targets [outputs, num_classes].

    Dense labels such as masks [n, h, w] or [n, 1, h, w] become [outputs, num_classes, h, w]. A
    source with the label `ignore_index` contributes nothing, so the target sums to the weight of
    the other sources, and `soft_cross_entropy` weights that position accordingly.
    """

    num_classes: int
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if type(self.num_classes) is not int or self.num_classes < 1:
            check_count("num_classes", self.num_classes, 1)
        if self.ignore_index is not None:
            check_ignore_index(self.ignore_index)

    def mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        _check_fits("labels", value, plan)
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"Class labels must be integers, got {value.dtype}.")
        # small unsigned dtypes cannot hold every class index that they are compared with
        labels = (value if value.ndim == 1 else drop_column(value)).long()
        on_host = labels.device.type == "cpu" and not torch.compiler.is_compiling()
        if labels.ndim == 1 and on_host:
            return self._scatter(labels, plan.indices, plan.weights)
        self._check_range(labels, on_host)
        return self._multiply(labels, plan) if labels.ndim == 1 else self._mix_dense(labels, plan)

    def _check_range(self, labels: Tensor, on_host: bool) -> None:
        """Labels in [0, num_classes), or `ignore_index`: read on a CPU, asserted on a device."""
        if on_host and torch._C._functorch.is_batchedtensor(labels):
            raise TypeError(
                "Class labels cannot be read inside torch.vmap. Mix them outside of it, or as "
                "one-hot floating point targets with Average()."
            )
        ignored = self.ignore_index
        # nearly every batch is valid, which one pass confirms
        if on_host and labels.numel() and ignored is None:
            low, high = labels.aminmax()
            if int(low) >= 0 and int(high) < self.num_classes:
                return
        valid = (labels >= 0) & (labels < self.num_classes)
        message = f"labels must lie in [0, {self.num_classes})"
        if ignored is not None:
            valid = valid | (labels == ignored)
            message += f" or equal ignore_index={ignored}"
        if not on_host:
            torch._assert_async(valid.all(), f"{message}. Is num_classes right?")
        elif labels.numel() and not bool(valid.all()):
            wrong = labels[~valid].flatten()[0].item()
            hint = "Is num_classes right?"
            if self.num_classes == 1:
                hint = f"For one logit per sample, pass {ONE_LOGIT}; for two, pass num_classes=2."
            if wrong < 0 or wrong == 255:
                hint = f"If this label means ignored, pass ignore_index={wrong}."
            raise ValueError(f"{message}, got {wrong}. {hint}")

    def mix_few(self, labels: Tensor, plan: FewPlan) -> Tensor:
        """`mix` for class indices [n], int64, and a plan of few sources on a CPU."""
        if numpy_few.largest_label(labels) >= self.num_classes:
            self._check_range(labels, on_host=True)
        return numpy_few.mix_labels(labels, plan, self.num_classes)

    def _scatter(self, labels: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        """Each source's weight added to its class, for class indices [n] on a CPU.

        Faster than a matrix product on a CPU (128 rows, 8 sources: 48 µs against 127). On a GPU the
        order of the additions, and so the last bit, would not be deterministic.
        """
        self._check_range(labels, on_host=True)
        weights = weights.double()
        if self.ignore_index is not None:
            counted = labels != self.ignore_index
            weights = weights * counted[indices]
            labels = torch.where(counted, labels, 0)
        empty = weights.new_zeros(weights.shape[0], self.num_classes)
        return empty.scatter_add_(1, labels.take(indices), weights).float()

    def _multiply(self, labels: Tensor, plan: MixPlan) -> Tensor:
        """The plan applied to one-hot labels; a row that is ignored is all zero."""
        classes = torch.arange(self.num_classes, device=labels.device)
        hot = labels[:, None] == classes
        if self.ignore_index is not None:
            hot &= classes != self.ignore_index
        return _mix_exactly(hot, plan)

    def _mix_dense(self, labels: Tensor, plan: MixPlan) -> Tensor:
        if plan.size is not None and labels.shape[1:] != plan.size:
            raise ValueError(
                f"Masks must have the height and width of the images, {list(plan.size)}, to paste "
                f"the same boxes, got {list(labels.shape)}. Resize them, or use ZetaMix(paste=0)."
            )
        # one class at a time: a one-hot tensor of all classes would double the memory
        classes = range(self.num_classes)
        layers = [(labels == k) & (k != self.ignore_index) for k in classes]
        return torch.stack([_mix_targets(layer, plan) for layer in layers], dim=1)


@dataclass(frozen=True)
class Average:
    """Rule for numeric targets: soft labels, multi-hot labels, regression values.

    Any shape; the result is float32, or float64 for float64 targets.
    """

    def mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        _check_fits("targets", value, plan)
        if value.is_complex():
            raise TypeError(f"Targets must be real numbers, got {value.dtype}.")
        return _mix_targets(value, plan)


@dataclass(frozen=True)
class FromAnchor:
    """Rule for entries that cannot be averaged, such as ids: the entry of the anchor.

    Takes tensors and lists, such as file names. Lists synchronise with the GPU if the plan is
    there.
    """

    def mix(self, value: Any, plan: MixPlan) -> Any:
        if isinstance(value, (list, tuple)):
            if len(value) != plan.batch_size:
                _refuse_length("a FromAnchor entry", len(value), plan)
            return [value[k] for k in plan.anchors().tolist()]
        _check_fits("a FromAnchor entry", value, plan)
        return value.index_select(0, plan.anchors())


Rule: TypeAlias = Blend | OneHot | Average | FromAnchor


def _is_plain(weights: Tensor) -> bool:
    """Whether NumPy supports the dtype of the weights, and they need no gradients."""
    return weights.dtype in numpy_few.DTYPES and not dispatch.needs_gradients(weights)


def _paste(mixed: Tensor, value: Tensor, plan: MixPlan) -> Tensor:
    """Paste the boxes of the plan into values [n, ..., height, width] of its size."""
    if plan.boxes is None or not _has_boxes_for(value, plan):
        return mixed
    return dispatch.paste(mixed, value.to(mixed.dtype), plan.indices, plan.boxes)


def _has_boxes_for(value: Tensor, plan: MixPlan) -> bool:
    return plan.boxes is not None and value.ndim >= 3 and value.shape[-2:] == plan.size


def _mix_targets(value: Tensor, plan: MixPlan) -> Tensor:
    """Mix targets of any shape; dense ones are pasted where the plan has boxes."""
    shape = value.shape[1:]
    mixed = _mix_exactly(value.reshape(plan.batch_size, shape.numel()), plan)
    return _paste(mixed.view(plan.outputs, *shape), value, plan)


def _mix_exactly(rows: Tensor, plan: MixPlan) -> Tensor:
    """Mix targets in float64, so that TF32 or bfloat16 matmul settings do not affect them."""
    result = torch.float64 if rows.dtype == torch.float64 else torch.float32
    wide = rows.to(precise_dtype(rows.device))
    return dispatch.mix_rows(wide, plan.indices, plan.weights).to(result)


def is_batch(value: object) -> TypeGuard[Tensor]:
    """Whether it is a dense tensor with a batch dimension; `check_tensor` raises otherwise."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return value.ndim > 0 and not value.is_nested


def _check_fits(name: str, value: Tensor, plan: MixPlan) -> None:
    """Raise unless the plan can be applied to the tensor."""
    if not is_batch(value):
        check_tensor(name, value)
    if value.shape[0] != plan.batch_size:
        _refuse_length(name, value.shape[0], plan)
    if value.device != plan.indices.device:
        raise ValueError(
            f"The plan is on {plan.device}, but {name} is on {value.device}. Move one with .to()."
        )


def _refuse_length(name: str, length: int, plan: MixPlan) -> None:
    raise ValueError(
        f"The plan was made for a batch of {plan.batch_size}, but {name} has {length} rows."
    )


def drop_column(labels: Tensor) -> Tensor:
    """Labels [n, 1] as [n], masks [n, 1, h, w] as [n, h, w]; all others as they are."""
    # [n, 1, length] could be an image of height 1
    return labels.squeeze(1) if labels.ndim != 3 and labels.shape[1:2] == (1,) else labels


def infer_rule(labels: Tensor, num_classes: int | None, ignore_index: int | None = None) -> Rule:
    """The rule for labels of this dtype and shape; raises if they are ambiguous."""
    if not isinstance(labels, Tensor) or labels.ndim == 0:
        _refuse_labels(labels)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        if num_classes is not None and (labels.ndim < 2 or labels.shape[1] != num_classes):
            hint = "For regression, do not pass num_classes."
            if drop_column(labels).ndim == 1:
                hint = f"For class indices, pass labels.long(). {hint}"
            if num_classes == 1 and labels.ndim == 1:
                hint = f"For one logit per sample, pass {ONE_LOGIT}."
            if labels.dtype == torch.bool and drop_column(labels).ndim != 2:
                hint = "For two classes, False and True, pass labels.long()."
            raise ValueError(
                f"Soft labels must be [n, num_classes={num_classes}], got {list(labels.shape)}. "
                f"{hint}"
            )
        return Average()
    if num_classes is None:
        raise ValueError(
            f"Integer labels ({labels.dtype}) need num_classes to become soft targets. "
            "For regression, pass labels.float()."
        )
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise ValueError(
            f"Integer labels of shape {list(labels.shape)} are ambiguous: multi-hot or dense. Pass "
            "labels.float() for multi-hot labels, or rules=(Blend(), OneHot(...)) "
            "for dense ones."
        )
    return OneHot(num_classes, ignore_index)


def _refuse_labels(labels: object) -> None:
    got = "a scalar tensor" if isinstance(labels, Tensor) else type(labels).__name__
    if labels is None:
        hint = "To mix samples without labels, pass rules=(Blend(),), or use apply_plan."
    elif isinstance(labels, (Mapping, tuple, list)):
        hint = "For a dict or tuple of targets, pass rules= with one rule per entry."
    else:
        hint = "Mixing needs a batch: apply it after the DataLoader, not to single samples."
    raise TypeError(f"labels must be a tensor with one entry for each sample, got {got}. {hint}")
