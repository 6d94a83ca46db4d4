"""CSV files: labels of images in the same folder."""

import io
import os
import re
from collections import defaultdict
from functools import cached_property
from pathlib import Path

import pandas as pd

from zetamix_lab.data.errors import DataError, OnProblem, raise_problems
from zetamix_lab.data.image_files import SUFFIXES, images_below
from zetamix_lab.data.sample_table import NO_IMAGES, SampleTable, from_cells
from zetamix_lab.text import printable, reason

FILE_COLUMNS = ("file", "image", "path", "filename", "file_name", "image_id", "image_path")


def from_csv(
    path: Path, group: str | None = None, on_problem: OnProblem = raise_problems
) -> SampleTable:
    """A CSV file with a row per image, whose split may be in a column `split`.

    group: the column of the patient or lesion, which is kept in one split.
    """
    cells = read_csv(path)
    if cells.empty:
        raise DataError(f"{path} has a header and no rows; expected one row per image.")
    file = next((name for name in FILE_COLUMNS if name in cells), None)
    if file is None:
        raise DataError(
            f"{path} has the columns {', '.join(cells)}; expected one of image files, called "
            f"{', '.join(FILE_COLUMNS)}. {NO_IMAGES}"
        )
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
    frame = pd.DataFrame({"place": [f"{path}, row {row}" for row in images.values()]})
    cells = cells.loc[list(images.values())].reset_index(drop=True)
    return from_cells(path, "a CSV file and its images", frame, cells, list(images), group)


def read_csv(path: Path) -> pd.DataFrame:
    """The cells of a CSV file below its header, whose names become lower case."""
    cells = read_cells(path)
    names = [printable(cell) for cell in cells.iloc[0].str.lower()]
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise DataError(f"{path}, row {cells.index[0]}: two columns are named {twice[0]!r}.")
    return cells.iloc[1:].set_axis(names, axis=1)


def read_cells(path: Path) -> pd.DataFrame:
    """The cells of a CSV file as text, without blank lines; the index is the number of the line.

    Commas, semicolons or tabs separate cells. Cells that a line lacks are empty; a line with too
    many is an error.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if not text.strip():
            raise ValueError("the file is empty")
        first = text.strip().split("\n", 1)[0]
        cells = pd.read_csv(
            io.StringIO(text),
            sep=max(",;\t", key=first.count),
            header=None,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
        )
    except (OSError, ValueError) as error:
        if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error)):
            raise DataError(
                f"{path}, row {found[2]}: expected {found[1]} cells, got {found[3]}."
            ) from None
        raise DataError(f"{path} cannot be read: {reason(error)}. Expected CSV in UTF-8.") from None
    cells = cells.apply(lambda column: column.str.strip())
    cells.index += 1
    return cells[(cells != "").any(axis=1)]


class ImageIndex:
    """The image files below a folder, found by a path in it, or by their name ignoring case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def by_end(self) -> dict[str, list[Path]]:
        """Files by every end of their path, such as 1, b/1 and a/b/1, in lower case.

        Built only if a name is not a path in the folder, which may be large.
        """
        found: dict[str, list[Path]] = defaultdict(list)
        for file in images_below(self.folder):
            parts = file.relative_to(self.folder).with_suffix("").as_posix().lower().split("/")
            for k in range(len(parts)):
                found["/".join(parts[k:])].append(file)
        return found

    def find(self, name: str) -> Path:
        """The file of that path or name, with or without its suffix."""
        if not name:
            raise DataError("no image; expected the path of a file")
        direct = Path(os.path.normpath(self.folder / name))
        if os.path.isfile(direct):
            return direct
        key = name.replace("\\", "/").removeprefix("./").lower()
        found = self.by_end.get(os.path.splitext(key)[0] if key.endswith(SUFFIXES) else key, [])
        # a path in the folder comes before the same one further down
        depth = len(self.folder.parts) + key.count("/") + 1
        matches = [file for file in found if len(file.parts) == depth] or found
        if len(matches) > 1:
            raise DataError(
                f"{name!r} is ambiguous: {matches[0]} or {matches[1]}. Write the path relative to "
                f"{self.folder}, with its suffix"
            )
        if not matches:
            raise DataError(f"image {name[:100]!r} not found in {self.folder}")
        return matches[0]
