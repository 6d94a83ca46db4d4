"""Parquet files, and Hugging Face datasets that were saved to disk.

A Hugging Face dataset is a folder of Arrow files (`save_to_disk`) or of Parquet files. Both are
read with pyarrow; nothing is downloaded.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from zetamix_lab.atomic_io import read_json
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.sample_table import SPLIT_NAMES, SampleTable, from_cells
from zetamix_lab.text import reason

SUFFIXES = (".parquet", ".arrow")
BINARY = ("binary", "large_binary")
IMAGE_COLUMNS = ("image", "img", "picture", "photo")


def find_tables(path: Path) -> dict[str, list[Path]] | None:
    """The Parquet or Arrow files of each split; None if the path is something else."""
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return {"train": [path]}
    if not path.is_dir():
        return None
    if (path / "dataset_dict.json").is_file():
        names = _read_json(path / "dataset_dict.json").get("splits")
        names = list(map(str, names)) if isinstance(names, list) else []
        return {_split_name(name, path): _arrow_files(path / Path(name).name) for name in names}
    if (path / "state.json").is_file():
        return {"train": _arrow_files(path)}
    folders = [path, path / "data", *(path / name for name in SPLIT_NAMES)]
    splits: dict[str, list[Path]] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("*.parquet"))):
        if not file.is_file():
            raise DataError(f"{file} is not a regular file.")
        # train-00000-of-00002.parquet, train.parquet, train/0.parquet
        names = [re.split(r"[-_.]", file.stem)[0], file.parent.name]
        named = [SPLIT_NAMES[name.lower()] for name in names if name.lower() in SPLIT_NAMES]
        splits.setdefault(named[0] if named else "train", []).append(file)
    return splits or None


def from_parquet(
    path: Path, tables: Mapping[str, Sequence[Path]], group: str | None = None
) -> SampleTable:
    """All rows of the tables of each split; a column `split` divides a single one.

    group: the column of the patient or lesion, which is kept in one split.
    """
    files = [(split, file) for split, some in tables.items() for file in some]
    parts = [_open(file) for _, file in files]
    if not sum(map(len, parts)):
        raise DataError(f"{path} has no rows; expected one per sample.")
    image = _image_column(parts[0])
    names = [name for name in parts[0].column_names if name != image]
    cells, frames, columns = [], [], []
    for part, (split, file) in zip(parts, files, strict=True):
        for name in parts[0].column_names:
            if name not in part.column_names:
                raise DataError(f"{file} has no column {name!r}, unlike the first file.")
        values = {name: _values(part.column(name), name, file) for name in names}
        cells.append(pd.DataFrame(values, index=range(len(part)), dtype=object))
        frame = pd.DataFrame({"split": split, "file": str(file), "row": range(len(part))})
        if image is not None:
            columns.append(part.column(image))
            if columns[0].type != columns[-1].type:
                raise DataError(f"{file}: {image} is of another type than in the first file.")
        frames.append(frame)
    frame = pd.concat(frames, ignore_index=True)
    if len(tables) == 1:
        # a column may divide it
        del frame["split"]
    images = ArrowImages(path, columns) if columns else None
    if images is not None and any(image_names := images.names()):
        frame["name"] = pd.Series(image_names, dtype=object)
    return from_cells(
        path,
        "a Parquet table" if files[0][1].suffix == ".parquet" else "a Hugging Face dataset",
        frame,
        pd.concat(cells, ignore_index=True),
        group=group,
        images=images,
        known=_noted_classes(parts[0]),
    )


class ArrowImages(Sequence[Path | bytes]):
    """The images of columns of encoded images, converted one at a time.

    A column has the content of files, or structures of `bytes` and `path`; an image without bytes
    is in the file `path`, beside the table.
    """

    def __init__(self, path: Path, columns: Sequence[Any]) -> None:
        import pyarrow as pa

        self.path = path
        self.base = path if path.is_dir() else path.parent
        self.column = pa.chunked_array([chunk for column in columns for chunk in column.chunks])

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: Any) -> Any:
        value = self.column[row].as_py()
        if isinstance(value, dict):
            content, path = value["bytes"], value.get("path")
            value = self.base / path if content is None and path else content
        return value or b""

    def names(self) -> list[str]:
        """The path of each image, or ""."""
        import pyarrow.compute as pc

        if str(self.column.type) in BINARY or self.column.type.get_field_index("path") < 0:
            return []
        paths = _values(pc.struct_field(self.column, "path"), "of paths", self.path)
        return [path or "" for path in paths]


def _open(file: Path) -> Any:
    """A table of distinct columns in Arrow's memory; an Arrow file is mapped."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise DataError(f"{file} needs pyarrow: pip install 'zetamix[parquet]'") from None
    try:
        if file.suffix == ".parquet":
            table = pq.ParquetFile(file).read()
        else:
            table = pa.ipc.open_stream(pa.memory_map(str(file))).read_all()
        names = table.column_names
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DataError(f"{file} cannot be read: {str(error)[:200]}") from None
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{file}: two columns are named {twice[0]!r}; expected distinct names.")
    return table


def _values(column: Any, name: str, file: Path) -> list[Any]:
    """The Python values of a column."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise DataError(f"{file}: column {name} cannot be read: {error}.") from None
    return values


def _image_column(table: Any) -> str | None:
    """The column of encoded images."""

    def holds_images(kind: Any) -> bool:
        if str(kind) in BINARY:
            return True
        fields = {kind.field(k).name: str(kind.field(k).type) for k in range(kind.num_fields)}
        with_bytes = fields.get("bytes") in (*BINARY, "null")
        return with_bytes and fields.get("path", "null") in ("string", "large_string", "null")

    found = [field.name for field in table.schema if holds_images(field.type)]
    return min(found, key=lambda name: name.lower() not in IMAGE_COLUMNS, default=None)


def _noted_classes(table: Any) -> dict[str, tuple[str, ...]]:
    """The names of classes of columns, which Hugging Face datasets store as metadata."""
    try:
        noted = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        found = {name: _class_names(kind) for name, kind in noted["info"]["features"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: classes for name, classes in found.items() if classes}


def _class_names(feature: Any) -> tuple[str, ...]:
    """The names of a ClassLabel, or of the items of lists of them; () if there are none."""
    while isinstance(feature, dict) and "feature" in feature:
        feature = feature["feature"]
    is_label = isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    names = feature.get("names") if is_label else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _split_name(name: str, path: Path) -> str:
    split = SPLIT_NAMES.get(name.lower())
    if split is None:
        raise DataError(f"{path}: split {name!r}; expected train, validation or test.")
    return split


def _arrow_files(folder: Path) -> list[Path]:
    """The files of a dataset that `save_to_disk` wrote, in their order."""
    listed = _read_json(folder / "state.json").get("_data_files")
    items = listed if isinstance(listed, list) else []
    # only the file names: files in other folders are not read
    names = [Path(str(item.get("filename"))).name for item in items if isinstance(item, dict)]
    files = [folder / name for name in names]
    if not files or not all(file.is_file() for file in files):
        raise DataError(f"{folder} is incomplete: expected the Arrow files that state.json lists.")
    return files


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return read_json(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as JSON: {reason(error)}.") from None
