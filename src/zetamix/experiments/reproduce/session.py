"""One call of `zetamix reproduce`: find what is missing, run it, write it down."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from zetamix.data import Dataset, DatasetNotFoundError, load, with_reported_split
from zetamix.data.loading import DataDir
from zetamix.experiments.reproduce import smoke as quick
from zetamix.experiments.reproduce.cells import Cell, Measuring, ReproduceError, Training
from zetamix.experiments.reproduce.experiments import MEASURES
from zetamix.experiments.reproduce.experiments.workbench import Workbench
from zetamix.methods import parse
from zetamix.provenance import machine_info
from zetamix.records import Cell as RunCell
from zetamix.records import Measurement
from zetamix.results.record_store import Results, fingerprint_of
from zetamix.train import Progress, Run, train
from zetamix.train.cuda_graph import compiling_pays
from zetamix.train.run_folder import hold
from zetamix.train.stop import Stop, Stopped


@dataclass
class Outcome:
    """What became of the cells of one artifact."""

    ran: int = 0
    done: int = 0
    """Cells that had a record before."""
    left: list[Cell] = field(default_factory=list)
    """Cells that are still empty."""
    reasons: list[str] = field(default_factory=list)
    """Why, in sentences, where it is not the time."""


class Session:
    """Runs cells on one device into one folder of results.

    work: where unfinished runs are kept, to go on from.
    tell: called with what is being measured; watch: with the progress of training.
    """

    def __init__(
        self,
        results: Results,
        *,
        work: Path,
        data_dir: DataDir = None,
        device: torch.device | str = "cpu",
        concurrent: int = 1,
        is_quick: bool = False,
        stop: Stop | None = None,
        tell: Callable[[str], None] | None = None,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        self.results = results
        self.work = work
        self.data_dir = data_dir
        self.device = torch.device(device)
        self.concurrent = concurrent
        self.is_quick = is_quick
        self.stop = stop or Stop()
        self.tell = tell or (lambda text: None)
        self.watch = watch
        self.facts = machine_info(self.device)
        self.bench = Workbench(results, self.device, work)
        self.under_way: list[Run] = []
        """Runs that were stopped before their end."""
        self.dropped: list[Measuring] = []
        """Measurements that were, of which nothing is kept."""

    def run(self, artifact: str, cells: Sequence[Cell]) -> Outcome:
        """Fill the empty ones among `cells`, dataset after dataset, until there is no time left."""
        outcome = Outcome()
        for name in dict.fromkeys(cell.dataset for cell in cells):
            self._run_group(artifact, name, [c for c in cells if c.dataset == name], outcome)
        return outcome

    def _run_group(self, artifact: str, name: str, cells: list[Cell], outcome: Outcome) -> None:
        empty = [cell for cell in cells if self.results.find(cell) is None]
        dataset = None
        if self.is_quick and name:
            # what stands in for the data may be another than last time
            dataset = self._load(name, cells)
            known = dataset.fingerprint
            empty = [cell for cell in cells if self.results.find(cell, known) is None]
        outcome.done += len(cells) - len(empty)
        able = [cell for cell in empty if cell.device in (None, self.device.type)]
        if len(able) < len(empty):
            needed = sorted({str(cell.device) for cell in empty if cell not in able})
            outcome.reasons.append(
                f"{len(empty) - len(able)} cells{f' of {name}' if name else ''} are measured with "
                f"--device {' or '.join(needed)}."
            )
        if able and not self.stop():
            try:
                if name and dataset is None:
                    dataset = self._load(name, cells)
                    self._check_same_data(cells, dataset)
                self._fill(artifact, able, dataset)
            except DatasetNotFoundError as error:
                outcome.reasons.append(str(error))
        left = [cell for cell in empty if self.results.find(cell) is None]
        outcome.left += left
        outcome.ran += len(empty) - len(left)

    def _check_same_data(self, cells: list[Cell], dataset: Dataset) -> None:
        """Numbers of different data must not become one mean."""
        for cell in cells:
            record = self.results.find(cell)
            if record is not None and fingerprint_of(record) != dataset.fingerprint:
                raise ReproduceError(
                    f"{self.results.folder} holds records of {dataset.name} with fingerprint "
                    f"{fingerprint_of(record)}, the data here has {dataset.fingerprint}: they do "
                    "not belong into one table. Choose another --out, or remove those records."
                )

    def _fill(self, artifact: str, cells: list[Cell], dataset: Dataset | None) -> None:
        for cell in cells:
            if isinstance(cell, Measuring):
                if self.stop():
                    break
                self._measure(artifact, cell, dataset)
        trainings = [cell for cell in cells if isinstance(cell, Training)]
        if trainings and dataset is not None:
            self._train(artifact, trainings, dataset)

    def _load(self, name: str, cells: list[Cell]) -> Dataset:
        training = all(isinstance(cell, Training) for cell in cells)
        if self.is_quick:
            dataset = quick.small_data(name, self.data_dir, training=training)
        else:
            self.tell(f"loading {name}")
            dataset = load(name, self.data_dir)
        return with_reported_split(dataset) if training else dataset

    def _measure(self, artifact: str, cell: Measuring, dataset: Dataset | None) -> None:
        self.tell(cell.name)
        self.bench.data = dataset
        began = time.perf_counter()
        try:
            with self.stop.at_once():
                found = MEASURES[cell.kind](cell, self.bench)
        except Stopped:
            self.dropped.append(cell)
            return
        record = Measurement(
            kind=cell.kind,
            dataset=cell.dataset,
            fingerprint="" if dataset is None else dataset.fingerprint,
            method=cell.method,
            seed=cell.seed,
            recipe=cell.recipe,
            values=found.values,
            wall_s=round(time.perf_counter() - began, 3),
            machine=self.facts,
            extra={"quick": quick.LABEL} if self.is_quick else {},
        )
        if found.arrays:
            record = dataclasses.replace(record, arrays=f"arrays/{record.key}.npz")
        self.results.add(artifact, record, found.arrays)

    def _train(self, artifact: str, cells: list[Training], dataset: Dataset) -> None:
        batches = (
            cell.recipe.epochs * (len(dataset.train) // cell.recipe.batch_size) for cell in cells
        )
        compile = compiling_pays(self.device, sum(batches))
        runs = [self._make_run(cell, dataset, compile) for cell in cells]
        try:
            with hold(run.folder.path for run in runs):
                train(runs, jobs=self.concurrent, watch=self.watch, stop=self.stop)
        finally:
            # whatever happened to the others, a finished run is a result
            for run in runs:
                record = run.folder.read_record()
                if record is None and run.trainer is not None:
                    self.under_way.append(run)
                if record is not None:
                    note = {"quick": quick.LABEL} if self.is_quick else {}
                    extra = {**record.extra, "notes": list(dataset.notes), **note}
                    self.results.add(artifact, dataclasses.replace(record, extra=extra))

    def _make_run(self, cell: Training, dataset: Dataset, compile: bool) -> Run:
        method, recipe = parse(cell.method), cell.recipe
        key = RunCell(
            dataset=dataset.name,
            fingerprint=dataset.fingerprint,
            method=method.label,
            seed=cell.seed,
            recipe=recipe.as_dict(),
            train_size=len(dataset.train),
        ).key
        return Run(
            dataset,
            method,
            recipe,
            seed=cell.seed,
            out=self.work / "runs" / f"{dataset.name}-{cell.method.replace(':', '-')}-{key}",
            device=self.device,
            compile=compile,
        )
