"""What readers of the catalogue share: from labelled files to the splits of a dataset."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.image_files import file_part
from zetamix.data.source import Part, Source
from zetamix.data.splits import made_note, make_splits


class Labelled(NamedTuple):
    """An image file and its class."""

    file: Path
    label: int


def official_parts(
    spec: DatasetSpec, base: Path, found: Mapping[str, Sequence[Labelled]]
) -> dict[str, Part]:
    return {split: _part(spec, base, items) for split, items in found.items()}


def made_parts(
    spec: DatasetSpec, base: Path, found: Sequence[Labelled], seed: int
) -> dict[str, Part]:
    """Train, val and test out of images that come without official splits."""
    # by name, so that the order of a label file or of a disk does not change the split
    items = sorted(found, key=lambda item: item.file.relative_to(base).as_posix().lower())
    labels = torch.tensor([item.label for item in items], dtype=torch.int64)
    rows = make_splits(labels, ["train"], spec.classes, seed=seed, where=str(base))
    return {
        split: _part(spec, base, [items[row] for row in rows[split].tolist()])
        for split in ("train", "val", "test")
    }


def source_of(
    spec: DatasetSpec,
    base: Path,
    parts: Mapping[str, Part],
    notes: Sequence[str] = (),
    seed: int = 0,
) -> Source:
    """A dataset of the catalogue as it was found in `base`."""
    made = made_note(["val", "test"], seed) if spec.split == "made" else ()
    return Source(
        name=spec.name,
        classes=spec.classes,
        shape=spec.shape,
        dtype="uint8",
        parts=parts,
        origin=f"the official files in {base}",
        notes=(*spec.notes, *made, *notes),
    )


def _part(spec: DatasetSpec, base: Path, items: Sequence[Labelled]) -> Part:
    files = [item.file for item in items]
    return file_part(files, [item.label for item in items], spec.shape, spec.fit, base=base)
