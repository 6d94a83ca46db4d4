"""The format of a user's data, and its reader."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from zetamix_lab.data.errors import DataError, OnProblem
from zetamix_lab.data.image_files import subfolders
from zetamix_lab.data.readers.folders import from_folder
from zetamix_lab.data.readers.label_csv import from_csv
from zetamix_lab.data.readers.npz import from_npz
from zetamix_lab.data.sample_table import SPLIT_NAMES, SampleTable

ARCHIVES = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".zip", ".7z", ".rar")
FORMATS = "a folder of images, a .csv, .npz or .parquet file"


def open_table(
    path: Path, group: str | None, on_problem: OnProblem
) -> tuple[Sequence[Path], Callable[[], SampleTable]]:
    """The files of a user's data, and a function that reads the table of its samples.

    group: the column of the patient or lesion.
    """
    if not (path.is_dir() or path.is_file()):
        raise DataError(f"{path} is neither a folder nor a regular file.")
    suffix, tables = path.suffix.lower(), find_tables(path)
    if tables is not None:
        if "train" not in tables:
            raise DataError(f"{path} has no split train; it has {', '.join(tables)}.")
        try:
            from zetamix_lab.data.readers.parquet import from_parquet
        except ModuleNotFoundError:
            raise DataError(f"{path} needs pyarrow: pip install 'zetamix[parquet]'") from None
        return [*chain(*tables.values())], partial(from_parquet, path, tables, group)
    if path.is_dir():
        if group is not None:
            raise DataError(
                f"{path} is a folder and has no column {group!r}. Group its files by their paths, "
                "with a regular expression that has a group in brackets."
            )
        table = from_folder(path, on_problem)
        return table.files, lambda: table
    if suffix == ".csv":
        table = from_csv(path, group, on_problem)
        return [path, *table.files], lambda: table
    if suffix == ".npz":
        return [path], partial(from_npz, path, group)
    if suffix in ARCHIVES:
        raise DataError(f"{path} is an archive: unpack it and pass the folder; expected {FORMATS}.")
    raise DataError(f"{path}: expected {FORMATS}, got {suffix or 'a file without suffix'}.")


def find_tables(path: Path) -> dict[str, list[Path]] | None:
    """The Parquet or Arrow files of each split; None if the data has another format.

    A Hugging Face dataset is a folder of Parquet files, or of Arrow files (`save_to_disk`).
    """
    if path.is_file():
        return {"train": [path]} if path.suffix.lower() in (".parquet", ".arrow") else None
    splits: dict[str, list[Path]] = {}
    for folder in (path, *subfolders(path)):
        if (folder / "state.json").exists():
            name = "train" if folder == path else folder.name.lower()
            if name not in SPLIT_NAMES:
                raise DataError(f"{folder} is no split; expected train, validation or test.")
            splits[SPLIT_NAMES[name]] = _arrow_files(folder)
    folders = [path, path / "data", *(path / name for name in SPLIT_NAMES)]
    for file in (file for folder in folders for file in sorted(folder.glob("*.parquet"))):
        # train-00000-of-00002.parquet, train.parquet, train/0.parquet
        names = [re.split(r"[-_.]", file.stem)[0].lower(), file.parent.name.lower()]
        split = next((SPLIT_NAMES[name] for name in names if name in SPLIT_NAMES), "train")
        splits.setdefault(split, []).append(file)
    return splits or None


def _arrow_files(folder: Path) -> list[Path]:
    """The files that `save_to_disk` wrote, without what later calls have cached beside them."""
    files = [file for file in sorted(folder.glob("*.arrow")) if not file.name.startswith("cache-")]
    # data-00000-of-00002.arrow
    counts = {int(number) for file in files for number in re.findall(r"-of-(\d+)", file.stem)}
    if not files or counts - {len(files)}:
        raise DataError(f"{folder} is incomplete: expected every Arrow file that was saved there.")
    return files
