"""Data-quality checks: duplicates across splits, conflicting labels, missing classes, counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.source import Block, Progress, Source
from zetamix.data.splits import SPLITS, digest
from zetamix.text import plural


class ClassCount(NamedTuple):
    """Samples of a class in a split; split "all" is the sum of splits that zetamix creates."""

    split: str
    label: str
    size: int
    expected: int | None

    @property
    def differs(self) -> bool:
        return self.expected is not None and self.size != self.expected


class Sample(NamedTuple):
    """One sample: its split, its row there, its file ("" for arrays), its class."""

    split: str
    row: int
    name: str
    label: str

    def __str__(self) -> str:
        return f"{self.split} {self.name or f'row {self.row}'} ({self.label})"


@dataclass(frozen=True)
class Report:
    """The result of `check`."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    expected_sizes: Mapping[str, int]
    counts: tuple[ClassCount, ...]
    corrupt: tuple[str, ...]
    """One line for each file that cannot be read."""
    duplicates: tuple[tuple[Sample, ...], ...]
    """Groups of samples with identical pixels."""
    problems: tuple[str, ...]
    """Sentences; each one makes the dataset invalid as it is."""
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No problems and no corrupt files; duplicates within one split and class are allowed."""
        return not (self.problems or self.corrupt)

    @property
    def leaks(self) -> int:
        """Groups of duplicates that occur in more than one split."""
        return sum(map(leaks, self.duplicates))

    @property
    def conflicts(self) -> int:
        """Groups of duplicates with different labels."""
        return sum(map(conflicts, self.duplicates))


class DuplicateFinder:
    """Groups identical samples while a source is read block by block."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._first: dict[bytes, Sample] = {}
        self._groups: dict[bytes, list[Sample]] = {}

    def add(self, split: str, block: Block) -> None:
        part = self._source.parts[split]
        size = len(block.samples) + len(block.broken)
        rows = (row for row in range(block.first, block.first + size) if row not in block.broken)
        for row, pixels in zip(rows, block.samples, strict=True):
            name = part.names[row] if part.names is not None else ""
            sample = Sample(split, row, name, self._source.classes[int(part.labels[row])])
            key = digest(pixels)
            first = self._first.setdefault(key, sample)
            if first is not sample:
                self._groups.setdefault(key, [first]).append(sample)

    def groups(self) -> tuple[tuple[Sample, ...], ...]:
        """All groups of two or more: those across splits first, then those with other labels."""
        found = map(tuple, self._groups.values())
        return tuple(
            sorted(found, key=lambda group: (not leaks(group), not conflicts(group), group[0]))
        )


def leaks(group: Sequence[Sample]) -> bool:
    return len({sample.split for sample in group}) > 1


def conflicts(group: Sequence[Sample]) -> bool:
    return len({sample.label for sample in group}) > 1


def check_source(source: Source, spec: DatasetSpec | None, progress: Progress | None) -> Report:
    """Read every sample of a source and compare with the catalogue's entry, if there is one."""
    finder = DuplicateFinder(source)
    corrupt: list[str] = []
    done = 0
    for split, part in source.parts.items():
        for block in part.blocks():
            corrupt += block.broken.values()
            finder.add(split, block)
            done += len(block.samples) + len(block.broken)
            if progress is not None:
                progress("checking", done, len(source))
    duplicates = finder.groups()
    counts = _count_classes(source, spec)
    problems = [] if spec is None else _differences(source, spec, counts)
    if spec is None:
        # the classes of a published dataset are as they were published
        problems += [f"{problem}." for problem in missing_classes(source)]
    for problem, scope in duplicate_problems(duplicates).items():
        problems.append(f"{problem}. {_advice(spec, scope)}")
    return Report(
        name=source.name,
        origin=source.origin,
        sizes={split: len(part) for split, part in source.parts.items()},
        expected_sizes=spec.sizes if spec is not None else {},
        counts=counts,
        corrupt=tuple(corrupt),
        duplicates=duplicates,
        problems=tuple(problems),
        notes=source.notes,
    )


def duplicate_problems(groups: Sequence[Sequence[Sample]]) -> dict[str, str]:
    """Problems caused by duplicates, with the scope in which to keep one sample of each group."""
    across, conflicting = sum(map(leaks, groups)), sum(map(conflicts, groups))
    problems = {}
    if across:
        occur = "occurs" if across == 1 else "occur"
        problems[
            f"Duplicates across splits: {plural(across, 'group')} of identical samples {occur} in "
            "more than one split, so scores are measured partly on training samples"
        ] = "split"
    if conflicting:
        have = "has" if conflicting == 1 else "have"
        problems[
            f"Conflicting labels: {plural(conflicting, 'group')} of identical samples {have} "
            "different classes, of which at most one is correct"
        ] = "class"
    return problems


def missing_classes(source: Source) -> list[str]:
    """One clause for each split without any sample of some class; readers check `train`."""
    clauses = []
    for split, part in source.parts.items():
        absent = [
            name for label, name in enumerate(source.classes) if not (part.labels == label).any()
        ]
        if absent and len(part):
            names = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if absent[3:] else "")
            clauses.append(
                f"Classes missing from {split}: no sample of {names}, so its scores do not cover "
                f"{'it' if len(absent) == 1 else 'them'}"
            )
    return clauses


def _advice(spec: DatasetSpec | None, scope: str) -> str:
    if spec is None:
        return f"Keep one sample of each group, in one {scope}."
    return (
        f"If {spec.title} is published like this, leave it unchanged to stay comparable with other "
        "results, and mention it beside yours."
    )


def _count_classes(source: Source, spec: DatasetSpec | None) -> tuple[ClassCount, ...]:
    labels = {split: part.labels for split, part in source.parts.items()}
    expected = dict(spec.counts) if spec is not None else {}
    if "all" in expected:
        labels["all"] = np.concatenate(list(labels.values()))
    counts = []
    for split in (*SPLITS, "all"):
        if split in labels:
            sizes = np.bincount(labels[split], minlength=len(source.classes)).tolist()
            wanted = expected.get(split, (None,) * len(sizes))
            counts += [
                ClassCount(split, *row) for row in zip(source.classes, sizes, wanted, strict=True)
            ]
    return tuple(counts)


def _differences(source: Source, spec: DatasetSpec, counts: Sequence[ClassCount]) -> list[str]:
    """Sizes and class counts that differ from the catalogue's."""
    if not spec.fixed_size:
        return []
    sizes = [
        f"{split} has {plural(len(part), 'sample')}; expected {spec.sizes.get(split, 0):,}."
        for split, part in source.parts.items()
        if len(part) != spec.sizes.get(split, 0)
    ]
    return sizes + [
        f"{count.label} has {plural(count.size, 'sample')} in {count.split}; expected "
        f"{count.expected:,}."
        for count in counts
        if count.differs
    ]
