"""Tables with images or numbers: Parquet files, and Hugging Face datasets that were saved to disk.

A Hugging Face dataset is a folder of Arrow files (`save_to_disk`) or of Parquet files. Both are
read with pyarrow; nothing is downloaded.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zetamix_lab.data.errors import DataError, OnProblem, check_distinct, raise_problems
from zetamix_lab.data.groups import Group, find_groups
from zetamix_lab.data.image_files import (
    Decoded,
    Fit,
    Header,
    decoded_block,
    map_parallel,
    try_decode,
    try_header,
)
from zetamix_lab.data.readers.arrays import check_finite
from zetamix_lab.data.readers.user_images import (
    LABEL_COLUMNS,
    SPLIT_NAMES,
    choose_shape,
    natural_order,
)
from zetamix_lab.data.source import Array, Block, Part, Rows, Source, array_part, read_matrices
from zetamix_lab.data.splits import complete_splits, digest
from zetamix_lab.text import printable

SUFFIXES = (".parquet", ".arrow")
IMAGE_COLUMNS = ("image", "img", "picture", "photo")
# rows that are read at a time
BATCH = 256


def find_tables(path: Path) -> dict[str, list[Path]] | None:
    """The Parquet or Arrow files of each split; None if the path is something else."""
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return {"train": [path]}
    if not path.is_dir():
        return None
    if (path / "dataset_dict.json").is_file():
        names = _read_json(path / "dataset_dict.json").get("splits")
        names = names if isinstance(names, list) else []
        return {_split_name(name, path): _arrow_files(path / Path(name).name) for name in names}
    if (path / "state.json").is_file():
        return {"train": _arrow_files(path)}
    folders = [path, path / "data", *(path / name for name in SPLIT_NAMES)]
    files = [file for folder in folders for file in sorted(folder.glob("*.parquet"))]
    if not files:
        return None
    splits: dict[str, list[Path]] = {}
    for file in files:
        # train-00000-of-00002.parquet, train.parquet, train/0.parquet
        names = (re.split(r"[-_.]", file.stem)[0], file.parent.name)
        named = [SPLIT_NAMES[name.lower()] for name in names if name.lower() in SPLIT_NAMES]
        splits.setdefault(named[0] if named else "train", []).append(file)
    return splits


def tables_state(tables: Mapping[str, Sequence[Path]]) -> list[object]:
    """A value that changes whenever a file does."""
    every = [(split, file, file.stat()) for split, files in tables.items() for file in files]
    return [[split, str(file), stat.st_size, stat.st_mtime_ns] for split, file, stat in every]


def tables_source(
    path: Path,
    tables: Mapping[str, Sequence[Path]],
    seed: int,
    size: int | None,
    group: Group,
    on_problem: OnProblem = raise_problems,
) -> Source:
    """A user's tables; missing val and test splits are created."""
    if not tables.get("train"):
        raise DataError(f"{path} has no split called train; it has {', '.join(tables) or 'none'}.")
    read = {split: Table(path, list(files), group) for split, files in tables.items() if files}
    rows = _rows_of_splits(read, path)
    names, labels, notes = _number_labels(read, rows, path)
    classes = tuple(map(printable, names))
    check_distinct(classes, str(path))
    if len(classes) < 2:
        raise DataError(f"{path}: 1 class; expected two or more.")
    groups = {split: table.groups(on_problem) for split, table in read.items()}
    train = read["train"]
    if train.image is None:
        if size is not None:
            raise DataError(f"{path} has no column of images; size is for images.")
        samples = {split: table.numbers() for split, table in read.items()}
        shape: tuple[int, ...] = samples["train"].shape[1:]
        wholes = {split: array_part(np.zeros(len(x)), x) for split, x in samples.items()}
        dtype, how = "float32", f"points of {shape[0]} coordinates"
        keys = [digest(x) for x in samples["train"]]
    else:
        headers = [image.header for table in read.values() for image in table.scanned]
        shape, fit = choose_shape(headers, size, path, raise_problems)
        wholes = {split: table.image_part(shape, fit) for split, table in read.items()}
        dtype, how = fit.dtype, f"images {fit.describe()}"
        notes = (*notes, *filter(None, [fit.why]))
        keys = [image.key for image in train.scanned]
    parts = {}
    for split, (origin, chosen) in rows.items():
        whole, table_groups = wholes[origin].keep(chosen), groups[origin]
        own = None if table_groups is None else [table_groups[row] for row in chosen.tolist()]
        parts[split] = Part(labels[split], whole.blocks, whole.names, own)
    kind = "a Parquet table" if train.files[0].suffix == ".parquet" else "a Hugging Face dataset"
    name = printable(path.name if path.is_dir() else path.stem)
    return complete_splits(
        Source(name, classes, shape, dtype, parts, f"{path}, {kind}; {how}", notes),
        seed=seed,
        origin=str(path),
        keys=lambda: [keys[row] for row in rows["train"][1].tolist()],
        on_problem=on_problem,
    )


class ScannedImage(NamedTuple):
    """An encoded image: its path or "", its header if it can be read, a hash of its bytes."""

    path: str
    header: Header | None
    key: bytes


@dataclass(frozen=True)
class Table:
    """One split on disk: files of the same columns, read in batches."""

    path: Path
    files: list[Path]
    group: Group = None

    @cached_property
    def schema(self) -> Any:
        return next(self._open(self.files[0]))

    @cached_property
    def features(self) -> dict[str, Any]:
        """The types of columns that Hugging Face datasets store as metadata."""
        try:
            noted = json.loads((self.schema.metadata or {}).get(b"huggingface", b"{}"))
            features = noted["info"]["features"]
            return features if isinstance(features, dict) else {}
        except (ValueError, KeyError, TypeError):
            return {}

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @cached_property
    def image(self) -> str | None:
        """The column of encoded images."""
        import pyarrow.types as types  # type: ignore[import-untyped]

        def holds_bytes(kind: Any) -> bool:
            if types.is_struct(kind):
                return bool(kind.get_field_index("bytes") >= 0)
            return bool(types.is_binary(kind) or types.is_large_binary(kind))

        found = [name for name in self.columns if holds_bytes(self.schema.field(name).type)]
        return min(found, key=lambda name: name.lower() not in IMAGE_COLUMNS, default=None)

    @cached_property
    def label(self) -> list[str]:
        """The column of the class, or several of zeros and ones."""
        noted = [name for name, kind in self.features.items() if "names" in _class_names(kind)]
        named = [name for name in self.columns if name.lower() in (*LABEL_COLUMNS, "labels")]
        if found := [name for name in (*named, *noted) if name in self.columns]:
            return found[:1]
        matrix = [name for name in self._numeric() if self.image is not None]
        values = self.read(matrix) if matrix else {}
        matrix = [name for name in matrix if set(values[name]) <= {0, 1}]
        if len(matrix) < 2:
            raise DataError(
                f"{self.path} has the columns {', '.join(self.columns)}; expected one for the "
                f"class, called {', '.join(LABEL_COLUMNS)}, or columns of zeros and ones."
            )
        return matrix

    @property
    def group_column(self) -> str | None:
        if not isinstance(self.group, str):
            return None
        by_name = {name.lower(): name for name in self.columns}
        if self.group.lower() not in by_name:
            raise DataError(
                f"{self.path} has no column {self.group!r}; it has {', '.join(self.columns)}."
            )
        return by_name[self.group.lower()]

    def read(self, columns: Sequence[str]) -> dict[str, list[Any]]:
        """Whole columns, as Python values."""
        values: dict[str, list[Any]] = {name: [] for name in columns}
        for batch in self.batches(columns):
            for name in columns:
                values[name] += batch.column(name).to_pylist()
        return values

    def numbers(self) -> Array:
        """[n, d], float32: the numeric columns that are neither label, split nor group."""
        others = {*self.label, self.group_column, "__index_level_0__"}
        columns = [name for name in self._numeric() if name not in others]
        if not columns:
            raise DataError(
                f"{self.path} has the columns {', '.join(self.columns)}; expected one of images "
                "(bytes) or columns of numbers."
            )
        samples = np.array([*self.read(columns).values()], np.float64).T
        check_finite(samples, self.path, f"columns {', '.join(columns[:3])}, …")
        return samples.astype(np.float32)

    def _numeric(self) -> list[str]:
        import pyarrow.types as types

        tests = (types.is_integer, types.is_floating, types.is_boolean)
        kinds = {name: self.schema.field(name).type for name in self.columns}
        return [name for name, kind in kinds.items() if any(test(kind) for test in tests)]

    def image_part(self, shape: tuple[int, ...], fit: Fit) -> Part:
        """All images of the table; labels are set by the caller."""

        def attempt(item: tuple[str, Path | bytes]) -> Decoded | str:
            return try_decode(*item, shape, fit)

        def blocks(rows: Rows | None = None) -> Iterator[Block]:
            first = 0
            for items in self.images(rows):
                for _, results in map_parallel(attempt, items, len(items)):
                    yield decoded_block(first, results, shape, fit)
                first += len(items)

        names = self.names
        return Part(np.zeros(self.count, np.int64), blocks, names if any(names) else None)

    def images(self, rows: Rows | None = None) -> Iterator[list[tuple[str, Path | bytes]]]:
        """Names for messages and images, batch by batch; `rows` ascend."""
        start = 0
        for batch in self.batches([self.image or ""]):
            chosen = np.arange(start, start + len(batch))
            if rows is not None:
                low, high = np.searchsorted(rows, [start, start + len(batch)])
                chosen = rows[low:high]
            if len(chosen):
                images = self._images(batch.take((chosen - start).tolist()))
                pairs = zip(chosen.tolist(), images, strict=True)
                yield [(f"{self.path}, row {row}", content) for row, (_, content) in pairs]
            start += len(batch)

    def _images(self, batch: Any) -> list[tuple[str, Path | bytes]]:
        """The path of each image or "", and its content, or its file if the table has none."""
        column = batch.column(self.image)
        if not hasattr(column, "field"):
            return [("", content or b"") for content in column.to_pylist()]
        rows = [(row or {}) for row in column.to_pylist()]
        base = self.path if self.path.is_dir() else self.path.parent
        return [
            (path, content if content is not None else base / path if path else b"")
            for path, content in ((row.get("path") or "", row.get("bytes")) for row in rows)
        ]

    @cached_property
    def scanned(self) -> list[ScannedImage]:
        """What is known of every image without decoding it, from one pass over the files."""

        def scan(image: tuple[str, Path | bytes]) -> ScannedImage:
            path, content = image
            header = try_header(content)
            if isinstance(content, Path):
                content = content.read_bytes() if header is not None else str(content).encode()
            return ScannedImage(path, header, hashlib.blake2b(content, digest_size=16).digest())

        batches = (self._images(batch) for batch in self.batches([self.image or ""]))
        found = (some for items in batches for _, some in map_parallel(scan, items, BATCH))
        return [image for some in found for image in some]

    @property
    def names(self) -> list[str]:
        return [image.path for image in self.scanned]

    @cached_property
    def count(self) -> int:
        return sum(len(batch) for batch in self.batches(self.label))

    def groups(self, on_problem: OnProblem) -> list[str] | None:
        if isinstance(self.group, re.Pattern):
            if self.image is None or not all(self.names):
                raise DataError(
                    f"{self.path} has no file names. Group it by a column, with --group."
                )
            return find_groups(self.names, self.group, str(self.path), on_problem)
        if self.group_column is None:
            return None
        values = self.read([self.group_column])[self.group_column]
        if None in values:
            raise DataError(f"{self.path}, row {values.index(None)}: no {self.group_column}.")
        return [str(value) for value in values]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns, of all files."""
        for file in self.files:
            opened = self._open(file, list(columns))
            missing = set(columns) - set(next(opened).names)
            if missing:
                raise DataError(f"{file} has no column {missing.pop()!r}, unlike the first file.")
            yield from opened

    def _open(self, file: Path, columns: list[str] | None = None) -> Iterator[Any]:
        """The schema of a file, then its batches."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise DataError(
                f"{file} needs pyarrow. Install it with: pip install 'zetamix[parquet]'"
            ) from None
        try:
            if file.suffix == ".parquet":
                with pq.ParquetFile(file) as table:
                    yield table.schema_arrow
                    yield from table.iter_batches(batch_size=BATCH, columns=columns)
                return
            with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
                yield stream.schema
                for batch in stream:
                    for first in range(0, len(batch), BATCH):
                        yield batch.select(columns).slice(first, BATCH)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file} cannot be read: {error}") from None


def _rows_of_splits(tables: Mapping[str, Table], path: Path) -> dict[str, tuple[str, Rows]]:
    """For each split the table that holds it, and its rows there; a column "split" divides one."""
    train = tables["train"]
    column = next((name for name in train.columns if name.lower() == "split"), None)
    if len(tables) > 1 or column is None:
        return {split: (split, np.arange(table.count)) for split, table in tables.items()}
    names = [_split_name(str(name), path) for name in train.read([column])[column]]
    if "train" not in names:
        raise DataError(f"{path}: no row has the split train; expected samples to train on.")
    array = np.array(names)
    return {split: ("train", np.flatnonzero(array == split)) for split in dict.fromkeys(names)}


def _number_labels(
    tables: Mapping[str, Table], rows: Mapping[str, tuple[str, Rows]], path: Path
) -> tuple[tuple[str, ...], dict[str, Array], tuple[str, ...]]:
    """The classes, the label of every sample of each split, and notes."""
    label = tables["train"].label
    columns = {split: table.read(label) for split, table in tables.items()}
    noted = _class_names(tables["train"].features.get(label[0])).get("names")
    if len(label) > 1:
        matrices = {
            split: np.array([columns[origin][name] for name in label]).T[chosen].astype(np.int64)
            for split, (origin, chosen) in rows.items()
        }
        labels, notes = read_matrices(matrices)
        return tuple(label), labels, (*notes, f"labels from the columns {', '.join(label)}")
    values = {
        split: [columns[origin][label[0]][row] for row in chosen.tolist()]
        for split, (origin, chosen) in rows.items()
    }
    for split, some in values.items():
        if None in some:
            raise DataError(f"{path}: row {some.index(None)} of {split} has no {label[0]}.")
    if isinstance(values["train"][0], list):
        return _number_lists(values, noted, path, label[0])
    if noted is None:
        noted = sorted({str(value) for value in values["train"]}, key=natural_order)
        number: dict[Any, int] = {name: label for label, name in enumerate(noted)}
        values = {split: [str(value) for value in some] for split, some in values.items()}
    else:
        number = {label: label for label in range(len(noted))}
    problems = [
        f"{path}: {label[0]} {value!r} of {split} is not a class of train; expected "
        f"{', '.join(map(str, list(number)[:5]))}{', …' if len(number) > 5 else ''}."
        for split, some in values.items()
        for value in sorted(set(some) - set(number), key=str)
    ]
    absent = set(number) - set(values["train"])
    problems += [
        f"{path}: class {noted[number[name]]!r} has no sample in train." for name in absent
    ]
    raise_problems(problems)
    numbered = {
        split: np.array([number[value] for value in some], np.int64)
        for split, some in values.items()
    }
    return tuple(noted), numbered, ()


def _number_lists(
    values: Mapping[str, list[list[Any]]], noted: list[str] | None, path: Path, column: str
) -> tuple[tuple[str, ...], dict[str, Array], tuple[str, ...]]:
    """Lists of classes by their numbers, where these have names; else rows of a 0/1 matrix."""
    if noted is None:
        sizes = {len(row) for some in values.values() for row in some}
        if len(sizes) > 1 or any(set(row) - {0, 1} for some in values.values() for row in some):
            raise DataError(f"{path}: {column} contains lists; expected rows of zeros and ones.")
        noted = [str(k) for k in range(sizes.pop())]
        matrices = {split: np.array(some, np.int64) for split, some in values.items()}
    else:
        eye = np.eye(len(noted), dtype=np.int64)
        matrices = {
            split: np.stack([eye[np.unique(np.array(row, np.int64))].sum(0) for row in some])
            for split, some in values.items()
        }
    labels, notes = read_matrices(matrices)
    return tuple(noted), labels, notes


def _class_names(feature: Any) -> dict[str, Any]:
    """The ClassLabel of a column, or of the items of its lists; {} if there is none."""
    while isinstance(feature, dict) and "feature" in feature:
        feature = feature["feature"]
    return feature if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else {}


def _split_name(name: str, path: Path) -> str:
    split = SPLIT_NAMES.get(name.lower())
    if split is None:
        raise DataError(f"{path}: split {name!r}; expected train, validation or test.")
    return split


def _arrow_files(folder: Path) -> list[Path]:
    """The files of a dataset that `save_to_disk` wrote, in their order."""
    listed = _read_json(folder / "state.json").get("_data_files", [])
    # only the file names: files in other folders are not read
    files = [folder / Path(str(item["filename"])).name for item in listed]
    if not files or not all(file.is_file() for file in files):
        raise DataError(f"{folder} is incomplete: expected the Arrow files that state.json lists.")
    return files


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as JSON: {error}.") from None
    return content if isinstance(content, dict) else {}
