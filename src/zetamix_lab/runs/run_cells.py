"""Train a list of cells: in this process, in processes, on several GPUs or on a Ray cluster."""

import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch

from zetamix.atomic_io import write_text
from zetamix.methods import parse
from zetamix_lab.data import DataError, Dataset, DatasetRef, check_fingerprint, load_cached
from zetamix_lab.records import Cell, RunRecord
from zetamix_lab.runs.executor import (
    POLL_SECONDS,
    Channel,
    Executor,
    Stop,
    open_executor,
)
from zetamix_lab.runs.progress import CellProgress, Snapshot, Tracker
from zetamix_lab.train import Progress, Recipe, Run
from zetamix_lab.train.concurrent_runs import train
from zetamix_lab.train.cuda_graph import compiling_pays
from zetamix_lab.train.run_folder import FolderError, RunFolder, hold

Watch: TypeAlias = Callable[[Snapshot], None]

# default number of concurrent runs on one GPU
RUNS_PER_GPU = 4
# a worker whose parent was killed saves and releases its folder within this time
ORPHAN_SECONDS = 60.0
# lock of the command; the lock of `hold` is for the process that trains
COMMAND_LOCK = ".command.lock"
TOKEN = ".token"


@dataclass(frozen=True)
class CellResults:
    """Records and failures by key of the cell; a cell in neither was stopped before its end."""

    records: dict[str, RunRecord]
    failures: dict[str, str]
    progress: dict[str, CellProgress]
    trained: int
    """Runs that this call finished; the others had a record before."""
    description: str
    """Where they were trained, as in "2 processes side by side"; empty where nothing was."""
    busy_s: float
    """Seconds that training steps took in this call; runs that share a device share its time."""

    @property
    def complete(self) -> bool:
        return len(self.records) == len(self.progress)


@dataclass(frozen=True)
class Job:
    """Cells for one worker, which trains up to `side_by_side` of them concurrently."""

    cells: tuple[Cell, ...]
    device: str | None = None
    """None: a GPU if the worker has one."""
    side_by_side: int = 1


@dataclass(frozen=True)
class Settings:
    """Settings that all jobs of one call share."""

    data: Dataset | DatasetRef
    out: Path
    """On the machine of the caller."""
    folders: Mapping[str, str]
    """Folder within `out` by key of the cell."""
    token: str = ""
    """Content of the file `.token` in `out`, by which a worker on another machine knows whether
    it sees the same folder; empty for workers on this machine."""
    compile: bool | None = None
    save_every: float = 60.0
    keep_model: bool = True
    new_bn: bool = False
    orphan_seconds: float = ORPHAN_SECONDS


@dataclass
class JobResult:
    """By key of the cell; a cell that is in neither `records` nor `failures` was stopped."""

    records: dict[str, RunRecord] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The packed folders of runs that were finished on another machine."""


def run_cells(
    cells: Sequence[Cell],
    dataset: Dataset,
    *,
    out: Path,
    folder_of: Callable[[Cell], Path | str],
    ref: DatasetRef | None = None,
    jobs: int | None = None,
    backend: str = "local",
    address: str | None = None,
    device: str | None = None,
    compile: bool | None = None,
    save_every: float = 60.0,
    keep_model: bool = True,
    new_bn: bool = False,
    watch: Watch | None = None,
    stop: Stop | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> CellResults:
    """Train every cell that has no record yet, and return all records.

    Runs resume from their checkpoints. A run that fails (it diverged, its folder or data cannot be
    used, the GPU is out of memory) does not end the others. Runs of killed workers are resumed.

    out: the folder that contains the folders of the runs. folder_of: the folder of a cell in it.
    ref: how other processes load the dataset; None sends them the dataset.
    jobs: number of parallel runs: processes on a CPU (default: one per core), concurrent models on
        GPUs (default: 4 on each).
    backend: "local", or "ray" for the cluster at `address` ("auto", host:port; None starts one).
    device: "cpu", "cuda" for all GPUs, or "cuda:1"; None takes GPUs if there are any.
    compile: torch.compile; None decides by the number of steps that a process will take.
    keep_model: whether the weights of finished runs are kept.
    new_bn: as in `Run`.
    watch: called with a snapshot at the start, every `poll_seconds` from a thread, and at the end.
    stop: once it returns True, current runs are saved; the same call resumes them.
    """
    settings = Settings(
        data=dataset if ref is None else ref,
        out=out.absolute(),
        folders={cell.key: str(folder_of(cell)) for cell in cells},
        compile=compile,
        save_every=save_every,
        keep_model=keep_model,
        new_bn=new_bn,
    )
    call = _Call(cells, dataset, settings, watch)
    if call.missing:
        plan, workers = plan_jobs(call.missing, jobs, backend, device)
        opened = open_executor(
            backend,
            jobs=len(plan),
            workers=workers,
            address=address,
            stop=stop,
            poll_seconds=poll_seconds,
        )
        with opened as executor:
            call.train(plan, executor)
    return call.results()


class _Call:
    """The state of one call of `run_cells`."""

    def __init__(
        self, cells: Sequence[Cell], dataset: Dataset, settings: Settings, watch: Watch | None
    ) -> None:
        self.cells, self.dataset, self.settings, self.watch = cells, dataset, settings, watch
        self.tracker = Tracker(cells)
        self.failures: dict[str, str] = {}
        self.description = ""
        records = {}
        for cell in cells:
            record = self._folder(cell).read_record()
            if record is not None:
                records[cell.key] = record
                # a process that was killed right after writing the record left its checkpoint
                self._folder(cell).clean_up()
        self.records: dict[str, RunRecord] = records
        self.finished_before = len(self.records)
        self.missing = [cell for cell in cells if cell.key not in self.records]
        self.tracker.scores = {key: record.last for key, record in self.records.items()}
        self._notify()

    def train(self, plan: Sequence[Job], executor: Executor) -> None:
        self.description = executor.description
        settings = self.settings
        if executor.remote:
            settings = replace(settings, token=folder_token(settings.out))
        if executor.remote or executor.workers == 1:
            # other machines may not have the data, and this process has loaded it
            settings = replace(settings, data=self.dataset)
        folders = [self._folder(cell).path for cell in self.missing]
        # fails immediately if another command runs; workers wait for those of a killed command
        with hold(folders, lock=COMMAND_LOCK), executor.watched(lambda: self._look(executor)):
            for _, result in executor.run(train_cells, plan, settings):
                self._take(result)
        self._look(executor)

    def results(self) -> CellResults:
        snapshot = self._notify()
        return CellResults(
            records={c.key: self.records[c.key] for c in self.cells if c.key in self.records},
            failures=self.failures,
            progress={progress.cell.key: progress for progress in snapshot.cells},
            trained=len(self.records) - self.finished_before,
            description=self.description,
            busy_s=sum(message["busy"] for message in self.tracker.messages.values()),
        )

    def _take(self, result: JobResult) -> None:
        for key, files in result.files.items():
            RunFolder.unpack(self.settings.out / self.settings.folders[key], files)
        self.records |= result.records
        self.failures |= result.failures
        self.tracker.scores |= {key: record.last for key, record in result.records.items()}
        self.tracker.failed = set(self.failures)

    def _look(self, executor: Executor) -> None:
        self.tracker.messages = executor.channel.messages()
        self.tracker.deaths = executor.deaths
        self._notify()

    def _notify(self) -> Snapshot:
        snapshot = self.tracker.snapshot()
        if self.watch is not None:
            self.watch(snapshot)
        return snapshot

    def _folder(self, cell: Cell) -> RunFolder:
        return RunFolder(self.settings.out / self.settings.folders[cell.key], cell)


def plan_gpus(
    jobs: int | None, backend: str, device: str | None, gpus: int | None = None
) -> tuple[list[str], int]:
    """The GPUs of this machine to train on, and how many runs share each; none on a cluster."""
    if backend != "local" or device == "cpu":
        return [], 1
    if gpus is None:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [f"cuda:{index}" for index in range(gpus)]
    if device not in (None, "cuda"):
        devices = [device] if gpus else []
    return devices, RUNS_PER_GPU if jobs is None else -(-jobs // max(1, len(devices)))


def plan_jobs(
    cells: Sequence[Cell],
    jobs: int | None,
    backend: str,
    device: str | None,
    gpus: int | None = None,
) -> tuple[list[Job], int | None]:
    """The jobs, and the number of workers (None: as many as fit).

    Locally there is one process per GPU, which trains several models concurrently; on a CPU there
    is one process per run, and a cluster schedules every run separately.

    gpus: the number of GPUs; None asks torch.
    """
    devices, side_by_side = plan_gpus(jobs, backend, device, gpus)
    if not devices:
        return [Job((cell,), device) for cell in cells], jobs
    plan = [
        Job(tuple(cells[index :: len(devices)]), name, side_by_side)
        for index, name in enumerate(devices)
        if cells[index :: len(devices)]
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


def should_compile(device: torch.device, recipes: Sequence[Recipe], samples: int) -> bool:
    """Whether torch.compile saves time, by the total number of steps of one process."""
    return compiling_pays(device, sum(recipe.steps(samples) for recipe in recipes))


def train_cells(job: Job, settings: Settings, channel: Channel) -> JobResult:
    """Train the cells of a job; workers run this function."""
    base = working_folder(settings.out, settings.token)
    folders = {cell.key: base / settings.folders[cell.key] for cell in job.cells}
    try:
        data = settings.data
        dataset = load_cached(data) if isinstance(data, DatasetRef) else data
        check_fingerprint(dataset, job.cells[0].fingerprint)
        with hold(folders.values(), wait=settings.orphan_seconds):
            result = _train(job, settings, channel, dataset, folders)
    except (DataError, FolderError) as error:
        return JobResult(failures={cell.key: str(error) for cell in job.cells})
    if base != settings.out:
        for key in result.records:
            result.files[key] = RunFolder(folders[key]).pack()
            shutil.rmtree(folders[key])
    return result


def _train(
    job: Job,
    settings: Settings,
    channel: Channel,
    dataset: Dataset,
    folders: Mapping[str, Path],
) -> JobResult:
    recipes = [Recipe.from_dict(cell.recipe) for cell in job.cells]
    device = use_device(job.device)
    compile = settings.compile
    if compile is None:
        compile = should_compile(device, recipes, len(dataset.train))
    with warnings.catch_warnings():
        # the command itself warns once about a γ below the dominance threshold
        warnings.simplefilter("ignore", UserWarning)
        runs = [
            Run(
                dataset,
                parse(cell.method),
                recipe,
                seed=cell.seed,
                out=folders[cell.key],
                device=device,
                compile=compile,
                save_every=settings.save_every,
                new_bn=settings.new_bn,
                keep_model=settings.keep_model,
            )
            for cell, recipe in zip(job.cells, recipes, strict=True)
        ]
        reporter = _Reporter(channel)
        result = train(runs, jobs=job.side_by_side, watch=reporter, stop=reporter.stopped)
    reporter.flush()
    return JobResult(
        records={record.cell.key: record for record in result.records},
        failures={run.cell.key: failure.message for run, failure in result.failures.items()},
    )


class _Reporter:
    """Sends the progress of runs through a channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.messages: dict[Run, dict[str, Any]] = {}

    def __call__(self, progress: Progress) -> None:
        run, epochs = progress.run, progress.epochs
        message = self.messages.setdefault(run, {"resumed": epochs, "line": None, "done": False})
        message |= {"epochs": epochs, "busy": run.timer.busy}
        if progress.line is not None and "test" in progress.line:
            message["line"] = progress.line
        self._send(run)

    def stopped(self) -> bool:
        # with several runs in one process, a run may be finished long before its job
        for run, message in self.messages.items():
            if run.record is not None and not message["done"]:
                message["done"] = True
                self._send(run, now=True)
        return self.channel.stopped()

    def flush(self) -> None:
        """Send the last message of every run, without waiting for `interval`."""
        for run, message in self.messages.items():
            message["done"] = run.record is not None
            self._send(run, now=True)

    def _send(self, run: Run, *, now: bool = False) -> None:
        self.channel.send(run.cell.key, dict(self.messages[run]), now=now)


def folder_token(out: Path) -> str:
    """A token that distinguishes this folder from one with the same path on another machine."""
    path = out / TOKEN
    if not path.exists():
        write_text(path, secrets.token_hex(8))
    return path.read_text()


def working_folder(out: Path, token: str) -> Path:
    """`out` if this process sees the folder of the caller, else a temporary folder."""
    try:
        if not token or (out / TOKEN).read_text() == token:
            return out
    except OSError:
        pass
    return Path(tempfile.gettempdir()) / f"zetamix-{token}"
