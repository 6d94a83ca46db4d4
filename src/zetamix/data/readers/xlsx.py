"""The first sheet of a spreadsheet as text: enough for a label file, with nothing to install."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from zetamix.data.errors import DataError

NS = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
# a label file has a few kilobytes; a sheet that unpacks to more is not one
MOST_BYTES = 1 << 26


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of the first sheet with their numbers; empty cells are ""."""
    try:
        with zipfile.ZipFile(path) as book:
            strings = _strings(book)
            sheet = _parsed(book, _first_sheet(book))
    except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{path} is not a spreadsheet that can be read: {error}.") from None
    for row in sheet.iter(f"{NS}row"):
        cells: dict[int, str] = {}
        for cell in row.iter(f"{NS}c"):
            cells[_column(cell.get("r", ""))] = _text(cell, strings)
        width = max(cells, default=-1) + 1
        yield int(row.get("r", 0)), [cells.get(k, "") for k in range(width)]


def _first_sheet(book: zipfile.ZipFile) -> str:
    sheets = sorted(
        (name for name in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", name)),
        key=lambda name: int(re.sub(r"\D", "", name)),
    )
    if not sheets:
        raise ValueError("it holds no sheet")
    return sheets[0]


def _strings(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    data_dir = _parsed(book, "xl/sharedStrings.xml")
    return ["".join(t.text or "" for t in item.iter(f"{NS}t")) for item in data_dir.iter(f"{NS}si")]


def _parsed(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    if book.getinfo(name).file_size > MOST_BYTES:
        raise ValueError(f"{name} is larger than a label file can be")
    text = book.read(name)
    # a spreadsheet declares no entities; what does is an attack on the parser
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise ValueError(f"{name} declares entities")
    return ElementTree.fromstring(text)


def _text(cell: ElementTree.Element, strings: list[str]) -> str:
    value = cell.find(f"{NS}v")
    if cell.get("t") == "s" and value is not None:
        return strings[int(value.text or 0)]
    if cell.get("t") == "inlineStr":
        return "".join(t.text or "" for t in cell.iter(f"{NS}t"))
    return "" if value is None else value.text or ""


def _column(reference: str) -> int:
    """A1 is column 0, AA1 column 26."""
    index = 0
    for letter in re.sub(r"[^A-Z]", "", reference.upper()):
        index = 26 * index + ord(letter) - ord("A") + 1
    return index - 1
