"""Train a list of cells: in this process, in processes, on several GPUs or on a Ray cluster."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zetamix.methods import display_name, parse
from zetamix_lab.comparison import metric_of
from zetamix_lab.data import DataError, Dataset, DatasetRef, load_cached
from zetamix_lab.progress import RUNS, Progress, count_epochs
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
from zetamix_lab.text import plural
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
    """Epochs of the runs that were stopped, with the fraction of the current one."""
    description: str = ""
    """Where runs were trained, as in "2 processes side by side"; empty where none was."""


def run_name(cell: Cell, until: float | None = None) -> str:
    """until: as in `zetamix.methods.display_name`."""
    return f"{display_name(cell.method, until)} seed {cell.seed}"


class Tracker:
    """Keeps the results of cells by key, and shows what has changed as events.

    results: those of earlier calls. missing: the cells without a record.
    show: called with the name of a run, its epochs, their total and a text. The event `RUNS` sums
        up the runs of this call, without the epochs of earlier ones.
    name_of: the name of a run. metric: the metric of the text; the first one if a run lacks it.
    """

    def __init__(
        self,
        results: CellResults,
        missing: Sequence[Cell],
        show: Progress | None = None,
        name_of: Callable[[Cell], str] = run_name,
        metric: str = "error",
    ) -> None:
        self.results, self.show, self.metric = results, show, metric
        self.names = {cell.key: name_of(cell) for cell in missing}
        # 1 for a run without epochs
        self.totals = {cell.key: float(cell.recipe.get("epochs", 1)) for cell in missing}
        self.resumed = dict.fromkeys(self.names, 0.0)
        """Epochs of the checkpoint when this call started or resumed the run."""
        self.count = len(results.records) + len(missing)
        self.deaths = 0
        """Workers that were killed, and whose runs were resumed."""
        self._changed: dict[str, tuple[float, str]] = {}
        self._shown = 0.0

    def update(self, key: str, epochs: float, resumed: float, line: Mapping[str, Any]) -> None:
        """line: metrics of the last epoch that was evaluated, as in metrics.jsonl."""
        total = self.totals[key]
        self.results.unfinished[key], self.resumed[key] = epochs, resumed
        parts = [count_epochs(epochs, total) if epochs else "training"]
        if "train_loss" in line:
            parts.append(f"loss {line['train_loss']:.3f}")
            parts.append(f"train {100 * line['train_accuracy']:.1f} %")
        if line:
            metric = metric_of(self.metric)
            parts.append(f"test {metric.short} {metric.format(line['test'][metric.name])}")
        # a run with all its epochs is still to be evaluated and written
        self._changed[key] = min(epochs, 0.999 * total), " · ".join(parts)

    def finish(self, record: RunRecord) -> None:
        metric = metric_of(self.metric if self.metric in record.last else next(iter(record.last)))
        self.results.records[record.key] = record
        self._end(record.key, f"{metric.title} {metric.format(record.last[metric.name])}")

    def fail(self, key: str, why: str) -> None:
        self.results.failures[key] = why
        self._end(key, "failed")

    def _end(self, key: str, text: str) -> None:
        self.results.unfinished.pop(key, None)
        self._changed[key] = self.totals[key], text

    def tick(self, after: float = 0.0) -> None:
        """Show what has changed, all runs together first, if `after` seconds have passed."""
        if self.show is None or time.monotonic() - self._shown < after:
            return
        self._shown, results = time.monotonic(), self.results
        text = f"{len(results.records)} of {plural(self.count, 'run')} finished"
        if results.failures:
            text += f", {len(results.failures)} failed"
        if self.deaths:
            text += f", {plural(self.deaths, 'killed worker')} started again"
        ended = self.totals.keys() & {*results.records, *results.failures}
        done = sum(results.unfinished.values()) + sum(self.totals[key] for key in ended)
        resumed = sum(self.resumed.values())
        self.show(RUNS, done - resumed, sum(self.totals.values()) - resumed, text)
        for key, (done, text) in self._changed.items():
            self.show(self.names[key], done, self.totals[key], text)
        self._changed.clear()


class Job(NamedTuple):
    """Cells for one worker, which trains up to `side_by_side` of them concurrently."""

    cells: tuple[Cell, ...]
    device: str | None = None
    """None: a GPU if the worker has one."""
    side_by_side: int = 1


def run_cells(
    cells: Sequence[Cell],
    dataset: Dataset | None,
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
    **options: Any,
) -> CellResults:
    """Train every cell that has no record yet, and return all records.

    Runs resume from their checkpoints. A run that fails (it diverged, its folder or data cannot be
    used, the GPU is out of memory) does not end the others. Runs of killed workers are resumed.

    dataset: what is trained on; None if `function` is given.
    out: the folder of the runs; each has a folder `Cell.folder` in it.
    function: trains a `Job` in place of `train_cells`: each cell in a process of its own.
    ref: how other processes load the dataset; None sends them the dataset.
    jobs: number of parallel runs: processes on a CPU (default: one per core), concurrent models on
        GPUs (default: 4 on each).
    backend: "local", "ray" for the cluster that this machine belongs to, or "ray:HOST:PORT". Where
        the machines of a cluster do not share `out`, records and curves are written there, and a
        lost run starts again.
    device: "cpu", "cuda" for all GPUs, or "cuda:1"; None takes GPUs if there are any.
    watch, name_of, metric: as `show`, `name_of` and `metric` of `Tracker`.
    finished: called with every record when it arrives.
    stop: once it returns True, current runs are saved; the same call resumes them.
    options: `save_every` and `keep_model` of every `Run`.
    """
    out, results, missing = out.absolute(), CellResults(), list[Cell]()
    for cell in cells:
        folder = RunFolder(out / cell.folder, cell)
        if (record := folder.read_record()) is None:
            missing.append(cell)
        else:
            results.records[cell.key] = record
            # a process that was killed right after writing the record left its checkpoint
            folder.clean_up()
    tracker = Tracker(results, missing, watch, name_of, metric)
    tracker.tick()
    if not missing:
        return results
    alone = function is not None
    plan, workers = plan_jobs(missing, jobs, backend, device, alone=alone)
    if function is None:
        data = dataset if ref is None or workers == 1 or backend != "local" else ref
        function = partial(train_cells, data, out, options)

    def receive(message: tuple[str, str, Any]) -> None:
        kind, key, value = message
        if message == KILLED:
            tracker.deaths += 1
        elif kind == "progress":
            tracker.update(key, *value)
        elif kind == "failure":
            tracker.fail(key, value)
        elif key not in results.records:
            record, curve, samples = value
            folder = RunFolder(out / record.cell.folder, record.cell)
            if folder.read_record() is None:
                # trained on another machine, which keeps the weights
                folder.open(record.cell, 0)
                for line in curve:
                    folder.add_epoch(line)
                folder.finish(record, {}, None, samples)
            tracker.finish(record)
            finished(record)
        tracker.tick(after=POLL_SECONDS)

    # fails immediately if another command runs; workers wait for those of a killed command
    with hold([out / cell.folder for cell in missing], lock=COMMAND_LOCK):
        work = Work(function, plan, receive, stop, alone)
        results.description = run_jobs(work, backend, workers)
    tracker.tick()
    results.records = {c.key: results.records[c.key] for c in cells if c.key in results.records}
    results.unfinished = {key: epochs for key, epochs in results.unfinished.items() if epochs}
    return results


def plan_jobs(
    cells: Sequence[Cell],
    jobs: int | None,
    backend: str,
    device: str | None,
    *,
    alone: bool = False,
) -> tuple[list[Job], int | None]:
    """The jobs, and the number of workers (None: as many as a cluster has room for).

    Locally there is one process per GPU, which trains several models concurrently; on a CPU there
    is one process per run, and a cluster schedules every run separately.

    alone: whether every run has a process, of which there is one, or one for each GPU, by default.
    """
    if backend != "local":
        return [Job((cell,), device) for cell in cells], jobs
    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    devices = [f"cuda:{k}" for k in gpus] if gpus and device in (None, "cuda") else [device]
    if alone or devices[0] in (None, "cpu"):
        workers = jobs or (len(devices) if alone else cores())
        plan = [Job((cell,), name) for cell, name in zip(cells, cycle(devices), strict=False)]
        return plan, min(len(cells), workers)
    side_by_side = RUNS_PER_GPU if jobs is None else -(-jobs // len(devices))
    plan = [
        Job(tuple(cells[k :: len(devices)]), name, side_by_side)
        for k, name in enumerate(devices[: len(cells)])
    ]
    return plan, len(plan)


def use_device(name: str | None) -> torch.device:
    """The device of this process, made the current one; None takes a GPU if there is one.

    CUDA streams and graphs are created on the current GPU, so a process must select the GPU that it
    trains on.
    """
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)
        # cuDNN benchmarks its convolutions once per shape; shapes do not change here
        torch.backends.cudnn.benchmark = True
    return device


def train_cells(
    data: Any, out: Path, options: dict[str, Any], job: Job, send: Send, stopped: Stop
) -> None:
    """Train the cells of a job; workers run this function.

    data: a `Dataset` or a `DatasetRef`. out, options: as of `run_cells`.
    """
    try:
        dataset = load_cached(data, job.cells[0].fingerprint)
        folders = [out / cell.folder for cell in job.cells]
        with hold(folders, wait=ORPHAN_SECONDS), warnings.catch_warnings():
            # the command has warned once, such as of a classifier that starts from random weights
            warnings.simplefilter("ignore", UserWarning)
            recipes = [Recipe.from_dict(cell.recipe) for cell in job.cells]
            device = use_device(job.device)
            # by the steps of this process
            steps = sum(recipe.steps(len(dataset.train)) for recipe in recipes)
            options = {**options, "device": device, "compile": compiling_pays(device, steps)}
            runs = [
                Run(dataset, parse(cell.method), recipe, seed=cell.seed, out=folder, **options)
                for cell, recipe, folder in zip(job.cells, recipes, folders, strict=True)
            ]
            _train(runs, job.side_by_side, send, stopped)
    except (DataError, FolderError) as error:
        for cell in job.cells:
            send(("failure", cell.key, str(error)))


def _train(runs: Sequence[Run], side_by_side: int, send: Send, stopped: Stop) -> None:
    """Train runs; sends their records, and how far each is every `POLL_SECONDS`."""
    left, times = list(runs), dict[Run, float]()
    reached = dict[Run, tuple[float, float, dict[str, Any]]]()

    def watch(run: Run, line: dict[str, Any]) -> None:
        _, resumed, before = reached.get(run, (0.0, run.epochs, {}))
        reached[run] = run.epochs, resumed, line if "test" in line else before
        if time.monotonic() - times.get(run, 0.0) >= POLL_SECONDS:
            times[run] = time.monotonic()
            send(("progress", run.cell.key, reached[run]))

    def send_finished() -> bool:
        # with several runs in one process, a run may be finished long before its job
        for run in [run for run in left if run.record is not None]:
            left.remove(run)
            files = run.folder.read_curve(), run.folder.read_samples()
            send(("record", run.cell.key, (run.record, *files)))
        return stopped()

    failures = train(runs, jobs=side_by_side, watch=watch, stop=send_finished)
    send_finished()
    for run in left:
        if run in failures:
            send(("failure", run.cell.key, failures[run]))
        elif run in reached:
            send(("progress", run.cell.key, reached[run]))
