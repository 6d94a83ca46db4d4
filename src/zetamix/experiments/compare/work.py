"""What a worker does: train the cells it is given, say how far they are, hand back what it made."""

import shutil
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from zetamix.data import DataError, Dataset, DatasetRef, check_fingerprint, load_cached
from zetamix.experiments.compare.grid import Place
from zetamix.experiments.workers import Board, Contact
from zetamix.methods import parse
from zetamix.train import Progress, Recipe, Run, train
from zetamix.train.run_folder import RunFolder, hold

# a process that was left behind by a killed one saves and ends within this time
PATIENCE = 60.0


@dataclass(frozen=True)
class Job:
    """Cells for one worker to train, up to `concurrent` of them side by side."""

    places: tuple[Place, ...]
    recipe: Recipe
    home: Path
    """The folder of the comparison, on the machine that asked for it."""
    token: str
    """What the file `.here` holds in that folder."""
    device: str | None = None
    """None: a GPU where the worker has one."""
    concurrent: int = 1
    compile: bool = False


@dataclass
class Outcome:
    """What became of a job; cells that are in neither were stopped on the way."""

    failures: dict[str, str] = field(default_factory=dict)
    """By key of the cell, what went wrong."""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By key, what the folder of a finished run holds, where it was not trained at home."""


def train_cells(job: Job, shared: DatasetRef | Dataset, board: Board) -> Outcome:
    """Train what is not finished yet; a run goes on from its checkpoint where it has one."""
    outcome = Outcome()
    try:
        first = job.places[0].cell
        dataset = load_cached(shared) if isinstance(shared, DatasetRef) else shared
        check_fingerprint(dataset, first.fingerprint)
    except DataError as error:
        outcome.failures = {place.key: str(error) for place in job.places}
        return outcome
    base = job.home if _is_home(job) else Path(tempfile.gettempdir()) / f"zetamix-{job.token}"
    device = torch.device(job.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        # streams and graphs are made on the current GPU
        torch.cuda.set_device(device)
    # which convolution is fastest is tried out once per shape; shapes never change here
    torch.backends.cudnn.benchmark = device.type == "cuda"
    folders = [base / place.folder for place in job.places]
    with hold(folders, wait=PATIENCE), warnings.catch_warnings():
        # told once by whoever asks for the comparison
        warnings.simplefilter("ignore", UserWarning)
        runs = {
            Run(
                dataset,
                parse(place.method),
                job.recipe,
                seed=place.seed,
                out=base / place.folder,
                device=device,
                compile=job.compile,
            ): place
            for place in job.places
        }
        _train(runs, job.concurrent, board, outcome)
    if base != job.home:
        _pack(base, job.places, outcome)
    return outcome


def _train(runs: dict[Run, Place], concurrent: int, board: Board, outcome: Outcome) -> None:
    """All runs; one that fails is left out, and the others go on."""
    contact = Contact(board)
    watch = _Watch(contact, {run: place.key for run, place in runs.items()})
    result = train(list(runs), jobs=concurrent, watch=watch, stop=contact.stopped)
    watch.tell_last()
    for run, failure in result.failures.items():
        outcome.failures[runs[run].key] = failure.message


class _Watch:
    """Tells a board how many epochs of each run are done, and how good it is so far."""

    def __init__(self, contact: Contact, keys: dict[Run, str]) -> None:
        self.contact, self.keys = contact, keys
        self.scores: dict[Run, dict[str, float]] = {}
        self.began: dict[Run, float] = {}
        self.words: dict[Run, dict[str, Any]] = {}

    def __call__(self, progress: Progress) -> None:
        run, line = progress.run, progress.line
        if line is not None and "test" in line:
            self.scores[run] = line["test"]
        epochs = progress.epoch + progress.step / progress.steps
        self.words[run] = {
            "epochs": epochs,
            "began": self.began.setdefault(run, epochs),
            "scores": self.scores.get(run),
        }
        self.contact.tell(self.keys[run], self.words[run])

    def tell_last(self) -> None:
        """How far all are in the end, however new the last word is."""
        for run, word in self.words.items():
            self.contact.tell(self.keys[run], word, now=True)


def _is_home(job: Job) -> bool:
    """Whether this machine sees the folder of the comparison, and not one of the same name."""
    try:
        return (job.home / ".here").read_text() == job.token
    except OSError:
        return False


def _pack(base: Path, places: Sequence[Place], outcome: Outcome) -> None:
    """Take finished runs along, and leave nothing of them here."""
    for place in places:
        folder = RunFolder(base / place.folder)
        if folder.read_record() is not None:
            outcome.files[place.key] = folder.pack()
            shutil.rmtree(folder.path)
