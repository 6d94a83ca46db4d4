"""Processes of their own for tests: `zetamix` commands that can be killed, started in a moment.

Loading torch and its company takes seconds. A server that has loaded them once forks each process,
which then runs the very function behind the `zetamix` script.

    assert zetamix("train", "--epochs", 1, "--out", folder, log=folder / "log").wait() == 0
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
        "zetamix.cli.app",
        "zetamix.cli.live",
        "zetamix.data.readers.arrays",
        "zetamix.train",
        "sklearn.datasets",
        "torch.distributed",
    ]
)
# a command of these tests takes seconds; one that hangs must not hold up the suite for ever
PATIENCE = 120


class Started:
    """A process that runs; `wait` gives its exit status, −9 where it was killed by SIGKILL."""

    def __init__(self, process: Any) -> None:
        self.process = process

    @property
    def running(self) -> bool:
        return self.process.exitcode is None

    def send(self, signal: int) -> None:
        # it may have ended by itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal)

    def wait(self, seconds: float = PATIENCE) -> int:
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
    """Start a command; what it prints is added to `log`.

    before: called in the new process ahead of the command, to prepare an accident.
    """
    words = [str(argument) for argument in arguments]
    return start(_be_zetamix, words, log, dict(environment or {}), before)


def _be_zetamix(
    words: list[str], log: Path, environment: dict[str, str], before: Callable[[], None] | None
) -> None:
    from zetamix.cli import main

    os.environ.update(environment)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["zetamix", *words]
    if before is not None:
        before()
    main()
