"""The catalogue: descriptions of all datasets that are available by name (`catalogue.toml`)."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from zetamix_lab.data.image_files import NATIVE, Fit

# added to the notes of skin datasets whose splits are created
SPLIT_NOTE = (
    "the paper's seed is unknown: this 70/10/20 split by image has the sizes of the paper's, but "
    "not the same images"
)


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

    `load` and `prepare` accept a changed copy (`dataclasses.replace`) instead of a name,
    for data in the layout of a catalogued dataset with other sizes or checksums.
    """

    name: str
    title: str
    group: str
    """The table of defaults: natural, skin, medmnist or synthetic."""
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Shape of one prepared sample."""
    sizes: Mapping[str, int]
    """Number of samples in each split."""
    licence: str
    reader: str
    """Key of `paper.datasets.READERS`; "" for data that is drawn."""
    folder: str
    """Name of its folder in the data folder."""
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Samples of each class by split, or under "all" if splits are created; {} if not published."""
    access: Literal["download", "tool", "request"] = "download"
    url: str = ""
    """Where to get the dataset, or to request it."""
    steps: str = ""
    """What to do there, if it cannot be downloaded automatically."""
    files: tuple[RemoteFile, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    """md5 of the files that are read, by their path in the dataset's folder."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The class that each value, column or folder of the official label files stands for."""
    fit: Fit = NATIVE
    split: Literal["official", "made", "drawn"] = "official"
    fixed_size: bool = True
    """Whether sizes are fixed by a release; for archives that grow, differences are only noted."""
    reported: Literal["val", "test"] = "test"
    """The split that the paper reports on."""
    notes: tuple[str, ...] = ()
    """Differences from the paper, and choices that it leaves open."""


def _read_catalogue() -> dict[str, DatasetSpec]:
    text = Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    defaults = tables.pop("defaults")
    catalogue = {}
    for name, table in tables.items():
        # the table named by `like` comes earlier and is already complete
        table |= {**tables.get(table.pop("like", ""), {}), **table}
        catalogue[name] = _spec(name, {**defaults[table["group"]], **table})
    return catalogue


def _spec(name: str, fields: dict[str, Any]) -> DatasetSpec:
    server = fields.pop("server", "")
    notes = tuple(fields.pop("notes", ()))
    if (fields["group"], fields.get("split")) == ("skin", "made"):
        notes += (SPLIT_NOTE,)
    return DatasetSpec(
        name=name,
        classes=tuple(fields.pop("classes")),
        shape=tuple(fields.pop("shape")),
        counts={split: tuple(sizes) for split, sizes in fields.pop("counts", {}).items()},
        reader=fields.pop("reader", name),
        folder=fields.pop("folder", name),
        files=tuple(_file(entry, server) for entry in fields.pop("files", ())),
        fit=Fit(**fields.pop("fit", {"size": None})),
        notes=notes,
        **fields,
    )


def _file(entry: str | dict[str, Any], server: str) -> RemoteFile:
    given = {"path": entry} if isinstance(entry, str) else entry
    path = Path(given["path"])
    packed = path.suffix in (".zip", ".tgz", ".gz")
    unpacks_to = str(path.with_suffix("")) if packed else ""
    return RemoteFile(**{"unpacks_to": unpacks_to, "url": server.format(path.name), **given})


CATALOGUE = _read_catalogue()
