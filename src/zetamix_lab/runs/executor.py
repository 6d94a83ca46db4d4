"""Independent jobs in processes of this machine or on a Ray cluster, with a channel to them."""

import json
import math
import os
import pickle
import secrets
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import joblib
from joblib.externals.loky import get_reusable_executor

Job = TypeVar("Job")
Shared = TypeVar("Shared")
Result = TypeVar("Result")
Message: TypeAlias = Mapping[str, Any]
Stop: TypeAlias = Callable[[], bool]

BACKENDS = ("local", "ray")
# an idle process ends after this time, in case its parent was killed
IDLE_SECONDS = 30
POLL_SECONDS = 0.5
MAX_DEATHS = 3


class ExecutorError(RuntimeError):
    """Workers cannot be started, or are killed repeatedly."""


class Channel:
    """The last progress message of each worker, by name, and a stop flag for the workers.

    This class is for jobs in the same process, which evaluate `stop` themselves. Workers may call
    `send` and `stopped` at every step: messages are sent at most once per `interval` seconds.

    >>> channel = Channel()
    >>> channel.send("run-1", {"epochs": 3})
    >>> channel.messages(), channel.stopped()
    ({'run-1': {'epochs': 3}}, False)
    """

    in_process = True

    def __init__(self, stop: Stop | None = None, interval: float = POLL_SECONDS) -> None:
        self.interval = interval
        self._stop = stop
        self._messages: dict[str, Message] = {}
        self._stopped = False
        # times of the last messages by name, and of the last check of the stop flag
        self._times: dict[str | None, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        # another machine has another monotonic clock
        return {**self.__dict__, "_times": {}}

    def send(self, name: str, message: Message, *, now: bool = False) -> None:
        """Replace the message `name`, unless one was sent less than `interval` seconds ago."""
        if self._is_due(name) or now:
            self._write(name, message)

    def stopped(self) -> bool:
        """Whether the worker should save and return: on request, or if its parent was killed."""
        if not self._stopped and (self.in_process or self._is_due(None)):
            self._stopped = self.orphaned() or self.stop_requested()
        return self._stopped

    def request_stop(self) -> None:
        self._stopped = True

    def stop_requested(self) -> bool:
        return self._stopped or (self._stop is not None and self._stop())

    def orphaned(self) -> bool:
        """Whether the process that started the workers was killed."""
        return False

    def messages(self) -> dict[str, Message]:
        return dict(self._messages)

    def _write(self, name: str, message: Message) -> None:
        self._messages[name] = message

    def _is_due(self, name: str | None) -> bool:
        now = time.monotonic()
        due = now - self._times.get(name, -math.inf) >= self.interval
        if due:
            self._times[name] = now
        return due


class FileChannel(Channel):
    """A channel between processes of one machine: a file per message.

    Files need no server process, and nothing hangs when a process is killed.
    """

    in_process = False

    def __init__(self, folder: Path, interval: float = POLL_SECONDS) -> None:
        super().__init__(None, interval)
        self.folder = folder
        self.owner = os.getpid()
        self._stop_file = folder / "stop"

    def orphaned(self) -> bool:
        # the parent id of a process changes when its parent dies
        return self.owner not in (os.getpid(), os.getppid())

    def request_stop(self) -> None:
        self._stop_file.touch()

    def stop_requested(self) -> bool:
        return self._stop_file.exists()

    def messages(self) -> dict[str, Message]:
        return {
            path.stem: json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))
        }

    def _write(self, name: str, message: Message) -> None:
        # replaced atomically, but not synced to disk: messages are not needed after a crash.
        # Training continues if a message cannot be written
        with suppress(OSError):
            part = self.folder / f"{name}.{os.getpid()}.part"
            part.write_text(json.dumps(message))
            os.replace(part, self.folder / f"{name}.json")


class Executor:
    """Runs jobs one after another in this process; subclasses run several at a time.

    workers: number of parallel jobs. stop: ends the work once it returns True.
    """

    remote = False
    """Whether workers may be on other machines, with other files."""

    def __init__(
        self,
        workers: int = 1,
        *,
        channel: Channel | None = None,
        stop: Stop | None = None,
        poll_seconds: float = POLL_SECONDS,
        max_deaths: int = MAX_DEATHS,
    ) -> None:
        self.workers = workers
        self.channel = Channel(stop, poll_seconds) if channel is None else channel
        self.stop, self.poll_seconds, self.max_deaths = stop, poll_seconds, max_deaths
        self.deaths = 0
        """Times that a worker was killed and its jobs were started again."""

    @property
    def description(self) -> str:
        return "1 process"

    def run(
        self,
        function: Callable[[Job, Shared, Channel], Result],
        jobs: Iterable[Job],
        shared: Shared,
    ) -> Iterator[tuple[Job, Result]]:
        """Yield every job with its result, in the order of completion.

        function: a module-level function, called with a job, `shared` and the channel; arguments
            and results are pickled if workers are other processes.
        jobs: the next job is requested when a worker is free, and none after a stop.
        """
        for job in jobs:
            yield job, function(job, shared, self.channel)
            if self.channel.stop_requested():
                return

    @contextmanager
    def watched(self, look: Callable[[], None]) -> Iterator[None]:
        """Call `look` every `poll_seconds` from a thread, and forward `stop` to the workers.

        An exception of `look` stops the workers and is raised after they have returned.
        """
        over = threading.Event()
        errors: list[BaseException] = []

        def poll() -> None:
            while not over.wait(self.poll_seconds):
                try:
                    # in a single process the job evaluates the stop condition at every step: a time
                    # limit reserves the longest interval between two evaluations
                    if not self.channel.in_process and self.stop is not None and self.stop():
                        self.channel.request_stop()
                    look()
                except BaseException as error:
                    errors.append(error)
                    self.channel.request_stop()
                    return

        thread = threading.Thread(target=poll, name="zetamix-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if errors:
            raise errors[0]


class ProcessExecutor(Executor):
    """Runs jobs in processes of this machine, and restarts the jobs of killed processes.

    Processes are reused: importing torch takes 2 s in a new one.
    """

    channel: FileChannel
    died: tuple[type[BaseException], ...] = (BrokenProcessPool,)
    """Exceptions that mean that a worker was killed."""
    _pool: Any = None

    def run(
        self,
        function: Callable[[Job, Shared, Channel], Result],
        jobs: Iterable[Job],
        shared: Shared,
    ) -> Iterator[tuple[Job, Result]]:
        retry: deque[Job] = deque()
        waiting = iter(jobs)
        pending: dict[Any, Job] = {}
        deaths = 0
        with self._sharing(shared) as handle:
            try:
                while True:
                    while len(pending) < self.workers and not self.channel.stop_requested():
                        try:
                            job = retry.popleft() if retry else next(waiting)
                        except StopIteration:
                            break
                        pending[self._submit(function, job, handle)] = job
                    if not pending:
                        return
                    killed: BaseException | None = None
                    for future in self._wait(pending):
                        job = pending.pop(future)
                        try:
                            result = self._result(future)
                        except self.died as error:
                            killed = error
                            retry.append(job)
                        else:
                            deaths = 0
                            yield job, result
                    if killed is not None and not self.channel.stop_requested():
                        deaths += 1
                        self._check(deaths, killed)
                        self.deaths += 1
            finally:
                if pending or self.channel.stop_requested():
                    self._kill(pending)

    def _check(self, deaths: int, error: BaseException) -> None:
        if deaths >= self.max_deaths:
            raise ExecutorError(
                f"Workers were killed {deaths} times in a row, most likely for lack of memory. "
                "Reduce the number of parallel runs (--jobs)."
            ) from error

    @property
    def description(self) -> str:
        return f"{self.workers} processes side by side"

    @contextmanager
    def _sharing(self, shared: Any) -> Iterator[Any]:
        """Store the data that all jobs share; the handle is sent with every job."""
        # a dataset may have gigabytes: it is pickled once, and loaded once by every process
        path = self.channel.folder / f"shared-{secrets.token_hex(4)}.pickle"
        path.write_bytes(pickle.dumps(shared))
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _submit(self, function: Any, job: Any, handle: Any) -> Any:
        threads = str(max(1, cores() // self.workers))
        self._pool = get_reusable_executor(
            self.workers,
            timeout=IDLE_SECONDS,
            initializer=_ignore_interrupts,
            env={"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
        return self._pool.submit(_call, function, job, handle, self.channel)

    def _wait(self, pending: Mapping[Any, Any]) -> Iterable[Any]:
        """Wait for a job to end, and return all that have ended."""
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        if any(isinstance(future.exception(), self.died) for future in done):
            # a killed process breaks the pool: all running jobs fail
            done, _ = wait(pending, return_when=ALL_COMPLETED)
        return done

    def _result(self, future: Any) -> Any:
        return future.result()

    def _kill(self, pending: Mapping[Any, Any]) -> None:
        """Kill the processes of abandoned jobs after an error or an interrupt, and idle processes.

        This saves the seconds that processes with torch loaded take to exit.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=True)


def _call(
    function: Callable[[Job, Any, Channel], Result], job: Job, handle: Path, channel: Channel
) -> Result:
    result = function(job, _load(handle), channel)
    if channel.orphaned():
        # the result is not needed, and there are no more jobs
        os._exit(1)
    return result


@lru_cache(maxsize=1)
def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _ignore_interrupts() -> None:
    # Ctrl-C reaches every process of a terminal: workers ignore it, the parent stops them
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def open_executor(
    backend: str = "local",
    *,
    jobs: int,
    workers: int | None = None,
    address: str | None = None,
    stop: Stop | None = None,
    poll_seconds: float = POLL_SECONDS,
    max_deaths: int = MAX_DEATHS,
) -> Iterator[Executor]:
    """An executor for `jobs` jobs.

    backend: "local" for processes of this machine (a single worker runs in this process), "ray"
        for a cluster.
    workers: number of parallel jobs; None uses one per core, or as many as fit on the cluster.
    address: of the Ray cluster, "auto" or host:port; None starts one on this machine.
    stop: polled; once it returns True the workers are asked to save and return.
    max_deaths: number of workers that may be killed in a row without a finished job.
    """
    check_backend(backend, address)
    options: dict[str, Any] = {"stop": stop, "poll_seconds": poll_seconds, "max_deaths": max_deaths}
    count = max(1, min(jobs, workers or cores()))
    with ExitStack() as stack:
        if backend == "ray":
            open_ray = _import_ray()
            executor = stack.enter_context(open_ray(jobs, workers, address, **options))
        elif count == 1:
            executor = Executor(**options)
        else:
            folder = tempfile.TemporaryDirectory(prefix="zetamix-", ignore_cleanup_errors=True)
            channel = FileChannel(Path(stack.enter_context(folder)), poll_seconds)
            executor = ProcessExecutor(count, channel=channel, **options)
        yield executor


def _import_ray() -> Callable[..., AbstractContextManager[Executor]]:
    try:
        from zetamix_lab.runs.ray_executor import open_ray_executor
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ExecutorError("Ray is not installed: pip install 'zetamix[ray]'") from None
    return open_ray_executor


def check_backend(backend: str, address: str | None = None) -> None:
    """Raise for an unknown backend, or for an address that the backend does not use."""
    if backend not in BACKENDS:
        raise ExecutorError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if address is not None and backend != "ray":
        raise ExecutorError(f"address needs backend ray, got {address!r} with {backend}.")


def cores() -> int:
    """CPU cores that this process may use."""
    return int(joblib.cpu_count())
