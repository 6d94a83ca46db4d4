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

from zetamix_lab.data.errors import DataError
from zetamix_lab.data.sample_table import SPLIT_NAMES, SampleTable, from_cells

SUFFIXES = (".parquet", ".arrow")
# places of rows, beside columns of any name
SPLIT, FILE, ROW = "\0split", "\0file", "\0row"
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
    if not sum(len(part) for part in parts):
        raise DataError(f"{path} has no rows; expected one per sample.")
    names = _columns(parts[0], files[0][1])
    image = _image_column(parts[0])
    others = [name for name in names if name != image]
    read = [
        _plain_columns(part, others, file).assign(
            **{SPLIT: split, FILE: str(file), ROW: range(len(part))}
        )
        for part, (split, file) in zip(parts, files, strict=True)
    ]
    cells = pd.concat(read, ignore_index=True)
    frame = cells[[SPLIT, FILE, ROW]].set_axis(["split", "file", "row"], axis=1)
    cells = cells[others]
    if len(tables) == 1:
        # a column may divide it
        del frame["split"]
    images = None
    if image is not None:
        images = ArrowImages(path, [part.column(image) for part in parts])
        image_names = images.names()
        if any(image_names):
            frame["name"] = pd.Series(image_names, dtype=object)
    kind = "a Parquet table" if files[0][1].suffix == ".parquet" else "a Hugging Face dataset"
    known = _noted_classes(parts[0])
    return from_cells(path, kind, frame, cells, group=group, images=images, known=known)


class ArrowImages(Sequence[Path | bytes]):
    """The images of columns of encoded images, converted one at a time.

    A column has the content of files, or structures of `bytes` and `path`; an image without bytes
    is in the file `path`, beside the table.
    """

    def __init__(self, path: Path, columns: Sequence[Any]) -> None:
        import pyarrow as pa

        self.base = path if path.is_dir() else path.parent
        self.column = pa.chunked_array([chunk for column in columns for chunk in column.chunks])

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[k] for k in range(*row.indices(len(self)))]
        value = self.column[row].as_py()
        if isinstance(value, dict):
            content, path = value.get("bytes"), value.get("path")
            return self.base / path if content is None and path else content or b""
        return value or b""

    def names(self) -> list[str]:
        """The path of each image, or ""."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self.column.type
        if not pa.types.is_struct(kind) or kind.get_field_index("path") < 0:
            return [""] * len(self)
        return [name or "" for name in pc.struct_field(self.column, "path").to_pylist()]


def _open(file: Path) -> Any:
    """A table in Arrow's memory; of an Arrow file this is the file, mapped."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise DataError(
            f"{file} needs pyarrow. Install it with: pip install 'zetamix[parquet]'"
        ) from None
    try:
        if file.suffix == ".parquet":
            return pq.ParquetFile(file).read()
        return pa.ipc.open_stream(pa.memory_map(str(file))).read_all()
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DataError(f"{file} cannot be read: {str(error)[:200]}") from None


def _columns(table: Any, file: Path) -> list[str]:
    """The names of columns, which must be text and distinct."""
    try:
        names = list(map(str, table.column_names))
    except UnicodeDecodeError:
        raise DataError(f"{file}: names of columns are not text in UTF-8.") from None
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{file}: two columns are named {twice[0]!r}; expected distinct names.")
    return names


def _plain_columns(table: Any, names: Sequence[str], file: Path) -> pd.DataFrame:
    """These columns as Python values."""
    values = {}
    for name in names:
        if name not in table.column_names:
            raise DataError(f"{file} has no column {name!r}, unlike the first file.")
        try:
            values[name] = pd.Series(table.column(name).to_pylist(), dtype=object)
        except (ValueError, OverflowError) as error:
            raise DataError(f"{file}: column {name} cannot be read: {error}.") from None
    return pd.DataFrame(values)


def _image_column(table: Any) -> str | None:
    """The column of encoded images."""
    import pyarrow.types as types

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return bool(kind.get_field_index("bytes") >= 0)
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    found = [field.name for field in table.schema if holds_bytes(field.type)]
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
    names = [item.get("filename") for item in listed or () if isinstance(item, dict)]
    # only the file names: files in other folders are not read
    files = [folder / Path(str(name)).name for name in names]
    if not files or not all(file.is_file() for file in files):
        raise DataError(f"{folder} is incomplete: expected the Arrow files that state.json lists.")
    return files


def _read_json(file: Path) -> dict[str, Any]:
    try:
        if not file.is_file():
            raise OSError("not a regular file")
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}.") from None
    return content if isinstance(content, dict) else {}
