"""From a name or a path to a dataset: find it, decode it once, map it into memory."""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from zetamix.data import cache
from zetamix.data.catalogue import CATALOGUE
from zetamix.data.catalogue.spec import Spec
from zetamix.data.dataset import Dataset, from_tensors
from zetamix.data.readers.digits import digits_source
from zetamix.data.errors import DataError, NotHereError
from zetamix.data.manifolds import draw_splits
from zetamix.data.readers.npz import npz_source
from zetamix.data.source import Progress, Source, data_root

What: TypeAlias = str | os.PathLike[str] | Spec


def load(
    what: What,
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    size: int | None = None,
) -> Dataset:
    """The dataset of that name, or at that path.

    what: a name of the catalogue, or a path: an `.npz`, a folder of images, a `.csv`.
    root: where archives and prepared data are; else $ZETAMIX_DATA, else ~/.cache/zetamix.
    seed: of synthetic data and of splits that have to be made.
    size: side of a user's images.

    >>> load("helix").train.samples.shape
    torch.Size([8192, 3])
    """
    request = find(what, root, seed, size)
    if request.draw is not None:
        return request.draw()
    found = cache.read(request.folder)
    if found is None:
        cache.write(request.folder, request.source(), None)
        found = cache.read(request.folder)
    if found is None:
        raise DataError(f"{request.folder} was prepared but cannot be read: was it removed?")
    return found


def prepare(
    what: What,
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    size: int | None = None,
    *,
    progress: Progress | None = None,
    again: bool = False,
) -> Dataset:
    """Decode a dataset into the form that `load` maps into memory."""
    request = find(what, root, seed, size)
    if request.draw is not None:
        return request.draw()
    if again or cache.read(request.folder) is None:
        cache.write(request.folder, request.source(), progress, again=again)
    return load(what, root, seed, size)


@dataclass(frozen=True)
class Request:
    """A dataset that was asked for: where its prepared form is, and how to get at its source."""

    name: str
    folder: Path
    source: Callable[[], Source]
    draw: Callable[[], Dataset] | None = None


def find(what: What, root: str | os.PathLike[str] | None, seed: int, size: int | None) -> Request:
    home = data_root(root)
    if isinstance(what, str) and what in CATALOGUE:
        return _named(CATALOGUE[what], home, seed)
    if isinstance(what, Spec):
        return _named(what, home, seed)
    path = Path(what).expanduser()
    if not path.exists():
        raise NotHereError(_unknown(str(what)))
    path = path.resolve()
    if path.suffix != ".npz":
        raise DataError(f"{path}: expected an .npz archive.")
    stat = path.stat()
    facts = {"path": str(path), "bytes": stat.st_size, "changed": stat.st_mtime_ns, "seed": seed}
    folder = cache.place(home, path.stem, facts)
    return Request(path.stem, folder, lambda: npz_source(path, seed))


def _named(spec: Spec, home: Path, seed: int) -> Request:
    facts: Mapping[str, Any] = {"seed": seed}
    folder = cache.place(home, spec.name, facts)
    if spec.group == "synthetic":
        return Request(spec.name, folder, _no_source, lambda: _drawn(spec, seed))
    if spec.name != "digits":
        raise NotHereError(f"{spec.name} cannot be read yet.")
    return Request(spec.name, folder, lambda: digits_source(seed))


def _no_source() -> Source:
    raise DataError("Synthetic data is drawn, not read.")


def _drawn(spec: Spec, seed: int) -> Dataset:
    return from_tensors(
        spec.name, draw_splits(spec.name, seed), spec.classes, origin=f"drawn, seed {seed}"
    )


def _unknown(what: str) -> str:
    near = difflib.get_close_matches(what.lower(), CATALOGUE, n=3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{what!r} is neither a file or folder here nor a dataset that zetamix knows.{hint} "
        "`zetamix data list` shows all names."
    )
