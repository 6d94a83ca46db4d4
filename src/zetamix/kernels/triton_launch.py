"""Launch the Triton kernels: drawing plans, mixing samples and mixing labels on a GPU.

Everything about a launch that depends on shapes and settings only is computed once, in `prepare`,
and cached; a call then allocates memory and launches two kernels.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from zetamix.kernels import triton_kernels as kernels
from zetamix.kernels.plan_spec import MOST_FEW, Origin, PlanShape, PlanSpec
from zetamix.kernels.reference import dense

# one program sorts a whole row of keys; longer rows are sorted by torch
MAX_SORTED = 1024
# up to this size the whole matrix stays on the multiprocessor while samples are streamed
MAX_WHOLE = 128
# shared memory in bytes that a program may use: Hopper, A100, any GPU since Ampere
HOPPER, AMPERE, SMALL = 232_448, 166_912, 101_376

Path: TypeAlias = Literal["gather", "whole", "loop", "torch"]
MATRIX_OF_PATH = {"gather": "none", "whole": "halves", "loop": "halves", "torch": "plain"}


class Launch:
    """A kernel with its grid and constants fixed.

    Binding twenty arguments for each call is slow, so the compiled kernel is kept and called
    directly. With this and `prepare` a call went from 278 to 83 µs on the host of an H200. All
    calls of one Launch must have arguments of the same dtype, alignment and integer values.
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
            self.run = self._runner(compiled)

    def _runner(self, compiled: Any) -> Callable[..., None]:
        """What `compiled[grid]` returns, without its hooks for profilers of launches."""
        launch, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
        device = torch.cuda.current_device()

        def run(*arguments: Any) -> None:
            stream = torch._C._cuda_getCurrentRawStream(device)
            launch(*self.grid, stream, function, metadata, None, None, None, *arguments)

        return run


class PlanBuffers(NamedTuple):
    """What the plan kernel reads and writes, in the order that it takes them."""

    labels: Tensor | None = None
    indices: Tensor | None = None
    weights: Tensor | None = None
    matrix: Tensor | None = None
    targets: Tensor | None = None


def launch_plan(
    launch: Launch,
    spec: PlanSpec,
    origin: Origin,
    device: torch.device,
    buffers: PlanBuffers,
    classes: int = 0,
    ignore: int = 0,
) -> None:
    """Call the plan kernel with the random origin, γ, the buffers and the sizes."""
    seed, offset = origin
    if seed is None:
        seed = zero_seed(device)
    gammas = gamma_tensor(spec)
    counts = (*spec.shape[:3], classes, ignore)
    launch(seed, gammas, *buffers, offset, *gamma_numbers(spec), *counts)


def gamma_tensor(spec: PlanSpec) -> Tensor | None:
    """[outputs], float32: one γ per output, where it is given so."""
    gammas = spec.parameter
    if not isinstance(gammas, Tensor):
        return None
    return gammas.float().expand(spec.shape.outputs).contiguous()


def gamma_numbers(spec: PlanSpec) -> tuple[float, float]:
    """γ (or α) and 0, or the lower end of γ's range and its length."""
    parameter = spec.parameter
    if isinstance(parameter, tuple):
        low, high = parameter
        return float(low), float(high - low)
    return (0.0, 0.0) if isinstance(parameter, Tensor) else (float(parameter), 0.0)


def gamma_kind(plan: PlanShape) -> str:
    if plan.gamma_range:
        return "range"
    return "tensor" if plan.gamma_tensor else "number"


def plan_launch(
    plan: PlanShape,
    *,
    write_plan: bool = False,
    matrix: str = "none",
    classes: int = 0,
    ignore: bool = False,
    overlap: bool = False,
) -> Launch:
    """The plan kernel, set up to write indices and weights, a matrix, or targets.

    overlap: the next kernel may be started before this one has ended.
    """
    digits = plan.order_width != plan.batch_size
    return Launch(
        kernels.plan_kernel,
        (plan.outputs,),
        GAMMA_KIND=gamma_kind(plan),
        DIGITS=digits,
        SELF=plan.own_anchor,
        PLAN=write_plan,
        MATRIX=matrix,
        TARGETS=classes > 0,
        IGNORE=ignore,
        BLOCK=triton.next_power_of_2(plan.order_width),
        CLASS_BLOCK=min(64, triton.next_power_of_2(max(classes, 1))),
        OVERLAP=overlap,
        # H200: 1 to 8 warps all take 3.2 µs at 128 rows; at 256 rows 1 takes 6.2, 4 take 4.3
        num_warps=4,
        # debug is on for the label assertion; overflow is what the hash is made of
        sanitize_overflow=False,
    )


def draw_plan(spec: PlanSpec, origin: Origin, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices and weights, [outputs, sources], of a plan drawn from an origin."""
    indices, weights = _empty_plan(spec.shape, device)
    launch = _plan_only(spec.shape, device)
    launch_plan(launch, spec, origin, device, PlanBuffers(None, indices, weights))
    return indices, weights


def _empty_plan(plan: PlanShape, device: torch.device) -> tuple[Tensor, Tensor]:
    shape = (plan.outputs, plan.sources)
    indices = torch.empty(shape, dtype=torch.int64, device=device)
    return indices, torch.empty(shape, dtype=torch.float32, device=device)


@lru_cache(maxsize=64)
def _plan_only(plan: PlanShape, device: torch.device) -> Launch:
    """One for each device: a compiled kernel belongs to one."""
    return plan_launch(plan, write_plan=True)


@lru_cache(maxsize=16)
def zero_seed(device: torch.device) -> Tensor:
    """A zero seed, for origins that are known on the host: the same kernel is then used."""
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    # once per device: calls on other streams must not read it before it is written
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return zero


class Batch(NamedTuple):
    """The properties of the tensors that a prepared call depends on."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool
    label_dtype: torch.dtype

    @classmethod
    def of(cls, x: Tensor, labels: Tensor) -> "Batch":
        aligned = x.data_ptr() % 16 == 0
        return cls(x.shape, x.stride(), x.dtype, x.device, aligned, labels.dtype)

    @property
    def features(self) -> int:
        return self.shape[1:].numel()


Prepared: TypeAlias = Callable[[Tensor, Tensor, PlanSpec, Origin], tuple[Tensor, Tensor]]


@lru_cache(maxsize=128)
def prepare(
    batch: Batch,
    plan: PlanShape,
    classes: int,
    ignore_index: int | None,
    *,
    tf32: bool,
) -> Prepared:
    """A function (samples, labels, spec, origin) → (samples, targets) for batches like this one.

    The samples must be dense with the batch outermost, whatever the order of other dimensions.
    tf32: whether torch may use TF32.
    """
    # for dominant plans dropping the low half of the matrix loses no more than TF32 itself does
    loose = tf32 and plan.dominant
    out_shape = (plan.outputs, *batch.shape[1:])
    out_stride = (batch.features, *batch.stride[1:])
    _, shared_memory = _gpu(batch.device)
    # small products do not gain: 128 × 3 × 32² −0.8 µs in float32, +1.0 in bfloat16 (H200)
    overlap = overlaps(batch.device) and batch.features >= 16384
    path = choose_path(plan.batch_size, plan.sources, batch.dtype, tf32, shared_memory)
    halves = half_dtype(batch.dtype)
    draw = plan_launch(
        plan,
        write_plan=path == "gather",
        matrix=MATRIX_OF_PATH[path],
        classes=classes,
        ignore=ignore_index is not None,
        overlap=overlap,
    )
    mix = make_mixer(path, batch, plan, loose, overlap=overlap)

    def run(
        samples: Tensor, labels: Tensor, spec: PlanSpec, origin: Origin
    ) -> tuple[Tensor, Tensor]:
        device = samples.device
        targets = torch.empty(plan.outputs, classes, dtype=torch.float32, device=device)
        out = torch.empty_strided(out_shape, out_stride, dtype=batch.dtype, device=device)
        indices = weights = matrix = None
        if path == "gather":
            indices, weights = _empty_plan(plan, device)
        elif path == "torch":
            shape = (plan.outputs, plan.batch_size)
            matrix = torch.empty(shape, dtype=batch.dtype, device=device)
        else:
            matrix = empty_halves(plan.outputs, plan.batch_size, halves, device)
        buffers = PlanBuffers(labels, indices, weights, matrix, targets)
        launch_plan(draw, spec, origin, device, buffers, classes, ignore_index or 0)
        mix(samples, out, matrix, indices, weights)
        return out, targets

    return run


def choose_path(
    batch_size: int, sources: int, dtype: torch.dtype, tf32: bool, shared_memory: int = HOPPER
) -> Path:
    """The fastest way to mix: "gather", "whole", "loop", or "torch" for its matrix product.

    Gathering reads a row for each source; a product works through the whole batch. On an H200 2
    sources of a given plan are gathered from 32 × 3 × 224² in 12 µs (float32) and 8 (bfloat16),
    where a product and the matrix for it take 30 and 24. Above 128 rows the matrix no longer stays
    on a multiprocessor, and cuBLAS overlaps the traffic better (256 × 3 × 224²: bfloat16 48 µs
    against 67, TF32 93 against 137). With less shared memory than an A100's the matrix stays there
    only up to 64 rows.
    """
    if sources <= MOST_FEW or sources * 64 <= batch_size:
        return "gather"
    if batch_size <= (MAX_WHOLE if shared_memory >= AMPERE else 64):
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
    """Memory for a matrix as the kernels take it: high half, low half, scales, in one allocation.

    The scales are one float32 for each row, which takes the room of two numbers of the halves.
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
    # the kernels do not support strides
    rows = rows.contiguous()
    batch_size, features = rows.shape
    outputs, sources = indices.shape
    out = rows.new_empty(outputs, features)
    if features == 0:
        return out
    path = choose_path(batch_size, sources, rows.dtype, tf32, _gpu(rows.device)[1])
    matrix = None
    if path != "gather":
        plain = dense(indices, weights, batch_size)
        matrix = plain.to(rows.dtype) if path == "torch" else split(plain, rows.dtype)
    # rows may start at any address, so the launch is bound to these and not kept
    plan = PlanShape(batch_size, sources, outputs, order_width=batch_size)
    mix = make_mixer(path, Batch.of(rows, indices), plan, loose=False)
    mix(rows, out, matrix, indices.contiguous(), weights.contiguous())
    return out


Mixer: TypeAlias = Callable[[Tensor, Tensor, Any, Tensor | None, Tensor | None], object]


def make_mixer(
    path: Path, batch: Batch, plan: PlanShape, loose: bool, *, overlap: bool = False
) -> Mixer:
    """A function (samples, out, matrix, indices, weights) that writes out, by the path chosen.

    overlap: the plan kernel is launched right before, and may overlap with mixing.
    """
    features, mode = batch.features, mode_of(batch.dtype, loose)
    sizes = (plan.outputs, plan.batch_size, features)
    if path == "whole":
        return _whole_mixer(batch, plan, mode, overlap)
    if path == "torch":
        # dense with the batch outermost: matrices, whatever the strides of other dimensions
        into, out_of = (plan.batch_size, features), (plan.outputs, features)
        return lambda samples, out, matrix, *_: torch.mm(
            matrix,
            samples.as_strided(into, (features, 1)),
            out=out.as_strided(out_of, (features, 1)),
        )
    if path == "loop":
        # H200, 256 × 3 × 224², float32: 161 µs with these, 173 to 290 with others
        blocks = {"BLOCK_OUT": 128, "BLOCK_IN": 32, "BLOCK": 128, "STAGES": 3}
        programs = triton.cdiv(plan.outputs, 128) * triton.cdiv(features, 128)
        blocks |= {"OVERLAP": overlap, "launch_pdl": overlap, "num_warps": 4}
        loop = Launch(kernels.mix_loop_kernel, (programs,), MODE=mode, **blocks)
        return lambda samples, out, matrix, *_: loop(samples, out, matrix, *sizes)
    block = min(1024, max(128, triton.next_power_of_2(features)))
    programs = triton.cdiv(features, block) * plan.outputs
    tiles = {"BLOCK": block, "OVERLAP": overlap, "launch_pdl": overlap, "num_warps": 4}
    gather = Launch(kernels.mix_gather_kernel, (programs,), MODE=mode, **tiles)
    counts = (plan.batch_size, plan.sources, features, plan.outputs)
    return lambda samples, out, _, indices, weights: gather(samples, out, indices, weights, *counts)


def mode_of(dtype: torch.dtype, loose: bool) -> str:
    if dtype == torch.float32:
        return "split2" if loose else "split3"
    return "bytes" if dtype == torch.uint8 else "half"


def _whole_mixer(batch: Batch, plan: PlanShape, mode: str, overlap: bool) -> Mixer:
    features = batch.features
    block_in = max(16, triton.next_power_of_2(plan.batch_size))
    block_out = min(block_in, max(16, triton.next_power_of_2(plan.outputs)))
    multiprocessors, shared_memory = _gpu(batch.device)
    block, warps, stages, per_core, tma = tiling(block_in, features, mode, shared_memory)
    groups = triton.cdiv(plan.outputs, block_out)
    tiles = triton.cdiv(features, block)
    programs = min(tiles, max(1, per_core * multiprocessors // groups)) * groups
    tma = tma and batch.aligned and features * batch.dtype.itemsize % 16 == 0
    even = plan.batch_size == block_in and plan.outputs % block_out == 0 and features % block == 0
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
        OVERLAP=overlap,
        launch_pdl=overlap,
        num_warps=warps,
    )

    sizes = (plan.outputs, plan.batch_size, features)

    def mix(samples: Tensor, out: Tensor, matrix: Any, *_: Tensor | None) -> None:
        source: Any = samples
        target: Any = out
        if tma:
            stride = [features, 1]
            source = TensorDescriptor(samples, [sizes[1], features], stride, [block_in, block])
            target = TensorDescriptor(out, [sizes[0], features], stride, [block_out, block])
        launch(source, target, samples, out, matrix, *sizes)

    return mix


def tiling(
    block_in: int, features: int, mode: str, shared_memory: int = HOPPER
) -> tuple[int, int, int, int, bool]:
    """(block, warps, stages, programs per multiprocessor, tma), by a sweep on an H200."""
    if block_in <= 64:
        return (128, 4, 3, 3, False) if mode in ("half", "bytes") else (64, 8, 3, 4, False)
    if features < 16384 or shared_memory < HOPPER:
        # too few tiles for all multiprocessors, or too little memory for large ones
        return 32, 8, 4, 2, False
    if mode in ("half", "bytes"):
        return 128, 8, 4, 1, False
    return (64, 4, 4, 1, True) if mode == "split3" else (64, 8, 5, 1, False)


@lru_cache(maxsize=16)
def overlaps(device: torch.device) -> bool:
    """Whether a kernel can start before the previous one has ended: Hopper and newer."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


@lru_cache(maxsize=16)
def _gpu(device: torch.device) -> tuple[int, int]:
    """(multiprocessors, shared memory that a program may take); the interpreter has no limit."""
    if device.type != "cuda":
        return 2, HOPPER
    gpu = torch.cuda.get_device_properties(device)
    return gpu.multi_processor_count, gpu.shared_memory_per_block_optin
