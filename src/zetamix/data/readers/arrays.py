"""Arrays: `.npz` files in the MedMNIST layout, and scikit-learn's digits."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from zetamix.data.catalogue import DatasetSpec
from zetamix.data.errors import DataError, OnProblem, raise_problems
from zetamix.data.source import Array, Part, Source, array_part
from zetamix.data.splits import SPLITS, digest, make_splits
from zetamix.text import plural

LAYOUT = (
    "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8, and train_labels "
    "[n], integers; optionally the same as val_… and test_…, and classes with the classes' names"
)
# errors of zipfile, zlib and numpy for a file that is damaged, encrypted or not an .npz
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def npz_splits(path: Path) -> tuple[str, ...]:
    """The splits of an `.npz` file, by the names of its arrays."""
    try:
        with zipfile.ZipFile(path) as file:
            names = [name.removesuffix(".npy") for name in file.namelist()]
    except UNREADABLE as error:
        raise DataError(f"{path} is not a readable .npz file ({error}); {LAYOUT}.") from None
    if "train_images" not in names:
        raise DataError(f"{path} holds {', '.join(names) or 'nothing'}; {LAYOUT}.")
    for split in SPLITS:
        if f"{split}_images" in names and f"{split}_labels" not in names:
            raise DataError(f"{path} holds {split}_images without {split}_labels; {LAYOUT}.")
    return tuple(split for split in SPLITS if f"{split}_images" in names)


class NpzFile:
    """The arrays of an `.npz` file, validated; nothing in it is ever unpickled."""

    def __init__(self, path: Path, classes: tuple[str, ...] | None = None) -> None:
        self.path = path
        self.splits = npz_splits(path)
        with np.load(path, allow_pickle=False) as arrays:
            self.images = {split: self._images(arrays, split) for split in self.splits}
            self.labels = {split: self._labels(arrays, split) for split in self.splits}
            if classes is None and "classes" in arrays.files:
                classes = tuple(map(str, self._read(arrays, "classes").tolist()))
        self.classes = self._numbered_classes() if classes is None else classes
        _check_labels(path, self.labels, self.classes)
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
            raise DataError(f"{self.path}: {key} cannot be read ({error}); {LAYOUT}.") from None

    def _images(self, arrays: Mapping[str, Array], split: str) -> Array:
        """[n, c, h, w] uint8, or [n, d] float32."""
        key = f"{split}_images"
        images = self._read(arrays, key)
        is_bytes = images.dtype == np.uint8 and images.size > 0
        if is_bytes and images.ndim == 3:
            return images[:, None]
        if is_bytes and images.ndim == 4 and images.shape[3] in (1, 3):
            return np.moveaxis(images, 3, 1)
        if images.dtype.kind != "f" or images.ndim != 2 or not images.size:
            shape = list(images.shape)
            raise DataError(f"{self.path}: {key} is {shape}, {images.dtype}; {LAYOUT}.")
        if not np.isfinite(images).all():
            row = int((~np.isfinite(images)).any(1).argmax())
            raise DataError(
                f"{self.path}: row {row} of {key} holds NaN or infinity; expected finite numbers."
            )
        return images.astype(np.float32)

    def _labels(self, arrays: Mapping[str, Array], split: str) -> Array:
        """[n], int64."""
        key, count = f"{split}_labels", len(self.images[split])
        labels = self._read(arrays, key)
        if labels.shape not in ((count,), (count, 1)) or labels.dtype.kind not in "iu":
            raise DataError(
                f"{self.path}: {key} is {list(labels.shape)}, {labels.dtype}; expected one integer "
                f"for each of the {count:,} images, [{count}] or [{count}, 1]."
            )
        return labels.astype(np.int64).reshape(-1)

    def _numbered_classes(self) -> tuple[str, ...]:
        count, highest = len(self.labels["train"]), int(self.labels["train"].max())
        if highest >= count:
            raise DataError(
                f"{self.path}: the largest label of train_labels is {highest:,}, for only "
                f"{plural(count, 'image')}. Number the classes from 0 without gaps."
            )
        return tuple(map(str, range(highest + 1)))


def _check_labels(path: Path, labels: Mapping[str, Array], classes: Sequence[str]) -> None:
    """Every label must be a class, and every class must have a training image."""
    problems = []
    for split, values in labels.items():
        (outside,) = np.nonzero((values < 0) | (values >= len(classes)))
        if len(outside):
            more = f" (and {plural(len(outside) - 1, 'more row')})" if len(outside) > 1 else ""
            problems.append(
                f"{path}: row {outside[0]} of {split}_labels is {values[outside[0]]}{more}; "
                f"expected labels from 0 to {len(classes) - 1}."
            )
    present = set(labels["train"].tolist())
    problems += [
        f"{path}: class {name!r} (label {label}) has no image in train_labels. Number the classes "
        "from 0 without gaps, and train on each of them."
        for label, name in enumerate(classes)
        if label not in present
    ]
    raise_problems(problems)


def medmnist(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One of MedMNIST's own files."""
    path = base / spec.files[0].path
    file = NpzFile(path, spec.classes)
    return spec.source(_parts(file), f"official file {path}")


def replacement_source(spec: DatasetSpec, path: Path) -> Source:
    """NAME.npz instead of a dataset's official files; it must have the same sizes."""
    file = NpzFile(path, spec.classes)
    if file.sizes != spec.sizes or file.shape != spec.shape:
        raise DataError(
            f"{path} cannot replace {spec.title}: expected {describe_sizes(spec.sizes)} of shape "
            f"{list(spec.shape)}, got {describe_sizes(file.sizes)} of {list(file.shape)}. To use "
            "it as your own data, pass its path."
        )
    note = f"read from {path.name} instead of the official files, without a checksum"
    return spec.source(_parts(file), f"{path}, .npz in the MedMNIST layout", note)


def _parts(file: NpzFile) -> dict[str, Part]:
    return {split: array_part(file.labels[split], file.images[split]) for split in file.splits}


def npz_source(path: Path, seed: int, on_problem: OnProblem = raise_problems) -> Source:
    """A user's file; missing val and test splits are created."""
    file = NpzFile(path)
    images, labels = file.images["train"], file.labels["train"]
    rows, notes = make_splits(
        torch.from_numpy(labels),
        file.splits,
        file.classes,
        seed=seed,
        origin=str(path),
        on_problem=on_problem,
        keys=lambda: list(map(digest, images)),
    )
    parts = _parts(file)
    for split, chosen in rows.items():
        parts[split] = array_part(labels[chosen.numpy()], images, chosen.numpy())
    return Source(
        name=path.stem,
        classes=file.classes,
        shape=file.shape,
        dtype=str(images.dtype),
        parts={split: parts[split] for split in SPLITS},
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
    classes = tuple("0123456789")
    every = torch.from_numpy(labels)
    rows, notes = make_splits(every, ["train"], classes, seed=seed, origin="digits")
    parts = {
        split: array_part(labels[chosen.numpy()], samples, chosen.numpy())
        for split, chosen in rows.items()
    }
    origin = "handwritten digits of scikit-learn (UCI, optical recognition, 8 × 8)"
    return Source("digits", classes, (1, 8, 8), "uint8", parts, origin, notes)


def describe_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in sizes.items())
