"""Atomic file writes: a reader sees a whole file, old or new, or an error."""

import glob
import hashlib
import json
import os
import shutil
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

# temporary files older than this were left by a killed process
LEFT_SECONDS = 3600


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file, sync it to disk, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        # left by a killed process, unless another process is writing the file now
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_SECONDS:
                left.unlink()
    try:
        with naming(path), part.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    write_file(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    # a file name that is not UTF-8 has surrogates; JSON reads what replaces them as the same text
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The values of a file that holds one JSON object; raises ValueError if it is damaged."""
    _check_regular(path)
    try:
        values = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, got {type(values).__name__}")
    return values


def load_tensors(path: Path) -> Any:
    """A file of `torch.save`, on the CPU: tensors and plain values, no code.

    torch.save writes a checksum of every tensor, which torch.load does not check; this does.
    """
    import torch

    _check_regular(path)
    with zipfile.ZipFile(path) as file:
        damaged = file.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} differs: it has changed since it was written")
    return torch.load(path, map_location="cpu", weights_only=True)


def _check_regular(path: Path) -> None:
    """Raise for a pipe or a device, from which a read may never return."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")


def hash_json(value: Any) -> str:
    """sha256 of a value as JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an error such as "No space left on device", which names no file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def json_safe(value: Any) -> Any:
    """A copy with None for NaN and infinities, which JSON does not have, and lists for tuples.

    >>> json_safe({"a": (1.5, float("nan"))})
    {'a': [1.5, None]}
    """
    return json.loads(json.dumps(value), parse_constant=lambda name: None)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to `path` at the end of the block.

    No other process may create `path` at the same time: hold a lock.
    """
    part = path.with_name(f".{path.name}.part")
    # left by a killed process
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
