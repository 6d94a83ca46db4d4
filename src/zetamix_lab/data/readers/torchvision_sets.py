"""Natural images in torchvision's layouts: idx files, CIFAR pickles, STL-10, WordNet folders."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from zetamix_lab.data.catalogue import DatasetSpec
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.readers.copies import folder_source
from zetamix_lab.data.source import Part, Source, array_part


def _source(spec: DatasetSpec, base: Path, train: Part, test: Part) -> Source:
    return spec.source({"train": train, "test": test}, f"official files in {base}")


def idx(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """MNIST and Fashion-MNIST, read by torchvision."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    folder = base / Path(spec.files[0].content).parent

    def read(prefix: str) -> Part:
        labels = read_label_file(str(folder / f"{prefix}-labels-idx1-ubyte")).numpy()
        images = str(folder / f"{prefix}-images-idx3-ubyte")
        return array_part(labels, read_image_file(images).numpy()[:, None])

    return _source(spec, base, read("train"), read("t10k"))


class ArrayUnpickler(pickle.Unpickler):
    """Loads arrays and plain values; raises for a pickle that refers to anything else."""

    ALLOWED = frozenset(
        ("numpy._core.multiarray _reconstruct", "numpy ndarray", "numpy dtype", "_codecs encode")
    )

    def find_class(self, module: str, name: str) -> Any:
        # numpy 2 has moved it
        module = module.replace("numpy.core", "numpy._core")
        if f"{module} {name}" not in self.ALLOWED:
            raise DataError(
                f"Expected arrays in a CIFAR file, got {module}.{name}. The file was not loaded."
            )
        return super().find_class(module, name)


def cifar(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """CIFAR-10 and CIFAR-100, which are pickles whose checksums have been verified."""
    folder = base / spec.files[0].content
    names = [Path(name).name for name in spec.checksums]
    label, meta, key = "labels", "batches.meta", "label_names"
    if len(spec.classes) == 100:
        label, meta, key = "fine_labels", "meta", "fine_label_names"

    def unpickle(name: str) -> dict[str, Any]:
        with (folder / name).open("rb") as file:
            batch: dict[str, Any] = ArrayUnpickler(file, encoding="latin1").load()
        return batch

    def read(*prefixes: str) -> Part:
        batches = [unpickle(name) for name in names if name.startswith(prefixes)]
        samples = np.concatenate([batch["data"] for batch in batches]).reshape(-1, *spec.shape)
        labels = np.concatenate([batch[label] for batch in batches])
        return array_part(labels, samples)

    classes = tuple(unpickle(meta)[key])
    if classes != spec.classes:
        raise DataError(f"{folder} has other classes than {spec.title}: {', '.join(classes)}.")
    return _source(spec, base, read("data_batch", "train"), read("test"))


def stl10(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """STL-10 without its unlabelled images, which torchvision requires."""
    folder = base / spec.files[0].content
    sample_bytes = int(np.prod(spec.shape))

    def read(split: str) -> Part:
        labels_file, images_file = folder / f"{split}_y.bin", folder / f"{split}_X.bin"
        labels = np.fromfile(labels_file, np.uint8).astype(np.int64)
        outside = (labels < 1) | (labels > len(spec.classes))
        if outside.any():
            row = int(outside.argmax())
            raise DataError(
                f"{labels_file}, row {row}: label {labels[row]}; expected 1 to {len(spec.classes)}."
            )
        if images_file.stat().st_size != len(labels) * sample_bytes:
            raise DataError(
                f"{images_file} has {images_file.stat().st_size:,} bytes; expected "
                f"{len(labels):,} images of {sample_bytes:,} bytes."
            )

        # stored column by column
        images = np.fromfile(images_file, np.uint8).reshape(-1, *spec.shape)
        return array_part(labels - 1, images.swapaxes(2, 3))

    return _source(spec, base, read("train"), read("test"))


def imagenet_subset(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Imagenette and Imagewoof: `train` and `val`, one folder per class."""
    return folder_source(spec, base / spec.files[0].content)


READERS = {reader.__name__: reader for reader in (idx, cifar, stl10, imagenet_subset)}
