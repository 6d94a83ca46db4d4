"""The context of a measurement: its data, its device, and earlier records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from paper.cells import MeasurementCell, PaperError
from paper.measure.mixed_samples import MixedSamples, mix_samples
from paper.records import Measurement, RecordStore
from zetamix.methods import parse
from zetamix_lab.data import Dataset
from zetamix_lab.data.dataset import Split


@dataclass(frozen=True)
class Measured:
    """The result of a measurement: values of its record, and arrays to store with it."""

    values: dict[str, Any]
    arrays: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Context:
    """Shared by all measurements of a session."""

    store: RecordStore
    device: torch.device
    scratch: Path
    """A folder for temporary files."""
    data: Dataset | None = None
    dimensions: dict[tuple[str | int, ...], dict[int, Tensor]] = field(default_factory=dict)
    """Local dimensions by number of neighbours, for cells that share a neighbour search."""

    @property
    def dataset(self) -> Dataset:
        if self.data is None:
            raise PaperError("This measurement needs a dataset, but its cell has none.")
        return self.data

    @property
    def test(self) -> Split:
        if self.dataset.test is None:
            raise PaperError(f"{self.dataset.name} has no test split, which is needed.")
        return self.dataset.test

    def mix(self, cell: MeasurementCell, samples: Tensor, labels: Tensor) -> MixedSamples:
        """Outputs of a cell's method, from random batches that are the same for every method."""
        return mix_samples(
            parse(cell.method),
            samples.to(self.device),
            labels.to(self.device),
            self.dataset.num_classes,
            batch_size=cell.recipe["batch"],
            generator=torch.Generator().manual_seed(cell.seed),
        )

    def latest(self, kind: str) -> Measurement:
        """The latest record of a kind for the current dataset."""
        for record in reversed(self.store.records.values()):
            if not isinstance(record, Measurement):
                continue
            if (record.kind, record.fingerprint) == (kind, self.dataset.fingerprint):
                return record
        raise PaperError(
            f"{self.dataset.name}: there is no record of kind {kind}, which is needed."
        )


Measure: TypeAlias = Callable[[MeasurementCell, Context], Measured]
