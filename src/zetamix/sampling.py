"""Random numbers of a plan, all of them from the caller's generator."""

import math
import os
import threading
from functools import lru_cache

import torch
import torch.distributed
import torch.utils.data
from torch import Tensor

from zetamix._checks import check_count, check_generator, holds_for_all_sizes
from zetamix.kernels.plan_spec import MOST_FEW

# random integers lie in [0, KEY_LIMIT), so KEY_LIMIT itself outranks every one of them
KEY_LIMIT = 2**62
# keys of 30 bits order up to 1,024 rows; on a CPU shuffling beats sorting from 256 on
# (all rows into each output, one core: 256 rows 1.2 ms against 2.3, 1,024 rows 23 against 73)
MOST_SHORT_KEYS = 1024
LEAST_PERMUTED = 256

# SplitMix64 steps its counter by the golden ratio; streams step by another odd number
GOLDEN = 0x9E3779B97F4A7C15
STREAM_STEP = 0xD1B54A32D192ED03

# what a random number is for: each purpose has its own counters, so that no two share a number
ORDER, LAM, TRIES, GAMMA, MIXED, BOX, PASTED = range(7)
LANE_STEP = 2**40

ANY_CUDA = torch.device("cuda")
HAS_PROCESS_GROUPS = torch.distributed.is_available()
# launchers such as torchrun set the variable RANK; read once, since reading takes 1 µs
_RANK = os.environ.get("RANK", "")
LAUNCHED_RANK = int(_RANK) if _RANK.isdigit() else None
# two threads must not read the same state of a generator
_generator_lock = threading.Lock()


class Draw:
    """The random numbers of one plan.

    On a CPU they come directly from the generator, and every stream consumes the same number of
    them, so that all ranks of a job start and resume with the same generator state. On a GPU the
    generator gives one number, the origin, which SplitMix64 expands to all others, so that a kernel
    can compute them.

    stream: index of the random stream; None uses that of this process (`process_stream`).
    device: where the plan is drawn; None uses the device of the generator, or the CPU.
    """

    def __init__(
        self,
        generator: torch.Generator | None,
        stream: int | None,
        device: torch.device | str | int | None,
    ) -> None:
        if device is None:
            device = generator.device if isinstance(generator, torch.Generator) else "cpu"
        if not isinstance(device, torch.device):
            device = torch.device(device)
        if device == ANY_CUDA and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())
        if generator is not None:
            check_generator(generator, device)
        if stream is None:
            stream = process_stream(generator)
        elif not isinstance(stream, int) or stream < 0:
            check_count("stream", stream, 0)
        self.generator = generator
        self.device = device
        self.offset = signed(stream * STREAM_STEP) if stream else 0
        self._origin: tuple[Tensor | None, int] | None = None

    def origin(self) -> tuple[Tensor | None, int]:
        """The seed that a GPU expands: the sum of a tensor [1], or None, and an int.

        An eager call computes it from the state of the generator and advances the state, without
        work on the device. A captured CUDA graph or a traced function draws it on the device: torch
        advances its generators between replays, so each replay gets a new one.
        """
        if self._origin is None:
            if reads_generator_on_host(self.device):
                self._origin = None, _triton_stable_int(self._advance_generator())
            else:
                self._origin = self._randint(1), _triton_stable_int(mix64(self.offset))
        return self._origin

    def _advance_generator(self) -> int:
        generator = self.generator
        if generator is None:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            index = self.device.index
            index = torch.cuda.current_device() if index is None else index
            generator = torch.cuda.default_generators[index]
        with _generator_lock:
            position = generator.get_offset()
            # torch's offset counts numbers, and one step of its generator makes four
            generator.set_offset(position + 4)
        return mix64(generator.initial_seed() + position * GOLDEN + self.offset)

    def _randint(self, *shape: int) -> Tensor:
        # tracing with symbolic sizes fails if `generator` is passed, even as None
        if self.generator is None:
            return torch.randint(KEY_LIMIT, shape, device=self.device)
        return torch.randint(KEY_LIMIT, shape, generator=self.generator, device=self.device)

    def integers(self, lane: int, *shape: int) -> Tensor:
        """Random integers in [0, KEY_LIMIT)."""
        if self.device.type != "cpu":
            return expand(*self.origin(), *shape, lane=lane, device=self.device)
        bits = self._randint(*shape)
        return _scramble(bits + self.offset) if self.offset else bits

    def shuffle(self, rows: Tensor) -> None:
        """Fill every row [length] on a CPU with a random permutation of 0, …, length − 1."""
        # seeded by one number, so that all streams advance the caller's generator equally
        generator = torch.Generator().manual_seed(int(self.integers(ORDER, 1)))
        for row in rows:
            torch.randperm(len(row), generator=generator, out=row)

    def uniform(self, lane: int, *shape: int) -> Tensor:
        """Random numbers in [0, 1], in the precision that weights are computed in; on a CPU < 1."""
        if self.device.type == "cpu" and not self.offset and not torch.compiler.is_compiling():
            return torch.rand(
                shape, generator=self.generator, dtype=torch.float64, device=self.device
            )
        bits = self.integers(lane, *shape)
        if self.device.type == "cpu":
            # 53 bits, which float64 holds exactly
            return (bits >> 9).double() / 2**53
        return (bits.to(precise_dtype(self.device)) + 0.5) / KEY_LIMIT


def _triton_stable_int(number: int) -> int:
    """A seed made odd and at least 2³², so that Triton never specialises a kernel for its value.

    Triton recompiles for an integer that is 1, divisible by 16, or fits in 32 bits.
    """
    return number >> 3 << 1 & KEY_LIMIT - 1 | KEY_LIMIT | 1


def reads_generator_on_host(device: torch.device) -> bool:
    """Whether the host may read and advance the state of a CUDA generator right now."""
    return (
        device.type == "cuda"
        and not torch.compiler.is_compiling()
        and _has_cuda()
        and not torch.cuda.is_current_stream_capturing()
    )


@lru_cache(maxsize=1)
def _has_cuda() -> bool:
    return torch.cuda.is_available()


def expand(
    seed: Tensor | None, offset: int, *shape: int, lane: int = ORDER, device: torch.device
) -> Tensor:
    """Integers in [0, KEY_LIMIT) of the SplitMix64 sequence of `seed + offset`."""
    first = lane * LANE_STEP
    counters = torch.arange(first, first + math.prod(shape), device=device).view(shape)
    steps = counters * signed(GOLDEN) + offset
    return _scramble(steps if seed is None else steps + seed)


def order_width(batch: int, sources: int | None) -> int:
    """How many random integers one output's order takes: one per source, or one per batch row.

    For few sources, and from 16 rows per source on, digits for the sources beat keys for the whole
    batch (CPU, 8 sources: 64 rows 80 µs against 110, 128 rows 85 against 259, 1024 rows 0.19
    against 13.7 ms).
    """
    if sources is None:
        return batch
    # while tracing, do not branch on the batch size: every size would be recompiled
    if torch.compiler.is_compiling():
        few = sources <= 32
    else:
        few = sources <= MOST_FEW or sources * 16 <= batch
    return sources if few else batch


def draw_rows(
    draw: Draw, batch: int, sources: int, outputs: int, width: int, own_anchor: bool
) -> Tensor:
    """Draw [outputs, sources] distinct batch rows, uniform over all orders.

    width: `order_width(batch, sources)`. own_anchor: output k begins with row k.
    """
    compiling = torch.compiler.is_compiling()
    if not compiling and draw.device.type == "cpu" and width == batch >= LEAST_PERMUTED:
        return _order_by_permutations(draw, batch, sources, outputs, own_anchor)
    bits = draw.integers(ORDER, outputs, width)
    if not compiling:
        return order_rows(bits, batch, sources, own_anchor)
    # one graph for all batch sizes: do not branch on a comparison of sizes
    anchors = torch.arange(outputs, device=bits.device) % batch if own_anchor else None
    if holds_for_all_sizes(width == batch):
        return _order_by_long_keys(bits, sources, anchors)
    return _order_by_digits(bits, batch, anchors)


def order_rows(bits: Tensor, batch: int, sources: int, own_anchor: bool) -> Tensor:
    """Turn random integers into [outputs, sources] distinct batch rows, uniform over all orders.

    bits: [outputs, order_width(batch, sources)]. own_anchor: output k begins with row k.
    """
    outputs, width = bits.shape
    anchors = torch.arange(outputs, device=bits.device) % batch if own_anchor else None
    if width != batch or sources <= MOST_FEW:
        return _order_by_digits(bits, batch, anchors)
    if batch > MOST_SHORT_KEYS:
        return _order_by_long_keys(bits, sources, anchors)
    return _order_by_keys(bits, sources, anchors)


def _order_by_permutations(
    draw: Draw, batch: int, sources: int, outputs: int, own_anchor: bool
) -> Tensor:
    """One random permutation per output: no keys to draw and sort, little extra memory."""
    rows = torch.empty(outputs, batch, dtype=torch.int64, device="cpu")
    if own_anchor:
        anchors = torch.arange(outputs, device="cpu") % batch
        rows[:, 0] = anchors
        others = rows[:, 1:]
        draw.shuffle(others)
        # shift the permutations past the anchor, in blocks: torch widens the comparison to int64
        for start in range(0, outputs, 512):
            part = others[start : start + 512]
            part += part >= anchors[start : start + 512, None]
    else:
        draw.shuffle(rows)
    return rows[:, :sources].contiguous()


def _order_by_long_keys(bits: Tensor, sources: int, anchors: Tensor | None) -> Tensor:
    """Sort random keys of 62 bits, largest first."""
    if anchors is not None:
        bits = bits.scatter(1, anchors[:, None], KEY_LIMIT)
    return bits.argsort(dim=1, descending=True)[:, :sources]


def _order_by_keys(bits: Tensor, sources: int, anchors: Tensor | None) -> Tensor:
    """Sort random keys of 30 bits, largest first, for up to MOST_SHORT_KEYS rows.

    The lowest bits of each key are its column XOR a random mask per output, so that the order can
    be read from the sorted keys. The mask, from bits that the keys do not use, also breaks ties of
    the upper bits at random.
    """
    batch = bits.shape[1]
    low = (1 << (batch - 1).bit_length()) - 1
    mask = bits[:, :1] & low
    names = torch.arange(batch, device=bits.device) ^ mask
    keys = ((bits >> 32) & ~low) | names
    if anchors is not None:
        first = anchors[:, None]
        keys.scatter_(1, first, (first ^ mask) | (KEY_LIMIT >> 32))
    keys = keys.int()
    if sources == batch:
        ordered = keys.sort(dim=1, descending=True).values
    else:
        ordered = keys.topk(sources, dim=1, sorted=True).values
    return ((ordered & low) ^ mask).long()


def _order_by_digits(bits: Tensor, batch: int, anchors: Tensor | None) -> Tensor:
    """Read random integers as the digits of a Lehmer code and decode it.

    Digit t counts the rows below the t-th choice among those not chosen yet. Codes and ordered
    choices correspond one to one, so uniform digits give uniform orders.
    """
    sources = bits.shape[1]
    digits = bits % torch.arange(batch, batch - sources, -1, device=bits.device)
    if anchors is not None:
        digits = torch.cat([anchors[:, None], digits[:, 1:]], dim=1)
    digits = digits.t().contiguous()
    for rank in range(sources - 2, -1, -1):
        later = digits[rank + 1 :]
        later += later >= digits[rank]
    return digits.t().contiguous()


def draw_lam(draw: Draw, alpha: float, count: int) -> Tensor:
    """λ ~ Beta(α, α), shape [count], without underflow for any α."""
    if alpha == 1 and draw.device.type == "cpu" and not torch.compiler.is_compiling():
        return draw.uniform(LAM, count)
    uniform = draw.uniform(LAM, count, 2)
    if alpha == 1:
        return uniform[:, 0]
    # Gamma(α) = Gamma(α + 1) · U^(1/α): in logarithms, because for small α both underflow to 0
    tiny = torch.finfo(uniform.dtype).tiny
    tries = draw.uniform(TRIES, count, 2, 8, 3).clamp_min(tiny)
    logs = _log_gamma_variate(alpha + 1, tries) + uniform.clamp_min(tiny).log() / alpha
    return torch.sigmoid(logs[:, 0] - logs[:, 1])


def _log_gamma_variate(shape: float, uniform: Tensor) -> Tensor:
    """log of Gamma(shape) variates for shape > 1, from `uniform` [..., tries, 3].

    Marsaglia and Tsang's rejection sampling, which accepts more than 95 % of the tries. All eight
    tries are made at once; if all fail, which happens once in 10¹⁰ draws, the first is used.
    torch's own Gamma sampler does not support streams.
    """
    # a tensor: with a Python number, torch.compile makes one graph per value
    d = precise(shape - 1 / 3, uniform.device)
    first, second, third = uniform.unbind(-1)
    normal = (-2 * first.log()).sqrt() * torch.cos(2 * math.pi * second)
    v = (1 + normal / (9 * d).sqrt()) ** 3
    log_v = v.clamp_min(torch.finfo(v.dtype).tiny).log()
    accepted = (v > 0) & (third.log() < normal.square() / 2 + d - d * v + d * log_v)
    # argmax returns the first maximum: the first accepted try, or try 0 if all failed
    chosen = accepted.int().argmax(-1, keepdim=True)
    return (d.log() + log_v).gather(-1, chosen).squeeze(-1)


def process_stream(generator: torch.Generator | None, home_rank: int = 0) -> int:
    """A number that differs between the ranks of a job and between the workers of a loader.

    home_rank: the rank to assume in a process that has none, such as a spawned loader worker.
    """
    # torch seeds the default generator of each worker, but the caller's generator is copied to
    # every worker, at every epoch, with the same state
    worker = None
    if generator is not None and not torch.compiler.is_compiling():
        worker = torch.utils.data.get_worker_info()
    return process_rank(home_rank) + (0 if worker is None else worker.seed << 20)


def process_rank(home_rank: int = 0) -> int:
    """The rank of this process: from its process group, its launcher, or `home_rank`."""
    if HAS_PROCESS_GROUPS and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    # a spawned loader worker has no process group
    return home_rank if LAUNCHED_RANK is None else LAUNCHED_RANK


def _scramble(z: Tensor) -> Tensor:
    """The SplitMix64 finaliser: 62 bits that share no visible structure with their neighbours'."""
    z = (z ^ _shift(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * signed(0x94D049BB133111EB)
    return _shift(z ^ _shift(z, 31), 2)


def mix64(z: int) -> int:
    """The SplitMix64 finaliser of one number, 64 bits."""
    mask = 2**64 - 1
    z &= mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def _shift(z: Tensor, by: int) -> Tensor:
    """Logical right shift; torch's own copies the sign bit."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def precise(number: float | Tensor, device: torch.device) -> Tensor:
    """A number or tensor in the precision that weights are computed in."""
    if isinstance(number, Tensor):
        return number.to(precise_dtype(device))
    # a sum, which torch.compile traces for any value; torch.full would be recompiled for each
    return torch.zeros((), device=device, dtype=precise_dtype(device)) + number


def precise_dtype(device: torch.device) -> torch.dtype:
    """float64, where the device has it: what weights are computed in."""
    return torch.float32 if device.type == "mps" else torch.float64
