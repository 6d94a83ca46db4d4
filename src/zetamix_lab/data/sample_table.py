"""One table of a user's samples, whatever their format: numbered, checked, split, then decoded.

Readers make a `SampleTable` of a folder, a CSV, Parquet or `.npz` file; `to_source` does the rest.
"""

import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zetamix_lab.data.errors import DataError, OnProblem, check_distinct
from zetamix_lab.data.image_files import choose_fit, map_parallel, read_images, read_shape
from zetamix_lab.data.source import Array, Source, digest, read_arrays
from zetamix_lab.data.splits import (
    Group,
    complete_splits,
    content_keys,
    find_groups,
    suggest_column,
    suggest_pattern,
)
from zetamix_lab.text import plural, printable

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
LABEL_COLUMNS = ("label", "class", "target", "diagnosis", "labels")
SEPARATOR = "|"
# more different numbers than this, not all whole, are no names of classes
MAX_NUMBERS = 20
# ends the message about a table or array without images
NO_IMAGES = (
    "Data without images cannot be read by path: compare in a training function of your own, "
    "zetamix compare --train train.py:run (docs/how-to/own-training.md)."
)


@dataclass(frozen=True)
class SampleTable:
    """A user's samples, one row each, as they are in the files."""

    path: Path
    kind: str
    """A description of the format."""
    frame: pd.DataFrame
    """Columns `split`, `label` (a class, its number, or a list of them) and `place` (for messages);
    optionally `group`, and the `name` of an image that is no file."""
    images: Sequence[Path | bytes] = ()
    """The file of every image, or its content."""
    arrays: Sequence[Array] = ()
    """Or the images of each split, decoded."""
    classes: tuple[str, ...] | None = None
    """Names of classes, if labels are their numbers."""
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """The images that are files of their own."""
        return [image for image in self.images if isinstance(image, Path)]


def to_source(table: SampleTable, size: int | None, group: Group, on_problem: OnProblem) -> Source:
    """Number the classes, choose one size for all images, and create missing splits."""
    names, groups = (
        table.frame[column].tolist() if column in table.frame else None
        for column in ("name", "group")
    )
    folder = table.path if table.path.is_dir() else table.path.parent
    names = [os.path.relpath(file, folder) for file in table.files] or names
    if isinstance(group, re.Pattern):
        groups = find_groups(names or [], group, str(table.path))
    named = table.frame["split"].astype(str).str.lower().map(SPLIT_NAMES).fillna("")
    splits = np.array(named, object)
    classes, labels, notes = number_labels(table, splits, on_problem)
    if table.arrays:
        if size is not None:
            raise DataError(f"{table.path}: size is for image files; resize arrays yourself.")
        shape, dtype = table.arrays[0].shape[1:], str(table.arrays[0].dtype)
        how, read = "not resized", read_arrays(table.arrays)
    else:
        shape, fit = choose_fit([*map_parallel(read_shape, table.images, 1024)], size)
        dtype, how = "uint8", fit.describe()
        read = read_images(table.images, shape, fit, table.frame["place"].tolist())
        notes += filter(None, [fit.why])
    if group is None:
        notes += suggest_pattern(names or (), len(classes))
    source = Source(
        name=printable(table.path.name if table.path.is_dir() else table.path.stem),
        classes=classes,
        shape=shape,
        dtype=dtype,
        labels=labels,
        splits=splits,
        read=read,
        origin=f"{table.path}, {table.kind}; images {how}",
        names=names,
        groups=groups,
        notes=(*table.notes, *notes),
    )

    def keys() -> list[Hashable]:
        return list(map(digest, chain(*table.arrays))) or content_keys(table.images)

    return complete_splits(source, origin=str(table.path), keys=keys, on_problem=on_problem)


def number_labels(
    table: SampleTable, splits: Array, on_problem: OnProblem
) -> tuple[tuple[str, ...], Array, list[str]]:
    """The classes, the labels [n] or [n, classes], and notes.

    splits: train, val or test for every row; "" for none of them, as invalid rows get.
    """
    rows, classes, several = _list_labels(table)
    known = "" if classes is None else f" from 0 to {len(classes) - 1}"
    found, problems = list[list[str]](), list[str]()
    for row, items in enumerate(rows):
        names, place = [_class_of(item, classes) for item in items], table.frame["place"].iat[row]
        if not splits[row]:
            split = table.frame["split"].iat[row]
            problems.append(f"{place}: split {split!r}; expected train, val or test.")
        if not all(names):
            problems.append(
                f"{place}: label is {str(items[names.index('')])[:40]!r}; expected the name or "
                f"number of a class{known} (leave out samples without a label)."
            )
            splits[row] = ""
        found.append(names if splits[row] else [])
    trained = {name for row in np.flatnonzero(splits == "train") for name in found[row]}
    if classes is None:
        classes = tuple(sorted(trained, key=lambda name: natural_order(printable(name))))
        numbers = pd.to_numeric(pd.Series(classes, dtype=object), errors="coerce")
        odd = numbers[numbers % 1 != 0]
        # text may name a class 0.5, but not many
        many = len(classes) > MAX_NUMBERS or any(isinstance(k, float) for row in rows for k in row)
        if many and len(odd) and numbers.notna().all() and not several:
            raise DataError(
                f"{table.path}: labels are {len(classes):,} different numbers, such as "
                f"{odd.iat[0]:g}: targets of a regression. Expected classes: put them into bins."
            )
    shown = tuple(map(printable, classes))
    check_distinct(shown, str(table.path))
    on_problem(problems)
    if "train" not in splits:
        raise DataError(
            f"{table.path}: no row has the split train and a label; expected samples to train on."
        )
    on_problem(
        [
            f"{table.path}: class {name!r} has no sample in train. Every class needs some."
            for name in dict.fromkeys(chain(*found, classes))
            if name not in trained
        ]
    )
    if len(classes) < 2:
        count = plural(len(classes), "class", "classes")
        raise DataError(f"{table.path}: {count}; expected two or more.")
    number = {name: k for k, name in enumerate(classes)}
    labels = np.zeros((len(found), len(classes)) if several else len(found), np.int64)
    for row, names in enumerate(found):
        numbers = [number[name] for name in names if name in number]
        if len(numbers) < len(names):
            splits[row] = ""
        elif several:
            labels[row, numbers] = 1
        elif numbers:
            labels[row] = numbers[0]
    if not several:
        return shown, labels, []
    if (labels[splits != ""].sum(1) == 1).all():
        return shown, labels.argmax(1), [f"labels are one-hot: read as {len(classes)} classes"]
    return shown, labels, [f"multi-label: any number of {len(classes)} labels for every sample"]


def _list_labels(table: SampleTable) -> tuple[list[list[Any]], tuple[str, ...] | None, bool]:
    """The labels of every sample, the classes if known, and whether it may have several labels."""
    values, classes = table.frame["label"].tolist(), table.classes
    if any(isinstance(value, str) and SEPARATOR in value for value in values):
        values = [value.split(SEPARATOR) if isinstance(value, str) else value for value in values]
    rows = [value if isinstance(value, list) else [value] for value in values]
    several = any(isinstance(value, list) for value in values)
    items = [item for row in rows for item in row]
    marks = all(isinstance(item, int | float) and item in (0, 1) for item in items)
    if several and classes is None and marks:
        sizes = {len(row) for row in rows}
        if len(sizes) > 1:
            raise DataError(
                f"{table.path}: labels have rows of {min(sizes)} to {max(sizes)} zeros and ones."
            )
        return list_marked(rows), tuple(map(str, range(sizes.pop()))), True
    return rows, classes, several


def _class_of(value: Any, classes: Sequence[str] | None) -> str:
    """The name of a class, from its name or number; "" for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and value >= 0:
        return str(value) if classes is None else "".join(classes[value : value + 1])
    is_name = isinstance(value, str | float) and classes is None and value == value
    return str(value).strip() if is_name else ""


def from_cells(
    path: Path,
    kind: str,
    frame: pd.DataFrame,
    cells: pd.DataFrame,
    images: Sequence[Path | bytes],
    group: str | None,
    known: Mapping[str, tuple[str, ...]] | None = None,
) -> SampleTable:
    """The samples of a CSV or Parquet table: one row each, with a column `split` or without.

    frame: the places of rows, the names of images, and the splits if each has a table.
    group: the column of the patient or lesion, which is kept in one split.
    known: the classes of columns, if labels are numbers.
    """
    by_name = {str(name).lower(): name for name in reversed(list(cells))}
    if "split" not in frame:
        frame = frame.assign(split=cells[by_name["split"]] if "split" in by_name else "train")
    notes = suggest_column(cells.map(str).to_dict("list")) if group is None else ()
    if group is not None:
        column = by_name.get(group.strip().lower())
        if column is None:
            raise DataError(f"{path} has no column {group!r}; it has {', '.join(cells)}.")
        missing = cells[column].isna() | (cells[column] == "")
        if missing.any():
            raise DataError(f"{frame['place'].iat[missing.to_numpy().argmax()]}: no {column}.")
        frame = frame.assign(group=cells.pop(column).map(str))
    named = [by_name[name] for name in LABEL_COLUMNS if by_name.get(name) in cells]
    named += [name for name in known or () if name in cells]
    if named:
        label, classes = cells[named[0]], (known or {}).get(named[0])
    else:
        numbers = cells.apply(pd.to_numeric, errors="coerce")
        marks = numbers.loc[:, numbers.isin([0, 1]).all()]
        if marks.shape[1] < 2:
            raise DataError(
                f"{path} has the columns {', '.join(cells)}; expected one for the class, called "
                f"{', '.join(LABEL_COLUMNS)}, or columns of zeros and ones."
            )
        label, classes = list_marked(marks.to_numpy()), tuple(map(str, marks))
        notes = (f"labels from the columns {', '.join(classes)}", *notes)
    frame = frame.assign(label=label)
    return SampleTable(path, kind, frame, images, classes=classes, notes=notes)


def list_marked(marks: Iterable[Any]) -> list[list[int]]:
    """The columns of the ones in each row of a matrix of zeros and ones."""
    return [np.flatnonzero(row).tolist() for row in marks]


def natural_order(name: str) -> list[tuple[int, str]]:
    """class2 before class10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
