"""Accidents of a process, prepared in it before its command runs (`before` of `processes`)."""

import os
import resource
import signal
import sys
from pathlib import Path

from zetamix_lab.train.trainer import Trainer


def kill_at_change(folder: Path, number: int, trace: Path | None = None) -> None:
    """Kill the process when it changes a file of its folder for the n-th time.

    trace: a file to which every change is written.
    """
    seen = []

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod"):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = str(arguments[0])
        if not path.startswith(str(folder)) or path.endswith(".lock"):
            return
        seen.append(event)
        if trace is not None:
            with trace.open("a") as file:
                file.write(f"{event} {Path(path).name}\n")
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def kill_while_saving(number: int) -> None:
    """Kill the process when half of its n-th file of tensors is written."""
    real, saves = os.fsync, []

    def sync(descriptor: int) -> None:
        if ".pt." in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            saves.append(descriptor)
        if len(saves) == number:
            os.truncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = sync


def fill_disk(size: int) -> None:
    """No file of the process can grow beyond `size` bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def signal_at(step: int, number: int) -> None:
    """The process receives a signal within its n-th step."""
    steps = iter(range(1, 1000))
    real = Trainer.compute

    def compute(trainer: Trainer, batch_size: int) -> None:
        if next(steps) == step:
            os.kill(os.getpid(), number)
        real(trainer, batch_size)

    Trainer.compute = compute
