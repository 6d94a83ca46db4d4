"""What a reader found, before anything is decoded: for every split its labels and where to look."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

BLOCK_BYTES = 1 << 24


class Block(NamedTuple):
    """Samples in order, starting at row `first`; rows that cannot be read are `broken`."""

    first: int
    samples: Array
    broken: Mapping[int, str]


@dataclass(frozen=True)
class Part:
    """One split: labels, and how to get at the samples block by block."""

    labels: npt.NDArray[np.int64]
    blocks: Callable[[], Iterator[Block]]
    """Reads the samples, in order; called once for every pass."""
    names: Sequence[str] | None = None
    """The file of every sample, where samples are files."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Source:
    """A dataset as it lies on disk."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Of one sample, as it will be kept."""
    dtype: str
    """uint8 for images, float32 for points."""
    parts: Mapping[str, Part]
    origin: str
    """Where this comes from, in words."""
    notes: tuple[str, ...] = ()

    @property
    def bytes_needed(self) -> int:
        each = int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize
        return sum(len(part) * (each + 8) for part in self.parts.values())


def array_part(labels: Array, load: Callable[[], Array], rows: Array | None = None) -> Part:
    """A split whose samples are rows of one array, which is read only when it is needed."""

    def blocks() -> Iterator[Block]:
        samples = load()
        step = max(1, BLOCK_BYTES // max(1, samples[:1].nbytes))
        for first in range(0, len(labels), step):
            if rows is None:
                block = samples[first : first + step]
            else:
                block = samples[rows[first : first + step]]
            yield Block(first, np.ascontiguousarray(block), {})

    return Part(np.asarray(labels, np.int64), blocks)


def resolve_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    """The data folder: `data_dir`, else $ZETAMIX_DATA, else ~/.cache/zetamix."""
    chosen = data_dir or os.environ.get("ZETAMIX_DATA") or "~/.cache/zetamix"
    return Path(chosen).expanduser().absolute()
