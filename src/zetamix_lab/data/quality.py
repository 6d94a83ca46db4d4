"""Data-quality checks: duplicates across splits, conflicting labels, missing classes, counts."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from zetamix_lab.data.source import Block, Progress, Source
from zetamix_lab.text import plural

Sample: TypeAlias = dict[str, Any]
"""The split of a sample, its row there, the name of its file ("" for arrays), its label."""

# notes that begin like this make scores doubtful: reports repeat them next to the verdict
CAUTIONS = (
    "Duplicates across splits",
    "Groups across splits",
    "Conflicting labels",
    "Classes missing",
)


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
        rows = self.source.rows[split]
        for block in self.source.read(rows):
            end = block.first + len(block.samples) + len(block.broken)
            places = [place for place in range(block.first, end) if place not in block.broken]
            self.unreadable += block.broken.values()
            self.keys |= zip(rows[places].tolist(), block.keys, strict=True)
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


def check_source(source: Source, progress: Progress | None) -> Report:
    """Read every sample of a source."""
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
        problems=tuple(
            f"{doubt}. {advice}" for doubt, advice in find_doubts(source, duplicates).items()
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
