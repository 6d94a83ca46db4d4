"""The datasets of the paper by name: what is known of each, how to get it, how to load it.

`load(name, data_dir)` returns a `zetamix_lab.data.Dataset`, as `zetamix_lab.data.load` does for a
path. `prepare` also downloads where that is allowed, `status` says what is on this machine.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from paper.datasets.catalogue import CATALOGUE as CATALOGUE
from paper.datasets.catalogue import DatasetSpec as DatasetSpec
from paper.datasets.files import locate, obtain
from paper.datasets.manifolds import MANIFOLDS as MANIFOLDS
from paper.datasets.manifolds import draw_splits
from paper.datasets.readers import READERS, find_copy, read_copy
from zetamix_lab.data import cache, from_tensors
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.data.errors import DataError, DatasetNotFoundError
from zetamix_lab.data.load_dataset import DataDir, Request
from zetamix_lab.data.source import Progress, Source, resolve_data_dir
from zetamix_lab.text import did_you_mean


def load(
    name: str | DatasetSpec,
    data_dir: DataDir = None,
    *,
    progress: Progress | None = None,
    fetch: bool = False,
) -> Dataset:
    """The dataset of that name.

    name: a name, or a changed copy of an entry of `CATALOGUE` (`dataclasses.replace`), for data in
        the layout of a catalogued dataset with other sizes or checksums.
    fetch: whether to download what is missing, where that is allowed.

    >>> load("helix").train.samples.shape
    torch.Size([8192, 3])
    """
    spec = find(name)
    if spec.split == "drawn":
        # each time, because it takes milliseconds
        splits, origin = draw_splits(spec.name, seed=0), "drawn with seed 0"
        return from_tensors(spec.name, splits, spec.classes, origin=origin, notes=spec.notes)
    found = request(spec, data_dir, fetch=fetch)
    return found.open() or found.prepare(progress)


prepare = partial(load, fetch=True)


def find(name: str | DatasetSpec) -> DatasetSpec:
    """The entry of the catalogue."""
    if isinstance(name, DatasetSpec):
        return name
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, limit=3)
        raise DatasetNotFoundError(
            f"{name!r} is not a dataset of the paper.{hint} `python -m paper data` lists all."
        )
    return CATALOGUE[name]


def request(spec: DatasetSpec, data_dir: DataDir = None, *, fetch: bool = False) -> Request:
    """The prepared form of a dataset, and how to read its files; `fetch` allows downloads."""
    base = resolve_data_dir(data_dir)
    settings: dict[str, object] = {"classes": spec.classes, "shape": spec.shape}
    settings |= {"fit": [spec.fit.size, spec.fit.crop], "reader": spec.reader}
    settings |= {"seed": 0} if spec.split == "made" else {}
    folder = cache.prepared_folder(base, spec.name, settings)
    return Request(folder, partial(_read, spec, base, fetch))


def status(spec: DatasetSpec, data_dir: DataDir = None) -> str:
    """ "built in", "prepared", "files" that `load` will prepare, or "" if not on this machine."""
    if spec.split == "drawn":
        return "built in"
    if request(spec, data_dir).open() is not None:
        return "prepared"
    base = resolve_data_dir(data_dir)
    return "" if (locate(spec, base) or find_copy(spec, base)) is None else "files"


def with_reported_split(dataset: Dataset) -> Dataset:
    """The dataset with the split that the paper reports on as its test split."""
    spec = CATALOGUE.get(dataset.name)
    if spec is None or spec.reported == "test":
        return dataset
    notes = (*dataset.notes, "tested on the official validation split, as in the paper")
    # results on different splits must not be combined
    mark = f"{dataset.fingerprint}-val"
    return replace(dataset, val=None, test=dataset.val, fingerprint=mark, notes=notes)


def _read(spec: DatasetSpec, data_dir: Path, fetch: bool, progress: Progress | None) -> Source:
    """The official files, or a copy if they are missing."""
    copy = None if locate(spec, data_dir) else find_copy(spec, data_dir)
    if copy is None:
        base = obtain(spec, data_dir, fetch=fetch, progress=progress)
        source = READERS[spec.reader](spec, base)
    else:
        source = read_copy(spec, copy, progress)
    notes = (*spec.notes, *source.notes)
    return _verified(spec, replace(source, name=spec.name, classes=spec.classes, notes=notes))


def _verified(spec: DatasetSpec, source: Source) -> Source:
    """The source, if its sizes and class counts are the published ones.

    Of archives that grow, a difference is only noted.
    """
    labels = {split: source.labels[rows] for split, rows in source.rows.items()}
    found = [
        f"{split} has {len(rows):,} samples instead of {spec.sizes.get(split, 0):,}"
        for split, rows in labels.items()
        if len(rows) != spec.sizes.get(split, 0)
    ]
    labels["all"] = source.labels
    for split in filter(labels.__contains__, spec.counts):
        counts = np.bincount(labels[split], minlength=len(spec.classes)).tolist()
        rows = zip(spec.classes, counts, spec.counts[split], strict=True)
        wrong = [f"{size:,} of {name} instead of {n:,}" for name, size, n in rows if size != n]
        found += [f"{split} has {', '.join(wrong)}"] if wrong else []
    if not found:
        return source
    if spec.fixed_size:
        raise DataError(
            f"{source.origin}: not {spec.title} as published: {'; '.join(found)}. The files are "
            "incomplete or of another release: get them again, or pass their path to zetamix as "
            "your own data."
        )
    return replace(source, notes=(*source.notes, *found))
