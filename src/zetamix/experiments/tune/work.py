"""What a worker does: train the models it is given side by side, tell how far they are."""

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from filelock import FileLock, Timeout

from zetamix.data import Dataset, DatasetRef
from zetamix.experiments.boards import EVERY
from zetamix.experiments.tune.question import dataset_of
from zetamix.experiments.workers import Board, Contact
from zetamix.methods import parse
from zetamix.records import RunRecord
from zetamix.train import Progress, Recipe, Run
from zetamix.train.trainer import NonFiniteLossError

How: TypeAlias = Literal["complete", "diverged", "prune", "lost", "stopped"]


@dataclass(frozen=True)
class Task:
    """One model to train."""

    name: str
    """On the board, where it is also told to end."""
    method: str
    recipe: Recipe
    seed: int
    folder: str
    """Inside the folder of the study."""
    keep_model: bool = False


@dataclass(frozen=True)
class Job:
    """Models for one worker to train side by side, and what they are trained on."""

    tasks: tuple[Task, ...]
    metric: str
    judge: str
    held_out: bool
    fingerprint: str
    home: Path
    """The folder of the study, on the machine that asked."""
    token: str
    """What the file `.here` holds in that folder."""
    device: str | None = None
    """None: a GPU where the worker has one."""
    compile: bool = False
    save_every: float = 60.0


@dataclass(frozen=True)
class Ended:
    """What became of a task."""

    how: How
    record: RunRecord | None = None
    curve: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class _Active:
    """A task under way."""

    run: Run
    steps: Iterator[Progress]
    between_steps: bool = True


def train_tasks(job: Job, shared: DatasetRef | Dataset, board: Board) -> dict[str, Ended]:
    """Train what is not finished yet, from its checkpoint where it has one."""
    dataset = dataset_of(shared, job.judge, job.held_out, job.fingerprint)
    base = job.home if _is_home(job) else Path(tempfile.gettempdir()) / f"zetamix-{job.token}"
    contact = Contact(board)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # a γ below the threshold is what a search is there to try
        warnings.simplefilter("ignore", UserWarning)
        for task in job.tasks:
            if not stack.enter_context(_hold(base / task.folder, contact)):
                return {task.name: Ended("stopped") for task in job.tasks}
        device = stack.enter_context(_device(job.device, base))
        runs = {
            task: Run(
                dataset,
                parse(task.method),
                task.recipe,
                seed=task.seed,
                out=base / task.folder,
                device=device,
                compile=job.compile,
                save_every=job.save_every,
            )
            for task in job.tasks
        }
        return _Team(job, runs, contact).train()


class _Team:
    """Models that take turns on one device."""

    def __init__(self, job: Job, runs: dict[Task, Run], contact: Contact) -> None:
        self.job, self.contact = job, contact
        self.ended: dict[str, Ended] = {}
        self.active: dict[Task, _Active] = {}
        self.epochs: dict[str, float] = {}
        self._looked = 0.0
        self._rounds = 0
        for task, run in runs.items():
            if run.record is not None:
                # it was killed between its last epoch and being told of
                self._end(task, run, "complete")
            else:
                self.active[task] = _Active(run, run.advance())
                self.epochs[task.name] = 0.0
                contact.tell(task.name, {"epochs": 0.0, "curve": []}, now=True)

    def train(self) -> dict[str, Ended]:
        try:
            while self.active:
                self._round()
                self._look()
        finally:
            # on an error of one, the others go on from here another time
            for active in self.active.values():
                if active.between_steps:
                    active.run.save()
        return self.ended

    def _round(self) -> None:
        """Take every model a few steps further; as in `train`, one joins in each round."""
        self._rounds += 1
        joined = list(self.active.items())[: self._rounds]
        for _, active in joined:
            active.run.share_device(len(joined))
        words = {task: self._advance(task, active) for task, active in joined}
        for task, word in words.items():
            if word is None:
                del self.active[task]
            else:
                self._tell(task, word)

    def _advance(self, task: Task, active: _Active) -> Progress | None:
        # a run that is broken off within a step keeps the checkpoint it has
        active.between_steps = False
        try:
            word = next(active.steps, None)
        except NonFiniteLossError:
            self._end(task, active.run, "diverged")
            return None
        active.between_steps = True
        if word is None:
            self._end(task, active.run, "complete")
        return word

    def _tell(self, task: Task, word: Progress) -> None:
        curve = _curve(word.run.folder.curve, self.job.metric)
        self.epochs[task.name] = done = word.epoch + word.step / word.steps
        message: dict[str, Any] = {"epochs": done, "curve": list(curve.items())}
        evaluated = word.line is not None and "test" in word.line
        self.contact.tell(task.name, message, now=evaluated)

    def _look(self) -> None:
        """Whether anybody wants a model, or all of them, to end."""
        if time.monotonic() - self._looked < EVERY:
            return
        self._looked = time.monotonic()
        stopped = self.contact.stopped()
        for task, active in list(self.active.items()):
            word = None if stopped else self.contact.board.get(f"end-{task.name}")
            if stopped:
                active.run.save()
                self._end(task, active.run, "stopped")
            elif word is not None:
                # steps under way would write into memory that the next model is given
                active.run.timer.finish()
                self._end(task, active.run, word["how"])
            else:
                continue
            del self.active[task]

    def _end(self, task: Task, run: Run, how: How) -> None:
        curve = _curve(run.folder.read_curve(), self.job.metric)
        record = run.record if how == "complete" else None
        seconds = run.seconds if record is None else record.wall_s
        self.ended[task.name] = Ended(how, record, curve, seconds)
        epochs = self.epochs.get(task.name, 0.0) if record is None else task.recipe.epochs
        word = {"epochs": epochs, "curve": list(curve.items()), "ended": how}
        self.contact.tell(task.name, word, now=True)
        run.trainer = None
        if how != "stopped" and not task.keep_model:
            # 45 MB for a ResNet-18, 9 GB for a sweep of 200; a setting is what is looked for
            run.folder.remove_model()


@contextmanager
def _hold(folder: Path, contact: Contact) -> Iterator[bool]:
    """Keep a folder to this process; False where asked to stop while another one has it.

    Another one may be left behind by a killed command, which it notices within a second, or be
    that of a command which trains the same: then its result is found here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    while not contact.stopped():
        try:
            lock.acquire(timeout=EVERY)
        except Timeout:
            continue
        try:
            yield True
        finally:
            lock.release()
        return
    yield False


@contextmanager
def _device(name: str | None, base: Path) -> Iterator[torch.device]:
    """The device that was asked for, or a GPU that no other process of ours has taken."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    # which convolution is fastest is tried out once per shape; shapes never change here
    torch.backends.cudnn.benchmark = name.startswith("cuda")
    if name != "cuda" or torch.cuda.device_count() < 2:
        yield torch.device(name)
        return
    while True:
        for index in range(torch.cuda.device_count()):
            lock = FileLock(base / f".cuda-{index}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                yield torch.device("cuda", index)
            finally:
                lock.release()
            return
        time.sleep(EVERY)


def _curve(lines: list[dict[str, Any]], metric: str) -> dict[int, float]:
    return {line["epoch"]: line["test"][metric] for line in lines if "test" in line}


def _is_home(job: Job) -> bool:
    """Whether this machine sees the folder of the study, and not one of the same name."""
    try:
        return (job.home / ".here").read_text() == job.token
    except OSError:
        return False
