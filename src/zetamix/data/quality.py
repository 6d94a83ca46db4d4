"""Looking at every sample of a dataset: counts, broken files, duplicates, checksums."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from zetamix.data import cache
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.dataset import SPLITS, Dataset, Split
from zetamix.data.errors import DataError, DatasetNotFoundError, in_lines
from zetamix.data.flaws import digest, harm, lacking
from zetamix.data.loading import DataDir, Request, What, draw, find
from zetamix.data.source import Block, Part, Progress, Source
from zetamix.text import plural


class Count(NamedTuple):
    """How many samples of a class a split has; "all" is the sum of splits that are ours."""

    split: str
    label: str
    found: int
    expected: int | None

    @property
    def differs(self) -> bool:
        return self.expected is not None and self.found != self.expected


class Place(NamedTuple):
    """Where a sample is: its split, its row there, its file if it had one, its class."""

    split: str
    row: int
    name: str
    label: str

    def __str__(self) -> str:
        return f"{self.split} {self.name or f'row {self.row}'} ({self.label})"


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    expected_sizes: Mapping[str, int]
    counts: tuple[Count, ...]
    corrupt: tuple[str, ...]
    """A line for each file that cannot be read."""
    duplicates: tuple[tuple[Place, ...], ...]
    """Groups of samples that are the same in every pixel."""
    problems: tuple[str, ...]
    """What makes the dataset unfit as it is, in sentences."""
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing is wrong; duplicates in one split and class are not."""
        return not (self.problems or self.corrupt)

    @property
    def leaks(self) -> int:
        """Groups of duplicates that are in more than one split."""
        return sum(map(_leaks, self.duplicates))

    @property
    def contradictions(self) -> int:
        """Groups of duplicates that have different classes."""
        return sum(map(_contradicts, self.duplicates))


def check(
    what: What,
    data_dir: DataDir = None,
    seed: int = 0,
    size: int | None = None,
    *,
    progress: Progress | None = None,
) -> Report:
    """Read every sample and compare with what is expected; all that is wrong is found in one pass.

    Wrong are: images that cannot be read, identical images in more than one split or with different
    classes, counts other than expected, classes that are too small to split or missing in a split,
    rows of a table that will not do, prepared data that is damaged.

    Looks at the files where they are here, and at the prepared data where it is. Nothing is
    downloaded; archives that are here are unpacked.

    >>> report = check("crescents")
    >>> report.ok, report.sizes
    (True, {'train': 512, 'test': 512})
    """
    problems: list[str] = []
    try:
        request = find(what, data_dir, seed, size, problems.extend)
        source, damage = _source(request, progress)
        corrupt, places = _scan(source, progress)
    except DataError as error:
        if not problems:
            raise
        raise DataError(in_lines([*problems, str(error)])) from None
    groups = [tuple(group) for group in places.values() if len(group) > 1]
    groups.sort(key=lambda group: (not _leaks(group), not _contradicts(group), group[0]))
    sizes = {split: len(part) for split, part in source.parts.items()}
    counts = _counts(request.spec, source)
    problems += [*damage, *_differences(request.spec, sizes, counts)]
    return Report(
        name=source.name,
        origin=source.origin,
        sizes=sizes,
        expected_sizes=request.spec.sizes if request.spec else {},
        counts=counts,
        corrupt=tuple(corrupt),
        duplicates=tuple(groups),
        problems=(*problems, *_lacking(request.spec, source), *_harm(request.spec, groups)),
        notes=source.notes,
    )


def _source(request: Request, progress: Progress | None) -> tuple[Source, list[str]]:
    """The dataset's files, or its prepared form where there are none; and what is wrong with it."""
    drawn = draw(request)
    if drawn is not None:
        return dataset_source(drawn), []
    meta = cache.read_meta(request.folder)
    problems = []
    if meta is not None:
        damage = cache.damage(request.folder, meta, checksums=True)
        if damage is not None:
            problems = [f"Prepared data is damaged: {damage}. Prepare it again."]
    try:
        return request.source(False, progress), problems
    except DatasetNotFoundError:
        prepared = cache.read(request.folder)
        if prepared is None:
            raise
        return dataset_source(prepared), problems


def dataset_source(dataset: Dataset) -> Source:
    """A dataset that is in memory, seen as a source."""
    return Source(
        name=dataset.name,
        classes=dataset.classes,
        shape=dataset.shape,
        dtype=str(dataset.train.pool.dtype).removeprefix("torch."),
        parts={split: _part(found) for split, found in dataset.splits.items()},
        origin=dataset.origin,
        notes=dataset.notes,
    )


def _part(split: Split) -> Part:
    def blocks() -> Iterator[Block]:
        for first in range(0, len(split), 1024):
            yield Block(first, split.samples[first : first + 1024].numpy(), {})

    return Part(split.labels.numpy(), blocks, split.names())


def _scan(source: Source, progress: Progress | None) -> tuple[list[str], dict[bytes, list[Place]]]:
    """Every sample: those that cannot be read, and the others by what is in them."""
    corrupt: list[str] = []
    places: dict[bytes, list[Place]] = {}
    total = sum(len(part) for part in source.parts.values())
    done = 0
    for split, part in source.parts.items():
        for block in part.blocks():
            corrupt += block.broken.values()
            size = len(block.samples) + len(block.broken)
            rows = [
                row for row in range(block.first, block.first + size) if row not in block.broken
            ]
            for row, sample in zip(rows, block.samples, strict=True):
                name = part.names[row] if part.names is not None else ""
                place = Place(split, row, name, source.classes[int(part.labels[row])])
                places.setdefault(digest(sample), []).append(place)
            if progress is not None:
                progress("checking", done + block.first + size, total)
        done += len(part)
    return corrupt, places


def _leaks(group: Sequence[Place]) -> bool:
    return len({place.split for place in group}) > 1


def _contradicts(group: Sequence[Place]) -> bool:
    return len({place.label for place in group}) > 1


def _harm(spec: DatasetSpec | None, groups: Sequence[Sequence[Place]]) -> list[str]:
    """What duplicates spoil: a score on samples that were trained on, labels that contradict."""
    leaks, contradictions = sum(map(_leaks, groups)), sum(map(_contradicts, groups))
    places = [place for place, count in (("split", leaks), ("class", contradictions)) if count]
    return [
        f"{clause}. {_advice(spec, f'one {place}')}"
        for clause, place in zip(harm(leaks, contradictions), places, strict=True)
    ]


def _lacking(spec: DatasetSpec | None, source: Source) -> list[str]:
    """Of a set that is known, it is how it was published."""
    return [] if spec is not None else [f"{clause}." for clause in lacking(source)]


def _advice(spec: DatasetSpec | None, place: str) -> str:
    if spec is None:
        return f"Keep one of each, in {place}."
    return (
        f"Where that is how {spec.title} is published, leaving it so keeps results comparable with "
        "those of others: mention it beside them."
    )


def _counts(spec: DatasetSpec | None, source: Source) -> tuple[Count, ...]:
    labels = {split: part.labels for split, part in source.parts.items()}
    expected = dict(spec.counts) if spec is not None else {}
    if "all" in expected:
        labels["all"] = np.concatenate(list(labels.values()))
    found = []
    for split in (*SPLITS, "all"):
        if split not in labels:
            continue
        counts = np.bincount(labels[split], minlength=len(source.classes)).tolist()
        wanted = expected.get(split, (None,) * len(counts))
        found += [Count(split, *row) for row in zip(source.classes, counts, wanted, strict=True)]
    return tuple(found)


def _differences(
    spec: DatasetSpec | None, sizes: Mapping[str, int], counts: tuple[Count, ...]
) -> list[str]:
    if spec is None or not spec.firm:
        return []
    found = [
        f"{split} has {plural(size, 'sample')}; expected {spec.sizes.get(split, 0):,}."
        for split, size in sizes.items()
        if size != spec.sizes.get(split, 0)
    ]
    # where a checksum says that the file is right, our table of its classes would be what is wrong
    if not any(archive.md5 for archive in spec.archives):
        found += [
            f"{count.label} has {plural(count.found, 'sample')} in {count.split}; expected "
            f"{count.expected:,}."
            for count in counts
            if count.differs
        ]
    return found
