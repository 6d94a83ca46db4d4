"""Which implementation mixes: "auto" falls back quietly, a request that cannot be met raises."""

import importlib.util
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from zetamix._checks import check_choice
from zetamix.kernels import gather, reference

IMPLEMENTATIONS = ("auto", "fused", "reference")


def mix_rows(
    rows: Tensor, indices: Tensor, weights: Tensor, implementation: str = "auto"
) -> Tensor:
    """Apply a plan to samples flattened to [batch, features]; see `reference.mix_rows`."""
    if uses_fused(implementation, rows):
        return _mix_fused(rows, indices, weights)
    if implementation == "auto" and gather.suits(rows, indices):
        return gather.mix_rows(rows, indices, weights)
    return reference.mix_rows(rows, indices, weights)


def uses_fused(implementation: str, rows: Tensor) -> bool:
    """Whether the fused path mixes these rows; raises if it was asked for and cannot."""
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    if implementation == "reference":
        return False
    obstacle = why_not_fused(rows)
    if obstacle is None:
        return True
    if implementation == "fused":
        raise ValueError(
            f"implementation='fused' cannot be used here: {obstacle}. Use 'auto' or 'reference'."
        )
    return False


def why_not_fused(rows: Tensor) -> str | None:
    """The reason why the Triton kernels cannot mix these rows, or None if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile traces the plain torch path"
    obstacle = _why_no_kernels(rows.device)
    if obstacle is not None:
        return obstacle
    if rows.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.uint8):
        return f"it mixes float32, float16, bfloat16 and uint8, not {rows.dtype}"
    if rows.requires_grad and torch.is_grad_enabled():
        return "the samples require gradients"
    return None


def draws_plans(device: torch.device, batch: int, sources: int, dtype: torch.dtype) -> bool:
    """Whether the plan kernel draws this plan."""
    if torch.compiler.is_compiling() or _why_no_kernels(device) is not None:
        return False
    by_digits = order_width(batch, sources) != batch
    longest = sources if by_digits else batch
    return dtype == torch.float32 and longest <= _fused().MAX_SORTED


def order_width(batch: int, sources: int) -> int:
    """How many random integers one output's order takes: one per source, or one per batch row.

    The digits of a few sources beat keys for the whole batch from about 16 rows per source on
    (CPU, 128 rows, 8 sources: 100 µs either way; 1024 rows: 0.15 against 4 ms).
    """
    return sources if sources * 16 <= batch else batch


def draw_plan(
    seed: Tensor,
    offset: int,
    gamma: float | Tensor,
    batch: int,
    sources: int,
    outputs: int,
    anchor: str,
) -> tuple[Tensor, Tensor]:
    """Indices and weights of a ζ-mixup plan, [outputs, sources], from the plan kernel."""
    drawn = _fused().draw(
        seed,
        offset,
        gamma,
        batch=batch,
        sources=sources,
        outputs=outputs,
        digits=order_width(batch, sources) != batch,
        anchor=anchor,
        plan=True,
    )
    indices: Tensor = drawn.indices
    weights: Tensor = drawn.weights
    return indices, weights


def mix_zeta(
    rows: Tensor,
    labels: Tensor,
    classes: int,
    ignore_index: int | None,
    seed: tuple[Tensor, int],
    *,
    gamma: float | Tensor,
    sources: int,
    outputs: int,
    anchor: str,
) -> tuple[Tensor, Tensor]:
    """Draw, mix the rows and mix the labels in two launches: no plan is ever written out."""
    fused = _fused()
    batch = rows.shape[0]
    digits = order_width(batch, sources) != batch
    by_gather = _gathers(batch, sources)
    plain = None if by_gather else _plain_dtype(rows.dtype, batch)
    drawn = fused.draw(
        *seed,
        gamma,
        batch=batch,
        sources=sources,
        outputs=outputs,
        digits=digits,
        anchor=anchor,
        plan=by_gather,
        matrix=plain,
        halves=None if by_gather or plain is not None else fused.half_dtype(rows.dtype),
        labels=labels,
        classes=classes,
        ignore_index=ignore_index,
    )
    if by_gather:
        mixed = fused.mix_by_gather(rows, drawn.indices, drawn.weights)
    elif plain is not None:
        mixed = _multiply(drawn.matrix, rows)
    else:
        mixed = fused.mix_by_matrix(rows, drawn.matrix, tf32=_allows_tf32())
    return mixed, drawn.targets


def _mix_fused(rows: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    fused = _fused()
    batch = rows.shape[0]
    weights = weights.float()
    mixed: Tensor
    if _gathers(batch, indices.shape[1]):
        mixed = fused.mix_by_gather(rows, indices, weights)
        return mixed
    matrix = reference.dense(indices, weights, batch)
    plain = _plain_dtype(rows.dtype, batch)
    if plain is not None:
        return _multiply(matrix.to(plain), rows)
    halves = fused.split(matrix, fused.half_dtype(rows.dtype))
    mixed = fused.mix_by_matrix(rows, halves, tf32=_allows_tf32())
    return mixed


def _gathers(batch: int, sources: int) -> bool:
    """Whether adding up sources beats a matrix product over the batch.

    A source costs a read from L2, a batch row 2 or 6 operations of a tensor core: on an H200 they
    break even near 80 rows per source in float32 and 120 in bfloat16.
    """
    return sources * 64 <= batch


def _plain_dtype(dtype: torch.dtype, batch: int) -> torch.dtype | None:
    """The dtype in which torch's own matrix product is the fastest way, or None.

    Above 128 rows the matrix no longer stays on a multiprocessor, and cuBLAS overlaps the traffic
    better (H200, 256 × 3 × 224²: bfloat16 48 µs against 67, TF32 93 against 137).
    """
    if batch <= _fused().MAX_WHOLE:
        return None
    if dtype in (torch.float16, torch.bfloat16) or (dtype == torch.float32 and _allows_tf32()):
        return dtype
    return None


def _multiply(matrix: Tensor, rows: Tensor) -> Tensor:
    with torch.autocast(rows.device.type, enabled=False):
        return torch.mm(matrix, rows)


def _allows_tf32() -> bool:
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


@lru_cache(maxsize=16)
def _why_no_kernels(device: torch.device) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda":
        return f"it needs a CUDA device, not {device.type}"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    return None


def _fused() -> Any:
    # imported when first needed: triton takes a while, and most machines never need it
    from zetamix.kernels import fused

    return fused
