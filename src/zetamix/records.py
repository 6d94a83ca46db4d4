"""A result is a record: what was trained, on what, by which commit and machine, and how it did."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

SCHEMA = "zetamix/run/1"
# bytes that are looked through at once for the end of a file's last whole line
BLOCK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run to be made: everything that decides its result."""

    dataset: str
    fingerprint: str
    method: str
    seed: int
    recipe: dict[str, Any]
    train_size: int
    """Training samples that are used, after `--train-size`."""

    @property
    def key(self) -> str:
        """A short name for exactly this cell, the same on any machine.

        >>> cell = Cell(dataset="d", fingerprint="", method="none", seed=0, recipe={}, train_size=1)
        >>> len(cell.key), cell.key == dataclasses.replace(cell, seed=1).key
        (12, False)
        """
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One finished run."""

    cell: Cell
    last: dict[str, float]
    """Test metrics after the last epoch (`zetamix.metrics.METRICS`), as fractions."""
    best: dict[str, float] | None
    """Test metrics of the epoch with the best validation score, and that epoch; None where the
    dataset has no validation split."""
    confusion: list[list[int]]
    """[true class][predicted class] on the test split after the last epoch."""
    test_size: int
    wall_s: float
    """Seconds of training, evaluation and saving, over all sittings."""
    step_ms: float
    """Mean milliseconds per training step, without evaluation."""
    machine: dict[str, str]
    parameters: int = 0
    schema: str = SCHEMA
    extra: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.cell.key, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunRecord":
        if values.get("schema") != SCHEMA:
            raise ValueError(
                f"Expected a record of schema {SCHEMA}, got {values.get('schema')!r}. Read it with "
                "the version of zetamix that wrote it."
            )
        values = {name: value for name, value in values.items() if name != "key"}
        return cls(**{**values, "cell": Cell(**values["cell"])})


def append(path: Path, record: RunRecord) -> None:
    """Add one line and see it onto the disk; several processes may do so at once.

    A last line that a crash cut off goes, or the new one would be joined to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record.as_dict(), ensure_ascii=False) + "\n"
    with FileLock(path.with_name(f".{path.name}.lock")), path.open("a+b") as file:
        file.truncate(_end_of_lines(file))
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _end_of_lines(file: IO[bytes]) -> int:
    """Where the last whole line of a file ends."""
    place = file.seek(0, os.SEEK_END)
    while place > 0:
        start = max(0, place - BLOCK)
        file.seek(start)
        newline = file.read(place - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        place = start
    return 0


def read(path: Path) -> list[RunRecord]:
    """All records of a file, the later of two with the same key; none where there is no file."""
    records = {}
    for values in read_lines(path):
        record = RunRecord.from_dict(values)
        records[record.cell.key] = record
    return list(records.values())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a file; a last line that a crash cut off does not count."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError:
                if line.endswith(b"\n"):
                    raise ValueError(
                        f"{path}, line {number}, is not JSON. Repair or remove that line."
                    ) from None
