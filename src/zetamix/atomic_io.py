"""Atomic file writes: a reader sees the old file or the new one, never a part of it."""

import json
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

# the umask can only be read by setting it, which two threads must not do at once
_UMASK_LOCK = threading.Lock()


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file, sync it to disk, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp gives 0600; a result is as readable as any other file of this user
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    write_file(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


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

    If another process has made `path` meanwhile, that one is kept.
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
