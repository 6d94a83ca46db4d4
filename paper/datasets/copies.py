"""Natural and medical images: official files, and copies as arrays or folders of classes.

A copy is used if the official files are missing. It must have their classes and sizes; the notes of
the dataset describe other differences.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from paper.datasets.catalogue import DatasetSpec
from paper.datasets.files import unpack
from zetamix_lab.atomic_io import hash_file
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.image_files import (
    NATIVE,
    LabelledFile,
    file_part,
    images_below,
    read_headers,
    subfolders,
)
from zetamix_lab.data.readers.arrays import NpzFile, npz_parts
from zetamix_lab.data.readers.torchvision_sets import torchvision_source
from zetamix_lab.data.source import Part, Progress, Source, array_part

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


def find_copy(spec: DatasetSpec, data_dir: Path) -> Path | None:
    """NAME.npz, or a folder or archive NAME or NAME_… with folders of splits and classes."""
    folders = (data_dir, data_dir / spec.subfolder)
    arrays = [folder / f"{spec.name}.npz" for folder in folders]
    named = [path for folder in folders for path in sorted(folder.glob(f"{spec.name}*"))]
    candidates = (*arrays, *filter(lambda path: _is_named(spec, path), named))
    return next((path for path in candidates if _is_copy(path)), None)


def _is_named(spec: DatasetSpec, path: Path) -> bool:
    rest = _without_suffix(path).name.removeprefix(spec.name)
    return rest[:1] in ("", "_", "-")


def _is_copy(path: Path) -> bool:
    if path.is_dir():
        return _root(path) is not None
    return path.is_file() and path.name.endswith((*ARCHIVES, ".npz"))


def _without_suffix(path: Path) -> Path:
    suffix = next((end for end in reversed(ARCHIVES) if path.name.endswith(end)), "")
    return path.with_name(path.name.removesuffix(suffix))


def _root(folder: Path) -> Path | None:
    """The folder that holds `train`: the given one, or one in it."""
    candidates = (folder, *sorted(folder.glob("*")))
    return next((path for path in candidates if (path / "train").is_dir()), None)


def read_copy(spec: DatasetSpec, path: Path, progress: Progress | None = None) -> Source:
    """The dataset from what `find_copy` found."""
    if path.suffix == ".npz":
        return npz_copy(spec, path)
    folder = _without_suffix(path)
    if not folder.exists():
        unpack(path, folder, progress)
    root = _root(folder)
    if root is None:
        raise DataError(f"{path} cannot replace {spec.title}: expected {_layout(spec)}.")
    return folder_source(spec, root, f"read from folders of classes in {root.name}, unverified")


def folder_source(spec: DatasetSpec, root: Path, *notes: str) -> Source:
    """Images in `split/class/…`; those that already have the dataset's size are not resized.

    Imagenette and Imagewoof are published in this layout, with images of different sizes.

    notes: notes for images that do not have the dataset's size.
    """
    splits = {split: _label_classes(spec, _split_folder(spec, root, split)) for split in spec.sizes}
    fit = spec.fit
    if _is_resized(spec, [item.file for items in splits.values() for item in items]):
        fit, size = NATIVE, f"{spec.shape[2]} × {spec.shape[1]} pixels"
        crop = spec.fit.crop and f"; the paper's crop, {spec.fit.describe()}, is not applied"
        notes = (f"copies of {size}, used as they are, not the original files{crop or ''}",)
    parts = {split: file_part(items, spec.shape, fit, root) for split, items in splits.items()}
    return spec.source(parts, f"{root}, folders of splits and classes", *notes)


def _is_resized(spec: DatasetSpec, files: Sequence[Path]) -> bool:
    """Whether most images have the dataset's size; decoding then reports the others."""
    same = [h is not None and (h.height, h.width) == spec.shape[1:] for h in read_headers(files)]
    return 2 * sum(same) > len(same)


def _split_folder(spec: DatasetSpec, root: Path, split: str) -> Path:
    """Imagenette calls its test split val, as there is no other."""
    names = [split, "val"] if split == "test" and "val" not in spec.sizes else [split]
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise DataError(f"{root}: no folder {names[0]}; expected {_layout(spec)}.")


def _label_classes(spec: DatasetSpec, folder: Path) -> list[LabelledFile]:
    labels = _class_names(spec)
    found = {path: labels.get(_plain(path.name)) for path in subfolders(folder)}
    unknown = [path.name for path, label in found.items() if label is None]
    missing = [name for label, name in enumerate(spec.classes) if label not in found.values()]
    if unknown or missing:
        problems = [f"missing {', '.join(missing)}"] if missing else []
        problems += [f"unexpected {', '.join(unknown)}"] if unknown else []
        raise DataError(f"{folder}: {'; '.join(problems)}. Expected {_layout(spec)}.")
    return [
        LabelledFile(file, label)
        for path, label in found.items()
        if label is not None
        for file in images_below(path)
    ]


def _class_names(spec: DatasetSpec) -> Mapping[str, int]:
    """The label of every name of a class: its own, and those in the official label files."""
    own = {_plain(name): label for label, name in enumerate(spec.classes)}
    return own | {_plain(name): spec.classes.index(to) for name, to in spec.labels.items()}


def _plain(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")


def _layout(spec: DatasetSpec) -> str:
    names = ", ".join(spec.labels or spec.classes)
    return f"{'|'.join(spec.sizes)}/class/… with a folder for each class of {spec.title} ({names})"


def medmnist(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """One of MedMNIST's own files, or a copy of it that was saved again."""
    path = base / spec.files[0].path
    if hash_file(path, "md5") != spec.files[0].md5:
        return npz_copy(spec, path)
    return spec.source(npz_parts(NpzFile(path, spec.classes)), f"official file {path}")


def npz_copy(spec: DatasetSpec, path: Path) -> Source:
    """NAME.npz instead of a dataset's official files; it must have the same sizes."""
    file = NpzFile(path, spec.classes)
    if file.shape != spec.shape:
        raise DataError(
            f"{path} cannot replace {spec.title}: expected samples of shape {list(spec.shape)}, "
            f"got {list(file.shape)}. To use it as your own data, pass its path to zetamix."
        )
    note = f"read from {path.name} instead of the official files, without a checksum"
    if spec.content_md5 and content_md5(file) == spec.content_md5:
        note = (
            f"{path.name} is a copy of the official file that was saved again: its md5 differs, "
            "its images and labels are identical"
        )
    return spec.source(npz_parts(file), f"{path}, .npz in the MedMNIST layout", note)


def content_md5(file: NpzFile) -> str:
    """md5 of the images and labels of each split, which does not depend on the zip file."""
    digest = hashlib.md5(usedforsecurity=False)
    for split in file.splits:
        digest.update(np.ascontiguousarray(file.images[split]).data)
        digest.update(file.labels[split].astype(np.uint8).data)
    return digest.hexdigest()


def torchvision_set(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """MNIST, Fashion-MNIST and CIFAR, read by torchvision."""
    return spec.source(torchvision_source(spec.name, base).parts, f"official files in {base}")


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

    return spec.source({"train": read("train"), "test": read("test")}, f"official files in {base}")


def imagenet_subset(spec: DatasetSpec, base: Path, seed: int) -> Source:
    """Imagenette and Imagewoof: `train` and `val`, one folder per class."""
    return folder_source(spec, base / spec.files[0].content)


READERS = {
    reader.__name__: reader for reader in (medmnist, torchvision_set, stl10, imagenet_subset)
}
