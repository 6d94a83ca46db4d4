"""Launch the Triton kernels of `device.py`: drawing, mixing samples and mixing labels on a GPU.

Everything about a launch that follows from shapes and settings is worked out once, in `prepare`,
and remembered; a call then allocates, and launches twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from zetamix.kernels import triton_kernels as kernels
from zetamix.kernels.dispatch import order_width
from zetamix.kernels.reference import dense

# one program sorts a whole row of keys; past this, torch's segmented sort takes over
MAX_SORTED = 1024
# up to here the whole matrix can stay on the multiprocessor while the samples stream by
MAX_WHOLE = 128
# shared memory of one multiprocessor that a program may take: Hopper, A100, all since Ampere
HOPPER, AMPERE, SMALL = 232_448, 166_912, 101_376


class Launch:
    """A kernel with its grid and constants fixed.

    Binding twenty arguments anew is slow, so the compiled kernel is kept and called directly. With
    this and `prepare` a call went from 278 to 83 µs on the host of an H200. Whoever keeps a Launch
    must call it with arguments alike in dtype, alignment and integer values.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], **constants: Any) -> None:
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        self.constants = constants
        self.tail = [constants[name] for name in kernel.arg_names if name in constants]
        self.run: Callable[..., None] | None = None

    def __call__(self, *arguments: Any) -> None:
        if self.run is not None:
            self.run(*arguments, *self.tail)
            return
        compiled = self.kernel[self.grid](*arguments, **self.constants)
        # the interpreter compiles nothing
        if compiled is not None:
            self.run = compiled[self.grid]


@dataclass(frozen=True)
class Law:
    """How weights are drawn: ζ-mixup by γ or mixup by α."""

    name: str
    """"zeta", "zetas" (one γ per output), "mixup" or "mixup/batch" (one λ for all)."""
    anchor: str = "self"

    def kernel_name(self, number: float) -> str:
        # Beta(1, 1) is uniform and needs none of the work for other α
        return self.name.replace("mixup", "mixup1") if number == 1 else self.name


class Sizes(NamedTuple):
    """How many rows go in, how many of them into one output, and how many come out."""

    batch: int
    sources: int
    outputs: int

    @property
    def by_digits(self) -> bool:
        return order_width(self.batch, self.sources) != self.batch


def plan_launch(
    law: Law,
    number: float,
    sizes: Sizes,
    *,
    plan: bool = False,
    matrix: str = "none",
    classes: int = 0,
    ignore: bool = False,
) -> Launch:
    """The plan kernel, set up to write the forms asked for."""
    return Launch(
        kernels.plan_kernel,
        (sizes.outputs,),
        LAW=law.kernel_name(number),
        DIGITS=sizes.by_digits,
        SELF=law.anchor == "self",
        PLAN=plan,
        MATRIX=matrix,
        TARGETS=classes > 0,
        IGNORE=ignore,
        BLOCK=triton.next_power_of_2(sizes.sources if sizes.by_digits else sizes.batch),
        CLASS_BLOCK=min(64, triton.next_power_of_2(max(classes, 1))),
        # H200: 1 to 8 warps all take 3.2 µs at 128 rows; at 256 rows 1 takes 6.2, 4 take 4.3
        num_warps=4,
        # debug is on for the label assertion; overflow is what the hash is made of
        sanitize_overflow=False,
    )


def draw_plan(
    seed: Tensor | None,
    offset: int,
    device: torch.device,
    number: float,
    gammas: Tensor | None,
    law: Law,
    sizes: Sizes,
) -> tuple[Tensor, Tensor]:
    """Indices and weights, [outputs, sources], of a plan drawn from an origin."""
    indices = torch.empty(sizes.outputs, sizes.sources, dtype=torch.int64, device=device)
    weights = torch.empty(sizes.outputs, sizes.sources, dtype=torch.float32, device=device)
    launch = _plan_only(law, number if law.name.startswith("mixup") else 0.0, sizes, device)
    seed = _zero(device) if seed is None else seed
    launch(seed, gammas, None, indices, weights, None, None, offset, number, *sizes, 0, 0)
    return indices, weights


@lru_cache(maxsize=64)
def _plan_only(law: Law, number: float, sizes: Sizes, device: torch.device) -> Launch:
    """One for each device: a compiled kernel belongs to one."""
    return plan_launch(law, number, sizes, plan=True)


@lru_cache(maxsize=16)
def _zero(device: torch.device) -> Tensor:
    """The seed where the host has the whole origin: the same kernel then serves both cases."""
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    # once per device: calls on other streams must not read it before it is written
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return zero


class Batch(NamedTuple):
    """All that a prepared call depends on in the tensors it will be given."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool
    label_dtype: torch.dtype

    @classmethod
    def of(cls, samples: Tensor, labels: Tensor) -> "Batch":
        return cls(
            samples.shape,
            samples.stride(),
            samples.dtype,
            samples.device,
            samples.data_ptr() % 16 == 0,
            labels.dtype,
        )


Prepared = Callable[
    [Tensor, Tensor, Tensor | None, int, float, Tensor | None], tuple[Tensor, Tensor]
]


@lru_cache(maxsize=128)
def prepare(
    batch: Batch,
    law: Law,
    unit: float,
    sizes: Sizes,
    classes: int,
    ignore_index: int | None,
    tf32: bool,
    loose: bool,
) -> Prepared:
    """A function (samples, labels, seed, offset, number, gammas) → (samples, targets).

    It holds for batches and settings alike.
    unit: α for mixup, whose kernel depends on it; 0 for ζ-mixup.
    tf32: whether torch may use TF32; loose: whether our kernels may be as imprecise as that.
    """
    features = batch.shape[1:].numel()
    out_shape = (sizes.outputs, *batch.shape[1:])
    out_stride = (features, *batch.stride[1:])
    way = choose(sizes.batch, sizes.sources, batch.dtype, tf32, _memory(batch.device))
    halves = half_dtype(batch.dtype)
    draw = plan_launch(
        law,
        unit,
        sizes,
        plan=way == "gather",
        matrix={"gather": "none", "torch": "plain"}.get(way, "halves"),
        classes=classes,
        ignore=ignore_index is not None,
    )
    mix = _mixer(way, batch, sizes, features, loose)
    tail = (*sizes, classes, 0 if ignore_index is None else ignore_index)
    planned = (sizes.outputs, sizes.sources)
    plain = (sizes.outputs, sizes.batch)

    def run(
        samples: Tensor,
        labels: Tensor,
        seed: Tensor | None,
        offset: int,
        number: float,
        gammas: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        device = samples.device
        targets = torch.empty(sizes.outputs, classes, dtype=torch.float32, device=device)
        out = torch.empty_strided(out_shape, out_stride, dtype=batch.dtype, device=device)
        indices = weights = matrix = None
        if way == "gather":
            indices = torch.empty(planned, dtype=torch.int64, device=device)
            weights = torch.empty(planned, dtype=torch.float32, device=device)
        elif way == "torch":
            matrix = torch.empty(plain, dtype=batch.dtype, device=device)
        else:
            matrix = empty_halves(*plain, halves, device)
        seed = _zero(device) if seed is None else seed
        draw(seed, gammas, labels, indices, weights, matrix, targets, offset, number, *tail)
        mix(samples, out, matrix, indices, weights)
        return out, targets

    return run


def choose(batch: int, sources: int, dtype: torch.dtype, tf32: bool, memory: int = HOPPER) -> str:
    """The fastest way to mix: "gather", "whole", "loop", or "torch" for its matrix product.

    Gathering reads a row for each source; a product works through the whole batch. On an H200 they
    break even near 64 rows per source: 2 sources gathered from 128 × 3 × 224² take 56 µs in float32
    and 32 in bfloat16, a product 57 and 30; from 256 rows 107 and 59 against 167 and 55 (whole
    calls, `benchmarks/h200.json`). Above 128 rows the matrix no longer stays on a multiprocessor,
    and cuBLAS overlaps the traffic better (256 × 3 × 224²: bfloat16 48 µs against 67, TF32 93
    against 137).

    memory: the shared memory of a multiprocessor. With less than an A100's the matrix stays there
        only up to 64 rows.
    """
    if sources == 1 or sources * 64 <= batch:
        return "gather"
    if batch <= (MAX_WHOLE if memory >= AMPERE else 64):
        return "whole"
    if dtype in (torch.float16, torch.bfloat16) or (dtype == torch.float32 and tf32):
        return "torch"
    return "loop"


def half_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the matrix halves that rows of this dtype are multiplied with."""
    return torch.float16 if dtype == torch.float16 else torch.bfloat16


def empty_halves(
    outputs: int, batch: int, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """Room for a matrix as the kernels take it, in one allocation: high half, low half, scales.

    The scales are one float32 for each row, in the place of two numbers of the halves.
    """
    return torch.empty(2 * outputs * (batch + 1), dtype=dtype, device=device)


def split(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """A float32 matrix of weights as the kernels take it, for rows of this dtype."""
    # scaled so that the heaviest entry of a row is exactly 1
    scale = matrix.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    scaled = matrix / scale
    high = scaled.to(half_dtype(dtype))
    low = (scaled - high.float()).to(high.dtype)
    return torch.cat([high.flatten(), low.flatten(), scale.flatten().view(high.dtype)])


def mix_rows(rows: Tensor, indices: Tensor, weights: Tensor, *, tf32: bool) -> Tensor:
    """Apply a plan to rows [batch, features], as `reference.mix_rows`."""
    batch, features = rows.shape
    outputs, sources = indices.shape
    out = rows.new_empty(outputs, features)
    if features == 0:
        return out
    way = choose(batch, sources, rows.dtype, tf32, _memory(rows.device))
    matrix = None
    if way != "gather":
        plain = dense(indices, weights, batch)
        matrix = plain.to(rows.dtype) if way == "torch" else split(plain, rows.dtype)
    # rows may start anywhere, so the launch is bound to these and not kept
    like = Batch.of(rows, indices)
    mix = _mixer(way, like, Sizes(batch, sources, outputs), features, loose=False)
    mix(rows, out, matrix, indices.contiguous(), weights.contiguous())
    return out


Mixer = Callable[[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None], None]


def _mixer(way: str, batch: Batch, sizes: Sizes, features: int, loose: bool) -> Mixer:
    """A function (samples, out, matrix, indices, weights) that writes out, by the way chosen."""
    mode = _mode(batch.dtype, loose)
    if way == "gather":
        return _gatherer(sizes, features, mode)
    if way == "torch":
        return lambda samples, out, matrix, *_: _multiply(samples, out, matrix, features)
    if way == "loop":
        return _looper(sizes, features, mode)
    return _whole_mixer(batch, sizes, features, mode)


def _mode(dtype: torch.dtype, loose: bool) -> str:
    if dtype == torch.float32:
        return "split2" if loose else "split3"
    return "bytes" if dtype == torch.uint8 else "half"


def _multiply(samples: Tensor, out: Tensor, matrix: Any, features: int) -> None:
    # both are dense with the batch outermost, so they are matrices whatever their strides within
    rows = samples.as_strided((samples.shape[0], features), (features, 1))
    torch.mm(matrix, rows, out=out.as_strided((out.shape[0], features), (features, 1)))


def _whole_mixer(batch: Batch, sizes: Sizes, features: int, mode: str) -> Mixer:
    block_in = max(16, triton.next_power_of_2(sizes.batch))
    block_out = min(block_in, max(16, triton.next_power_of_2(sizes.outputs)))
    memory = _memory(batch.device)
    block, warps, stages, per_core, tma = tiling(block_in, features, mode, memory)
    groups = triton.cdiv(sizes.outputs, block_out)
    tiles = triton.cdiv(features, block)
    programs = min(tiles, max(1, per_core * _cores(batch.device) // groups)) * groups
    tma = tma and batch.aligned and features * batch.dtype.itemsize % 16 == 0
    even = sizes.batch == block_in and sizes.outputs % block_out == 0 and features % block == 0
    launch = Launch(
        kernels.mix_whole_kernel,
        (programs,),
        TMA=tma,
        EVEN=even,
        MODE=mode,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        BLOCK=block,
        STAGES=stages,
        num_warps=warps,
    )

    def mix(samples: Tensor, out: Tensor, matrix: Tensor | None, *_: Tensor | None) -> None:
        here: Any = samples
        there: Any = out
        if tma:
            here = TensorDescriptor(
                samples, [sizes.batch, features], [features, 1], [block_in, block]
            )
            there = TensorDescriptor(
                out, [sizes.outputs, features], [features, 1], [block_out, block]
            )
        launch(here, there, samples, out, matrix, sizes.outputs, sizes.batch, features)

    return mix


def tiling(
    block_in: int, features: int, mode: str, memory: int = HOPPER
) -> tuple[int, int, int, int, bool]:
    """(block, warps, stages, programs per multiprocessor, tma), by a sweep on an H200."""
    if block_in <= 64:
        return (128, 4, 3, 3, False) if mode in ("half", "bytes") else (64, 8, 3, 4, False)
    if features < 16384 or memory < HOPPER:
        # too few tiles to go round, or too little room for large ones
        return 32, 8, 4, 2, False
    if mode in ("half", "bytes"):
        return 128, 8, 4, 1, False
    return (64, 4, 4, 1, True) if mode == "split3" else (64, 8, 5, 1, False)


def _looper(sizes: Sizes, features: int, mode: str) -> Mixer:
    # H200, 256 × 3 × 224², float32: 161 µs with these, 173 to 290 with others
    block_out, block_in, block = 128, 32, 128
    launch = Launch(
        kernels.mix_loop_kernel,
        (triton.cdiv(sizes.outputs, block_out) * triton.cdiv(features, block),),
        MODE=mode,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        BLOCK=block,
        STAGES=3,
        num_warps=4,
    )
    return lambda samples, out, matrix, *_: launch(
        samples, out, matrix, sizes.outputs, sizes.batch, features
    )


def _gatherer(sizes: Sizes, features: int, mode: str) -> Mixer:
    block = min(1024, max(128, triton.next_power_of_2(features)))
    launch = Launch(
        kernels.mix_gather_kernel,
        (triton.cdiv(features, block) * sizes.outputs,),
        MODE=mode,
        BLOCK=block,
        num_warps=4,
    )
    return lambda samples, out, matrix, indices, weights: launch(
        samples, out, indices, weights, sizes.batch, sizes.sources, features
    )


@lru_cache(maxsize=16)
def _cores(device: torch.device) -> int:
    """Multiprocessors of a GPU; the interpreter on a CPU pretends to have two."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@lru_cache(maxsize=16)
def _memory(device: torch.device) -> int:
    """Shared memory that a program may take; the interpreter has as much as it likes."""
    if device.type != "cuda":
        return HOPPER
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)
