"""The folder of results: for each artifact its records as JSON lines, and arrays beside them."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from zetamix.atomic_io import json_safe, write_file
from zetamix.experiments.reproduce.cells import Cell, Record, ReproduceError, Training
from zetamix.records import (
    MEASUREMENT_SCHEMA,
    RUN_SCHEMA,
    Measurement,
    RunRecord,
    append_record,
    read_lines,
)


class Results:
    """All records under a folder, read once; what is added is written at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, Record] = {}
        """By key; of two with the same key the later one."""
        self.homes: dict[str, str] = {}
        """Key: the artifact whose file holds it."""
        for path in sorted(folder.glob("*/records.jsonl")):
            for record in _read(path):
                self._keep(path.parent.name, record)

    def _keep(self, artifact: str, record: Record) -> None:
        key = _key(record)
        self.records[key] = record
        self.homes[key] = artifact

    def find(self, cell: Cell, fingerprint: str | None = None) -> Record | None:
        """The record of a cell, from whichever artifact; the last one where there are several.

        fingerprint: of the data at hand; a record of other data does not count.
        """
        for record in reversed(self.records.values()):
            if cell.fits(record) and fingerprint in (None, fingerprint_of(record)):
                return record
        return None

    def runs_of(self, cell: Training) -> list[RunRecord]:
        """Records of the same cell with any seed, in the order of seeds."""
        found = {}
        for record in self.records.values():
            if isinstance(record, RunRecord) and cell.fits(record, any_seed=True):
                found[record.cell.seed] = record
        return [found[seed] for seed in sorted(found)]

    def add(
        self, artifact: str, record: Record, arrays: Mapping[str, Tensor] | None = None
    ) -> None:
        """Write a record, its arrays first: a line never speaks of a file that is not there."""
        home = self.folder / artifact
        if arrays and isinstance(record, Measurement) and record.arrays is not None:
            write_arrays(home / record.arrays, arrays)
        plain = type(record).from_dict(json_safe(record.as_dict()))
        append_record(home / "records.jsonl", plain)
        self._keep(artifact, plain)

    def arrays(self, record: Measurement) -> dict[str, Tensor]:
        """What was stored beside a record."""
        if record.arrays is None:
            return {}
        path = self.folder / self.homes[record.key] / record.arrays
        try:
            with np.load(path, allow_pickle=False) as file:
                return {name: torch.from_numpy(file[name]) for name in file.files}
        except (OSError, ValueError) as error:
            raise ReproduceError(
                f"{path} belongs to the record {record.key} and cannot be read ({error}). Restore "
                "it, or remove that line of records.jsonl and reproduce the artifact again."
            ) from None


def fingerprint_of(record: Record) -> str:
    return record.cell.fingerprint if isinstance(record, RunRecord) else record.fingerprint


def write_arrays(path: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write tensors as one compressed `.npz`; the same bytes for the same numbers."""
    content = io.BytesIO()
    np.savez_compressed(content, **{name: part.cpu().numpy() for name, part in arrays.items()})  # type: ignore[arg-type]
    write_file(path, lambda file: _put(file, content.getvalue()))


def _put(file: IO[bytes], content: bytes) -> None:
    file.write(content)


def _key(record: Record) -> str:
    return record.cell.key if isinstance(record, RunRecord) else record.key


def _read(path: Path) -> Iterator[Record]:
    try:
        for number, values in enumerate(read_lines(path), 1):
            schema = values.get("schema") if isinstance(values, dict) else None
            if schema not in (RUN_SCHEMA, MEASUREMENT_SCHEMA):
                raise ReproduceError(
                    f"{path}, line {number}: expected a record of {RUN_SCHEMA} or "
                    f"{MEASUREMENT_SCHEMA}, got {schema!r}. Repair or remove that line."
                )
            yield (RunRecord if schema == RUN_SCHEMA else Measurement).from_dict(values)
    except (TypeError, KeyError) as error:
        raise ReproduceError(
            f"{path}: a record lacks a field or has one too many ({error}). Repair or remove it."
        ) from None
    except ValueError as error:
        raise ReproduceError(str(error)) from None
