"""Accidents of a process, prepared in it before its command runs (see `processes`)."""

import io
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from zetamix.train.trainer import Trainer


@dataclass
class KilledAt:
    """The process is killed when it changes a file of its folder for the n-th time.

    trace: a file to which every change is written.
    """

    folder: Path
    number: int
    trace: Path | None = None

    def __call__(self) -> None:
        seen = []

        def audit(event: str, arguments: tuple[object, ...]) -> None:
            if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod"):
                return
            if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
            path = str(arguments[0])
            if not path.startswith(str(self.folder)) or path.endswith(".lock"):
                return
            seen.append(event)
            if self.trace is not None:
                with self.trace.open("a") as file:
                    file.write(f"{event} {Path(path).name}\n")
            if len(seen) == self.number:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)


@dataclass
class KilledWhileSaving:
    """The process is killed when half of its n-th `torch.save` is written."""

    number: int

    def __call__(self) -> None:
        real, saves = torch.save, []

        def save(state: object, file: io.BufferedWriter) -> None:
            saves.append(None)
            if len(saves) == self.number:
                whole = io.BytesIO()
                real(state, whole)
                file.write(whole.getvalue()[: whole.tell() // 2])
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            real(state, file)

        torch.save = save


@dataclass
class FullDisk:
    """No file of the process can grow beyond `size` bytes, as on a full disk."""

    size: int

    def __call__(self) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


@dataclass
class SignalledAt:
    """The process receives a signal within its n-th step."""

    step: int
    number: int

    def __call__(self) -> None:
        steps = []

        def count() -> None:
            steps.append(None)
            if len(steps) == self.step:
                os.kill(os.getpid(), self.number)

        before_each_step(count)


@dataclass
class Slow:
    """Every step takes `seconds` more."""

    seconds: float

    def __call__(self) -> None:
        before_each_step(lambda: time.sleep(self.seconds))


def before_each_step(call) -> None:
    real = Trainer.compute

    def compute(trainer: Trainer, batch_size: int) -> None:
        call()
        real(trainer, batch_size)

    Trainer.compute = compute
