"""Which implementation mixes: "auto" falls back quietly, a request that cannot be met raises."""

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from zetamix._checks import check_choice, needs_gradients
from zetamix.gamma import GAMMA_MIN
from zetamix.kernels import embedding_bag as gather
from zetamix.kernels import reference

IMPLEMENTATIONS = ("auto", "fused", "reference")


def mix_rows(
    rows: Tensor, indices: Tensor, weights: Tensor, implementation: str = "auto"
) -> Tensor:
    """Apply a plan to samples flattened to [batch, features]; see `reference.mix_rows`."""
    if uses_fused(implementation, rows, weights):
        with _on(rows.device):
            mixed: Tensor = _fused().mix_rows(rows, indices, weights.float(), tf32=_allows_tf32())
        return mixed
    if implementation == "auto" and gather.suits(rows, indices, weights):
        return gather.mix_rows(rows, indices, weights)
    return reference.mix_rows(rows, indices, weights)


def uses_fused(implementation: str, rows: Tensor, weights: Tensor | None = None) -> bool:
    """Whether the fused path mixes these rows; raises if it was asked for and cannot."""
    if implementation == "reference":
        return False
    check_choice("implementation", implementation, IMPLEMENTATIONS)
    obstacle = why_not_fused(rows, weights)
    if obstacle is None:
        return True
    if implementation == "fused":
        raise ValueError(
            f"implementation='fused' cannot be used here: {obstacle}. Use 'auto' or 'reference'."
        )
    return False


def why_not_fused(rows: Tensor, weights: Tensor | None = None) -> str | None:
    """The reason why the Triton kernels cannot mix these rows, or None if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile traces the plain torch path"
    obstacle = _why_no_kernels(rows.device)
    if obstacle is not None:
        return obstacle
    if rows.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.uint8):
        return f"it mixes float32, float16, bfloat16 and uint8, not {rows.dtype}"
    if needs_gradients(rows):
        return "the samples require gradients"
    if weights is not None and needs_gradients(weights):
        return "the weights of the plan require gradients"
    return None


def draws_plans(device: torch.device, batch: int, sources: int, dtype: torch.dtype) -> bool:
    """Whether the plan kernel draws this plan."""
    if torch.compiler.is_compiling() or _why_no_kernels(device) is not None:
        return False
    longest = order_width(batch, sources)
    return dtype == torch.float32 and bool(longest <= _fused().MAX_SORTED)


def order_width(batch: int, sources: int) -> int:
    """How many random integers one output's order takes: one per source, or one per batch row.

    From 16 rows per source on, digits for the sources beat keys for the whole batch clearly (CPU,
    8 sources: 64 rows 80 µs against 110, 128 rows 85 against 259, 1024 rows 0.19 against 13.7 ms).
    """
    return sources if sources * 16 <= batch else batch


def draw_plan(
    seed: Tensor | None,
    offset: int,
    device: torch.device,
    law: str,
    number: float | Tensor,
    *,
    batch: int,
    sources: int,
    outputs: int,
    anchor: str = "self",
) -> tuple[Tensor, Tensor]:
    """Indices and weights of a plan, [outputs, sources], from the plan kernel.

    seed, offset: the origin of its random numbers, as `Draw.origin` gives it.
    law: "zeta" with γ as the number (a tensor for one per output, or one that may change in a
    captured graph), "mixup" or "mixup/batch" with α.
    """
    fused = _fused()
    law, plain, gammas = _resolve(law, number, outputs)
    with _on(device):
        indices, weights = fused.draw_plan(
            seed,
            offset,
            device,
            plain,
            gammas,
            fused.Law(law, anchor),
            fused.Sizes(batch, sources, outputs),
        )
    return indices, weights


def mix_labelled(
    samples: Tensor,
    labels: Tensor,
    classes: int,
    ignore_index: int | None,
    seed: Tensor | None,
    offset: int,
    law: str,
    number: float | Tensor,
    *,
    sources: int,
    outputs: int,
    anchor: str = "self",
) -> tuple[Tensor, Tensor]:
    """Draw, mix the samples and mix the labels in two launches: no plan is ever written out.

    `samples` must be dense with the batch outermost, whatever the order of the other dimensions.
    """
    fused = _fused()
    law, plain, gammas = _resolve(law, number, outputs)
    tf32 = _allows_tf32()
    run = fused.prepare(
        fused.Batch.of(samples, labels),
        fused.Law(law, anchor),
        plain if law.startswith("mixup") else 0.0,
        fused.Sizes(samples.shape[0], sources, outputs),
        classes,
        ignore_index,
        tf32,
        # from here on what is lost with the low half of the matrix is no more than TF32 loses
        tf32 and law == "zeta" and plain >= GAMMA_MIN,
    )
    with _on(samples.device):
        mixed, targets = run(samples, labels, seed, offset, plain, gammas)
    return mixed, targets


def _resolve(law: str, number: float | Tensor, outputs: int) -> tuple[str, float, Tensor | None]:
    """(law, number, gammas) as the plan kernel takes them."""
    if isinstance(number, Tensor):
        return law + "s", 0.0, number.float().expand(outputs).contiguous()
    return law, float(number), None


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the samples'."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


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


@lru_cache(maxsize=1)
def _fused() -> Any:
    # imported when first needed: triton takes a while, and most machines never need it
    from zetamix.kernels import triton_launch as fused

    return fused
