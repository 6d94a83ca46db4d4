"""Arrays: `.npz` files in the MedMNIST layout, and scikit-learn's digits."""

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib import format as npy

from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.errors import DataError, OnProblem, raise_problems
from zetamix.data.quality import digest, first_duplicates
from zetamix.data.source import Array, Part, Source, array_part
from zetamix.data.splits import SPLITS, make_splits
from zetamix.text import plural

LAYOUT = (
    "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8, and train_labels "
    "[n], integers; optionally the same as val_… and test_…, and classes with the classes' names"
)
# errors of zipfile, zlib and numpy for a file that is damaged, encrypted or not an .npz
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError)


class Header(NamedTuple):
    """Shape and type of one array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class NpzFile:
    """An `.npz` file; nothing in it is unpickled, and arrays are read when they are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.headers = self._read_headers()
        self.splits = tuple(name for name in SPLITS if f"{name}_images" in self.headers)
        if "train" not in self.splits:
            raise DataError(f"{path} holds {', '.join(self.headers) or 'nothing'}; {LAYOUT}.")
        for split in self.splits:
            self._check_split(split)

    def sizes(self) -> dict[str, int]:
        return {split: self.headers[f"{split}_images"].shape[0] for split in self.splits}

    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one prepared sample: (c, h, w) or (d,)."""
        shape = self.headers["train_images"].shape[1:]
        if len(shape) == 1:
            return shape
        return (1, *shape) if len(shape) == 2 else (shape[2], *shape[:2])

    def is_points(self) -> bool:
        return len(self.sample_shape()) == 1

    def images(self, split: str) -> Array:
        """[n, c, h, w] uint8, or [n, d] float32."""
        images = self._array(f"{split}_images")
        if not self.is_points():
            return images[:, None] if images.ndim == 3 else np.moveaxis(images, 3, 1)
        points = images.astype(np.float32)
        if not np.isfinite(points).all():
            row = int((~np.isfinite(points)).any(1).argmax())
            raise DataError(
                f"{self.path}: row {row} of {split}_images holds NaN or infinity; expected finite "
                "numbers."
            )
        return points

    def labels(self, classes: Sequence[str] | None = None) -> dict[str, Array]:
        """[n], int64, of each split; compared with `classes` if they are given."""
        labels = {}
        for split in self.splits:
            key = f"{split}_labels"
            labels[split] = self._array(key).astype(np.int64).reshape(-1)
            if labels[split].min() < 0:
                row = int((labels[split] < 0).argmax())
                raise DataError(
                    f"{self.path}: row {row} of {key} is {labels[split][row]}; expected classes "
                    "from 0 on."
                )
        if classes is not None:
            check_labels(self.path, labels, classes)
        return labels

    def classes(self) -> tuple[str, ...]:
        """The names of the classes in the file, or else the labels of train as text."""
        if "classes" in self.headers:
            return tuple(str(name) for name in self._array("classes").tolist())
        train = self.labels()["train"]
        highest = int(train.max())
        if highest >= len(train):
            raise DataError(
                f"{self.path}: the largest label of train_labels is {highest:,}, for only "
                f"{plural(len(train), 'image')}. Number the classes from 0 without gaps."
            )
        return tuple(str(label) for label in range(highest + 1))

    def part(self, split: str, labels: Array) -> Part:
        return array_part(labels, lambda: self.images(split))

    def _read_headers(self) -> Mapping[str, Header]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                return {
                    info.filename.removesuffix(".npy"): self._read_header(archive, info)
                    for info in archive.infolist()
                }
        except DataError:
            raise
        except UNREADABLE as error:
            raise DataError(
                f"{self.path} is not a readable .npz file ({error}); {LAYOUT}."
            ) from None

    def _read_header(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
        with archive.open(info) as member:
            version = npy.read_magic(member)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(member)
            length = info.file_size - member.tell()
        expected = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and length != expected:
            raise DataError(
                f"{self.path}: {info.filename} should hold {expected:,} bytes for {list(shape)}, "
                f"got {length:,}."
            )
        return Header(shape, dtype)

    def _array(self, key: str) -> Array:
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                array: Array = archive[key]
                return array
        except UNREADABLE as error:
            raise DataError(f"{self.path}: {key} cannot be read: {error}.") from None

    def _check_split(self, split: str) -> None:
        images, labels = f"{split}_images", f"{split}_labels"
        if labels not in self.headers:
            raise DataError(f"{self.path} holds {images} without {labels}; {LAYOUT}.")
        for key in (images, labels):
            if self.headers[key].dtype.hasobject:
                raise DataError(
                    f"{self.path}: {key} holds pickled Python objects, which are never loaded; "
                    f"{LAYOUT}."
                )
        shape, dtype = self.headers[images]
        is_image = dtype == np.uint8 and (
            len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
        )
        is_point = dtype.kind == "f" and len(shape) == 2
        if not (is_image or is_point) or 0 in shape:
            raise DataError(f"{self.path}: {images} is {list(shape)}, {dtype}; {LAYOUT}.")
        expected = self.headers["train_images"].shape[1:]
        if shape[1:] != expected:
            raise DataError(
                f"{self.path}: {images} has samples of shape {list(shape[1:])}, train_images of "
                f"{list(expected)}; all splits need the same."
            )
        labels_shape, labels_dtype = self.headers[labels]
        if labels_shape not in ((shape[0],), (shape[0], 1)) or labels_dtype.kind not in "iu":
            raise DataError(
                f"{self.path}: {labels} is {list(labels_shape)}, {labels_dtype}; expected one "
                f"integer for each of the {shape[0]:,} images, [{shape[0]}] or [{shape[0]}, 1]."
            )


def medmnist(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One of MedMNIST's own files."""
    path = base / spec.files[0].path
    return _spec_source(spec, NpzFile(path), f"official file {path}")


def replacement_source(spec: DatasetSpec, path: Path) -> Source:
    """NAME.npz instead of a dataset's official files; it must have the same sizes."""
    file = NpzFile(path)
    if file.sizes() != spec.sizes or file.sample_shape() != spec.shape:
        raise DataError(
            f"{path} cannot replace {spec.title}: expected {describe_sizes(spec.sizes)} of shape "
            f"{list(spec.shape)}, got {describe_sizes(file.sizes())} of "
            f"{list(file.sample_shape())}. To use it as your own data, pass its path."
        )
    note = f"read from {path.name} instead of the official files, without a checksum"
    return _spec_source(spec, file, f"{path}, .npz in the MedMNIST layout", note)


def _spec_source(spec: DatasetSpec, file: NpzFile, origin: str, *notes: str) -> Source:
    labels = file.labels(spec.classes)
    parts = {split: file.part(split, labels[split]) for split in file.splits}
    return spec.source(parts, origin, *notes)


def npz_source(path: Path, seed: int, on_problem: OnProblem = raise_problems) -> Source:
    """A user's file; missing val and test splits are created."""
    file = NpzFile(path)
    classes = file.classes()
    labels = file.labels(classes)
    # the array is read once for all splits that are created from it
    train = cache(lambda: file.images("train"))
    first = None
    if not {"val", "test"} <= set(file.splits):
        keys = zip(map(digest, train()), labels["train"].tolist(), strict=True)
        first = first_duplicates(list(keys))
    rows, notes = make_splits(
        torch.from_numpy(labels["train"]),
        file.splits,
        classes,
        seed=seed,
        origin=str(path),
        on_problem=on_problem,
        first=first,
    )
    parts = {split: file.part(split, labels[split]) for split in file.splits}
    if len(rows) > 1:
        for split, chosen in rows.items():
            parts[split] = array_part(labels["train"][chosen.numpy()], train, chosen.numpy())
    return Source(
        name=path.stem,
        classes=classes,
        shape=file.sample_shape(),
        dtype="float32" if file.is_points() else "uint8",
        parts={split: parts[split] for split in SPLITS if split in parts},
        origin=f"{path}, .npz in the MedMNIST layout",
        notes=notes,
    )


def digits_source(seed: int) -> Source:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, grey levels 0-16 scaled to 0-255."""
    # the import takes 0.9 s, on the first load only
    from sklearn.datasets import load_digits

    bunch = load_digits()
    samples = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    classes = tuple(str(digit) for digit in range(10))
    rows, notes = make_splits(
        torch.from_numpy(labels), ["train"], classes, seed=seed, origin="digits"
    )
    parts = {
        split: array_part(labels[chosen.numpy()], lambda: samples, chosen.numpy())
        for split, chosen in rows.items()
    }
    origin = "handwritten digits of scikit-learn (UCI, optical recognition, 8 × 8)"
    return Source("digits", classes, (1, 8, 8), "uint8", parts, origin, notes)


def describe_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in sizes.items())


def check_labels(path: Path, labels: Mapping[str, Array], classes: Sequence[str]) -> None:
    """Every label must be a class, and every class must have a training image."""
    problems = []
    for split, values in labels.items():
        (outside,) = np.nonzero(values >= len(classes))
        if len(outside):
            more = f" (and {plural(len(outside) - 1, 'more row')})" if len(outside) > 1 else ""
            problems.append(
                f"{path}: row {outside[0]} of {split}_labels is {values[outside[0]]}{more}; "
                f"expected labels below {len(classes)}, the number of classes to train on."
            )
    inside = labels["train"][labels["train"] < len(classes)]
    problems += [
        f"{path}: class {classes[label]!r} (label {label}) has no image in train_labels. "
        "Number the classes from 0 without gaps, and train on each of them."
        for label, count in enumerate(np.bincount(inside, minlength=len(classes)))
        if count == 0
    ]
    raise_problems(problems)
