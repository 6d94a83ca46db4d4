"""Readers of official files, and of copies as arrays or folders of classes, to a `Source`.

Every reader takes the entry of the catalogue and the folder of its files; most list image files
with their split and class.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from paper.datasets.catalogue import DatasetSpec
from paper.datasets.files import unpack
from zetamix_lab.atomic_io import hash_file
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.image_files import NATIVE, images_below, read_images, subfolders, try_header
from zetamix_lab.data.readers.label_csv import ImageIndex, read_csv
from zetamix_lab.data.readers.named import torchvision_source
from zetamix_lab.data.readers.npz import from_npz
from zetamix_lab.data.source import Progress, Source, array_source
from zetamix_lab.data.splits import complete_splits

Listed: TypeAlias = list[tuple[str, Path, str]]
"""The split, file and class of every image."""
LabelOf: TypeAlias = Callable[[Mapping[str, str]], str]
"""The class of a row of a label file; raises ValueError for a row that is invalid."""

PHOTOS = (".jpg", ".jpeg")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
# columns of the archive's metadata in its older and newer versions; the current diagnosis_1 is only
# benign or malignant
ARCHIVE_IDS = ("isic_id", "image_id", "image_name", "name")
ARCHIVE_DIAGNOSES = (
    "diagnosis",
    "meta.clinical.diagnosis",
    *(f"diagnosis_{level}" for level in range(2, 6)),
)
UNDIAGNOSED = ("", "unknown", "none", "nan", "not available", "indeterminate")
LESIONS = ("melanoma", "nevus", "seborrheic keratosis")


def image_source(
    spec: DatasetSpec, listed: Listed, base: Path, origin: str, *notes: str, fit: Any = None
) -> Source:
    """The images of a dataset; `fit` is the catalogue's if it is not given."""
    files = [file for _, file, _ in listed]
    return Source(
        name=spec.name,
        classes=spec.classes,
        shape=spec.shape,
        dtype="uint8",
        labels=np.array([spec.classes.index(name) for _, _, name in listed], np.int64),
        splits=np.array([split for split, _, _ in listed], dtype=object),
        read=read_images(files, lambda row: str(files[row]), spec.shape, fit or spec.fit),
        origin=origin,
        names=[os.path.relpath(file, base) for file in files],
        notes=(*spec.notes, *notes),
    )


def split_source(spec: DatasetSpec, base: Path, listed: Listed, seed: int, *notes: str) -> Source:
    """Train, val and test from images without official splits."""
    # sorted by name, so that the order of a label file or of a disk does not change the split
    ordered = sorted(listed, key=lambda item: item[1].relative_to(base).as_posix().lower())
    source = image_source(spec, ordered, base, f"official files in {base}", *notes)
    return complete_splits(source, seed=seed, origin=str(base))


# natural and medical images


def torchvision_set(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """MNIST, Fashion-MNIST and CIFAR, read by torchvision."""
    return spec.found(torchvision_source(spec.name, base), f"official files in {base}")


def stl10(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """STL-10 without its unlabelled images, which torchvision requires."""
    parts = {}
    for split in spec.sizes:
        folder = base / spec.files[0].content
        labels_file, images_file = folder / f"{split}_y.bin", folder / f"{split}_X.bin"
        labels = np.fromfile(labels_file, np.uint8).astype(np.int64)
        outside = (labels < 1) | (labels > len(spec.classes))
        if outside.any():
            row = int(outside.argmax())
            raise DataError(
                f"{labels_file}, row {row}: label {labels[row]}; expected 1 to {len(spec.classes)}."
            )
        size, expected = images_file.stat().st_size, len(labels) * int(np.prod(spec.shape))
        if size != expected:
            raise DataError(
                f"{images_file} has {size:,} bytes; expected {expected:,} for {len(labels):,} "
                "images."
            )
        # stored column by column
        images = np.fromfile(images_file, np.uint8).reshape(-1, *spec.shape).swapaxes(2, 3)
        parts[split] = (images, labels - 1)
    source = array_source(spec.name, spec.classes, parts, "")
    return spec.found(source, f"official files in {base}")


def imagenet_subset(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Imagenette and Imagewoof: `train` and `val`, one folder per class."""
    return folder_source(spec, base / spec.files[0].content)


def medmnist(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One of MedMNIST's own files, or a copy of it that was saved again."""
    path = base / spec.files[0].path
    source = npz_source(spec, path)
    if hash_file(path, "md5") == spec.files[0].md5:
        return spec.found(source, f"official file {path}")
    note = f"read from {path.name} instead of the official files, without a checksum"
    if spec.content_md5 and content_md5(source) == spec.content_md5:
        note = (
            f"{path.name} is a copy of the official file that was saved again: its md5 differs, "
            "its images and labels are identical"
        )
    return spec.found(source, f"{path}, .npz in the MedMNIST layout", note)


def npz_source(spec: DatasetSpec, path: Path) -> Source:
    table = from_npz(path)
    labels = table.labels["label"].to_numpy() if "label" in table.labels else np.array([-1])
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
    return array_source(spec.name, spec.classes, parts, str(path))


def content_md5(source: Source) -> str:
    """md5 of the images and labels of each split, which does not depend on the zip file."""
    digest = hashlib.md5(usedforsecurity=False)
    for rows in source.rows.values():
        for block in source.read(rows):
            digest.update(block.samples.data)
        digest.update(source.labels[rows].astype(np.uint8).data)
    return digest.hexdigest()


# copies of any dataset, used if the official files are missing


def find_copy(spec: DatasetSpec, data_dir: Path) -> Path | None:
    """NAME.npz, or a folder or archive NAME or NAME_… with folders of splits and classes."""
    folders = (data_dir, data_dir / spec.subfolder)
    named = [path for folder in folders for path in sorted(folder.glob(f"{spec.name}*"))]
    kept = [p for p in named if _plain_stem(p).removeprefix(spec.name)[:1] in ("", "_", "-")]
    candidates = (*(folder / f"{spec.name}.npz" for folder in folders), *kept)
    return next((path for path in candidates if _is_copy(path)), None)


def _is_copy(path: Path) -> bool:
    if path.is_dir():
        return _root(path) is not None
    return path.is_file() and path.name.endswith((*ARCHIVES, ".npz"))


def _plain_stem(path: Path) -> str:
    suffix = next((end for end in reversed(ARCHIVES) if path.name.endswith(end)), "")
    return path.name.removesuffix(suffix)


def _root(folder: Path) -> Path | None:
    """The folder that holds `train`: the given one, or one in it."""
    candidates = (folder, *sorted(folder.glob("*")))
    return next((path for path in candidates if (path / "train").is_dir()), None)


def read_copy(spec: DatasetSpec, path: Path, progress: Progress | None = None) -> Source:
    """The dataset from what `find_copy` found."""
    if path.suffix == ".npz":
        note = f"read from {path.name} instead of the official files, without a checksum"
        return spec.found(npz_source(spec, path), f"{path}, .npz in the MedMNIST layout", note)
    folder = path.with_name(_plain_stem(path))
    if not folder.exists():
        unpack(path, folder, progress)
    root = _root(folder)
    if root is None:
        raise DataError(f"{path} cannot replace {spec.title}: expected {_layout(spec)}.")
    return folder_source(spec, root, f"read from folders of classes in {root.name}, unverified")


def folder_source(spec: DatasetSpec, root: Path, *notes: str) -> Source:
    """Images in `split/class/…`; those that already have the dataset's size are not resized.

    notes: notes for images that do not have the dataset's size.
    """
    listed = [item for split in spec.sizes for item in _list_classes(spec, root, split)]
    headers = [header for _, file, _ in listed if (header := try_header(file))]
    same = sum((header.height, header.width) == spec.shape[1:] for header in headers)
    fit = spec.fit
    # most images: decoding then reports the others
    if 2 * same > len(listed):
        fit, size = NATIVE, f"{spec.shape[2]} × {spec.shape[1]} pixels"
        crop = spec.fit.crop and f"; the paper's crop, {spec.fit.describe()}, is not applied"
        notes = (f"copies of {size}, used as they are, not the original files{crop or ''}",)
    return image_source(
        spec, listed, root, f"{root}, folders of splits and classes", *notes, fit=fit
    )


def _list_classes(spec: DatasetSpec, root: Path, split: str) -> Listed:
    # Imagenette calls its test split val, as there is no other
    names = [split, "val"] if split == "test" and "val" not in spec.sizes else [split]
    folder = next((root / name for name in names if (root / name).is_dir()), None)
    if folder is None:
        raise DataError(f"{root}: no folder {names[0]}; expected {_layout(spec)}.")
    known = {
        _spelled(name): to for name, to in (*((c, c) for c in spec.classes), *spec.labels.items())
    }
    found = {path: known.get(_spelled(path.name)) for path in subfolders(folder)}
    unknown = [path.name for path, label in found.items() if label is None]
    missing = [name for name in spec.classes if name not in found.values()]
    if unknown or missing:
        problems = [f"missing {', '.join(missing)}"] if missing else []
        problems += [f"unexpected {', '.join(unknown)}"] if unknown else []
        raise DataError(f"{folder}: {'; '.join(problems)}. Expected {_layout(spec)}.")
    return [
        (split, file, str(label)) for path, label in found.items() for file in images_below(path)
    ]


def _spelled(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")


def _layout(spec: DatasetSpec) -> str:
    names = ", ".join(spec.labels or spec.classes)
    return f"{'|'.join(spec.sizes)}/class/… with a folder for each class of {spec.title} ({names})"


# skin lesions: ISIC challenges and archive, DermoFit, derm7point, PH², MED-NODE


def isic2016(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2016, part 3: two columns, without a header."""
    parts = {"train": "Training", "test": "Test"}
    files = ("ISBI2016_ISIC_Part3_{}_Data", "ISBI2016_ISIC_Part3_{}_GroundTruth.csv")
    label_of = _by_value("label", spec.labels)
    return _challenge(spec, base, parts, *files, ["image", "label"], label_of, header=False)


def isic2017(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2017, part 3: melanoma, seborrheic keratosis, or neither, which is a nevus."""
    parts = {"train": "Training", "val": "Validation", "test": "Test_v2"}
    files = ("ISIC-2017_{}_Data", "ISIC-2017_{}_Part3_GroundTruth.csv")
    label_of = _by_mark(spec.labels, otherwise="nevus")
    return _challenge(spec, base, parts, *files, ["image_id", *spec.labels], label_of)


def isic2018(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2018, task 3; the test split may be missing, as the paper does not use it."""
    parts = {"train": "Training", "val": "Validation", "test": "Test"}
    if not (base / "ISIC2018_Task3_Test_Input").exists():
        del parts["test"]
    table = "ISIC2018_Task3_{0}_GroundTruth/ISIC2018_Task3_{0}_GroundTruth.csv"
    columns, label_of = ["image", *spec.labels], _by_mark(spec.labels)
    return _challenge(spec, base, parts, "ISIC2018_Task3_{}_Input", table, columns, label_of)


def _challenge(
    spec: DatasetSpec,
    base: Path,
    parts: Mapping[str, str],
    images: str,
    table: str,
    columns: Sequence[str],
    label_of: LabelOf,
    header: bool = True,
) -> Source:
    """One folder of images and one table per split; the first column names the image."""
    listed: Listed = []
    for split, part in parts.items():
        path = base / table.format(part)
        rows = _rows(path, columns, header=header)
        index = ImageIndex(base / images.format(part), suffixes=PHOTOS)
        listed += _label(path, rows, index, columns[0], label_of, split)
    return image_source(spec, listed, base, f"official files in {base}")


def isic_archive(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Collections as `isic image download` writes them: images and `metadata.csv`."""
    table = base / "metadata.csv"
    rows = _rows(table)
    first = next(iter(rows.values()), {})
    column = _find_column(table, first, ARCHIVE_IDS, "the image's id")
    _find_column(table, first, ARCHIVE_DIAGNOSES, "the diagnosis")
    kept = {number: row for number, row in rows.items() if archive_class(row) in spec.classes}
    listed = _label(table, kept, ImageIndex(base, suffixes=PHOTOS), column, archive_class)
    dropped = len(rows) - len(kept)
    note = f"{dropped:,} images of {base} are not used: undiagnosed, or of another class"
    return split_source(spec, base, listed, seed, *([note] if dropped else []))


def archive_class(row: Mapping[str, str]) -> str:
    """The class of a row of the archive's metadata, in any of its versions; "": undiagnosed."""
    texts = [row[column].lower() for column in ARCHIVE_DIAGNOSES if column in row]
    texts = [text for text in texts if text not in UNDIAGNOSED]
    named = (name for name in LESIONS if any(name in text for text in texts))
    return next(named, "others") if texts else ""


def label_folders(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """DermoFit and MED-NODE: one folder per label; masks are in the same folders."""
    folder = base if spec.name == "dermofit" else base / spec.files[0].content
    missing = [name for name in spec.labels if not (folder / name).is_dir()]
    if missing:
        raise DataError(
            f"{folder}: expected the folders {', '.join(spec.labels)}; missing: "
            f"{', '.join(missing)}."
        )
    listed = [
        ("train", file, label)
        for name, label in spec.labels.items()
        for file in images_below(folder / name)
        if not file.stem.lower().endswith("mask")
    ]
    return split_source(spec, base, listed, seed)


def derm7pt(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Clinical and dermoscopic photographs of the same cases, in one table."""
    release = base / spec.files[0].content
    column = "clinic" if spec.name == "derm7pt_clinical" else "derm"
    table = release / "meta" / "meta.csv"
    rows = _rows(table, ["diagnosis", column])
    label_of = _by_value("diagnosis", spec.labels)
    listed = _label(table, rows, ImageIndex(release / "images"), column, label_of)
    return split_source(spec, base, listed, seed)


def ph2(spec: DatasetSpec, base: Path, seed: int) -> Source:
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
    cells = {
        number: [cell.strip() for cell in line.strip().split("||")[1:]]
        for number, line in enumerate(lines, start=1)
        if line.strip().startswith("||")
    }
    first = min(cells, default=1)
    columns = [cell.lower() for cell in cells.pop(first, [])]
    if not {"name", "clinical diagnosis"} <= set(columns):
        raise DataError(
            f"{table}, row {first}: expected the columns Name and Clinical Diagnosis, got "
            f"{', '.join(filter(None, columns))}."
        )
    blank = {"clinical diagnosis": ""}
    rows = {n: {**blank, **dict(zip(columns, row, strict=False))} for n, row in cells.items()}
    index = ImageIndex(release / "PH2 Dataset images")
    label_of = _by_value("clinical diagnosis", spec.labels)
    return split_source(spec, base, _label(table, rows, index, "name", label_of), seed)


def _rows(
    path: Path, columns: Sequence[str] = (), *, header: bool = True
) -> dict[int, dict[str, str]]:
    """The rows of a CSV file by the number of their line."""
    rows: dict[int, dict[str, str]] = read_csv(path, columns, header=header).to_dict("index")
    return rows


def _find_column(path: Path, row: Mapping[str, str], names: Sequence[str], content: str) -> str:
    """The first of these columns that a table has."""
    for name in names:
        if name in row:
            return name
    raise DataError(
        f"{path}, row 1: expected a column for {content}, called {', '.join(names[:-1])} or "
        f"{names[-1]}; got {', '.join(row)}."
    )


def _by_value(column: str, classes: Mapping[str, str]) -> LabelOf:
    """The class that the value of a column stands for."""

    def label_of(row: Mapping[str, str]) -> str:
        name = classes.get(row[column].lower())
        if name is None:
            raise ValueError(f"{column} {row[column]!r}; expected one of {', '.join(classes)}")
        return name

    return label_of


def _by_mark(classes: Mapping[str, str], otherwise: str | None = None) -> LabelOf:
    """The class of the one column that holds 1 while all others hold 0; else `otherwise`."""

    def label_of(row: Mapping[str, str]) -> str:
        for column in classes:
            if row[column] not in ("0", "0.0", "1", "1.0"):
                raise ValueError(f"{column} is {row[column]!r}; expected 0 or 1")
        marked = [column for column in classes if float(row[column])]
        if len(marked) > 1 or (otherwise is None and not marked):
            raise ValueError(
                f"{len(marked)} of {', '.join(classes)} are 1; expected "
                f"{'exactly' if otherwise is None else 'at most'} one"
            )
        return classes[marked[0]] if marked else otherwise or ""

    return label_of


def _label(
    table: Path,
    rows: Mapping[int, Mapping[str, str]],
    images: ImageIndex,
    column: str,
    label_of: LabelOf,
    split: str = "train",
) -> Listed:
    """The image file in `column` of every row, with its class."""
    listed: Listed = []
    for number, row in rows.items():
        try:
            listed.append((split, images.find(row[column]), label_of(row)))
        except ValueError as error:
            raise DataError(f"{table}, row {number}: {error}.") from None
    return listed


READERS: dict[str, Callable[[DatasetSpec, Path, int], Source]] = {
    reader.__name__: reader
    for reader in (
        *(torchvision_set, stl10, imagenet_subset, medmnist, isic2016, isic2017, isic2018),
        *(isic_archive, label_folders, derm7pt, ph2),
    )
}
