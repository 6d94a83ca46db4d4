"""A user's own images: one folder per class, or a CSV file in the folder of the images."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median_low

import numpy as np

from zetamix_lab.data.errors import DataError, OnProblem, check_distinct, raise_problems
from zetamix_lab.data.groups import Group, find_groups
from zetamix_lab.data.image_files import (
    Fit,
    Header,
    LabelledFile,
    file_part,
    images_below,
    is_image,
    read_headers,
    subfolders,
)
from zetamix_lab.data.label_csv import ImageIndex, Row, find_column, read_rows
from zetamix_lab.data.source import Source, read_matrices
from zetamix_lab.data.splits import complete_splits, file_keys
from zetamix_lab.text import plural, printable

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
FILE_COLUMNS = ("file", "image", "path", "filename", "file_name", "image_id", "image_path")
LABEL_COLUMNS = ("label", "class", "target", "diagnosis")
ZERO_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
TABLE = (
    f"a header with a column for the image ({', '.join(FILE_COLUMNS)}) and one for its class "
    f"({', '.join(LABEL_COLUMNS)}, or columns of zeros and ones), and one row per image"
)
LAYOUT = (
    "expected one folder per class with its images (class/…), or the same in each of train, val "
    "and test (train/class/…)"
)

# images of one size up to this side are not resized
NATIVE_SIDE = 256
DEFAULT_SIZE = 224
# images of different sizes with no side over this are resized to their median side: for 32 to 48
# pixels, 224 would give 20 to 50 times as many pixels without more detail
SMALL_SIDE = 64


@dataclass(frozen=True)
class Listing:
    """A user's images before any is opened: the class and split of every file."""

    path: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[LabelledFile]]
    notes: tuple[str, ...] = ()

    def state(self) -> list[object]:
        """A value that changes whenever a file does: names, labels, sizes and times."""
        state: list[object] = [list(self.classes)]
        for split, items in self.splits.items():
            for file, label, group in items:
                # a dangling link is reported when it is decoded, like any unreadable file
                stat = file.stat() if file.exists() else file.lstat()
                state.append([split, label, str(file), stat.st_size, stat.st_mtime_ns, group])
        return state

    def grouped(self, pattern: re.Pattern[str], on_problem: OnProblem) -> "Listing":
        """The listing with groups from the paths of the files, relative to the data."""
        base = self.path if self.path.is_dir() else self.path.parent
        splits = {}
        for split, items in self.splits.items():
            names = [os.path.relpath(item.file, base) for item in items]
            groups = find_groups(names, pattern, str(self.path), on_problem)
            pairs = zip(items, groups, strict=True)
            splits[split] = [item._replace(group=group) for item, group in pairs]
        return replace(self, splits=splits)


def list_images(path: Path, group: Group, on_problem: OnProblem = raise_problems) -> Listing:
    """The files of a folder of images, or of a CSV file."""
    column = group if isinstance(group, str) else None
    if path.is_dir() and column is not None:
        raise DataError(
            f"{path} is a folder and has no column {column!r}. Group its files by their paths, "
            "with a regular expression that has a group in brackets."
        )
    listing = list_folder(path, on_problem) if path.is_dir() else list_csv(path, column, on_problem)
    return listing.grouped(group, on_problem) if isinstance(group, re.Pattern) else listing


def list_folder(path: Path, on_problem: OnProblem = raise_problems) -> Listing:
    """A folder of images, `class/…` or `train|val|test/class/…`."""
    folders = subfolders(path)
    loose = sorted(entry for entry in path.iterdir() if is_image(entry))
    if loose or not folders:
        detail = f"the image {loose[0].name} is not in a class folder" if loose else "no folders"
        problem = f"{path}: {detail}; {LAYOUT}. Or pass a .csv file with the classes."
        (on_problem if folders else raise_problems)([problem])
    images: dict[str, list[LabelledFile]] = {}
    for split, folder in _split_folders(path, folders, on_problem).items():
        images[split] = []
        classes = subfolders(folder)
        names = [printable(subfolder.name) for subfolder in classes]
        check_distinct(names, str(folder))
        for name, subfolder in zip(names, classes, strict=True):
            files = images_below(subfolder)
            if not files:
                on_problem([f"{subfolder} contains no images. Add images, or delete the folder."])
            images[split] += [LabelledFile(file, name) for file in files]
        if not images[split]:
            on_problem([f"{folder} contains no images; {LAYOUT}."])
    return _listing(path, images, on_problem, _ignored_files(path))


def list_csv(
    path: Path, group: str | None = None, on_problem: OnProblem = raise_problems
) -> Listing:
    """A CSV file with columns for the image, its class, and optionally its split.

    Without a column for the class, all columns of zeros and ones are labels.

    group: the column of the patient or lesion, which is kept in one split.
    """
    problems: list[str] = []
    rows = read_rows(path, [], expected=TABLE, on_problem=problems.extend)
    if not rows:
        raise_problems(problems)
        raise DataError(f"{path} has a header and no rows; expected one row per image.")
    file_column = find_column(rows[0], FILE_COLUMNS, "the image")
    group_column = None if group is None else group.strip().lower()
    if group_column is not None and group_column not in rows[0].cells:
        raise DataError(f"{path} has no column {group!r}; it has {', '.join(rows[0].cells)}.")
    label_columns = _label_columns(rows, [file_column, *filter(None, [group_column])])
    # built only if a name is not a path relative to the CSV file, whose folder may be large
    index = cache(lambda: ImageIndex(path.parent))
    images: dict[str, list[LabelledFile]] = {}
    seen: dict[Path, Row] = {}
    for row in rows:
        try:
            file = _image_of(path, row, row[file_column], index)
            if (first := seen.setdefault(file, row)) is not row:
                raise DataError(
                    f"{row.where}: {row[file_column]!r} is already in row {first.number}."
                )
            for column in filter(None, [*label_columns, group_column]):
                if not row[column]:
                    raise DataError(f"{row.where}: no {column}; expected a value for every image.")
            label: str | tuple[int, ...] = printable(row[label_columns[0]])
            if len(label_columns) > 1:
                label = tuple(ZERO_ONE[row[column]] for column in label_columns)
            found = LabelledFile(file, label, row[group_column] if group_column else None)
            images.setdefault(_split_of(row), []).append(found)
        except DataError as error:
            problems.append(str(error))
    on_problem(problems)
    if "train" not in images:
        raise DataError(f"{path}: no row has the split train; expected images to train on.")
    if len(label_columns) == 1:
        return _listing(path, images, on_problem)
    matrices = {split: np.array([image.label for image in some]) for split, some in images.items()}
    labels, notes = read_matrices(matrices)
    splits = {
        split: [
            image._replace(label=label)
            for image, label in zip(some, labels[split].tolist(), strict=True)
        ]
        for split, some in images.items()
    }
    notes = (*notes, f"labels from the columns {', '.join(label_columns)}")
    return Listing(path, tuple(label_columns), splits, notes)


def _label_columns(rows: Sequence[Row], others: Sequence[str]) -> list[str]:
    """The column of the class, or two or more columns of zeros and ones."""
    named = [column for column in LABEL_COLUMNS if column in rows[0].cells]
    if named:
        return named[:1]
    columns = [column for column in rows[0].cells if column not in (*others, "split")]
    found = [column for column in columns if all(row[column] in ZERO_ONE for row in rows)]
    return found if len(found) > 1 else [find_column(rows[0], LABEL_COLUMNS, "the class")]


def _listing(
    path: Path,
    images: Mapping[str, Sequence[LabelledFile]],
    on_problem: OnProblem,
    notes: tuple[str, ...] = (),
) -> Listing:
    """Number the classes of train; classes that only other splits have are problems."""
    names = sorted({str(image.label) for image in images["train"]}, key=natural_order)
    if len(names) < 2:
        problem = f"{path}: {plural(len(names), 'class', 'classes')}; expected two or more."
        (on_problem if names else raise_problems)([problem])
    others = {str(image.label) for items in images.values() for image in items} - set(names)
    on_problem(
        [
            f"{path}: class {name!r} has no image in train. Every class needs training images."
            for name in sorted(others)
        ]
    )
    number = {name: label for label, name in enumerate(names)}
    splits = {
        split: [
            image._replace(label=number[str(image.label)])
            for image in items
            if image.label in number
        ]
        for split, items in images.items()
    }
    return Listing(path, tuple(names), splits, notes)


def listing_source(
    listing: Listing, seed: int, size: int | None, on_problem: OnProblem = raise_problems
) -> Source:
    """Read every image's header, choose one size for all, and create missing splits."""
    files = [item.file for split in listing.splits.values() for item in split]
    shape, fit = choose_shape(read_headers(files), size, listing.path, on_problem)
    is_folder = listing.path.is_dir()
    base = listing.path if is_folder else listing.path.parent
    kind = "a folder of images" if is_folder else "a CSV file and its images"
    source = Source(
        name=printable(listing.path.name if is_folder else listing.path.stem),
        classes=listing.classes,
        shape=shape,
        dtype=fit.dtype,
        parts={split: file_part(some, shape, fit, base) for split, some in listing.splits.items()},
        origin=f"{listing.path}, {kind}; images {fit.describe()}",
        notes=(*listing.notes, *filter(None, [fit.why])),
    )
    return complete_splits(
        source,
        seed=seed,
        origin=str(listing.path),
        keys=lambda: file_keys([item.file for item in listing.splits["train"]]),
        on_problem=on_problem,
    )


def choose_shape(
    scanned: Sequence[Header | None], size: int | None, origin: Path, on_problem: OnProblem
) -> tuple[tuple[int, ...], Fit]:
    """The shape of one sample, and how images with these headers are brought to it."""
    # files without a header are reported when they are decoded
    headers = [header for header in scanned if header is not None]
    if not headers:
        on_problem([f"{origin}: none of {plural(len(scanned), 'image')} can be read."])
        return (3, DEFAULT_SIZE, DEFAULT_SIZE), Fit(DEFAULT_SIZE, crop=1.0)
    channels = 1 if all(header.grey for header in headers) else 3
    dtype = "float32" if all(header.wide for header in headers) else "uint8"
    sides = {(header.height, header.width) for header in headers}
    if size is None and len(sides) == 1 and max(max(sides)) <= NATIVE_SIDE:
        return (channels, *sides.pop()), Fit(None, dtype=dtype)
    side, why = _choose_side(headers) if size is None else (size, "")
    return (channels, side, side), Fit(side, crop=1.0, why=why, dtype=dtype)


def _choose_side(headers: Sequence[Header]) -> tuple[int, str]:
    """The side for images of different sizes: 224, or like their own if all are small; and why."""
    if max(max(header.width, header.height) for header in headers) > SMALL_SIDE:
        return DEFAULT_SIZE, ""
    median = median_low(min(header.width, header.height) for header in headers)
    side = -(-median // 8) * 8
    return side, (
        f"images differ in size and none has a side over {SMALL_SIDE} pixels: resized to {side} × "
        f"{side}, the median of their shorter sides rounded up to a multiple of 8"
    )


def _split_folders(path: Path, folders: Sequence[Path], on_problem: OnProblem) -> dict[str, Path]:
    """The folder of each split; the whole folder is train if none has that name."""
    by_split = {folder: SPLIT_NAMES.get(folder.name.lower()) for folder in folders}
    if "train" not in by_split.values():
        return {"train": path}
    splits: dict[str, Path] = {}
    for folder, split in by_split.items():
        if split is None:
            on_problem([f"{path}: unexpected folder {folder.name} next to train; {LAYOUT}."])
        elif split in splits:
            on_problem(
                [f"{path}: {splits[split].name} and {folder.name} are both {split}; keep one."]
            )
        else:
            splits[split] = folder
    return splits


def _ignored_files(path: Path) -> tuple[str, ...]:
    """A note about files that are no images by their name."""
    others = [
        Path(parent, name).relative_to(path)
        for parent, _, names in os.walk(path)
        for name in sorted(names)
        if not name.startswith(".") and not is_image(Path(name))
    ]
    if not others:
        return ()
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (f"ignored non-image files: {others[0]}{more}",)


def _image_of(table: Path, row: Row, name: str, images: Callable[[], ImageIndex]) -> Path:
    if not name:
        raise DataError(f"{row.where}: no image; expected the path of a file.")
    direct = Path(os.path.normpath(table.parent / name))
    return direct if direct.is_file() else images().find(name, row)


def _split_of(row: Row) -> str:
    split = SPLIT_NAMES.get(row.cells.get("split", "train").lower())
    if split is None:
        raise DataError(f"{row.where}: split {row['split']!r}; expected train, val or test.")
    return split


def natural_order(name: str) -> list[tuple[int, str]]:
    """class2 before class10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
