"""DermoFit, derm7point, PH² and MED-NODE."""

from pathlib import Path

from zetamix.data.archives import find_path
from zetamix.data.catalogue.skin import DERM7PT_CLASSES, DERMOFIT_CLASSES, MELANOMA, NEVUS
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.errors import DataError
from zetamix.data.image_files import images_below
from zetamix.data.label_csv import Images, Row, read_rows
from zetamix.data.readers import xlsx
from zetamix.data.readers.labelled import Labelled, made_parts, source_of
from zetamix.data.source import Source

# codes of PH2_dataset.txt, and columns of PH2_dataset.xlsx
PH2_CLINICAL = {"0": NEVUS, "1": NEVUS, "2": MELANOMA}
PH2_COLUMNS = {"commonnevus": NEVUS, "atypicalnevus": NEVUS, "melanoma": MELANOMA}

MEDNODE_FOLDERS = {"naevus": NEVUS, "melanoma": MELANOMA}


def dermofit(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """A folder for each class code; or all images together, with `lesionlist.txt`."""
    folders = {code: find_path(base, code) for code in DERMOFIT_CLASSES}
    here = {code: folder for code, folder in folders.items() if folder is not None}
    if here and len(here) < len(folders):
        missing = ", ".join(sorted(set(folders) - set(here)))
        raise DataError(f"{base}: expected a folder for each class; missing: {missing}.")
    if here:
        found = [
            Labelled(file, spec.classes.index(DERMOFIT_CLASSES[code]))
            for code, folder in here.items()
            for file in images_below(folder)
            if not file.stem.lower().endswith("mask")
        ]
    else:
        found = _lesion_list(spec, base)
    return source_of(spec, base, made_parts(spec, base, found, seed), seed=seed)


def derm7pt(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Clinical and dermoscopic photographs of the same cases, in one table."""
    release = base / spec.archives[0].result
    column = "clinic" if spec.name == "derm7pt_clinical" else "derm"
    images = Images(release / "images")
    found = []
    for row in read_rows(release / "meta" / "meta.csv", ["diagnosis", column]):
        diagnosis = DERM7PT_CLASSES.get(row["diagnosis"].lower())
        if diagnosis is None:
            raise DataError(
                f"{row.where}: diagnosis {row['diagnosis']!r} is none of the "
                f"{len(DERM7PT_CLASSES)} that derm7point has."
            )
        found.append(Labelled(images.find(row[column], row), spec.classes.index(diagnosis)))
    return source_of(spec, base, made_parts(spec, base, found, seed), seed=seed)


def ph2(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Cases `IMD###`, with their diagnoses in a text file or in the same as a spreadsheet."""
    release = base / spec.archives[0].result
    photos = release / "PH2 Dataset images"
    text, sheet = find_path(release, "PH2_dataset.txt"), find_path(release, "PH2_dataset.xlsx")
    if text is not None:
        cases = _ph2_text(text)
    elif sheet is not None:
        cases = _ph2_sheet(sheet)
    else:
        raise DataError(f"{release} holds neither PH2_dataset.txt nor PH2_dataset.xlsx.")
    found = []
    for row, name, diagnosis in cases:
        file = find_path(photos, f"{name}/{name}_Dermoscopic_Image/{name}.bmp")
        if file is None:
            raise DataError(f"{row.where}: there is no image {name!r} in {photos}.")
        found.append(Labelled(file, spec.classes.index(diagnosis)))
    return source_of(spec, base, made_parts(spec, base, found, seed), seed=seed)


def mednode(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Two folders."""
    release = base / spec.archives[0].result
    found = []
    for name, diagnosis in MEDNODE_FOLDERS.items():
        folder = find_path(release, name)
        if folder is None:
            raise DataError(f"{release}: expected the folders naevus and melanoma; no {name}.")
        found += [Labelled(file, spec.classes.index(diagnosis)) for file in images_below(folder)]
    return source_of(spec, base, made_parts(spec, base, found, seed), seed=seed)


def _lesion_list(spec: DatasetSpec, base: Path) -> list[Labelled]:
    lists = sorted(base.rglob("lesionlist.txt"))
    if not lists:
        raise DataError(
            f"{base}: expected folders named {', '.join(sorted(DERMOFIT_CLASSES))}, or "
            "lesionlist.txt with all images."
        )
    images = Images(lists[0].parent)
    found = []
    for number, line in enumerate(lists[0].read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split()
        if not cells:
            continue
        row = Row(lists[0], number, {})
        if len(cells) != 3 or cells[2].upper() not in DERMOFIT_CLASSES:
            raise DataError(
                f"{row.where}: {line.strip()!r}; expected a number, an image and one of the codes "
                f"{', '.join(sorted(DERMOFIT_CLASSES))}."
            )
        diagnosis = DERMOFIT_CLASSES[cells[2].upper()]
        found.append(Labelled(images.find(cells[1], row), spec.classes.index(diagnosis)))
    return found


def _ph2_text(path: Path) -> list[tuple[Row, str, str]]:
    """`|| Name || Histological Diagnosis || Clinical Diagnosis || …`, then a legend."""
    found: list[tuple[Row, str, str]] = []
    columns: list[str] = []
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
    ):
        if not line.strip().startswith("||"):
            continue
        # cells may be empty: the histology of most cases is
        cells = [cell.strip() for cell in line.strip().split("||")[1:]]
        if not columns:
            columns = [cell.lower() for cell in cells]
            if not {"name", "clinical diagnosis"} <= set(columns):
                raise DataError(
                    f"{path}, row {number}: expected the columns Name and Clinical Diagnosis, got "
                    f"{', '.join(filter(None, cells))}."
                )
            continue
        row = Row(path, number, dict(zip(columns, cells, strict=False)))
        diagnosis = PH2_CLINICAL.get(row.cells.get("clinical diagnosis", ""))
        if diagnosis is None:
            said = row.cells.get("clinical diagnosis", "")
            raise DataError(f"{row.where}: clinical diagnosis {said!r}; expected 0, 1 or 2.")
        found.append((row, row["name"], diagnosis))
    if not found:
        raise DataError(f"{path} lists no case; expected lines that begin with ||.")
    return found


def _ph2_sheet(path: Path) -> list[tuple[Row, str, str]]:
    """A header after some lines of text; an X in the column of the diagnosis."""
    columns: dict[str, int] = {}
    found: list[tuple[Row, str, str]] = []
    for number, cells in xlsx.read_rows(path):
        texts = [text.strip() for text in cells]
        if not columns:
            names = ["".join(text.lower().split()) for text in texts]
            if "imagename" in names and set(PH2_COLUMNS) <= set(names):
                columns = {name: names.index(name) for name in ("imagename", *PH2_COLUMNS)}
            continue
        name = texts[columns["imagename"]] if len(texts) > columns["imagename"] else ""
        if not name:
            continue
        row = Row(path, number, {})
        marked = {
            PH2_COLUMNS[column]
            for column in PH2_COLUMNS
            if len(texts) > columns[column] and texts[columns[column]].upper() == "X"
        }
        if len(marked) != 1:
            raise DataError(
                f"{row.where}: expected one X under Common Nevus, Atypical Nevus or Melanoma."
            )
        found.append((row, name, marked.pop()))
    if not found:
        raise DataError(
            f"{path} lists no case; expected a header with Image Name, Common Nevus, Atypical "
            "Nevus and Melanoma."
        )
    return found
