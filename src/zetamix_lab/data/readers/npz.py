"""Images as arrays in `.npz` files, in the layout of MedMNIST."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from zetamix_lab.data.errors import DataError
from zetamix_lab.data.sample_table import NO_IMAGES, SampleTable, list_marked
from zetamix_lab.data.source import SPLITS, Array
from zetamix_lab.text import reason

LAYOUT = (
    "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8 or finite numbers "
    "of floating point; train_labels [n], integers or text, or [n, k], zeros and ones; optionally "
    f"the same of val and test, and classes with their names. {NO_IMAGES}"
)
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
    kinds = ("images", "labels", *filter(None, [group]))
    arrays = _read_arrays(path, kinds)
    frames, images, names = [], [], None
    for split in [split for split in SPLITS if f"{split}_images" in arrays]:
        for kind in kinds:
            array, first = arrays[f"{split}_{kind}"], arrays[f"train_{kind}"]
            if not _is_valid(kind, array, first, len(arrays[f"{split}_images"])):
                raise DataError(
                    f"{path}: {split}_{kind} is {list(array.shape)}, {array.dtype}, and "
                    f"train_{kind} {list(first.shape)}, {first.dtype}; {LAYOUT}"
                )
        pixels, labels, *groups = (arrays[f"{split}_{kind}"] for kind in kinds)
        pixels = pixels[:, None] if pixels.ndim == 3 else np.moveaxis(pixels, 3, 1)
        images.append(pixels if pixels.dtype == np.uint8 else pixels.astype(np.float32))
        places = [f"{path}: {split}_labels, row {row}" for row in range(len(labels))]
        frame = pd.DataFrame({"place": places}).assign(split=split)
        frame["label"] = labels if labels.ndim == 1 else list_marked(labels)
        if labels.ndim == 2:
            names = list(range(labels.shape[1]))
        if groups:
            frame["group"] = list(map(str, groups[0].tolist()))
        frames.append(frame)
    if "classes" in arrays:
        names = arrays["classes"].ravel().tolist()
    return SampleTable(
        path=path,
        kind=".npz in the MedMNIST layout",
        frame=pd.concat(frames, ignore_index=True),
        arrays=images,
        classes=None if names is None else tuple(map(str, names)),
    )


def _read_arrays(path: Path, kinds: Sequence[str]) -> dict[str, Array]:
    """The arrays of these kinds of each split, and that of classes."""
    name, arrays = "the file", dict[str, Array]()
    try:
        with zipfile.ZipFile(path) as file:
            size, packed = sum(info.file_size for info in file.infolist()), path.stat().st_size
        if size > BOMB_BYTES and size > BOMB_RATIO * packed:
            raise DataError(
                f"{path} unpacks to {size / 1e9:,.1f} GB, {size // packed} times its size: refused "
                "as a decompression bomb. If you trust it, save it with numpy.savez, without "
                "compression."
            )
        with np.load(path, allow_pickle=False) as stored:
            splits = [split for split in SPLITS if f"{split}_images" in stored.files]
            needed = {f"{split}_{kind}" for split in ["train", *splits] for kind in kinds}
            found = {name for name in stored.files if name.endswith(tuple(f"_{k}" for k in kinds))}
            if found != needed:
                wrong = ", ".join(sorted(needed - found)) or "these pairs"
                raise DataError(f"{path} has {', '.join(stored.files)}, not {wrong}; {LAYOUT}")
            for name in needed | ({"classes"} & {*stored.files}):
                array = np.atleast_1d(stored[name])
                arrays[name] = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{path}: {name} cannot be read: {reason(error)}.") from None
    return arrays


def _is_valid(kind: str, array: Array, first: Array, count: int) -> bool:
    """Whether an array has an image, label or group for each of the images, as that of train."""
    if array.shape[1:] != first.shape[1:]:
        return False
    if kind == "images":
        bounded = array.dtype == np.uint8 or (
            array.dtype.kind == "f" and bool((np.abs(array) <= np.finfo(np.float32).max).all())
        )
        is_image = array.ndim == 3 or (array.ndim == 4 and array.shape[3] in (1, 3))
        alike = array.dtype.kind == first.dtype.kind
        return alike and array.size > 0 and is_image and bounded
    if array.shape == (count,):
        return array.dtype.kind in ("iufU" if kind == "labels" else "iuUS")
    is_matrix = array.ndim == 2 and len(array) == count and array.dtype.kind in "biuf"
    return kind == "labels" and is_matrix and bool(np.isin(array, (0, 1)).all())
