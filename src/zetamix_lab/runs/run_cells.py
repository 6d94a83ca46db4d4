"""Train a list of cells: in this process, in processes, on several GPUs or on a Ray cluster."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from zetamix.methods import parse
from zetamix_lab.data import DataError, Dataset, DatasetRef, load_cached
from zetamix_lab.progress import Progress
from zetamix_lab.records import Cell, RunRecord
from zetamix_lab.runs.executor import (
    KILLED,
    POLL_SECONDS,
    Function,
    Send,
    Stop,
    Work,
    cores,
    run_jobs,
)
from zetamix_lab.runs.progress import Tracker, run_name
from zetamix_lab.train import Recipe, Run, train
from zetamix_lab.train.cuda_graph import compiling_pays
from zetamix_lab.train.run_folder import FolderError, RunFolder, hold

# default number of concurrent runs on one GPU
RUNS_PER_GPU = 4
# a worker whose parent was killed saves and releases its folder within this time
ORPHAN_SECONDS = 60.0
# lock of the command; the lock of `hold` is for the process that trains
COMMAND_LOCK = ".command.lock"


@dataclass
class CellResults:
    """Records and failures by key of the cell; a cell in neither was stopped before its end."""

    records: dict[str, RunRecord] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, float] = field(default_factory=dict)
    """Epochs of the runs that were stopped."""
    description: str = ""
    """Where runs were trained, as in "2 processes side by side"; empty where none was."""


@dataclass(frozen=True)
class Job:
    """Cells for one worker, which trains up to `side_by_side` of them concurrently."""

    cells: tuple[Cell, ...]
    device: str | None = None
    """None: a GPU if the worker has one."""
    side_by_side: int = 1


@dataclass(frozen=True)
class Settings:
    """What all jobs of one call share."""

    data: Any
    """A dataset or a `DatasetRef`, or what the function takes."""
    out: Path
    options: dict[str, Any] = field(default_factory=dict)
    """Of every `Run`."""
    orphan_seconds: float = ORPHAN_SECONDS
    poll_seconds: float = POLL_SECONDS


def run_cells(
    cells: Sequence[Cell],
    dataset: Any,
    *,
    out: Path,
    ref: DatasetRef | None = None,
    function: Function | None = None,
    jobs: int | None = None,
    backend: str = "local",
    device: str | None = None,
    watch: Progress | None = None,
    name_of: Callable[[Cell], str] = run_name,
    metric: str = "error",
    finished: Callable[[RunRecord], None] = lambda record: None,
    stop: Stop = lambda: False,
    poll_seconds: float = POLL_SECONDS,
    **options: Any,
) -> CellResults:
    """Train every cell that has no record yet, and return all records.

    Runs resume from their checkpoints. A run that fails (it diverged, its folder or data cannot be
    used, the GPU is out of memory) does not end the others. Runs of killed workers are resumed.

    dataset: a `Dataset`, unless `function` is given.
    out: the folder of the runs; each has a folder `Cell.folder` in it.
    function: trains a cell in place of `train_cells`, each in a process of its own.
    ref: how other processes load the dataset; None sends them the dataset.
    jobs: number of parallel runs: processes on a CPU (default: one per core), concurrent models on
        GPUs (default: 4 on each).
    backend: "local", "ray" for the cluster that this machine belongs to, or "ray:HOST:PORT". Where
        the machines of a cluster do not share `out`, records and curves are written there, and a
        lost run starts again.
    device: "cpu", "cuda" for all GPUs, or "cuda:1"; None takes GPUs if there are any.
    watch, name_of, metric: as in `Tracker`.
    finished: called with every record when it arrives.
    stop: once it returns True, current runs are saved; the same call resumes them.
    options: `save_every` and `keep_model` of every `Run`.
    """
    out = out.absolute()
    tracker, results = Tracker(cells, watch, name_of, metric), CellResults()
    for cell in cells:
        folder = RunFolder(out / cell.folder, cell)
        if (record := folder.read_record()) is not None:
            results.records[cell.key] = record
            tracker.end(cell.key, "done")
            # a process that was killed right after writing the record left its checkpoint
            folder.clean_up()
    tracker.tick()
    missing = [cell for cell in cells if cell.key not in results.records]
    if not missing:
        return results
    alone = function is not None
    plan, workers = plan_jobs(missing, jobs, backend, device, alone=alone)
    data = dataset if ref is None or workers == 1 or backend != "local" else ref

    def receive(message: tuple[str, str, Any]) -> None:
        kind, key, value = message
        if message == KILLED:
            tracker.deaths += 1
        elif kind == "progress":
            tracker.update(key, *value)
        elif kind == "failure":
            results.failures[key] = value
            tracker.end(key, "failed")
        elif key not in results.records:
            record, *files = value
            _keep(RunFolder(out / record.cell.folder, record.cell), record, *files)
            results.records[key] = record
            tracker.end(key, "done", record.last)
            finished(record)
        tracker.tick(after=poll_seconds)

    settings = Settings(data, out, options, poll_seconds=poll_seconds)
    work = Work(function or train_cells, plan, settings, receive, stop, poll_seconds, alone)
    # fails immediately if another command runs; workers wait for those of a killed command
    with hold([out / cell.folder for cell in missing], lock=COMMAND_LOCK):
        results.description = run_jobs(work, backend, workers)
    tracker.tick()
    results.records = {c.key: results.records[c.key] for c in cells if c.key in results.records}
    results.unfinished = {
        key: epochs
        for key, epochs in tracker.epochs.items()
        if tracker.states[key] == "training" and epochs
    }
    return results


def _keep(folder: RunFolder, record: RunRecord, curve: Sequence[Any], samples: Any) -> None:
    """Write what was trained on another machine, which keeps the weights."""
    if folder.read_record() is None:
        folder.open(record.cell, 0)
        for line in curve:
            folder.add_epoch(line)
        folder.finish(record, {}, None, samples)


def plan_jobs(
    cells: Sequence[Cell],
    jobs: int | None,
    backend: str,
    device: str | None,
    gpus: int | None = None,
    *,
    alone: bool = False,
) -> tuple[list[Job], int | None]:
    """The jobs, and the number of workers (None: as many as a cluster has room for).

    Locally there is one process per GPU, which trains several models concurrently; on a CPU there
    is one process per run, and a cluster schedules every run separately.

    gpus: the number of GPUs; None asks torch.
    alone: whether every run has a process, of which there is one, or one for each GPU, by default.
    """
    if gpus is None:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend != "local":
        return [Job((cell,), device) for cell in cells], jobs
    names = [f"cuda:{index}" for index in range(gpus)] if device in (None, "cuda") else [device]
    if alone or device == "cpu" or not gpus:
        devices = cycle(names or [device])
        workers = jobs or (max(1, len(names)) if alone else cores())
        return [Job((cell,), next(devices)) for cell in cells], max(1, min(len(cells), workers))
    side_by_side = RUNS_PER_GPU if jobs is None else -(-jobs // len(names))
    shares = [tuple(cells[index :: len(names)]) for index in range(len(names))]
    plan = [
        Job(share, name, side_by_side) for share, name in zip(shares, names, strict=True) if share
    ]
    return plan, len(plan)


def use_device(
    name: str | None, cuda: Any = torch.cuda, cudnn: Any = torch.backends.cudnn
) -> torch.device:
    """The device of this process, made the current one; None takes a GPU if there is one.

    CUDA streams and graphs are created on the current GPU, so a process must select the GPU that it
    trains on.
    """
    if name is None:
        name = "cuda" if cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        if device.index is not None:
            cuda.set_device(device)
        # cuDNN benchmarks its convolutions once per shape; shapes do not change here
        cudnn.benchmark = True
    return device


def train_cells(job: Job, settings: Settings, send: Send, stopped: Stop) -> None:
    """Train the cells of a job; workers run this function."""
    folders = [settings.out / cell.folder for cell in job.cells]
    try:
        dataset = load_cached(settings.data, job.cells[0].fingerprint)
        with hold(folders, wait=settings.orphan_seconds):
            _train(job, settings, send, stopped, dataset)
    except (DataError, FolderError) as error:
        for cell in job.cells:
            send(("failure", cell.key, str(error)))


def _train(job: Job, settings: Settings, send: Send, stopped: Stop, dataset: Dataset) -> None:
    recipes = [Recipe.from_dict(cell.recipe) for cell in job.cells]
    device = use_device(job.device)
    # by the steps of this process
    compiled = compiling_pays(device, sum(recipe.steps(len(dataset.train)) for recipe in recipes))
    with warnings.catch_warnings():
        # the command itself warns once about a γ below the dominance threshold
        warnings.simplefilter("ignore", UserWarning)
        runs = [
            Run(
                dataset,
                parse(cell.method),
                recipe,
                seed=cell.seed,
                out=settings.out / cell.folder,
                device=device,
                compile=compiled,
                **settings.options,
            )
            for cell, recipe in zip(job.cells, recipes, strict=True)
        ]
        _report(runs, job, settings, send, stopped)


def _report(runs: Sequence[Run], job: Job, settings: Settings, send: Send, stopped: Stop) -> None:
    """Train runs; sends their records, and how far each is every `poll_seconds`."""
    left, times = list(runs), dict[Run, float]()
    reached = dict[Run, tuple[float, float, dict[str, Any]]]()

    def watch(run: Run, line: dict[str, Any]) -> None:
        _, resumed, before = reached.get(run, (0.0, run.epochs, {}))
        reached[run] = run.epochs, resumed, line if "test" in line else before
        if time.monotonic() - times.get(run, 0.0) >= settings.poll_seconds:
            times[run] = time.monotonic()
            send(("progress", run.cell.key, reached[run]))

    def send_finished() -> bool:
        # with several runs in one process, a run may be finished long before its job
        for run in [run for run in left if run.record is not None]:
            left.remove(run)
            send_last(run)
            files = run.folder.read_curve(), run.folder.read_samples()
            send(("record", run.cell.key, (run.record, *files)))
        return stopped()

    def send_last(run: Run) -> None:
        if run in reached:
            send(("progress", run.cell.key, reached[run]))

    failures = train(runs, jobs=job.side_by_side, watch=watch, stop=send_finished)
    send_finished()
    for run in left:
        send_last(run)
    for run, failure in failures.items():
        send(("failure", run.cell.key, failure))
