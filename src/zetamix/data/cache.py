"""Prepared data: decoded once into plain files, mapped into memory ever after.

A prepared dataset is a folder under `<data_dir>/prepared`: for each split a raw file of samples and
one of labels, and `meta.json`, which holds sizes and checksums. The folder's name ends in a hash of
all that decides its content, so nothing stale is ever found, and it appears complete or not at all.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from zetamix.atomic_io import new_folder, write_json
from zetamix.data.dataset import Dataset, Split, fingerprint
from zetamix.data.errors import DataError
from zetamix.data.flaws import Copies, lacking
from zetamix.data.source import Part, Progress, Source

# raise it when the files below change their form or any reader changes what it makes of its input
FORMAT = 3
KEYS = {"name", "classes", "shape", "dtype", "splits", "files", "fingerprint", "origin", "notes"}
# an unreadable set is not read to its end only to name every image of it
BROKEN_NAMED = 20


def place(data_dir: Path, name: str, facts: Mapping[str, Any], state: object = None) -> Path:
    """The folder of the prepared dataset that `facts` describe.

    `state` is what changes when a user changes files: the folder's name has a hash of it at its
    end, so that preparing the new state can remove the old one.
    """
    plain = re.sub(r"[^\w-]+", "_", name)[:60]
    folder = f"{plain}-{_digest([FORMAT, name, facts])}"
    return data_dir / "prepared" / (folder if state is None else f"{folder}-{_digest(state)}")


def read(folder: Path) -> Dataset | None:
    """Map prepared data into memory; None where there is none, or none that is whole."""
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
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        return None
    return meta if set(meta) >= KEYS else None


def damage(folder: Path, meta: Mapping[str, Any], *, checksums: bool = False) -> str | None:
    """What is wrong with the files of a prepared dataset, if anything.

    Sizes are looked at on every load; checksums mean reading everything, for `zetamix data check`.
    """
    for name, facts in meta["files"].items():
        file = folder / name
        try:
            size = file.stat().st_size
        except OSError:
            return f"{file} is missing"
        if size != facts["bytes"]:
            return f"{file} has {size:,} bytes instead of {facts['bytes']:,}"
        if checksums and _sha256(file) != facts["sha256"]:
            return f"{file} has changed since it was written: its checksum differs"
    return None


def write(
    folder: Path,
    find_source: Callable[[], Source],
    progress: Progress | None,
    *,
    again: bool = False,
) -> None:
    """Decode what `find_source` finds into `folder`, unless another process does so meanwhile."""
    with _locked(folder, progress):
        if not again and read(folder) is not None:
            return
        source = find_source()
        _check_space(folder, source)
        # the lock is ours, so a process that died has left these
        for left in folder.parent.glob(f".{folder.name}.*.part"):
            shutil.rmtree(left, ignore_errors=True)
        with new_folder(folder) as part:
            _fill(part, source, progress)
            # what was there is damaged, or not wanted any more
            shutil.rmtree(folder, ignore_errors=True)


def remove_older(folder: Path) -> None:
    """Remove what was prepared from earlier states of the same files."""
    for other in folder.parent.glob("*-*-*"):
        if other != folder and other.name.rsplit("-", 1)[0] == folder.name.rsplit("-", 1)[0]:
            shutil.rmtree(other, ignore_errors=True)
            other.with_name(f".{other.name}.lock").unlink(missing_ok=True)


def _fill(folder: Path, source: Source, progress: Progress | None) -> None:
    total = sum(len(part) for part in source.parts.values())
    files: dict[str, dict[str, Any]] = {}
    broken: list[str] = []
    copies = Copies()
    done = 0
    for split, part in source.parts.items():
        for name, content in _small_files(split, part).items():
            files[name] = _write(folder / name, [content])

        def rows(split: str = split, part: Part = part, before: int = done) -> Iterator[memoryview]:
            for block in part.blocks():
                broken.extend(block.broken.values())
                if len(broken) >= BROKEN_NAMED:
                    return
                if progress is not None:
                    progress("decoding", before + block.first + len(block.samples), total)
                samples = _checked(block.samples, source)
                if not broken:
                    copies.add(split, part.labels[block.first :][: len(samples)], samples)
                yield samples.data

        files[f"{split}.samples"] = _write(folder / f"{split}.samples", rows())
        done += len(part)
    if broken:
        raise DataError(_describe_broken(source.name, broken))
    hashes = {
        split: [files[f"{split}.{kind}"]["sha256"] for kind in ("samples", "labels")]
        for split in source.parts
    }
    meta = {
        "format": FORMAT,
        "name": source.name,
        "classes": list(source.classes),
        "shape": list(source.shape),
        "dtype": source.dtype,
        "splits": {split: len(part) for split, part in source.parts.items()},
        "files": files,
        "fingerprint": fingerprint(source.classes, hashes),
        "origin": source.origin,
        # whoever scores on this data should know, and not everybody runs `zetamix data check`
        "notes": [*source.notes, *copies.notes(), *lacking(source)],
    }
    write_json(folder / "meta.json", meta)


def _small_files(split: str, part: Part) -> dict[str, bytes]:
    found = {f"{split}.labels": part.labels.astype("<i8").tobytes()}
    if part.names is not None:
        lines = "".join(name.replace("\n", "\\n") + "\n" for name in part.names)
        found[f"{split}.names"] = lines.encode("utf-8", "surrogateescape")
    return found


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write chunks as they come; size and checksum of the file."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return {"bytes": size, "sha256": digest.hexdigest()}


def _checked(samples: np.ndarray[Any, Any], source: Source) -> np.ndarray[Any, Any]:
    if samples.shape[1:] != source.shape or samples.dtype != source.dtype:
        raise DataError(
            f"{source.name}: expected samples of shape {list(source.shape)} and type "
            f"{source.dtype}, got {list(samples.shape[1:])} and {samples.dtype}."
        )
    return np.ascontiguousarray(samples)


def _describe_broken(name: str, broken: list[str]) -> str:
    more = " and perhaps more" if len(broken) >= BROKEN_NAMED else ""
    images = "1 image" if len(broken) == 1 else f"{len(broken)} images"
    listed = "\n".join(f"  {reason}" for reason in broken)
    return (
        f"{images}{more} of {name} cannot be read, so nothing was prepared. Replace these files or "
        f"take them out:\n{listed}"
    )


def _map_split(folder: Path, meta: Mapping[str, Any], split: str) -> Split:
    count, shape = meta["splits"][split], meta["shape"]
    names = folder / f"{split}.names"
    return Split(
        _map(folder / f"{split}.samples", [count, *shape], getattr(torch, meta["dtype"])),
        _map(folder / f"{split}.labels", [count], torch.int64),
        num_classes=len(meta["classes"]),
        names_file=names if names.name in meta["files"] else None,
    )


def _map(path: Path, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A private mapping: pages are read when touched, and writes never reach the file."""
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
                progress("waiting for another process that prepares the same data", 0, 0)
            lock.acquire()
    except OSError as error:
        raise DataError(
            f"Prepared data cannot be kept in {folder.parent}: {error.strerror}. Name a folder "
            "that can be written, with --data-dir, data_dir= or the variable ZETAMIX_DATA."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _check_space(folder: Path, source: Source) -> None:
    free = shutil.disk_usage(folder.parent).free
    if source.bytes_needed > free:
        raise DataError(
            f"Preparing {source.name} needs {source.bytes_needed / 1e9:.1f} GB in {folder.parent}, "
            f"but {free / 1e9:.1f} GB are free. Make room, or name another folder with --data-dir, "
            "data_dir= or the variable ZETAMIX_DATA."
        )


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
