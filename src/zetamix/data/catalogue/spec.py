"""The description of a dataset in the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zetamix.data.image_files import NATIVE, Fit
from zetamix.data.source import Part, Source

Group = Literal["natural", "skin", "medmnist", "synthetic", "embedded"]
Access = Literal["built in", "download", "tool", "request"]


@dataclass(frozen=True)
class RemoteFile:
    """One file of a dataset: its path in the dataset's folder, and what it unpacks to."""

    path: str
    unpacks_to: str = ""
    """Path of the unpacked content in the same folder; "" if the file is used as it is."""
    url: str = ""
    md5: str | None = None
    required: bool = True

    @property
    def content(self) -> str:
        """The path that a reader opens."""
        return self.unpacks_to or self.path

    def exists(self, base: Path) -> bool:
        """Whether the file or its content is in the folder `base`."""
        return (base / self.path).exists() or (base / self.content).exists()


@dataclass(frozen=True)
class DatasetSpec:
    """One dataset: its source, its reader, and the sizes that are expected.

    `load`, `prepare` and `check` accept a changed copy (`dataclasses.replace`) instead of a name,
    for data in the layout of a catalogued dataset with other sizes or checksums.
    """

    name: str
    title: str
    group: Group
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Shape of one prepared sample."""
    sizes: Mapping[str, int]
    """Number of samples in each split."""
    licence: str
    reader: str
    """Key of `zetamix.data.readers.READERS`."""
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Samples of each class by split, or under "all" if splits are created; {} if not published."""
    access: Access = "download"
    url: str = ""
    """Where to get the dataset, or to request it."""
    steps: str = ""
    """What to do there, if it cannot be downloaded automatically."""
    files: tuple[RemoteFile, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    """md5 of the files that are read, by their path in the dataset's folder."""
    folder: str = ""
    """Name of its folder in the data folder, if it is not `name`."""
    fit: Fit = NATIVE
    split: Literal["official", "made", "drawn"] = "official"
    fixed_size: bool = True
    """Sizes are fixed by a release; differences in an archive that grows are only noted."""
    reported: Literal["val", "test"] = "test"
    """The split that the paper reports on."""
    notes: tuple[str, ...] = ()
    """Differences from the paper, and choices that it leaves open."""

    @property
    def images(self) -> int:
        return sum(self.sizes.values())

    @property
    def subfolder(self) -> str:
        """Name of its folder in the data folder."""
        return self.folder or self.name

    def source(self, parts: Mapping[str, Part], origin: str, *notes: str) -> Source:
        """The dataset as a reader found it."""
        every = (*self.notes, *notes)
        return Source(self.name, self.classes, self.shape, "uint8", parts, origin, every)
