"""Natural images: idx files, CIFAR pickles, STL-10 binaries, folders named by WordNet."""

from pathlib import Path
from typing import Any

import numpy as np

from zetamix.data.catalogue.natural import IMAGENETTE, IMAGEWOOF
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.errors import DataError
from zetamix.data.image_files import file_part, is_image
from zetamix.data.readers.labelled import source_of
from zetamix.data.source import Array, Part, Source, array_part


def idx(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """MNIST and Fashion-MNIST, read by torchvision."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    def read(prefix: str) -> Part:
        folder = base / Path(spec.archives[0].result).parent
        labels = read_label_file(str(folder / f"{prefix}-labels-idx1-ubyte")).numpy()
        images = str(folder / f"{prefix}-images-idx3-ubyte")
        return array_part(labels, lambda: read_image_file(images).numpy()[:, None])

    return source_of(spec, base, {"train": read("train"), "test": read("t10k")})


def cifar(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """CIFAR-10 and CIFAR-100, read by torchvision, which unpickles only what has the right md5."""
    from torchvision.datasets import CIFAR10, CIFAR100

    folder = spec.archives[0].result
    kind = CIFAR100 if folder == CIFAR100.base_folder else CIFAR10

    def with_md5(names: list[Any]) -> list[list[str]]:
        return [[name, spec.checksums[f"{folder}/{name}"]] for name, _ in names]

    meta = kind.meta | {"md5": spec.checksums[f"{folder}/{kind.meta['filename']}"]}
    lists = {"train_list": with_md5(kind.train_list), "test_list": with_md5(kind.test_list)}
    checked = type(kind.__name__, (kind,), {**lists, "meta": meta})

    def read(train: bool) -> Part:
        found = checked(base, train=train)
        if tuple(found.classes) != spec.classes:
            raise DataError(
                f"{base / folder} names other classes than {spec.title} has: {found.classes}."
            )
        samples = np.moveaxis(found.data, 3, 1)
        return array_part(np.asarray(found.targets), lambda: samples)

    return source_of(spec, base, {"train": read(True), "test": read(False)})


def stl10(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """STL-10 without its unlabelled images, which torchvision insists on."""
    folder = base / spec.archives[0].result

    def read(split: str) -> Part:
        labels_file, images_file = folder / f"{split}_y.bin", folder / f"{split}_X.bin"
        labels = np.fromfile(labels_file, np.uint8).astype(np.int64)
        outside = (labels < 1) | (labels > len(spec.classes))
        if outside.any():
            row = int(outside.argmax())
            raise DataError(
                f"{labels_file}, row {row}: label {labels[row]}; expected 1 to {len(spec.classes)}."
            )
        each = int(np.prod(spec.shape))
        if images_file.stat().st_size != len(labels) * each:
            raise DataError(
                f"{images_file} has {images_file.stat().st_size:,} bytes; expected "
                f"{len(labels):,} images of {each:,} bytes."
            )

        def images() -> Array:
            # written column by column
            return np.swapaxes(np.fromfile(images_file, np.uint8).reshape(-1, *spec.shape), 2, 3)

        return array_part(labels - 1, images)

    return source_of(spec, base, {"train": read("train"), "test": read("test")})


def imagenet_subset(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Imagenette and Imagewoof: `train` and `val`, a folder for each class."""
    folder = base / spec.archives[0].result
    wnids = {"imagenette": IMAGENETTE, "imagewoof": IMAGEWOOF}[spec.name]

    def read(split: str) -> Part:
        place = folder / split
        found = {path.name for path in place.glob("*") if path.is_dir()}
        if found != set(wnids):
            wrong = ", ".join(sorted(found ^ set(wnids)))
            raise DataError(
                f"{place}: expected one folder for each of {', '.join(wnids)}; missing or not "
                f"known: {wrong}. Unpack {spec.archives[0].file} again."
            )
        files, labels = [], []
        for label, wnid in enumerate(wnids):
            images = sorted(filter(is_image, (place / wnid).iterdir()))
            files += images
            labels += [label] * len(images)
        return file_part(files, labels, spec.shape, spec.fit, base=base)

    # the archive calls its test split val, and so does the paper's text
    return source_of(spec, base, {"train": read("train"), "test": read("val")})
