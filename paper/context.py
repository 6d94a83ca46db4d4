"""The context of a measurement: its data, its device, and earlier records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from paper.records import MeasurementCell, RecordStore
from zetamix.methods import channel_means, parse
from zetamix_lab.data import Dataset
from zetamix_lab.data.dataset import Split


@dataclass
class Context:
    """Shared by all measurements of a session."""

    store: RecordStore
    device: torch.device
    dataset: Dataset = field(init=False)
    """That of the current cell, if it has one."""

    def mix(self, cell: MeasurementCell, split: Split) -> tuple[Tensor, Tensor]:
        """Outputs of a cell's method and their labels [n, classes], in the order of the samples.

        The random batches are the same for every method. Every sample gets its own class for
        mixing, so that the targets of any method, including CutMix, are the weights of the samples
        in each output.
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
        return outputs, targets


Measure: TypeAlias = Callable[[MeasurementCell, Context], dict[str, Any]]
"""Measures a cell: the values of its record, of which tensors are stored in a file of arrays."""
