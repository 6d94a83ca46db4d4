"""One call of `zetamix reproduce`: find the cells without a record, run them, store the records."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby

import torch

from paper.datasets import load, with_reported_split
from paper.reproduce import smoke
from paper.reproduce.artifacts import MEASURES
from paper.reproduce.measure_context import Measure, MeasureContext
from paper.results.paper_cells import MeasurementCell, PaperCell, ReproduceError, TrainingCell
from paper.results.record_store import RecordStore
from zetamix.methods import parse
from zetamix_lab.data import Dataset, DatasetNotFoundError
from zetamix_lab.data.load_dataset import DataDir
from zetamix_lab.progress import Progress, count_epochs
from zetamix_lab.provenance import machine_info
from zetamix_lab.records import Cell, Measurement, RunRecord
from zetamix_lab.runs.progress import run_name
from zetamix_lab.runs.run_cells import run_cells
from zetamix_lab.train.run import make_cell
from zetamix_lab.train.stop import Stop, Stopped


@dataclass
class Outcome:
    """The outcome of the cells of one artifact."""

    ran: int = 0
    had_record: int = 0
    empty: list[PaperCell] = field(default_factory=list)
    """Cells that still have no record."""
    reasons: list[str] = field(default_factory=list)
    """Why they have none, as sentences, unless the session was stopped."""


class Session:
    """Runs cells on one device and adds their records to a store.

    Runs are kept in the folder `runs` of the store; a later session resumes unfinished ones.

    jobs: number of parallel runs, as in `run_cells`; a smoke test trains one at a time.
    log: called with the name of each measurement. display: makes the `watch` of `run_cells`.
    measures: functions by kind of measurement.
    """

    def __init__(
        self,
        store: RecordStore,
        *,
        data_dir: DataDir = None,
        device: torch.device | str = "cpu",
        jobs: int | None = None,
        is_smoke: bool = False,
        stop: Stop | None = None,
        log: Callable[[str], None] | None = None,
        display: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
        load_dataset: Callable[[str, DataDir], Dataset] = load,
        measures: dict[str, Measure] | None = None,
    ) -> None:
        self.store, self.data_dir = store, data_dir
        self.runs = store.folder / "runs"
        self.device, self.is_smoke = torch.device(device), is_smoke
        # starting a process takes longer than a run of a smoke test
        self.jobs = 1 if is_smoke and jobs is None else jobs
        self.stop = stop or Stop()
        self.log = log or (lambda text: None)
        self.display = display
        self.load_dataset = load_dataset
        self.measures = {**MEASURES, **(measures or {})}
        self.machine = machine_info(self.device)
        self.context = MeasureContext(store, self.device, self.runs)
        self.unfinished: list[str] = []
        """Runs that were stopped, with their epochs; they resume from their checkpoint."""
        self.busy_s = 0.0
        """Seconds that training steps took."""
        self.discarded: list[MeasurementCell] = []
        """Measurements that were stopped; they start again."""

    def run(
        self, artifact: str, cells: Sequence[PaperCell] | Callable[[], Sequence[PaperCell]]
    ) -> Outcome:
        """Run the cells without a record in their order, until stopped.

        Consecutive cells of the same dataset form a group, whose training runs are parallel.

        cells: a function is called again after each group, for cells that depend on earlier
            results.
        """
        outcome, tried = Outcome(), list[list[PaperCell]]()
        while True:
            chosen = cells() if callable(cells) else cells
            if self.is_smoke:
                chosen = smoke.shorten(chosen, self.device)
            groups = (list(group) for _, group in groupby(chosen, lambda c: (c.dataset, c.subset)))
            group = next((group for group in groups if group not in tried), None)
            if group is None:
                return outcome
            self._run_group(artifact, group, outcome)
            tried.append(group)

    def _run_group(self, artifact: str, cells: list[PaperCell], outcome: Outcome) -> None:
        name = cells[0].dataset
        empty = [cell for cell in cells if self.store.find(cell) is None]
        runnable = [cell for cell in empty if cell.device in (None, self.device.type)]
        if len(runnable) < len(empty):
            devices = {str(cell.device) for cell in empty if cell not in runnable}
            outcome.reasons.append(
                f"{len(empty) - len(runnable)} of the cells{f' of {name}' if name else ''} need "
                f"--device {' or '.join(sorted(devices))}."
            )
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
        name, subset = cells[0].dataset, cells[0].subset
        training = all(isinstance(cell, TrainingCell) for cell in cells)
        if self.is_smoke:
            dataset = smoke.synthetic_data(name, training=training, cut=subset is not None)
        else:
            self.log(f"loading {name}")
            dataset = self.load_dataset(name, self.data_dir)
        dataset = with_reported_split(dataset) if training else dataset
        dataset = dataset if subset is None else subset.apply(dataset)
        records = (self.store.find(cell) for cell in cells)
        others = {
            record.cell.fingerprint if isinstance(record, RunRecord) else record.fingerprint
            for record in records
            if record is not None
        }
        if others - {dataset.fingerprint}:
            # results of different data must not be averaged
            raise ReproduceError(
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
                measured = self.measures[cell.kind](cell, self.context)
        except Stopped:
            self.discarded.append(cell)
            return
        record = Measurement(
            kind=cell.kind,
            dataset=cell.dataset,
            fingerprint="" if dataset is None else dataset.fingerprint,
            method=cell.method,
            seed=cell.seed,
            recipe=cell.recipe,
            values=measured.values,
            wall_s=round(time.perf_counter() - began, 3),
            machine=self.machine,
            extra=self._smoke_label(),
        )
        if measured.arrays:
            record = dataclasses.replace(record, arrays=f"arrays/{record.key}.npz")
        self.store.add(artifact, record, measured.arrays)

    def _smoke_label(self) -> dict[str, str]:
        return {"quick": smoke.LABEL} if self.is_smoke else {}

    def _train(
        self, artifact: str, cells: list[TrainingCell], dataset: Dataset, outcome: Outcome
    ) -> None:
        def store(record: RunRecord) -> None:
            if record.key not in self.store.records:
                extra = {**record.extra, "notes": list(dataset.notes)}
                extra |= {**cells[0].extra, **self._smoke_label()}
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
                new_bn=True,
                watch=watch,
                name_of=_run_name,
                # at once, in case the session is killed
                finished=store,
                stop=self.stop,
            )
        self.busy_s += results.busy_s
        for record in results.records.values():
            store(record)
        for cell in made:
            run = results.progress[cell.key]
            if cell.key in results.failures:
                failure = results.failures[cell.key]
                outcome.reasons.append(f"{dataset.name}, {run_name(cell)} failed: {failure}")
            elif run.state == "training":
                epochs = count_epochs(run.epochs, cell.recipe["epochs"])
                self.unfinished.append(f"{_run_name(cell)}, {epochs}")


def _run_name(cell: Cell) -> str:
    recipe = cell.recipe
    augmentation = "" if recipe["augmentation"] == "none" else f" {recipe['augmentation']}"
    return f"{cell.dataset} {recipe['model']}{augmentation} {run_name(cell)}"
