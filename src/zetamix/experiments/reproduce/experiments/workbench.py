"""Where a measurement takes place: its data, its device, and what was found before."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from zetamix.data import Dataset
from zetamix.experiments.reproduce.cells import Measuring, ReproduceError
from zetamix.methods import parse
from zetamix.records import Measurement
from zetamix.results.record_store import Results

if TYPE_CHECKING:
    from zetamix.measure.mixed_samples import MixedSamples


@dataclass(frozen=True)
class Found:
    """What a measurement gives: numbers for its record, and arrays that lie beside it."""

    values: dict[str, Any]
    arrays: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Workbench:
    """Shared by the measurements of one call."""

    results: Results
    device: torch.device
    work: Path
    """A folder for files that nobody keeps."""
    data: Dataset | None = None
    _samples: tuple[str, Tensor] = ("", torch.empty(0))

    @property
    def dataset(self) -> Dataset:
        if self.data is None:
            raise ReproduceError("This measurement needs a dataset, and none was given.")
        return self.data

    def samples(self) -> Tensor:
        """The training samples on the device, moved there once."""
        if self._samples[0] != self.dataset.fingerprint:
            moved = self.dataset.train.samples.to(self.device)
            self._samples = (self.dataset.fingerprint, moved)
        return self._samples[1]

    def mixed(self, method: str, batch: int, seed: int) -> "MixedSamples":
        """What a method makes of the training samples, in random batches."""
        # needs matplotlib, which a machine that only trains can do without
        from zetamix.measure.mixed_samples import mix_samples

        samples = self.samples()
        return mix_samples(
            parse(method),
            samples,
            self.dataset.train.labels.to(self.device),
            self.dataset.num_classes,
            groups=[torch.arange(len(samples))],
            batch_size=batch,
            generator=torch.Generator().manual_seed(seed),
        )

    def last(self, kind: str) -> Measurement:
        """The latest record of a kind for the dataset at hand."""
        for record in reversed(self.results.records.values()):
            if isinstance(record, Measurement) and (record.kind, record.fingerprint) == (
                kind,
                self.dataset.fingerprint,
            ):
                return record
        raise ReproduceError(f"{self.dataset.name}: no record of kind {kind} to go on from.")


Measure: TypeAlias = Callable[[Measuring, Workbench], Found]
