"""Data-quality checks: duplicates across splits, conflicting labels, missing classes, counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from zetamix_lab.data.source import Block, Progress, Source
from zetamix_lab.data.splits import count_labels, digest
from zetamix_lab.text import plural

KEEP_ONE = "Keep one sample of each group."
REGROUP = "Move each group into one split, or remove the splits: they are then created by group."
# notes that begin like this make scores doubtful: reports repeat them next to the verdict
CAUTIONS = (
    "Duplicates across splits",
    "Groups across splits",
    "Conflicting labels",
    "Classes missing",
)


class Sample(NamedTuple):
    """One sample: its split, its row there, its file ("" for arrays), its class."""

    split: str
    row: int
    name: str
    label: str

    def __str__(self) -> str:
        return f"{self.split} {self.name or f'row {self.row}'} ({self.label})"


class SharedGroup(NamedTuple):
    """A group in more than one split: its name, and how many samples each split has of it."""

    name: str
    samples: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(f'{n:,} in {split}' for split, n in self.samples.items())}"


@dataclass(frozen=True)
class Report:
    """The result of `check`."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    classes: tuple[str, ...]
    counts: Mapping[str, list[int]]
    """Samples of each class, or with each label, by split."""
    corrupt: tuple[str, ...]
    """One line for each file that cannot be read."""
    duplicates: tuple[tuple[Sample, ...], ...]
    """Groups of samples with identical pixels."""
    shared_groups: tuple[SharedGroup, ...]
    """Groups, such as patients, with samples in more than one split."""
    problems: tuple[str, ...]
    """Sentences; each one makes the dataset invalid as it is."""
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No problems and no corrupt files; duplicates within one split and class are allowed."""
        return not (self.problems or self.corrupt)

    def as_dict(self) -> dict[str, Any]:
        """Everything, in full, for JSON."""
        return {
            "name": self.name,
            "origin": self.origin,
            "ok": self.ok,
            "problems": list(self.problems),
            "unreadable": list(self.corrupt),
            "sizes": dict(self.sizes),
            "counts": [
                {"split": split, "label": label, "size": size}
                for split, sizes in self.counts.items()
                for label, size in zip(self.classes, sizes, strict=True)
            ],
            "duplicates": [[sample._asdict() for sample in group] for group in self.duplicates],
            "shared_groups": [group._asdict() for group in self.shared_groups],
            "notes": list(self.notes),
        }

    @property
    def leaks(self) -> int:
        """Groups of duplicates that occur in more than one split."""
        return sum(map(_leaks, self.duplicates))

    @property
    def conflicts(self) -> int:
        """Groups of duplicates with different labels."""
        return sum(map(_conflicts, self.duplicates))


class Scan:
    """Reads a source block by block; finds duplicates and unreadable files on the way."""

    def __init__(self, source: Source, activity: str, progress: Progress | None) -> None:
        self.source, self.activity, self.progress = source, activity, progress
        self.done = 0
        self.corrupt: list[str] = []
        self.readable: list[int] = []
        """The rows that could be read."""
        self._first: dict[bytes, Sample] = {}
        self._groups: dict[bytes, list[Sample]] = {}

    def blocks(self, split: str) -> Iterator[Block]:
        source, rows = self.source, self.source.rows[split]
        for block in source.read(rows):
            end = block.first + len(block.samples) + len(block.broken)
            places = [place for place in range(block.first, end) if place not in block.broken]
            self.corrupt += block.broken.values()
            self.readable += rows[places].tolist()
            keys = map(digest, block.samples) if block.keys is None else block.keys
            for place, key in zip(places, keys, strict=True):
                row = int(rows[place])
                name = source.names[row] if source.names is not None else ""
                sample = Sample(split, place, name, source.label_name(row))
                first = self._first.setdefault(key, sample)
                if first is not sample:
                    self._groups.setdefault(key, [first]).append(sample)
            self.done += end - block.first
            if self.progress is not None:
                self.progress(self.activity, self.done, len(source.labels))
            yield block

    def duplicates(self) -> tuple[tuple[Sample, ...], ...]:
        """Groups of two or more: those across splits first, then those with other labels."""
        return tuple(
            sorted(
                map(tuple, self._groups.values()),
                key=lambda group: (not _leaks(group), not _conflicts(group), group),
            )
        )


def _leaks(group: Sequence[Sample]) -> bool:
    return len({sample.split for sample in group}) > 1


def _conflicts(group: Sequence[Sample]) -> bool:
    return len({sample.label for sample in group}) > 1


def check_source(source: Source, progress: Progress | None) -> Report:
    """Read every sample of a source."""
    scan = Scan(source, "checking", progress)
    for split in source.rows:
        for _ in scan.blocks(split):
            pass
    duplicates, shared = scan.duplicates(), find_shared_groups(source)
    return Report(
        name=source.name,
        origin=source.origin,
        sizes={split: len(rows) for split, rows in source.rows.items()},
        counts=count_classes(source),
        classes=source.classes,
        corrupt=tuple(scan.corrupt),
        duplicates=duplicates,
        shared_groups=shared,
        problems=(
            *(f"{problem}." for problem in missing_classes(source)),
            *(f"{problem}. {KEEP_ONE}" for problem in duplicate_problems(duplicates)),
            *(f"{problem}. {REGROUP}" for problem in group_problems(shared)),
        ),
        notes=source.notes,
    )


def duplicate_problems(groups: Sequence[Sequence[Sample]]) -> list[str]:
    """Problems caused by duplicates, one clause each."""
    across, conflicting = sum(map(_leaks, groups)), sum(map(_conflicts, groups))
    problems = []
    if across:
        problems.append(
            f"Duplicates across splits: {plural(across, 'group')} of identical samples in more "
            "than one split, so scores are measured partly on training samples"
        )
    if conflicting:
        problems.append(
            f"Conflicting labels: {plural(conflicting, 'group')} of identical samples with "
            "different classes, of which at most one is correct"
        )
    return problems


def find_shared_groups(source: Source) -> tuple[SharedGroup, ...]:
    """Groups with samples in more than one split, the largest first."""
    counts: dict[str, dict[str, int]] = {}
    for split, group in zip(source.splits, source.groups or (), strict=source.groups is not None):
        sizes = counts.setdefault(group, {})
        sizes[split] = sizes.get(split, 0) + 1
    shared = [SharedGroup(name, sizes) for name, sizes in counts.items() if len(sizes) > 1]
    return tuple(sorted(shared, key=lambda group: (-sum(group.samples.values()), group.name)))


def group_problems(shared: Sequence[SharedGroup]) -> list[str]:
    """The problem of groups in more than one split, as a clause."""
    if not shared:
        return []
    return [
        f"Groups across splits: {plural(len(shared), 'group')} in more than one split, so scores "
        "are measured partly on patients or lesions that were seen in training"
    ]


def count_classes(source: Source) -> dict[str, list[int]]:
    """Samples of each class, or with each label, by split."""
    labels = torch.from_numpy(source.labels)
    return {
        split: count_labels(labels[rows], len(source.classes)).tolist()
        for split, rows in source.rows.items()
    }


def missing_classes(source: Source) -> list[str]:
    """One clause for each split without any sample of some class; readers check `train`."""
    clauses = []
    for split, counts in count_classes(source).items():
        absent = [name for name, count in zip(source.classes, counts, strict=True) if not count]
        if absent:
            names = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if absent[3:] else "")
            clauses.append(
                f"Classes missing from {split}: no sample of {names}, so its scores do not cover "
                f"{'it' if len(absent) == 1 else 'them'}"
            )
    return clauses
