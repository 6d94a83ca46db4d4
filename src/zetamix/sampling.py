"""Random numbers of a plan, all of them from the caller's generator."""

import math
import os
import threading
from collections.abc import Sequence

import torch
import torch.distributed
import torch.utils.data
from torch import Tensor

from zetamix.checks import check_count, check_generator, holds_for_all_sizes

# plans of at most this many sources are drawn without sorting and mixed without a matrix
MOST_FEW = 4
# random integers lie in [0, KEY_LIMIT), so KEY_LIMIT itself outranks every one of them
KEY_LIMIT = 2**62

# SplitMix64 steps its counter by the golden ratio; streams step by another odd number
GOLDEN = 0x9E3779B97F4A7C15
STREAM_STEP = 0xD1B54A32D192ED03

# what a random number is for: each purpose has its own counters, so that no two share a number
ORDER, LAM, _, GAMMA, MIXED, BOX, PASTED = range(7)
LANE_STEP = 2**40

ANY_CUDA = torch.device("cuda")
HAS_PROCESS_GROUPS = torch.distributed.is_available()
# launchers such as torchrun set the variable RANK; read once, since reading takes 1 µs
_RANK = os.environ.get("RANK", "")
LAUNCHED_RANK = int(_RANK) if _RANK.isdigit() else None
# two threads must not read the same state of a generator
_generator_lock = threading.Lock()


class Draw:
    """The random numbers of one plan, all of them from `generator`.

    On a CPU they come directly from the generator, and every stream consumes the same number of
    them, so that all ranks of a job start and resume with the same generator state. On a GPU and in
    compiled code the generator gives one number, the origin, which SplitMix64 expands to all
    others, so that a kernel can compute them.

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
        device = torch.device(device)
        if device == ANY_CUDA and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())
        if generator is not None:
            check_generator(generator, device)
        if stream is None:
            stream = process_stream(generator)
        elif type(stream) is not int or stream < 0:
            check_count("stream", stream, 0)
        self.generator = generator
        self.device = device
        self.offset = signed(int(stream) * STREAM_STEP) if stream else 0
        self.on_host = device.type == "cpu" and not torch.compiler.is_compiling()
        self._origin: tuple[Tensor | None, int] | None = None

    def origin(self) -> tuple[Tensor | None, int]:
        """The seed that a GPU expands: the sum of a tensor [1], or None, and an int.

        An eager call computes it from the state of the generator and advances the state, without
        work on the device. A captured CUDA graph or a traced function draws it on the device: torch
        advances its generators between replays, so each replay gets a new one.
        """
        if self._origin is None and reads_generator_on_host(self.device):
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
            seed = mix64(generator.initial_seed() + position * GOLDEN + self.offset)
            self._origin = None, _triton_stable_int(seed)
        elif self._origin is None:
            self._origin = self._randint(1), _triton_stable_int(mix64(self.offset))
        return self._origin

    def _randint(self, *shape: int) -> Tensor:
        # tracing with symbolic sizes fails if `generator` is passed, even as None
        if self.generator is None:
            return torch.randint(KEY_LIMIT, shape, device=self.device)
        return torch.randint(KEY_LIMIT, shape, generator=self.generator, device=self.device)

    def integers(self, lane: int, *shape: int) -> Tensor:
        """Random integers in [0, KEY_LIMIT)."""
        if not self.on_host:
            return expand(*self.origin(), *shape, lane=lane, device=self.device)
        bits = self._randint(*shape)
        return _scramble(bits + self.offset) if self.offset else bits

    def uniform(self, lane: int, *shape: int) -> Tensor:
        """Random numbers in [0, 1], in the precision that weights are computed in; on a CPU < 1."""
        if self.on_host and not self.offset:
            return torch.rand(
                shape, generator=self.generator, dtype=torch.float64, device=self.device
            )
        bits = self.integers(lane, *shape)
        if self.on_host:
            # 53 bits, which float64 holds exactly
            return (bits >> 9).double() / 2**53
        return (bits.to(precise_dtype(self.device)) + 0.5) / KEY_LIMIT

    def below(self, limits: int | Tensor, *shape: int) -> Tensor:
        """Random integers for the order of rows, each in [0, limit)."""
        if self.on_host:
            return (self.uniform(ORDER, *shape) * limits).long()
        return self.integers(ORDER, *shape) % limits


def _triton_stable_int(number: int) -> int:
    """A seed made odd and at least 2³², so that Triton never specialises a kernel for its value.

    Triton recompiles for an integer that is 1, divisible by 16, or fits in 32 bits.
    """
    low = (number >> 3) << 1
    return (low & (KEY_LIMIT - 1)) | KEY_LIMIT | 1


def reads_generator_on_host(device: torch.device) -> bool:
    """Whether the host may read and advance the state of a CUDA generator right now."""
    return (
        device.type == "cuda"
        and not torch.compiler.is_compiling()
        and torch.cuda.is_available()
        and not torch.cuda.is_current_stream_capturing()
    )


def expand(
    seed: Tensor | None, offset: int, *shape: int, lane: int = ORDER, device: torch.device
) -> Tensor:
    """Integers in [0, KEY_LIMIT) of the SplitMix64 sequence of `seed + offset`."""
    counters = torch.arange(math.prod(shape), device=device).view(shape)
    if seed is not None and torch.compiler.is_compiling():
        # numbers that inductor cannot know: with its own it fails where a product needs 65 bits
        counters = (counters ^ seed) ^ seed
    steps = counters * signed(GOLDEN) + signed(lane * LANE_STEP * GOLDEN + offset)
    return _scramble(steps if seed is None else steps + seed)


def order_width(batch: int, sources: int) -> int:
    """How many random integers one output's order takes: one per source, or one per batch row.

    For few sources, and from 16 rows per source on, digits for the sources beat keys for the whole
    batch (CPU, 8 sources: 64 rows 80 µs against 110, 128 rows 85 against 259, 1024 rows 0.19
    against 13.7 ms).
    """
    # while tracing, do not branch on the batch size: every size would be recompiled
    if torch.compiler.is_compiling():
        few = not holds_for_all_sizes(sources == batch) and sources <= 32
    else:
        few = sources <= MOST_FEW or sources * 16 <= batch
    return sources if few else batch


def draw_rows(draw: Draw, batch: int, sources: int, outputs: int, own_anchor: bool) -> Tensor:
    """Draw [outputs, sources] distinct batch rows, uniform over all orders.

    own_anchor: output k begins with row k.
    """
    anchors = torch.arange(outputs, device=draw.device) % batch if own_anchor else None
    # in a traced function, one graph for all batch sizes: do not branch on their comparison
    many = torch.compiler.is_compiling() or sources > MOST_FEW
    if many and holds_for_all_sizes(order_width(batch, sources) == batch):
        # the batch rows of each output sorted by random keys
        keys = draw.integers(ORDER, outputs, batch)
        if anchors is not None:
            keys = keys.scatter(1, anchors[:, None], KEY_LIMIT)
        if sources == batch:
            return keys.argsort(dim=1, descending=True)
        return keys.topk(sources, dim=1, sorted=True).indices
    # The digits of a Lehmer code: digit t counts the rows below the t-th choice among those not
    # chosen yet. Codes and ordered choices correspond one to one, so uniform digits give uniform
    # orders
    limits = torch.arange(batch, batch - sources, -1, device=draw.device)
    columns = list(draw.below(limits, outputs, sources).unbind(1))
    if anchors is not None:
        columns[0] = anchors
    for rank in range(sources - 2, -1, -1):
        for later in range(rank + 1, sources):
            columns[later] = columns[later] + (columns[later] >= columns[rank])
    return torch.stack(columns, 1)


def rotate_rows(draw: Draw, batch: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Rows [outputs, 2]: sample k and sample (k − s) mod batch, and the shift s of the batch, [1].

    s is uniform in 1, …, batch − 1: a permutation in which no sample is its own partner.
    """
    own = torch.arange(outputs, device=draw.device)
    if outputs != batch:
        own = own % batch
    shift = draw.below(batch - 1, 1) + 1
    return torch.stack([own, (own - shift) % batch], 1), shift


def weigh(gamma: Tensor, sources: int) -> Tensor:
    """Weights by rank, Eq. 3: `rank**-gamma / C` with C = Σ rank**-gamma, shape [*gamma, sources].

    >>> weigh(torch.tensor(1.0), sources=3) * 11
    tensor([6., 3., 2.])
    """
    ranks = torch.arange(1, sources + 1, device=gamma.device, dtype=gamma.dtype)
    powers = ranks ** -gamma.unsqueeze(-1)
    return powers / powers.sum(-1, keepdim=True)


def draw_lam(draw: Draw, count: int, alphas: Sequence[float]) -> list[Tensor]:
    """λ ~ Beta(α, α) for each α, [count], all from the same random numbers."""
    uniform = draw.uniform(LAM, count, 2)
    # Beta(1, 1) is the uniform distribution
    return [uniform[:, 0] if alpha == 1 else _beta(alpha, *uniform.unbind(1)) for alpha in alphas]


def _beta(alpha: float, radius: Tensor, angle: Tensor) -> Tensor:
    """Beta(α, α) from two uniform numbers, exact for every α > 0 and without underflow.

    t is Student's with 2α degrees of freedom, divided by √2α (Devroye, 1996); then
    1/2 + t / 2√(1 + t²) is Beta(α, α).
    """
    limits = torch.finfo(radius.dtype)
    # a tensor: with a Python number, torch.compile makes one graph per value
    power = -radius.clamp_min(limits.tiny).log() / precise(alpha, radius.device)
    spread = torch.expm1(power).sqrt().clamp_max(limits.max)
    t = torch.sin(math.pi * (angle - 0.5)) * spread
    root = (1 + t.square()).sqrt()
    smaller = 0.5 / (root * (root + t.abs()))
    return torch.where(t > 0, 1 - smaller, smaller)


def process_stream(
    generator: torch.Generator | None, home_rank: int = 0, stream: int | None = None
) -> int:
    """A number that differs between the ranks of a job and between the workers of a loader.

    home_rank: the rank to assume in a process that has none, such as a spawned loader worker.
    stream: a number in place of the rank.
    """
    # torch seeds the default generator of each worker, but the caller's generator is copied to
    # every worker, at every epoch, with the same state
    worker = None
    if generator is not None and not torch.compiler.is_compiling():
        worker = torch.utils.data.get_worker_info()
    if stream is None:
        stream = home_rank if LAUNCHED_RANK is None else LAUNCHED_RANK
        # a spawned loader worker has no process group
        if HAS_PROCESS_GROUPS and torch.distributed.is_initialized():
            stream = torch.distributed.get_rank()
    return stream + (0 if worker is None else worker.seed << 20)


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
