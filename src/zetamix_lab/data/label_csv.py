"""Label files: CSV rows with their numbers, so that every message can name the row."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zetamix_lab.data.errors import DataError, OnProblem, raise_problems
from zetamix_lab.data.image_files import SUFFIXES, images_below
from zetamix_lab.text import printable


@dataclass(frozen=True)
class Row:
    """One row of a table; the first line of the file is row 1."""

    table: Path
    number: int
    cells: dict[str, str]

    @property
    def where(self) -> str:
        return f"{self.table}, row {self.number}"

    def __getitem__(self, column: str) -> str:
        return self.cells[column]


def read_rows(
    path: Path,
    columns: Sequence[str],
    *,
    header: bool = True,
    expected: str = "",
    on_problem: OnProblem = raise_problems,
) -> list[Row]:
    """The rows of a CSV file with at least these columns.

    Commas, semicolons or tabs separate cells; names of columns are compared in lower case. Without
    a header the file has exactly these columns, in this order. `expected` describes the content in
    the message about an empty file.
    """
    lines = _read_lines(path)
    if not lines:
        expected = expected or f"the columns {', '.join(columns)}"
        raise DataError(f"{path} is empty; expected {expected}.")
    names = list(columns)
    if header:
        number, first = lines.pop(0)
        names = [printable(cell.strip().lower()) for cell in first]
        twice = [name for name, count in Counter(names).items() if name and count > 1]
        if twice:
            raise DataError(f"{path}, row {number}: two columns are named {twice[0]!r}.")
        missing = [column for column in columns if column not in names]
        if missing:
            raise DataError(
                f"{path}, row {number}: expected the columns {', '.join(columns)}, got "
                f"{', '.join(names)}; missing: {', '.join(missing)}."
            )
    on_problem(
        [
            f"{path}, row {number}: expected {len(names)} cells, got {len(cells)}."
            for number, cells in lines
            if len(cells) != len(names)
        ]
    )
    return [
        Row(path, number, dict(zip(names, (cell.strip() for cell in cells), strict=True)))
        for number, cells in lines
        if len(cells) == len(names)
    ]


def _read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """The cells of every line that is not blank, with its number."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not text in UTF-8. Save it as CSV in UTF-8.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    if "\0" in text:
        raise DataError(f"{path} is not a text file. Save it as CSV in UTF-8.")
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except csv.Error as error:
        raise DataError(f"{path}, row {reader.line_num}: {error}.") from None


def find_column(row: Row, names: Sequence[str], content: str) -> str:
    """The first of these columns that a table has."""
    for name in names:
        if name in row.cells:
            return name
    raise DataError(
        f"{row.table}, row 1: expected a column for {content}, called {', '.join(names[:-1])} or "
        f"{names[-1]}; got {', '.join(row.cells)}."
    )


class ImageIndex:
    """The image files below some folders, found by name ignoring case."""

    def __init__(self, *folders: Path, suffixes: Sequence[str] = SUFFIXES) -> None:
        self.folders = folders
        self.by_path: dict[str, Path] = {}
        self.by_stem: dict[str, list[Path]] = {}
        for folder in folders:
            for file in images_below(folder):
                if file.suffix.lower() in suffixes:
                    self.by_path[file.relative_to(folder).as_posix().lower()] = file
                    self.by_stem.setdefault(file.stem.lower(), []).append(file)

    def find(self, name: str, row: Row) -> Path:
        """The file of that name: a path below a folder, with or without its suffix."""
        key = name.replace("\\", "/").strip().removeprefix("./").lower()
        if key in self.by_path:
            return self.by_path[key]
        matches = [
            file
            for file in self.by_stem.get(key.rsplit("/", 1)[-1], [])
            if f"/{file.with_suffix('').as_posix().lower()}".endswith(f"/{key}")
        ]
        if len(matches) == 1:
            return matches[0]
        folders = " or ".join(str(folder) for folder in self.folders)
        if matches:
            raise DataError(
                f"{row.where}: {name!r} is ambiguous: {matches[0]} or {matches[1]}. Write the path "
                f"relative to {folders}, with its suffix."
            )
        raise DataError(f"{row.where}: image {name!r} not found in {folders}.")
