"""How any process of this machine gets at a dataset."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from zetamix.data.catalogue import CATALOGUE
from zetamix.data.dataset import Dataset
from zetamix.data.errors import DataError
from zetamix.data.loading import load


@dataclass(frozen=True)
class Address:
    """A dataset by name or path, and the part of it that is trained on; mapped into memory."""

    what: str
    root: str | None = None
    train_size: int | float | None = None
    size: int | None = None
    """Side of images, where they are a user's own."""

    def load(self) -> Dataset:
        dataset = load(self.what, root=self.root, size=self.size)
        return cut(dataset, self.train_size)


def address_of(
    data: str | Path,
    root: Path | None = None,
    train_size: int | float | None = None,
    size: int | None = None,
) -> Address:
    """The address of what a user named, wherever the process that loads it is started."""
    what = str(data)
    if what not in CATALOGUE and Path(what).expanduser().exists():
        what = str(Path(what).expanduser().absolute())
    return Address(what, None if root is None else str(root.absolute()), train_size, size)


def cut(dataset: Dataset, train_size: int | float | None) -> Dataset:
    """The dataset with fewer training samples, where fewer are asked for."""
    if train_size is None:
        return dataset
    return replace(dataset, train=dataset.train.subset(train_size))


@lru_cache(maxsize=1)
def load_once(address: Address) -> Dataset:
    """One process trains on one dataset, again and again."""
    return address.load()


def expect(dataset: Dataset, fingerprint: str) -> Dataset:
    """The dataset, if it is the one that was asked for: files can change between processes."""
    if dataset.fingerprint != fingerprint:
        raise DataError(
            f"{dataset.name} is not the same in all processes: expected the fingerprint "
            f"{fingerprint}, got {dataset.fingerprint}. Did its files change meanwhile?"
        )
    return dataset
