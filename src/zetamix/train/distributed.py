"""Several processes as one: started by torchrun, joined by PyTorch's own collectives."""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Ranks:
    """Which process this is, of how many; one alone by default."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def average(
        self, loss: float, right: float, bad: int | None
    ) -> tuple[float, float, int | None]:
        """An epoch's loss and accuracy over all ranks, and the first bad step of any."""
        if self.world == 1:
            return loss, right, bad
        never = 1 << 62
        sums = torch.tensor([loss, right])
        first = torch.tensor(never if bad is None else bad)
        dist.all_reduce(sums)
        dist.all_reduce(first, dist.ReduceOp.MIN)
        loss, right = (sums / self.world).tolist()
        return loss, right, None if first == never else int(first)

    def gather(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """All ranks' rows, on every rank."""
        if self.world == 1:
            return logits, labels
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, (logits.cpu(), labels.cpu()))
        place = logits.device
        return (
            torch.cat([part[0] for part in parts]).to(place),
            torch.cat([part[1] for part in parts]).to(place),
        )

    def stack(self, own: Tensor) -> Tensor:
        """[ranks, ...], on the host: the tensor of every rank."""
        own = own.cpu()
        parts = [own] if self.world == 1 else [torch.empty_like(own) for _ in range(self.world)]
        if self.world > 1:
            dist.all_gather(parts, own)
        return torch.stack(parts)

    def share(self, value: Any) -> Any:
        """What the leading process has, on every rank: files may lie on its machine only."""
        if self.world == 1:
            return value
        holder = [value]
        dist.broadcast_object_list(holder, src=0, device=torch.device("cpu"))
        return holder[0]

    def share_buffers(self, model: nn.Module) -> None:
        """The leading process's running statistics, which are saved, on every rank."""
        if self.world > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def any(self, flag: bool) -> bool:
        """Whether any rank says so: all of them stop together, or none."""
        if self.world == 1:
            return flag
        value = torch.tensor(int(flag))
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return bool(value)

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def join(device: torch.device) -> tuple[Ranks, torch.device]:
    """Join the processes that torchrun started, each with a GPU of its own where there are GPUs.

    Outside torchrun this is one process, and nothing is joined.
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
    """Part from the other processes, if there are any."""
    if dist.is_initialized():
        dist.destroy_process_group()
