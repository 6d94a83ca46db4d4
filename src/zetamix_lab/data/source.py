"""A dataset before decoding: labels, splits, how samples are read; and what is wrong with it."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zetamix_lab.data.errors import DataError
from zetamix_lab.progress import Progress as Progress
from zetamix_lab.text import plural

Array: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = npt.NDArray[np.int64]

SPLITS = ("train", "val", "test")
BLOCK_BYTES = 1 << 24
Sample: TypeAlias = dict[str, Any]
"""The split of a sample, its row there, the name of its file ("" for arrays), its label."""

# notes that begin like this make scores doubtful: reports repeat them next to the verdict
CAUTIONS = (
    "Duplicates across splits",
    "Groups across splits",
    "Conflicting labels",
    "Classes missing",
)


class Block(NamedTuple):
    """Decoded samples of consecutive rows."""

    rows: Rows
    """Those that could be read."""
    samples: Array
    broken: Sequence[str] = ()
    """A line for every row that could not be read."""


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
    """Reads rows of one split, which ascend, block by block."""
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
        return {
            split: count_labels(torch.from_numpy(self.labels[rows]), len(self.classes)).tolist()
            for split, rows in self.rows.items()
        }


def count_labels(labels: Tensor, classes: int) -> Tensor:
    """[classes], int64: samples of each class; of a 0/1 matrix, those with each label."""
    if labels.ndim == 2:
        return (labels > 0).sum(0)
    return torch.bincount(labels, minlength=classes)


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
            yield Block(rows[first : first + step], block)

    return read


def digest(content: bytes | Array) -> bytes:
    """A hash that is equal for the same bytes, or for samples with identical pixels."""
    plain = content if isinstance(content, bytes) else np.ascontiguousarray(content).data
    return hashlib.blake2b(plain, digest_size=16).digest()


@dataclass(frozen=True)
class Report:
    """The result of `check`."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    counts: Mapping[str, Mapping[str, int]]
    """Samples of each class, or with each label, by split."""
    unreadable: tuple[str, ...]
    """One line for each file that cannot be read."""
    duplicates: Sequence[Sequence[Sample]]
    """Groups of samples with identical pixels."""
    shared_groups: Mapping[str, Sequence[str]]
    """Groups, such as patients, in more than one split, and these splits."""
    problems: tuple[str, ...]
    """Sentences; each one makes the dataset invalid as it is."""
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No problems and no unreadable files; duplicates in one split and class are allowed."""
        return not (self.problems or self.unreadable)


class Scan:
    """Reads a source block by block; finds duplicates and unreadable files on the way."""

    def __init__(self, source: Source, activity: str, progress: Progress | None) -> None:
        self.source, self.activity, self.progress = source, activity, progress
        self.unreadable: list[str] = []
        self.keys: dict[int, bytes] = {}
        """The digest of every row that could be read."""

    def blocks(self, split: str) -> Iterator[Block]:
        for block in self.source.read(self.source.rows[split]):
            self.unreadable += block.broken
            self.keys |= zip(block.rows.tolist(), map(digest, block.samples), strict=True)
            if self.progress is not None:
                done = len(self.keys) + len(self.unreadable)
                self.progress(self.activity, done, len(self.source.labels))
            yield block

    def duplicates(self) -> list[list[Sample]]:
        """Groups of two or more: those across splits first, then those with other labels."""
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for row, key in self.keys.items():
            by_key[key].append(row)
        source, rows = self.source, self.source.rows

        def describe(row: int) -> Sample:
            split, name = source.splits[row], "" if source.names is None else source.names[row]
            place, label = int(rows[split].searchsorted(row)), source.label_name(row)
            return {"split": split, "row": place, "name": name, "label": label}

        groups = [list(map(describe, same)) for same in by_key.values() if len(same) > 1]
        return sorted(groups, key=lambda group: [-differ(group, "split"), -differ(group, "label")])


def differ(group: Sequence[Sample], field: str) -> bool:
    """Whether the samples of a group differ in this field."""
    return len({sample[field] for sample in group}) > 1


def check_source(source: Source, progress: Progress | None, problems: Sequence[str] = ()) -> Report:
    """Read every sample of a source, in which these problems are known."""
    scan = Scan(source, "checking", progress)
    for split in source.rows:
        for _ in scan.blocks(split):
            pass
    duplicates = scan.duplicates()
    return Report(
        name=source.name,
        origin=source.origin,
        sizes={split: len(rows) for split, rows in source.rows.items()},
        counts={
            split: dict(zip(source.classes, counts, strict=True))
            for split, counts in source.counts().items()
        },
        unreadable=tuple(scan.unreadable),
        duplicates=duplicates,
        shared_groups=find_shared_groups(source),
        problems=(
            *problems,
            *(f"{doubt}. {advice}" for doubt, advice in find_doubts(source, duplicates).items()),
        ),
        notes=source.notes,
    )


def find_doubts(source: Source, duplicates: Sequence[Sequence[Sample]]) -> dict[str, str]:
    """What makes scores of a dataset doubtful, as clauses, and what to do about it."""
    across, conflicting = (
        sum(differ(group, field) for group in duplicates) for field in ("split", "label")
    )
    shared, keep_one = len(find_shared_groups(source)), "Keep one sample of each group."
    doubts = {
        f"Duplicates across splits: {plural(across, 'group')} of identical samples in more than "
        "one split, so scores are measured partly on training samples": (across, keep_one),
        f"Conflicting labels: {plural(conflicting, 'group')} of identical samples with different "
        "classes, of which at most one is correct": (conflicting, keep_one),
        f"Groups across splits: {plural(shared, 'group')} in more than one split, so scores are "
        "measured partly on patients or lesions that were seen in training": (
            shared,
            "Move each into one split, or remove the splits: they are then created by group.",
        ),
    }
    # of train, readers have checked it
    for split, counts in source.counts().items():
        absent = [name for name, count in zip(source.classes, counts, strict=True) if not count]
        names = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if absent[3:] else "")
        doubts[
            f"Classes missing from {split}: no sample of {names}, so its scores do not cover "
            f"{'it' if len(absent) == 1 else 'them'}"
        ] = len(absent), "Add some, or remove the split: one is then created."
    return {clause: advice for clause, (count, advice) in doubts.items() if count}


def find_shared_groups(source: Source) -> dict[str, list[str]]:
    """Groups in more than one split, and these splits."""
    splits_of: dict[str, set[str]] = defaultdict(set)
    for split, group in zip(source.splits, source.groups or (), strict=source.groups is not None):
        splits_of[group] |= {split} - {""}
    return {name: sorted(splits) for name, splits in sorted(splits_of.items()) if len(splits) > 1}


def resolve_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    """The data folder: `data_dir`, else $ZETAMIX_DATA, else ~/.cache/zetamix."""
    chosen = Path(data_dir or os.environ.get("ZETAMIX_DATA") or "~/.cache/zetamix")
    try:
        return chosen.expanduser().absolute()
    except RuntimeError:
        raise DataError(f"{chosen}: there is no such user. Choose another folder.") from None
