"""Skin lesions: ISIC challenges and archive, DermoFit, derm7point, PH², MED-NODE."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from zetamix.data.catalogue.skin import (
    DERM7PT_CLASSES,
    DERMOFIT_CLASSES,
    ISIC2018_CLASSES,
    MELANOMA,
    NEVUS,
    OTHERS,
    SK,
)
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.download import find_path
from zetamix.data.errors import DataError
from zetamix.data.image_files import LabelledFile, file_part, images_below
from zetamix.data.label_csv import ImageIndex, Row, find_column, read_lines, read_rows
from zetamix.data.source import Source
from zetamix.data.splits import make_splits

PHOTOS = (".jpg", ".jpeg")
BENIGN_MALIGNANT = {
    # the training labels of 2016 are words, the test labels numbers
    **dict.fromkeys(("benign", "0", "0.0"), "benign"),
    **dict.fromkeys(("malignant", "1", "1.0"), "malignant"),
}
# columns of the archive's metadata in its older and newer versions; today's diagnosis_1 says only
# benign or malignant
ARCHIVE_IDS = ("isic_id", "image_id", "image_name", "name")
ARCHIVE_DIAGNOSES = (
    "diagnosis",
    "meta.clinical.diagnosis",
    *(f"diagnosis_{level}" for level in range(2, 6)),
)
UNDIAGNOSED = ("", "unknown", "none", "nan", "not available", "indeterminate")
PH2_DIAGNOSES = {"0": NEVUS, "1": NEVUS, "2": MELANOMA}


def isic2016(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2016, part 3: two columns, without a header in the official files."""

    def read(part: str) -> list[LabelledFile]:
        stem = f"ISBI2016_ISIC_Part3_{part}"
        table = base / f"{stem}_GroundTruth.csv"
        lines = read_lines(table)
        # copies in circulation have various headers; only the two columns are certain
        has_header = bool(lines) and not re.match(r"\s*ISIC_\d+", lines[0][1][0], re.IGNORECASE)
        rows = read_rows(table, ["image", "label"], header=False)[has_header:]
        images = ImageIndex(base / f"{stem}_Data", suffixes=PHOTOS)
        return _label(spec, rows, images, "image", _by_value("label", BENIGN_MALIGNANT))

    return _official(spec, base, {"train": read("Training"), "test": read("Test")})


def isic2017(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2017, part 3: melanoma, seborrheic keratosis, or neither, which is a nevus."""
    label_of = _by_mark({"melanoma": MELANOMA, "seborrheic_keratosis": SK}, otherwise=NEVUS)

    def read(part: str) -> list[LabelledFile]:
        table = base / f"ISIC-2017_{part}_Part3_GroundTruth.csv"
        rows = read_rows(table, ["image_id", "melanoma", "seborrheic_keratosis"])
        images = ImageIndex(base / f"ISIC-2017_{part}_Data", suffixes=PHOTOS)
        return _label(spec, rows, images, "image_id", label_of)

    parts = {"train": "Training", "val": "Validation", "test": "Test_v2"}
    return _official(spec, base, {split: read(part) for split, part in parts.items()})


def isic2018(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2018, task 3; HAM10000 from its own source replaces the training split."""

    def read(part: str, *more: str) -> list[LabelledFile]:
        folders = (find_path(base, name) for name in (f"ISIC2018_Task3_{part}_Input", *more))
        images = ImageIndex(*filter(None, folders), suffixes=PHOTOS)
        stem = f"ISIC2018_Task3_{part}_GroundTruth"
        table = find_path(base, f"{stem}/{stem}.csv") or find_path(base, f"{stem}.csv")
        if table is not None:
            rows = read_rows(table, ["image", *ISIC2018_CLASSES])
            return _label(spec, rows, images, "image", _by_mark(ISIC2018_CLASSES))
        ham = find_path(base, "HAM10000_metadata") or find_path(base, "HAM10000_metadata.csv")
        if not more or ham is None:
            raise DataError(
                f"{base} holds no {stem}.csv"
                f"{' and no HAM10000_metadata' if more else ''}. Unpack {stem}.zip there."
            )
        rows = read_rows(ham, ["image_id", "dx"])
        return _label(spec, rows, images, "image_id", _by_value("dx", ISIC2018_CLASSES))

    splits = {
        "train": read("Training", "HAM10000_images_part_1", "HAM10000_images_part_2"),
        "val": read("Validation"),
    }
    if find_path(base, "ISIC2018_Task3_Test_Input") is None:
        return _official(spec, base, splits, "no official test split found; the paper uses none")
    return _official(spec, base, {**splits, "test": read("Test")})


def isic_archive(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Collections as `isic image download` writes them: images and `metadata.csv`."""
    rows = read_rows(base / "metadata.csv", [])
    kept = [row for row in rows if archive_class(row) in spec.classes]
    column = find_column(rows[0], ARCHIVE_IDS, "the image's id") if rows else ""
    items = _label(spec, kept, ImageIndex(base, suffixes=PHOTOS), column, archive_class)
    dropped = len(rows) - len(kept)
    note = f"{dropped:,} images of {base} are not used: undiagnosed, or of another class"
    return _split(spec, base, items, seed, *([note] if dropped else []))


def archive_class(row: Row) -> str | None:
    """The class of a row of the archive's metadata, in any of its versions; None: undiagnosed."""
    find_column(row, ARCHIVE_DIAGNOSES, "the diagnosis")
    texts = [row[column].strip().lower() for column in ARCHIVE_DIAGNOSES if column in row.cells]
    texts = [text for text in texts if text not in UNDIAGNOSED]
    named = (name for name in (MELANOMA, NEVUS, SK) if any(name in text for text in texts))
    return next(named, OTHERS) if texts else None


def dermofit(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One folder per class code; every photograph has a mask beside it."""
    return _split(spec, base, _label_folders(spec, base, DERMOFIT_CLASSES), seed)


def mednode(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Two folders."""
    folders = {"naevus": NEVUS, "melanoma": MELANOMA}
    release = base / spec.files[0].content
    return _split(spec, base, _label_folders(spec, release, folders), seed)


def derm7pt(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Clinical and dermoscopic photographs of the same cases, in one table."""
    release = base / spec.files[0].content
    column = "clinic" if spec.name == "derm7pt_clinical" else "derm"
    rows = read_rows(release / "meta" / "meta.csv", ["diagnosis", column])
    images = ImageIndex(release / "images")
    items = _label(spec, rows, images, column, _by_value("diagnosis", DERM7PT_CLASSES))
    return _split(spec, base, items, seed)


def ph2(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Cases `IMD###`, with their diagnoses in a text file."""
    release = base / spec.files[0].content
    table = find_path(release, "PH2_dataset.txt")
    if table is None:
        raise DataError(
            f"{release / 'PH2_dataset.txt'} is missing; the labels are read from it, not from "
            "PH2_dataset.xlsx. Extract it from PH2Dataset.rar."
        )
    rows = _ph2_rows(table)
    images = ImageIndex(release / "PH2 Dataset images")
    items = _label(spec, rows, images, "name", _by_value("clinical diagnosis", PH2_DIAGNOSES))
    return _split(spec, base, items, seed)


def _ph2_rows(path: Path) -> list[Row]:
    """`|| Name || Histological Diagnosis || Clinical Diagnosis || …`, then a legend."""
    rows: list[Row] = []
    columns: list[str] = []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip().startswith("||"):
            continue
        # cells may be empty, as the histology of most cases is
        cells = [cell.strip() for cell in line.strip().split("||")[1:]]
        if columns:
            named = dict(zip(columns, cells, strict=False))
            rows.append(Row(path, number, {"clinical diagnosis": "", **named}))
            continue
        columns = [cell.lower() for cell in cells]
        if not {"name", "clinical diagnosis"} <= set(columns):
            raise DataError(
                f"{path}, row {number}: expected the columns Name and Clinical Diagnosis, got "
                f"{', '.join(filter(None, cells))}."
            )
    if not rows:
        raise DataError(f"{path} lists no case; expected lines that begin with ||.")
    return rows


def _by_value(column: str, classes: Mapping[str, str]) -> Callable[[Row], str]:
    """The class that the value of a column stands for."""

    def label_of(row: Row) -> str:
        name = classes.get(row[column].lower())
        if name is None:
            raise DataError(
                f"{row.where}: {column} {row[column]!r}; expected one of {', '.join(classes)}."
            )
        return name

    return label_of


def _by_mark(classes: Mapping[str, str], otherwise: str | None = None) -> Callable[[Row], str]:
    """The class of the one column that holds 1 while all others hold 0; else `otherwise`."""

    def label_of(row: Row) -> str:
        marked = [column for column in classes if _is_marked(row, column)]
        if len(marked) > 1 or (otherwise is None and not marked):
            raise DataError(
                f"{row.where}: {len(marked)} of {', '.join(classes)} are 1; expected "
                f"{'exactly' if otherwise is None else 'at most'} one."
            )
        return classes[marked[0]] if marked else otherwise or ""

    return label_of


def _is_marked(row: Row, column: str) -> bool:
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if value not in (0.0, 1.0):
        raise DataError(f"{row.where}: {column} is {row[column]!r}; expected 0 or 1.")
    return value == 1


def _label(
    spec: DatasetSpec,
    rows: Sequence[Row],
    images: ImageIndex,
    column: str,
    label_of: Callable[[Row], str | None],
) -> list[LabelledFile]:
    """The image file in `column` of every row, with its class."""
    return [
        LabelledFile(images.find(row[column], row), spec.classes.index(str(label_of(row))))
        for row in rows
    ]


def _label_folders(spec: DatasetSpec, base: Path, classes: Mapping[str, str]) -> list[LabelledFile]:
    """The images of one folder per class, without masks."""
    folders = {name: find_path(base, name) for name in classes}
    missing = [name for name, folder in folders.items() if folder is None]
    if missing:
        raise DataError(
            f"{base}: expected the folders {', '.join(classes)}; missing: {', '.join(missing)}."
        )
    return [
        LabelledFile(file, spec.classes.index(classes[name]))
        for name, folder in folders.items()
        if folder is not None
        for file in images_below(folder)
        if not file.stem.lower().endswith("mask")
    ]


def _official(
    spec: DatasetSpec, base: Path, splits: Mapping[str, Sequence[LabelledFile]], *notes: str
) -> Source:
    parts = {split: file_part(items, spec.shape, spec.fit, base) for split, items in splits.items()}
    return spec.source(parts, f"official files in {base}", *notes)


def _split(
    spec: DatasetSpec, base: Path, items: Sequence[LabelledFile], seed: int, *notes: str
) -> Source:
    """Train, val and test from images without official splits."""
    # sorted by name, so that the order of a label file or of a disk does not change the split
    items = sorted(items, key=lambda item: item.file.relative_to(base).as_posix().lower())
    labels = torch.tensor([item.label for item in items], dtype=torch.int64)
    rows, created = make_splits(labels, ["train"], spec.classes, seed=seed, origin=str(base))
    splits = {split: [items[row] for row in chosen.tolist()] for split, chosen in rows.items()}
    return _official(spec, base, splits, *created, *notes)
