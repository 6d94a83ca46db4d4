"""Readers of official files, and of copies as arrays or folders of classes, to a `Source`.

Every reader takes the entry of the catalogue and the folder of its files; most list image files
with their split and class. The caller adds the name, classes and notes of the entry.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from paper.datasets.catalogue import DatasetSpec
from paper.datasets.files import unpack
from zetamix_lab.atomic_io import hash_file
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.image_files import NATIVE, Fit, read_images, read_shape
from zetamix_lab.data.load_dataset import torchvision_source
from zetamix_lab.data.readers.formats import from_folder
from zetamix_lab.data.readers.label_csv import ImageIndex, read_cells, read_csv
from zetamix_lab.data.readers.npz import from_npz
from zetamix_lab.data.source import Progress, Source, array_source
from zetamix_lab.data.splits import complete_splits

Listed: TypeAlias = list[tuple[str, Path, str]]
"""The split, file and class of every image."""

# what may follow the name of a dataset in the name of a copy, and its suffix
COPY = r"(?:[_-].*?)?(\.npz|\.tar|\.tar\.gz|\.tgz|\.zip)?"
# columns of the archive's metadata in its older and newer versions; the current diagnosis_1 is only
# benign or malignant
ARCHIVE_IDS = ("isic_id", "image_id", "image_name", "name")
ARCHIVE_DIAGNOSES = (
    "diagnosis",
    "meta.clinical.diagnosis",
    *(f"diagnosis_{level}" for level in range(2, 6)),
)
UNDIAGNOSED = ("", "unknown", "none", "nan", "not available", "indeterminate")
ZEROS, ONES = ("0", "0.0"), ("1", "1.0")
LESIONS = ("melanoma", "nevus", "seborrheic keratosis")


def image_source(
    spec: DatasetSpec,
    base: Path,
    listed: Listed,
    notes: Sequence[str] = (),
    origin: str = "official files in {}",
    fit: Fit | None = None,
) -> Source:
    """The images of a dataset; those without official splits are split 70/10/20.

    fit: the catalogue's if it is not given.
    """
    is_split = {split for split, _, _ in listed} != {"train"}
    if not is_split:
        # sorted by name, so that the order of a label file or of a disk does not change the split
        listed = sorted(listed, key=lambda item: item[1].relative_to(base).as_posix().lower())
    files = [file for _, file, _ in listed]
    source = Source(
        name=spec.name,
        classes=spec.classes,
        shape=spec.shape,
        dtype="uint8",
        labels=np.array([spec.classes.index(name) for _, _, name in listed], np.int64),
        splits=np.array([split for split, _, _ in listed], dtype=object),
        read=read_images(files, spec.shape, fit or spec.fit),
        origin=origin.format(base),
        names=[os.path.relpath(file, base) for file in files],
        notes=tuple(notes),
    )
    return source if is_split else complete_splits(source, origin=str(base))


# natural and medical images


def torchvision_set(spec: DatasetSpec, base: Path) -> Source:
    """MNIST, Fashion-MNIST and CIFAR, read by torchvision."""
    return replace(torchvision_source(spec.name, base), origin=f"official files in {base}")


def stl10(spec: DatasetSpec, base: Path) -> Source:
    """STL-10 without its unlabelled images, which torchvision requires."""
    parts, folder = {}, base / spec.files[0].content
    for split in spec.sizes:
        labels = np.fromfile(folder / f"{split}_y.bin", np.uint8).astype(np.int64) - 1
        # stored column by column
        images = np.fromfile(folder / f"{split}_X.bin", np.uint8).reshape(-1, *spec.shape)
        parts[split] = (images.swapaxes(2, 3), labels)
    return array_source(spec.name, spec.classes, parts, f"official files in {base}")


def npz_source(spec: DatasetSpec, path: Path) -> Source:
    """An `.npz` file of MedMNIST or in its layout, with a note if it is not the official one."""
    table = from_npz(path)
    labels = table.frame["label"].to_numpy()
    shape = table.arrays[0].shape[1:]
    outside = labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(spec.classes)
    if shape != spec.shape or outside:
        raise DataError(
            f"{path} cannot replace {spec.title}: expected samples of shape {list(spec.shape)} and "
            f"labels from 0 to {len(spec.classes) - 1}, got shape {list(shape)} and labels "
            f"{labels.min()} to {labels.max()}. To use it as your own data, pass its path."
        )
    by_split = table.frame.groupby("split", sort=False).indices
    arrays = zip(by_split.items(), table.arrays, strict=True)
    parts = {str(split): (samples, labels[rows]) for (split, rows), samples in arrays}
    source = array_source(spec.name, spec.classes, parts, f"official file {path}")
    if spec.files and spec.files[0].md5 == hash_file(path, "md5"):
        return source
    note = f"read from {path.name} instead of the official files, without a checksum"
    return replace(source, origin=f"{path}, .npz in the MedMNIST layout", notes=(note,))


# copies of any dataset, used if the official files are missing


def find_copy(spec: DatasetSpec, data_dir: Path) -> Path | None:
    """NAME.npz, or a folder or archive NAME or NAME_… with folders of splits and classes."""
    folders = (data_dir, data_dir / spec.folder)
    arrays = [folder / f"{spec.name}.npz" for folder in folders]
    named = [path for folder in folders for path in sorted(folder.glob(f"{spec.name}*"))]
    for path in (*arrays, *named):
        match = re.fullmatch(spec.name + COPY, path.name)
        if match and (_root(path) if path.is_dir() else match[1] and path.is_file()):
            return path
    return None


def _root(folder: Path) -> Path | None:
    """The folder that holds `train`: the given one, or one in it."""
    candidates = (folder, *sorted(folder.glob("*")))
    return next((path for path in candidates if (path / "train").is_dir()), None)


def read_copy(spec: DatasetSpec, path: Path, progress: Progress | None = None) -> Source:
    """The dataset from what `find_copy` found."""
    if path.suffix == ".npz":
        return npz_source(spec, path)
    folder = path
    if path.is_file():
        folder = path.with_name(re.sub(r"\.(tar|tar\.gz|tgz|zip)$", "", path.name))
        if not folder.exists():
            unpack(path, folder, progress)
    root = _root(folder)
    if root is None:
        raise DataError(
            f"{path} cannot replace {spec.title}: expected {'|'.join(spec.sizes)}/class/… with a "
            f"folder for each class ({', '.join(spec.classes)})."
        )
    return folder_source(spec, root, f"read from folders of classes in {root.name}, unverified")


def folder_source(spec: DatasetSpec, root: Path, *notes: str) -> Source:
    """Images in `split/class/…`; those that already have the dataset's size are not resized.

    notes: notes for images that do not have the dataset's size.
    """
    listed = list_folders(spec, root)
    if absent := set(spec.sizes) - {split for split, _, _ in listed}:
        expected = "|".join(spec.sizes)
        raise DataError(f"{root}: no folder {min(absent)}; expected {expected}/class/….")
    shapes = [shape for _, file, _ in listed if (shape := read_shape(file))]
    same = sum(shape[1:] == spec.shape[1:] for shape in shapes)
    fit = spec.fit
    # most images: decoding then reports the others
    if 2 * same > len(listed):
        fit, size = NATIVE, f"{spec.shape[2]} × {spec.shape[1]} pixels"
        crop = spec.fit.crop and f"; the paper's crop, {spec.fit.describe()}, is not applied"
        notes = (f"copies of {size}, used as they are, not the original files{crop or ''}",)
    return image_source(spec, root, listed, notes, "{}, folders of splits and classes", fit)


def list_folders(spec: DatasetSpec, folder: Path) -> Listed:
    """The images in folders of classes, of each split or of all, without masks."""
    known = {_spelled(name): label for name, label in spec.labels.items()}
    known = {_spelled(name): name for name in spec.classes} | known
    table, listed = from_folder(folder), list[tuple[str, Path, str]]()
    frame = table.frame
    for split, name, file in zip(frame["split"], frame["label"], table.files, strict=True):
        if _spelled(name) not in known:
            names = ", ".join(spec.labels or spec.classes)
            raise DataError(f"{folder}: unexpected folder {name}; expected {names}.")
        # Imagenette calls its test split val, as there is no other
        own = "test" if split == "val" and "val" not in spec.sizes else split
        if not file.stem.lower().endswith("mask"):
            listed.append((own, file, known[_spelled(name)]))
    return listed


def _spelled(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")


# skin lesions: ISIC challenges and archive, DermoFit, derm7point, PH², MED-NODE


def isic_challenge(spec: DatasetSpec, base: Path) -> Source:
    """The challenges of 2016 to 2018: for each split a folder of images and a table.

    The first column of a table names the image. The table of 2016 has the class in the second one,
    without a header; the others have a column of 0 and 1 for each class. The test split of 2018 may
    be missing, as the paper does not use it.
    """
    listed: Listed = []
    for split, images, table in zip(spec.sizes, spec.files[::2], spec.files[1::2], strict=True):
        if images.exists(base):
            path = base / table.content
            path = path / f"{path.name}.csv" if path.is_dir() else path
            if spec.name == "isic2016":
                cells = read_cells(path).set_axis(["image", "label"], axis=1)
                labels = _read_values(path, cells, spec, "label")
            else:
                cells = _read_columns(path, list(spec.labels))
                labels = _read_marks(path, cells, spec)
            index = ImageIndex(base / images.content)
            listed += _list_images(path, cells.iloc[:, 0], labels, index, split)
    return image_source(spec, base, listed)


def isic_archive(spec: DatasetSpec, base: Path) -> Source:
    """Collections as `isic image download` writes them: images and `metadata.csv`."""
    table = base / "metadata.csv"
    cells = read_csv(table)
    for names in (ARCHIVE_IDS, ARCHIVE_DIAGNOSES):
        if not set(names) & set(cells):
            columns, got = ", ".join(names), ", ".join(cells)
            raise DataError(f"{table}, row 1: expected one of the columns {columns}; got {got}.")
    column = next(name for name in ARCHIVE_IDS if name in cells)
    labels = pd.Series([archive_class(row) for row in cells.to_dict("records")], cells.index)
    kept = labels.isin(spec.classes)
    index = ImageIndex(base)
    listed = _list_images(table, cells.loc[kept, column], labels[kept], index)
    dropped = int((~kept).sum())
    note = f"{dropped:,} images of {base} are not used: undiagnosed, or of another class"
    return image_source(spec, base, listed, [note] if dropped else [])


def archive_class(row: Mapping[str, str]) -> str:
    """The class of a row of the archive's metadata, in any of its versions; "": undiagnosed."""
    texts = [row[column].lower() for column in ARCHIVE_DIAGNOSES if column in row]
    texts = [text for text in texts if text not in UNDIAGNOSED]
    named = (name for name in LESIONS if any(name in text for text in texts))
    return next(named, "others") if texts else ""


def label_folders(spec: DatasetSpec, base: Path) -> Source:
    """DermoFit and MED-NODE: one folder per label."""
    folder = base if spec.name == "dermofit" else base / spec.files[0].content
    return image_source(spec, base, list_folders(spec, folder))


def derm7pt(spec: DatasetSpec, base: Path) -> Source:
    """Clinical and dermoscopic photographs of the same cases, in one table."""
    release = base / spec.files[0].content
    column = "clinic" if spec.name == "derm7pt_clinical" else "derm"
    table = release / "meta" / "meta.csv"
    cells = _read_columns(table, ["diagnosis", column])
    labels = _read_values(table, cells, spec, "diagnosis")
    listed = _list_images(table, cells[column], labels, ImageIndex(release / "images"))
    return image_source(spec, base, listed)


def ph2(spec: DatasetSpec, base: Path) -> Source:
    """Cases `IMD###`; a text file has `|| Name || Histology || Clinical Diagnosis || …`."""
    release = base / spec.files[0].content
    table = release / "PH2_dataset.txt"
    if not table.exists():
        raise DataError(
            f"{table} is missing; the labels are read from it, not from PH2_dataset.xlsx. Extract "
            "it from PH2Dataset.rar."
        )
    lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    # cells may be empty, as the histology of most cases is
    rows = {
        number: [cell.strip() for cell in line.strip().split("||")[1:]]
        for number, line in enumerate(lines, start=1)
        if line.strip().startswith("||")
    }
    first = min(rows, default=1)
    columns = [cell.lower() for cell in rows.pop(first, [])]
    if not {"name", "clinical diagnosis"} <= set(columns):
        raise DataError(
            f"{table}, row {first}: expected the columns Name and Clinical Diagnosis, got "
            f"{', '.join(filter(None, columns))}."
        )
    named = {number: dict(zip(columns, row, strict=False)) for number, row in rows.items()}
    cells = pd.DataFrame.from_dict(named, orient="index").fillna("")
    labels = _read_values(table, cells, spec, "clinical diagnosis")
    index = ImageIndex(release / "PH2 Dataset images")
    return image_source(spec, base, _list_images(table, cells["name"], labels, index))


def _read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A table that has these columns."""
    cells = read_csv(path)
    if missing := [column for column in columns if column not in cells]:
        raise DataError(
            f"{path}, row 1: expected the columns {', '.join(columns)}, got {', '.join(cells)}; "
            f"missing: {', '.join(missing)}."
        )
    return cells


def _read_values(path: Path, cells: pd.DataFrame, spec: DatasetSpec, column: str) -> list[str]:
    """The classes that the values of a column stand for."""
    for row, text in cells[column].items():
        if text.lower() not in spec.labels:
            listed = ", ".join(spec.labels)
            raise DataError(f"{path}, row {row}: {column} {text!r}; expected one of {listed}.")
    return [spec.labels[text.lower()] for text in cells[column]]


def _read_marks(path: Path, cells: pd.DataFrame, spec: DatasetSpec) -> list[str]:
    """The class of the one column that holds 1 while all others hold 0.

    A row of zeros has the class without a column, if there is one.
    """
    labels: list[str] = []
    others = [name for name in spec.classes if name not in spec.labels.values()]
    for row, marks in cells[list(spec.labels)].to_dict("index").items():
        marked = [spec.labels[column] for column, text in marks.items() if text in ONES] or others
        if len(marked) != 1 or not {*marks.values()} <= {*ONES, *ZEROS}:
            raise DataError(
                f"{path}, row {row}: expected {'at most' if others else 'exactly'} one 1 and zeros "
                f"in {', '.join(marks)}; got {', '.join(marks.values())}."
            )
        labels += marked
    return labels


def _list_images(
    path: Path, images: pd.Series, labels: Iterable[str], index: ImageIndex, split: str = "train"
) -> Listed:
    """The file of every image that a table names, with its class."""
    listed: Listed = []
    for (row, name), label in zip(images.items(), labels, strict=True):
        try:
            listed.append((split, index.find(name), label))
        except ValueError as error:
            raise DataError(f"{path}, row {row}: {error}.") from None
    return listed


READERS: dict[str, Callable[[DatasetSpec, Path], Source]] = {
    "torchvision_set": torchvision_set,
    "stl10": stl10,
    # Imagenette and Imagewoof: `train` and `val`, one folder per class
    "imagenet_subset": lambda spec, base: folder_source(spec, base / spec.files[0].content),
    "medmnist": lambda spec, base: npz_source(spec, base / spec.files[0].path),
    **dict.fromkeys(("isic2016", "isic2017", "isic2018"), isic_challenge),
    "isic_archive": isic_archive,
    "label_folders": label_folders,
    "derm7pt": derm7pt,
    "ph2": ph2,
}
