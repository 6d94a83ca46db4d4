"""Randomness: everything that is drawn for a plan, from the caller's generator and nothing else."""

import math
import os

import torch
import torch.distributed
import torch.utils.data
from torch import Tensor

from zetamix._checks import check_generator

# random integers lie in [0, KEY_LIMIT), so KEY_LIMIT itself outranks every one of them
KEY_LIMIT = 2**62

# SplitMix64 steps its counter by the golden ratio; streams step by another odd number
GOLDEN = 0x9E3779B97F4A7C15
STREAM_STEP = 0xD1B54A32D192ED03


def draw_seed(generator: torch.Generator | None, device: torch.device) -> Tensor:
    """One random integer in [0, KEY_LIMIT), shape [1]: all that a GPU plan takes from a generator.

    In a captured CUDA graph torch advances its generators between replays, so this is fresh there.
    """
    check_generator(generator, device)
    return torch.randint(KEY_LIMIT, (1,), generator=generator, device=device)


def draw_bits(
    *shape: int, generator: torch.Generator | None, stream: int | None, device: torch.device
) -> Tensor:
    """Random integers in [0, KEY_LIMIT), from one stream of the generator.

    On a GPU they are expanded from a single one, so that a kernel can do the same by itself.
    """
    offset = stream_offset(generator, stream)
    if device.type != "cpu":
        return expand(draw_seed(generator, device) + offset, *shape)
    check_generator(generator, device)
    bits = torch.randint(KEY_LIMIT, shape, generator=generator, device=device)
    return _scramble(bits + offset) if offset else bits


def expand(seed: Tensor, *shape: int) -> Tensor:
    """The first integers in [0, KEY_LIMIT) of the SplitMix64 sequence of a seed."""
    counters = torch.arange(math.prod(shape), device=seed.device).view(shape)
    return _scramble(seed + counters * _signed(GOLDEN))


def stream_offset(generator: torch.Generator | None, stream: int | None) -> int:
    """What a stream adds to the seed; 0 for stream 0. None stands for this process's own."""
    stream = process_stream(generator) if stream is None else stream
    return _signed(stream * STREAM_STEP)


def draw_uniform(
    *shape: int, generator: torch.Generator | None, stream: int | None, device: torch.device
) -> Tensor:
    """Uniform numbers in (0, 1), from one stream of the generator."""
    bits = draw_bits(*shape, generator=generator, stream=stream, device=device)
    return (bits.to(precise_dtype(device)) + 0.5) / KEY_LIMIT


def draw_gammas(
    low: float,
    high: float,
    outputs: int,
    *,
    generator: torch.Generator | None,
    stream: int | None,
    device: torch.device,
) -> Tensor:
    """One γ per output, uniform in [low, high]."""
    share = draw_uniform(outputs, generator=generator, stream=stream, device=device)
    return low + (high - low) * share


def draw_lam(
    alpha: float,
    count: int,
    *,
    generator: torch.Generator | None,
    stream: int | None,
    device: torch.device,
) -> Tensor:
    """λ ~ Beta(α, α), shape [count], without underflow for any α."""
    uniform = draw_uniform(2, count, generator=generator, stream=stream, device=device)
    if alpha == 1:
        return uniform[0]
    tries = draw_uniform(8, 3, 2, count, generator=generator, stream=stream, device=device)
    # Gamma(α) = Gamma(α + 1) · U^(1/α): in logarithms, because for small α both underflow to 0
    logs = _log_gamma_variate(alpha + 1, tries) + uniform.log() / alpha
    return torch.sigmoid(logs[0] - logs[1])


def _log_gamma_variate(shape: float, uniform: Tensor) -> Tensor:
    """log of Gamma(shape) variates for shape > 1, from `uniform` [tries, 3, ...].

    Marsaglia and Tsang's rejection, which accepts more than 95 % of its tries, with all tries made
    at once: that eight in a row fail happens once in 10¹⁰ draws, and then the first one stands.
    Torch's own sampler has no streams.
    """
    d = shape - 1 / 3
    radius = (-2 * uniform[:, 0].log()).sqrt()
    normal = radius * torch.cos(2 * math.pi * uniform[:, 1])
    v = (1 + normal / math.sqrt(9 * d)) ** 3
    log_v = v.clamp_min(torch.finfo(v.dtype).tiny).log()
    accepted = (v > 0) & (uniform[:, 2].log() < normal.square() / 2 + d - d * v + d * log_v)
    # argmax of a bool tensor is the first True, or 0 where all failed
    first = accepted.int().argmax(0, keepdim=True)
    return (math.log(d) + log_v).gather(0, first).squeeze(0)


def process_stream(generator: torch.Generator | None, home_rank: int = 0) -> int:
    """A number that differs between the ranks of a job and between the workers of a loader.

    home_rank: the rank to assume where this process cannot tell, as in a spawned loader worker.
    """
    # torch seeds the default generator of each worker itself, but a generator of the caller's
    # arrives in every worker, and again at every epoch, as the same copy
    worker = None
    if generator is not None and not torch.compiler.is_compiling():
        worker = torch.utils.data.get_worker_info()
    return process_rank(home_rank) + (0 if worker is None else worker.seed << 20)


def process_rank(home_rank: int = 0) -> int:
    """The rank of this process: from its process group, its launcher, or its home."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    # a spawned loader worker has no process group; launchers leave the rank in the environment
    return int(os.environ.get("RANK", home_rank))


def _scramble(z: Tensor) -> Tensor:
    """The SplitMix64 finaliser: 62 bits that share no visible structure with their neighbours'."""
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return _shift(z ^ _shift(z, 31), 2)


def _signed(value: int) -> int:
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
    return torch.full((), number, device=device, dtype=precise_dtype(device))


def precise_dtype(device: torch.device) -> torch.dtype:
    """float64, where the device has it: what weights are computed in."""
    return torch.float32 if device.type == "mps" else torch.float64
