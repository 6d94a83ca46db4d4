"""Launch the Triton kernels: what `dispatch.mix_labelled` calls on a GPU.

What depends on shapes and options only is worked out once for each of them and cached; a call then
allocates memory and launches.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from zetamix.boxes import Size
from zetamix.kernels.triton_kernel import matrix_kernel, mix_kernel, product_kernel
from zetamix.plan import PlanRule
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


class Batch(NamedTuple):
    """Everything about the tensors of a call that a launch depends on."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool
    label_dtype: torch.dtype
    labels_aligned: bool
    classes: int
    ignores: bool
    gamma: tuple[torch.dtype, bool] | None
    """dtype and alignment of a tensor of γ."""

    @classmethod
    def of(
        cls,
        samples: Tensor,
        labels: Tensor,
        classes: int,
        ignore_index: int | None,
        rule: PlanRule,
    ) -> "Batch":
        gamma = None
        if isinstance(rule.gamma, Tensor):
            gamma = rule.gamma.dtype, rule.gamma.data_ptr() % 16 == 0
        facts = samples.shape, samples.stride(), samples.dtype, samples.device
        labels_aligned = labels.data_ptr() % 16 == 0
        aligned = samples.data_ptr() % 16 == 0, labels.dtype, labels_aligned
        return cls(*facts, *aligned, classes, ignore_index is not None, gamma)


class Launch:
    """A kernel with its grid and constants, for arguments of the same types and alignments.

    Binding forty arguments takes the host longer than all else, so the compiled kernel is kept and
    called with them, as Triton's tutorials do.
    """

    def __init__(self, kernel: Any, programs: int, warps: int, **constants: Any) -> None:
        self.kernel = kernel
        self.grid = (programs, 1, 1)
        self.warps = warps
        self.constants = constants
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> None:
        if self.compiled is not None:
            # the constants are the last arguments of the kernel, in this order
            self.compiled[self.grid](*arguments, *self.constants.values())
            return
        # the interpreter compiles nothing
        options = {**self.constants, **OPTIONS, "num_warps": self.warps}
        self.compiled = self.kernel[self.grid](*arguments, **options)


@lru_cache(maxsize=16)
def _zero_seed(device: torch.device) -> Tensor:
    """A zero seed, for origins that are known on the host: the same kernel is then used."""
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    # once per device: calls on other streams must not read it before it is written
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return zero


def _origin(draw: Draw) -> tuple[Tensor, int]:
    seed, offset = draw.origin()
    return _zero_seed(draw.device) if seed is None else seed, offset


def _gamma(rule: PlanRule) -> tuple[Tensor | None, int, float, float]:
    """γ as a tensor and its step, or as a number and the length of its range."""
    gamma = rule.gamma
    if isinstance(gamma, Tensor):
        return gamma, gamma.stride(0) if gamma.ndim else 0, 0.0, 0.0
    if isinstance(gamma, tuple):
        return None, 0, float(gamma[0]), float(gamma[1] - gamma[0])
    return None, 0, float(rule.alpha if gamma is None else gamma), 0.0


def mix_few(
    samples: Tensor,
    labels: Tensor,
    classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    keeps: bool,
    size: Size | None,
    mean: float | Sequence[float] | None,
    draw: Draw,
    plan: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor] | None:
    """Samples and targets of a plan of up to four sources, in one launch.

    None in the capture of a CUDA graph whose kernel was not used before. The samples must be dense
    with the batch outermost, whatever the order of other dimensions.

    keeps: whether the variance of these samples is kept. plan: [batch, sources, 5] and
    [batch, sources], into which the rows and boxes, and the weights of the plan are written.
    """
    batch = samples.shape[0]
    means = _means(mean, samples.dtype) if keeps else ()
    facts = Batch.of(samples, labels, classes, ignore_index, rule)
    pastes = size is not None and rule.paste > 0
    law = "zeta" if rule.gamma is not None else rule.per
    rows = "rotated" if rule.partner == "rotated" else rule.anchor
    around = rule.box_alpha is not None
    options = sources_of(rule, batch), rows, law, pastes, around, keeps, len(means)
    launch, places = _prepare_few(facts, *options, plan[0] is not None)
    if _cannot_start(launch):
        return None
    out = torch.empty_like(samples)
    targets = torch.empty(batch, classes, dtype=torch.float32, device=samples.device)
    seed, offset = _origin(draw)
    gamma, step, number, span = _gamma(rule)
    cut = 1.0 if rule.box_alpha is None else float(rule.box_alpha)
    launch(
        *(samples, out, labels, targets, seed, gamma, *plan),
        *(offset, number, span, cut, float(rule.p), float(rule.paste)),
        *(means + (0.0,) * MOST_MEANS)[:MOST_MEANS],
        *(step, batch, samples.shape[1:].numel(), classes, ignore_index, *places),
    )
    return out, targets


def sources_of(rule: PlanRule, batch: int) -> int:
    wanted = 2 if rule.gamma is None else rule.sources or batch
    return min(wanted, batch)


def _means(mean: float | Sequence[float] | None, dtype: torch.dtype) -> tuple[float, ...]:
    """The means of the channels in the unit of the samples."""
    if mean is None:
        return ()
    largest = 255.0 if dtype == torch.uint8 else 1.0
    return tuple(largest * number for number in (mean if isinstance(mean, Sequence) else (mean,)))


@lru_cache(maxsize=256)
def _prepare_few(
    facts: Batch,
    sources: int,
    rows: str,
    law: str,
    pastes: bool,
    around: bool,
    keeps: bool,
    means: int,
    shows: bool,
) -> tuple[Launch, tuple[int, int, int, int]]:
    """The launch, and where pixels and channels are: height, width, pixel, channel."""
    shape, stride = facts.shape, facts.stride
    features = shape[1:].numel()
    channels = shape[1] if len(shape) > 1 else 1
    last = len(shape) > 2 and stride[1] == 1 and channels > 1
    pixel, channel = (channels, 1) if last else (1, features // channels)
    height, width = (shape[-2], shape[-1]) if pastes else (1, 1)
    block, warps = tiling(features, facts.dtype)
    chunk, even = block, True
    if pastes or (means > 1 and not last):
        line = width * pixel if pastes else channel
        chunk = min(CHUNK, 1 << (line.bit_length() - 1))
        even = line % chunk == 0
    launch = Launch(
        mix_kernel,
        shape[0] * triton.cdiv(features, block),
        warps,
        SOURCES=sources,
        ROWS=rows,
        LAW=law,
        BOXES=("around" if around else "inside") if pastes else "none",
        KEEP=keeps,
        MEANS=means,
        LAST=last,
        EVEN=even,
        BLOCK=block,
        CHUNK=chunk,
        CLASS_BLOCK=min(128, triton.next_power_of_2(facts.classes)),
    )
    return launch, (height, width, pixel, channel)


def tiling(features: int, dtype: torch.dtype) -> tuple[int, int]:
    """(block, warps), by a sweep on an H200: every thread has 64 bytes of each source.

    With half of that, pasting float32 takes 1.40 × copy instead of 1.16 (256 × 3 × 224²); with
    twice, blends take 1.18 instead of 1.16.
    """
    block = 4096 // dtype.itemsize
    return min(block, max(128, triton.next_power_of_2(features))), 2


def mix_many(
    rows: Tensor,
    labels: Tensor,
    classes: int,
    ignore_index: int | None,
    rule: PlanRule,
    draw: Draw,
) -> tuple[Tensor, Tensor] | None:
    """As `mix_few` for more sources, blended, and rows [batch, features]: plan, then product."""
    batch, features = rows.shape
    facts = Batch.of(rows, labels, classes, ignore_index, rule)
    halves = rows.dtype in (torch.float16, torch.bfloat16)
    tf32 = rows.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
    plan, product = _prepare_many(facts, sources_of(rule, batch), rule.anchor, halves)
    if _cannot_start(plan) or not (halves or tf32 or not _cannot_start(product)):
        return None
    digits = plan.constants["DIGITS"]
    # every entry is written where keys are sorted
    new = torch.zeros if digits else torch.empty
    kind = rows.dtype if halves else torch.float32
    matrix = new(batch, batch, dtype=kind, device=rows.device)
    targets = torch.empty(batch, classes, dtype=torch.float32, device=rows.device)
    seed, offset = _origin(draw)
    gamma, step, number, span = _gamma(rule)
    plan(
        *(matrix, labels, targets, seed, gamma, offset, number, span, float(rule.p)),
        *(step, batch, sources_of(rule, batch), classes, ignore_index),
    )
    out = torch.empty_like(rows)
    if halves or tf32:
        # written into a given tensor, autocast leaves the product as it is
        torch.mm(matrix, rows, out=out)
    else:
        product(matrix, rows, out, batch, features)
    return out, targets


@lru_cache(maxsize=256)
def _prepare_many(facts: Batch, sources: int, anchor: str, halves: bool) -> tuple[Launch, Launch]:
    """The launches of the plan and of the product."""
    batch, features = facts.shape
    width = order_width(batch, sources)
    plan = Launch(
        matrix_kernel,
        batch,
        # H200: 1 to 8 warps all take 3.2 µs at 128 rows; at 256 rows 1 takes 6.2, 4 take 4.3
        4,
        SELF=anchor == "self",
        DIGITS=width != batch,
        BLOCK=triton.next_power_of_2(width),
        CLASS_BLOCK=min(64, triton.next_power_of_2(facts.classes)),
    )
    out, block = min(128, max(16, triton.next_power_of_2(batch))), 128
    programs = triton.cdiv(batch, out) * triton.cdiv(features, block)
    product = Launch(product_kernel, programs, 4, BLOCK_OUT=out, BLOCK_IN=32, BLOCK=block)
    return plan, product


def draws(rule: PlanRule, batch: int) -> bool:
    """Whether the kernels draw the plans of this rule."""
    if rule.gamma is None:
        return True
    sources = sources_of(rule, batch)
    few = sources <= MOST_FEW
    many = rule.paste == 0 and order_width(batch, sources) <= MOST_SORTED
    return rule.box_alpha is None and rule.per == "sample" and (few or many)


def _cannot_start(launch: Launch) -> bool:
    """Whether a CUDA graph is captured, which cannot capture that a kernel is compiled."""
    cuda = torch.cuda.is_available()
    return launch.compiled is None and cuda and torch.cuda.is_current_stream_capturing()
