"""`apply_plan` (Eq. 2), and ζ-mixup and mixup of samples and labels as functions."""

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix._checks import Gamma, check_tensor
from zetamix.array_kinds import as_tensors, in_kind_of, refuse_coordinates
from zetamix.boxes import Size
from zetamix.kernels import dispatch
from zetamix.kernels.dispatch import Implementation
from zetamix.kernels.plan_spec import PLAIN, Finish, PlanSpec
from zetamix.plan import (
    AnchorChoice,
    LamChoice,
    MixPlan,
    check_is_plan,
    draw_by_numpy,
    draw_finished,
    draw_plan,
    mixup_spec,
    zeta_spec,
)
from zetamix.prepared_calls import Call, PreparedCalls
from zetamix.rules import Blend, OneHot, Rule, drop_column, infer_rule, is_batch
from zetamix.sampling import Draw

# prepared calls of zeta_mixup and mixup; every transform has its own
_calls = PreparedCalls()

Nest = TypeVar("Nest")
"""A tensor, or nested dicts, tuples and lists of tensors; the result has the same structure."""


def apply_plan(
    samples: Nest,
    plan: MixPlan,
    *,
    mean: float | Sequence[float] | None = None,
    implementation: Implementation = "auto",
) -> Nest:
    """Apply a plan to samples: a tensor, or nested dicts, tuples and lists of tensors.

    The first dimension of every tensor is the batch. Dtype and memory format are kept, the input
    is not modified, and gradients are propagated. uint8, int8 and int16 are mixed in float32,
    rounded and clamped. NumPy arrays and tv_tensors are returned as such. NaN or infinity in one
    sample can reach every output of its batch. Where the plan has boxes, tensors
    [n, ..., height, width] of its size are pasted.

    mean: the mean of samples in [0, 1] or of dtype uint8, for plans that keep the variance; see
        `zetamix.rules.Blend`. Without it, samples are assumed to be normalised to mean 0.
    implementation: "auto" selects the fastest available one, "reference" is plain torch, "fused"
        the Triton kernels, which raise if they cannot be used.

    >>> from zetamix import zeta_plan
    >>> plan = zeta_plan(2, gamma=1.0)
    >>> apply_plan(torch.tensor([[0.0], [3.0]]), plan)
    tensor([[1.],
            [2.]])
    """
    check_is_plan(plan)
    mixed: Nest = in_kind_of(samples, Blend(mean).mix(as_tensors(samples), plan, implementation))
    return mixed


def zeta_mixup(
    samples: Nest,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    gamma: Gamma = 2.8,
    sources: int | None = None,
    outputs: int | None = None,
    anchor: AnchorChoice = "self",
    ignore_index: int | None = None,
    generator: torch.Generator | None = None,
    stream: int | None = None,
    implementation: Implementation = "auto",
) -> tuple[Nest, Tensor]:
    """Mix a batch and its labels with ζ-mixup and return `(samples, targets)` (Eq. 2 and 3).

    Integer labels need `num_classes` and become soft targets [outputs, num_classes]; floating
    point labels (soft, multi-hot, regression) are averaged. The other arguments are those of
    `zeta_plan` and `apply_plan`.

    >>> images, labels = torch.rand(8, 3, 32, 32), torch.arange(8)
    >>> images, targets = zeta_mixup(images, labels, num_classes=8, gamma=2.8)
    >>> targets.shape, targets.argmax(1)
    (torch.Size([8, 8]), tensor([0, 1, 2, 3, 4, 5, 6, 7]))
    """
    # a range may be a list, which has no hash
    drawn = tuple(gamma) if isinstance(gamma, (tuple, list)) else gamma
    options = "zeta", num_classes, drawn, sources, outputs, anchor, ignore_index, implementation
    if (call := _find_call(samples, labels, options)) is not None:
        draw = Draw(generator, stream, labels.device)
        return call(samples, labels, draw)  # type: ignore[arg-type, return-value]
    batch = samples, labels
    refuse_coordinates(batch)
    samples, labels = as_tensors(batch)
    first = check_pair(samples, labels)
    rule = infer_rule(labels, num_classes, ignore_index)
    draw = Draw(generator, stream, first.device)
    spec = zeta_spec(first.shape[0], gamma, sources, outputs, anchor, draw)
    mixed = mix_pair(samples, labels, rule, spec, draw, implementation, _calls, options)
    return in_kind_of(batch, mixed)  # type: ignore[no-any-return]


def mixup(
    samples: Nest,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    alpha: float = 1.0,
    per: LamChoice = "sample",
    outputs: int | None = None,
    ignore_index: int | None = None,
    generator: torch.Generator | None = None,
    stream: int | None = None,
    implementation: Implementation = "auto",
) -> tuple[Nest, Tensor]:
    """Mix a batch and its labels with mixup and return `(samples, targets)` (Eq. 1).

    Labels are treated as in `zeta_mixup`. The other arguments are those of `mixup_plan` and
    `apply_plan`.

    >>> images, targets = mixup(torch.rand(8, 3, 32, 32), torch.arange(8), num_classes=10)
    >>> targets.shape
    torch.Size([8, 10])
    """
    options = "mixup", num_classes, alpha, per, outputs, ignore_index, implementation
    if (call := _find_call(samples, labels, options)) is not None:
        draw = Draw(generator, stream, labels.device)
        return call(samples, labels, draw)  # type: ignore[arg-type, return-value]
    batch = samples, labels
    refuse_coordinates(batch)
    samples, labels = as_tensors(batch)
    first = check_pair(samples, labels)
    rule = infer_rule(labels, num_classes, ignore_index)
    draw = Draw(generator, stream, first.device)
    spec = mixup_spec(first.shape[0], alpha, per, outputs)
    mixed = mix_pair(samples, labels, rule, spec, draw, implementation, _calls, options)
    return in_kind_of(batch, mixed)  # type: ignore[no-any-return]


def _find_call(samples: Any, labels: Any, options: Hashable) -> Call | None:
    """The call prepared for an earlier batch of the same shapes, dtypes and options."""
    if torch.compiler.is_compiling() or not _calls:
        return None
    if type(samples) is not Tensor or type(labels) is not Tensor:
        return None
    return _calls.find(samples, labels, options)


def check_pair(samples: Any, labels: Any) -> Tensor:
    """The first tensor of the samples; raises unless samples and labels form a batch."""
    leaves = [samples] if isinstance(samples, Tensor) else pytree.tree_leaves(samples)
    if not leaves:
        raise TypeError("samples must contain at least one tensor, got none.")
    for leaf in leaves:
        if not is_batch(leaf):
            check_tensor("samples", leaf)
    first: Tensor = leaves[0]
    if not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(first):
        _refuse_vmap()
    if not is_batch(labels):
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
        raise ValueError(
            f"samples and labels must be on the same device, got {first.device} and "
            f"{labels.device}."
        )
    return first


def _refuse_vmap() -> None:
    raise TypeError(
        "A plan cannot be drawn inside torch.vmap. Draw it outside with zeta_plan or "
        "mixup_plan, and apply it inside with apply_plan."
    )


def mix_pair(
    samples: Any,
    labels: Tensor,
    rule: Rule,
    spec: PlanSpec,
    draw: Draw,
    implementation: Implementation,
    calls: PreparedCalls,
    options: Hashable,
    finish: Finish = PLAIN,
    size: Size | None = None,
) -> tuple[Any, Tensor]:
    """Draw the plan and apply it, and keep the call for the next batch where it can be prepared.

    calls, options: the cache of prepared calls, and the options that are part of its key.
    size: (height, width) of the images, if some are pasted.
    """
    is_tensor = isinstance(samples, Tensor)
    dtype = samples.dtype if is_tensor else plan_dtype(samples)
    dtype = torch.float64 if torch.float64 in (dtype, labels.dtype) else torch.float32
    drawer = dispatch.plan_drawer(spec, draw.device, dtype)
    if drawer is not None and is_tensor and isinstance(rule, OneHot):
        if drawer == "triton":
            call = _prepare_kernels(samples, labels, rule, spec, finish, implementation)
        else:
            call = _prepare_few(samples, labels, rule, spec, finish, implementation, size, dtype)
        if call is not None:
            if not isinstance(spec.parameter, Tensor):
                calls.keep(samples, labels, options, call)
            return call(samples, labels, draw)
    plain = finish == PLAIN
    plan = draw_plan(spec, draw, dtype) if plain else draw_finished(spec, finish, size, draw, dtype)
    if is_tensor and plain:
        mixed = dispatch.mix_samples(samples, plan.indices, plan.weights, implementation)
    else:
        mixed = Blend(finish.mean).mix(samples, plan, implementation)
    return mixed, rule.mix(labels, plan)


def _prepare_kernels(
    samples: Tensor,
    labels: Tensor,
    rule: OneHot,
    spec: PlanSpec,
    finish: Finish,
    implementation: Implementation,
) -> Call | None:
    """A call that draws and mixes such batches in one or two launches; None if not possible."""
    if (
        not dispatch.mixes_labelled(spec, finish, samples)
        or drop_column(labels).ndim != 1
        or not samples.numel()
        or not dispatch.uses_fused(implementation, samples)
    ):
        return None
    classes = rule.num_classes, rule.ignore_index
    launch = dispatch.prepare_labelled(samples, labels, *classes, spec, finish)
    return lambda samples, labels, draw: launch(samples, labels, draw.origin())


def _prepare_few(
    samples: Tensor,
    labels: Tensor,
    rule: OneHot,
    spec: PlanSpec,
    finish: Finish,
    implementation: Implementation,
    size: Size | None,
    dtype: torch.dtype,
) -> Call | None:
    """A call that draws the plan with NumPy and mixes such batches; None if not possible."""
    if (
        samples.dtype != dtype
        or labels.dtype != torch.int64
        or labels.ndim != 1
        or finish.mean is not None
        or rule.ignore_index is not None
        or not dispatch.mixes_few(samples, spec.shape.sources, implementation)
    ):
        return None

    def call(samples: Tensor, labels: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        plan = draw_by_numpy(spec, finish, size, draw, dtype)
        mixed = dispatch.mix_few(samples, plan, finish.keep_variance, size is not None)
        return mixed, rule.mix_few(labels, plan)

    return call


def plan_dtype(batch: object) -> torch.dtype:
    """The dtype of the weights: float64 if any tensor of the batch is float64, else float32."""
    leaves = [batch] if isinstance(batch, Tensor) else pytree.tree_leaves(batch)
    double = any(isinstance(leaf, Tensor) and leaf.dtype == torch.float64 for leaf in leaves)
    return torch.float64 if double else torch.float32
