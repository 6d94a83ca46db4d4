"""A dataset before decoding: the label and split of every sample, and how samples are read."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from zetamix_lab.data.errors import DataError
from zetamix_lab.progress import Progress as Progress

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = npt.NDArray[np.int64]

SPLITS = ("train", "val", "test")
BLOCK_BYTES = 1 << 24


class Block(NamedTuple):
    """Consecutive samples starting at position `first`, without the positions in `broken`."""

    first: int
    samples: Array
    broken: Mapping[int, str]
    keys: Sequence[bytes]
    """The `digest` of every sample."""


@dataclass(frozen=True)
class Source:
    """A dataset on disk, not decoded yet: one row for every sample."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Shape of one prepared sample."""
    dtype: str
    """uint8 for images of bytes; float32 for images of floating point, and for points."""
    labels: Array
    """Classes [n]; in a multi-label set a 0/1 matrix [n, classes]."""
    splits: Array
    """[n]: the split of every row."""
    read: Callable[[Rows], Iterator[Block]]
    """Reads rows of one split, which ascend; positions of blocks are those in the given rows."""
    origin: str
    """A description of where the samples come from."""
    names: Sequence[str] | None = None
    """The file of every sample, if samples are files."""
    groups: Sequence[str] | None = None
    """The patient or lesion of every sample, if `group` is given."""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, Rows]:
        """The rows of each split that exists."""
        found = {split: np.flatnonzero(self.splits == split) for split in SPLITS}
        return {split: rows for split, rows in found.items() if len(rows)}

    @property
    def multi_label(self) -> bool:
        """Whether a sample may have any number of labels, instead of one class."""
        return self.labels.ndim == 2

    def label_name(self, row: int) -> str:
        """The class of a sample, or its labels."""
        label = self.labels[row]
        if not self.multi_label:
            return self.classes[int(label)]
        return " + ".join(self.classes[k] for k in np.flatnonzero(label)) or "no label"

    def counts(self) -> dict[str, list[int]]:
        """Samples of each class, or with each label, by split."""
        labels = {split: self.labels[rows] for split, rows in self.rows.items()}
        if self.multi_label:
            return {split: some.sum(0).tolist() for split, some in labels.items()}
        count = len(self.classes)
        return {split: np.bincount(some, None, count).tolist() for split, some in labels.items()}

    def keep(self, rows: Rows) -> "Source":
        """The source with only these rows, in ascending order."""
        names, groups = (
            None if values is None else [values[row] for row in rows.tolist()]
            for values in (self.names, self.groups)
        )
        return replace(
            self,
            labels=self.labels[rows],
            splits=self.splits[rows],
            read=lambda inner: self.read(rows[inner]),
            names=names,
            groups=groups,
        )


def array_source(
    name: str,
    classes: Sequence[str],
    parts: Mapping[str, tuple[Array, Array]],
    origin: str,
) -> Source:
    """A source of arrays in memory: samples and labels by split."""
    samples = [samples for samples, _ in parts.values()]
    sizes = list(map(len, samples))
    return Source(
        name=name,
        classes=tuple(classes),
        shape=samples[0].shape[1:],
        dtype=str(samples[0].dtype),
        labels=np.concatenate([np.asarray(labels, np.int64) for _, labels in parts.values()]),
        splits=np.repeat(np.array(list(parts), dtype=object), sizes),
        read=read_arrays(samples),
        origin=origin,
    )


def read_arrays(arrays: Sequence[Array]) -> Callable[[Rows], Iterator[Block]]:
    """Reads rows of arrays that follow each other, block by block.

    The rows of one call belong to one array: arrays of splits are not copied to join them.
    """
    ends = np.cumsum([len(array) for array in arrays])

    def read(rows: Rows) -> Iterator[Block]:
        which = int(np.searchsorted(ends, rows[0], side="right")) if len(rows) else 0
        array, start = arrays[which], int(ends[which]) - len(arrays[which])
        step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
        for first in range(0, len(rows), step):
            block = np.ascontiguousarray(array[rows[first : first + step] - start])
            yield Block(first, block, {}, list(map(digest, block)))

    return read


def digest(content: bytes | Array) -> bytes:
    """A hash that is equal for the same bytes, or for samples with identical pixels."""
    plain = content if isinstance(content, bytes) else np.ascontiguousarray(content).data
    return hashlib.blake2b(plain, digest_size=16).digest()


def resolve_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    """The data folder: `data_dir`, else $ZETAMIX_DATA, else ~/.cache/zetamix."""
    chosen = Path(data_dir or os.environ.get("ZETAMIX_DATA") or "~/.cache/zetamix")
    try:
        return chosen.expanduser().absolute()
    except RuntimeError:
        raise DataError(f"{chosen}: there is no such user. Choose another folder.") from None
