"""Torch's default generators, seeded for a block and restored afterwards."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# held by a thread while it uses global state: torch's default generators, or the capture of a CUDA
# graph, during which no thread may synchronise the device
TORCH_LOCK = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's default generators within the block, and restore them afterwards.

    device: a GPU whose default generator is seeded as well as the CPU's.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with TORCH_LOCK, torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            index = torch.cuda.current_device() if gpu.index is None else gpu.index
            torch.cuda.default_generators[index].manual_seed(seed)
        yield
