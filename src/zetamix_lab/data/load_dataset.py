"""Load and check a dataset by name or path; references that other processes can open."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from zetamix_lab.data import cache
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.data.errors import (
    DataError,
    DatasetNotFoundError,
    OnProblem,
    join_problems,
    raise_problems,
)
from zetamix_lab.data.groups import Group
from zetamix_lab.data.quality import Report, check_source
from zetamix_lab.data.readers.named import TORCHVISION, digits_source, torchvision_source
from zetamix_lab.data.source import Progress, Source, resolve_data_dir
from zetamix_lab.text import did_you_mean, printable

# prefix of a Hugging Face dataset that was saved to disk: hf:PATH
SAVED = "hf:"
# the names that are no paths
NAMES = ("digits", *TORCHVISION)
DataDir: TypeAlias = str | os.PathLike[str] | None
DataName: TypeAlias = str | os.PathLike[str]


def load(
    name: DataName,
    data_dir: DataDir = None,
    seed: int = 0,
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
    seed: seed of splits that have to be created.
    size: side in pixels to resize a user's images to. Without it, images of one size up to 256
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
    request = resolve(name, data_dir, seed, size, group)
    if skip_broken and not request.own:
        raise ValueError(
            f"skip_broken is for your own images only: {request.name} without some images would "
            "be another dataset. Get its files again."
        )
    return request.open() or request.prepare(progress, skip_broken=skip_broken)


def check(
    name: DataName,
    data_dir: DataDir = None,
    seed: int = 0,
    size: int | None = None,
    group: Group = None,
    *,
    progress: Progress | None = None,
) -> Report:
    """Read every sample and report all problems of a dataset in one pass.

    Problems are: images that cannot be read, duplicates across splits, duplicates with conflicting
    labels, classes that are too small to split or missing from a split, invalid rows of a table,
    damaged prepared data.

    Reads the files if they are on this machine, and the prepared data otherwise.

    >>> report = check("digits")
    >>> report.ok, report.sizes
    (True, {'train': 1257, 'val': 180, 'test': 360})
    """
    problems: list[str] = []
    try:
        request = resolve(name, data_dir, seed, size, group, problems.extend)
        report = check_source(request.source_to_check(problems, progress), progress)
    except DataError as error:
        if not problems:
            raise
        raise DataError(join_problems([*problems, str(error)])) from None
    return replace(report, problems=(*problems, *report.problems))


@dataclass(frozen=True)
class Request:
    """A requested dataset: the folder of its prepared form, and how to open its source."""

    name: str
    folder: Path
    source: Callable[[Progress | None], Source]
    """Raises if there is nothing to read."""
    own: bool = False
    """Whether it is a path: prepared data of earlier states of its files is removed."""

    def open(self) -> Dataset | None:
        """The dataset if nothing has to be prepared."""
        return cache.read(self.folder)

    def prepare(
        self, progress: Progress | None, *, force: bool = False, skip_broken: bool = False
    ) -> Dataset:
        def open_source() -> Source:
            return self.source(progress)

        try:
            cache.write(self.folder, open_source, progress, force=force, skip_broken=skip_broken)
        except DatasetNotFoundError as error:
            meta = cache.read_meta(self.folder)
            damage = None if meta is None else cache.damage(self.folder, meta)
            if damage is None:
                raise
            raise DatasetNotFoundError(f"Prepared data is damaged: {damage}. {error}") from None
        if self.own:
            cache.remove_older(self.folder)
        dataset = cache.read(self.folder)
        if dataset is None:
            raise DataError(f"{self.folder} was removed by another process after it was prepared.")
        return dataset

    def source_to_check(self, problems: list[str], progress: Progress | None) -> Source:
        """The files, or the prepared form if there are none; `problems` gets damage of it."""
        meta = cache.read_meta(self.folder)
        damage = None if meta is None else cache.damage(self.folder, meta, checksums=True)
        if damage is not None:
            problems.append(f"Prepared data is damaged: {damage}. Prepare it again.")
        try:
            return self.source(progress)
        except DatasetNotFoundError:
            prepared = cache.read(self.folder)
            if prepared is None:
                raise
            return prepared.source()


def resolve(
    name: DataName,
    data_dir: DataDir,
    seed: int,
    size: int | None,
    group: Group = None,
    on_problem: OnProblem = raise_problems,
) -> Request:
    """Find a dataset without reading any image; `on_problem` is called with its problems."""
    folder = resolve_data_dir(data_dir)
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must lie between 0 and 2**31 - 1, got {seed}.")
    if size is not None and not 1 <= size <= 4096:
        raise ValueError(f"size must lie between 1 and 4096 pixels, got {size}.")
    found = find(name)
    if isinstance(found, Path):
        return _resolve_path(found, folder, seed, size, group, on_problem)
    if size is not None or group is not None:
        option = "size" if group is None else "group"
        raise ValueError(f"{option} is for your own data only; {found} is used as it is published.")
    settings = {"seed": seed} if found == "digits" else {}

    def source(progress: Progress | None) -> Source:
        if found == "digits":
            return digits_source(seed)
        return torchvision_source(found, folder / found, folder)

    return Request(found, cache.prepared_folder(folder, found, settings), source)


def find(name: DataName) -> str | Path:
    """The name of a known dataset, or the absolute path; raises if there is neither."""
    text = os.fspath(name)
    if isinstance(name, str) and not text.startswith(SAVED):
        # a folder called MNIST is a folder, not the dataset mnist
        key = text.lower().replace("-", "").replace("_", "")
        known = next((known for known in NAMES if known.replace("_", "") == key), None)
        if known is not None and (text in NAMES or not _expand(text).exists()):
            return known
    path = _expand(text.removeprefix(SAVED)).absolute()
    if not text.strip() or not os.path.exists(path):
        raise DatasetNotFoundError(_unknown(text))
    return path


def _expand(text: str) -> Path:
    """The path with ~ replaced; ~nosuchuser stays."""
    return Path(os.path.expanduser(text))


def _resolve_path(
    path: Path, data_dir: Path, seed: int, size: int | None, group: Group, on_problem: OnProblem
) -> Request:
    """A user's data; sizes and times of its files determine the folder of its prepared form."""
    # imported here because pandas takes 0.6 s, and names need none of it
    from zetamix_lab.data.readers import open_table
    from zetamix_lab.data.sample_table import to_source

    column = group if isinstance(group, str) else None
    files, read = open_table(path, column, on_problem)
    settings = {
        "path": str(path),
        "size": size,
        "seed": seed,
        "group": None if group is None else str(group),
    }
    name = printable(path.name if path.is_dir() else path.stem)
    folder = cache.prepared_folder(data_dir, name, settings, list(map(_state, files)))

    def source(progress: Progress | None) -> Source:
        return to_source(read(), seed=seed, size=size, group=group, on_problem=on_problem)

    return Request(name, folder, source, own=True)


def _state(file: Path) -> list[object]:
    """A value that changes whenever a file does."""
    # a dangling link is reported when it is decoded, like any unreadable file
    stat = file.stat() if file.exists() else file.lstat()
    return [str(file), stat.st_size, stat.st_mtime_ns]


def _unknown(name: str) -> str:
    path = _expand(name)
    choices = list(NAMES)
    if len(path.parts) > 1:
        choices = os.listdir(path.parent) if path.parent.is_dir() else []
    hint = did_you_mean(path.name, choices, limit=3)
    return (
        f"{name!r} is neither a dataset by name ({', '.join(NAMES)}) nor an existing file or "
        f"folder.{hint}"
    )


@dataclass(frozen=True)
class DatasetRef:
    """A dataset by name or absolute path, and the part of it to train on.

    Worker processes receive the reference and map the prepared data into memory themselves.
    """

    name: str
    data_dir: str | None = None
    train_size: int | float | None = None
    size: int | None = None
    """Side of the images in pixels, for a user's own images."""
    group: Group = None
    """The patient or lesion of a user's images, as in `load`."""

    @classmethod
    def resolve(
        cls,
        data: str | Path,
        data_dir: Path | None = None,
        train_size: int | float | None = None,
        size: int | None = None,
        group: Group = None,
    ) -> "DatasetRef":
        """The reference to a name or path, with paths made absolute."""
        folder = None if data_dir is None else str(data_dir.absolute())
        return cls(str(find(data)), folder, train_size, size, group)

    def load(self, progress: Progress | None = None) -> Dataset:
        """The dataset; `progress` is called while its files are prepared, as in `load`."""
        dataset = load(
            self.name, self.data_dir, size=self.size, group=self.group, progress=progress
        )
        return dataset.with_train_size(self.train_size)


def load_or_take(
    data: Dataset | str | Path,
    data_dir: Path | None,
    train_size: int | float | None,
    size: int | None,
    group: Group,
    progress: Progress | None = None,
) -> tuple[Dataset, DatasetRef | None]:
    """The dataset, and the reference by which worker processes load it.

    The reference is None for a dataset that is already loaded: workers receive its samples.
    """
    if not isinstance(data, Dataset):
        ref = DatasetRef.resolve(data, data_dir, train_size, size, group)
        return ref.load(progress), ref
    if size is not None or group is not None:
        raise DataError(f"size and group are for paths only; {data.name} is already loaded.")
    return data.with_train_size(train_size), None


@lru_cache(maxsize=1)
def load_cached(ref: DatasetRef) -> Dataset:
    """`ref.load()`, cached: a process that runs several jobs on one dataset opens it once."""
    return ref.load()


def check_fingerprint(dataset: Dataset, fingerprint: str) -> Dataset:
    """The dataset; raises if its content differs, as files may have changed."""
    if dataset.fingerprint != fingerprint:
        raise DataError(
            f"{dataset.name} differs between processes: expected the fingerprint {fingerprint}, "
            f"got {dataset.fingerprint}. Did its files change during the run?"
        )
    return dataset
