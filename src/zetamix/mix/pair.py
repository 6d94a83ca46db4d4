"""ζ-mixup and mixup of samples and their labels, drawn and applied in one call."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix._checks import Gamma, check_mixable, check_pair
from zetamix.kernels import dispatch
from zetamix.mix.apply import is_channels_last, mix
from zetamix.plan.request import Request, mixup_request, zeta_request
from zetamix.rules import Classes, Rule, drop_column, infer_rule


def zeta_mixup(
    samples: Any,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    gamma: Gamma = 2.8,
    sources: int | None = None,
    outputs: int | None = None,
    anchor: str = "self",
    ignore_index: int | None = None,
    generator: torch.Generator | None = None,
    stream: int | None = None,
    implementation: str = "auto",
) -> tuple[Any, Tensor]:
    """Mix a batch and its labels with ζ-mixup and return `(samples, targets)` (Eq. 2 and 3).

    Integer labels need `num_classes` and become soft targets [outputs, num_classes]; floating
    point labels (soft, multi-hot, regression) are averaged. Everything else is as in `zeta_plan`
    and `mix`.

    >>> images, labels = torch.rand(8, 3, 32, 32), torch.arange(8)
    >>> images, targets = zeta_mixup(images, labels, num_classes=8, gamma=2.8)
    >>> targets.shape, targets.argmax(1)
    (torch.Size([8, 8]), tensor([0, 1, 2, 3, 4, 5, 6, 7]))
    """
    first = check_pair(samples, labels)
    rule = infer_rule(labels, num_classes, ignore_index)
    request = zeta_request(
        first.shape[0], gamma, sources, outputs, anchor, generator, stream, first.device
    )
    return _mix_pair(samples, labels, rule, request, implementation)


def mixup(
    samples: Any,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    alpha: float = 1.0,
    per: str = "sample",
    outputs: int | None = None,
    ignore_index: int | None = None,
    generator: torch.Generator | None = None,
    stream: int | None = None,
    implementation: str = "auto",
) -> tuple[Any, Tensor]:
    """Mix a batch and its labels with mixup and return `(samples, targets)` (Eq. 1).

    >>> images, targets = mixup(torch.rand(8, 3, 32, 32), torch.arange(8), num_classes=10)
    >>> targets.shape
    torch.Size([8, 10])
    """
    first = check_pair(samples, labels)
    rule = infer_rule(labels, num_classes, ignore_index)
    request = mixup_request(first.shape[0], alpha, per, outputs, generator, stream, first.device)
    return _mix_pair(samples, labels, rule, request, implementation)


def _mix_pair(
    samples: Any, labels: Tensor, rule: Rule, request: Request, implementation: str
) -> tuple[Any, Tensor]:
    """Draw the plan and apply it; on a GPU, where nothing forbids it, all in two launches."""
    dtype = torch.float64 if labels.dtype == torch.float64 else plan_dtype(samples)
    flat = drop_column(labels)
    if (
        isinstance(samples, Tensor)
        and isinstance(rule, Classes)
        and flat.ndim == 1
        and samples.numel()
        and request.by_kernel(dtype)
    ):
        check_mixable(samples)
        if dispatch.uses_fused(implementation, samples):
            return dispatch.mix_labelled(
                _dense(samples),
                flat.contiguous(),
                rule.num_classes,
                rule.ignore_index,
                *request.draw.origin(),
                request.law,
                request.number,
                sources=request.sources,
                outputs=request.outputs,
                anchor=request.anchor,
            )
    plan = request.plan(dtype)
    return mix(samples, plan, implementation=implementation), rule.mix(labels, plan)


def _dense(samples: Tensor) -> Tensor:
    """The samples without gaps in memory and with the batch outermost; most are so already."""
    return samples if is_channels_last(samples) else samples.contiguous()


def plan_dtype(batch: Any) -> torch.dtype:
    """float64 weights where any tensor of the batch is float64, float32 for all others."""
    leaves = [batch] if isinstance(batch, Tensor) else pytree.tree_leaves(batch)
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.dtype == torch.float64:
            return torch.float64
    return torch.float32
