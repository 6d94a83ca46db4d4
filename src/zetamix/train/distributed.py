"""Distributed training: the process group of torchrun, and the collectives that a run needs."""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the number of processes; one by default."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def average(
        self, loss: float, accuracy: float, bad: int | None
    ) -> tuple[float, float, int | None]:
        """Mean loss and accuracy over all ranks, and the first bad step of any."""
        if self.world == 1:
            return loss, accuracy, bad
        never = 1 << 62
        sums = torch.tensor([loss, accuracy])
        first = torch.tensor(never if bad is None else bad)
        dist.all_reduce(sums)
        dist.all_reduce(first, dist.ReduceOp.MIN)
        loss, accuracy = (sums / self.world).tolist()
        return loss, accuracy, None if first == never else int(first)

    def gather(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of all ranks, on every rank."""
        if self.world == 1:
            return logits, labels
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, (logits.cpu(), labels.cpu()))
        return (
            torch.cat([part[0] for part in parts]).to(logits.device),
            torch.cat([part[1] for part in parts]).to(logits.device),
        )

    def stack(self, own: Tensor) -> Tensor:
        """The tensors of all ranks, [ranks, ...], on the host."""
        own = own.cpu()
        parts = [own] if self.world == 1 else [torch.empty_like(own) for _ in range(self.world)]
        if self.world > 1:
            dist.all_gather(parts, own)
        return torch.stack(parts)

    def share(self, value: Any) -> Any:
        """The value of rank 0, on every rank: files may be on its machine only."""
        if self.world == 1:
            return value
        holder = [value]
        dist.broadcast_object_list(holder, src=0, device=torch.device("cpu"))
        return holder[0]

    def share_buffers(self, model: nn.Module) -> None:
        """Copy the running statistics of rank 0, which are saved, to every rank."""
        if self.world > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        if self.world == 1:
            return flag
        value = torch.tensor(int(flag))
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return bool(value)

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def join(device: torch.device) -> tuple[Ranks, torch.device]:
    """Join the process group of torchrun; each process gets a GPU of its own if there are GPUs.

    Outside torchrun there is one process and no group.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Ranks(), device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        # small host tensors (totals, flags) go over gloo, gradients over NCCL
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size()), device


def leave() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
