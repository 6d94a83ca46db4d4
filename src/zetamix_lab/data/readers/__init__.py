"""Readers: from files on disk to labelled splits that are not decoded yet."""

from collections.abc import Callable
from pathlib import Path

from zetamix_lab.data.catalogue import DatasetSpec
from zetamix_lab.data.readers import arrays as arrays
from zetamix_lab.data.readers import skin, torchvision_sets
from zetamix_lab.data.source import Source

READERS: dict[str, Callable[[DatasetSpec, Path, int], Source]] = {
    "medmnist": arrays.medmnist,
    **torchvision_sets.READERS,
    **skin.READERS,
}
