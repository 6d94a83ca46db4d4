"""Arrays in `.npz` files: the layout of MedMNIST, or other names for the same."""

import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from zetamix_lab.data.errors import DataError
from zetamix_lab.data.sample_table import SPLIT_NAMES, SampleTable, check_finite
from zetamix_lab.data.source import SPLITS, Array
from zetamix_lab.text import printable, reason

LAYOUT = (
    "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8 or floating point "
    "(points: [n, d]), and train_labels [n], integers, or [n, k], zeros and ones; optionally val_… "
    "and test_…, and classes with their names. Also x_train and y_train, or data and target"
)
# other names of images and labels, in names such as x_train, train_data or labels
KINDS = {
    **dict.fromkeys(("images", "image", "x", "data", "samples", "features"), "images"),
    **dict.fromkeys(("labels", "label", "y", "target", "targets"), "labels"),
}
# errors of zipfile, zlib and numpy for a file that is damaged, encrypted or not an .npz
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)
# a larger file that unpacks to more than this many times its size is rejected
BOMB_BYTES, BOMB_RATIO = 1 << 30, 100


def from_npz(path: Path, group: str | None = None) -> SampleTable:
    """The arrays of each split; nothing in the file is ever unpickled.

    group: the arrays `train_GROUP`, `val_GROUP`, … have the patient or lesion of every sample.
    """
    found = _find_arrays(path)
    frames: list[pd.DataFrame] = []
    images: list[Array] = []
    labels: list[Array] = []
    with np.load(path, allow_pickle=False) as arrays:
        for split, keys in found.items():
            images.append(_images(path, arrays, keys["images"]))
            labels.append(_labels(path, arrays, keys["labels"], len(images[-1])))
            file = f"{path}: {keys['labels']}"
            frame = pd.DataFrame({"row": range(len(images[-1]))}).assign(split=split, file=file)
            if group is not None:
                frame["group"] = _groups(path, arrays, f"{split}_{group}", len(frame))
            frames.append(frame)
            shapes = [some[-1].shape[1:] for some in (images, labels)]
            if shapes != [some[0].shape[1:] for some in (images, labels)]:
                raise DataError(
                    f"{path}: {split} has samples of shape {list(shapes[0])} and labels of "
                    f"{list(labels[-1].shape)}, train has {list(images[0].shape[1:])} and "
                    f"{list(labels[0].shape)}; all splits need the same."
                )
        classes = None
        if "classes" in arrays:
            names = _read(path, arrays, "classes").ravel().tolist()
            classes = tuple(printable(str(name)) for name in names)
    whole = np.concatenate(labels)
    columns: list[object] = ["label"]
    if whole.ndim == 2:
        columns = list(classes or range(whole.shape[1]))
        if len(columns) != whole.shape[1]:
            raise DataError(f"{path}: {len(columns)} classes for labels [n, {whole.shape[1]}].")
        classes = None
    return SampleTable(
        path=path,
        kind=".npz in the MedMNIST layout",
        frame=pd.concat(frames, ignore_index=True),
        labels=pd.DataFrame(whole, columns=columns),
        arrays=images,
        classes=classes,
    )


def _find_arrays(path: Path) -> dict[str, dict[str, str]]:
    """The names of the arrays of images and labels by split, without reading any."""
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
    splits: dict[str, dict[str, str]] = {}
    for name in names:
        words = re.split("[_ ]", name.lower())
        kinds = [KINDS[word] for word in words if word in KINDS]
        named = [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]
        if len(kinds) == 1 and len(kinds) + len(named) == len(words) <= 2:
            splits.setdefault(named[0] if named else "train", {})[kinds[0]] = name
    if "images" not in splits.get("train", {}):
        raise DataError(f"{path} contains {', '.join(names) or 'nothing'}; {LAYOUT}.")
    for split, keys in splits.items():
        if len(keys) < 2:
            kind, name = next(iter(keys.items()))
            other = "images" if kind == "labels" else "labels"
            raise DataError(f"{path} contains {name} without the {other} of {split}; {LAYOUT}.")
    return {split: splits[split] for split in SPLITS if split in splits}


def _read(path: Path, arrays: Mapping[str, Array], key: str) -> Array:
    try:
        array = arrays[key]
    except UNREADABLE as error:
        raise DataError(f"{path}: {key} cannot be read: {reason(error)}; {LAYOUT}.") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: {key} is a file that is no array; {LAYOUT}.")
    return array


def _images(path: Path, arrays: Mapping[str, Array], key: str) -> Array:
    """[n, c, h, w], uint8 or float32, or [n, d], float32."""
    images = _read(path, arrays, key)
    shape, is_float = images.shape, images.dtype.kind == "f"
    is_image = images.ndim == 3 or (images.ndim == 4 and shape[3] in (1, 3))
    is_points = images.ndim == 2 and is_float
    if not images.size or not (is_image or is_points) or not (is_float or images.dtype == "u1"):
        raise DataError(f"{path}: {key} is {list(shape)}, {images.dtype}; {LAYOUT}.")
    if is_float:
        check_finite(images, path, key)
        images = images.astype(np.float32)
    if images.ndim == 3:
        return images[:, None]
    return np.moveaxis(images, 3, 1) if images.ndim == 4 else images


def _labels(path: Path, arrays: Mapping[str, Array], key: str, count: int) -> Array:
    """[n], integers or text; the 0/1 matrix [n, k] of a multi-label set."""
    labels = _read(path, arrays, key)
    is_matrix = labels.ndim == 2 and labels.shape[0] == count and labels.shape[1] > 1
    if is_matrix and labels.dtype.kind in "biuf" and bool(np.isin(labels, (0, 1)).all()):
        return labels.astype(np.int64)
    expected = "integer or name ([n] or [n, 1]), or a row of zeros and ones ([n, k]),"
    return _column(path, labels, key, count, "iufU", expected)


def _groups(path: Path, arrays: Mapping[str, Array], key: str, count: int) -> list[str]:
    if key not in arrays:
        raise DataError(f"{path} contains no array {key}; expected the group of every image.")
    groups = _column(path, _read(path, arrays, key), key, count, "iuUS", "integer or text")
    return list(map(str, groups.tolist()))


def _column(path: Path, values: Array, key: str, count: int, kinds: str, expected: str) -> Array:
    """One value of these kinds for each image, [n]."""
    if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in kinds:
        raise DataError(
            f"{path}: {key} is {list(values.shape)}, {values.dtype}; expected one {expected} for "
            f"each of the {count:,} images."
        )
    return values.reshape(-1)
