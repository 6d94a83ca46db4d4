"""Datasets of torchvision by name, from the files that it downloads."""

from pathlib import Path

import numpy as np

from zetamix_lab.data.errors import DatasetNotFoundError
from zetamix_lab.data.source import Part, Source, array_part
from zetamix_lab.text import reason

TORCHVISION = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
}


def torchvision_source(name: str, *roots: Path) -> Source:
    """The official splits of `name`, whose files are in one of these folders."""
    # imported here because it takes 1 s, and prepared data needs none of it
    import torchvision.datasets

    kind = getattr(torchvision.datasets, TORCHVISION[name])
    for root in roots:
        try:
            # verifies its checksums first
            parts = {"train": kind(root, train=True), "test": kind(root, train=False)}
        except (RuntimeError, OSError, ValueError) as error:
            why = reason(error)
            continue
        # torchvision calls the digits "0 - zero" and so on
        classes = tuple(label.split(" - ")[0] for label in parts["train"].classes)
        samples = {split: _channels_first(np.asarray(part.data)) for split, part in parts.items()}
        return Source(
            name,
            classes,
            samples["train"].shape[1:],
            "uint8",
            {split: _part(part.targets, samples[split]) for split, part in parts.items()},
            f"torchvision's files in {root}",
        )
    raise DatasetNotFoundError(
        f'{name} is not in {roots[0]} ({why}). Download it with: python -c "from '
        f"torchvision.datasets import {TORCHVISION[name]} as c; c('{roots[0]}', download=True)\""
    )


def _part(labels: object, samples: np.ndarray) -> Part:
    return array_part(np.asarray(labels), samples)


def _channels_first(images: np.ndarray) -> np.ndarray:
    """[n, c, h, w] of [n, h, w] or [n, h, w, c]."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
