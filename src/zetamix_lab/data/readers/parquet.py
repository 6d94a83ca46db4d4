"""Parquet files, and Hugging Face datasets that were saved to disk, read with pyarrow."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from zetamix_lab.data.errors import DataError
from zetamix_lab.data.sample_table import NO_IMAGES, SampleTable, from_cells
from zetamix_lab.text import reason

IMAGE_COLUMNS = ("image", "img", "picture", "photo")


def from_parquet(
    path: Path, tables: Mapping[str, Sequence[Path]], group: str | None = None
) -> SampleTable:
    """All rows of the Parquet or Arrow files of each split; a column `split` divides a single one.

    The column of images has the content of files, or structures of `bytes` and `path`.

    group: the column of the patient or lesion, which is kept in one split.
    """
    files = [(split, file) for split, some in tables.items() for file in some]
    parts = [_open(file) for _, file in files]
    try:
        # a column that a file lacks is empty there
        whole = pa.concat_tables(parts, promote_options="permissive")
        # offsets of a damaged file would lead outside of it, which ends the process
        whole.validate(full=True)
        flat = whole.flatten()
        binary = [field.name for field in flat.schema if "binary" in str(field.type)]
        image = min(binary, key=_is_no_image, default="")
        content = flat.drop_columns(image or []).to_pydict()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{path} cannot be read: {reason(error)}.") from None
    if not len(whole):
        raise DataError(f"{path} has no rows; expected one per sample.")
    if not image:
        raise DataError(
            f"{path} has the columns {', '.join(content)}; expected one of images, as the content "
            f"of their files. {NO_IMAGES}"
        )
    sizes = list(map(len, parts))
    counted = zip(files, sizes, strict=True)
    places = [f"{file}, row {row}" for (_, file), size in counted for row in range(size)]
    frame = pd.DataFrame({"place": places})
    # a column may divide a single split
    if len(tables) > 1:
        frame["split"] = np.repeat([split for split, _ in files], sizes)
    names = [str(name or "") for name in content.pop(image.removesuffix("bytes") + "path", ())]
    if any(names):
        frame["name"] = pd.Series(names, dtype=object)
    return from_cells(
        path,
        "a Parquet table" if files[0][1].suffix == ".parquet" else "a Hugging Face dataset",
        frame,
        pd.DataFrame(content, index=frame.index, dtype=object),
        ArrowImages(flat.column(image)),
        group,
        _noted_classes(whole.schema),
    )


class ArrowImages(Sequence[Path | bytes]):
    """A column of encoded images, converted one at a time."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: Any) -> Any:
        return self.column[row].as_py() or b""


def _open(file: Path) -> Any:
    """A table in Arrow's memory; an Arrow file is mapped."""
    if not file.is_file():
        raise DataError(f"{file} is not a regular file.")
    try:
        if file.suffix == ".parquet":
            return pq.ParquetFile(file).read()
        return pa.ipc.open_stream(pa.memory_map(str(file))).read_all()
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DataError(f"{file} cannot be read: {reason(error)}.") from None


def _is_no_image(column: str) -> bool:
    return column.lower().removesuffix(".bytes") not in IMAGE_COLUMNS


def _noted_classes(schema: Any) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, which Hugging Face datasets store as metadata."""
    found: dict[str, tuple[str, ...]] = {}
    # other libraries store other things there
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        for name, kind in json.loads(schema.metadata[b"huggingface"])["info"]["features"].items():
            # the feature of a list is that of its items
            kind = kind.get("feature", kind)
            if kind.get("_type") == "ClassLabel":
                found[name] = tuple(map(str, [*kind["names"]]))
    return found
