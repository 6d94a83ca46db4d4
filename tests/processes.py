"""`zetamix` commands in processes that tests can kill, started in a moment.

Importing torch takes seconds: a server imports it once and forks each process, which then calls the
function behind the `zetamix` script.

    assert zetamix("compare", "--epochs", 1, "--out", folder, log=folder / "log").wait() == 0
"""

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "zetamix_lab.cli.app",
        "zetamix_lab.cli.live",
        "zetamix_lab.data.load_dataset",
        "zetamix_lab.train",
        "sklearn.datasets",
        "torch.distributed",
    ]
)
# seconds after which a command of a test, which takes seconds, is considered to hang
TIMEOUT = 120


class Started:
    """A running process; `wait` returns its exit status, −9 if it was killed by SIGKILL."""

    def __init__(self, process: Any) -> None:
        self.process = process

    @property
    def running(self) -> bool:
        return self.process.exitcode is None

    def send(self, number: int) -> None:
        # it may have ended by itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def wait(self, seconds: float = TIMEOUT) -> int:
        self.process.join(seconds)
        if self.running:
            self.process.kill()
            self.process.join()
            raise TimeoutError(f"The process did not end within {seconds} s.")
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
    from zetamix_lab.cli import main

    os.environ.update(environment)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["zetamix", *arguments]
    if before is not None:
        before()
    main()
