"""Launch the kernel for up to four sources; see `triton_few.py`."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from zetamix.kernels.plan_spec import Finish, Law, Origin, PlanShape, PlanSpec
from zetamix.kernels.triton_few import few_kernel
from zetamix.kernels.triton_launch import (
    Batch,
    Launch,
    Prepared,
    gamma_kind,
    gamma_numbers,
    gamma_tensor,
    mode_of,
    overlaps,
    zero_seed,
)

NO_SIZE = (0, 0)


def draw_plan(
    spec: PlanSpec,
    finish: Finish,
    size: tuple[int, int] | None,
    origin: Origin,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Indices, weights and, where images of this size are pasted, boxes of a plan."""
    plan = spec.shape
    shape = plan.outputs, plan.sources
    indices = torch.empty(shape, dtype=torch.int64, device=device)
    weights = torch.empty(shape, dtype=torch.float32, device=device)
    boxes = None
    if finish.paste and plan.sources > 1:
        boxes = torch.empty(*shape, 4, dtype=torch.int64, device=device)
    seed, offset = origin
    launch = _plan_launch(plan, finish._replace(mean=None), size or NO_SIZE, device)
    launch(
        *(None, None, None, None, indices, weights, boxes),
        *(zero_seed(device) if seed is None else seed, gamma_tensor(spec), None),
        *(offset, *gamma_numbers(spec), float(finish.p), float(finish.paste)),
        *(plan.batch_size, plan.outputs, 0, 0, 0),
    )
    return indices, weights, boxes


@lru_cache(maxsize=64)
def _plan_launch(
    plan: PlanShape, finish: Finish, size: tuple[int, int], device: torch.device
) -> Launch:
    constants = {**_drawing(plan, finish, size), **_memory(1, 1, 0)}
    tile = {"MODE": "half", "BLOCK": 16, "CLASS_BLOCK": 16, "IGNORE": False}
    return _launch(plan.outputs, PLAN=True, OVERLAP=False, **constants, **tile, num_warps=1)


def _launch(programs: int, **constants: Any) -> Launch:
    # debug is on for the label assertion; overflow is what the hash is made of
    return Launch(few_kernel, (programs,), sanitize_overflow=False, **constants)


def _drawing(plan: PlanShape, finish: Finish, size: tuple[int, int]) -> dict[str, Any]:
    """The constants of drawing a plan."""
    law = "zeta"
    if plan.law is Law.MIXUP:
        law = ("uniform" if plan.uniform_lam else "beta") + (", one" if plan.one_lam else "")
    height, width = size if finish.paste and plan.sources > 1 else NO_SIZE
    return {
        "SOURCES": plan.sources,
        "LAW": law,
        "GAMMA_KIND": gamma_kind(plan),
        "SELF": plan.own_anchor,
        "MIXES_ALL": finish.p == 1,
        "HEIGHT": height,
        "WIDTH": width,
        "KEEP": finish.keep_variance,
    }


def _memory(pixel: int, channel: int, channels: int) -> dict[str, int]:
    """The constants of where a pixel and a channel are."""
    return {"PIXEL": pixel, "CHANNEL": channel, "CHANNELS": channels}


@lru_cache(maxsize=128)
def prepare(
    batch: Batch, plan: PlanShape, finish: Finish, classes: int, ignore_index: int | None
) -> Prepared:
    """A function (samples, labels, spec, origin) → (samples, targets) for batches like this one.

    The samples must be dense with the batch outermost, whatever the order of other dimensions.
    """
    out_shape = (plan.outputs, *batch.shape[1:])
    out_stride = (batch.features, *batch.stride[1:])
    device = batch.device
    mean = _means(finish, batch)
    block, warps = tiling(batch.features, batch.dtype)
    programs = plan.outputs * triton.cdiv(batch.features, block)
    constants = {
        **_drawing(plan, finish, (batch.shape[-2], batch.shape[-1]) if finish.paste else NO_SIZE),
        **_places(batch, 0 if mean is None else len(mean)),
        "PLAN": False,
        "IGNORE": ignore_index is not None,
        "MODE": mode_of(batch.dtype, loose=False),
        "BLOCK": block,
        "CLASS_BLOCK": min(128, triton.next_power_of_2(classes)),
        "num_warps": warps,
    }
    overlap = overlaps(device)
    alone = _launch(programs, OVERLAP=False, **constants)
    # the random number of a captured graph is a kernel of torch's, right before this one
    after_seed = _launch(programs, OVERLAP=overlap, launch_pdl=overlap, **constants)
    zero = zero_seed(device)
    p, paste = float(finish.p), float(finish.paste)
    sizes = (plan.batch_size, plan.outputs, batch.features, classes, ignore_index or 0)

    def run(
        samples: Tensor, labels: Tensor, spec: PlanSpec, origin: Origin
    ) -> tuple[Tensor, Tensor]:
        seed, offset = origin
        targets = torch.empty(plan.outputs, classes, dtype=torch.float32, device=device)
        out = torch.empty_strided(out_shape, out_stride, dtype=batch.dtype, device=device)
        gammas = gamma_tensor(spec)
        number, span = gamma_numbers(spec)
        launch, seed = (alone, zero) if seed is None else (after_seed, seed)
        launch(
            *(samples, out, labels, targets, None, None, None, seed, gammas, mean),
            *(offset, number, span, p, paste, *sizes),
        )
        return out, targets

    return run


def _means(finish: Finish, batch: Batch) -> Tensor | None:
    """[channels]: the mean in the unit of the samples, where keeping the variance needs it."""
    if finish.mean is None or not finish.keep_variance:
        return None
    numbers = finish.mean if isinstance(finish.mean, Sequence) else (finish.mean,)
    largest = 255 if batch.dtype == torch.uint8 else 1
    parts = [torch.full((1,), largest * x, device=batch.device) for x in numbers]
    return torch.cat(parts)


def _places(batch: Batch, means: int) -> dict[str, int]:
    """Where the pixels and channels of a sample are in memory."""
    channels = batch.shape[1] if len(batch.shape) > 1 else 1
    last = len(batch.shape) > 2 and batch.stride[1] == 1 and channels > 1
    channel = 1 if last else max(1, batch.features // channels)
    return _memory(channels if last else 1, channel, means)


def tiling(features: int, dtype: torch.dtype) -> tuple[int, int]:
    """(block, warps)."""
    block = 2048 if dtype.itemsize == 4 else 4096
    return min(block, max(128, triton.next_power_of_2(features))), 4
