"""The challenges and the archive of the International Skin Imaging Collaboration."""

import re
from collections.abc import Sequence
from pathlib import Path

from zetamix.data.archives import find_path
from zetamix.data.catalogue.skin import (
    ISIC2018_CLASSES,
    MELANOMA,
    NEVUS,
    OTHERS,
    SK,
)
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.errors import DataError
from zetamix.data.label_csv import Images, Row, read_lines, read_rows
from zetamix.data.readers.labelled import Labelled, made_parts, official_parts, source_of
from zetamix.data.source import Source

PHOTOS = (".jpg", ".jpeg")

# train labels of 2016 are words, test labels are numbers
BENIGN_MALIGNANT = {"benign": 0, "0": 0, "0.0": 0, "malignant": 1, "1": 1, "1.0": 1}

# columns of the archive's metadata, then and now
ARCHIVE_IDS = ("isic_id", "image_id", "image_name", "name")
ARCHIVE_DIAGNOSES = ("diagnosis", "meta.clinical.diagnosis")
UNDIAGNOSED = ("", "unknown", "none", "nan", "not available", "indeterminate")


def isic2016(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2016, part 3: two columns, without a header in the official files."""

    def read(part: str) -> list[Labelled]:
        table = base / f"ISBI2016_ISIC_Part3_{part}_GroundTruth.csv"
        images = Images(base / f"ISBI2016_ISIC_Part3_{part}_Data", suffixes=PHOTOS)
        lines = read_lines(table)
        has_header = bool(lines) and not re.match(r"\s*ISIC_\d+", lines[0][1][0], re.IGNORECASE)
        # copies in circulation have headers of their own; only the two columns are certain
        rows = read_rows(table, ["image", "label"], header=False)[1 if has_header else 0 :]
        found = []
        for row in rows:
            label = BENIGN_MALIGNANT.get(row["label"].lower())
            if label is None:
                raise DataError(
                    f"{row.where}: label {row['label']!r}; expected benign or malignant, or 0 or 1."
                )
            found.append(Labelled(images.find(row["image"], row), label))
        return found

    parts = {"train": read("Training"), "test": read("Test")}
    return source_of(spec, base, official_parts(spec, base, parts))


def isic2017(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2017, part 3: melanoma, seborrheic keratosis, or neither, which is a nevus."""
    columns = {"melanoma": MELANOMA, "seborrheic_keratosis": SK}

    def read(part: str) -> list[Labelled]:
        images = Images(base / f"ISIC-2017_{part}_Data", suffixes=PHOTOS)
        rows = read_rows(base / f"ISIC-2017_{part}_Part3_GroundTruth.csv", ["image_id", *columns])
        return [
            Labelled(
                images.find(row["image_id"], row),
                spec.classes.index(columns.get(_marked(row, list(columns)), NEVUS)),
            )
            for row in rows
        ]

    parts = {"train": read("Training"), "val": read("Validation"), "test": read("Test_v2")}
    return source_of(spec, base, official_parts(spec, base, parts))


def isic2018(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2018, task 3; the training split may also be HAM10000 from its own source."""
    parts = {"train": _task3(spec, base, "Training"), "val": _task3(spec, base, "Validation")}
    notes: tuple[str, ...] = ()
    if find_path(base, "ISIC2018_Task3_Test_Input") is not None:
        parts["test"] = _task3(spec, base, "Test")
    else:
        notes = ("the official test split is not here; the paper does not use it",)
    return source_of(spec, base, official_parts(spec, base, parts), notes)


def isic_archive(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Collections as `isic image download` writes them: images and `metadata.csv`."""
    images = Images(base, suffixes=PHOTOS)
    found = []
    dropped = 0
    for row in read_rows(base / "metadata.csv", []):
        diagnosis = archive_class(row)
        if diagnosis in spec.classes:
            place = images.find(row[_column(row, ARCHIVE_IDS, "the image's id")], row)
            found.append(Labelled(place, spec.classes.index(diagnosis)))
        else:
            dropped += 1
    parts = made_parts(spec, base, found, seed)
    note = f"{dropped:,} images of {base} are left out: undiagnosed, or of no class in use"
    return source_of(spec, base, parts, (note,) if dropped else (), seed=seed)


def archive_class(row: Row) -> str | None:
    """The class of one row of the archive's metadata, of any of its versions; None: undiagnosed."""
    old = [column for column in ARCHIVE_DIAGNOSES if column in row.cells]
    # today's first column says only benign or malignant
    new = [f"diagnosis_{level}" for level in range(2, 6) if f"diagnosis_{level}" in row.cells]
    if not old and not new:
        raise DataError(
            f"{row.table}, row 1: expected a column diagnosis, or diagnosis_1 to diagnosis_5, got "
            f"{', '.join(row.cells)}."
        )
    said = [row[column].strip().lower() for column in (*old, *new)]
    said = [text for text in said if text not in UNDIAGNOSED]
    if not said:
        return None
    for name in (MELANOMA, NEVUS, SK):
        if any(name in text for text in said):
            return name
    return OTHERS


def _task3(spec: DatasetSpec, base: Path, part: str) -> list[Labelled]:
    folders = [f"ISIC2018_Task3_{part}_Input"]
    if part == "Training":
        folders += ["HAM10000_images_part_1", "HAM10000_images_part_2"]
    present = [place for name in folders if (place := find_path(base, name)) is not None]
    images = Images(*present, suffixes=PHOTOS)
    stem = f"ISIC2018_Task3_{part}_GroundTruth"
    table = find_path(base, f"{stem}/{stem}.csv") or find_path(base, f"{stem}.csv")
    if table is None and part == "Training":
        return _ham10000(spec, base, images)
    if table is None:
        raise DataError(f"{base} holds no {stem}.csv. Unpack {stem}.zip there.")
    columns = [name.lower() for name in ISIC2018_CLASSES]
    return [
        Labelled(
            images.find(row["image"], row),
            spec.classes.index(ISIC2018_CLASSES[_marked(row, columns, exactly=True).upper()]),
        )
        for row in read_rows(table, ["image", *columns])
    ]


def _ham10000(spec: DatasetSpec, base: Path, images: Images) -> list[Labelled]:
    table = find_path(base, "HAM10000_metadata") or find_path(base, "HAM10000_metadata.csv")
    if table is None:
        raise DataError(
            f"{base} holds labels of the training split neither as "
            "ISIC2018_Task3_Training_GroundTruth.csv nor as HAM10000_metadata."
        )
    found = []
    for row in read_rows(table, ["image_id", "dx"]):
        diagnosis = ISIC2018_CLASSES.get(row["dx"].upper())
        if diagnosis is None:
            known = ", ".join(name.lower() for name in ISIC2018_CLASSES)
            raise DataError(f"{row.where}: diagnosis {row['dx']!r}; expected one of {known}.")
        found.append(Labelled(images.find(row["image_id"], row), spec.classes.index(diagnosis)))
    return found


def _marked(row: Row, columns: Sequence[str], *, exactly: bool = False) -> str:
    """The one column of a row that holds 1 where all others hold 0; "" if none does."""
    marked = []
    for column in columns:
        try:
            value = float(row[column])
        except ValueError:
            value = -1.0
        if value not in (0.0, 1.0):
            raise DataError(f"{row.where}: {column} is {row[column]!r}; expected 0 or 1.")
        if value == 1:
            marked.append(column)
    if len(marked) > 1 or (exactly and not marked):
        wanted = "exactly one" if exactly else "at most one"
        raise DataError(
            f"{row.where}: {len(marked)} of {', '.join(columns)} are 1; expected {wanted}."
        )
    return marked[0] if marked else ""


def _column(row: Row, names: Sequence[str], what: str) -> str:
    for name in names:
        if name in row.cells:
            return name
    raise DataError(
        f"{row.table}, row 1: expected a column with {what} ({', '.join(names)}), got "
        f"{', '.join(row.cells)}."
    )
