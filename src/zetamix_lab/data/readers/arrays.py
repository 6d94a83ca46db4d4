"""Arrays: `.npz` files in the MedMNIST layout, and scikit-learn's digits."""

import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from zetamix_lab.data.errors import DataError, OnProblem, check_distinct, raise_problems
from zetamix_lab.data.groups import Group
from zetamix_lab.data.image_files import NATIVE, Fit, resize_images
from zetamix_lab.data.source import Array, Part, Source, array_part, read_matrices
from zetamix_lab.data.splits import SPLITS, complete_splits, count_labels, digest
from zetamix_lab.text import plural, printable, reason

LAYOUT = (
    "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8 or floating point "
    "(points: [n, d]), and train_labels [n], integers, or [n, k], zeros and ones; optionally the "
    "same as val_… and test_…, and classes with their names"
)
# errors of zipfile, zlib and numpy for a file that is damaged, encrypted or not an .npz
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)
# a larger file that unpacks to more than this many times its size is rejected
BOMB_BYTES, BOMB_RATIO = 1 << 30, 100


def npz_splits(path: Path) -> tuple[str, ...]:
    """The splits of an `.npz` file, by the names of its arrays."""
    try:
        with zipfile.ZipFile(path) as file:
            names = [name.removesuffix(".npy") for name in file.namelist()]
            size, packed = sum(info.file_size for info in file.infolist()), path.stat().st_size
    except UNREADABLE as error:
        raise DataError(f"{path} is not a readable .npz file: {reason(error)}; {LAYOUT}.") from None
    if size > BOMB_BYTES and size > BOMB_RATIO * packed:
        raise DataError(
            f"{path} unpacks to {size / 1e9:,.1f} GB, {size // packed} times its size: refused as "
            "a decompression bomb. If you trust it, save it with numpy.savez, without compression."
        )
    if "train_images" not in names:
        raise DataError(f"{path} contains {', '.join(names) or 'nothing'}; {LAYOUT}.")
    for split in SPLITS:
        if f"{split}_images" in names and f"{split}_labels" not in names:
            raise DataError(f"{path} contains {split}_images without {split}_labels; {LAYOUT}.")
    return tuple(split for split in SPLITS if f"{split}_images" in names)


class NpzFile:
    """The arrays of an `.npz` file, validated; nothing in it is ever unpickled."""

    def __init__(
        self, path: Path, classes: tuple[str, ...] | None = None, group: str | None = None
    ) -> None:
        self.path = path
        self.splits = npz_splits(path)
        with np.load(path, allow_pickle=False) as arrays:
            self.images = {split: self._images(arrays, split) for split in self.splits}
            labels = {split: self._labels(arrays, split) for split in self.splits}
            self.groups = {split: self._groups(arrays, split, group) for split in self.splits}
            if classes is None and "classes" in arrays.files:
                names = self._read(arrays, "classes").ravel().tolist()
                classes = tuple(printable(str(name)) for name in names)
        if classes is None:
            classes = self._number_classes(labels["train"])
        self.classes = classes
        check_distinct(self.classes, str(path))
        self.labels, self.notes = read_matrices(labels)
        _check_labels(path, self.labels, self.classes)
        if len(self.classes) < 2:
            raise DataError(f"{path}: 1 class; expected two or more.")
        for split, images in self.images.items():
            if images.shape[1:] != self.shape:
                raise DataError(
                    f"{path}: {split}_images has samples of shape {list(images.shape[1:])}, "
                    f"train_images of {list(self.shape)}; all splits need the same."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared sample: (c, h, w) or (d,)."""
        return self.images["train"].shape[1:]

    @property
    def sizes(self) -> dict[str, int]:
        return {split: len(labels) for split, labels in self.labels.items()}

    def _read(self, arrays: Mapping[str, Array], key: str) -> Array:
        try:
            return arrays[key]
        except UNREADABLE as error:
            raise DataError(
                f"{self.path}: {key} cannot be read: {reason(error)}; {LAYOUT}."
            ) from None

    def _images(self, arrays: Mapping[str, Array], split: str) -> Array:
        """[n, c, h, w], uint8 or float32, or [n, d], float32."""
        key = f"{split}_images"
        images = self._read(arrays, key)
        shape, is_float = images.shape, images.dtype.kind == "f"
        is_image = images.ndim == 3 or (images.ndim == 4 and shape[3] in (1, 3))
        is_points = images.ndim == 2 and is_float
        if not images.size or not (is_image or is_points) or not (is_float or images.dtype == "u1"):
            raise DataError(f"{self.path}: {key} is {list(shape)}, {images.dtype}; {LAYOUT}.")
        if is_float:
            check_finite(images, self.path, key)
            images = images.astype(np.float32)
        if images.ndim == 3:
            return images[:, None]
        return np.moveaxis(images, 3, 1) if images.ndim == 4 else images

    def _labels(self, arrays: Mapping[str, Array], split: str) -> Array:
        """[n], int64; the 0/1 matrix [n, k] of a multi-label set."""
        key, count = f"{split}_labels", len(self.images[split])
        labels = self._read(arrays, key)
        is_matrix = labels.ndim == 2 and labels.shape[0] == count and labels.shape[1] > 1
        if is_matrix and labels.dtype.kind in "biuf" and bool(np.isin(labels, (0, 1)).all()):
            return labels.astype(np.int64)
        if labels.shape not in ((count,), (count, 1)) or labels.dtype.kind not in "iu":
            raise DataError(
                f"{self.path}: {key} is {list(labels.shape)}, {labels.dtype}; expected one integer "
                f"for each of the {count:,} images, [{count}] or [{count}, 1], or a matrix "
                f"[{count}, k] of zeros and ones."
            )
        return labels.astype(np.int64).reshape(-1)

    def _groups(
        self, arrays: Mapping[str, Array], split: str, group: str | None
    ) -> list[str] | None:
        """The group of every image, from the array SPLIT_GROUP."""
        if group is None:
            return None
        key, count = f"{split}_{group}", len(self.images[split])
        if key not in arrays:
            raise DataError(
                f"{self.path} contains no array {key}; expected the group of every image."
            )
        groups = self._read(arrays, key)
        if groups.shape not in ((count,), (count, 1)) or groups.dtype.kind not in "iuUS":
            raise DataError(
                f"{self.path}: {key} is {list(groups.shape)}, {groups.dtype}; expected one integer "
                f"or text for each of the {count:,} images."
            )
        return list(map(str, groups.reshape(-1).tolist()))

    def _number_classes(self, labels: Array) -> tuple[str, ...]:
        if labels.ndim == 2:
            return tuple(map(str, range(labels.shape[1])))
        count, highest = len(labels), int(labels.max())
        if highest >= count:
            raise DataError(
                f"{self.path}: the largest label of train_labels is {highest:,}, for only "
                f"{plural(count, 'image')}. Number the classes from 0 without gaps."
            )
        return tuple(map(str, range(highest + 1)))


def check_finite(samples: Array, path: Path, name: str) -> None:
    """Raise for the first sample with NaN, infinity or a number that float32 cannot hold."""
    good = (np.abs(samples) <= np.finfo(np.float32).max).reshape(len(samples), -1).all(1)
    if not good.all():
        raise DataError(
            f"{path}: row {int(good.argmin())} of {name} contains NaN, infinity or a number beyond "
            "float32; expected finite numbers."
        )


def _check_labels(path: Path, labels: Mapping[str, Array], classes: Sequence[str]) -> None:
    """Every label must be a class, and every class must have a training image."""
    problems = []
    for split, values in labels.items():
        if values.shape[1:] not in ((), (len(classes),)) or values.ndim != labels["train"].ndim:
            raise DataError(
                f"{path}: {split}_labels is {list(values.shape)}, for {len(classes)} classes and "
                f"train_labels of {list(labels['train'].shape)}; all must agree."
            )
        if values.ndim == 2:
            continue
        (outside,) = np.nonzero((values < 0) | (values >= len(classes)))
        if len(outside):
            more = f" (and {plural(len(outside) - 1, 'more row')})" if len(outside) > 1 else ""
            problems.append(
                f"{path}: row {outside[0]} of {split}_labels is {values[outside[0]]}{more}; "
                f"expected labels from 0 to {len(classes) - 1}."
            )
    train = labels["train"]
    inside = train if train.ndim == 2 else train[(train >= 0) & (train < len(classes))]
    counts = count_labels(torch.from_numpy(inside), len(classes)).tolist()
    problems += [
        f"{path}: class {name!r} (label {label}) has no image in train_labels. Number the classes "
        "from 0 without gaps, and train on each of them."
        for label, name in enumerate(classes)
        if not counts[label]
    ]
    raise_problems(problems)


def npz_parts(file: NpzFile, change: Callable[[Array], Array] | None = None) -> dict[str, Part]:
    return {
        split: replace(
            array_part(file.labels[split], file.images[split], change), groups=file.groups[split]
        )
        for split in file.splits
    }


def npz_source(
    path: Path,
    seed: int,
    size: int | None = None,
    group: Group = None,
    on_problem: OnProblem = raise_problems,
) -> Source:
    """A user's file; missing val and test splits are created."""
    if isinstance(group, re.Pattern):
        raise DataError(
            f"{path} contains arrays without file names. Group them by an array: --group patient "
            "reads train_patient, and so on."
        )
    file = NpzFile(path, group=group)
    fit = NATIVE if size is None else Fit(size, crop=1.0)
    shape = file.shape if size is None else (file.shape[0], size, size)
    if size is not None and len(file.shape) == 1:
        raise DataError(
            f"{path} contains points of {file.shape[0]} coordinates; size is for images."
        )
    resize = None if size is None else partial(resize_images, fit=fit)
    kind = "points" if len(file.shape) == 1 else f"images {fit.describe()}"
    source = Source(
        name=printable(path.stem),
        classes=file.classes,
        shape=shape,
        dtype=str(file.images["train"].dtype),
        parts=npz_parts(file, resize),
        origin=f"{path}, .npz in the MedMNIST layout; {kind}",
        notes=file.notes,
    )
    return complete_splits(
        source,
        seed=seed,
        origin=str(path),
        keys=lambda: list(map(digest, file.images["train"])),
        on_problem=on_problem,
    )


def digits_source(seed: int) -> Source:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, grey levels 0-16 scaled to 0-255."""
    # imported here because it takes 0.9 s, and only the first load needs it
    from sklearn.datasets import load_digits

    bunch = load_digits()
    samples = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    parts = {"train": array_part(bunch.target, samples)}
    origin = "handwritten digits of scikit-learn (UCI, optical recognition, 8 × 8)"
    source = Source("digits", tuple("0123456789"), (1, 8, 8), "uint8", parts, origin)
    return complete_splits(source, seed=seed, origin="digits")
