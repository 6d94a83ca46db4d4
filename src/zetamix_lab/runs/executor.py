"""Independent jobs: in this process, in processes of this machine or on a Ray cluster.

A job is done by `function(job, send=…, stopped=…)`. It sends messages, which arrive at `receive` in
the process of the caller, and returns early once `stopped()` is true.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeAlias

from zetamix_lab.text import plural

Send: TypeAlias = Callable[[Any], None]
Stop: TypeAlias = Callable[[], bool]
Function: TypeAlias = Callable[..., None]

POLL_SECONDS = 0.5
# deaths in a row, without a finished job, after which the work is given up
MAX_DEATHS = 3
# the message about a worker that was killed and whose job starts again
KILLED = ("killed", "", None)
START = "import sys; from zetamix_lab.runs.executor import serve; serve(int(sys.argv[1]))"


class ExecutorError(RuntimeError):
    """Workers cannot be started, or are killed repeatedly."""


@dataclass(frozen=True)
class Work:
    """What is to be done, whatever the back end.

    function: with what all jobs share, as `functools.partial` binds it; a process receives it once.
    jobs: none of them None.
    receive: called with every message, and with `KILLED`. A message is no exception and not None.
    stop: polled; once it is true, no job is started and those under way are asked to return.
    alone: whether each job gets a process of its own.
    """

    function: Function
    jobs: Sequence[Any]
    receive: Send
    stop: Stop = lambda: False
    alone: bool = False


def run_jobs(work: Work, backend: str, workers: int | None) -> str:
    """Do the work on a back end, `parse_backend`; returns where it was done."""
    address = parse_backend(backend)
    if address is not None:
        try:
            from zetamix_lab.runs.ray_cluster import run_on_ray
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "ray":
                raise
            raise ExecutorError("Ray is not installed: pip install 'zetamix[ray]'") from None
        return f"{plural(run_on_ray(work, address, workers), 'worker')} on Ray"
    count = workers or cores()
    if count > 1 or work.alone:
        run_in_processes(work, count)
    else:
        for job in work.jobs:
            work.function(job, send=work.receive, stopped=work.stop)
            if work.stop():
                break
    return f"{count} processes side by side" if count > 1 else "1 process"


def run_in_processes(work: Work, workers: int) -> None:
    """Up to `workers` jobs at a time; the job of a killed process is started again.

    A process does several jobs: importing torch takes 2 s in a new one.
    """
    waiting, crew, stopping, deaths = deque(work.jobs), list[_Worker](), False, 0
    function, threads = pickle.dumps(work.function), max(1, cores() // workers)
    try:
        while True:
            if not stopping and work.stop():
                stopping = True
                for worker in crew:
                    worker.give(None)
            while waiting and not stopping and len(crew) < workers:
                crew.append(_Worker(function, threads))
                crew[-1].give(waiting.popleft())
            if not crew:
                return
            wait([worker.pipe for worker in crew], timeout=POLL_SECONDS)
            for worker in list(crew):
                # asked first: what a process sent before its end is in the pipe. There is no end of
                # file if a process that it forked is alive
                ended, done = worker.process.poll() is not None, False
                for found in worker.arrived():
                    if isinstance(found, BaseException):
                        raise found
                    if found is None:
                        done, deaths = True, 0
                    else:
                        work.receive(found)
                if done and waiting and not stopping and not work.alone:
                    worker.give(waiting.popleft())
                elif done or ended:
                    crew.remove(worker)
                    worker.end()
                    if done or stopping or work.stop():
                        continue
                    deaths += 1
                    if deaths == MAX_DEATHS:
                        raise ExecutorError(
                            f"Workers were killed {deaths} times in a row, most likely for lack "
                            "of memory. Reduce the number of parallel runs (--jobs)."
                        )
                    work.receive(KILLED)
                    waiting.append(worker.job)
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that does jobs, one after the other, and the pipe to it."""

    def __init__(self, function: bytes, threads: int) -> None:
        self.job: Any = None
        self.pipe, theirs = Pipe()
        environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        # workers never see Ctrl-C, which reaches every process of a terminal: a blocked signal
        # stays blocked in a new process, and this one gets it later
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                # -P: a file random.py in the working directory is no module
                [sys.executable, "-P", "-c", START, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        with suppress(ConnectionError):
            self.pipe.send_bytes(function)

    def give(self, job: Any) -> None:
        """A job, or None to stop, unless the process is gone, which `poll` reports."""
        self.job = self.job if job is None else job
        with suppress(ConnectionError):
            self.pipe.send(job)

    def arrived(self) -> Iterator[Any]:
        """The messages that have arrived; None once the job is done."""
        try:
            while self.pipe.poll():
                yield self.pipe.recv()
        except (EOFError, OSError):
            # it is about to end
            self.process.kill()

    def end(self) -> None:
        # by itself, a process with torch loaded takes a second
        self.process.kill()
        self.pipe.close()
        self.process.wait()


def serve(handle: int) -> None:
    """What a worker does: the jobs that arrive on a file descriptor.

    A worker stops as the command does: on request, at SIGTERM or SIGHUP, which may be sent to all
    processes of a group, and when its parent was killed, which closes the pipe. Then it saves its
    runs and ends.
    """
    pipe, signalled = Connection(handle), threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signalled.set())

    def stopped() -> bool:
        # during a job nothing arrives but None or the end of the pipe
        return signalled.is_set() or pipe.poll()

    def send(message: Any) -> None:
        # nobody listens if the parent was killed; the run is saved all the same
        with suppress(ConnectionError):
            pipe.send(message)

    try:
        function = pickle.loads(pipe.recv_bytes())
        while (job := pipe.recv()) is not None:
            function(job, send=send, stopped=stopped)
            if stopped():
                # the job may not be complete
                return
            send(None)
    except BaseException as error:
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            send(error)
        except (TypeError, AttributeError, pickle.PicklingError):
            send(RuntimeError(f"{type(error).__name__}: {error}"))


def parse_backend(text: str) -> str | None:
    """The address of the Ray cluster of a back end; None for processes of this machine.

    >>> parse_backend("local"), parse_backend("ray"), parse_backend("ray:10.0.0.1:6379")
    (None, 'auto', '10.0.0.1:6379')
    """
    name, _, address = text.partition(":")
    if text != "local" and name != "ray":
        raise ExecutorError(
            "backend must be local, ray (the cluster that this machine belongs to) or "
            f"ray:HOST:PORT, got {text!r}."
        )
    return None if text == "local" else address or "auto"


def cores() -> int:
    """CPU cores that this process may use."""
    import joblib

    return int(joblib.cpu_count())
