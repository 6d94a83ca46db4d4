"""A dataset in memory or mapped into it: named classes and up to three splits."""

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from zetamix.data.errors import DataError
from zetamix.data.flaws import digest, first_copies
from zetamix.data.splits import apart_where_few, stratified

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """The samples of one split with their labels.

    A split that came from disk maps its file into memory: nothing is read before it is used.

    >>> split = Split(torch.rand(6, 2), torch.tensor([0, 0, 0, 0, 1, 1]), num_classes=2)
    >>> split.counts()
    tensor([4, 2])
    >>> split.subset(3, seed=0).labels
    tensor([0, 0, 1])
    """

    pool: Tensor
    """[m, ...]: what the rows of this split are taken from."""
    labels: Tensor
    """[n], int64."""
    num_classes: int
    rows: Tensor | None = None
    """[n], int64, ascending: which rows of `pool` are in this split; None stands for all."""
    names_file: Path | None = None
    """One line for each row of `pool`: the file that it was read from."""

    @cached_property
    def samples(self) -> Tensor:
        """[n, c, h, w] uint8, or [n, d] float32; a subset is copied from its pool at first use."""
        return self.pool if self.rows is None else self.pool[self.rows]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.pool.shape[1:])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        """One sample and its label, as torch's DataLoader asks for them."""
        if not isinstance(row, int):
            raise TypeError(f"Expected one row, got {type(row).__name__}. For several use keep().")
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a split of {len(self):,}.")
        place = row % len(self)
        return self.take(torch.tensor([place]))[0], int(self.labels[place])

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.shape))
        return f"Split({len(self):,} samples of {shape} in {self.num_classes} classes)"

    def take(self, rows: Tensor) -> Tensor:
        """Samples of these rows of the split, without reading any other."""
        return self.pool[rows if self.rows is None else self.rows[rows]]

    def first_copies(self) -> Tensor:
        """[n], int64: for every sample the first of its class that is the same in every pixel."""
        keys: list[Hashable] = []
        for start in range(0, len(self), 1024):
            labels = self.labels[start : start + 1024].tolist()
            rows = torch.arange(start, start + len(labels))
            keys += zip(map(digest, self.take(rows).numpy()), labels, strict=True)
        return first_copies(keys)

    def counts(self) -> Tensor:
        """[classes], int64: how many samples each class has."""
        return torch.bincount(self.labels, minlength=self.num_classes)

    def names(self) -> list[str] | None:
        """The file of every sample, where samples were files."""
        if self.names_file is None:
            return None
        lines = self.names_file.read_bytes().decode("utf-8", "surrogateescape").split("\n")
        return lines[:-1] if self.rows is None else [lines[row] for row in self.rows.tolist()]

    def subset(self, size: int | float, seed: int = 0) -> "Split":
        """A stratified part of this split: `size` samples, or that fraction of them.

        A fraction is a float up to 1.0; a number of samples is an int.
        """
        count = _subset_size(size, len(self), int((self.counts() > 0).sum()))
        chosen, _ = stratified(self.labels, count, torch.Generator().manual_seed(seed))
        return self.keep(chosen)

    def keep(self, rows: Tensor) -> "Split":
        """The split that holds just these rows of this one."""
        inner = rows if self.rows is None else self.rows[rows]
        return replace(self, labels=self.labels[rows], rows=inner)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Named classes and the splits that exist.

    `val` is None where a dataset has no validation split of its own: the paper trains on all of
    the official training split of those. `holdout` carves one out.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    val: Split | None = None
    test: Split | None = None
    fingerprint: str = ""
    """A hash of classes, samples and labels: two datasets with the same one are the same."""
    origin: str = "made in memory"
    """Where the samples came from, in words."""
    notes: tuple[str, ...] = field(default=())
    """What a reader of results should know: stand-ins, made splits, differences from the paper."""

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}={split}" for name, split in self.splits.items())
        return f"Dataset({self.name!r}, {splits}, fingerprint={self.fingerprint!r})"

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: (c, h, w), or (d,) for points."""
        return self.train.shape

    @property
    def splits(self) -> dict[str, Split]:
        """Those that exist, by name."""
        found = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in found.items() if split is not None}

    def with_train_size(self, size: int | float | None) -> "Dataset":
        """The dataset with a stratified subset of `train`; None keeps all of it."""
        return self if size is None else replace(self, train=self.train.subset(size))

    def holdout(self, fraction: float = 0.1, seed: int = 0) -> "Dataset":
        """The same dataset with a stratified `val` carved out of `train`.

        For choosing anything without looking at `test`. Every sample is looked at once, so that
        identical ones of a class stay together; none is copied until used.
        """
        if self.val is not None:
            raise DataError(
                f"{self.name} has a validation split of {len(self.val):,} samples already; use it."
            )
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must lie between 0 and 1, got {fraction}.")
        labels = self.train.labels
        first = apart_where_few(self.train.first_copies(), labels, 2)
        leaders = torch.unique(first)
        count = _subset_size(float(fraction), len(leaders), self.num_classes)
        generator = torch.Generator().manual_seed(seed)
        drawn, _ = stratified(labels[leaders], count, generator, keep=1)
        is_val = torch.isin(first, leaders[drawn])
        note = f"val is {int(is_val.sum()):,} samples held out of train, stratified, seed {seed}"
        return replace(
            self,
            train=self.train.keep((~is_val).nonzero().squeeze(1)),
            val=self.train.keep(is_val.nonzero().squeeze(1)),
            notes=(*self.notes, note),
            fingerprint=_digest([self.fingerprint, "holdout", fraction, seed]),
        )


def from_tensors(
    name: str,
    splits: Mapping[str, tuple[Tensor, Tensor]],
    classes: Sequence[str] | None = None,
    *,
    origin: str = "made in memory",
    notes: Sequence[str] = (),
) -> Dataset:
    """A dataset of samples and labels that are in memory already.

    >>> from_tensors("noise", {"train": (torch.rand(4, 2), torch.tensor([0, 1, 0, 1]))}).classes
    ('0', '1')
    """
    if "train" not in splits or not set(splits) <= set(SPLITS):
        raise ValueError(f"splits must be train and any of val and test, got {sorted(splits)}.")
    if classes is None:
        highest = max(int(labels.max()) for _, labels in splits.values())
        classes = [str(index) for index in range(highest + 1)]
    for split, (samples, labels) in splits.items():
        inside = bool(((labels >= 0) & (labels < len(classes))).all())
        if len(samples) != len(labels) or not inside:
            raise ValueError(
                f"{split} must have one label from 0 to {len(classes) - 1} for each of its "
                f"{len(samples):,} samples."
            )
    found = {
        split: Split(samples, labels.long(), len(classes))
        for split, (samples, labels) in splits.items()
    }
    hashes = {key: [hash_of(split.pool), hash_of(split.labels)] for key, split in found.items()}
    return Dataset(
        name=name,
        classes=tuple(classes),
        train=found["train"],
        val=found.get("val"),
        test=found.get("test"),
        fingerprint=fingerprint(classes, hashes),
        origin=origin,
        notes=tuple(notes),
    )


def hash_of(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.cpu().contiguous().numpy().data).hexdigest()


def fingerprint(classes: Sequence[str], hashes: Mapping[str, Sequence[str]]) -> str:
    """One hash for the whole of a dataset, from its classes and the hashes of its splits' files."""
    ordered = [[split, *hashes[split]] for split in SPLITS if split in hashes]
    return _digest([list(classes), ordered])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _subset_size(size: int | float, available: int, classes: int) -> int:
    """How many samples `size` asks for: at least one of each class, at most what there is."""
    if isinstance(size, bool) or not isinstance(size, (int, float)):
        raise TypeError(f"size must be a number of samples or a fraction, got {size!r}.")
    if isinstance(size, float):
        if not 0 < size <= 1:
            raise ValueError(f"size as a fraction must lie between 0 and 1, got {size}.")
        return max(classes, round(size * available))
    if not classes <= size <= available:
        raise ValueError(
            f"size must lie between {classes:,} (one of each class) and {available:,} "
            f"(the whole split), got {size:,}."
        )
    return size
