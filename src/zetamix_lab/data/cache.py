"""Prepared data: decoded once into plain files, memory-mapped afterwards.

A prepared dataset is a folder in `<data_dir>/prepared`: for each split a raw file of samples and
one of labels, and `meta.json`, which describes them. The name of the folder ends in a hash of
everything that determines its content, so that stale data is never used. The folder is created
atomically.
"""

import hashlib
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from zetamix_lab.atomic_io import hash_json, naming, new_folder, read_json, write_json
from zetamix_lab.data.dataset import Dataset, Split, fingerprint
from zetamix_lab.data.errors import DataError, raise_problems
from zetamix_lab.data.source import Progress, Scan, Source, find_doubts
from zetamix_lab.text import plural, reason

META = "meta.json"
# increment it if the format below or the output of any reader changes
FORMAT = 5


def prepared_folder(
    data_dir: Path, name: str, settings: Mapping[str, Any], files: Sequence[Path] = ()
) -> Path:
    """The folder of the prepared dataset with these settings.

    files: a user's files; a hash of their sizes and times ends the folder's name, so that changed
        files are prepared again and replace the old data.
    """
    plain = re.sub(r"[^\w-]+", "_", name)[:60]
    hashes = [hash_json([FORMAT, name, settings])[:12]]
    if files:
        # a dangling link is reported when it is decoded, like any unreadable file
        stats = [(file, file.stat() if file.exists() else file.lstat()) for file in files]
        state = [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in stats]
        hashes.append(hash_json(state)[:12])
    return data_dir / "prepared" / "-".join([plain, *hashes])


@dataclass(frozen=True)
class Request:
    """A requested dataset: the folder of its prepared form, and how to open its source."""

    folder: Path
    source: Callable[[Progress | None], Source]
    """Raises if there is nothing to read."""
    own: bool = False
    """Whether it is a path: prepared data of earlier states of its files is removed."""

    def open(self) -> Dataset | None:
        """Memory-map the prepared data; None if it is missing or damaged."""
        try:
            meta = read_json(self.folder / META)
            splits = {name: _map_split(self.folder, meta, name) for name in meta["splits"]}
            return Dataset(
                name=meta["name"],
                classes=tuple(meta["classes"]),
                **splits,
                fingerprint=meta["fingerprint"],
                origin=meta["origin"],
                notes=tuple(meta["notes"]),
            )
        except (OSError, ValueError, KeyError):
            return None

    def prepare(self, progress: Progress | None, *, skip_broken: bool = False) -> Dataset:
        """The dataset, decoded unless another process has done it in the meantime.

        skip_broken: leave out images that cannot be read, instead of raising.
        """
        with _lock(self.folder, progress):
            if self.open() is None:
                source = self.source(progress)
                with new_folder(self.folder) as part:
                    _fill(part, source, progress, skip_broken)
                    # the old data is damaged
                    shutil.rmtree(self.folder, ignore_errors=True)
        if self.own:
            # prepared from earlier states of the same files
            for other in self.folder.parent.glob(f"{self.folder.name.rpartition('-')[0]}-*"):
                if other != self.folder:
                    shutil.rmtree(other, ignore_errors=True)
                    other.with_name(f".{other.name}.lock").unlink(missing_ok=True)
        dataset = self.open()
        if dataset is None:
            raise DataError(f"{self.folder} was removed by another process after it was prepared.")
        return dataset


def _fill(folder: Path, source: Source, progress: Progress | None, skip_broken: bool) -> None:
    scan, hashes = Scan(source, "decoding", progress), {}
    for split in source.rows:
        samples = (block.samples.data for block in scan.blocks(split))
        hashes[split] = [_write(folder / f"{split}.samples", samples)]
    if scan.unreadable:
        source = _without_broken(source, scan, skip_broken)
    for split, rows in source.rows.items():
        labels = source.labels[rows].astype("<i8").tobytes()
        hashes[split].append(_write(folder / f"{split}.labels", [labels]))
    doubts = find_doubts(source, scan.duplicates())
    meta = {
        "name": source.name,
        "classes": list(source.classes),
        "shape": list(source.shape),
        "dtype": source.dtype,
        "multi_label": source.multi_label,
        "splits": {split: len(rows) for split, rows in source.rows.items()},
        "fingerprint": fingerprint(source.classes, hashes),
        "origin": source.origin,
        # shown whenever the data is used, not only by `zetamix check`
        "notes": [*source.notes, *(f"{doubt} (listed by zetamix check)" for doubt in doubts)],
    }
    write_json(folder / META, meta)


def _without_broken(source: Source, scan: Scan, skip_broken: bool) -> Source:
    """The source with the images that could be read, and a note about the others."""
    if not skip_broken:
        title = (
            f"{plural(len(scan.unreadable), 'image')} of {source.name} cannot be read, so nothing "
            "was prepared. Replace or remove these files, or add --skip-broken to the command "
            "(skip_broken=True to zetamix_lab.data.load) to skip them; zetamix check lists all:"
        )
        raise_problems(scan.unreadable, title)
    note = f"{plural(len(scan.unreadable), 'unreadable image')} skipped: {scan.unreadable[0]}"
    if len(scan.unreadable) > 1:
        note += f" and {len(scan.unreadable) - 1:,} more (listed by zetamix check)"
    splits = np.full_like(source.splits, "")
    splits[list(scan.keys)] = source.splits[list(scan.keys)]
    kept = replace(source, splits=splits, notes=(*source.notes, note))
    counts = kept.counts().get("train", [0] * len(source.classes))
    gone = [name for name, count in zip(source.classes, counts, strict=True) if not count]
    gone += [split for split in source.rows if split not in kept.rows]
    if gone:
        raise DataError(f"{source.name}: no image of {gone[0]} can be read. Replace these files.")
    return kept


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write chunks to a file; its checksum."""
    digest = hashlib.sha256()
    with naming(path), path.open("wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _map_split(folder: Path, meta: Mapping[str, Any], split: str) -> Split:
    count = meta["splits"][split]
    matrix = [len(meta["classes"])] if meta["multi_label"] else []
    labels = _map(folder / f"{split}.labels", [count, *matrix], torch.int64)
    return Split(
        _map(folder / f"{split}.samples", [count, *meta["shape"]], getattr(torch, meta["dtype"])),
        labels.float() if matrix else labels,
        num_classes=len(meta["classes"]),
    )


def _map(path: Path, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A private memory map: pages are read on use, and writes do not change the file."""
    count, size = math.prod(shape), path.stat().st_size
    if size != count * dtype.itemsize:
        raise ValueError(f"{path} has {size:,} bytes instead of {count * dtype.itemsize:,}")
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype).view(shape)


def _lock(folder: Path, progress: Progress | None) -> AbstractContextManager[object]:
    """The lock of a folder, acquired; it is released at the end of the context."""
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            return lock.acquire(timeout=0)
        if progress is not None:
            progress("waiting for another process to prepare the same data", 0, 0)
        return lock.acquire()
    except (OSError, ValueError) as error:
        raise DataError(
            f"Prepared data cannot be written to {folder.parent}: {reason(error)}. Choose another "
            "folder with the variable ZETAMIX_DATA or data_dir=."
        ) from None
