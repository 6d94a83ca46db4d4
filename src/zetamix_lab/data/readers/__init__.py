"""Readers: from files on disk to a `SampleTable`, or by name to a `Source`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zetamix_lab.data.errors import DataError, OnProblem

if TYPE_CHECKING:
    from zetamix_lab.data.sample_table import SampleTable

ARCHIVES = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".zip", ".7z", ".rar")
FORMATS = "a folder of images, a .csv, .npz or .parquet file"


def open_table(
    path: Path, group: str | None, on_problem: OnProblem
) -> tuple[Sequence[Path], Callable[[], "SampleTable"]]:
    """The files of a user's data, and a function that reads the table of its samples.

    group: the column of the patient or lesion.
    """
    # imported here because they import pandas
    from zetamix_lab.data.readers import folders, label_csv, npz, parquet

    if not (path.is_dir() or path.is_file()):
        raise DataError(f"{path} is neither a folder nor a regular file.")
    tables = parquet.find_tables(path)
    if tables is not None:
        if not tables.get("train"):
            raise DataError(f"{path} has no split train; it has {', '.join(tables) or 'none'}.")
        files = [file for some in tables.values() for file in some]
        return files, partial(parquet.from_parquet, path, tables, group)
    if path.is_dir():
        if group is not None:
            raise DataError(
                f"{path} is a folder and has no column {group!r}. Group its files by their paths, "
                "with a regular expression that has a group in brackets."
            )
        table = folders.from_folder(path, on_problem)
        return table.files, lambda: table
    suffix = path.suffix.lower()
    if suffix == ".csv":
        rows = label_csv.from_csv(path, group, on_problem)
        return [path, *rows.files], lambda: rows
    if suffix == ".npz":
        return [path], partial(npz.from_npz, path, group)
    if suffix in ARCHIVES:
        raise DataError(f"{path} is an archive: unpack it and pass the folder; expected {FORMATS}.")
    raise DataError(f"{path}: expected {FORMATS}, got {suffix or 'a file without suffix'}.")
