"""Apply a plan to samples: tensors of any shape and memory format, and nests of them (Eq. 2)."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zetamix._checks import check_fits, check_is_plan, check_mixable
from zetamix.kernels import dispatch
from zetamix.plan import MixPlan


def mix(samples: Any, plan: MixPlan, *, implementation: str = "auto") -> Any:
    """Mix every tensor of `samples`, a tensor or any nest of dicts, tuples and lists of tensors.

    Tensors have the batch first and any shape behind it. Dtype and memory format are kept, the
    input is left alone, and gradients flow. uint8, int8 and int16 are mixed in float32 and rounded.
    A sample that holds NaN or infinity can reach every output of its batch.

    implementation: "auto" takes the fastest that can do it, "reference" plain torch, "fused" the
        Triton kernels or an error that says why not.

    >>> from zetamix import zeta_plan
    >>> plan = zeta_plan(2, gamma=1.0)
    >>> mix(torch.tensor([[0.0], [3.0]]), plan)
    tensor([[1.],
            [2.]])
    """
    check_is_plan(plan)
    return pytree.tree_map(lambda leaf: _mix_tensor(leaf, plan, implementation), samples)


def _mix_tensor(samples: Tensor, plan: MixPlan, implementation: str) -> Tensor:
    check_fits("samples", samples, plan.batch, plan.device)
    check_mixable(samples)
    rows, order = _flatten(samples)
    mixed = dispatch.mix_rows(rows, plan.indices, plan.weights, implementation)
    return _unflatten(mixed, samples.shape, order)


def _flatten(samples: Tensor) -> tuple[Tensor, list[int]]:
    """Samples as rows [batch, features], features in memory order: channels_last is not copied."""
    order = list(range(1, samples.ndim))
    if is_channels_last(samples):
        order = [*order[1:], 1]
    features = samples.shape[1:].numel()
    return samples.permute(0, *order).reshape(samples.shape[0], features), order


def _unflatten(rows: Tensor, shape: torch.Size, order: list[int]) -> Tensor:
    """Rows as samples again, in the memory order they came in."""
    inverse = [0] * len(shape)
    for position, dim in enumerate(order, start=1):
        inverse[dim] = position
    return rows.view(rows.shape[0], *(shape[dim] for dim in order)).permute(*inverse)


def is_channels_last(samples: Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return (
        samples.ndim in formats
        and not samples.is_contiguous()
        and samples.is_contiguous(memory_format=formats[samples.ndim])
    )
