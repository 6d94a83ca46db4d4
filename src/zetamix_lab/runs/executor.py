"""Independent jobs: in this process, in processes of this machine or on a Ray cluster.

A job is done by `function(job, shared, send, stopped)`. It sends messages, which arrive at
`receive` in the process of the caller, and returns early once `stopped()` is true.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeAlias

from zetamix_lab.text import plural

Send: TypeAlias = Callable[[Any], None]
Stop: TypeAlias = Callable[[], bool]
Function: TypeAlias = Callable[[Any, Any, Send, Stop], None]

POLL_SECONDS = 0.5
# deaths in a row, without a finished job, after which the work is given up
MAX_DEATHS = 3
# the message about a worker that was killed and whose job starts again
KILLED = ("killed", "", None)
# what a parent and its workers send besides jobs; no message has arrived: BUSY
STOP, MESSAGE, DONE, ERROR, DEAD, BUSY = "stop", "message", "done", "error", "dead", "busy"
START = "import sys; from zetamix_lab.runs.executor import serve; serve(int(sys.argv[1]))"


class ExecutorError(RuntimeError):
    """Workers cannot be started, or are killed repeatedly."""


@dataclass(frozen=True)
class Work:
    """What is to be done, whatever the back end.

    shared: the data of all jobs; a process receives it once.
    receive: called with every message, and with `KILLED`.
    stop: polled; once it is true, no job is started and those under way are asked to return.
    alone: whether each job gets a process of its own.
    """

    function: Function
    jobs: Sequence[Any]
    shared: Any
    receive: Send
    stop: Stop = lambda: False
    poll_seconds: float = POLL_SECONDS
    alone: bool = False


def run_jobs(work: Work, backend: str, workers: int | None) -> str:
    """Do the work on a back end, `parse_backend`; returns where it was done."""
    name, address = parse_backend(backend)
    if name == "ray":
        try:
            from zetamix_lab.runs.ray_cluster import run_on_ray
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "ray":
                raise
            raise ExecutorError("Ray is not installed: pip install 'zetamix[ray]'") from None
        return f"{plural(run_on_ray(work, address, workers), 'worker')} on Ray"
    if workers == 1 and not work.alone:
        run_here(work)
        return "1 process"
    count = workers or cores()
    run_in_processes(work, count)
    return f"{count} processes side by side" if count > 1 else "1 process"


def run_here(work: Work) -> None:
    """One job after another in this process."""
    for job in work.jobs:
        work.function(job, work.shared, work.receive, work.stop)
        if work.stop():
            return


def run_in_processes(work: Work, workers: int) -> None:
    """Up to `workers` jobs at a time; the job of a killed process is started again.

    A process does several jobs: importing torch takes 2 s in a new one.
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
                if state == BUSY:
                    continue
                deaths = 0 if state == DONE else deaths + 1
                if state == DEAD and not stopping and not work.stop():
                    if deaths >= MAX_DEATHS:
                        raise ExecutorError(
                            f"Workers were killed {deaths} times in a row, most likely for lack "
                            "of memory. Reduce the number of parallel runs (--jobs)."
                        )
                    work.receive(KILLED)
                    waiting.append(worker.job)
                elif waiting and not stopping and state == DONE and not work.alone:
                    worker.give(waiting.popleft())
                    continue
                crew.remove(worker)
                worker.end()
    finally:
        for worker in crew:
            worker.end()


class _Worker:
    """A process that does jobs, one after the other, and the pipe to it."""

    def __init__(self, content: bytes, workers: int) -> None:
        threads = str(max(1, cores() // workers))
        path = os.pathsep.join(path for path in sys.path if path)
        environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        self.pipe, theirs = Pipe()
        self.job: Any = None
        # -P: a file random.py in the working directory is no module
        command = [sys.executable, "-P", "-c", START, str(theirs.fileno())]
        # workers never see Ctrl-C, which reaches every process of a terminal: a blocked signal
        # stays blocked in a new process, and this one gets it later
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment, "PYTHONPATH": path},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.send(content)

    def give(self, job: Any) -> None:
        self.job = job
        self.send((job,))

    def send(self, message: Any) -> None:
        """Send, unless the process is gone, which `listen` reports."""
        with suppress(BrokenPipeError, ConnectionError):
            # a dataset is not pickled twice
            (self.pipe.send_bytes if isinstance(message, bytes) else self.pipe.send)(message)

    def listen(self, receive: Send) -> str:
        """Pass on the messages that have arrived; returns BUSY, DONE or DEAD."""
        # asked first: what a process sent before its end is in the pipe. There is no end of file
        # if a process that it forked is alive
        state = BUSY if self.process.poll() is None else DEAD
        while (found := self._next()) is not None:
            kind, value = found
            if kind == ERROR:
                raise value
            if kind != MESSAGE:
                return kind
            receive(value)
        return state

    def _next(self) -> tuple[str, Any] | None:
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return DEAD, None

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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signalled.set())

    def stopped() -> bool:
        # during a job nothing arrives but `STOP` or the end of the pipe
        return signalled.is_set() or pipe.poll()

    def send(kind: str, value: Any = None) -> None:
        # nobody listens if the parent was killed; the run is saved all the same
        with suppress(BrokenPipeError, ConnectionError):
            pipe.send((kind, value))

    try:
        function, shared = pickle.loads(pipe.recv_bytes())
        while (found := pipe.recv()) != STOP:
            function(found[0], shared, lambda message: send(MESSAGE, message), stopped)
            if stopped():
                # without DONE: the job may not be complete
                return
            send(DONE)
    except BaseException as error:
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            send(ERROR, error)
        except (TypeError, AttributeError, pickle.PicklingError):
            send(ERROR, RuntimeError(f"{type(error).__name__}: {error}"))


def parse_backend(text: str) -> tuple[str, str]:
    """The back end and the address of its cluster; raises for an unknown one.

    >>> parse_backend("local"), parse_backend("ray"), parse_backend("ray:10.0.0.1:6379")
    (('local', ''), ('ray', 'auto'), ('ray', '10.0.0.1:6379'))
    """
    name, _, address = text.partition(":")
    if name not in ("local", "ray") or (name == "local" and address):
        raise ExecutorError(
            "backend must be local, ray (the cluster that this machine belongs to) or "
            f"ray:HOST:PORT, got {text!r}."
        )
    return name, address or ("auto" if name == "ray" else "")


def cores() -> int:
    """CPU cores that this process may use."""
    import joblib

    return int(joblib.cpu_count())
