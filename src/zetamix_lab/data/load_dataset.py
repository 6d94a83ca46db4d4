"""Load, prepare and check a dataset by name or path; references that other processes can open."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeAlias

from zetamix_lab.data import cache
from zetamix_lab.data.catalogue import CATALOGUE, DatasetSpec
from zetamix_lab.data.dataset import Dataset, from_tensors
from zetamix_lab.data.download import locate, obtain
from zetamix_lab.data.errors import (
    DataError,
    DatasetNotFoundError,
    OnProblem,
    join_problems,
    raise_problems,
)
from zetamix_lab.data.groups import Group
from zetamix_lab.data.manifolds import draw_splits
from zetamix_lab.data.quality import Report, check_source
from zetamix_lab.data.readers import READERS, arrays
from zetamix_lab.data.readers.copies import find_copy, read_copy
from zetamix_lab.data.readers.tables import find_tables, tables_source, tables_state
from zetamix_lab.data.readers.user_images import list_images, listing_source
from zetamix_lab.data.source import Progress, Source, resolve_data_dir
from zetamix_lab.text import did_you_mean, printable

# prefix of a Hugging Face dataset that was saved to disk: hf:PATH
SAVED = "hf:"
DataDir: TypeAlias = str | os.PathLike[str] | None
DataName: TypeAlias = str | os.PathLike[str] | DatasetSpec


def load(
    name: DataName,
    data_dir: DataDir = None,
    seed: int = 0,
    size: int | None = None,
    group: Group = None,
    *,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset of that name, or at that path.

    name: a name of the catalogue, in any case, with - or _; or a path: a folder of images, a
        `.csv`, `.npz` or `.parquet` file, a Hugging Face dataset on disk (also as `hf:PATH`).
    data_dir: folder of downloads and prepared data; default $ZETAMIX_DATA or ~/.cache/zetamix.
    seed: seed of synthetic data and of splits that have to be created.
    size: side in pixels to resize a user's images to. Without it, images of one size up to 256
        pixels are not resized; images of different sizes with no side over 64 get the median of
        their shorter sides, rounded up to a multiple of 8; all others get 224. Each size is
        prepared separately.
    group: identifies the patient or lesion of an image, whose images stay in one split: the column
        of a table (`NAME` for the arrays `train_NAME`, `val_NAME`, … of an `.npz` file), or a
        compiled regular expression whose first capture group, applied to the path of a file, is
        the patient. Existing splits are checked.
    progress: called while files are prepared, with the activity, how much is done, and the total.

    Files on this machine are prepared on the first load; `load` never downloads.

    >>> load("helix").train.samples.shape
    torch.Size([8192, 3])
    """
    request = resolve(name, data_dir, seed, size, group)
    return request.open() or request.prepare(progress, fetch=False)


def prepare(
    name: DataName,
    data_dir: DataDir = None,
    seed: int = 0,
    size: int | None = None,
    group: Group = None,
    *,
    progress: Progress | None = None,
    force: bool = False,
    skip_broken: bool = False,
) -> Dataset:
    """Download where possible, verify and decode once; later loads are memory-mapped.

    progress: called with the current activity, how much is done, and the total (0 if unknown).
    force: prepare again even if the data is prepared already.
    skip_broken: skip your own images that cannot be read, with a note. Later loads use the data as
        it was prepared, until a file changes.
    """
    request = resolve(name, data_dir, seed, size, group)
    if skip_broken and request.spec is not None:
        raise ValueError(
            f"skip_broken is for your own images only: {request.name} without some images would "
            "be another dataset. Get its files again."
        )
    ready = request.draw() if force else request.open()
    return ready or request.prepare(progress, fetch=True, force=force, skip_broken=skip_broken)


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
    labels, counts that differ from the expected ones, classes that are too small to split or
    missing from a split, invalid rows of a table, damaged prepared data.

    Reads the files if they are on this machine, and the prepared data otherwise. Downloads nothing;
    unpacks archives that are on this machine.

    >>> report = check("crescents")
    >>> report.ok, report.sizes
    (True, {'train': 512, 'test': 512})
    """
    problems: list[str] = []
    try:
        request = resolve(name, data_dir, seed, size, group, problems.extend)
        source = _source_to_check(request, problems, progress)
        report = check_source(source, request.spec, progress)
    except DataError as error:
        if not problems:
            raise
        raise DataError(join_problems([*problems, str(error)])) from None
    return replace(report, problems=(*problems, *report.problems))


@dataclass(frozen=True)
class Request:
    """A requested dataset: the folder of its prepared form, and how to open its source."""

    name: str
    data_dir: Path
    folder: Path
    source: Callable[[bool, Progress | None], Source]
    """Called with whether to download; raises if there is nothing to read."""
    spec: DatasetSpec | None = None
    seed: int = 0

    def draw(self) -> Dataset | None:
        """Synthetic data, drawn each time because it takes milliseconds; else None."""
        spec = self.spec
        if spec is None or spec.split != "drawn":
            return None
        origin = f"drawn with seed {self.seed}"
        splits = draw_splits(spec.name, self.seed)
        return from_tensors(spec.name, splits, spec.classes, origin=origin, notes=spec.notes)

    def open(self) -> Dataset | None:
        """The dataset if nothing has to be prepared."""
        return self.draw() or cache.read(self.folder)

    def prepare(
        self,
        progress: Progress | None,
        *,
        fetch: bool,
        force: bool = False,
        skip_broken: bool = False,
    ) -> Dataset:
        def open_source() -> Source:
            source = self.source(fetch, progress)
            return source if self.spec is None else check_sizes(self.spec, source)

        try:
            cache.write(self.folder, open_source, progress, force=force, skip_broken=skip_broken)
        except DatasetNotFoundError as error:
            meta = cache.read_meta(self.folder)
            damage = None if meta is None else cache.damage(self.folder, meta)
            if damage is None:
                raise
            raise DatasetNotFoundError(f"Prepared data is damaged: {damage}. {error}") from None
        if self.spec is None:
            cache.remove_older(self.folder)
        dataset = cache.read(self.folder)
        if dataset is None:
            raise DataError(f"{self.folder} was removed by another process after it was prepared.")
        return dataset


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
    if size is not None:
        raise ValueError(
            f"size is for your own images only; {found.name} has images of {found.shape[-1]} "
            "pixels."
        )
    if group is not None:
        raise ValueError(f"group is for your own data only; {found.name} has fixed splits.")
    return _resolve_spec(found, folder, seed)


def find(name: DataName) -> DatasetSpec | Path:
    """The dataset of the catalogue, or the absolute path; raises if neither exists."""
    if isinstance(name, str) and name.startswith(SAVED):
        name = Path(name.removeprefix(SAVED))
    if isinstance(name, str):
        # a folder called MNIST is a folder, not the dataset mnist
        if not name.strip():
            raise DatasetNotFoundError(_unknown(name))
        is_path = name not in CATALOGUE and Path(name).expanduser().exists()
        name = name if is_path else CATALOGUE.get(_canonical(name), name)
    if isinstance(name, DatasetSpec):
        return name
    path = Path(name).expanduser().absolute()
    if not path.exists():
        raise DatasetNotFoundError(_unknown(os.fspath(name)))
    return path


def status(spec: DatasetSpec, data_dir: DataDir = None, seed: int = 0) -> str:
    """ "built in", "prepared", "files" that `load` will prepare, or "" if not on this machine."""
    if spec.access == "built in":
        return "built in"
    request = _resolve_spec(spec, resolve_data_dir(data_dir), seed)
    if cache.read_meta(request.folder) is not None:
        return "prepared"
    files = locate(spec, request.data_dir) or find_copy(spec, request.data_dir)
    return "" if files is None else "files"


def with_reported_split(dataset: Dataset) -> Dataset:
    """The dataset with the split that the paper reports on as its test split."""
    spec = CATALOGUE.get(dataset.name)
    if spec is None or spec.reported == "test":
        return dataset
    if dataset.val is None:
        raise DataError(f"{dataset.name} has no validation split, which the paper reports on.")
    return replace(
        dataset,
        val=None,
        test=dataset.val,
        # results on different splits must not be combined
        fingerprint=f"{dataset.fingerprint}-val",
        notes=(*dataset.notes, "tested on the official validation split, as in the paper"),
    )


def check_sizes(spec: DatasetSpec, source: Source) -> Source:
    """Compare with the sizes in the catalogue, so that an incomplete dataset is never used."""
    actual = {split: len(part) for split, part in source.parts.items()}
    expected = {split: spec.sizes.get(split, 0) for split in actual}
    if actual == expected:
        return source
    difference = f"expected {arrays.describe_sizes(expected)}, got {arrays.describe_sizes(actual)}"
    if spec.fixed_size:
        raise DataError(
            f"{spec.title}: {difference}, in {source.origin}. The files are incomplete or of "
            "another release: get them again, or pass their path to use them as your own data."
        )
    return replace(source, notes=(*source.notes, difference))


def _resolve_spec(spec: DatasetSpec, data_dir: Path, seed: int) -> Request:
    settings: dict[str, object] = {
        "classes": spec.classes,
        "shape": spec.shape,
        "fit": [spec.fit.size, spec.fit.crop],
        "reader": spec.reader,
    }
    if spec.split == "made":
        settings["seed"] = seed

    def source(fetch: bool, progress: Progress | None) -> Source:
        if spec.reader == "digits":
            return arrays.digits_source(seed)
        copy = find_copy(spec, data_dir) if locate(spec, data_dir) is None else None
        if copy is not None:
            return read_copy(spec, copy, progress)
        base = obtain(spec, data_dir, fetch=fetch, progress=progress)
        return READERS[spec.reader](spec, base, seed)

    folder = cache.prepared_folder(data_dir, spec.name, settings)
    return Request(spec.name, data_dir, folder, source, spec, seed)


def _resolve_path(
    path: Path, data_dir: Path, seed: int, size: int | None, group: Group, on_problem: OnProblem
) -> Request:
    """A user's data; sizes and times of its files determine the folder of its prepared form."""
    if not (path.is_dir() or path.is_file()):
        raise DataError(f"{path} is neither a folder nor a regular file.")
    tables = find_tables(path)
    read: Callable[[], Source]
    if tables is not None:
        splits, state = tuple(tables), tables_state(tables)
        read = partial(tables_source, path, tables, seed, size, group, on_problem)
    elif path.is_dir() or path.suffix.lower() == ".csv":
        listing = list_images(path, group, on_problem)
        splits, state = tuple(listing.splits), listing.state()
        read = partial(listing_source, listing, seed, size, on_problem)
    elif path.suffix.lower() == ".npz":
        splits, state = arrays.npz_splits(path), [path.stat().st_size, path.stat().st_mtime_ns]
        read = partial(arrays.npz_source, path, seed, size, group, on_problem)
    else:
        raise DataError(
            f"{path}: expected a folder of images, a .csv, .npz or .parquet file, got "
            f"{path.suffix or 'a file without suffix'}."
        )
    settings = {
        "path": str(path),
        "size": size,
        "seed": seed if len(splits) < 3 else None,
        "group": None if group is None else str(group),
    }
    name = printable(path.name if path.is_dir() else path.stem)
    folder = cache.prepared_folder(data_dir, name, settings, state)
    return Request(name, data_dir, folder, lambda fetch, progress: read(), None, seed)


def _source_to_check(request: Request, problems: list[str], progress: Progress | None) -> Source:
    """The files, or the prepared form if there are none; `problems` gets damage of the latter."""
    drawn = request.draw()
    if drawn is not None:
        return drawn.source()
    meta = cache.read_meta(request.folder)
    damage = None if meta is None else cache.damage(request.folder, meta, checksums=True)
    if damage is not None:
        problems.append(f"Prepared data is damaged: {damage}. Prepare it again.")
    try:
        return request.source(False, progress)
    except DatasetNotFoundError:
        prepared = cache.read(request.folder)
        if prepared is None:
            raise
        return prepared.source()


def _canonical(name: str) -> str:
    """The name in the catalogue, ignoring case, - and _; the name itself if there is none.

    >>> _canonical("Fashion-MNIST"), _canonical("photos")
    ('fashion_mnist', 'photos')
    """
    key = name.lower().replace("-", "").replace("_", "")
    return next((known for known in CATALOGUE if known.replace("_", "") == key), name)


def _unknown(name: str) -> str:
    path = Path(name).expanduser()
    choices = list(CATALOGUE)
    if len(path.parts) > 1:
        choices = os.listdir(path.parent) if path.parent.is_dir() else []
    hint = did_you_mean(path.name, choices, limit=3)
    return (
        f"{name!r} is neither a dataset of the catalogue nor an existing file or folder.{hint} "
        "`zetamix data list` shows all names."
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
        name = str(data)
        if name.startswith(SAVED):
            name = str(Path(name.removeprefix(SAVED)).expanduser().absolute())
        if name.strip() and name not in CATALOGUE and Path(name).expanduser().exists():
            name = str(Path(name).expanduser().absolute())
        folder = None if data_dir is None else str(data_dir.absolute())
        return cls(name, folder, train_size, size, group)

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
