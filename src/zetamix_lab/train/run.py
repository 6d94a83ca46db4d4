"""Runs from their first step to their record: one after another, or some of them side by side."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from zetamix.methods import Method
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.data.errors import DataError
from zetamix_lab.metrics import METRICS, classify, count_confusion, fit_temperature, scaled_scores
from zetamix_lab.provenance import FileChangedError, machine_info
from zetamix_lab.records import Cell, RunRecord, SampleResults
from zetamix_lab.train.cuda_graph import can_capture, capture
from zetamix_lab.train.recipe import Recipe
from zetamix_lab.train.run_folder import FolderError, RunFolder
from zetamix_lab.train.stop import Stopped
from zetamix_lab.train.trainer import NonFiniteLossError, Trainer

# a checkpoint takes about half a second for a ResNet-18
SAVE_SECONDS = 60.0
# torch's generators take 64 bits
MAX_SEED = 2**63 - 1
# at 2.4 ms per step, the host switches between runs every 40 ms
CHUNK_STEPS = 16
# chunks of steps queued in addition to the one that is waited for. With one, concurrent models
# would have nothing queued while the host launches steps of the others, 0.2 to 0.4 ms each; three
# chunks are 48 steps, and an H200 queues 53 to 55 captured steps before a launch blocks the host
CHUNKS_AHEAD = 2
# the metrics of an epoch that has just ended; within an epoch it is empty
Line: TypeAlias = dict[str, Any]


def make_cell(dataset: Dataset, method: Method, recipe: Recipe, seed: int) -> Cell:
    """The cell of a run; all cells are created here, so that equal runs have equal keys."""
    return Cell(
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        method=method.label,
        seed=seed,
        recipe=recipe.as_dict(),
        train_size=len(dataset.train),
    )


class Run:
    """One cell, its folder and, once it is started, its trainer.

    out: folder of the run. An unfinished run of the same cell is resumed from its checkpoint.
    compile: whether to use torch.compile.
    save_every: seconds between checkpoints, which are written at the end of an epoch.
    keep_model: whether the weights of the finished run are written; a ResNet-18 takes 45 MB.
    data_memory: bytes of the device that a split may occupy (`Loader`).

    Several runs may be advanced in turn by one thread, as `train` does.
    """

    def __init__(
        self,
        dataset: Dataset,
        method: Method,
        recipe: Recipe,
        *,
        seed: int,
        out: Path,
        device: torch.device | str = "cpu",
        compile: bool = False,
        save_every: float = SAVE_SECONDS,
        data_memory: int | None = None,
        keep_model: bool = True,
    ) -> None:
        if dataset.test is None:
            raise ValueError(f"{dataset.name} has no test split to report on.")
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seed must be from 0 to {MAX_SEED}, got {seed}.")
        self.dataset, self.method, self.recipe, self.seed = dataset, method, recipe, seed
        self.test = dataset.test
        self.device, self.compile = torch.device(device), compile
        self.save_every, self.keep_model = save_every, keep_model
        recipe.check_sources(method, len(dataset.train))
        self.graph = can_capture(self.device, recipe, len(dataset.train))
        options: dict[str, Any] = {"seed": seed, "compile": compile, "data_memory": data_memory}
        self._make_trainer = partial(Trainer, dataset, method, recipe, device=device, **options)
        self.cell = make_cell(dataset, method, recipe, seed)
        self.folder = RunFolder(out, self.cell)
        self.record = self.folder.read_record()
        self.trainer: Trainer | None = None
        self.began = 0.0
        """When it was started, by `time.perf_counter`, less the seconds of earlier sessions."""
        self.concurrent = 1
        """The largest number of runs that were trained on the device at once, this one included."""
        self.waiting = False
        """Whether all steps of an epoch are launched but not yet completed by the device."""
        self._launched: deque[Any] = deque()
        """Events at the ends of chunks of steps that a GPU may not have completed."""

    @property
    def epochs(self) -> float:
        """Completed epochs, with the fraction of the current one, of a run that is under way."""
        trainer = self.trainer
        return trainer.epoch + trainer.step_in_epoch / trainer.steps_per_epoch if trainer else 0.0

    def advance(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Line]:
        """Train to the end, yielding control after every few steps.

        Between two yields `save` writes a checkpoint, and closing the iterator ends the run early.
        An evaluation raises `Stopped` once `stop`, called between two batches, returns True; when
        the run is resumed, the evaluation starts again.
        """
        trainer = self.start()
        trainer.stop = stop
        saved = time.perf_counter()
        try:
            while trainer.epoch < self.recipe.epochs:
                with self._on_stream():
                    trainer.start_epoch()
                    # of a run that was stopped after the last step of an epoch none is left
                    if self.graph and trainer.graph is None and trainer.steps_left:
                        capture(trainer)
                while trainer.steps_left:
                    with self._on_stream():
                        self._launch_chunk(trainer)
                    yield {}
                # the host can launch steps of other runs in the meantime
                while self._launched and not self._launched[-1].query():
                    self.waiting = True
                    yield {}
                self.waiting = False
                self._launched.clear()
                with self._on_stream():
                    line = self._close_epoch(trainer)
                if time.perf_counter() - saved > self.save_every:
                    self.save()
                    saved = time.perf_counter()
                yield line
        finally:
            # pending steps would write into memory that the next model uses
            if self._launched:
                self._launched[-1].synchronize()
        with self._on_stream():
            self._finish(trainer)

    def _launch_chunk(self, trainer: Trainer) -> None:
        """Launch some steps; on a GPU, wait until all but the last chunks before are completed."""
        for _ in range(min(CHUNK_STEPS if self.graph else 1, trainer.steps_left)):
            trainer.step()
        if self.device.type == "cuda":
            self._launched.append(torch.cuda.current_stream(self.device).record_event())
            if len(self._launched) > CHUNKS_AHEAD:
                self._launched.popleft().synchronize()

    def _on_stream(self) -> AbstractContextManager[Any]:
        """Make the GPU of this run, and the stream of its captured step, the current ones."""
        if self.trainer is not None and self.trainer.stream is not None:
            return torch.cuda.stream(self.trainer.stream)
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def start(self) -> Trainer:
        """Build the trainer, and load the checkpoint if there is one."""
        self.began = time.perf_counter()
        with self._on_stream():
            self.trainer = trainer = self._make_trainer()
            if (state := self.folder.load_checkpoint()) is not None:
                if state["device"] != self.device.type:
                    # the random number generator of a GPU cannot be resumed on a CPU
                    raise FolderError(
                        f"{self.folder.path} was started on {state['device']}, but this is "
                        f"{self.device.type}. Resume it there, or choose another --out."
                    )
                trainer.load_state_dict(state["trainer"])
                self.began -= state["seconds"]
                self.concurrent = max(self.concurrent, state["concurrent"])
        self.folder.open(self.cell, trainer.epoch)
        return trainer

    def save(self) -> None:
        """Write a checkpoint of the state after all steps that were launched."""
        if self.trainer is None:
            return
        # in the order of its stream: other runs are not waited for
        with self._on_stream():
            state = {
                "device": self.device.type,
                "trainer": self.trainer.state_dict(),
                "seconds": time.perf_counter() - self.began,
                "concurrent": self.concurrent,
            }
            self.folder.save_checkpoint(state)

    def _close_epoch(self, trainer: Trainer) -> Line:
        epoch = trainer.epoch + 1
        line: Line = {"epoch": epoch, "lr": self.recipe.rate(trainer.epoch)}
        line |= trainer.epoch_metrics()
        left = self.recipe.epochs - epoch
        if left < self.recipe.last_epochs or epoch % self.recipe.evaluate_every == 0:
            line["test"] = classify(*trainer.predict(self.test))
            if self.dataset.val is not None and self.recipe.select != "none":
                line["val"] = classify(*trainer.predict(self.dataset.val))
        # after the evaluation: a run stopped during it has a checkpoint of the last step
        trainer.epoch, trainer.step_in_epoch = epoch, 0
        line["seconds"] = round(time.perf_counter() - self.began, 3)
        self.folder.add_epoch(line)
        return line

    def _finish(self, trainer: Trainer) -> None:
        logits, labels = trainer.predict(self.test)
        last, temperature, lines = classify(logits, labels), None, self.folder.read_curve()
        extra: dict[str, Any] = {
            "concurrent": self.concurrent,
            "compiled": self.compile,
            "graph": self.graph,
            "weights": str(self.recipe.weights or "from scratch"),
        }
        if self.dataset.val is not None:
            temperature = fit_temperature(*trainer.predict(self.dataset.val))
            last |= scaled_scores(logits, labels, temperature)
            extra["temperature"] = temperature
        if self.recipe.last_epochs > 1:
            extra["last_epochs"] = [line["test"] for line in lines[-self.recipe.last_epochs :]]
        record = RunRecord(
            cell=self.cell,
            last=last,
            best=_best_epoch(lines, self.recipe.select),
            confusion=count_confusion(logits, labels),
            test_size=len(labels),
            wall_s=round(time.perf_counter() - self.began, 2),
            machine=machine_info(self.device),
            parameters=sum(part.numel() for part in trainer.model.parameters()),
            extra=extra,
        )
        # contiguous, as other formats need it: safetensors does not support channels last
        weights = {name: part.contiguous() for name, part in trainer.model.state_dict().items()}
        samples = SampleResults.of(logits, labels, temperature)
        description = trainer.describe_model()
        self.folder.finish(record, description, weights if self.keep_model else None, samples)
        self.record = record
        self.trainer = None


def _best_epoch(lines: Sequence[Line], select: str) -> dict[str, float] | None:
    """The test metrics of the first epoch with the best validation score; None without any."""
    evaluated = [line for line in lines if "val" in line]
    if not evaluated:
        return None
    best = max(evaluated, key=lambda line: METRICS[select].sign * line["val"][select])
    return {**best["test"], "epoch": best["epoch"], "val_score": best["val"][select]}


def describe_failure(error: BaseException) -> str | None:
    """Why a run has no result: it diverged, ran out of memory, or its folder or data is unusable.

    None if the error is not that of a single run.
    """
    # an error during graph capture is followed by one from the end of the capture
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.cuda.OutOfMemoryError):
            return (
                "The GPU is out of memory. Train fewer runs side by side (--jobs), or use smaller "
                "batches (--set batch_size=...). PyTorch reports: "
                f"{str(cause).splitlines()[0]}"
            )
        cause = cause.__context__
    own = (NonFiniteLossError, FolderError, DataError, FileChangedError)
    return str(error) if isinstance(error, own) else None


def train(
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    watch: Callable[[Run, Line], None] = lambda run, line: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[Run, str]:
    """Train all runs, up to `jobs` of them side by side; returns why a run has no record.

    A finished run is not trained again. If a run diverges, exceeds the GPU memory, or cannot use
    its folder or data, the others continue. On any other error, and when `stop` returns True,
    between two steps or two batches of an evaluation, the current runs are saved; the same runs can
    be trained on.

    watch: called with a run and what `Run.advance` yields, each time it has advanced.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    for run in runs:
        if run.record is not None:
            run.folder.clean_up()
    waiting = [run for run in runs if run.record is None]
    active: dict[Run, Iterator[Line]] = {}
    failures: dict[Run, str] = {}
    advancing: Run | None = None
    try:
        while waiting or active:
            # one run starts per round, so that epochs end at different times and runs evaluate
            # while others train
            if waiting and len(active) < jobs:
                run = waiting.pop(0)
                active[run] = _advance(run, stop, failures)
            for run in [*active]:
                run.concurrent = max(run.concurrent, len(active))
                advancing = run
                line = next(active[run], None)
                advancing = None
                if line is None:
                    del active[run]
                else:
                    watch(run, line)
            if active and all(run.waiting for run in active):
                # nothing to launch: check again shortly
                time.sleep(0.001)
            if stop():
                break
    except Stopped:
        # during an evaluation, which starts again when the run is resumed
        advancing = None
    finally:
        # a run that was interrupted within a step keeps its last checkpoint
        for run in active.keys() - {advancing}:
            try:
                run.save()
            except FolderError as error:
                failures[run] = str(error)
    return failures


def _advance(run: Run, stop: Callable[[], bool], failures: dict[Run, str]) -> Iterator[Line]:
    """`Run.advance`, which ends with an entry in `failures` if the run fails."""
    try:
        yield from run.advance(stop)
    except Exception as error:
        failure = describe_failure(error)
        if failure is None:
            error.add_note(f"{run.method.label} seed {run.seed}")
            raise
        failures[run] = failure
    if run in failures:
        # outside the except block, nothing references the error, and through it the model
        run.trainer = None
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
