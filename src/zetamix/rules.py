"""Rules: how a plan is applied to each entry of a batch, and the rule inferred from labels.

`rules={"image": rules.Blend(), "label": rules.OneHot(10)}` in a transform mixes any batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix.boxes import Size
from zetamix.checks import (
    check_count,
    check_number,
    check_same,
    check_tensor,
    has_memory,
    reads_need_sync,
)
from zetamix.kernels import dispatch
from zetamix.plan import MixPlan, PlanRule, draw_plan
from zetamix.sampling import MOST_FEW, Draw

# floating point of 16 bits or more, and the integers that float32 holds exactly
MIXABLE = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16),
}
# binary targets of nn.BCEWithLogitsLoss
ONE_LOGIT = "labels.float()[:, None]"


def is_image(shape: Sequence[int]) -> bool:
    """Whether samples are images or volumes, [n, c, ..., h, w] of at least 2 × 2 pixels.

    Boxes are pasted into images and volumes only, and the variance is kept of them only.
    """
    return len(shape) >= 4 and shape[-1] > 1 and shape[-2] > 1


@dataclass(frozen=True)
class Blend:
    """Rule for inputs: the weighted sum of the sources, in the dtype of the input.

    Takes a tensor, or nested dicts, tuples and lists of tensors. Where the plan has boxes, tensors
    [n, ..., height, width] of its size are pasted.

    mean: the mean of images, for plans that keep the variance: one number or one per channel, in
        [0, 1] as in torchvision's Normalize. The images must then lie in [0, 1] or be uint8;
        outputs are clipped to the same range. Without a mean, images are assumed to be normalised
        to mean 0.
    """

    mean: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        # a tensor or an array becomes a tuple of numbers
        given: Any = self.mean
        numbers = given.tolist() if hasattr(given, "tolist") else given
        object.__setattr__(self, "mean", tuple(numbers) if isinstance(numbers, list) else numbers)
        for number in self.means or ():
            check_number("mean", number, low=0, high=1)

    @property
    def means(self) -> Sequence[float] | None:
        """The mean of all channels, or of each of them."""
        return self.mean if self.mean is None or isinstance(self.mean, Sequence) else (self.mean,)

    def mix(self, value: Any, plan: MixPlan, *, looked: bool = False) -> Any:
        """Mix by the plan. looked: whether the range of the values has been checked."""

        def mix_leaf(leaf: Tensor) -> Tensor:
            _check_fits("samples", leaf, plan)
            return self._mix(leaf, plan, looked)

        if isinstance(value, Tensor):
            return mix_leaf(value)
        return pytree.tree_map(mix_leaf, value)

    def _mix(self, leaf: Tensor, plan: MixPlan, looked: bool) -> Tensor:
        if leaf.dtype not in MIXABLE:
            raise TypeError(
                "samples must be floating point of 16 bits or more, uint8, int8 or int16, got "
                f"{leaf.dtype}. Convert measurements with .float(), or if they are complex with "
                "torch.view_as_real. Token ids cannot be mixed: mix their embeddings."
            )
        if not plan.keep_variance or not is_image(leaf.shape):
            return dispatch.mix_samples(leaf, plan)
        if not (leaf.is_floating_point() or (self.mean is not None and leaf.dtype == torch.uint8)):
            raise TypeError(
                "Keeping the variance needs normalised images, or mean= and images in [0, 1] or of "
                f"dtype uint8, got {leaf.dtype}{'' if self.mean is None else ' with mean='}. Or "
                "pass keep_variance=False."
            )
        if self.mean is None:
            return dispatch.mix_samples(leaf, plan, True)
        if leaf.is_floating_point() and leaf.numel() and not looked:
            check_range(leaf)
        if isinstance(self.mean, Sequence) and len(self.mean) != leaf.shape[1]:
            raise ValueError(
                f"mean must be one number or {leaf.shape[1]}, for each channel, got {self.mean}."
            )
        return dispatch.mix_samples(leaf, plan, True, self.means)


def check_range(leaf: Tensor, *, waits: bool = False) -> None:
    """Raise unless the values lie in [0, 1], where a mean applies; NaN passes.

    waits: wait for a device to read them, rather than assert it there.
    """
    low, high = leaf.detach().aminmax()
    if reads_need_sync(leaf) and not waits:
        torch._assert_async((low >= 0) & (high <= 1), "mean needs samples in [0, 1].")
    elif has_memory(leaf):
        least, most = torch.stack([low, high]).tolist()
        if least < 0 or most > 1:
            hint = "Do not pass mean for normalised samples."
            if least >= 0 and most <= 255:
                hint = "Divide them by 255."
            raise ValueError(
                "mean needs samples in [0, 1] or of dtype uint8, got values from "
                f"{least:g} to {most:g}. {hint}"
            )


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
        check_count("num_classes", self.num_classes, 1)
        if self.ignore_index is not None:
            check_count("ignore_index", self.ignore_index, -math.inf)

    def mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        _check_fits("labels", value, plan)
        return self._mix(value, plan)

    def _mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"Class labels must be integers, got {value.dtype}.")
        # small unsigned dtypes cannot hold every class index that they are compared with
        labels = (value if value.ndim == 1 else drop_column(value)).long()
        on_host = labels.is_cpu and not torch.compiler.is_compiling()
        readable = on_host and has_memory(labels)
        self._check_range(labels, readable)
        if labels.ndim > 1:
            return self._mix_dense(labels, plan)
        if readable:
            return self._scatter(labels, plan)
        # the plan applied to one-hot labels; a row that is ignored is all zero
        classes = torch.arange(self.num_classes, device=labels.device)
        hot = labels[:, None] == classes
        if self.ignore_index is not None:
            hot &= classes != self.ignore_index
        return dispatch.mix_targets(hot, plan)

    def _check_range(self, labels: Tensor, readable: bool) -> None:
        """Labels in [0, num_classes), or `ignore_index`: read on a CPU, asserted on a device."""
        ignored = self.ignore_index
        # nearly every batch is valid, which one pass confirms
        if readable and labels.numel() and ignored is None:
            low, high = labels.aminmax()
            if int(low) >= 0 and int(high) < self.num_classes:
                return
        valid = (labels >= 0) & (labels < self.num_classes)
        message = f"labels must lie in [0, {self.num_classes})"
        if ignored is not None:
            valid = valid | (labels == ignored)
            message += f" or equal ignore_index={ignored}"
        if not readable:
            torch._assert_async(valid.all(), f"{message}. Is num_classes right?")
        elif labels.numel() and not bool(valid.all()):
            wrong = labels[~valid].flatten()[0].item()
            hint = f"Is num_classes right? If {wrong} means ignored, pass ignore_index={wrong}."
            if self.num_classes == 1:
                hint = f"For one logit per sample, pass {ONE_LOGIT}; for two, pass num_classes=2."
            raise ValueError(f"{message}, got {wrong}. {hint}")

    def _scatter(self, labels: Tensor, plan: MixPlan) -> Tensor:
        """Each source's weight added to its class, for class indices [n] on a CPU.

        Faster than a matrix product on a CPU (128 rows, 8 sources: 48 µs against 127). On a GPU the
        order of the additions, and so the last bit, would not be deterministic.
        """
        indices, weights = plan.indices, plan.weights.double()
        if self.ignore_index is not None:
            counted = labels != self.ignore_index
            weights = weights * counted[indices]
            labels = torch.where(counted, labels, 0)
        empty = weights.new_zeros(weights.shape[0], self.num_classes)
        return empty.scatter_add_(1, labels[indices], weights).float()

    def _mix_dense(self, labels: Tensor, plan: MixPlan) -> Tensor:
        if plan.size is not None and (labels.ndim < 3 or labels.shape[-2:] != plan.size):
            raise ValueError(
                f"Masks must have the height and width of the images, {list(plan.size)}, to paste "
                f"the same boxes, got {list(labels.shape)}. Resize them, or use ZetaMix(paste=0)."
            )
        if plan.sources <= MOST_FEW and labels.is_cpu and dispatch.is_plain(labels, plan.weights):
            return dispatch.add_by_class(labels, plan, self.num_classes, self.ignore_index)
        # one class at a time: a one-hot tensor of all classes would double the memory
        classes = range(self.num_classes)
        layers = [(labels == k) & (k != self.ignore_index) for k in classes]
        return torch.stack([dispatch.mix_targets(layer, plan) for layer in layers], dim=1)


@dataclass(frozen=True)
class Average:
    """Rule for numeric targets: soft labels, multi-hot labels, regression values.

    Any shape; the result is float32, or float64 for float64 targets.
    """

    def mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        _check_fits("targets", value, plan)
        return self._mix(value, plan)

    def _mix(self, value: Tensor, plan: MixPlan) -> Tensor:
        if value.is_complex():
            raise TypeError(f"Targets must be real numbers, got {value.dtype}.")
        return dispatch.mix_targets(value, plan)


@dataclass(frozen=True)
class FromAnchor:
    """Rule for entries that cannot be averaged, such as ids: the entry of the anchor.

    Takes tensors and lists, such as file names. Lists synchronise with the GPU if the plan is
    there.
    """

    def mix(self, value: Any, plan: MixPlan) -> Any:
        _check_fits("a FromAnchor entry", value, plan)
        if isinstance(value, (list, tuple)):
            return [value[k] for k in plan.anchors().tolist()]
        return value.index_select(0, plan.anchors())


Rule: TypeAlias = Blend | OneHot | Average | FromAnchor


def check_pair(samples: Any, labels: Any) -> Tensor:
    """The first tensor of the samples; raises unless samples and labels form a batch."""
    leaves = [samples] if isinstance(samples, Tensor) else pytree.tree_leaves(samples)
    if not leaves:
        raise TypeError("samples must contain at least one tensor, got none.")
    for leaf in leaves:
        check_tensor("samples", leaf)
    first: Tensor = leaves[0]
    check_tensor("labels", labels)
    if first.shape[0] == 0:
        raise ValueError("The batch is empty: mixing needs at least one sample.")
    if first.shape[0] != labels.shape[0]:
        hint = ""
        if isinstance(samples, (list, tuple)):
            hint = " A list means several inputs; pass torch.stack(samples) for single samples."
        raise ValueError(
            f"samples and labels must have the same length, got {first.shape[0]} samples "
            f"and {labels.shape[0]} labels.{hint}"
        )
    if first.device != labels.device:
        check_same("device", "samples", first, "labels", labels)
    return first


def mix_pair(
    samples: Any,
    labels: Tensor,
    blend: Blend,
    target: OneHot | Average,
    rule: PlanRule,
    draw: Draw,
    *,
    size: Size | None = None,
    outputs: int | None = None,
) -> tuple[Any, Tensor]:
    """Draw a plan and mix samples and labels; on a GPU in one launch where a kernel can.

    size: (height, width) of the images to paste into. The pair (`check_pair`) and the range of the
        samples must have been checked.
    """
    batch = labels.shape[0]
    on_gpu = isinstance(samples, Tensor) and samples.is_cuda and outputs in (None, batch)
    if on_gpu and isinstance(target, OneHot):
        classes = target.num_classes, target.ignore_index
        keeps = rule.keep_variance and is_image(samples.shape)
        pair = dispatch.mix_labelled(
            samples, labels, *classes, rule, keeps, size, blend.means, draw
        )
        if pair is not None:
            return pair
    if not isinstance(samples, Tensor):
        dtype = plan_dtype((samples, labels))
        plan = draw_plan(rule, batch, draw, outputs=outputs, size=size, dtype=dtype)
        return blend.mix(samples, plan, looked=True), target.mix(labels, plan)
    dtype = torch.float64 if torch.float64 in (samples.dtype, labels.dtype) else torch.float32
    plan = draw_plan(rule, batch, draw, outputs=outputs, size=size, dtype=dtype)
    return blend._mix(samples, plan, True), target._mix(labels, plan)


def plan_dtype(batch: object) -> torch.dtype:
    """The dtype of the weights: float64 if any tensor of the batch is float64, else float32."""
    dtypes = [leaf.dtype for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    return torch.float64 if torch.float64 in dtypes else torch.float32


def _check_fits(name: str, value: Any, plan: MixPlan) -> None:
    """Raise unless the plan can be applied to the tensor or, for FromAnchor, the list."""
    is_list = isinstance(value, (list, tuple)) and name.endswith("entry")
    length = len(value) if is_list else check_tensor(name, value).shape[0]
    if length != plan.batch_size:
        raise ValueError(
            f"The plan was made for a batch of {plan.batch_size}, but {name} has {length} rows."
        )
    if not is_list:
        check_same("device", "plan", plan.indices, name, value)


def drop_column(labels: Tensor) -> Tensor:
    """Labels [n, 1] as [n], masks [n, 1, h, w] as [n, h, w]; all others as they are."""
    # [n, 1, length] could be an image of height 1
    return labels.squeeze(1) if labels.ndim != 3 and labels.shape[1:2] == (1,) else labels


def infer_rule(labels: Tensor, hot: OneHot | None) -> OneHot | Average:
    """The rule for labels of this dtype and shape; raises if they are ambiguous.

    hot: the rule for class indices, where their number is known.
    """
    if not isinstance(labels, Tensor) or labels.ndim == 0:
        got = "a scalar tensor" if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(
            f"labels must be a tensor with one entry for each sample, got {got}. Mixing needs a "
            "batch: apply it after the DataLoader, and pass torch.as_tensor(labels). For a batch "
            "without labels, or a dict or tuple of them, pass rules= with one rule per entry."
        )
    num_classes = None if hot is None else hot.num_classes
    if labels.is_floating_point() or labels.dtype == torch.bool:
        if num_classes is not None and (labels.ndim < 2 or labels.shape[1] != num_classes):
            raise ValueError(
                f"Soft labels must be [n, num_classes={num_classes}], got {list(labels.shape)}. "
                f"For class indices, pass labels.long(); for one logit per sample, {ONE_LOGIT} "
                "and num_classes=1; for regression, no num_classes."
            )
        return Average()
    if hot is None:
        raise ValueError(
            f"Integer labels ({labels.dtype}) need num_classes to become soft targets. "
            "For regression, pass labels.float()."
        )
    if labels.ndim == 2 and labels.shape[1] == hot.num_classes > 1:
        # one-hot or multi-hot integers
        return Average()
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise ValueError(
            f"Integer labels of shape {list(labels.shape)} are ambiguous: multi-hot or dense. Pass "
            "labels.float() for multi-hot labels, or rules=(Blend(), OneHot(...)) "
            "for dense ones."
        )
    return hot
