"""Launch the kernel for up to four sources; see `triton_few.py`."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from zetamix.kernels.plan_spec import MOST_CHANNELS, Finish, Law, Origin, PlanShape, PlanSpec
from zetamix.kernels.triton_few import few_kernel
from zetamix.kernels.triton_launch import (
    Batch,
    Launch,
    Prepared,
    gamma_kind,
    gamma_numbers,
    gamma_tensor,
    mode_of,
    zero_seed,
)

NO_SIZE = (0, 0)
NO_MEANS = (0.0,) * MOST_CHANNELS
# the kernel's debug is on for the label assertion; overflow is what the hash is made of
OPTIONS = {"sanitize_overflow": False}


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
    seed = zero_seed(device) if seed is None else seed
    launch(
        *(None, None, None, None, indices, weights, boxes, seed, gamma_tensor(spec)),
        *(offset, *gamma_numbers(spec), float(finish.p), float(finish.paste), *NO_MEANS),
        *(plan.batch_size, plan.outputs, 0, 0, 0),
    )
    return indices, weights, boxes


@lru_cache(maxsize=64)
def _plan_launch(
    plan: PlanShape, finish: Finish, size: tuple[int, int], device: torch.device
) -> Launch:
    places = {"PIXEL": 1, "CHANNEL": 1, "CHANNELS": 0}
    tile = {"MODE": "half", "BLOCK": 16, "CHUNK": 16, "CLASS_BLOCK": 16, "IGNORE": False}
    constants = {**_drawing(plan, finish, size), **places, **tile, "PLAN": True}
    return Launch(few_kernel, (plan.outputs,), **constants, **OPTIONS, num_warps=1)


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


@lru_cache(maxsize=128)
def prepare(
    batch: Batch, plan: PlanShape, classes: int, ignore_index: int | None, finish: Finish
) -> Prepared:
    """A function (samples, labels, spec, origin) → (samples, targets) for batches like this one.

    The samples must be dense with the batch outermost, whatever the order of other dimensions.
    """
    device = batch.device
    # empty_like takes the host half as long as a shape, a dtype and a device
    like_targets = torch.empty(plan.outputs, classes, dtype=torch.float32, device=device)
    out_shape, out_stride = (plan.outputs, *batch.shape[1:]), (batch.features, *batch.stride[1:])
    same_shape = plan.outputs == plan.batch_size
    means = _means(finish, batch.dtype)
    block, warps = tiling(batch.features, batch.dtype)
    programs = plan.outputs * triton.cdiv(batch.features, block)
    size = (batch.shape[-2], batch.shape[-1]) if finish.paste else NO_SIZE
    places = _places(batch, len(means))
    launch = Launch(
        few_kernel,
        (programs,),
        **_drawing(plan, finish, size),
        **places,
        PLAN=False,
        IGNORE=ignore_index is not None,
        MODE=mode_of(batch.dtype, loose=False),
        BLOCK=block,
        CHUNK=_chunk(block, size[1] * places["PIXEL"], places),
        CLASS_BLOCK=min(128, triton.next_power_of_2(classes)),
        num_warps=warps,
        **OPTIONS,
    )
    numbers = (float(finish.p), float(finish.paste), *(means + NO_MEANS)[: len(NO_MEANS)])
    sizes = (plan.batch_size, plan.outputs, batch.features, classes, ignore_index or 0)

    def run(
        samples: Tensor, labels: Tensor, spec: PlanSpec, origin: Origin
    ) -> tuple[Tensor, Tensor]:
        seed, offset = origin
        targets = torch.empty_like(like_targets)
        if same_shape:
            out = torch.empty_like(samples)
        else:
            out = torch.empty_strided(out_shape, out_stride, dtype=batch.dtype, device=device)
        # not before it is needed: a graph could not capture it
        seed = zero_seed(device) if seed is None else seed
        buffers = samples, out, labels, targets, None, None, None, seed, gamma_tensor(spec)
        launch(*buffers, offset, *gamma_numbers(spec), *numbers, *sizes)
        return out, targets

    return run


def _means(finish: Finish, dtype: torch.dtype) -> tuple[float, ...]:
    """The means of the channels in the unit of the samples; none unless the variance is kept."""
    if finish.mean is None or not finish.keep_variance:
        return ()
    numbers = finish.mean if isinstance(finish.mean, Sequence) else (finish.mean,)
    largest = 255.0 if dtype == torch.uint8 else 1.0
    return tuple(largest * number for number in numbers)


def _places(batch: Batch, means: int) -> dict[str, int]:
    """Where the pixels and channels of a sample are in memory."""
    channels = batch.shape[1] if len(batch.shape) > 1 else 1
    last = len(batch.shape) > 2 and batch.stride[1] == 1 and channels > 1
    channel = 1 if last else max(1, batch.features // channels)
    return {"PIXEL": channels if last else 1, "CHANNEL": channel, "CHANNELS": means}


def _chunk(block: int, line: int, places: dict[str, int]) -> int:
    """How many numbers of a tile lie in one line of an image, and in one channel, at any place."""
    lengths = [block]
    if line:
        lengths.append(line)
    if places["CHANNELS"] > 1 and places["CHANNEL"] > 1:
        lengths.append(places["CHANNEL"])
    common = math.gcd(*lengths)
    # the largest power of two that divides all; one thread loads 16 bytes at most
    return block if common == block else min(32, common & -common)


def tiling(features: int, dtype: torch.dtype) -> tuple[int, int]:
    """(block, warps), by a sweep on an H200: every thread has 64 bytes of each source.

    With half of that, pasting float32 takes 1.40 × copy instead of 1.16 (256 × 3 × 224²); with
    twice, blends take 1.18 instead of 1.16.
    """
    block = 4096 // dtype.itemsize
    return min(block, max(128, triton.next_power_of_2(features))), 2
