"""A user's own images: a folder for each class, or a CSV file beside them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from zetamix.data.decode import (
    NATIVE,
    Fit,
    Header,
    file_part,
    images_below,
    in_parallel,
    is_image,
    read_header,
)
from zetamix.data.errors import DataError
from zetamix.data.readers.labelled import Labelled
from zetamix.data.source import Source
from zetamix.data.splits import made_note, make_splits
from zetamix.data.tables import Images, Row, read_rows

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
FILE_COLUMNS = ("file", "image", "path", "filename", "file_name", "image_id", "image_path")
LABEL_COLUMNS = ("label", "class", "target", "diagnosis")
LAYOUT = (
    "expected a folder for each class with its images (class/…), or the same in each of train, val "
    "and test (train/class/…)"
)

# images of one size up to this side are kept as they are, all others are brought to one size
NATIVE_SIDE = 256
DEFAULT_SIZE = 224


@dataclass(frozen=True)
class Listing:
    """A user's images before any of them is opened: which file has which class, in which split."""

    name: str
    path: Path
    base: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[Labelled]]
    kind: str
    notes: tuple[str, ...] = ()

    def state(self) -> list[object]:
        """What changes whenever any of the files does: names, labels, sizes and times."""
        found: list[object] = [list(self.classes)]
        for split, items in self.splits.items():
            for file, label in items:
                facts = file.stat()
                found.append([split, label, str(file), facts.st_size, facts.st_mtime_ns])
        return found


def list_folder(path: Path) -> Listing:
    """A folder of images, `class/…` or `train|val|test/class/…`."""
    inside = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    folders = [entry for entry in inside if entry.is_dir() and entry.name != "__MACOSX"]
    loose = [entry for entry in inside if is_image(entry)]
    if loose or not folders:
        what = f"the image {loose[0].name} lies outside of any class" if loose else "no folders"
        raise DataError(f"{path}: {what}; {LAYOUT}. Or give a .csv file that names the classes.")
    by_split = {folder: SPLIT_NAMES.get(folder.name.lower()) for folder in folders}
    if "train" not in by_split.values():
        splits = {"train": path}
    elif None in by_split.values():
        other = next(folder.name for folder, split in by_split.items() if split is None)
        raise DataError(f"{path}: {other} lies beside train; {LAYOUT}.")
    else:
        splits = _one_folder_each(path, by_split)
    names = sorted({f.name for f in _class_folders(splits["train"])}, key=_natural_order)
    if len(names) < 2:
        raise DataError(f"{path}: {len(names)} class; {LAYOUT}, and at least two classes.")
    found = {split: _classes_of(folder, names) for split, folder in splits.items()}
    ignored = _other_files(path)
    return Listing(path.name, path, path, tuple(names), found, "a folder of images", ignored)


def list_csv(path: Path) -> Listing:
    """A CSV file: a column with the image, one with its class, and perhaps one with its split."""
    rows = read_rows(path, [])
    if not rows:
        raise DataError(f"{path} has a header and no rows; expected one row for each image.")
    file_column = _column(rows[0], FILE_COLUMNS, "the image")
    label_column = _column(rows[0], LABEL_COLUMNS, "the class")
    has_split = "split" in rows[0].cells
    names = sorted({row[label_column] for row in rows}, key=_natural_order)
    # only where a name is not a path below the CSV file: its folder may hold far more than images
    images = cache(lambda: Images(path.parent))
    found: dict[str, list[Labelled]] = {}
    seen: dict[Path, Row] = {}
    for row in rows:
        file = _image_of(path, row, row[file_column], images)
        if file in seen:
            raise DataError(f"{row.where}: {row[file_column]!r} is in row {seen[file].number} too.")
        seen[file] = row
        if not row[label_column]:
            raise DataError(f"{row.where}: no {label_column}; expected the image's class.")
        split = _split_of(row) if has_split else "train"
        found.setdefault(split, []).append(Labelled(file, names.index(row[label_column])))
    kind = "a CSV file and its images"
    listing = Listing(path.stem, path, path.parent, tuple(names), found, kind)
    _check_classes(listing)
    return listing


def listing_source(listing: Listing, seed: int, size: int | None) -> Source:
    """Look at every image's header, decide on one size for all, and make missing splits."""
    shape, fit = _common_shape(listing, size)
    items = {split: list(found) for split, found in listing.splits.items()}
    labels = torch.tensor([item.label for item in items["train"]], dtype=torch.int64)
    rows = make_splits(labels, list(items), listing.classes, seed=seed, where=str(listing.path))
    whole = items["train"]
    for split, chosen in rows.items():
        items[split] = [whole[row] for row in chosen.tolist()]
    made = [split for split in rows if split != "train"]
    return Source(
        name=listing.name,
        classes=listing.classes,
        shape=shape,
        dtype="uint8",
        parts={
            split: file_part(
                [item.file for item in items[split]],
                [item.label for item in items[split]],
                shape,
                fit,
                base=listing.base,
            )
            for split in ("train", "val", "test")
        },
        origin=f"{listing.path}, {listing.kind}; images {fit.describe()}",
        notes=(*listing.notes, *made_note(made, seed)),
    )


def _common_shape(listing: Listing, size: int | None) -> tuple[tuple[int, ...], Fit]:
    files = [item.file for found in listing.splits.values() for item in found]
    # files that cannot be read are named when they are decoded
    headers = [
        header
        for _, some in in_parallel(_try_header, files, 1024)
        for header in some
        if header is not None
    ]
    if not headers:
        raise DataError(f"{listing.path}: none of {len(files):,} files can be read as an image.")
    channels = 1 if all(header.grey for header in headers) else 3
    sides = {(header.height, header.width) for header in headers}
    if size is not None:
        return (channels, size, size), Fit(size, crop=1.0)
    if len(sides) == 1 and max(max(sides)) <= NATIVE_SIDE:
        return (channels, *sides.pop()), NATIVE
    return (channels, DEFAULT_SIZE, DEFAULT_SIZE), Fit(DEFAULT_SIZE, crop=1.0)


def _try_header(file: Path) -> Header | None:
    try:
        return read_header(file)
    except Exception:  # what a broken file makes a decoder raise has no one type
        return None


def _one_folder_each(path: Path, by_split: Mapping[Path, str | None]) -> dict[str, Path]:
    splits: dict[str, Path] = {}
    for folder, split in by_split.items():
        if split is None:
            continue
        if split in splits:
            raise DataError(f"{path}: {splits[split].name} and {folder.name} are both {split}.")
        splits[split] = folder
    return splits


def _class_folders(folder: Path) -> list[Path]:
    return [
        entry
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith((".", "__MACOSX"))
    ]


def _classes_of(folder: Path, names: Sequence[str]) -> list[Labelled]:
    found = []
    for place in _class_folders(folder):
        if place.name not in names:
            raise DataError(
                f"{place}: there is no class {place.name!r} in train. Every class needs images to "
                "train on."
            )
        images = images_below(place)
        if not images:
            raise DataError(f"{place} holds no image. Add some, or delete the folder.")
        found += [Labelled(file, names.index(place.name)) for file in images]
    if not found:
        raise DataError(f"{folder} holds no image; {LAYOUT}.")
    return found


def _other_files(path: Path) -> tuple[str, ...]:
    """A note about files that are no images by their name: nothing is left out in silence."""
    others = [
        Path(place, name)
        for place, _, names in os.walk(path)
        for name in sorted(names)
        if not name.startswith(".") and not is_image(Path(name))
    ]
    if not others:
        return ()
    first = others[0].relative_to(path)
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (f"not taken for images: {first}{more}",)


def _check_classes(listing: Listing) -> None:
    if len(listing.classes) < 2:
        raise DataError(f"{listing.path} names one class, {listing.classes[0]!r}; expected two.")
    if "train" not in listing.splits:
        raise DataError(f"{listing.path}: no row has the split train; expected some to train on.")
    trained = {item.label for item in listing.splits["train"]}
    for label, name in enumerate(listing.classes):
        if label not in trained:
            raise DataError(
                f"{listing.path}: no image of class {name!r} is in train. Every class needs images "
                "to train on."
            )


def _image_of(table: Path, row: Row, name: str, images: Callable[[], Images]) -> Path:
    if not name:
        raise DataError(f"{row.where}: no image; expected the path of a file.")
    direct = Path(os.path.normpath(table.parent / name))
    return direct if direct.is_file() else images().find(name, row)


def _split_of(row: Row) -> str:
    split = SPLIT_NAMES.get(row["split"].lower())
    if split is None:
        raise DataError(f"{row.where}: split {row['split']!r}; expected train, val or test.")
    return split


def _column(row: Row, names: Sequence[str], what: str) -> str:
    for name in names:
        if name in row.cells:
            return name
    raise DataError(
        f"{row.table}, row 1: expected a column for {what}, called {', '.join(names[:-1])} or "
        f"{names[-1]}; got {', '.join(row.cells)}."
    )


def _natural_order(name: str) -> list[tuple[int, str]]:
    """class2 before class10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
