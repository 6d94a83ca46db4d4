"""A result is a record: what was trained, on what, by which commit and machine, and how it did."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "zetamix/run/1"


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
        values = {name: value for name, value in values.items() if name != "key"}
        return cls(**{**values, "cell": Cell(**values["cell"])})


def append(path: Path, record: RunRecord) -> None:
    """Add one line, in one write, and see it onto the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record.as_dict(), ensure_ascii=False) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


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
