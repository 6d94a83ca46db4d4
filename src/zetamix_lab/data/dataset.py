"""A dataset in memory or memory-mapped: named classes and up to three splits."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from zetamix_lab.atomic_io import hash_json
from zetamix_lab.data.errors import DataError, check_distinct
from zetamix_lab.data.source import SPLITS, count_labels, digest
from zetamix_lab.data.splits import first_duplicates, strata, stratified


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """The samples of one split with their labels.

    A split from disk is memory-mapped: samples are read when they are used.

    >>> split = Split(torch.rand(6, 2), torch.tensor([0, 0, 0, 0, 1, 1]), num_classes=2)
    >>> split.counts()
    tensor([4, 2])
    >>> split.subset(3).labels
    tensor([0, 0, 1])
    """

    pool: Tensor
    """[m, ...]: the samples that `rows` refers to."""
    labels: Tensor
    """[n], int64; in a multi-label set [n, classes] of 0 and 1, float32."""
    num_classes: int
    rows: Tensor | None = None
    """[n], int64, ascending: the rows of `pool` in this split; None means all."""

    @cached_property
    def samples(self) -> Tensor:
        """[n, c, h, w] uint8 or float32, or [n, d] float32; a subset is copied when first used."""
        return self.pool if self.rows is None else self.pool[self.rows]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.pool.shape[1:])

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def multi_label(self) -> bool:
        """Whether a sample may have any number of labels, instead of one class."""
        return self.labels.ndim == 2

    def take(self, rows: Tensor) -> Tensor:
        """The samples of these rows; only these are read."""
        return self.pool[rows if self.rows is None else self.rows[rows]]

    def counts(self) -> Tensor:
        """[classes], int64: the number of samples of each class, or with each label."""
        return count_labels(self.labels, self.num_classes)

    def subset(self, size: int | float) -> "Split":
        """A stratified subset: `size` samples, or that fraction of them; always the same ones.

        A fraction is a float up to 1.0; a number of samples is an int.
        """
        kinds = strata(self.labels)
        count = _subset_size(size, len(self), len(torch.unique(kinds)))
        chosen, _ = stratified(kinds, count, torch.Generator().manual_seed(0))
        return self.keep(chosen)

    def keep(self, rows: Tensor) -> "Split":
        """The split with only these rows of this one."""
        inner = rows if self.rows is None else self.rows[rows]
        return replace(self, labels=self.labels[rows], rows=inner)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Named classes and the splits that exist.

    `val` is None for a dataset without a validation split: the paper then trains on all of the
    official training split. `holdout` takes one from `train`.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split | None = None
    test: Split | None = None
    fingerprint: str = ""
    """A hash of classes, samples and labels: equal for identical datasets."""
    origin: str = "made in memory"
    """A description of where the samples come from."""
    notes: tuple[str, ...] = ()
    """Facts to report with results: created splits, duplicates, differences from the paper."""

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def multi_label(self) -> bool:
        """Whether a sample may have any number of labels, instead of one class."""
        return self.train.multi_label

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: (c, h, w), or (d,) for points."""
        return self.train.shape

    @property
    def splits(self) -> dict[str, Split]:
        """The splits that exist, by name."""
        splits = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    def with_train_size(self, size: int | float | None) -> "Dataset":
        """The dataset with a stratified subset of `train`; None keeps all of it."""
        return self if size is None else replace(self, train=self.train.subset(size))

    def holdout(self, fraction: float) -> "Dataset":
        """The same dataset with a stratified `val` taken from `train`; duplicates stay together.

        For selecting hyperparameters without using `test`. Samples are not copied until they are
        used.
        """
        if self.val is not None:
            raise DataError(f"{self.name} already has a validation split of {len(self.val):,}.")
        kinds = strata(self.train.labels)
        # in blocks: the rows of a subset may not fit into memory
        every = torch.arange(len(self.train))
        blocks = (self.train.take(every[k : k + 1024]) for k in range(0, len(every), 1024))
        first = first_duplicates([digest(x.numpy()) for block in blocks for x in block], kinds, 2)
        leaders = torch.unique(first)
        count = _subset_size(fraction, len(leaders), self.num_classes)
        generator = torch.Generator().manual_seed(0)
        drawn, _ = stratified(kinds[leaders], count, generator, keep=1)
        is_val = torch.isin(first, leaders[drawn])
        note = f"val: {int(is_val.sum()):,} samples held out of train, stratified (seed 0)"
        return replace(
            self,
            train=self.train.keep((~is_val).nonzero().squeeze(1)),
            val=self.train.keep(is_val.nonzero().squeeze(1)),
            notes=(*self.notes, note),
            fingerprint=hash_json([self.fingerprint, "holdout", fraction, 0])[:16],
        )


def from_tensors(
    name: str,
    splits: Mapping[str, tuple[Tensor, Tensor]],
    classes: Sequence[str] | None = None,
    *,
    origin: str = "made in memory",
    notes: Sequence[str] = (),
) -> Dataset:
    """A dataset of samples and labels in memory.

    splits: samples, and classes [n] or a 0/1 matrix [n, classes], by the name of the split.

    >>> from_tensors("noise", {"train": (torch.rand(4, 2), torch.tensor([0, 1, 0, 1]))}).classes
    ('0', '1')
    """
    if "train" not in splits or not set(splits) <= set(SPLITS):
        raise ValueError(f"splits must be train and optionally val and test, got {sorted(splits)}.")
    if classes is None:
        labels = torch.cat([labels for _, labels in splits.values()])
        count = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
        classes = [str(index) for index in range(count)]
    check_distinct(classes, name)
    made, hashes = {}, {}
    for split, (samples, labels) in splits.items():
        _check_labels(split, samples, labels, len(classes))
        typed = labels.float() if labels.ndim == 2 else labels.long()
        made[split] = Split(samples, typed, len(classes))
        parts = [part.cpu().contiguous().numpy().data for part in (samples, typed)]
        hashes[split] = [hashlib.sha256(part).hexdigest() for part in parts]
    return Dataset(
        name=name,
        classes=tuple(classes),
        **made,
        fingerprint=fingerprint(classes, hashes),
        origin=origin,
        notes=tuple(notes),
    )


def _check_labels(split: str, samples: Tensor, labels: Tensor, classes: int) -> None:
    if labels.ndim == 2:
        valid = labels.shape[1] == classes and bool(((labels == 0) | (labels == 1)).all())
        expected = f"a row of {classes} zeros and ones"
    else:
        valid = bool(((labels >= 0) & (labels < classes)).all())
        expected = f"one label from 0 to {classes - 1}"
    if len(samples) != len(labels) or not valid:
        raise ValueError(f"{split} must have {expected} for each of its {len(samples):,} samples.")


def fingerprint(classes: Sequence[str], hashes: Mapping[str, Sequence[str]]) -> str:
    """One hash of a dataset, from its classes and the hashes of each split's samples and labels."""
    ordered = [[split, *hashes[split]] for split in SPLITS if split in hashes]
    return hash_json([list(classes), ordered])[:16]


def _subset_size(size: int | float, available: int, classes: int) -> int:
    """The number of samples that `size` means: at least one of each class, at most all."""
    fraction = isinstance(size, float)
    if not (0 < size <= 1 if fraction else classes <= size <= available):
        raise ValueError(
            f"size must lie between {classes:,} (one of each class) and {available:,} (the whole "
            f"split), or be a fraction up to 1.0, got {size:,}."
        )
    return max(classes, round(size * available)) if fraction else int(size)
