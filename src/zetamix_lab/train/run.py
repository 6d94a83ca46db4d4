"""One run, from its first step to its record."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import torch

from zetamix.methods import Method
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.metrics import METRICS, classify, count_confusion, fit_temperature, scaled_scores
from zetamix_lab.provenance import machine_info
from zetamix_lab.records import Cell, RunRecord, SampleResults
from zetamix_lab.train.cuda_graph import CapturedStep, can_capture
from zetamix_lab.train.recipe import Recipe
from zetamix_lab.train.run_folder import FolderError, RunFolder
from zetamix_lab.train.trainer import Trainer

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
    graph: whether to capture the step as a CUDA graph where that is possible.
    save_every: seconds between checkpoints, which are written at the end of an epoch.
    chunk_steps: captured steps that are launched before control is yielded.
    keep_model: whether the weights of the finished run are written; a ResNet-18 takes 45 MB.
    data_memory: bytes of the device that a split may occupy (`Loader`).
    new_bn: whether the record's `extra` has the test metrics after batch-norm statistics were
        recomputed on unmixed data, as "new_bn" (`Trainer.predict_with_new_statistics`).

    Several runs may be advanced in turn by one thread (`zetamix_lab.train.concurrent_runs`).
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
        graph: bool = True,
        save_every: float = SAVE_SECONDS,
        chunk_steps: int = CHUNK_STEPS,
        data_memory: int | None = None,
        new_bn: bool = False,
        keep_model: bool = True,
    ) -> None:
        if dataset.test is None:
            raise ValueError(f"{dataset.name} has no test split to report on.")
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seed must be from 0 to {MAX_SEED}, got {seed}.")
        self.dataset, self.method, self.recipe, self.seed = dataset, method, recipe, seed
        self.device, self.compile = torch.device(device), compile
        self.save_every, self.data_memory = save_every, data_memory
        self.new_bn, self.keep_model = new_bn, keep_model
        recipe.check_sources(method, len(dataset.train))
        self.graph = graph and can_capture(self.device, recipe, len(dataset.train))
        self.chunk_steps = chunk_steps if self.graph else 1
        self.cell = make_cell(dataset, method, recipe, seed)
        self.folder = RunFolder(out, self.cell)
        self.record = self.folder.read_record()
        self.trainer: Trainer | None = None
        self.best: dict[str, float] | None = None
        self.began = 0.0
        """When it was started, by `time.perf_counter`, less the seconds of earlier sessions."""
        self.timer = StepTimer(self.device)
        self.concurrent = 1
        """The largest number of runs that were trained on the device at once, this one included."""
        self.waiting = False
        """Whether all steps of an epoch are launched but not yet completed by the device."""

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
        saved, take_step = time.perf_counter(), None
        try:
            while trainer.epoch < self.recipe.epochs:
                mixing = trainer.mixing
                with self._on_stream(take_step):
                    trainer.start_epoch()
                    if trainer.mixing != mixing:
                        take_step = None
                    if take_step is None and trainer.step_in_epoch < trainer.steps_per_epoch:
                        take_step = CapturedStep(trainer) if self.graph else trainer.step
                yield from self._epoch(trainer, take_step)
                with self._on_stream(take_step):
                    line = self._close_epoch(trainer)
                    if time.perf_counter() - saved > self.save_every:
                        # waits for the steps of this run only, not for those of other runs
                        self.save(synchronize=False)
                        saved = time.perf_counter()
                yield line
        finally:
            # pending steps would write into memory that the next model uses
            self.timer.finish()
        with self._on_stream(take_step):
            self._finish(trainer)

    def _epoch(self, trainer: Trainer, take_step: Callable[[], None] | None) -> Iterator[Line]:
        """Launch the remaining steps of an epoch in chunks, and wait until they are completed.

        Nothing remains for a run that was stopped after the last step of an epoch.
        """
        # an epoch of one chunk is timed nevertheless
        self.timer.warm = trainer.steps_per_epoch <= self.chunk_steps
        while take_step is not None and trainer.step_in_epoch < trainer.steps_per_epoch:
            chunk = min(self.chunk_steps, trainer.steps_per_epoch - trainer.step_in_epoch)
            with self._on_stream(take_step), self.timer.chunk(chunk):
                for _ in range(chunk):
                    take_step()
            yield {}
        # the host can launch steps of other runs in the meantime
        while self.timer.sharing > 1 and not self.timer.is_done():
            self.waiting = True
            yield {}
        self.waiting = False
        self.timer.finish()

    def _on_stream(self, take_step: Any) -> AbstractContextManager[Any]:
        """Make the GPU of this run, and the stream of its captured step, the current ones."""
        if isinstance(take_step, CapturedStep):
            return torch.cuda.stream(take_step.stream)
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def start(self) -> Trainer:
        """Build the trainer, and load the checkpoint if there is one."""
        self.began = time.perf_counter()
        with self._on_stream(None):
            self.trainer = trainer = Trainer(
                self.dataset,
                self.method,
                self.recipe,
                seed=self.seed,
                device=self.device,
                compile=self.compile,
                data_memory=self.data_memory,
            )
            if (state := self.folder.load_checkpoint()) is not None:
                if state["device"] != self.device.type:
                    # the random number generator of a GPU cannot be resumed on a CPU
                    raise FolderError(
                        f"{self.folder.path} was started on {state['device']}, but this is "
                        f"{self.device.type}. Resume it there, or choose another --out."
                    )
                trainer.load_state_dict(state["trainer"])
                self.best = state["best"]
                self.began -= state["seconds"]
                self.timer.seconds, self.timer.steps = state["step_seconds"], state["steps_timed"]
                self.concurrent = max(self.concurrent, state["concurrent"])
        self.folder.open(self.cell, trainer.epoch)
        return trainer

    def share_device(self, runs: int) -> None:
        """Set the number of runs that share the device, including this one."""
        self.timer.sharing = runs
        self.concurrent = max(self.concurrent, runs)

    def save(self, *, synchronize: bool = True) -> None:
        """Write a checkpoint.

        synchronize: whether to wait for steps on other streams than the current one.
        """
        if synchronize and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.trainer is not None:
            state = {
                "device": self.device.type,
                "trainer": self.trainer.state_dict(),
                "best": self.best,
                "seconds": time.perf_counter() - self.began,
                "step_seconds": self.timer.seconds,
                "steps_timed": self.timer.steps,
                "concurrent": self.concurrent,
            }
            self.folder.save_checkpoint(state)

    def _close_epoch(self, trainer: Trainer) -> Line:
        epoch = trainer.epoch + 1
        line: Line = {"epoch": epoch, "lr": self.recipe.rate(trainer.epoch)}
        line |= trainer.epoch_metrics()
        left = self.recipe.epochs - epoch
        if left < self.recipe.last_epochs or epoch % self.recipe.evaluate_every == 0:
            line |= self._evaluate(trainer, epoch)
        # after the evaluation: a run stopped during it has a checkpoint of the last step
        trainer.finish_epoch()
        line["seconds"] = round(time.perf_counter() - self.began, 3)
        self.folder.add_epoch(line)
        return line

    def _evaluate(self, trainer: Trainer, epoch: int) -> dict[str, Any]:
        scores = {"test": classify(*trainer.predict(self.dataset.splits["test"]))}
        if self.dataset.val is not None and self.recipe.select != "none":
            scores["val"] = classify(*trainer.predict(self.dataset.val))
            metric = METRICS[self.recipe.select]
            score = scores["val"][metric.name]
            if self.best is None or metric.sign * (score - self.best["val_score"]) > 0:
                self.best = {**scores["test"], "epoch": epoch, "val_score": score}
        return scores

    def _finish(self, trainer: Trainer) -> None:
        test, temperature = self.dataset.splits["test"], None
        logits, labels = trainer.predict(test)
        last = classify(logits, labels)
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
            lines = self.folder.read_curve()[-self.recipe.last_epochs :]
            extra["last_epochs"] = [line["test"] for line in lines]
        if self.new_bn:
            renewed = trainer.predict_with_new_statistics(test)
            extra |= {} if renewed is None else {"new_bn": classify(*renewed)}
        record = RunRecord(
            cell=self.cell,
            last=last,
            best=self.best,
            confusion=count_confusion(logits, labels),
            test_size=len(labels),
            wall_s=round(time.perf_counter() - self.began, 2),
            step_ms=round(1000 * self.timer.seconds / max(1, self.timer.steps), 4),
            machine=machine_info(self.device),
            parameters=sum(part.numel() for part in trainer.model.parameters()),
            extra=extra,
        )
        # contiguous, as other formats need it: safetensors does not support channels last
        weights = {name: part.contiguous() for name, part in trainer.model.state_dict().items()}
        kept = weights if self.keep_model else None
        samples = SampleResults.of(logits, labels, temperature)
        self.folder.finish(record, trainer.describe_model(), kept, samples)
        self.record = record
        self.trainer = None


class StepTimer:
    """Counts training steps and their seconds, without evaluation, saving or idle time.

    On a GPU, CUDA events around each chunk of steps are read later, so the host need not wait for
    the current chunk.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.steps = 0
        self.seconds = 0.0
        self.sharing = 1
        """Runs that share the device; each counts an equal part of its time."""
        self.warm = False
        """Whether the next chunk is timed; the first of an epoch includes draws or a capture."""
        # timed steps, and the events around them
        self._in_flight: deque[tuple[int, Any, Any]] = deque()

    @contextmanager
    def chunk(self, steps: int) -> Iterator[None]:
        """Time the launch of some steps, on their stream."""
        timed = steps if self.warm else 0
        self.warm = True
        if self.device.type == "cuda":
            began = self._event()
            yield
            self._in_flight.append((timed, began, self._event()))
            if len(self._in_flight) > CHUNKS_AHEAD:
                self._wait()
        else:
            host = time.perf_counter()
            yield
            self._add(timed, time.perf_counter() - host)

    def is_done(self) -> bool:
        """Whether all launched steps are done."""
        return not self._in_flight or bool(self._in_flight[-1][-1].query())

    def finish(self) -> None:
        """Wait until all launched steps are done."""
        while self._in_flight:
            self._wait()

    def _wait(self) -> None:
        timed, begin, end = self._in_flight.popleft()
        end.synchronize()
        self._add(timed, begin.elapsed_time(end) / 1000 / self.sharing)

    def _add(self, timed: int, seconds: float) -> None:
        self.steps += timed
        self.seconds += seconds if timed else 0.0

    def _event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event
