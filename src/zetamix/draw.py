"""Randomness: everything that is drawn for a plan, from the caller's generator and nothing else."""

import os

import torch
import torch.distributed
import torch.utils.data
from torch import Tensor

from zetamix._checks import Gamma, check_generator

# random integers lie in [0, KEY_LIMIT), so KEY_LIMIT itself outranks every one of them
KEY_LIMIT = 2**62


def draw_bits(
    *shape: int, generator: torch.Generator | None, stream: int | None, device: torch.device
) -> Tensor:
    """Random integers in [0, KEY_LIMIT), from one stream of the generator."""
    check_generator(generator, device)
    bits = torch.randint(KEY_LIMIT, shape, generator=generator, device=device)
    stream = process_stream(generator) if stream is None else stream
    return _scramble(bits, stream) if stream else bits


def draw_uniform(
    *shape: int, generator: torch.Generator | None, stream: int | None, device: torch.device
) -> Tensor:
    """Uniform numbers in (0, 1), from one stream of the generator."""
    bits = draw_bits(*shape, generator=generator, stream=stream, device=device)
    return (bits.to(precise_dtype(device)) + 0.5) / KEY_LIMIT


def draw_gammas(
    gamma: Gamma,
    outputs: int,
    *,
    generator: torch.Generator | None,
    stream: int | None,
    device: torch.device,
) -> Tensor:
    """γ in the precision the weights are computed in: shape [] when shared, [outputs] otherwise."""
    if isinstance(gamma, Tensor):
        if gamma.device != device:
            raise ValueError(f"gamma is on {gamma.device}, but the plan is drawn on {device}.")
        return gamma.to(precise_dtype(device))
    if isinstance(gamma, (tuple, list)):
        low, high = gamma
        share = draw_uniform(outputs, generator=generator, stream=stream, device=device)
        return low + (high - low) * share
    return torch.full((), gamma, device=device, dtype=precise_dtype(device))


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
    # Gamma(α) = Gamma(α + 1) · U^(1/α): in logarithms, because for small α both underflow to 0
    gammas = torch._standard_gamma(torch.full_like(uniform, alpha + 1), generator=generator)
    logs = gammas.log() + uniform.log() / alpha
    return torch.sigmoid(logs[0] - logs[1])


def process_stream(generator: torch.Generator | None) -> int:
    """A number that differs between the ranks of a job and between the workers of a loader."""
    # torch seeds the default generator of each worker itself, but a generator of the caller's
    # arrives in every worker, and again at every epoch, as the same copy
    worker = None
    if generator is not None and not torch.compiler.is_compiling():
        worker = torch.utils.data.get_worker_info()
    return _rank() + (0 if worker is None else worker.seed << 20)


def _rank() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    # a spawned loader worker has no process group; launchers leave the rank in the environment
    return int(os.environ.get("RANK", "0"))


def _scramble(bits: Tensor, stream: int) -> Tensor:
    """The SplitMix64 finaliser of `bits` shifted by `stream`: streams share no structure."""
    z = bits + _signed(stream * 0x9E3779B97F4A7C15)
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return (z ^ _shift(z, 31)) & (KEY_LIMIT - 1)


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def _shift(z: Tensor, by: int) -> Tensor:
    """Logical right shift; torch's own copies the sign bit."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def precise_dtype(device: torch.device) -> torch.dtype:
    """float64, where the device has it: what weights are computed in."""
    return torch.float32 if device.type == "mps" else torch.float64
