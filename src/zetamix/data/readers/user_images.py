"""A user's own images: a folder for each class, or a CSV file beside them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from zetamix.data.errors import Complain, DataError, refuse
from zetamix.data.flaws import file_keys, first_copies
from zetamix.data.image_files import file_part, images_below, is_image
from zetamix.data.label_csv import Images, Row, read_rows
from zetamix.data.readers.labelled import Labelled
from zetamix.data.readers.sizes import common_shape
from zetamix.data.source import Source
from zetamix.data.splits import made_note, make_splits
from zetamix.text import plural

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
TABLE = (
    f"a header with a column for the image ({', '.join(FILE_COLUMNS)}) and one for its class "
    f"({', '.join(LABEL_COLUMNS)}), and a row for each image"
)
LAYOUT = (
    "expected a folder for each class with its images (class/…), or the same in each of train, val "
    "and test (train/class/…)"
)


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

    def files(self) -> list[Path]:
        return [item.file for found in self.splits.values() for item in found]

    def state(self) -> list[object]:
        """What changes whenever any of the files does: names, labels, sizes and times."""
        found: list[object] = [list(self.classes)]
        for split, items in self.splits.items():
            for file, label in items:
                # a link to nowhere is named when it is decoded, as all that cannot be read
                facts = file.stat() if file.exists() else file.lstat()
                found.append([split, label, str(file), facts.st_size, facts.st_mtime_ns])
        return found


def list_folder(path: Path, complain: Complain = refuse) -> Listing:
    """A folder of images, `class/…` or `train|val|test/class/…`."""
    inside = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    folders = [entry for entry in inside if entry.is_dir() and entry.name != "__MACOSX"]
    loose = [entry for entry in inside if is_image(entry)]
    if loose or not folders:
        what = f"the image {loose[0].name} lies outside of any class" if loose else "no folders"
        wrong = f"{path}: {what}; {LAYOUT}. Or give a .csv file that names the classes."
        # with no folder at all there is nothing to look at
        (complain if folders else refuse)([wrong])
    splits = _split_folders(path, folders, complain)
    images = {split: _images_by_class(folder, complain) for split, folder in splits.items()}
    names = sorted(images["train"], key=_natural_order)
    if len(names) < 2:
        classes = plural(len(names), "class", "classes")
        (complain if names else refuse)([f"{path}: {classes}; {LAYOUT}, and at least two classes."])
    found = {
        split: _labelled(folder, images[split], names, complain) for split, folder in splits.items()
    }
    ignored = _other_files(path)
    return Listing(path.name, path, path, tuple(names), found, "a folder of images", ignored)


def list_csv(path: Path, complain: Complain = refuse) -> Listing:
    """A CSV file: a column with the image, one with its class, and perhaps one with its split."""
    wrong: list[str] = []
    rows = read_rows(path, [], wanted=TABLE, complain=wrong.extend)
    if not rows:
        refuse(wrong)
        raise DataError(f"{path} has a header and no rows; expected one row for each image.")
    file_column = _column(rows[0], FILE_COLUMNS, "the image")
    label_column = _column(rows[0], LABEL_COLUMNS, "the class")
    names = sorted({row[label_column] for row in rows} - {""}, key=_natural_order)
    # only where a name is not a path below the CSV file: its folder may hold far more than images
    images = cache(lambda: Images(path.parent))
    found: dict[str, list[Labelled]] = {}
    seen: dict[Path, Row] = {}
    for row in rows:
        try:
            file = _image_of(path, row, row[file_column], images)
            if (first := seen.setdefault(file, row)) is not row:
                raise DataError(f"{row.where}: {row[file_column]!r} is in row {first.number} too.")
            if not row[label_column]:
                raise DataError(f"{row.where}: no {label_column}; expected the image's class.")
            split = _split_of(row)
        except DataError as error:
            wrong.append(str(error))
            continue
        found.setdefault(split, []).append(Labelled(file, names.index(row[label_column])))
    complain(wrong)
    kind = "a CSV file and its images"
    listing = Listing(path.stem, path, path.parent, tuple(names), found, kind)
    _check_classes(listing, complain)
    return listing


def listing_source(
    listing: Listing, seed: int, size: int | None, complain: Complain = refuse
) -> Source:
    """Look at every image's header, decide on one size for all, and make missing splits."""
    shape, fit = common_shape(listing.files(), size, listing.path, complain)
    items = {split: list(found) for split, found in listing.splits.items()}
    labels = torch.tensor([item.label for item in items["train"]], dtype=torch.int64)
    where = str(listing.path)
    whole = items["train"]
    first = None
    if not {"val", "test"} <= set(items):
        # copies with different classes are told of, and not kept together: one of them is wrong
        keys = zip(file_keys([item.file for item in whole]), labels.tolist(), strict=True)
        first = first_copies(list(keys))
    rows = make_splits(
        labels,
        list(items),
        listing.classes,
        seed=seed,
        where=where,
        complain=complain,
        first=first,
    )
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
        notes=(*listing.notes, *((fit.why,) if fit.why else ()), *made_note(made, seed, first)),
    )


def _split_folders(path: Path, folders: Sequence[Path], complain: Complain) -> dict[str, Path]:
    """The folder of each split that there is; the whole is train where none goes by that name."""
    by_split = {folder: SPLIT_NAMES.get(folder.name.lower()) for folder in folders}
    if "train" not in by_split.values():
        return {"train": path}
    splits: dict[str, Path] = {}
    for folder, split in by_split.items():
        if split is None:
            complain([f"{path}: {folder.name} lies beside train; {LAYOUT}."])
        elif split in splits:
            complain([f"{path}: {splits[split].name} and {folder.name} are both {split}."])
        else:
            splits[split] = folder
    return splits


def _images_by_class(folder: Path, complain: Complain) -> dict[str, list[Path]]:
    """The images of each class of a split; folders that hold none are complained about."""
    found = {place.name: images_below(place) for place in _class_folders(folder)}
    complain(
        [
            f"{folder / name} holds no image. Add some, or delete the folder."
            for name, images in found.items()
            if not images
        ]
    )
    return {name: images for name, images in found.items() if images}


def _class_folders(folder: Path) -> list[Path]:
    return [
        entry
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith((".", "__MACOSX"))
    ]


def _labelled(
    folder: Path, images: Mapping[str, Sequence[Path]], names: Sequence[str], complain: Complain
) -> list[Labelled]:
    complain(
        [
            f"{folder / name}: there is no class {name!r} in train. Every class needs images to "
            "train on."
            for name in images
            if name not in names
        ]
    )
    if not images:
        complain([f"{folder} holds no image; {LAYOUT}."])
    return [
        Labelled(file, names.index(name))
        for name, files in images.items()
        if name in names
        for file in files
    ]


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


def _check_classes(listing: Listing, complain: Complain) -> None:
    if len(listing.classes) < 2:
        complain([f"{listing.path} names one class, {listing.classes[0]!r}; expected two."])
    if "train" not in listing.splits:
        raise DataError(f"{listing.path}: no row has the split train; expected some to train on.")
    trained = {item.label for item in listing.splits["train"]}
    complain(
        [
            f"{listing.path}: no image of class {name!r} is in train. Every class needs images to "
            "train on."
            for label, name in enumerate(listing.classes)
            if label not in trained
        ]
    )


def _image_of(table: Path, row: Row, name: str, images: Callable[[], Images]) -> Path:
    if not name:
        raise DataError(f"{row.where}: no image; expected the path of a file.")
    direct = Path(os.path.normpath(table.parent / name))
    return direct if direct.is_file() else images().find(name, row)


def _split_of(row: Row) -> str:
    if "split" not in row.cells:
        return "train"
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
