"""What is known about a dataset before looking at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from zetamix.data.image_files import NATIVE, Fit

Group = Literal["natural", "skin", "medmnist", "synthetic", "embedded"]
Access = Literal["built in", "download", "tool", "request"]

ACCESS: Mapping[Access, str] = {
    "built in": "comes with zetamix",
    "download": "downloads by itself",
    "tool": "needs a tool of its own",
    "request": "needs a licence or a request",
}


@dataclass(frozen=True)
class RemoteFile:
    """One file of a dataset, and what is there once it is unpacked."""

    file: str
    """Its path inside the folder of the dataset."""
    makes: str = ""
    """What unpacking it gives, inside the same folder; "" where the file is used as it is."""
    urls: tuple[str, ...] = ()
    md5: str | None = None
    needed: bool = True
    """Whether the dataset cannot do without."""
    instead: tuple[str, ...] = ()
    """Any of these, from another source, serves as well."""

    @property
    def result(self) -> str:
        """The path that a reader looks for."""
        return self.makes or self.file


@dataclass(frozen=True)
class DatasetSpec:
    """One dataset: where it is from, how it is read, and what has to come out.

    `load`, `prepare` and `check` take a changed copy (`dataclasses.replace`) in place of a name,
    for data in the layout of a known set with other sizes or checksums.
    """

    name: str
    title: str
    group: Group
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Of one sample, as it is kept."""
    sizes: Mapping[str, int]
    """Samples in each split."""
    licence: str
    reader: str
    """Which function of `zetamix.data.readers` reads it."""
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Samples of each class by split, or under "all" where splits are made; {}: not published."""
    access: Access = "download"
    where: str = ""
    """Where to get it, or to ask for it."""
    steps: str = ""
    """What to do there, where it does not download by itself."""
    archives: tuple[RemoteFile, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    """md5 of files that are read, by their path inside the dataset's folder."""
    folder: str = ""
    """Its folder under the data_dir, where this is not `name`."""
    own_folder: bool = False
    """Look in that folder only: the files' names would fit other datasets as well."""
    fit: Fit = NATIVE
    split: Literal["official", "made", "drawn"] = "official"
    firm: bool = True
    """Whether sizes are fixed by a release; an archive that grows makes only a note."""
    reported: Literal["val", "test"] = "test"
    """The split that the paper's numbers are about."""
    paper_images: int | None = None
    """How many images the paper states."""
    notes: tuple[str, ...] = ()
    """Differences from the paper, and choices where it says nothing."""

    @property
    def images(self) -> int:
        return sum(self.sizes.values())

    @property
    def home(self) -> str:
        """The name of its folder under the data_dir."""
        return self.folder or self.name
