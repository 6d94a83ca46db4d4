"""Estimates of the time that cells take, from the records of earlier ones."""

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from paper.datasets import CATALOGUE
from paper.results.paper_cells import PaperCell, TrainingCell
from paper.results.record_store import RecordStore
from zetamix_lab.records import Record, RunRecord


class Estimate(NamedTuple):
    """Seconds of a cell, and the GPU or processor of the records they are estimated from."""

    seconds: float
    machine: str


class TimeEstimates:
    """Estimates by the median of records: of this machine if it has any, else of another one.

    A training run is estimated by its model's time per epoch and training sample; on one machine,
    records of the same dataset count before those of another with samples of the same shape.

    machine: from `zetamix_lab.provenance.machine_info`.
    """

    def __init__(self, store: RecordStore, machine: Mapping[str, str]) -> None:
        self.machine = _name(machine)
        self.seconds: dict[str, dict[tuple[str, object], list[float]]] = {}
        for record in store.records.values():
            kind, dataset, seconds = _work(record)
            table = self.seconds.setdefault(_name(record.machine), {})
            for data in dict.fromkeys((dataset, _shape(dataset))):
                table.setdefault((kind, data), []).append(seconds)

    def __call__(self, cell: PaperCell) -> Estimate | None:
        """None if there is no record of the model or of this kind of measurement."""
        if isinstance(cell, TrainingCell):
            kind, work = cell.recipe.model, cell.recipe.epochs * cell.train_size
        else:
            kind, work = cell.kind, 1
        # records of this machine first, then those of another one
        for machine in sorted(self.seconds, key=lambda name: name != self.machine):
            for data in (cell.dataset, _shape(cell.dataset)):
                times = self.seconds[machine].get((kind, data))
                if times:
                    return Estimate(statistics.median(times) * work, machine)
        return None


def _work(record: Record) -> tuple[str, str, float]:
    """The model or the kind, the dataset, and the seconds per unit of work."""
    if not isinstance(record, RunRecord):
        return record.kind, record.dataset, record.wall_s
    recipe = record.cell.recipe
    # runs that share a device take longer each, but less time in total
    seconds = record.wall_s / record.extra.get("concurrent", 1)
    work = recipe["epochs"] * record.cell.train_size
    return recipe["model"], record.cell.dataset, seconds / work


def _shape(dataset: str) -> object:
    """The shape of a sample; the name itself where there is no data."""
    return CATALOGUE[dataset].shape if dataset in CATALOGUE else dataset


def _name(machine: Mapping[str, str]) -> str:
    return machine.get("gpu") or machine.get("processor") or "an unknown machine"
