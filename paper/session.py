"""One session of `python -m paper`: run the cells without a record, and store the records."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from paper.artifacts import MEASURES
from paper.context import Context
from paper.datasets import load, with_reported_split
from paper.records import (
    Measurement,
    MeasurementCell,
    PaperCell,
    RecordStore,
    TrainingCell,
)
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
        self.machine = machine_info(self.device)
        self.context = Context(self.store, self.device)

    def run(self, artifact: str, cells: Sequence[PaperCell]) -> list[str]:
        """Run the cells without a record in their order, until stopped.

        Consecutive cells of the same dataset form a group, whose training runs are parallel.
        Returns sentences that say why cells have no record, other than the stop.
        """
        reasons = list[str]()
        for _, group in groupby(cells, lambda cell: (cell.dataset, getattr(cell, "subset", None))):
            reasons += self._run_group(artifact, list(group))
        return reasons

    def _run_group(self, artifact: str, cells: list[PaperCell]) -> Iterator[str]:
        name, here = cells[0].dataset, self.device.type
        empty = [cell for cell in cells if self.store.find(cell) is None]
        trainings = [cell for cell in empty if isinstance(cell, TrainingCell)]
        measured = [cell for cell in empty if isinstance(cell, MeasurementCell)]
        # of those that need a certain one
        devices = [cell.recipe.get("device", here) for cell in measured]
        if elsewhere := [device for device in devices if device != here]:
            of = f" of {name}" if name else ""
            named = " or ".join(sorted(set(elsewhere)))
            yield f"{len(elsewhere)} of the cells{of} need --device {named}."
        measured = [cell for cell in measured if cell.recipe.get("device", here) == here]
        if not (trainings or measured) or self.stop():
            return
        try:
            dataset = self._load(cells) if name else None
        except DatasetNotFoundError as error:
            yield str(error)
            return
        for cell in measured:
            if not self.stop():
                self._measure(artifact, cell, dataset)
        if trainings and dataset is not None:
            yield from self._train(artifact, trainings, dataset)

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
            raise ValueError(
                f"{self.store.folder} has records of {name} with fingerprint "
                f"{', '.join(others)}, but the data here has {dataset.fingerprint}. Choose "
                "another --out, or remove those records."
            )
        return dataset

    def _measure(self, artifact: str, cell: MeasurementCell, dataset: Dataset | None) -> None:
        self.log(cell.name)
        if dataset is not None:
            self.context.dataset = dataset
        began = time.perf_counter()
        try:
            with self.stop.at_once():
                found = MEASURES[cell.kind](cell, self.context)
        except Stopped:
            self.log(f"Not saved, will start again: {cell.name}")
            return
        arrays = {name: value for name, value in found.items() if isinstance(value, Tensor)}
        record = Measurement(
            **vars(cell),
            fingerprint="" if dataset is None else dataset.fingerprint,
            values={name: value for name, value in found.items() if name not in arrays},
            wall_s=round(time.perf_counter() - began, 3),
            machine=self.machine,
        )
        self.store.add(artifact, record, arrays)

    def _train(self, artifact: str, cells: list[TrainingCell], dataset: Dataset) -> Iterator[str]:
        def store(record: RunRecord) -> None:
            if record.key not in self.store.records:
                extra = {**record.extra, "notes": list(dataset.notes), **cells[0].extra}
                self.store.add(artifact, dataclasses.replace(record, extra=extra))

        made = [make_cell(dataset, parse(cell.method), cell.recipe, cell.seed) for cell in cells]
        with self.display() as watch:
            results = run_cells(
                made,
                dataset,
                out=self.store.folder / "runs",
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
                yield f"{dataset.name}, {run_name(cell)} failed: {results.failures[cell.key]}"


def _run_name(cell: Cell) -> str:
    augmentation = cell.recipe["augmentation"].replace("none", "")
    parts = (cell.dataset, cell.recipe["model"], augmentation, run_name(cell))
    return " ".join(filter(None, parts))
