"""The format of a user's data, and its reader; folders: `class/…`, or `train|val|test/class/…`."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import pandas as pd

from zetamix_lab.data.errors import DataError, OnProblem, raise_problems
from zetamix_lab.data.image_files import images_below, is_image, subfolders
from zetamix_lab.data.readers.label_csv import from_csv
from zetamix_lab.data.readers.npz import from_npz
from zetamix_lab.data.sample_table import SPLIT_NAMES, SampleTable

ARCHIVES = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".zip", ".7z", ".rar")
FORMATS = "a folder of images, a .csv, .npz or .parquet file"
LAYOUT = (
    "expected one folder per class with its images (class/…), or the same in each of train, val "
    "and test (train/class/…)"
)


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


def from_folder(path: Path, on_problem: OnProblem = raise_problems) -> SampleTable:
    """The images of a folder, whose classes are the names of their folders."""
    folders = subfolders(path)
    loose = sorted(entry for entry in path.iterdir() if is_image(entry))
    if loose or not folders:
        detail = f"the image {loose[0].name} is not in a class folder" if loose else "no folders"
        problem = f"{path}: {detail}; {LAYOUT}. Or pass a .csv file with the classes."
        (on_problem if folders else raise_problems)([problem])
    files: list[Path] = []
    rows: list[tuple[str, str, str]] = []
    for split, folder in _split_folders(path, folders, on_problem).items():
        before = len(files)
        for entry in subfolders(folder):
            images = images_below(entry)
            if not images:
                on_problem([f"{entry} contains no images. Add images, or delete the folder."])
            files += images
            rows += [(split, entry.name, str(image)) for image in images]
        if len(files) == before:
            on_problem([f"{folder} contains no images; {LAYOUT}."])
    if not rows:
        raise DataError(f"{path} contains no images; {LAYOUT}.")
    # names of files may be no text, which only objects hold
    frame = pd.DataFrame(rows, columns=["split", "label", "place"], dtype=object)
    return SampleTable(path, "a folder of images", frame, files, notes=_ignored_files(path))


def _split_folders(path: Path, folders: Sequence[Path], on_problem: OnProblem) -> dict[str, Path]:
    """The folder of each split; the whole folder is train if none has that name."""
    by_split = {folder: SPLIT_NAMES.get(folder.name.lower(), "") for folder in folders}
    if "train" not in by_split.values():
        return {"train": path}
    splits: dict[str, Path] = {}
    for folder, split in by_split.items():
        if not split or splits.setdefault(split, folder) != folder:
            other = splits[split].name if split else "train"
            on_problem([f"{path}: unexpected folder {folder.name} next to {other}; {LAYOUT}."])
    return splits


def _ignored_files(path: Path) -> tuple[str, ...]:
    """A note about files that are no images by their name."""
    others = [
        file.relative_to(path)
        for file in sorted(path.rglob("[!.]*"))
        if file.is_file() and not is_image(file)
    ]
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (f"ignored non-image files: {others[0]}{more}",) if others else ()
