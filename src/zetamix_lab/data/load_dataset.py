"""Load and check a dataset by name or path; references that other processes can open."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from zetamix_lab.data.cache import Request as Request
from zetamix_lab.data.cache import prepared_folder
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.data.errors import DataError, DatasetNotFoundError, OnProblem, raise_problems
from zetamix_lab.data.source import (
    Progress,
    Report,
    Source,
    array_source,
    check_source,
    resolve_data_dir,
)
from zetamix_lab.data.splits import Group, complete_splits
from zetamix_lab.text import did_you_mean, printable, reason

TORCHVISION = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
}
# prefix of a Hugging Face dataset that was saved to disk: hf:PATH
SAVED = "hf:"
# the names that are no paths
NAMES = ("digits", *TORCHVISION)
DataDir: TypeAlias = str | os.PathLike[str] | None
DataName: TypeAlias = str | os.PathLike[str]


def load(
    name: DataName,
    data_dir: DataDir = None,
    size: int | None = None,
    group: Group = None,
    *,
    progress: Progress | None = None,
    skip_broken: bool = False,
) -> Dataset:
    """The dataset of that name, or at that path.

    name: digits, or mnist, fashion_mnist, cifar10 or cifar100 as torchvision has downloaded them,
        in any case, with - or _; or a path: a folder of images, a `.csv`, `.npz` or `.parquet`
        file, a Hugging Face dataset on disk (also as `hf:PATH`).
    data_dir: folder of torchvision's files and of prepared data; default $ZETAMIX_DATA or
        ~/.cache/zetamix.
    size: side in pixels to resize a user's image files to. Without it, images of one size up to 256
        pixels are not resized; images of different sizes with no side over 64 get the median of
        their shorter sides, rounded up to a multiple of 8; all others get 224. Each size is
        prepared separately.
    group: identifies the patient or lesion of an image, whose images stay in one split: the column
        of a table (`NAME` for the arrays `train_NAME`, `val_NAME`, … of an `.npz` file), or a
        compiled regular expression whose first capture group, applied to the path of a file, is
        the patient. Existing splits are checked.
    progress: called while files are prepared, with the activity, how much is done, and the total.
    skip_broken: skip your own images that cannot be read, with a note. Later loads use the data as
        it was prepared, until a file changes.

    Files are decoded on the first load; later loads are memory-mapped. Nothing is downloaded.

    >>> load("digits").train.samples.shape
    torch.Size([1257, 1, 8, 8])
    """
    request = resolve(name, data_dir, size, group)
    if skip_broken and not request.own:
        raise ValueError(f"skip_broken is for your own images only: get {name} again.")
    return request.open() or request.prepare(progress, skip_broken=skip_broken)


def check(
    name: DataName,
    data_dir: DataDir = None,
    size: int | None = None,
    group: Group = None,
    *,
    progress: Progress | None = None,
) -> Report:
    """Read every sample and report all problems of a dataset in one pass.

    Problems are: images that cannot be read, duplicates across splits, duplicates with conflicting
    labels, classes that are too small to split or missing from a split, invalid rows of a table.

    >>> report = check("digits")
    >>> report.ok, report.sizes
    (True, {'train': 1257, 'val': 180, 'test': 360})
    """
    problems: list[str] = []
    try:
        source = resolve(name, data_dir, size, group, problems.extend).source(progress)
        return check_source(source, progress, problems)
    except DataError as error:
        if problems:
            raise_problems([*problems, str(error)])
        raise


def resolve(
    name: DataName,
    data_dir: DataDir,
    size: int | None,
    group: Group,
    on_problem: OnProblem = raise_problems,
) -> Request:
    """Find a dataset without reading any image; `on_problem` is called with its problems.

    Sizes and times of a user's files determine the folder of their prepared form.
    """
    folder = resolve_data_dir(data_dir)
    if size is not None and not 1 <= size <= 4096:
        raise ValueError(f"size must lie between 1 and 4096 pixels, got {size}.")
    path = find(name)
    if isinstance(path, str):
        if size is not None or group is not None:
            option = "size" if group is None else "group"
            raise ValueError(f"{option} is for your own data; {path} is used as it is published.")
        if path == "digits":
            # created splits were once drawn with other seeds too
            return Request(prepared_folder(folder, path, {"seed": 0}), lambda _: digits_source())
        return Request(
            prepared_folder(folder, path, {}),
            lambda _: torchvision_source(path, folder / path, folder),
        )
    # imported here because pandas takes 0.6 s, and names need none of it
    from zetamix_lab.data.readers.formats import open_table
    from zetamix_lab.data.sample_table import to_source

    files, read = open_table(path, group if isinstance(group, str) else None, on_problem)
    title = printable(path.name if path.is_dir() else path.stem)
    known = None if group is None else str(group)
    settings = {"path": str(path), "size": size, "seed": 0, "group": known}
    return Request(
        prepared_folder(folder, title, settings, files),
        lambda _: to_source(read(), size, group, on_problem),
        own=True,
    )


def find(name: DataName) -> str | Path:
    """The name of a known dataset, or the absolute path; raises if there is neither."""
    text = os.fspath(name)
    # ~nosuchuser stays
    path = Path(os.path.expanduser(text.removeprefix(SAVED)))
    if isinstance(name, str) and not text.startswith(SAVED):
        # a folder called MNIST is a folder, not the dataset mnist
        key = text.lower().replace("-", "").replace("_", "")
        known = next((known for known in NAMES if known.replace("_", "") == key), None)
        if known is not None and (text in NAMES or not path.exists()):
            return known
    if text.strip() and os.path.exists(path):
        return path.absolute()
    choices = list(NAMES)
    if len(path.parts) > 1:
        choices = os.listdir(path.parent) if path.parent.is_dir() else []
    hint = did_you_mean(path.name, choices, limit=3)
    raise DatasetNotFoundError(
        f"{text!r} is neither a dataset by name ({', '.join(NAMES)}) nor an existing file or "
        f"folder.{hint}"
    )


def digits_source() -> Source:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, grey levels 0-16 scaled to 0-255."""
    # imported here because it takes 0.9 s, and only the first load needs it
    from sklearn.datasets import load_digits

    bunch = load_digits()
    samples = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    origin = "handwritten digits of scikit-learn (UCI, optical recognition, 8 × 8)"
    source = array_source("digits", "0123456789", {"train": (samples, bunch.target)}, origin)
    return complete_splits(source, origin="digits")


def torchvision_source(name: str, *roots: Path) -> Source:
    """The official splits of `name`, whose files are in one of these folders."""
    # imported here because it takes 1 s, and prepared data needs none of it
    import torchvision.datasets

    kind, why = getattr(torchvision.datasets, TORCHVISION[name]), ""
    for root in roots:
        try:
            # verifies its checksums first
            parts = {"train": kind(root, train=True), "test": kind(root, train=False)}
        except (RuntimeError, OSError, ValueError) as error:
            why = reason(error)
            continue
        # torchvision calls the digits "0 - zero" and so on
        classes = [label.split(" - ")[0] for label in parts["train"].classes]
        arrays = {}
        for split, part in parts.items():
            images = np.asarray(part.data)
            # [n, c, h, w] of [n, h, w] or [n, h, w, c]
            images = np.moveaxis(images, 3, 1) if images.ndim == 4 else images[:, None]
            arrays[split] = (images, np.asarray(part.targets))
        return array_source(name, classes, arrays, f"torchvision's files in {root}")
    raise DatasetNotFoundError(
        f'{name} is not in {roots[0]} ({why}). Download it with: python -c "from '
        f"torchvision.datasets import {TORCHVISION[name]} as c; c('{roots[0]}', download=True)\""
    )


@dataclass(frozen=True)
class DatasetRef:
    """A dataset by name or path, which becomes absolute, and the part of it to train on.

    Worker processes receive the reference and map the prepared data into memory themselves.
    """

    name: DataName
    train_size: int | float | None = None
    size: int | None = None
    """Side of the images in pixels, for a user's own images."""
    group: Group = None
    """The patient or lesion of a user's images, as in `load`."""

    def __post_init__(self) -> None:
        # workers may have another current folder
        object.__setattr__(self, "name", str(find(self.name)))

    def load(self, progress: Progress | None = None, *, skip_broken: bool = False) -> Dataset:
        """The dataset; `progress` and `skip_broken` are those of `zetamix_lab.data.load`."""
        options = self.name, None, self.size, self.group
        dataset = load(*options, progress=progress, skip_broken=skip_broken)
        return dataset.with_train_size(self.train_size)


# a process that runs several jobs on one dataset opens it once
_load_once = lru_cache(maxsize=1)(DatasetRef.load)


def load_cached(data: Dataset | DatasetRef, fingerprint: str) -> Dataset:
    """The dataset that a worker process has received, which it loads once.

    Raises if its content differs from that of other processes, as files may have changed.
    """
    dataset = data if isinstance(data, Dataset) else _load_once(data)
    if dataset.fingerprint != fingerprint:
        raise DataError(
            f"{dataset.name} differs between processes: expected the fingerprint {fingerprint}, "
            f"got {dataset.fingerprint}. Did its files change during the run?"
        )
    return dataset
