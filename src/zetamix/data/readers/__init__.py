"""Readers: from files on disk to labelled splits that are not decoded yet."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.readers import arrays as arrays
from zetamix.data.readers import skin, torchvision_sets
from zetamix.data.source import Source

Reader: TypeAlias = Callable[[DatasetSpec, Path, int], Source]

READERS: Mapping[str, Reader] = {
    "idx": torchvision_sets.idx,
    "cifar": torchvision_sets.cifar,
    "stl10": torchvision_sets.stl10,
    "imagenet_subset": torchvision_sets.imagenet_subset,
    "isic2016": skin.isic2016,
    "isic2017": skin.isic2017,
    "isic2018": skin.isic2018,
    "isic_archive": skin.isic_archive,
    "dermofit": skin.dermofit,
    "derm7pt": skin.derm7pt,
    "ph2": skin.ph2,
    "mednode": skin.mednode,
    "medmnist": arrays.medmnist,
}
