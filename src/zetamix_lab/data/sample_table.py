"""One table of a user's samples, whatever their format: numbered, checked, split, then decoded.

Readers make a `SampleTable` of a folder, a CSV, Parquet or `.npz` file; `to_source` does the rest.
"""

import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from zetamix_lab.data.errors import DataError, OnProblem, check_distinct, raise_problems
from zetamix_lab.data.groups import Group, find_groups, suggest_column, suggest_pattern
from zetamix_lab.data.image_files import (
    choose_fit,
    map_parallel,
    read_images,
    try_header,
)
from zetamix_lab.data.source import Array, Block, Rows, Source, digest, read_arrays
from zetamix_lab.data.splits import complete_splits, content_keys, count_labels
from zetamix_lab.text import plural, printable

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
LABEL_COLUMNS = ("label", "class", "target", "diagnosis", "labels")
SEPARATOR = "|"
# columns that pandas writes for its index
UNNAMED = ("", "__index_level_0__", "unnamed: 0")
# more different numbers than this, not all whole, are no names of classes
MAX_NUMBERS = 20


@dataclass(frozen=True)
class SampleTable:
    """A user's samples, one row each, as they are in the files."""

    path: Path
    kind: str
    """A description of the format."""
    frame: pd.DataFrame
    """Columns `split`, `file` and `row` (for messages); optionally `name` and `group`."""
    labels: pd.DataFrame
    """The column of the class, or two or more columns of zeros and ones."""
    images: Sequence[Path | bytes] | None = None
    """The file of every image, or its content; None: the samples are `arrays`."""
    arrays: Sequence[Array] = ()
    """The samples of each split; of a table of numbers, of all rows."""
    classes: tuple[str, ...] | None = None
    """Names of classes, if labels are their numbers."""
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """The files of images."""
        return self.images if isinstance(self.images, list) else []

    @property
    def names(self) -> list[str] | None:
        """The names of files, if samples have some."""
        return self.frame["name"].tolist() if "name" in self.frame else None

    def where(self, row: int) -> str:
        """The place of a sample, for messages."""
        return str(self.files[row]) if self.files else self.place(row)

    def place(self, row: int) -> str:
        """The place of a label, for messages."""
        return f"{self.frame['file'].iat[row]}, row {self.frame['row'].iat[row]}"


def to_source(
    table: SampleTable, *, seed: int, size: int | None, group: Group, on_problem: OnProblem
) -> Source:
    """Number the classes, choose one size for all images, and create missing splits."""
    groups = table.frame["group"].tolist() if "group" in table.frame else None
    if isinstance(group, re.Pattern):
        if not table.names or not all(table.names):
            raise DataError(
                f"{table.path} has no file names. Group its samples by a column, with --group, "
                "such as --group patient (of an .npz file: the arrays train_patient, and so on)."
            )
        groups = find_groups(table.names, group, str(table.path), on_problem)
    splits = np.array(
        [SPLIT_NAMES.get(str(text).lower(), "") for text in table.frame["split"]], dtype=object
    )
    classes, labels, notes, valid = number_labels(table, splits, on_problem)
    if table.images is None:
        shape, dtype, how, read = _prepare_arrays(table, size)
        why = ""
    else:
        headers = list(map_parallel(try_header, table.images, 1024))
        shape, fit = choose_fit(headers, size, table.path, on_problem)
        dtype, how, why = "uint8", f"images {fit.describe()}", fit.why
        read = read_images(table.images, table.where, shape, fit)
    hints = suggest_pattern(table.names or (), len(classes)) if group is None else ()
    source = Source(
        name=printable(table.path.name if table.path.is_dir() else table.path.stem),
        classes=classes,
        shape=shape,
        dtype=dtype,
        labels=labels,
        splits=splits,
        read=read,
        origin=f"{table.path}, {table.kind}; {how}",
        names=table.names,
        groups=groups,
        notes=(*table.notes, *notes, *filter(None, [why]), *hints),
    )

    def keys() -> list[Hashable]:
        if table.images is None:
            every: list[Hashable] = [digest(sample) for some in table.arrays for sample in some]
            return [every[row] for row in valid]
        return content_keys([table.images[row] for row in valid])

    kept = source.keep(np.array(valid, np.int64))
    return complete_splits(
        kept, seed=seed, origin=str(table.path), keys=keys, on_problem=on_problem
    )


def number_labels(
    table: SampleTable, splits: Array, on_problem: OnProblem
) -> tuple[tuple[str, ...], Array, list[str], list[int]]:
    """The classes, the labels [n] or [n, classes] of all rows, notes, and the valid rows.

    splits: train, val or test for every row, or "" for a row of none of them.
    """
    classes, found, problems, several = _read_labels(table)
    for row in np.flatnonzero(splits == "").tolist():
        text = table.frame["split"].iat[row]
        problems[row] = f"split {text!r}; expected train, val or test"
    in_train = splits == "train"
    if classes is None:
        # all labels are looked at before a missing train is said
        named = in_train if in_train.any() else ~in_train
        names = {name for row in np.flatnonzero(named) for name in found[row]}
        classes = tuple(sorted(names, key=natural_order))
        if not several:
            _refuse_numbers(table, classes)
    number = {name: k for k, name in enumerate(classes)}
    shown = tuple(map(printable, classes))
    check_distinct(shown, str(table.path))
    on_problem([f"{table.place(row)}: {why}." for row, why in sorted(problems.items())])
    if not in_train.any():
        raise DataError(f"{table.path}: no row has the split train; expected samples to train on.")
    labels = np.zeros((len(found), len(classes)) if several else len(found), np.int64)
    absent = [item for some in found for item in some if item not in number]
    known = [row for row, some in enumerate(found) if set(some) <= number.keys()]
    valid = [row for row in known if row not in problems]
    for row in valid:
        numbers = [number[item] for item in found[row]]
        labels[(row, numbers) if several else row] = 1 if several else numbers[0]
    trained = [row for row in valid if in_train[row]]
    if not trained:
        raise DataError(f"{table.path}: no sample of train has a label that can be used.")
    notes = []
    if several:
        one_hot = bool((labels[valid].sum(1) == 1).all())
        what = "labels are one-hot: read as" if one_hot else "multi-label: any number of"
        notes = [f"{what} {len(classes)} {'classes' if one_hot else 'labels for every sample'}"]
        labels = labels.argmax(1) if one_hot else labels
    counts = count_labels(torch.from_numpy(labels[trained]), len(classes)).tolist()
    empty = [name for name, count in zip(classes, counts, strict=True) if not count]
    on_problem(
        [
            f"{table.path}: class {name!r} has no sample in train. Every class needs some."
            for name in dict.fromkeys([*absent, *empty])
        ]
    )
    if len(classes) < 2:
        few = f"{table.path}: {plural(len(classes), 'class', 'classes')}; expected two or more."
        (on_problem if classes else raise_problems)([few])
    return shown, labels, notes, valid


def _read_labels(
    table: SampleTable,
) -> tuple[tuple[str, ...] | None, list[list[str]], dict[int, str], bool]:
    """The classes if they are known, those of every sample, and whether it may have several.

    Also what is wrong with samples that are left without any.
    """
    column, classes = str(table.labels.columns[0]), table.classes
    values = table.labels.iloc[:, 0].tolist()
    if table.labels.shape[1] > 1:
        classes, values = tuple(map(str, table.labels)), table.labels.to_numpy().tolist()
    elif any(isinstance(value, str) and SEPARATOR in value for value in values):
        values = [value.split(SEPARATOR) if isinstance(value, str) else value for value in values]
    rows = [value if isinstance(value, list) else [value] for value in values]
    several = any(isinstance(value, list) for value in values)
    plain = all(isinstance(item, int | float) and item in (0, 1) for row in rows for item in row)
    if several and plain and table.classes is None:
        sizes = {len(row) for row in rows}
        if len(sizes) > 1:
            raise DataError(
                f"{table.path}: {column} has rows of {min(sizes)} to {max(sizes)} zeros and ones."
            )
        classes = classes or tuple(map(str, range(sizes.pop())))
        rows = [np.flatnonzero(row).tolist() for row in rows]
    found: list[list[str]] = []
    problems: dict[int, str] = {}
    for row, items in enumerate(rows):
        try:
            found.append([_class_of(item, classes, column) for item in items])
        except ValueError as error:
            found.append([])
            problems[row] = str(error)
    return classes, found, problems, several


def _class_of(value: Any, classes: Sequence[str] | None, column: str) -> str:
    """The name of a class, or that of the class with this number; raises for anything else."""
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if isinstance(value, str):
        value = value.strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or value == "" or value != value:
        raise ValueError(f"no {column}; expected a class for every sample")
    if isinstance(value, str | float) and classes is None:
        return str(value)
    if not isinstance(value, int):
        raise ValueError(f"{column} is {str(value)[:40]!r}; expected the name or number of a class")
    if value < 0 or (classes is not None and value >= len(classes)):
        highest = "" if classes is None else f" to {len(classes) - 1}"
        raise ValueError(
            f"{column} is {value}; expected a class from 0{highest} (-1 often marks samples "
            "without a label: leave them out)"
        )
    return str(value) if classes is None else classes[value]


def _refuse_numbers(table: SampleTable, classes: Sequence[str]) -> None:
    """Raise for targets of a regression: numbers that are not all whole."""
    column = table.labels.iloc[:, 0]
    # text may name a class 0.5, but not many
    most = 0 if any(isinstance(value, float) for value in column) else MAX_NUMBERS
    try:
        odd = [name for name in classes if not float(name).is_integer()]
    except ValueError:
        return
    if odd and len(classes) > most:
        raise DataError(
            f"{table.path}: {column.name} has {len(classes):,} different numbers, such as "
            f"{odd[0]}: targets of a regression. Expected classes: put the numbers into bins."
        )


def from_cells(
    path: Path,
    kind: str,
    frame: pd.DataFrame,
    cells: pd.DataFrame,
    *,
    group: str | None,
    images: Sequence[Path | bytes] | None = None,
    file: str | None = None,
    known: Mapping[str, tuple[str, ...]] | None = None,
) -> SampleTable:
    """The samples of a CSV or Parquet table: one row each, with a column `split` or without.

    frame: the places of rows, the names of images, and the splits if each has a table.
    group: the column of the patient or lesion, which is kept in one split.
    file: the column of files of images. known: the classes of columns, if labels are numbers.
    """
    by_name = {str(name).lower(): name for name in reversed(list(cells))}
    used = [name for name in (file, by_name.get("split")) if name is not None]
    if "split" not in frame:
        frame = frame.assign(split=cells[by_name["split"]] if "split" in by_name else "train")
    if group is not None:
        column = by_name.get(group.strip().lower())
        if column is None:
            raise DataError(f"{path} has no column {group!r}; it has {', '.join(cells)}.")
        missing = cells[column].isna() | (cells[column] == "")
        if missing.any():
            row = int(missing.to_numpy().argmax())
            raise DataError(f"{path}, row {frame['row'].iat[row]}: no {column}.")
        frame = frame.assign(group=cells[column].map(str))
        used.append(column)
    notes = () if group else suggest_column(cells.map(str).to_dict("list"))
    classes = None
    named = [by_name[name] for name in LABEL_COLUMNS if name in by_name]
    named += [name for name in known or () if name in cells]
    if named:
        labels, classes = cells[named[:1]], (known or {}).get(named[0])
    else:
        # of a table with images: columns of zeros and ones
        numbers = cells.drop(columns=used).apply(pd.to_numeric, errors="coerce")
        labels = numbers.loc[:, numbers.isin([0, 1]).all()]
        if images is None or labels.shape[1] < 2:
            raise DataError(
                f"{path} has the columns {', '.join(cells)}; expected one for the class, called "
                f"{', '.join(LABEL_COLUMNS)}, or columns of zeros and ones."
            )
        labels = labels.astype(np.int64)
        notes = (f"labels from the columns {', '.join(labels)}", *notes)
    arrays = []
    if images is None:
        arrays = [_number_columns(path, cells.drop(columns=[*used, *labels]))]
    return SampleTable(path, kind, frame, labels, images, arrays, classes, notes)


def _number_columns(path: Path, cells: pd.DataFrame) -> Array:
    """[n, d], float32: the columns of numbers."""
    numbers = cells.apply(pd.to_numeric, errors="coerce")
    text = numbers.isna() & cells.notna() & (cells != "")
    names = [name for name in cells if name not in UNNAMED and not text[name].any()]
    if not names or numbers[names].isna().all(axis=None):
        raise DataError(
            f"{path} has the columns {', '.join(map(str, cells))} besides the class; expected one "
            "of images (files or bytes), or columns of numbers."
        )
    samples = numbers[names].to_numpy(np.float64)
    check_finite(samples, path, f"columns {', '.join(names[:3])}, …")
    return np.asarray(samples, np.float32)


def check_finite(samples: Array, path: Path, name: str) -> None:
    """Raise for the first sample with NaN, infinity or a number that float32 cannot hold."""
    good = (np.abs(samples) <= np.finfo(np.float32).max).reshape(len(samples), -1).all(1)
    if not good.all():
        raise DataError(
            f"{path}: row {int(good.argmin())} of {name} contains NaN, infinity or a number beyond "
            "float32; expected finite numbers."
        )


def _prepare_arrays(
    table: SampleTable, size: int | None
) -> tuple[tuple[int, ...], str, str, Callable[[Rows], Iterator[Block]]]:
    """Shape, dtype, a description and the reader of samples in memory."""
    shape, dtype = table.arrays[0].shape[1:], str(table.arrays[0].dtype)
    if len(shape) == 1:
        if size is not None:
            raise DataError(f"{table.path}: points of {shape[0]} coordinates; size is for images.")
        return shape, dtype, f"points of {shape[0]} coordinates", read_arrays(table.arrays)
    if size is not None:
        raise DataError(f"{table.path}: size is for image files; resize arrays yourself.")
    return shape, dtype, "images not resized", read_arrays(table.arrays)


def natural_order(name: str) -> list[tuple[int, str]]:
    """class2 before class10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
