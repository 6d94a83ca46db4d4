"""The context of a measurement: its data, its device, and earlier records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from paper.cells import MeasurementCell, PaperError
from paper.records import Measurement, RecordStore
from zetamix.methods import channel_means, parse
from zetamix_lab.data import Dataset
from zetamix_lab.data.dataset import Split


class MixedSamples(NamedTuple):
    """One output for each sample, in the order of the samples."""

    samples: Tensor
    """[n, ...], float32."""
    targets: Tensor
    """[n, classes]."""


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

    def mix(self, cell: MeasurementCell, split: Split) -> MixedSamples:
        """Outputs of a cell's method, from random batches that are the same for every method.

        Every sample gets its own class for mixing, so that the targets of any method, including
        CutMix, are the weights of the samples in each output.
        """
        method, generator = parse(cell.method), torch.Generator().manual_seed(cell.seed)
        samples = split.samples.to(self.device)
        one_hot = F.one_hot(split.labels.to(self.device), self.dataset.num_classes).float()
        outputs = torch.empty_like(samples, dtype=torch.float32)
        targets, mean = torch.zeros_like(one_hot), channel_means(samples.float())
        seed = int(torch.randint(2**62, (), generator=generator))
        own = torch.Generator(samples.device).manual_seed(seed)
        order = torch.randperm(len(samples), generator=generator).to(samples.device)
        for rows in order.tensor_split(-(-len(order) // cell.recipe["batch"])):
            names = torch.arange(len(rows), device=samples.device)
            mixed = method.mix(samples[rows].float(), names, len(rows), own, mean=mean)
            outputs[rows], targets[rows] = mixed[0], mixed[1] @ one_hot[rows]
        return MixedSamples(outputs, targets)

    def latest(self, kind: str) -> Measurement:
        """The latest record of a kind for the current dataset."""
        wanted = kind, self.dataset.fingerprint
        for record in reversed(self.store.records.values()):
            if isinstance(record, Measurement) and (record.kind, record.fingerprint) == wanted:
                return record
        raise PaperError(
            f"{self.dataset.name}: there is no record of kind {kind}, which is needed."
        )


Measure: TypeAlias = Callable[[MeasurementCell, Context], Measured]
