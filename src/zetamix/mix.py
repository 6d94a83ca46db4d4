"""`apply_plan` (Eq. 2), and ζ-mixup and mixup of samples and labels as functions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from zetamix.batches import as_tensors, in_kind_of
from zetamix.checks import Gamma
from zetamix.plan import (
    AnchorChoice,
    LamChoice,
    MixPlan,
    PlanRule,
    mixup_rule,
    zeta_rule,
)
from zetamix.rules import Blend, OneHot, check_pair, infer_rule, mix_pair
from zetamix.sampling import Draw

Nest = TypeVar("Nest")
"""A tensor, or nested dicts, tuples and lists of tensors; the result has the same structure."""


def apply_plan(
    samples: Nest,
    plan: MixPlan,
    *,
    mean: float | Sequence[float] | None = None,
) -> Nest:
    """Apply a plan to samples: a tensor, or nested dicts, tuples and lists of tensors.

    The first dimension of every tensor is the batch. Dtype and memory format are kept, the input
    is not modified, and gradients are propagated. uint8, int8 and int16 are mixed in float32,
    rounded and clamped. NumPy arrays and tv_tensors are returned as such. NaN or infinity in one
    sample can reach every output of its batch. Where the plan has boxes, tensors
    [n, ..., height, width] of its size are pasted.

    mean: the mean of samples in [0, 1] or of dtype uint8, for plans that keep the variance; see
        `zetamix.rules.Blend`. Without it, samples are assumed to be normalised to mean 0.

    >>> from zetamix import zeta_plan
    >>> plan = zeta_plan(2, gamma=1.0)
    >>> apply_plan(torch.tensor([[0.0], [3.0]]), plan)
    tensor([[1.],
            [2.]])
    """
    if not isinstance(plan, MixPlan):
        raise TypeError(f"plan must be a MixPlan, got {type(plan).__name__}.")
    mixed: Nest = in_kind_of(samples, Blend(mean).mix(as_tensors(samples), plan))
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
    rule_of = partial(zeta_rule, gamma=gamma, sources=sources, anchor=anchor)
    hot = None if num_classes is None else OneHot(num_classes, ignore_index)
    return _mix(samples, labels, hot, rule_of, outputs, generator, stream)


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
) -> tuple[Nest, Tensor]:
    """Mix a batch and its labels with mixup and return `(samples, targets)` (Eq. 1).

    Labels are treated as in `zeta_mixup`. The other arguments are those of `mixup_plan` and
    `apply_plan`.

    >>> images, targets = mixup(torch.rand(8, 3, 32, 32), torch.arange(8), num_classes=10)
    >>> targets.shape
    torch.Size([8, 10])
    """
    hot = None if num_classes is None else OneHot(num_classes, ignore_index)
    rule_of = partial(mixup_rule, alpha=alpha, per=per)
    return _mix(samples, labels, hot, rule_of, outputs, generator, stream)


def _mix(
    samples: Any,
    labels: Any,
    hot: OneHot | None,
    rule_of: Callable[..., PlanRule],
    outputs: int | None,
    generator: torch.Generator | None,
    stream: int | None,
) -> tuple[Any, Tensor]:
    given = samples, labels
    samples, labels = as_tensors(given, coordinates=False)
    draw = Draw(generator, stream, check_pair(samples, labels).device)
    rule = rule_of(labels.shape[0], outputs=outputs, device=draw.device)
    target = infer_rule(labels, hot)
    mixed = mix_pair(samples, labels, Blend(), target, rule, draw, outputs=outputs)
    return in_kind_of(given, mixed)  # type: ignore[no-any-return]
