"""Cells of the paper's figures and tables, and their records: a folder of them, and a view."""

import dataclasses
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from paper.recipes import RECIPES
from zetamix_lab.atomic_io import hash_json, json_safe, naming, write_bytes
from zetamix_lab.data import Dataset
from zetamix_lab.records import RUN_SCHEMA, RunRecord, read_lines
from zetamix_lab.text import reason
from zetamix_lab.train import Recipe

MEASUREMENT_SCHEMA = "zetamix/measurement/1"


@dataclass(frozen=True)
class Subset:
    """A part of the training split to train on, and the samples to evaluate on."""

    train: int
    """Number of training samples."""
    validation: int | None = None
    """Samples of the training split that replace the test split; None: the test split itself."""

    def apply(self, dataset: Dataset) -> Dataset:
        """The reduced dataset. With `validation`, it does not contain the official test split."""
        if self.validation is not None:
            held = dataset.holdout(self.validation / len(dataset.train))
            note = "evaluated on samples of the training split, not on the test split"
            dataset = dataclasses.replace(held, val=None, test=held.val, notes=(*held.notes, note))
        return dataset.with_train_size(self.train)


@dataclass(frozen=True)
class TrainingCell:
    """A model to train."""

    dataset: str
    method: str
    seed: int
    recipe: Recipe
    subset: Subset | None = None
    """None: all of the training split, evaluated on the split that the paper reports on."""

    @property
    def extra(self) -> dict[str, Any]:
        """Values in the `extra` of the record that distinguish it from a run on all the data."""
        return {} if self.subset is None else {"subset": asdict(self.subset)}

    @property
    def index(self) -> tuple[Any, ...]:
        """What the records of this cell have in common, with any seed."""
        return self.dataset, self.method, self.recipe, self.subset

    @property
    def label(self) -> str:
        """What distinguishes its recipe from others for this dataset, none of which are averaged.

        >>> short = RECIPES["cifar10"].change(epochs=30)
        >>> TrainingCell("cifar10", "none", 0, short).label
        'flip, shortened to 30 epochs'
        """
        recipe, epochs = self.recipe, RECIPES[self.dataset].epochs
        shortened = "" if recipe.epochs == epochs else f"shortened to {recipe.epochs} epochs"
        return ", ".join(filter(None, (recipe.augmentation.replace("none", ""), shortened)))


@dataclass(frozen=True)
class MeasurementCell:
    """A measurement that is not a training run."""

    kind: str
    """Which measurement, such as "dimension"."""
    dataset: str
    """Empty if the measurement needs no dataset."""
    method: str
    seed: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)
    """Everything else that determines the result; `device`: the device type that it requires."""

    @property
    def index(self) -> str:
        """What the records of this cell have in common."""
        return json.dumps([self.kind, self.dataset, self.method, self.recipe], sort_keys=True)


PaperCell: TypeAlias = TrainingCell | MeasurementCell


@dataclass(frozen=True, kw_only=True)
class Measurement(MeasurementCell):
    """The result of a measurement that is not a training run."""

    fingerprint: str
    values: dict[str, Any]
    wall_s: float
    machine: dict[str, str]
    arrays: str | None = None
    """Path of an `.npz` with the arrays of the result, relative to the records."""
    schema: str = MEASUREMENT_SCHEMA
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A hash that identifies this measurement, the same on any machine."""
        decides = [self.kind, self.dataset, self.fingerprint, self.method, self.seed, self.recipe]
        return hash_json(decides)[:12]

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Measurement":
        # the key follows from the fields; earlier versions wrote a checksum
        return cls(**{name: v for name, v in values.items() if name not in ("key", "sha256")})


Record: TypeAlias = RunRecord | Measurement


def append_record(path: Path, record: Record) -> None:
    """Append one line and sync it to disk. Several processes may append at once.

    A last line that was cut off by a crash is removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record.as_dict(), ensure_ascii=False) + "\n"
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with lock, naming(path), path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line.encode("utf-8", "backslashreplace"))
        file.flush()
        os.fsync(file.fileno())


class RecordStore:
    """All records under a folder, read once; `add` writes to disk at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, Record] = {}
        """By key; of two records with the same key, the later one is used."""
        self.artifact_of: dict[str, str] = {}
        """The artifact in whose file a record is stored, by key."""
        self._found: dict[object, dict[int, Any]] = {}
        """By the index of the cell, then by seed."""
        for path in sorted(folder.glob("*/records.jsonl")):
            for record in _read(path):
                self._insert(path.parent.name, record)

    def _insert(self, artifact: str, record: Record) -> None:
        self.records[record.key] = record
        self.artifact_of[record.key] = artifact
        cell = cell_of(record) if isinstance(record, RunRecord) else record
        self._found.setdefault(cell.index, {})[cell.seed] = record

    def find(self, cell: PaperCell) -> Record | None:
        """The latest record of a cell, stored for any artifact."""
        return self._found.get(cell.index, {}).get(cell.seed)

    def runs_of(self, cell: TrainingCell) -> list[RunRecord]:
        """Records of a cell with any seed, ordered by seed."""
        runs = self._found.get(cell.index, {})
        return [runs[seed] for seed in sorted(runs)]

    def add(
        self, artifact: str, record: Record, arrays: Mapping[str, Tensor] | None = None
    ) -> None:
        """Write a record, after the arrays of a measurement, so that none has a missing file."""
        folder = self.folder / artifact
        if arrays and isinstance(record, Measurement):
            record = dataclasses.replace(record, arrays=f"arrays/{record.key}.npz")
            content = io.BytesIO()
            # equal numbers give equal bytes
            parts: dict[str, Any] = {name: part.cpu().numpy() for name, part in arrays.items()}
            np.savez_compressed(content, **parts)
            write_bytes(folder / str(record.arrays), content.getvalue())
        record = type(record).from_dict(json_safe(record.as_dict()))
        append_record(folder / "records.jsonl", record)
        self._insert(artifact, record)

    def arrays(self, record: Measurement) -> dict[str, Tensor]:
        """The arrays of a measurement, by name."""
        path = self.folder / self.artifact_of[record.key] / str(record.arrays)
        try:
            with np.load(path, allow_pickle=False) as file:
                return {name: torch.from_numpy(file[name]) for name in file.files}
        except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
            raise ValueError(
                f"The arrays of record {record.key} in {path} cannot be read: {reason(error)}. "
                "Restore the file, or remove that line of records.jsonl and run the artifact again."
            ) from None


def cell_of(record: RunRecord) -> TrainingCell:
    """The cell that a record is the result of."""
    cell, subset = record.cell, record.extra.get("subset")
    # fields of the recipe that were added by a later version have their defaults
    recipe = Recipe.from_dict(cell.recipe)
    return TrainingCell(cell.dataset, cell.method, cell.seed, recipe, subset and Subset(**subset))


def _read(path: Path) -> Iterator[Record]:
    kinds: dict[Any, type[RunRecord] | type[Measurement]]
    kinds = {RUN_SCHEMA: RunRecord, MEASUREMENT_SCHEMA: Measurement}
    try:
        for number, values in enumerate(read_lines(path), 1):
            schema = values.get("schema")
            if schema not in kinds:
                raise ValueError(
                    f"{path}, line {number}: expected a record of schema {' or '.join(kinds)}, "
                    f"got {schema!r}."
                )
            yield kinds[schema].from_dict(values)
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: a record has a missing or unknown field: {error}. Repair or remove it."
        ) from None
    except ValueError as error:
        raise ValueError(f"{error} Repair or remove that line.") from None


@dataclass(frozen=True)
class View:
    """The cells of one artifact, each with or without a record."""

    artifact: str
    title: str
    cells: Sequence[PaperCell]
    """The cells that the figure or table needs."""
    store: RecordStore

    @cached_property
    def trainings(self) -> list[TrainingCell]:
        return [cell for cell in self.cells if isinstance(cell, TrainingCell)]

    def measurements(self, kind: str) -> list[Measurement]:
        """Records of one kind, in the order of their cells."""
        return [r for r in self.records if isinstance(r, Measurement) and r.kind == kind]

    @cached_property
    def empty(self) -> list[PaperCell]:
        """Cells without a record."""
        return [cell for cell in self.cells if self.store.find(cell) is None]

    @property
    def progress(self) -> str:
        """How many cells have a record, of all: "25 of 180"."""
        return f"{len(self.cells) - len(self.empty):,} of {len(self.cells):,}"

    @cached_property
    def records(self) -> list[Record]:
        records = map(self.store.find, self.cells)
        return [record for record in records if record is not None]
