"""Data-quality checks: duplicates across splits, conflicting labels, missing classes, counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zetamix_lab.data.source import Block, Progress, Source, digest
from zetamix_lab.text import plural

KEEP_ONE = "Keep one sample of each group."
# notes that begin like this make scores doubtful: reports repeat them next to the verdict
CAUTIONS = (
    "Duplicates across splits",
    "Groups across splits",
    "Conflicting labels",
    "Classes missing",
)


@dataclass(frozen=True, order=True)
class Sample:
    """One sample: its split, its row there, its file ("" for arrays), its class."""

    split: str
    row: int
    name: str
    label: str

    def __str__(self) -> str:
        return f"{self.split} {self.name or f'row {self.row}'} ({self.label})"


@dataclass(frozen=True)
class SharedGroup:
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
    unreadable: tuple[str, ...]
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
        """No problems and no unreadable files; duplicates in one split and class are allowed."""
        return not (self.problems or self.unreadable)

    def as_dict(self) -> dict[str, Any]:
        """Everything, in full, for JSON."""
        counts = [
            {"split": split, "label": label, "size": size}
            for split, sizes in self.counts.items()
            for label, size in zip(self.classes, sizes, strict=True)
        ]
        return {**asdict(self), "ok": self.ok, "counts": counts}

    @property
    def leaks(self) -> int:
        """Groups of duplicates that occur in more than one split."""
        return count_differing(self.duplicates, "split")

    @property
    def conflicts(self) -> int:
        """Groups of duplicates with different labels."""
        return count_differing(self.duplicates, "label")


class Scan:
    """Reads a source block by block; finds duplicates and unreadable files on the way."""

    def __init__(self, source: Source, activity: str, progress: Progress | None) -> None:
        self.source, self.activity, self.progress = source, activity, progress
        self.unreadable: list[str] = []
        self.keys: dict[int, bytes] = {}
        """The digest of every row that could be read."""

    def blocks(self, split: str) -> Iterator[Block]:
        rows = self.source.rows[split]
        for block in self.source.read(rows):
            end = block.first + len(block.samples) + len(block.broken)
            places = [place for place in range(block.first, end) if place not in block.broken]
            self.unreadable += block.broken.values()
            keys = map(digest, block.samples) if block.keys is None else block.keys
            self.keys |= zip(rows[places].tolist(), keys, strict=True)
            if self.progress is not None:
                done = len(self.keys) + len(self.unreadable)
                self.progress(self.activity, done, len(self.source.labels))
            yield block

    def duplicates(self) -> tuple[tuple[Sample, ...], ...]:
        """Groups of two or more: those across splits first, then those with other labels."""
        by_key: dict[bytes, list[int]] = {}
        for row, key in self.keys.items():
            by_key.setdefault(key, []).append(row)
        source, rows = self.source, self.source.rows

        def describe(row: int) -> Sample:
            split = source.splits[row]
            name = "" if source.names is None else source.names[row]
            place = int(np.searchsorted(rows[split], row))
            return Sample(split, place, name, source.label_name(row))

        def rank(group: Sequence[Sample]) -> tuple[object, ...]:
            return *(-count_differing([group], field) for field in ("split", "label")), group

        groups = [tuple(map(describe, same)) for same in by_key.values() if len(same) > 1]
        return tuple(sorted(groups, key=rank))


def count_differing(groups: Sequence[Sequence[Sample]], field: str) -> int:
    """The number of groups whose samples differ in this field."""
    return sum(len({getattr(sample, field) for sample in group}) > 1 for group in groups)


def check_source(source: Source, progress: Progress | None) -> Report:
    """Read every sample of a source."""
    scan = Scan(source, "checking", progress)
    for split in source.rows:
        for _ in scan.blocks(split):
            pass
    duplicates, shared = scan.duplicates(), find_shared_groups(source)
    doubts = describe_doubts(duplicates, shared).items()
    return Report(
        name=source.name,
        origin=source.origin,
        sizes={split: len(rows) for split, rows in source.rows.items()},
        counts=source.counts(),
        classes=source.classes,
        unreadable=tuple(scan.unreadable),
        duplicates=duplicates,
        shared_groups=shared,
        problems=(
            *(f"{problem}." for problem in missing_classes(source)),
            *(f"{problem}. {advice}" for problem, advice in doubts),
        ),
        notes=source.notes,
    )


def describe_doubts(
    duplicates: Sequence[Sequence[Sample]], shared: Sequence[SharedGroup]
) -> dict[str, str]:
    """What duplicates and shared groups make doubtful, as clauses, and what to do about it."""
    across, conflicting = (count_differing(duplicates, field) for field in ("split", "label"))
    doubts = {}
    if across:
        doubts[
            f"Duplicates across splits: {plural(across, 'group')} of identical samples in more "
            "than one split, so scores are measured partly on training samples"
        ] = KEEP_ONE
    if conflicting:
        doubts[
            f"Conflicting labels: {plural(conflicting, 'group')} of identical samples with "
            "different classes, of which at most one is correct"
        ] = KEEP_ONE
    if shared:
        doubts[
            f"Groups across splits: {plural(len(shared), 'group')} in more than one split, so "
            "scores are measured partly on patients or lesions that were seen in training"
        ] = "Move each into one split, or remove the splits: they are then created by group."
    return doubts


def find_shared_groups(source: Source) -> tuple[SharedGroup, ...]:
    """Groups with samples in more than one split, the largest first."""
    counts: dict[str, dict[str, int]] = {}
    for split, group in zip(source.splits, source.groups or (), strict=source.groups is not None):
        sizes = counts.setdefault(group, {})
        sizes[split] = sizes.get(split, 0) + 1
    shared = [SharedGroup(name, sizes) for name, sizes in counts.items() if len(sizes) > 1]
    return tuple(sorted(shared, key=lambda group: (-sum(group.samples.values()), group.name)))


def missing_classes(source: Source) -> list[str]:
    """One clause for each split without any sample of some class; readers check `train`."""
    clauses = []
    for split, counts in source.counts().items():
        absent = [name for name, count in zip(source.classes, counts, strict=True) if not count]
        if absent:
            names = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if absent[3:] else "")
            clauses.append(
                f"Classes missing from {split}: no sample of {names}, so its scores do not cover "
                f"{'it' if len(absent) == 1 else 'them'}"
            )
    return clauses
