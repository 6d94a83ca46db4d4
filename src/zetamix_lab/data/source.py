"""A dataset as a reader finds it, before decoding: for every split its labels and its samples."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from zetamix_lab.progress import Progress as Progress

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = npt.NDArray[np.int64]

BLOCK_BYTES = 1 << 24


class Block(NamedTuple):
    """Consecutive samples starting at row `first`, without the rows listed in `broken`."""

    first: int
    samples: Array
    broken: Mapping[int, str]
    keys: Sequence[bytes] | None = None
    """The `digest` of every sample, where the threads that decode have computed it."""


class ReadBlocks(Protocol):
    """Reads the samples of a split in order, all or those of some rows."""

    def __call__(self, rows: Rows | None = None, /) -> Iterator[Block]: ...


@dataclass(frozen=True)
class Part:
    """One split: its labels, and an iterator over blocks of its samples."""

    labels: npt.NDArray[np.int64]
    """Classes [n]; in a multi-label set a 0/1 matrix [n, classes]."""
    blocks: ReadBlocks
    """Called once per pass."""
    names: Sequence[str] | None = None
    """The file of every sample, if samples are files."""
    groups: Sequence[str] | None = None
    """The patient or lesion of every sample, if `group` is given."""

    def __len__(self) -> int:
        return len(self.labels)

    def keep(self, rows: Rows) -> "Part":
        """The part with only these rows of this one, in ascending order."""

        def blocks(inner: Rows | None = None) -> Iterator[Block]:
            return self.blocks(rows if inner is None else rows[inner])

        names, groups = (
            None if values is None else [values[row] for row in rows.tolist()]
            for values in (self.names, self.groups)
        )
        return Part(self.labels[rows], blocks, names, groups)


@dataclass(frozen=True)
class Source:
    """A dataset on disk, not decoded yet."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Shape of one prepared sample."""
    dtype: str
    """uint8 for images of bytes; float32 for images of floating point, and for points."""
    parts: Mapping[str, Part]
    origin: str
    """A description of where the samples come from."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    @property
    def multi_label(self) -> bool:
        """Whether a sample may have any number of labels, instead of one class."""
        return self.parts["train"].labels.ndim == 2

    def label_name(self, split: str, row: int) -> str:
        """The class of a sample, or its labels."""
        label = self.parts[split].labels[row]
        if not self.multi_label:
            return self.classes[int(label)]
        return " + ".join(self.classes[k] for k in np.flatnonzero(label)) or "no label"


def array_part(
    labels: Array, samples: Array, change: Callable[[Array], Array] | None = None
) -> Part:
    """A split whose samples are the rows of one array, changed block by block."""

    def blocks(rows: Rows | None = None) -> Iterator[Block]:
        step = max(1, BLOCK_BYTES // max(1, samples[:1].nbytes))
        for first in range(0, len(labels if rows is None else rows), step):
            chosen = slice(first, first + step)
            block = samples[chosen if rows is None else rows[chosen]]
            block = block if change is None else change(block)
            yield Block(first, np.ascontiguousarray(block), {})

    return Part(np.asarray(labels, np.int64), blocks)


def read_matrices(labels: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The labels of every split, and a note about 0/1 matrices [n, classes] among them.

    Matrices with exactly one 1 in every row become classes [n].

    >>> read_matrices({"train": np.array([[0, 1], [1, 0]])})
    ({'train': array([1, 0])}, ('labels are one-hot: read as 2 classes',))
    """
    count = labels["train"].shape[-1]
    if any(matrix.ndim != 2 or matrix.shape[1] != count for matrix in labels.values()):
        return dict(labels), ()
    if all((matrix.sum(1) == 1).all() for matrix in labels.values()):
        classes = {split: matrix.argmax(1) for split, matrix in labels.items()}
        return classes, (f"labels are one-hot: read as {count} classes",)
    return dict(labels), (f"multi-label: every sample has any number of {count} labels",)


def resolve_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    """The data folder: `data_dir`, else $ZETAMIX_DATA, else ~/.cache/zetamix."""
    chosen = data_dir or os.environ.get("ZETAMIX_DATA") or "~/.cache/zetamix"
    return Path(chosen).expanduser().absolute()
