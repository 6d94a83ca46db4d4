"""Independent jobs, in this process or in processes of this machine; `ray_cluster` has the same.

A job is done by `function(job, shared, send, stopped)`. It sends messages, which arrive at
`receive` in the process of the caller, and returns early once `stopped()` is true.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Pipe, wait
from typing import Any, Literal, TypeAlias

Send: TypeAlias = Callable[[Any], None]
Stop: TypeAlias = Callable[[], bool]
Function: TypeAlias = Callable[[Any, Any, Send, Stop], None]

BACKENDS = ("local", "ray")
POLL_SECONDS = 0.5
# deaths in a row, without a finished job, after which the work is given up
MAX_DEATHS = 3
# what the parent sends besides jobs, and what a worker sends besides the messages of a job
STOP, DONE, ERROR, GONE = "stop", "done", "error", "gone"
START = "import sys; from zetamix_lab.runs.worker import work; work(int(sys.argv[1]))"


class ExecutorError(RuntimeError):
    """Workers cannot be started, or are killed repeatedly."""


@dataclass(frozen=True)
class Work:
    """What is to be done, whatever the back end.

    shared: the data of all jobs; a process receives it once.
    receive: called with every message.
    stop: polled; once it is true, no job is started and those under way are asked to return.
    tick: called every `poll_seconds` while workers are busy.
    died: called when a worker was killed, before its job is started again.
    """

    function: Function
    jobs: Sequence[Any]
    shared: Any
    receive: Send
    stop: Stop = lambda: False
    tick: Callable[[], None] = lambda: None
    died: Callable[[], None] = lambda: None
    poll_seconds: float = POLL_SECONDS


def run_here(work: Work) -> None:
    """One job after another in this process."""
    for job in work.jobs:
        work.function(job, work.shared, work.receive, work.stop)
        if work.stop():
            return


def run_in_processes(
    work: Work, workers: int, *, reuse: bool = True, max_deaths: int = MAX_DEATHS
) -> None:
    """Up to `workers` jobs at a time; the job of a killed process is started again.

    reuse: whether a process does several jobs: importing torch takes 2 s in a new one.
    """
    waiting, crew, stopping, deaths = deque(work.jobs), list[_Worker](), False, 0
    content = pickle.dumps((work.function, work.shared))
    try:
        while True:
            if not stopping and work.stop():
                stopping = True
                for worker in crew:
                    worker.send(STOP)
            while waiting and not stopping and len(crew) < workers:
                crew.append(_Worker(content, workers))
                crew[-1].give(waiting.popleft())
            if not crew:
                return
            wait([worker.pipe for worker in crew], timeout=work.poll_seconds)
            for worker in list(crew):
                state = worker.listen(work.receive)
                if state == "busy":
                    continue
                if state == "dead" and not stopping and not work.stop():
                    deaths += 1
                    _check_deaths(deaths, max_deaths)
                    work.died()
                    waiting.append(worker.job)
                elif state == "done":
                    deaths = 0
                if state == "done" and reuse and waiting and not stopping:
                    worker.give(waiting.popleft())
                    continue
                crew.remove(worker)
                worker.end(at_once=reuse)
            work.tick()
    finally:
        for worker in crew:
            worker.end(at_once=True)


def _check_deaths(deaths: int, allowed: int) -> None:
    if deaths >= allowed:
        raise ExecutorError(
            f"Workers were killed {deaths} times in a row, most likely for lack of memory. Reduce "
            "the number of parallel runs (--jobs)."
        )


class _Worker:
    """A process that does jobs (`zetamix_lab.runs.worker`), and the pipe to it."""

    def __init__(self, content: bytes, workers: int) -> None:
        threads = str(max(1, cores() // workers))
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self.pipe, theirs = Pipe()
        self.job: Any = None
        # -P: a file random.py in the working directory is no module
        command = [sys.executable, "-P", "-c", START, str(theirs.fileno())]
        with _blocked_interrupts():
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        theirs.close()
        _try(lambda: self.pipe.send_bytes(content))

    def give(self, job: Any) -> None:
        self.job = job
        self.send((job,))

    def send(self, message: Any) -> None:
        _try(lambda: self.pipe.send(message))

    def listen(self, receive: Send) -> Literal["busy", "done", "dead"]:
        """Pass on the messages that have arrived."""
        # asked first: what a process sent before its end is in the pipe. There is no end of file
        # if a process that it forked is alive
        state: Literal["busy", "dead"] = "busy" if self.process.poll() is None else "dead"
        while (message := self._next()) is not None:
            kind, value = message
            if kind == DONE:
                return "done"
            if kind == ERROR:
                raise value
            if kind == GONE:
                return "dead"
            receive(value)
        return state

    def _next(self) -> Any:
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return GONE, None

    def end(self, *, at_once: bool) -> None:
        """at_once: without waiting a second for a process with torch loaded to exit by itself."""
        if at_once:
            self.process.kill()
        self.pipe.close()
        self.process.wait()


def _try(send: Callable[[], None]) -> None:
    """Send, unless the process is gone, which `_Worker.receive` reports."""
    try:
        send()
    except (BrokenPipeError, ConnectionError):
        return


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which reaches every process of a terminal.

    A blocked signal stays blocked in a new process; this one gets it at the end of the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def parse_backend(text: str) -> tuple[str, str]:
    """The back end and the address of its cluster; raises for an unknown one.

    >>> parse_backend("local"), parse_backend("ray"), parse_backend("ray:10.0.0.1:6379")
    (('local', ''), ('ray', 'auto'), ('ray', '10.0.0.1:6379'))
    """
    name, _, address = text.partition(":")
    if name not in BACKENDS or (name == "local" and address):
        raise ExecutorError(
            f"backend must be local, ray (the cluster that this machine belongs to) or "
            f"ray:HOST:PORT, got {text!r}."
        )
    return name, address or ("auto" if name == "ray" else "")


def cores() -> int:
    """CPU cores that this process may use."""
    import joblib

    return int(joblib.cpu_count())
