"""Independent jobs in processes of this machine, through joblib; a killed process costs its job."""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeAlias, TypeVar

import joblib

from zetamix.experiments.boards import STOP, Board

Job = TypeVar("Job")
Shared = TypeVar("Shared")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[Job, Shared, Board], Result]

# a process without a job ends after this time, should whoever started it be killed meanwhile
IDLE_SECONDS = 30
# processes that may die one after the other without a single job being finished
MOST_DEATHS = 3


class WorkersError(RuntimeError):
    """Workers that cannot be had or do not stay alive; the message says what to do."""


class Stored:
    """A value that is kept once for all workers; `get` fetches it where it is needed."""

    def get(self) -> Any:
        raise NotImplementedError


class Workers:
    """Up to `count` jobs at a time; one at a time is done in this very process.

    On a new process importing torch takes 2 s, so processes are kept from job to job.
    """

    broken: tuple[type[BaseException], ...] = (BrokenProcessPool,)
    elsewhere = False
    """Whether workers may be on other machines, with other files."""

    def __init__(self, count: int, board: Board) -> None:
        self.count, self.board = count, board
        self.died = 0
        """Times that a process was killed and its jobs were begun again."""

    @property
    def where(self) -> str:
        """In words, for a report."""
        return "1 process" if self.count == 1 else f"{self.count} processes side by side"

    def run(
        self, work: Work[Job, Shared, Result], jobs: Iterable[Job], shared: Shared
    ) -> Iterator[tuple[Job, Result]]:
        """Each job with its result, in the order in which they are done.

        work: a function of a module, called with a job, `shared` and the board. All that goes in
            and out of it is pickled.
        jobs: the next one is asked for when a worker is free for it.

        Where a process is killed, the jobs that were under way are done again and no other; the
        result of a job comes once.
        """
        if self.count == 1:
            for job in jobs:
                yield job, work(job, shared, self.board)
            return
        common = self._share(shared), self.board
        under_way: dict[int, Job] = {}
        rest = enumerate(jobs)
        deaths = 0
        while True:
            again = list(under_way.items())
            hand = _Hand(itertools.chain(again, rest), under_way)
            try:
                calls = (joblib.delayed(_call)(work, *each, *common) for each in hand)
                for number, result in self._parallel()(calls):
                    deaths = 0
                    yield under_way.pop(number), result
            except self.broken as error:
                hand.close()
                deaths += 1
                if self.board.get(STOP) is not None:
                    return
                if deaths == MOST_DEATHS:
                    raise WorkersError(
                        f"Worker processes were killed {deaths} times without a job being done. "
                        "The usual reason is too little memory: try fewer at a time (--jobs)."
                    ) from error
                self.died += 1
            else:
                return

    def _share(self, value: Any) -> Any:
        """What every job needs, as it is handed to joblib."""
        return value

    def _parallel(self) -> joblib.Parallel:
        threads = max(1, cores() // self.count)
        with joblib.parallel_config(backend="loky", inner_max_num_threads=threads):
            return self._joblib(idle_worker_timeout=IDLE_SECONDS)

    def _joblib(self, **options: Any) -> joblib.Parallel:
        return joblib.Parallel(
            n_jobs=self.count,
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch="n_jobs",
            **options,
        )


class _Hand(Generic[Job]):
    """Hands out jobs and notes which are under way.

    joblib asks from threads of its own, which may outlive a broken pool: it gets nothing then.
    """

    def __init__(self, jobs: Iterator[tuple[int, Job]], under_way: dict[int, Job]) -> None:
        self.jobs, self.under_way = jobs, under_way
        self.lock = threading.Lock()
        self.open = True

    def __iter__(self) -> "_Hand[Job]":
        return self

    def __next__(self) -> tuple[int, Job]:
        with self.lock:
            if not self.open:
                raise StopIteration
            number, job = next(self.jobs)
            self.under_way[number] = job
            return number, job

    def close(self) -> None:
        with self.lock:
            self.open = False


def _call(
    work: Work[Job, Shared, Result], number: int, job: Job, shared: Shared, board: Board
) -> tuple[int, Result]:
    if threading.current_thread() is threading.main_thread():
        # Ctrl-C reaches every process of a terminal; whoever started the workers tells them
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    value = shared.get() if isinstance(shared, Stored) else shared
    result = work(job, value, board)
    if board.abandoned():
        # nobody waits for the result, and no more jobs will come
        os._exit(1)
    return number, result


def cores() -> int:
    """Cores that this process may use."""
    return int(joblib.cpu_count())
