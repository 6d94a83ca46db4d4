"""Datasets by name: scikit-learn's digits, and those that torchvision downloads."""

from pathlib import Path

import numpy as np

from zetamix_lab.data.errors import DatasetNotFoundError
from zetamix_lab.data.source import Source, array_source
from zetamix_lab.data.splits import complete_splits
from zetamix_lab.text import reason

TORCHVISION = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
}


def digits_source() -> Source:
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, grey levels 0-16 scaled to 0-255."""
    # imported here because it takes 0.9 s, and only the first load needs it
    from sklearn.datasets import load_digits

    bunch = load_digits()
    samples = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    origin = "handwritten digits of scikit-learn (UCI, optical recognition, 8 × 8)"
    source = array_source("digits", "0123456789", {"train": (samples, bunch.target)}, origin)
    return complete_splits(source, origin="digits")


def torchvision_source(name: str, *roots: Path) -> Source:
    """The official splits of `name`, whose files are in one of these folders."""
    # imported here because it takes 1 s, and prepared data needs none of it
    import torchvision.datasets

    kind, why = getattr(torchvision.datasets, TORCHVISION[name]), ""
    for root in roots:
        try:
            # verifies its checksums first
            parts = {"train": kind(root, train=True), "test": kind(root, train=False)}
        except (RuntimeError, OSError, ValueError) as error:
            why = reason(error)
            continue
        # torchvision calls the digits "0 - zero" and so on
        classes = [label.split(" - ")[0] for label in parts["train"].classes]
        arrays = {}
        for split, part in parts.items():
            images = np.asarray(part.data)
            # [n, c, h, w] of [n, h, w] or [n, h, w, c]
            images = np.moveaxis(images, 3, 1) if images.ndim == 4 else images[:, None]
            arrays[split] = (images, np.asarray(part.targets))
        return array_source(name, classes, arrays, f"torchvision's files in {root}")
    raise DatasetNotFoundError(
        f'{name} is not in {roots[0]} ({why}). Download it with: python -c "from '
        f"torchvision.datasets import {TORCHVISION[name]} as c; c('{roots[0]}', download=True)\""
    )
