"""Train what is missing of a grid, wherever the workers are, and read what came of it."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import torch
from filelock import FileLock, Timeout

from zetamix.atomic_io import write_text
from zetamix.data import Dataset, DatasetRef
from zetamix.experiments.boards import EVERY, STOP
from zetamix.experiments.compare.grid import CompareError, Grid, Place
from zetamix.experiments.compare.progress import Overview, Tracker
from zetamix.experiments.compare.work import Job, train_cells
from zetamix.experiments.workers import Workers, check_backend, open_workers
from zetamix.results.comparison import Comparison, make_comparison, read_record
from zetamix.train.run_folder import RunFolder

Watch: TypeAlias = Callable[[Overview], None]

# models side by side on one GPU, where nobody says --jobs
PER_GPU = 4


def compare(
    grid: Grid,
    *,
    jobs: int | None = None,
    backend: str = "local",
    address: str | None = None,
    device: str | None = None,
    compile: bool = False,
    watch: Watch | None = None,
    stop: Callable[[], bool] | None = None,
) -> Comparison:
    """Train every run that is not finished yet, and put all results together.

    jobs: runs at a time: processes on a CPU (one for each core by default), models side by side
        in one process on a GPU (4 by default).
    backend: "local", or "ray" for a cluster at `address` ("auto", host:port; None starts one).
    device: "cpu" or "cuda"; None takes GPUs where there are any.
    watch: called at the beginning, about twice a second from a thread of its own, and at the end.
    stop: asked as often; once it says so, what is under way is saved, and the same call goes on
        from there.
    """
    check_backend(backend, address)
    with _sole_user(grid.out):
        tracker = Tracker(grid)
        missing = []
        for place in grid.places:
            record = read_record(grid.out, place)
            if record is None:
                missing.append(place)
            else:
                tracker.done[place.key] = record.last
        failures: dict[str, str] = {}
        before = len(tracker.done)
        where = ""
        if watch is not None:
            watch(tracker.look())
        if missing:
            plan, count = _plan_jobs(grid, missing, jobs, backend, device, compile)
            with open_workers(
                backend, len(plan), folder=grid.out / ".progress", count=count, address=address
            ) as workers:
                where = workers.where
                with _watching(workers, tracker, watch, stop):
                    failures = _train(grid, plan, workers, tracker)
        tracker.failed = set(failures)
        if watch is not None:
            watch(tracker.look())
        trained = len(tracker.done) - before
        return make_comparison(grid, failures, where, tracker.reached(), trained)


def _plan_jobs(
    grid: Grid,
    missing: Sequence[Place],
    jobs: int | None,
    backend: str,
    device: str | None,
    compile: bool,
) -> tuple[list[Job], int | None]:
    """What each worker gets, and how many workers to ask for."""
    if device is None and backend == "local":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    token = _token(grid.out)

    def job(places: Sequence[Place], device: str | None, concurrent: int = 1) -> Job:
        return Job(tuple(places), grid.recipe, grid.out, token, device, concurrent, compile)

    if backend != "local" or device == "cpu":
        return [job([place], device) for place in missing], jobs
    # one process for each GPU, which trains several models side by side
    gpus = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if device == "cuda" else [device]
    side_by_side = PER_GPU if jobs is None else -(-jobs // len(gpus))
    shares = [missing[k :: len(gpus)] for k in range(len(gpus))]
    plan = [job(*each, side_by_side) for each in zip(shares, gpus, strict=True) if each[0]]
    return plan, len(plan)


def _train(grid: Grid, plan: Sequence[Job], workers: Workers, tracker: Tracker) -> dict[str, str]:
    """Failures by key; everything else is in the folders of the runs."""
    by_key = {place.key: place for place in grid.places}
    # other machines may not have the data
    shared: DatasetRef | Dataset = grid.dataset
    if grid.source is not None and not workers.elsewhere:
        shared = grid.source
    failures: dict[str, str] = {}
    # what is not begun when a stop is told is left alone
    jobs = (job for job in plan if workers.board.get(STOP) is None)
    for job, outcome in workers.run(train_cells, jobs, shared):
        for key, files in outcome.files.items():
            RunFolder.unpack(grid.out / by_key[key].folder, files)
        failures |= outcome.failures
        for place in job.places:
            record = read_record(grid.out, place)
            if record is not None:
                tracker.done[place.key] = record.last
        tracker.failed = set(failures)
    tracker.words = workers.board.all()
    return failures


@contextmanager
def _watching(
    workers: Workers,
    tracker: Tracker,
    watch: Watch | None,
    stop: Callable[[], bool] | None,
) -> Iterator[None]:
    """Look at the board from time to time, for as long as the context lasts."""
    over = threading.Event()
    trouble: list[BaseException] = []

    def look() -> None:
        try:
            while not over.wait(EVERY):
                if stop is not None and stop():
                    workers.board.put(STOP, {"at": time.time()})
                tracker.words, tracker.died = workers.board.all(), workers.died
                for place in tracker.grid.places:
                    _note_finished(tracker, place)
                if watch is not None:
                    watch(tracker.look())
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=look, name="zetamix-compare", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if trouble:
        raise trouble[0]


def _note_finished(tracker: Tracker, place: Place) -> None:
    """A run of several in one process is finished long before its job is."""
    if place.key in tracker.words and place.key not in tracker.done:
        record = read_record(tracker.grid.out, place)
        if record is not None:
            tracker.done[place.key] = record.last


@contextmanager
def _sole_user(out: Path) -> Iterator[None]:
    lock = FileLock(out / ".lock", timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise CompareError(
            f"{out} is in use by another comparison. Wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise CompareError(
            f"Cannot write to {out}: {error.strerror}. Choose another --out."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _token(out: Path) -> str:
    """Tells this folder from one of the same name on another machine."""
    path = out / ".here"
    if not path.exists():
        write_text(path, secrets.token_hex(8))
    return path.read_text()
