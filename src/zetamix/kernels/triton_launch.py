"""Launch the Triton kernels: what `dispatch.mix_labelled` calls on a GPU.

What depends on shapes and options only is worked out once for each of them and kept; a call then
allocates memory and launches. Nothing that is kept holds a tensor of a call.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from zetamix.boxes import Size
from zetamix.kernels.triton_kernel import matrix_kernel, mix_kernel, product_kernel
from zetamix.plan import PlanRule, sources_of
from zetamix.sampling import MOST_FEW, Draw, order_width

# with one mean per channel, images of at most this many channels are mixed by the kernel
MOST_MEANS = 4
# one program sorts a whole row of keys; longer rows are sorted by torch
MOST_SORTED = 1024
# lines are found once for this many numbers: one by one, pasting at 256 × 3 × 224² takes 57 µs
# instead of 52 in bfloat16, 56 instead of 43 in uint8 (H200)
CHUNK = 32
# the kernels' debug is on for the label assertion; overflow is what the hash is made of
OPTIONS = {"sanitize_overflow": False, "enable_fp_fusion": True}
# Triton's own launcher is called in the version where that was measured
KNOWN_LAUNCHER = "3.6."
MOST_KEPT = 256
_kept: dict[tuple[Any, ...], Any] = {}


class Launch:
    """A kernel with its grid and constants, for arguments of the same types and alignments.

    Binding forty arguments takes the host longer than all else, so the compiled kernel is kept and
    called with them, as Triton's tutorials do.
    """

    def __init__(self, kernel: Any, programs: int, warps: int, **constants: Any) -> None:
        self.kernel = kernel
        self.grid = (programs, 1, 1)
        self.options = {**constants, **OPTIONS, "num_warps": warps}
        # the last arguments of the kernel, in this order
        self.constants = tuple(constants.values())
        self.run: Callable[..., None] | None = None

    def __call__(self, *arguments: Any) -> None:
        if self.run is not None:
            self.run(*arguments, *self.constants)
            return
        compiled = self.kernel[self.grid](*arguments, **self.options)
        # the interpreter compiles nothing
        if compiled is not None:
            self.run = _runner(compiled, self.grid)

    def cannot_start(self) -> bool:
        """Whether a CUDA graph is captured, which cannot capture that a kernel is compiled."""
        if self.run is not None or not torch.cuda.is_available():
            return False
        return torch.cuda.is_current_stream_capturing()


def _runner(compiled: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """`compiled[grid]`, in the known version without its look-ups of device, stream and hooks."""
    current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if current_stream is None or not triton.__version__.startswith(KNOWN_LAUNCHER):
        public: Callable[..., None] = compiled[grid]
        return public
    launch, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    device = torch.cuda.current_device()

    def run(*arguments: Any) -> None:
        launch(*grid, current_stream(device), function, metadata, None, None, None, *arguments)

    return run


def _keep(key: tuple[Any, ...], prepared: Any) -> Any:
    if len(_kept) >= MOST_KEPT:
        _kept.clear()
    _kept[key] = prepared
    return prepared


def _facts(samples: Tensor, labels: Tensor, classes: int, ignores: bool, rule: PlanRule) -> Any:
    """What of a call its kernel is compiled for, whatever the number of sources."""
    gamma = rule.gamma
    tensors = [samples, labels, gamma] if isinstance(gamma, Tensor) else [samples, labels]
    kinds = [(tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors]
    return samples.shape, samples.device, classes, ignores, rule.sources, rule.anchor, *kinds


@lru_cache(maxsize=16)
def _zero_seed(device: torch.device) -> Tensor:
    """A zero seed, for origins that are known on the host: the same kernel is then used."""
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    # once per device: calls on other streams must not read it before it is written
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return zero


def _numbers(rule: PlanRule, draw: Draw) -> tuple[Any, ...]:
    """The seed, a tensor of γ and its step, the offset of the seed, γ (or α) and its range, p."""
    seed, offset = draw.origin()
    gamma, step, number, span = None, 0, rule.alpha, 0.0
    if isinstance(rule.gamma, Tensor):
        gamma, step = rule.gamma, rule.gamma.stride(0) if rule.gamma.ndim else 0
    elif isinstance(rule.gamma, tuple):
        number, span = rule.gamma[0], rule.gamma[1] - rule.gamma[0]
    elif rule.gamma is not None:
        number = rule.gamma
    seed = _zero_seed(draw.device) if seed is None else seed
    return seed, gamma, step, offset, float(number), float(span), float(rule.p)


def mix(
    samples: Tensor,
    labels: Tensor,
    classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    keeps: bool,
    size: Size | None,
    means: Sequence[float] | None,
    draw: Draw,
) -> tuple[Tensor, Tensor] | None:
    """Samples and targets; of a plan of up to four sources in one launch.

    None where the kernels do not draw such plans, and in the capture of a CUDA graph whose kernel
    was not used before. The samples must be dense with the batch outermost, whatever the order of
    other dimensions.

    keeps: whether the variance of these samples is kept.
    """
    batch = samples.shape[0]
    sources = sources_of(rule, batch)
    if sources > MOST_FEW:
        if keeps or rule.paste or order_width(batch, sources) > MOST_SORTED:
            return None
        return _mix_many(samples, labels, classes, ignore_index, rule, draw)
    if keeps and means is None and not samples.is_floating_point():
        return None
    if keeps and means and len(means) > 1 and not MOST_MEANS >= len(means) == samples.shape[1]:
        return None
    largest = 255.0 if samples.dtype == torch.uint8 else 1.0
    scaled = tuple(largest * mean for mean in means or ()) if keeps else None
    pastes = size is not None and rule.paste > 0
    key = rule.gamma is None, rule.per, rule.box_alpha is None, pastes, scaled
    key += (samples.stride(), *_facts(samples, labels, classes, ignore_index is None, rule))
    prepared = _kept.get(key)
    if prepared is None:
        prepared = _keep(key, _prepare_few(samples, classes, rule, pastes, scaled))
    launch, *sizes = prepared
    if launch.cannot_start():
        return None
    out = torch.empty_like(samples)
    targets = torch.empty(batch, classes, dtype=torch.float32, device=samples.device)
    launch(
        *(samples, out, labels, targets, *_numbers(rule, draw)),
        *(float(rule.box_alpha or 1), float(rule.paste), classes, ignore_index, *sizes),
    )
    return out, targets


def _prepare_few(
    samples: Tensor, classes: int, rule: PlanRule, pastes: bool, means: tuple[float, ...] | None
) -> tuple[Any, ...]:
    """The launch, and its sizes: batch, features, height, width, and the numbers of a pixel.

    means: None where the variance is not kept.
    """
    batch, features = samples.shape[0], samples.shape[1:].numel()
    channels = samples.shape[1] if samples.ndim > 1 else 1
    last = samples.ndim > 2 and samples.stride(1) == 1 and channels > 1
    pixel = channels if last else 1
    height, width = samples.shape[-2:] if pastes else (1, 1)
    block, warps = tiling(features, samples.dtype)
    # the largest power of two that divides a line or, without boxes, a channel
    parts = [block]
    if pastes or (means is not None and len(means) > 1 and not last):
        line = width * pixel if pastes else features // channels
        parts = [CHUNK, line & -line, block]
    inside = rule.box_alpha is None
    launch = Launch(
        mix_kernel,
        batch * triton.cdiv(features, block),
        warps,
        SOURCES=sources_of(rule, batch),
        ROWS="rotated" if rule.gamma is None else rule.anchor,
        LAW="zeta" if rule.gamma is not None else rule.per,
        BOXES=("inside" if inside else "around") if pastes else "none",
        KEEP=means is not None,
        MEANS=means or (),
        LAST=last,
        BLOCK=block,
        CHUNK=min(parts),
        CLASS_BLOCK=min(128, triton.next_power_of_2(classes)),
    )
    return launch, batch, features, height, width, pixel


def tiling(features: int, dtype: torch.dtype) -> tuple[int, int]:
    """(block, warps), by a sweep on an H200: every thread has 64 bytes of each source.

    With half of that, pasting float32 takes 1.40 × copy instead of 1.16 (256 × 3 × 224²); with
    twice, blends take 1.18 instead of 1.16.
    """
    block = 4096 // dtype.itemsize
    return min(block, max(128, triton.next_power_of_2(features))), 2


def _mix_many(
    samples: Tensor,
    labels: Tensor,
    classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    draw: Draw,
) -> tuple[Tensor, Tensor] | None:
    """As `mix` for more sources, blended: plan, then product."""
    key = _facts(samples, labels, classes, ignore_index is None, rule)
    prepared = _kept.get(key)
    if prepared is None:
        prepared = _keep(key, _prepare_many(samples, classes, rule))
    plan, product, sources, new_matrix = prepared
    halves = samples.dtype in (torch.float16, torch.bfloat16)
    rounds = torch.backends.cuda.matmul.fp32_precision == "tf32"
    by_torch = halves or (samples.dtype == torch.float32 and rounds)
    if plan.cannot_start() or (product.cannot_start() and not by_torch):
        return None
    batch, features = samples.shape[0], samples.shape[1:].numel()
    kind = samples.dtype if halves else torch.float32
    matrix = new_matrix(batch, batch, dtype=kind, device=samples.device)
    targets = torch.empty(batch, classes, dtype=torch.float32, device=samples.device)
    numbers = _numbers(rule, draw)
    plan(matrix, labels, targets, *numbers, classes, ignore_index, batch, sources)
    out = torch.empty_like(samples)
    if by_torch:
        # written into a given tensor, autocast leaves the product as it is
        flat = (batch, features), (features, 1)
        torch.mm(matrix, samples.as_strided(*flat), out=out.as_strided(*flat))
    else:
        product(matrix, samples, out, batch, features)
    return out, targets


def _prepare_many(samples: Tensor, classes: int, rule: PlanRule) -> tuple[Any, ...]:
    """The launches of plan and product, the number of sources, and what makes the matrix."""
    batch, features = samples.shape[0], samples.shape[1:].numel()
    sources = sources_of(rule, batch)
    width = order_width(batch, sources)
    plan = Launch(
        matrix_kernel,
        batch,
        # H200: 1 to 8 warps all take 3.2 µs at 128 rows; at 256 rows 1 takes 6.2, 4 take 4.3
        4,
        SELF=rule.anchor == "self",
        DIGITS=width != batch,
        BLOCK=triton.next_power_of_2(width),
        CLASS_BLOCK=min(64, triton.next_power_of_2(classes)),
    )
    # small samples are as many tiles as an H200 has multiprocessors; with 4 warps, registers spill
    out, block = min(128, max(16, triton.next_power_of_2(batch))), 128 if features >= 16384 else 32
    programs = triton.cdiv(batch, out) * triton.cdiv(features, block)
    product = Launch(product_kernel, programs, 8, BLOCK_OUT=out, BLOCK_IN=32, BLOCK=block)
    # every entry is written where keys are sorted
    return plan, product, sources, torch.empty if width == batch else torch.zeros
