"""What spoils a score: samples in two splits or two classes, and classes that a split lacks."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from zetamix.data.source import Array, Source
from zetamix.text import plural


def digest(sample: Array) -> bytes:
    """The same for samples that are the same in every pixel."""
    return hashlib.blake2b(np.ascontiguousarray(sample).data, digest_size=16).digest()


def first_copies(keys: Sequence[Hashable]) -> Tensor:
    """[n], int64: for every key the place of the first that equals it.

    >>> first_copies(["a", "b", "a", "c", "b"])
    tensor([0, 1, 0, 3, 1])
    """
    seen: dict[Hashable, int] = {}
    places = [seen.setdefault(key, row) for row, key in enumerate(keys)]
    return torch.tensor(places, dtype=torch.int64)


def file_keys(files: Sequence[Path]) -> list[Hashable]:
    """Equal for files with the same bytes. Only those that are of one size have to be read."""
    sizes = [file.stat().st_size if file.is_file() else None for file in files]
    counts = Counter(sizes)
    return [
        _content(file) if size is None or counts[size] > 1 else size
        for file, size in zip(files, sizes, strict=True)
    ]


def _content(file: Path) -> Hashable:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "blake2b").digest()
    except OSError:
        # it is like no other; that it cannot be read is told when it is decoded
        return file


class Copies:
    """Counts groups of identical samples that do harm, while samples are read block by block."""

    def __init__(self) -> None:
        # the first place of every sample, and what is wrong with those that came again
        self._first: dict[bytes, tuple[str, int]] = {}
        self._leaking: set[bytes] = set()
        self._contradicting: set[bytes] = set()

    def add(self, split: str, labels: Array, samples: Array) -> None:
        for label, sample in zip(labels.tolist(), samples, strict=True):
            key = digest(sample)
            where, what = self._first.setdefault(key, (split, label))
            if where != split:
                self._leaking.add(key)
            if what != label:
                self._contradicting.add(key)

    def notes(self) -> list[str]:
        found = harm(len(self._leaking), len(self._contradicting))
        return [f"{clause} (zetamix data check names the first)" for clause in found]


def harm(leaks: int, contradictions: int) -> list[str]:
    """What so many groups of identical samples do, in a clause each."""
    found = []
    if leaks:
        found.append(
            f"{plural(leaks, 'group')} of identical samples {'is' if leaks == 1 else 'are'} in "
            "more than one split, so a score is partly on samples that were seen before"
        )
    if contradictions:
        found.append(
            f"{plural(contradictions, 'group')} of identical samples "
            f"{'has' if contradictions == 1 else 'have'} different classes, of which one at most "
            "is right"
        )
    return found


def lacking(source: Source) -> list[str]:
    """Splits that lack a class, in a clause each; `train` is refused before it comes to this."""
    return [
        f"{split} has no sample of {_some(absent)}, so a score on it says nothing about "
        f"{'it' if len(absent) == 1 else 'them'}"
        for split, absent in _absent(source).items()
        if absent
    ]


def _absent(source: Source) -> Mapping[str, Sequence[str]]:
    return {
        split: [
            name
            for label, name in enumerate(source.classes)
            if not bool((part.labels == label).any())
        ]
        for split, part in source.parts.items()
        # one that is empty is refused as such
        if len(part)
    }


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    more = len(names) - 3
    return shown if more <= 0 else f"{shown} and {plural(more, 'more class', 'more classes')}"
