"""One session of `python -m paper`: run the cells without a record, and store the records."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby

import torch

from paper.artifacts import MEASURES
from paper.cells import MeasurementCell, PaperCell, PaperError, TrainingCell
from paper.context import Context
from paper.datasets import load, with_reported_split
from paper.records import Measurement, RecordStore
from zetamix.methods import parse
from zetamix_lab.data import Dataset, DatasetNotFoundError
from zetamix_lab.data.load_dataset import DataDir
from zetamix_lab.progress import Progress
from zetamix_lab.provenance import machine_info
from zetamix_lab.records import Cell, RunRecord
from zetamix_lab.runs.progress import run_name
from zetamix_lab.runs.run_cells import run_cells
from zetamix_lab.train.run import make_cell
from zetamix_lab.train.stop import Stop, Stopped

CPU = torch.device("cpu")


@dataclass
class Outcome:
    """The outcome of the cells of one artifact."""

    ran: int = 0
    had_record: int = 0
    empty: list[PaperCell] = field(default_factory=list)
    """Cells that still have no record."""
    reasons: list[str] = field(default_factory=list)
    """Why they have none, as sentences, unless the session was stopped."""


@dataclass
class Session:
    """Runs cells on one device and adds their records to a store.

    Runs are kept in the folder `runs` of the store; a later session resumes unfinished ones.
    """

    store: RecordStore
    data_dir: DataDir = None
    device: torch.device = CPU
    jobs: int | None = None
    """Number of parallel runs, as in `run_cells`."""
    stop: Stop = field(default_factory=Stop)
    log: Callable[[str], None] = lambda text: None
    """Called with the name of each measurement."""
    display: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    """Makes the `watch` of `run_cells`."""
    load_dataset: Callable[[str, DataDir], Dataset] = load

    def __post_init__(self) -> None:
        self.runs = self.store.folder / "runs"
        self.machine = machine_info(self.device)
        self.context = Context(self.store, self.device, self.runs)

    def run(self, artifact: str, cells: Sequence[PaperCell]) -> Outcome:
        """Run the cells without a record in their order, until stopped.

        Consecutive cells of the same dataset form a group, whose training runs are parallel.
        """
        outcome = Outcome()
        for _, group in groupby(cells, lambda cell: (cell.dataset, getattr(cell, "subset", None))):
            self._run_group(artifact, list(group), outcome)
        return outcome

    def _run_group(self, artifact: str, cells: list[PaperCell], outcome: Outcome) -> None:
        name = cells[0].dataset
        empty = [cell for cell in cells if self.store.find(cell) is None]
        other = [c for c in empty if getattr(c, "device", None) not in (None, self.device.type)]
        if other:
            devices = " or ".join(sorted({getattr(cell, "device", "") for cell in other}))
            of = f" of {name}" if name else ""
            outcome.reasons.append(f"{len(other)} of the cells{of} need --device {devices}.")
        runnable = [cell for cell in empty if cell not in other]
        if runnable and not self.stop():
            try:
                dataset = self._load(cells) if name else None
                for cell in runnable:
                    if isinstance(cell, MeasurementCell) and not self.stop():
                        self._measure(artifact, cell, dataset)
                trainings = [cell for cell in runnable if isinstance(cell, TrainingCell)]
                if trainings and dataset is not None:
                    self._train(artifact, trainings, dataset, outcome)
            except DatasetNotFoundError as error:
                outcome.reasons.append(str(error))
        left = [cell for cell in empty if self.store.find(cell) is None]
        outcome.empty += left
        outcome.ran += len(empty) - len(left)
        outcome.had_record += len(cells) - len(empty)

    def _load(self, cells: list[PaperCell]) -> Dataset:
        name, subset = cells[0].dataset, getattr(cells[0], "subset", None)
        self.log(f"loading {name}")
        dataset = self.load_dataset(name, self.data_dir)
        if all(isinstance(cell, TrainingCell) for cell in cells):
            dataset = with_reported_split(dataset)
        dataset = dataset if subset is None else subset.apply(dataset)
        others = {
            record.cell.fingerprint if isinstance(record, RunRecord) else record.fingerprint
            for cell in cells
            if (record := self.store.find(cell)) is not None
        }
        if others - {dataset.fingerprint}:
            # results of different data must not be averaged
            raise PaperError(
                f"{self.store.folder} has records of {name} with fingerprint "
                f"{', '.join(others)}, but the data here has {dataset.fingerprint}. Choose "
                "another --out, or remove those records."
            )
        return dataset

    def _measure(self, artifact: str, cell: MeasurementCell, dataset: Dataset | None) -> None:
        self.log(cell.name)
        self.context.data = dataset
        began = time.perf_counter()
        try:
            with self.stop.at_once():
                measured = MEASURES[cell.kind](cell, self.context)
        except Stopped:
            self.log(f"Not saved, will start again: {cell.name}")
            return
        record = Measurement(
            **vars(cell),
            fingerprint="" if dataset is None else dataset.fingerprint,
            values=measured.values,
            wall_s=round(time.perf_counter() - began, 3),
            machine=self.machine,
        )
        self.store.add(artifact, record, measured.arrays)

    def _train(
        self, artifact: str, cells: list[TrainingCell], dataset: Dataset, outcome: Outcome
    ) -> None:
        def store(record: RunRecord) -> None:
            if record.key not in self.store.records:
                extra = {**record.extra, "notes": list(dataset.notes), **cells[0].extra}
                self.store.add(artifact, dataclasses.replace(record, extra=extra))

        made = [make_cell(dataset, parse(cell.method), cell.recipe, cell.seed) for cell in cells]
        with self.display() as watch:
            results = run_cells(
                made,
                dataset,
                out=self.runs,
                jobs=self.jobs,
                device=str(self.device),
                keep_model=False,
                watch=watch,
                name_of=_run_name,
                # at once, in case the session is killed
                finished=store,
                stop=self.stop,
            )
        for record in results.records.values():
            store(record)
        for cell in made:
            if cell.key in results.failures:
                failure = results.failures[cell.key]
                outcome.reasons.append(f"{dataset.name}, {run_name(cell)} failed: {failure}")


def _run_name(cell: Cell) -> str:
    augmentation = cell.recipe["augmentation"].replace("none", "")
    parts = (cell.dataset, cell.recipe["model"], augmentation, run_name(cell))
    return " ".join(filter(None, parts))
