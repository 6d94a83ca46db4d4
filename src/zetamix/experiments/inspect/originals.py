"""Which samples are mixed and measured, and which are left for the oracle."""

from dataclasses import dataclass

import torch
from torch import Tensor

from zetamix.data import Dataset
from zetamix.results.inspection import InspectionError, Settings

# without more than this there is nothing to say about a distribution
LEAST_SAMPLES = 32


@dataclass(frozen=True)
class Originals:
    """The samples that are mixed: first those that the oracle has not seen, then others."""

    samples: Tensor
    labels: Tensor
    unseen: int
    rest: Tensor
    """Rows of the training split for the oracle."""

    @property
    def groups(self) -> list[Tensor]:
        """Batches never mix the two kinds, so that what is judged is unseen altogether."""
        places = torch.arange(len(self.labels))
        return [part for part in (places[: self.unseen], places[self.unseen :]) if len(part)]


def choose_originals(dataset: Dataset, settings: Settings, device: torch.device) -> Originals:
    """Half of the training split at most is kept from the oracle; the rest may be mixed as well."""
    train = dataset.train
    available, classes = len(train), int((train.counts() > 0).sum())
    if min(available, settings.samples) < max(LEAST_SAMPLES, 2 * classes):
        raise InspectionError(
            f"Expected at least {max(LEAST_SAMPLES, 2 * classes)} samples to measure, two of each "
            f"class, got {min(available, settings.samples):,}. Measures of so few say nothing."
        )
    count = min(settings.samples, available)
    chosen = train.subset(min(count, max(classes, available // 2)), settings.seed)
    unseen = _rows(chosen.rows, train.rows, available)
    left = torch.ones(available, dtype=torch.bool)
    left[unseen] = False
    rest = left.nonzero().squeeze(1)
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(settings.seed))
    rows = torch.cat([unseen, rest[order[: count - len(unseen)]]])
    samples = train.take(rows).to(device, torch.float32)
    return Originals(samples, train.labels[rows].to(device), len(unseen), rest)


def _rows(chosen: Tensor | None, pool: Tensor | None, available: int) -> Tensor:
    """Rows of a split that a subset of it holds, from the rows that both hold of their pool."""
    if chosen is None:
        return torch.arange(available)
    return chosen if pool is None else torch.searchsorted(pool, chosen)
