"""Torch's default generators, seeded for a block and restored afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's default generators within the block, and restore them afterwards.

    device: a GPU whose default generator is seeded as well as the CPU's.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            index = torch.cuda.current_device() if gpu.index is None else gpu.index
            torch.cuda.default_generators[index].manual_seed(seed)
        yield
