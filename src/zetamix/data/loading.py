"""From a name or a path to a dataset: find it, decode it once, map it into memory."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from zetamix.data import cache
from zetamix.data.catalogue import CATALOGUE
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.dataset import Dataset, from_tensors
from zetamix.data.download import files_here, obtain
from zetamix.data.errors import Complain, DataError, DatasetNotFoundError, refuse
from zetamix.data.manifolds import draw_splits
from zetamix.data.names import known_as, not_known
from zetamix.data.readers import READERS
from zetamix.data.readers.arrays import Archive, describe_sizes, npz_source, stand_in
from zetamix.data.readers.digits import digits_source
from zetamix.data.readers.sizes import outgrown
from zetamix.data.readers.user_images import list_csv, list_folder, listing_source
from zetamix.data.source import Progress, Source, resolve_data_dir

DataDir: TypeAlias = str | os.PathLike[str] | None
What: TypeAlias = str | os.PathLike[str] | DatasetSpec


def load(what: What, data_dir: DataDir = None, seed: int = 0, size: int | None = None) -> Dataset:
    """The dataset of that name, or at that path.

    what: a name of the catalogue, in any case, with - for _; or a path: an `.npz`, a folder of
        images, a `.csv`.
    data_dir: where archives and prepared data are; else $ZETAMIX_DATA, else ~/.cache/zetamix.
    seed: of synthetic data and of splits that have to be made.
    size: side of a user's images. Without it images of one size up to 256 pixels stay as they are;
        where they differ and no side is over 64, they get the median of their shorter sides,
        rounded up to a multiple of 8; all others get 224. Each size is prepared on its own.

    What is on this machine is prepared at the first load; nothing is ever downloaded here.

    >>> load("helix").train.samples.shape
    torch.Size([8192, 3])
    """
    request = find(what, data_dir, seed, size)
    return draw(request) or ready(request) or _prepared(request, None, fetch=False)


def prepare(
    what: What,
    data_dir: DataDir = None,
    seed: int = 0,
    size: int | None = None,
    *,
    progress: Progress | None = None,
    again: bool = False,
) -> Dataset:
    """Download what may be downloaded, verify, decode once; `load` maps the result into memory.

    progress: called with what is being done, how much of it is done, and how much there is (0:
        not known).
    again: also where it is prepared already.
    """
    request = find(what, data_dir, seed, size)
    here = draw(request) or (None if again else ready(request))
    return here or _prepared(request, progress, fetch=True, again=again)


def _never(prepared: Dataset) -> bool:
    return False


@dataclass(frozen=True)
class Request:
    """A dataset that was asked for: where its prepared form is, and how to get at its source."""

    name: str
    data_dir: Path
    folder: Path
    source: Callable[[bool, Progress | None], Source]
    """Called with whether to download; raises where there is nothing to read."""
    spec: DatasetSpec | None = None
    seed: int = 0
    outgrown: Callable[[Dataset], bool] = _never
    """Whether what is prepared is not what would be made of the same files today."""


def find(
    what: What, data_dir: DataDir, seed: int, size: int | None, complain: Complain = refuse
) -> Request:
    """What is asked for, without reading any image; `complain` hears what is wrong with it."""
    home = resolve_data_dir(data_dir)
    _check_numbers(seed, size)
    if isinstance(what, str):
        # a folder called MNIST is a folder, not the dataset mnist
        name = what if what in CATALOGUE or Path(what).expanduser().exists() else known_as(what)
        what = CATALOGUE.get(name, what)
    if isinstance(what, DatasetSpec):
        if size is not None:
            raise ValueError(
                f"size is for data of your own; {what.name} has images of {what.shape[-1]} pixels."
            )
        return _named(what, home, seed)
    path = Path(what).expanduser().absolute()
    if not path.exists():
        raise DatasetNotFoundError(not_known(os.fspath(what)))
    return _yours(path, home, seed, size, complain)


def ready(request: Request) -> Dataset | None:
    """The prepared form of what was asked for, where there is one to be used."""
    found = cache.read(request.folder)
    return None if found is None or request.outgrown(found) else found


def _prepared(
    request: Request, progress: Progress | None, *, fetch: bool, again: bool = False
) -> Dataset:
    meta = cache.read_meta(request.folder)
    damage = None if meta is None else cache.damage(request.folder, meta)
    here = cache.read(request.folder)
    again = again or (here is not None and request.outgrown(here))
    try:
        cache.write(request.folder, lambda: _whole(request, fetch, progress), progress, again=again)
    except DatasetNotFoundError as error:
        if damage is None:
            raise
        raise DatasetNotFoundError(f"Prepared data is damaged: {damage}. {error}") from None
    if request.spec is None:
        cache.remove_older(request.folder)
    found = cache.read(request.folder)
    if found is None:
        raise DataError(f"{request.folder} was prepared and is gone again. Did someone remove it?")
    return found


def _whole(request: Request, fetch: bool, progress: Progress | None) -> Source:
    source = request.source(fetch, progress)
    return source if request.spec is None else checked(request.spec, source)


def draw(request: Request) -> Dataset | None:
    """Synthetic data is drawn anew each time: it takes milliseconds."""
    spec = request.spec
    if spec is None or spec.split != "drawn":
        return None
    origin = f"drawn from seed {request.seed}"
    splits = draw_splits(spec.name, request.seed)
    return from_tensors(spec.name, splits, spec.classes, origin=origin, notes=spec.notes)


def _named(spec: DatasetSpec, data_dir: Path, seed: int) -> Request:
    facts: dict[str, Any] = {
        "classes": spec.classes,
        "shape": spec.shape,
        "fit": [spec.fit.size, spec.fit.crop],
        "reader": spec.reader,
    }
    if spec.split == "made":
        facts["seed"] = seed
    folder = cache.place(data_dir, spec.name, facts)

    def source(fetch: bool, progress: Progress | None) -> Source:
        return named_source(spec, data_dir, seed, fetch, progress)

    return Request(spec.name, data_dir, folder, source, spec, seed)


def named_source(
    spec: DatasetSpec, data_dir: Path, seed: int, fetch: bool, progress: Progress | None
) -> Source:
    """The files of a dataset of the catalogue, or an `.npz` that stands in for them."""
    if spec.reader == "digits":
        return digits_source(seed)
    if spec.reader not in READERS:
        raise DataError(f"{spec.name} is drawn from a seed and has no files.")
    instead = stand_in_file(spec, data_dir)
    if files_here(spec, data_dir) is None and instead is not None:
        return stand_in(spec, instead)
    return READERS[spec.reader](spec, obtain(spec, data_dir, fetch=fetch, progress=progress), seed)


def stand_in_file(spec: DatasetSpec, data_dir: Path) -> Path | None:
    """The `.npz` under the data_dir that has the name of a dataset."""
    for file in (data_dir / f"{spec.name}.npz", data_dir / spec.home / f"{spec.name}.npz"):
        if spec.group != "medmnist" and file.is_file():
            return file
    return None


def checked(spec: DatasetSpec, source: Source) -> Source:
    """Compare with the sizes of the catalogue: an incomplete set must not pass for the real one."""
    found = {split: len(part) for split, part in source.parts.items()}
    expected = {split: spec.sizes.get(split, 0) for split in found}
    if found == expected:
        return source
    differs = f"expected {describe_sizes(expected)}, found {describe_sizes(found)}"
    if spec.firm:
        raise DataError(
            f"{spec.title}: {differs}, in {source.origin}. The files are incomplete or of another "
            "release: get them again, or give their path to use them as data of your own."
        )
    return replace(source, notes=(*source.notes, differs))


def _yours(
    path: Path, data_dir: Path, seed: int, size: int | None, complain: Complain = refuse
) -> Request:
    """A user's data; the state of its files is part of where its prepared form is kept."""
    read: Callable[[], Source]
    old: Callable[[Dataset], bool] = _never
    if path.is_dir() or path.suffix.lower() == ".csv":
        listing = (list_folder if path.is_dir() else list_csv)(path, complain)
        splits, state = tuple(listing.splits), listing.state()

        def read() -> Source:
            return listing_source(listing, seed, size, complain)

        def old(prepared: Dataset) -> bool:
            return size is None and outgrown(listing.files(), prepared.shape)

    elif path.suffix.lower() == ".npz":
        if size is not None:
            raise ValueError(f"size is for image files; {path.name} holds images of one size.")
        facts = path.stat()
        splits, state = Archive(path).splits, [facts.st_size, facts.st_mtime_ns]

        def read() -> Source:
            return npz_source(path, seed, complain)

    else:
        raise DataError(
            f"{path}: expected a folder of images, a .csv file or an .npz archive, got "
            f"{path.suffix or 'a file without ending'}."
        )
    identity = {"path": str(path), "size": size, "seed": seed if len(splits) < 3 else None}
    name = path.name if path.is_dir() else path.stem
    folder = cache.place(data_dir, name, identity, state)
    return Request(name, data_dir, folder, lambda fetch, progress: read(), None, seed, old)


def status(spec: DatasetSpec, data_dir: DataDir = None, seed: int = 0) -> str:
    """Whether a dataset is here: "prepared", "files" that `load` will prepare, or "" for not."""
    request = _named(spec, resolve_data_dir(data_dir), seed)
    if spec.access == "built in":
        return "built in"
    if cache.read_meta(request.folder) is not None:
        return "prepared"
    found = files_here(spec, request.data_dir) or stand_in_file(spec, request.data_dir)
    return "" if found is None else "files"


def _check_numbers(seed: int, size: int | None) -> None:
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must lie between 0 and 2**31 - 1, got {seed}.")
    if size is not None and not 1 <= size <= 4096:
        raise ValueError(f"size must lie between 1 and 4096 pixels, got {size}.")


def with_reported_split(dataset: Dataset) -> Dataset:
    """The dataset with the split that the paper's numbers are about as its test split."""
    spec = CATALOGUE.get(dataset.name)
    if spec is None or spec.reported == "test":
        return dataset
    if dataset.val is None:
        raise DataError(f"{dataset.name} has no validation split, which the paper reports on.")
    note = "reported on the official validation split, as the paper's numbers are"
    return replace(
        dataset,
        val=None,
        test=dataset.val,
        # another experiment than one that reports on the official test split
        fingerprint=f"{dataset.fingerprint}-val",
        notes=(*dataset.notes, note),
    )
