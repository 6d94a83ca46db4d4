"""What a report of one figure or table is made from: its cells and the records that fill them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from zetamix.records import Measurement, Record
from zetamix.results.paper_cells import MeasurementCell, PaperCell, TrainingCell
from zetamix.results.record_store import RecordStore


@dataclass(frozen=True)
class PaperView:
    """The cells of one artifact, each with or without a record."""

    artifact: str
    title: str
    cells: Sequence[PaperCell]
    """Those that the paper's figure or table needs."""
    store: RecordStore
    more: Sequence[TrainingCell] = ()
    """Cells of other variants of the recipe, for datasets that have records of them."""
    smoke_label: str = ""
    """The warning to print on everything made by a smoke test; empty for real results."""

    @property
    def trainings(self) -> list[TrainingCell]:
        return [cell for cell in (*self.cells, *self.more) if isinstance(cell, TrainingCell)]

    def measured(
        self, kind: str, dataset: str | None = None, **recipe: Any
    ) -> Iterator[tuple[MeasurementCell, Measurement | None]]:
        """Cells of one kind in order, each with its record or None."""
        for cell in self.cells:
            if not isinstance(cell, MeasurementCell) or cell.kind != kind:
                continue
            matches = all(cell.recipe.get(key) == value for key, value in recipe.items())
            if matches and dataset in (None, cell.dataset):
                record = self.store.find(cell)
                yield cell, record if isinstance(record, Measurement) else None

    def measurements(
        self, kind: str, dataset: str | None = None, **recipe: Any
    ) -> list[Measurement]:
        """Records of one kind, in the order of their cells."""
        measured = self.measured(kind, dataset, **recipe)
        return [record for _, record in measured if record is not None]

    def arrays(self, record: Measurement) -> dict[str, Tensor]:
        return self.store.arrays(record)

    @property
    def empty(self) -> list[PaperCell]:
        """Cells without a record."""
        return [cell for cell in self.cells if self.store.find(cell) is None]

    @property
    def records(self) -> list[Record]:
        records = (self.store.find(cell) for cell in (*self.cells, *self.more))
        return [record for record in records if record is not None]
