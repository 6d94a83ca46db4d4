"""`zetamix` commands in processes that tests can kill, started in a moment, and their accidents.

Importing torch takes seconds: a server imports it once and forks each process, which then calls the
function behind the `zetamix` script.

    assert zetamix("compare", "--epochs", 1, "--out", folder, log=folder / "log").wait() == 0
"""

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zetamix_lab.cli import main
from zetamix_lab.train.trainer import Trainer

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "zetamix_lab.cli.app",
        "zetamix_lab.cli.live",
        "zetamix_lab.data.load_dataset",
        "zetamix_lab.train",
        "sklearn.datasets",
        # what the first step and the end of a run import
        "torch._dynamo",
        "scipy.optimize",
    ]
)
# seconds after which a command of a test, which takes seconds, is considered to hang
TIMEOUT = 120


class Started:
    """A running process; `wait` returns its exit status, −9 if it was killed by SIGKILL."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def send(self, number: int) -> None:
        # it may have ended by itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def wait(self) -> int:
        self.process.join(TIMEOUT)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"The process did not end within {TIMEOUT} s.")
        status: int = self.process.exitcode
        self.process.close()
        return status


def start(function: Callable[..., None], *arguments: object) -> Started:
    process = CONTEXT.Process(target=function, args=arguments)
    process.start()
    return Started(process)


def zetamix(
    *arguments: object,
    log: Path,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> Started:
    """Start a command; its output is appended to `log`.

    before: called in the new process before the command, to prepare an accident.
    """
    texts = [str(argument) for argument in arguments]
    return start(_run_command, texts, log, dict(environment or {}), before)


def _run_command(
    arguments: list[str], log: Path, environment: dict[str, str], before: Callable[[], None] | None
) -> None:
    os.environ.update(environment)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["zetamix", *arguments]
    if before is not None:
        before()
    main()


# accidents, prepared in a process before its command runs (`before`)


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
    real, steps = Trainer.compute, iter(range(1, 1000))

    def compute(trainer: Trainer, batch_size: int) -> None:
        if next(steps) == step:
            os.kill(os.getpid(), number)
        real(trainer, batch_size)

    Trainer.compute = compute
