"""CSV files: labels of images in the same folder, or columns of numbers."""

import io
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from zetamix_lab.data.errors import DataError, OnProblem, raise_problems
from zetamix_lab.data.image_files import SUFFIXES, images_below
from zetamix_lab.data.sample_table import LABEL_COLUMNS, SampleTable, from_cells
from zetamix_lab.text import printable, reason

FILE_COLUMNS = ("file", "image", "path", "filename", "file_name", "image_id", "image_path")
TABLE = (
    f"a header with a column for the image ({', '.join(FILE_COLUMNS)}), or columns of numbers, and "
    f"one for the class ({', '.join(LABEL_COLUMNS)}, or columns of zeros and ones), and one row "
    "per sample"
)


def from_csv(
    path: Path, group: str | None = None, on_problem: OnProblem = raise_problems
) -> SampleTable:
    """A CSV file with a row per sample, whose split may be in a column `split`.

    group: the column of the patient or lesion, which is kept in one split.
    """
    cells = read_csv(path, expected=TABLE)
    if cells.empty:
        raise DataError(f"{path} has a header and no rows; expected one row per sample.")
    # names of files may be no text, which only objects hold
    frame = pd.DataFrame({"row": cells.index, "file": str(path)}, cells.index, dtype=object)
    file = next((name for name in FILE_COLUMNS if name in cells), None)
    if file is None:
        return from_cells(path, "a CSV file", frame, cells, group=group)
    index = ImageIndex(path.parent)
    images: dict[Path, int] = {}
    problems = []
    for row, name in cells[file].items():
        try:
            image = index.find(name)
            if image in images:
                raise DataError(f"{name!r} is already in row {images[image]}")
            images[image] = row
        except DataError as error:
            problems.append(f"{path}, row {row}: {error}.")
    on_problem(problems)
    rows = list(images.values())
    names = [os.path.relpath(image, path.parent) for image in images]
    return from_cells(
        path,
        "a CSV file and its images",
        frame.loc[rows].assign(name=pd.Series(names, rows, dtype=object)).reset_index(drop=True),
        cells.loc[rows].reset_index(drop=True),
        group=group,
        images=list(images),
        file=file,
    )


def read_csv(
    path: Path,
    columns: Sequence[str] = (),
    *,
    header: bool = True,
    expected: str = "",
) -> pd.DataFrame:
    """The cells of a CSV file as text, without blank lines; the index is the number of the line.

    Commas, semicolons or tabs separate cells; names of columns become lower case. Without a header
    the file has exactly these columns, in this order. Cells that a line lacks are empty; a line
    with too many is an error. `expected` describes the content in the message about an empty file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8. Save it as CSV in UTF-8.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    if "\0" in text:
        raise DataError(f"{path} is not a text file. Save it as CSV in UTF-8.")
    if not text.strip():
        expected = expected or f"the columns {', '.join(columns)}"
        raise DataError(f"{path} is empty; expected {expected}.")
    first = text.strip().split("\n", 1)[0]
    try:
        cells = pd.read_csv(
            io.StringIO(text),
            sep=max(",;\t", key=first.count),
            header=None,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
        )
    except (ValueError, pd.errors.ParserError) as error:
        if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error)):
            raise DataError(
                f"{path}, row {found[2]}: expected {found[1]} cells, got {found[3]}."
            ) from None
        raise DataError(f"{path} cannot be read as CSV: {reason(error)}.") from None
    cells = cells.apply(lambda column: column.str.strip())
    cells.index += 1
    cells = cells[(cells != "").any(axis=1)]
    names = list(columns)
    if header:
        names = [printable(cell) for cell in cells.iloc[0].str.lower()]
        number, cells = cells.index[0], cells.iloc[1:]
        if twice := [name for name in names if name and names.count(name) > 1]:
            raise DataError(f"{path}, row {number}: two columns are named {twice[0]!r}.")
        if missing := [column for column in columns if column not in names]:
            raise DataError(
                f"{path}, row {number}: expected the columns {', '.join(columns)}, got "
                f"{', '.join(names)}; missing: {', '.join(missing)}."
            )
    return cells.set_axis(names, axis=1)


class ImageIndex:
    """The image files below a folder, found by a path in it, or by their name ignoring case."""

    def __init__(self, folder: Path, suffixes: Sequence[str] = SUFFIXES) -> None:
        self.folder, self.suffixes = folder, suffixes

    @cached_property
    def by_stem(self) -> dict[str, list[Path]]:
        """Built only if a name is not a path in the folder, which may be large."""
        found: dict[str, list[Path]] = {}
        for file in images_below(self.folder):
            if file.suffix.lower() in self.suffixes:
                found.setdefault(file.stem.lower(), []).append(file)
        return found

    def find(self, name: str) -> Path:
        """The file of that name: a path, with or without its suffix."""
        if not name:
            raise DataError("no image; expected the path of a file")
        direct = Path(os.path.normpath(self.folder / name))
        if os.path.isfile(direct):
            return direct
        key = name.replace("\\", "/").strip().removeprefix("./").lower()
        stem = key.rsplit("/", 1)[-1]
        found = self.by_stem.get(stem, []) + self.by_stem.get(os.path.splitext(stem)[0], [])
        paths = {file: f"/{file.relative_to(self.folder).as_posix()}".lower() for file in found}
        matches = [file for file, path in paths.items() if path == f"/{key}"] or [
            file for file, path in paths.items() if os.path.splitext(path)[0].endswith(f"/{key}")
        ]
        if not matches:
            raise DataError(f"image {name[:100]!r} not found in {self.folder}")
        if len(matches) > 1:
            raise DataError(
                f"{name!r} is ambiguous: {matches[0]} or {matches[1]}. Write the path relative to "
                f"{self.folder}, with its suffix"
            )
        return matches[0]
