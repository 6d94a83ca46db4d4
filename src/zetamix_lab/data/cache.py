"""Prepared data: decoded once into plain files, memory-mapped afterwards.

A prepared dataset is a folder in `<data_dir>/prepared`: for each split a raw file of samples and
one of labels, and `meta.json` with sizes and checksums. The name of the folder ends in a hash of
everything that determines its content, so that stale data is never used. The folder is created
atomically.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from zetamix_lab.atomic_io import (
    hash_file,
    hash_json,
    naming,
    new_folder,
    read_json,
    write_json,
)
from zetamix_lab.data.dataset import Dataset, Split, fingerprint
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.quality import (
    Scan,
    count_classes,
    duplicate_problems,
    find_shared_groups,
    group_problems,
    missing_classes,
)
from zetamix_lab.data.source import Progress, Source
from zetamix_lab.text import plural, reason

META = "meta.json"
# increment it if the format below or the output of any reader changes
FORMAT = 4
# reading stops after this many broken images
MAX_BROKEN = 20


def prepared_folder(
    data_dir: Path, name: str, settings: Mapping[str, Any], state: object = None
) -> Path:
    """The folder of the prepared dataset with these settings.

    state: sizes and times of a user's files; a hash of it ends the folder's name, so that changed
        files are prepared again and replace the old data.
    """
    plain = re.sub(r"[^\w-]+", "_", name)[:60]
    hashes = [hash_json([FORMAT, name, settings])[:12]]
    hashes += [] if state is None else [hash_json(state)[:12]]
    return data_dir / "prepared" / "-".join([plain, *hashes])


def read(folder: Path) -> Dataset | None:
    """Memory-map prepared data; None if it is missing or damaged."""
    meta = read_meta(folder)
    if meta is None or damage(folder, meta) is not None:
        return None
    splits = {name: _map_split(folder, meta, name) for name in meta["splits"]}
    return Dataset(
        name=meta["name"],
        classes=tuple(meta["classes"]),
        train=splits["train"],
        val=splits.get("val"),
        test=splits.get("test"),
        fingerprint=meta["fingerprint"],
        origin=meta["origin"],
        notes=tuple(meta["notes"]),
    )


def read_meta(folder: Path) -> dict[str, Any] | None:
    """What is known of prepared data; None if it is missing, damaged or of another version."""
    try:
        # opening a pipe would block
        meta = read_json(folder / META) if (folder / META).is_file() else {}
    except (OSError, ValueError):
        return None
    whole = meta.pop("sha256", None) == hash_json(meta)
    return meta if whole and meta.get("format") == FORMAT else None


def damage(folder: Path, meta: Mapping[str, Any], *, checksums: bool = False) -> str | None:
    """A description of damage to the files of a prepared dataset, or None.

    checksums: compare checksums too, not only sizes, as `zetamix check` does; 1 GB takes a second.
    """
    for name, expected in meta["files"].items():
        file = folder / name
        try:
            size = file.stat().st_size
            if size != expected["bytes"]:
                return f"{file} has {size:,} bytes instead of {expected['bytes']:,}"
            if checksums and hash_file(file) != expected["sha256"]:
                return f"{file} has changed since it was written: its checksum differs"
        except OSError as error:
            return f"{file} cannot be read: {reason(error)}"
    return None


def write(
    folder: Path,
    open_source: Callable[[], Source],
    progress: Progress | None,
    *,
    force: bool = False,
    skip_broken: bool = False,
) -> None:
    """Decode a source into `folder`, unless it is prepared already or by another process.

    skip_broken: leave out images that cannot be read, instead of raising.
    """
    with _locked(folder, progress):
        if not force and read(folder) is not None:
            return
        source = open_source()
        # left by a killed process, because this process holds the lock
        for left in folder.parent.glob(f".{folder.name}.*.part"):
            shutil.rmtree(left, ignore_errors=True)
        with new_folder(folder) as part:
            _fill(part, source, progress, skip_broken)
            # the old data is damaged or must be replaced
            shutil.rmtree(folder, ignore_errors=True)


def remove_older(folder: Path) -> None:
    """Remove data prepared from earlier states of the same files."""
    for other in folder.parent.glob("*-*-*"):
        if other != folder and other.name.rsplit("-", 1)[0] == folder.name.rsplit("-", 1)[0]:
            shutil.rmtree(other, ignore_errors=True)
            other.with_name(f".{other.name}.lock").unlink(missing_ok=True)


def _fill(folder: Path, source: Source, progress: Progress | None, skip_broken: bool) -> None:
    files: dict[str, dict[str, Any]] = {}
    scan = Scan(source, "decoding", progress)

    def samples(split: str) -> Iterator[memoryview]:
        for block in scan.blocks(split):
            if len(scan.corrupt) >= MAX_BROKEN and not skip_broken:
                return
            yield np.ascontiguousarray(block.samples).data

    for split in source.rows:
        files[f"{split}.samples"] = _write(folder / f"{split}.samples", samples(split))
    if scan.corrupt:
        if not skip_broken:
            more = " or more" if len(scan.corrupt) >= MAX_BROKEN else ""
            raise DataError(
                f"{plural(len(scan.corrupt), 'image')}{more} of {source.name} cannot be read, so "
                "nothing was prepared. Replace or remove these files, or add --skip-broken to the "
                "command (skip_broken=True to zetamix_lab.data.load) to skip them:\n  "
                + "\n  ".join(scan.corrupt)
            )
        source = _without_broken(source, scan)
    for name, content in _small_files(source).items():
        files[name] = _write(folder / name, [content])
    hashes = {
        split: [files[f"{split}.{kind}"]["sha256"] for kind in ("samples", "labels")]
        for split in source.rows
    }
    problems = duplicate_problems(scan.duplicates())
    problems += group_problems(find_shared_groups(source))
    meta = {
        "format": FORMAT,
        "name": source.name,
        "classes": list(source.classes),
        "shape": list(source.shape),
        "dtype": source.dtype,
        "multi_label": source.multi_label,
        "splits": {split: len(rows) for split, rows in source.rows.items()},
        "files": files,
        "fingerprint": fingerprint(source.classes, hashes),
        "origin": source.origin,
        # shown whenever the data is used, not only by `zetamix check`
        "notes": [
            *source.notes,
            *(f"{problem} (listed by zetamix check)" for problem in problems),
            *missing_classes(source),
        ],
    }
    write_json(folder / META, {**meta, "sha256": hash_json(meta)})


def _without_broken(source: Source, scan: Scan) -> Source:
    """The source with the images that could be read, and a note about the others."""
    kept = source.keep(np.array(sorted(scan.readable), np.int64))
    counts = count_classes(kept).get("train", [0] * len(source.classes))
    gone = [name for name, count in zip(source.classes, counts, strict=True) if not count]
    gone += [split for split in source.rows if split not in kept.rows]
    if gone:
        raise DataError(
            f"{source.name}: no image of {gone[0]} can be read, so none would be left without "
            "the broken ones. Replace these files."
        )
    note = f"{plural(len(scan.corrupt), 'unreadable image')} skipped: {scan.corrupt[0]}"
    if len(scan.corrupt) > 1:
        note += f" and {len(scan.corrupt) - 1:,} more (listed by zetamix check)"
    return replace(kept, notes=(*source.notes, note))


def _small_files(source: Source) -> dict[str, bytes]:
    files = {}
    for split, rows in source.rows.items():
        files[f"{split}.labels"] = source.labels[rows].astype("<i8").tobytes()
        if source.names is not None:
            names = [source.names[row].replace("\n", "\\n") for row in rows.tolist()]
            text = "".join(f"{name}\n" for name in names)
            files[f"{split}.names"] = text.encode("utf-8", "surrogateescape")
    return files


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write chunks to a file; its size and checksum.

    A second thread computes the checksum while the first writes.
    """
    digest = hashlib.sha256()
    with naming(path), path.open("wb") as file, ThreadPoolExecutor(1) as pool:
        for chunk in chunks:
            hashed = pool.submit(digest.update, chunk)
            file.write(chunk)
            hashed.result()
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return {"bytes": size, "sha256": digest.hexdigest()}


def _map_split(folder: Path, meta: Mapping[str, Any], split: str) -> Split:
    count, shape = meta["splits"][split], meta["shape"]
    names = folder / f"{split}.names"
    matrix = [len(meta["classes"])] if meta["multi_label"] else []
    labels = _map(folder / f"{split}.labels", [count, *matrix], torch.int64)
    return Split(
        _map(folder / f"{split}.samples", [count, *shape], getattr(torch, meta["dtype"])),
        labels.float() if matrix else labels,
        num_classes=len(meta["classes"]),
        names_file=names if names.name in meta["files"] else None,
    )


def _map(path: Path, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A private memory map: pages are read on use, and writes do not change the file."""
    count = int(np.prod(shape))
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype).view(shape)


@contextmanager
def _locked(folder: Path, progress: Progress | None) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress is not None:
                progress("waiting for another process to prepare the same data", 0, 0)
            lock.acquire()
    except OSError as error:
        raise DataError(
            f"Prepared data cannot be written to {folder.parent}: {error.strerror}. Choose another "
            "folder with the variable ZETAMIX_DATA or data_dir=."
        ) from None
    try:
        yield
    finally:
        lock.release()
