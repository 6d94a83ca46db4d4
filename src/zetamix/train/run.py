"""A training run from its first step to its record, handing control back every few steps."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zetamix.data.dataset import Dataset
from zetamix.methods import Method
from zetamix.metrics import METRICS, classify, confusion
from zetamix.models import count_parameters
from zetamix.provenance import describe_machine
from zetamix.records import Cell, RunRecord
from zetamix.train.cuda_graph import CapturedStep
from zetamix.train.distributed import Ranks
from zetamix.train.recipe import Recipe
from zetamix.train.run_folder import FolderError, RunFolder
from zetamix.train.step_timer import CHUNK_STEPS, StepClock
from zetamix.train.trained import WEIGHTS, write_form
from zetamix.train.trainer import Trainer

# a checkpoint costs about half a second for a ResNet-18; once a minute that is nothing
SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class Progress:
    """Where a run is, for whoever watches."""

    run: "Run"
    epoch: int
    """Epochs done, with the part of the current one."""
    step: int
    steps: int
    line: dict[str, Any] | None = None
    """The metrics of an epoch that has just ended."""


class Run:
    """One cell, its folder and, once it is started, its trainer."""

    def __init__(
        self,
        dataset: Dataset,
        method: Method,
        recipe: Recipe,
        *,
        seed: int,
        out: Path,
        resume: bool = True,
        device: torch.device | str = "cpu",
        compile: bool = False,
        graph: bool | None = None,
        ranks: Ranks | None = None,
        save_every: float = SAVE_SECONDS,
    ) -> None:
        if dataset.test is None:
            raise ValueError(f"{dataset.name} has no test split to report on.")
        self.dataset, self.method, self.recipe, self.seed = dataset, method, recipe, seed
        self.device, self.compile = torch.device(device), compile
        self.save_every = save_every
        self.ranks = Ranks() if ranks is None else ranks
        recipe.check_sources(method, len(dataset.train), self.ranks.world)
        self.graph = self._can_capture() if graph is None else graph
        if self.graph and not self._can_capture():
            raise ValueError(
                "A captured step needs a GPU, one process and batches of one size "
                "(last_batch=drop). Leave graph=None to have it wherever it can be."
            )
        self.cell = Cell(
            dataset=dataset.name,
            fingerprint=dataset.fingerprint,
            method=method.label,
            seed=seed,
            recipe=recipe.as_dict(),
            train_size=len(dataset.train),
        )
        self.folder = RunFolder(out, self.cell, resume=resume)
        self.record = self.folder.record
        self.trainer: Trainer | None = None
        self.settled = True
        """Whether the trainer stands between two steps, where it can be saved."""
        self.best: dict[str, float] | None = None
        self.seconds = 0.0
        self.clock = StepClock(self.device)
        self.beside = 1
        """How many runs were trained side by side, this one among them."""

    def _can_capture(self) -> bool:
        one_shape = (
            self.recipe.last_batch == "drop"
            or len(self.dataset.train) % self.recipe.batch_size == 0
        )
        return self.device.type == "cuda" and self.ranks.world == 1 and one_shape

    @property
    def name(self) -> str:
        return f"{self.method.label} seed {self.seed}"

    @property
    def standing(self) -> str:
        """How far it is, in words."""
        # one that was stopped before its record was written is still in its last epoch
        done = 0 if self.trainer is None else self.trainer.epoch
        return f"in epoch {min(done + 1, self.recipe.epochs)} of {self.recipe.epochs}"

    def advance(self) -> Iterator[Progress]:
        """Train to the end, handing control back after every few steps.

        Stop asking, and `save` keeps everything up to here.
        """
        trainer = self.start()
        began = saved = time.perf_counter()
        before = self.seconds
        steps = trainer.steps_per_epoch
        take_step = None
        while trainer.epoch < self.recipe.epochs:
            with self._on_stream(take_step):
                trainer.start_epoch()
            if take_step is None and trainer.step_in_epoch < steps:
                take_step = CapturedStep(trainer) if self.graph else trainer.step
            for _ in self._epoch(trainer, take_step):
                self.seconds = before + time.perf_counter() - began
                yield Progress(self, trainer.epoch, trainer.step_in_epoch, steps)
            with self._on_stream(take_step):
                line = self._close_epoch(trainer)
                self.seconds = before + time.perf_counter() - began
                if time.perf_counter() - saved > self.save_every:
                    # its own steps have ended, and those of other runs need not
                    self._write_checkpoint()
                    saved = time.perf_counter()
            yield Progress(self, trainer.epoch, 0, steps, line=line)
        with self._on_stream(take_step):
            self._finish(trainer)

    def _epoch(self, trainer: Trainer, take_step: Callable[[], None] | None) -> Iterator[None]:
        """The rest of an epoch, in chunks.

        A run that was stopped after the last step of an epoch has nothing left of it to take.
        """
        self.clock.start()
        while take_step is not None and trainer.step_in_epoch < trainer.steps_per_epoch:
            left = trainer.steps_per_epoch - trainer.step_in_epoch
            chunk = min(CHUNK_STEPS if self.graph else 1, left)
            with self._on_stream(take_step), self.clock.chunk(chunk):
                for _ in range(chunk):
                    take_step()
            yield
        # the host has other runs to feed meanwhile; but processes of one run go on together
        while self.clock.turns > 1 and self.ranks.world == 1 and not self.clock.is_done():
            time.sleep(0.001)
            yield
        self.clock.finish()

    def _on_stream(self, take_step: Any) -> Any:
        if isinstance(take_step, CapturedStep):
            return torch.cuda.stream(take_step.stream)
        return nullcontext()

    def start(self) -> Trainer:
        """Build the trainer, and take up the checkpoint where there is one."""
        trainer = Trainer(
            self.dataset,
            self.method,
            self.recipe,
            seed=self.seed,
            device=self.device,
            compile=self.compile,
            ranks=self.ranks,
        )
        self.trainer = trainer
        state = self.ranks.share(self.folder.load("checkpoint.pt") if self.ranks.leads else None)
        if state is not None:
            self._check_place(state)
            trainer.load_state_dict(state["trainer"])
            self.best = state["best"]
            self.seconds = state["seconds"]
            self.clock.seconds, self.clock.steps = state["step_seconds"], state["steps_timed"]
            self.beside = max(self.beside, state.get("beside", 1))
        if self.ranks.leads:
            self.folder.open()
            self.folder.rewind(trainer.epoch)
        return trainer

    def _check_place(self, state: dict[str, Any]) -> None:
        """Random numbers of a GPU do not go on on a CPU, nor those of two processes on three."""
        there, here = state["place"], self._place()
        if there != here:
            raise FolderError(
                f"{self.folder.path} was begun on {there}, and this is {here}. Go on there, or "
                "choose another --out."
            )

    def _place(self) -> str:
        processes = "one process" if self.ranks.world == 1 else f"{self.ranks.world} processes"
        return f"{self.device.type} by {processes}"

    def collect(self) -> None:
        """Before a save in the middle of an epoch; every rank has to."""
        if self.trainer is not None:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.trainer.collect()

    def share(self, runs: int) -> None:
        """So many runs take turns on the device from now on, this one among them."""
        self.clock.turns = runs
        self.beside = max(self.beside, runs)

    def save(self) -> None:
        """Keep everything up to here; the run can go on from it."""
        if self.device.type == "cuda":
            # steps that were launched on a stream of their own are part of what is kept
            torch.cuda.synchronize(self.device)
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        if self.trainer is None or not self.ranks.leads:
            return
        self.folder.save(
            "checkpoint.pt",
            {
                "place": self._place(),
                "trainer": self.trainer.state_dict(),
                "best": self.best,
                "seconds": self.seconds,
                "step_seconds": self.clock.seconds,
                "steps_timed": self.clock.steps,
                "beside": self.beside,
            },
        )

    def _close_epoch(self, trainer: Trainer) -> dict[str, Any]:
        rate = self.recipe.rate(trainer.epoch)
        line: dict[str, Any] = {"epoch": trainer.epoch + 1, "lr": rate}
        line |= trainer.finish_epoch()
        last = trainer.epoch == self.recipe.epochs
        if last or trainer.epoch % self.recipe.evaluate_every == 0:
            line |= self._evaluate(trainer)
        line["seconds"] = round(self.seconds, 3)
        if self.ranks.leads:
            self.folder.add_epoch(line)
        return line

    def _evaluate(self, trainer: Trainer) -> dict[str, Any]:
        scores: dict[str, Any] = {"test": classify(*self._predict(trainer, "test"))}
        if self.dataset.val is not None:
            scores["val"] = classify(*self._predict(trainer, "val"))
            self._keep_best(trainer, scores)
        return scores

    def _predict(self, trainer: Trainer, split: str) -> tuple[Tensor, Tensor]:
        return trainer.predict(self.dataset.splits[split])

    def _keep_best(self, trainer: Trainer, scores: dict[str, Any]) -> None:
        name = self.recipe.select
        sign = 1 if METRICS[name].higher_is_better else -1
        score = scores["val"][name]
        if self.best is None or sign * score > sign * self.best["val_score"]:
            self.best = {**scores["test"], "epoch": trainer.epoch, "val_score": score}

    def _finish(self, trainer: Trainer) -> None:
        test = self.dataset.splits["test"]
        logits, labels = self._predict(trainer, "test")
        record = RunRecord(
            cell=self.cell,
            last=classify(logits, labels),
            best=self.best,
            confusion=confusion(logits, labels).tolist(),
            test_size=len(test),
            wall_s=round(self.seconds, 2),
            step_ms=round(1000 * self.clock.seconds / max(1, self.clock.steps), 4),
            machine=describe_machine(self.device),
            parameters=count_parameters(trainer.model),
            extra={
                "concurrent": self.beside,
                "compiled": self.compile,
                "graph": self.graph,
                "processes": self.ranks.world,
            },
        )
        if self.ranks.leads:
            write_form(self.folder.path, trainer)
            self.folder.save(WEIGHTS, trainer.model.state_dict())
            self.folder.finish(record)
        self.ranks.wait()
        self.record = record
        self.trainer = None
