"""Skin lesions: ISIC challenges and archive, DermoFit, derm7point, PH², MED-NODE."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paper.datasets.catalogue import DatasetSpec
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.image_files import LabelledFile, file_part, images_below
from zetamix_lab.data.label_csv import ImageIndex, Row, find_column, read_rows
from zetamix_lab.data.source import Source
from zetamix_lab.data.splits import complete_splits

PHOTOS = (".jpg", ".jpeg")
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


def isic2016(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2016, part 3: two columns, without a header."""
    parts = {"train": "Training", "test": "Test"}
    label_of = _by_value("label", spec.labels)
    files = ("ISBI2016_ISIC_Part3_{}_Data", "ISBI2016_ISIC_Part3_{}_GroundTruth.csv")
    return _challenge(spec, base, parts, *files, ["image", "label"], label_of, header=False)


def isic2017(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2017, part 3: melanoma, seborrheic keratosis, or neither, which is a nevus."""
    parts = {"train": "Training", "val": "Validation", "test": "Test_v2"}
    label_of = _by_mark(spec.labels, otherwise="nevus")
    files = ("ISIC-2017_{}_Data", "ISIC-2017_{}_Part3_GroundTruth.csv")
    return _challenge(spec, base, parts, *files, ["image_id", *spec.labels], label_of)


def isic2018(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Challenge 2018, task 3; the test split may be missing, as the paper does not use it."""
    parts = {"train": "Training", "val": "Validation"}
    if (base / "ISIC2018_Task3_Test_Input").exists():
        parts["test"] = "Test"
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
    label_of: Callable[[Row], str],
    header: bool = True,
) -> Source:
    """One folder of images and one table per split; the first column names the image."""
    splits = {}
    for split, part in parts.items():
        rows = read_rows(base / table.format(part), columns, header=header)
        index = ImageIndex(base / images.format(part), suffixes=PHOTOS)
        items = _label(spec, rows, index, columns[0], label_of)
        splits[split] = file_part(items, spec.shape, spec.fit, base)
    return spec.source(splits, f"official files in {base}")


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
    named = (name for name in LESIONS if any(name in text for text in texts))
    return next(named, "others") if texts else None


def dermofit(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One folder per class code; every photograph has a mask in the same folder."""
    return _split(spec, base, _label_folders(spec, base), seed)


def mednode(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Two folders."""
    return _split(spec, base, _label_folders(spec, base / spec.files[0].content), seed)


def derm7pt(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Clinical and dermoscopic photographs of the same cases, in one table."""
    release = base / spec.files[0].content
    column = "clinic" if spec.name == "derm7pt_clinical" else "derm"
    rows = read_rows(release / "meta" / "meta.csv", ["diagnosis", column])
    images = ImageIndex(release / "images")
    items = _label(spec, rows, images, column, _by_value("diagnosis", spec.labels))
    return _split(spec, base, items, seed)


def ph2(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Cases `IMD###`, with their diagnoses in a text file."""
    release = base / spec.files[0].content
    table = release / "PH2_dataset.txt"
    if not table.exists():
        raise DataError(
            f"{table} is missing; the labels are read from it, not from PH2_dataset.xlsx. Extract "
            "it from PH2Dataset.rar."
        )
    rows = _ph2_rows(table)
    images = ImageIndex(release / "PH2 Dataset images")
    items = _label(spec, rows, images, "name", _by_value("clinical diagnosis", spec.labels))
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


def _label_folders(spec: DatasetSpec, base: Path) -> list[LabelledFile]:
    """The images of one folder per label, without masks."""
    missing = [name for name in spec.labels if not (base / name).is_dir()]
    if missing:
        raise DataError(
            f"{base}: expected the folders {', '.join(spec.labels)}; missing: {', '.join(missing)}."
        )
    return [
        LabelledFile(file, spec.classes.index(label))
        for name, label in spec.labels.items()
        for file in images_below(base / name)
        if not file.stem.lower().endswith("mask")
    ]


def _split(
    spec: DatasetSpec, base: Path, items: Sequence[LabelledFile], seed: int, *notes: str
) -> Source:
    """Train, val and test from images without official splits."""
    # sorted by name, so that the order of a label file or of a disk does not change the split
    items = sorted(items, key=lambda item: item.file.relative_to(base).as_posix().lower())
    whole = {"train": file_part(items, spec.shape, spec.fit, base)}
    source = spec.source(whole, f"official files in {base}", *notes)
    return complete_splits(source, seed=seed, origin=str(base))


CHALLENGES = (isic2016, isic2017, isic2018)
COLLECTIONS = (isic_archive, dermofit, derm7pt, ph2, mednode)
READERS = {reader.__name__: reader for reader in (*CHALLENGES, *COLLECTIONS)}
