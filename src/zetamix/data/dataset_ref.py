"""A reference to a dataset that other processes can reopen."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from zetamix.data.catalogue import CATALOGUE
from zetamix.data.dataset import Dataset
from zetamix.data.errors import DataError
from zetamix.data.loading import load


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

    @classmethod
    def resolve(
        cls,
        data: str | Path,
        data_dir: Path | None = None,
        train_size: int | float | None = None,
        size: int | None = None,
    ) -> "DatasetRef":
        """The reference to a name or path, with paths made absolute."""
        name = str(data)
        if name not in CATALOGUE and Path(name).expanduser().exists():
            name = str(Path(name).expanduser().absolute())
        return cls(name, None if data_dir is None else str(data_dir.absolute()), train_size, size)

    def load(self) -> Dataset:
        dataset = load(self.name, data_dir=self.data_dir, size=self.size)
        return dataset.with_train_size(self.train_size)


@lru_cache(maxsize=1)
def load_cached(ref: DatasetRef) -> Dataset:
    """As `ref.load()`; a process that runs several jobs on one dataset opens it once."""
    return ref.load()


def check_fingerprint(dataset: Dataset, fingerprint: str) -> Dataset:
    """The dataset; raises if its content is not the expected one (files can change meanwhile)."""
    if dataset.fingerprint != fingerprint:
        raise DataError(
            f"{dataset.name} differs between processes: expected the fingerprint {fingerprint}, "
            f"got {dataset.fingerprint}. Did its files change during the run?"
        )
    return dataset
