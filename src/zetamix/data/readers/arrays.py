"""`.npz` archives in the layout of MedMNIST: `train_images`, `train_labels`, and so on."""

import math
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib import format as npy

from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.errors import Complain, DataError, refuse
from zetamix.data.flaws import digest, first_copies
from zetamix.data.source import Array, Part, Source, array_part
from zetamix.data.splits import made_note, make_splits
from zetamix.text import plural

SPLITS = ("train", "val", "test")
LAYOUT = (
    "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8, and train_labels "
    "[n], integers; optionally the same as val_… and test_…, and classes with the classes' names"
)

# what zipfile, zlib and numpy raise for a file that is damaged, encrypted or something else
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError)


class Entry(NamedTuple):
    """What the header of one array says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Archive:
    """An `.npz` file that is never unpickled, and of which no array is read before it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = self._headers()
        self.splits = tuple(name for name in SPLITS if f"{name}_images" in self.entries)
        if "train" not in self.splits:
            held = ", ".join(self.entries) or "nothing"
            raise DataError(f"{path} holds {held}; {LAYOUT}.")
        for split in self.splits:
            self._check_split(split)

    def sizes(self) -> dict[str, int]:
        return {split: self.entries[f"{split}_images"].shape[0] for split in self.splits}

    def sample_shape(self) -> tuple[int, ...]:
        """Of one sample as it will be kept: (c, h, w) or (d,)."""
        shape = self.entries["train_images"].shape[1:]
        if len(shape) == 1:
            return shape
        return (1, *shape) if len(shape) == 2 else (shape[2], *shape[:2])

    def is_points(self) -> bool:
        return len(self.sample_shape()) == 1

    def images(self, split: str) -> Array:
        """[n, c, h, w] uint8, or [n, d] float32."""
        images = self._array(f"{split}_images")
        if self.is_points():
            return self._finite(split, images.astype(np.float32))
        return images[:, None] if images.ndim == 3 else np.moveaxis(images, 3, 1)

    def labels(self, split: str) -> Array:
        """[n], int64, none of them negative."""
        key = f"{split}_labels"
        labels = self._array(key).astype(np.int64).reshape(-1)
        if len(labels) and labels.min() < 0:
            row = int((labels < 0).argmax())
            raise DataError(
                f"{self.path}: row {row} of {key} is {labels[row]}; expected classes from 0 on."
            )
        return labels

    def classes(self) -> tuple[str, ...] | None:
        """The names that the file gives its classes, if it does."""
        if "classes" not in self.entries:
            return None
        return tuple(str(name) for name in self._array("classes").tolist())

    def _headers(self) -> Mapping[str, Entry]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                found = {}
                for info in archive.infolist():
                    with archive.open(info) as member:
                        entry, length = _header(member)
                    content = math.prod(entry.shape) * entry.dtype.itemsize
                    if not entry.dtype.hasobject and length + content != info.file_size:
                        raise DataError(
                            f"{self.path}: {info.filename} should hold {content:,} bytes of "
                            f"{list(entry.shape)}, but holds {info.file_size - length:,}."
                        )
                    found[info.filename.removesuffix(".npy")] = entry
                return found
        except DataError:
            raise
        except UNREADABLE as error:
            raise DataError(
                f"{self.path} is not an .npz archive that can be read ({error}); {LAYOUT}."
            ) from None

    def _array(self, key: str) -> Array:
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                array: Array = archive[key]
                return array
        except UNREADABLE as error:
            raise DataError(f"{self.path}: {key} cannot be read: {error}.") from None

    def _check_split(self, split: str) -> None:
        images, labels = f"{split}_images", f"{split}_labels"
        if labels not in self.entries:
            raise DataError(f"{self.path} holds {images} without {labels}; {LAYOUT}.")
        for key in (images, labels):
            if self.entries[key].dtype.hasobject:
                raise DataError(
                    f"{self.path}: {key} holds pickled Python objects, which are never loaded; "
                    f"{LAYOUT}."
                )
        shape, dtype = self.entries[images]
        is_image = dtype == np.uint8 and (
            len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
        )
        is_point = dtype.kind == "f" and len(shape) == 2
        if not (is_image or is_point) or 0 in shape:
            raise DataError(f"{self.path}: {images} is {list(shape)}, {dtype}; {LAYOUT}.")
        expected = self.entries["train_images"].shape[1:]
        if shape[1:] != expected:
            raise DataError(
                f"{self.path}: {images} has samples of shape {list(shape[1:])}, train_images of "
                f"{list(expected)}; all splits need the same."
            )
        labels_shape, labels_dtype = self.entries[labels]
        if labels_shape not in ((shape[0],), (shape[0], 1)) or labels_dtype.kind not in "iu":
            raise DataError(
                f"{self.path}: {labels} is {list(labels_shape)}, {labels_dtype}; expected one "
                f"integer for each of the {shape[0]:,} images, [{shape[0]}] or [{shape[0]}, 1]."
            )

    def _finite(self, split: str, points: Array) -> Array:
        if not np.isfinite(points).all():
            row = int((~np.isfinite(points)).any(1).argmax())
            raise DataError(
                f"{self.path}: row {row} of {split}_images holds NaN or infinity; expected numbers."
            )
        return points


def _header(member: Any) -> tuple[Entry, int]:
    version = npy.read_magic(member)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = reader(member)
    return Entry(shape, dtype), member.tell()


def medmnist(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One of MedMNIST's own files."""
    path = base / spec.archives[0].file
    return spec_source(spec, path, f"the official file {path}")


def stand_in(spec: DatasetSpec, path: Path) -> Source:
    """An `.npz` in place of a dataset's own files; it has to have the same sizes."""
    archive = Archive(path)
    if archive.sizes() != spec.sizes or archive.sample_shape() != spec.shape:
        raise DataError(
            f"{path} cannot stand in for {spec.title}: expected {describe_sizes(spec.sizes)} of "
            f"shape {list(spec.shape)}, got {describe_sizes(archive.sizes())} of "
            f"{list(archive.sample_shape())}. To use it as data of your own, give its path."
        )
    note = f"read from {path.name}, not from the official files: no checksum says it is the same"
    return spec_source(spec, path, f"{path}, .npz in the MedMNIST layout", note)


def spec_source(spec: DatasetSpec, path: Path, origin: str, *notes: str) -> Source:
    """An archive whose classes and splits are those of the catalogue."""
    archive = Archive(path)
    labels = {split: archive.labels(split) for split in archive.splits}
    check_labels(path, labels, spec.classes)
    return Source(
        name=spec.name,
        classes=spec.classes,
        shape=archive.sample_shape(),
        dtype="uint8",
        parts={split: _part(archive, split, labels[split]) for split in archive.splits},
        origin=origin,
        notes=(*spec.notes, *notes),
    )


def describe_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in sizes.items())


def npz_source(path: Path, seed: int, complain: Complain = refuse) -> Source:
    """A user's archive; val and test are made where they are missing."""
    archive = Archive(path)
    labels = {split: archive.labels(split) for split in archive.splits}
    classes = archive.classes() or _numbered(path, labels["train"])
    check_labels(path, labels, classes)
    # parts of one array, which is unpacked once
    whole = cache(lambda: archive.images("train"))
    first = None
    if not {"val", "test"} <= set(archive.splits):
        keys = zip(map(digest, whole()), labels["train"].tolist(), strict=True)
        first = first_copies(list(keys))
    rows = make_splits(
        torch.from_numpy(labels["train"]),
        archive.splits,
        classes,
        seed=seed,
        where=str(path),
        complain=complain,
        first=first,
    )
    parts = {split: _part(archive, split, labels[split]) for split in archive.splits}
    made = [split for split in rows if split != "train"]
    if made:
        for split, chosen in rows.items():
            parts[split] = array_part(labels["train"][chosen.numpy()], whole, chosen.numpy())
    return Source(
        name=path.stem,
        classes=classes,
        shape=archive.sample_shape(),
        dtype="float32" if archive.is_points() else "uint8",
        parts={split: parts[split] for split in SPLITS if split in parts},
        origin=f"{path}, .npz in the MedMNIST layout",
        notes=made_note(made, seed, first),
    )


def check_labels(path: Path, labels: Mapping[str, Array], classes: tuple[str, ...]) -> None:
    """Every label has a class, and every class has an image to train on."""
    wrong = []
    known = f"0 to {len(classes) - 1}" if len(classes) > 1 else "0"
    verb = "is" if len(classes) == 1 else "are"
    for split, found in labels.items():
        (outside,) = np.nonzero(found >= len(classes))
        if len(outside):
            more = f" (and {plural(len(outside) - 1, 'more row')} likewise)"
            wrong.append(
                f"{path}: row {outside[0]} of {split}_labels is {found[outside[0]]}"
                f"{more if len(outside) > 1 else ''}, but there {verb} "
                f"{plural(len(classes), 'class', 'classes')} to train on, {known}."
            )
    inside = labels["train"][labels["train"] < len(classes)]
    wrong += [
        f"{path}: class {classes[label]!r} (label {label}) has no image in train_labels. "
        "Number the classes from 0 without gaps, and train on each of them."
        for label in np.flatnonzero(np.bincount(inside, minlength=len(classes)) == 0)
    ]
    refuse(wrong)


def _numbered(path: Path, labels: Array) -> tuple[str, ...]:
    """Classes without names; those of train, as no other can be learned."""
    highest = int(labels.max())
    if highest >= len(labels):
        raise DataError(
            f"{path}: the largest label of train_labels is {highest:,}, for "
            f"{plural(len(labels), 'image')} to train on. Number the classes from 0 without gaps."
        )
    return tuple(str(label) for label in range(highest + 1))


def _part(archive: Archive, split: str, labels: Array) -> Part:
    return array_part(labels, lambda: archive.images(split))
