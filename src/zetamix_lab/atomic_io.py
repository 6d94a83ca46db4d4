"""Atomic file writes: a reader sees a whole file, old or new, or an error."""

import glob
import hashlib
import json
import math
import os
import shutil
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

# the umask can only be read by setting it, which two threads must not do at once
_UMASK_LOCK = threading.Lock()
CHECKSUM = "sha256"
# temporary files older than this were left by a killed process
LEFT_SECONDS = 3600


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file, sync it to disk, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        # left by a killed process, unless another process is writing the file now
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_SECONDS:
                left.unlink()
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates files with mode 0600; apply the umask instead
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    write_file(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    # a file name that is not UTF-8 has surrogates; JSON reads what replaces them as the same text
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """The values with their checksum, which `read_json` verifies."""
    return {**values, CHECKSUM: hash_json(json.loads(json.dumps(values)))}


def read_json(path: Path, *, checked: bool = False) -> dict[str, Any]:
    """The values of a file that holds one JSON object; raises ValueError if it is damaged.

    checked: whether it must have the checksum of `seal`.
    """
    _check_regular(path)
    try:
        values = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, got {type(values).__name__}")
    if checked and values != seal({k: v for k, v in values.items() if k != CHECKSUM}):
        raise ValueError("its checksum differs: it has changed since it was written")
    values.pop(CHECKSUM, None)
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
    if isinstance(value, dict):
        return {key: json_safe(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to `path` at the end of the block.

    If another process has created `path` in the meantime, that folder is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield part
        os.chmod(part, 0o777 & ~_umask())
        try:
            os.rename(part, path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    with _UMASK_LOCK:
        mask = os.umask(0o022)
        os.umask(mask)
    return mask
