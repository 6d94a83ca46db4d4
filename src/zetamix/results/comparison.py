"""The result of a comparison: every record, and the numbers that follow from them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zetamix.data import Dataset
from zetamix.experiments.compare.grid import CompareError, Grid, Place, mix_batch
from zetamix.experiments.compare.progress import Reached
from zetamix.measure.statistics import Difference, Summary, holm, paired_difference, summarise
from zetamix.methods import parse
from zetamix.metrics import METRICS, choose_metrics, resolution
from zetamix.records import RunRecord, read_lines

# images are looked at one by one, points as a cloud
SHOWN_IMAGES, SHOWN_POINTS = 10, 400


@dataclass(frozen=True)
class Shown:
    """Outputs of one method to look at, each in the place of the original beside it."""

    method: str
    samples: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Comparison:
    """All that a report is made of."""

    grid: Grid
    records: Mapping[tuple[str, int], RunRecord]
    """By method and seed; those that are finished."""
    curves: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
    """The epochs of each, as in its metrics.jsonl."""
    failures: Mapping[tuple[str, int], str]
    shown: Sequence[Shown]
    """Originals under the name `none`, then what every method makes of them."""
    where: str
    """Where it was trained, in words; empty where all was finished already."""
    reached: Mapping[tuple[str, int], Reached] = field(default_factory=dict)
    """Runs that were stopped on their way."""
    trained: int = 0
    """Runs that were finished by this call, and not before."""

    @property
    def dataset(self) -> Dataset:
        return self.grid.dataset

    @cached_property
    def methods(self) -> list[str]:
        """Those with a finished run, in the order they were asked for."""
        labels = [method.label for method in self.grid.methods]
        return [label for label in labels if any(key[0] == label for key in self.records)]

    @property
    def complete(self) -> bool:
        return len(self.records) == len(self.grid.places)

    @property
    def compared(self) -> bool:
        """Whether any two methods have a seed in common."""
        return any(self.differences(reference) for reference in self.references)

    @cached_property
    def metrics(self) -> list[str]:
        """What suits the data, the most important first; then calibration."""
        return choose_metrics(self.dataset.splits["test"].counts())

    @property
    def primary(self) -> str:
        return self.metrics[0]

    @cached_property
    def references(self) -> list[str]:
        """What methods are held against: `none` and mixup, or else the first."""
        found = [label for label in self.methods if label.partition(":")[0] == "none"]
        found += [label for label in self.methods if label.partition(":")[0] == "mixup"][:1]
        return found or self.methods[:1]

    def values(self, method: str, metric: str) -> dict[int, float]:
        """By seed, after the last epoch, on the test split."""
        return {
            seed: record.last[metric]
            for (label, seed), record in sorted(self.records.items())
            if label == method
        }

    def summary(self, method: str, metric: str) -> Summary:
        return summarise(self.values(method, metric))

    def ranked(self, metric: str) -> list[str]:
        """Methods by their mean, the best first."""
        sign = -METRICS[metric].sign
        return sorted(self.methods, key=lambda label: sign * self.summary(label, metric).mean)

    def differences(self, reference: str, metric: str | None = None) -> list[Difference]:
        """Every other method minus `reference`, seed by seed, adjusted for their number."""
        metric = self.primary if metric is None else metric
        step = resolution(metric, self.dataset.splits["test"].counts())
        theirs = self.values(reference, metric)
        found = [
            paired_difference(
                method, reference, metric, self.values(method, metric), theirs, resolution=step
            )
            for method in self.methods
            if method != reference
        ]
        return holm([difference for difference in found if difference is not None])

    def confusion(self, method: str) -> Tensor:
        """[seeds, true class, predicted class]."""
        found = [record.confusion for (label, _), record in self.records.items() if label == method]
        return torch.tensor(found)

    def recalls(self, method: str) -> Tensor:
        """[seeds, classes]: the share of each class that is recognised; NaN without a sample."""
        counts = self.confusion(method).double()
        return counts.diagonal(dim1=1, dim2=2) / counts.sum(2)


def read_record(out: Path, place: Place) -> RunRecord | None:
    """The record of a finished run; None where it is not finished."""
    path = out / place.folder / "record.json"
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        record = RunRecord.from_dict(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise CompareError(
            f"{path} cannot be read ({error}). Remove it to train this run again."
        ) from error
    if record.cell.key != place.key:
        raise CompareError(
            f"{path} is the record of another run, {record.cell.key}. Remove it to train this one."
        )
    return record


def make_comparison(
    grid: Grid,
    failures: Mapping[str, str],
    where: str,
    reached: Mapping[tuple[str, int], Reached] | None = None,
    trained: int = 0,
) -> Comparison:
    """Read every finished run of a grid."""
    records, curves = {}, {}
    for place in grid.places:
        record = read_record(grid.out, place)
        if record is not None:
            records[place.method, place.seed] = record
            lines = read_lines(grid.out / place.folder / "metrics.jsonl")
            curves[place.method, place.seed] = list(lines)
    return Comparison(
        grid=grid,
        records=records,
        curves=curves,
        failures={
            (place.method, place.seed): failures[place.key]
            for place in grid.places
            if place.key in failures
        },
        shown=show_outputs(grid),
        where=where,
        reached=reached or {},
        trained=trained,
    )


def show_outputs(grid: Grid) -> list[Shown]:
    """The same batch of training samples, as every method hands it to the model.

    Of images, one of each class is shown; of points, all.
    """
    train = grid.dataset.train
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(train), generator=generator)
    images = len(train.shape) == 3
    size = max(SHOWN_IMAGES, grid.recipe.batch_size) if images else SHOWN_POINTS
    batch = chosen = order[:size]
    if images:
        labels = train.labels[order]
        present = torch.unique(labels)[:SHOWN_IMAGES].tolist()
        chosen = order[[int((labels == label).nonzero()[0]) for label in present]]
        batch = torch.cat([chosen, batch[~torch.isin(batch, chosen)]])[:size]
        # in no order, or CutMix would show every class with the one before it
        batch = batch[torch.randperm(len(batch), generator=generator)]
    samples, labels = train.take(batch).float(), train.labels[batch]
    places = torch.tensor([int((batch == row).nonzero()) for row in chosen])
    mixing = [method for method in grid.methods if method.name != "none"]
    shown = []
    for method in (parse("none"), *mixing):
        mixed, targets = mix_batch(method, samples, labels, train.num_classes, seed=0)
        shown.append(Shown(method.label, mixed[places], targets[places]))
    return shown
