"""Distributed training: the process group of torchrun, and the collectives that a run needs."""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the number of processes; one by default."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process is rank 0, which writes files and prints."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank. Tensors must be on the CPU."""
        values = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(values, value)
        return values

    def share(self, value: Any) -> Any:
        """The value of rank 0, on every rank: files may be on its machine only."""
        return self.gather(value if self.leads else None)[0]

    def share_buffers(self, model: nn.Module) -> None:
        """Copy the running statistics of rank 0, which are saved, to every rank."""
        if self.world > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; cheap enough for every step."""
        if self.world == 1:
            return flag
        value = torch.tensor(int(flag))
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return bool(value)


def join(device: torch.device) -> tuple[Ranks, torch.device]:
    """Join the process group of torchrun; each process gets its own GPU if there are GPUs.

    Outside torchrun there is one process and no group.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return Ranks(), device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        # small host tensors (metrics, flags) go over gloo, gradients over NCCL
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size()), device


def leave() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
