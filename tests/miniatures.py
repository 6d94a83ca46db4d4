"""Miniatures: a few images of every dataset of the catalogue, in its exact layout on disk.

    with miniatures.installed("cifar10", "uda", data_dir=tmp_path):
        dataset = paper.datasets.load("cifar10")

`build` writes one and returns the `DatasetSpec` that describes it: the catalogue's, with other
sizes and checksums. Every image shows its class: its red (or grey) is `shade(label, classes)`.
"""

import csv
import gzip
import hashlib
import os
import pickle
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from paper import datasets
from paper.datasets import CATALOGUE, DatasetSpec
from zetamix_lab import data
from zetamix_lab.data import DataError, Dataset, DatasetNotFoundError

Counts = dict[str, list[int]]
BCC, NEVUS, MELANOMA, SK = "basal cell carcinoma", "nevus", "melanoma", "seborrheic keratosis"
COUNTS = {"cat": 10, "dog": 7, "owl": 5}
# the index of the first image of a split, so that no two splits share an image
FIRST = {"train": 0, "val": 100, "test": 150}


def build(name: str, data_dir: Path, *, packed: bool = False) -> DatasetSpec:
    """Write the miniature of a dataset into `data_dir`, as its archives if `packed`."""
    spec = CATALOGUE[name]
    base = data_dir / spec.folder
    base.mkdir(parents=True, exist_ok=True)
    counts = _builder(spec)(spec, base)
    checksums = {file: md5_of(base / file) for file in spec.checksums}
    if packed:
        for file in spec.files:
            if file.unpacks_to and (base / file.unpacks_to).exists():
                pack(base / file.unpacks_to, base / file.path)
    files = [
        replace(file, md5=md5_of(base / file.path))
        if file.md5 is not None and (base / file.path).exists()
        else file
        for file in spec.files
    ]
    by_split = {split: tuple(sizes) for split, sizes in counts.items()}
    described = {"counts": by_split, "sizes": sizes_of(counts), "checksums": checksums}
    return replace(spec, files=tuple(files), **described)


@contextmanager
def installed(
    *names: str, data_dir: Path, packed: bool = False
) -> Iterator[dict[str, DatasetSpec]]:
    """Build miniatures in `data_dir` and let the catalogue describe them."""
    specs = {name: build(name, data_dir, packed=packed) for name in names}
    with mock.patch.dict(CATALOGUE, specs), mock.patch.dict(os.environ, ZETAMIX_DATA=str(data_dir)):
        yield specs


def sizes_of(counts: Counts) -> dict[str, int]:
    """Sizes of the splits; created splits by the 70/10/20 recipe, written out once more."""
    if "all" not in counts:
        return {split: sum(sizes) for split, sizes in counts.items()}
    total = sum(counts["all"])
    away = -(-3 * total // 10)
    val = -(-away // 3)
    return {"train": total - away, "val": val, "test": away - val}


def shade(label: int, classes: int) -> int:
    """The red or grey of a class, far enough from its neighbours to survive a JPEG."""
    step = 200 // classes
    return step * label + step // 2


def picture(label: int, classes: int, index: int, size: tuple[int, int] = (30, 24)) -> np.ndarray:
    """[height, width, 3]: red is the class, green the index, blue grows from top to bottom."""
    width, height = size
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = shade(label, classes)
    image[..., 1] = 37 * index % 256
    image[..., 2] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    return image


def grey(label: int, classes: int, index: int, side: int = 28) -> np.ndarray:
    """[side, side]: the class, except in the last row, which counts up."""
    image = np.full((side, side), shade(label, classes), np.uint8)
    image[-1] = (np.arange(side) + index) % 256
    return image


def save(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, quality=95)


def split_sizes(dataset: Dataset) -> dict[str, int]:
    return {name: len(split) for name, split in dataset.splits.items()}


def check_shades(dataset: Dataset) -> None:
    """Every image has the shade of its class in its upper left corner."""
    for split in dataset.splits.values():
        expected = [shade(int(label), dataset.num_classes) for label in split.labels]
        actual = split.samples[:, 0, 2, 2].tolist()
        tolerance = 100 // dataset.num_classes
        assert all(abs(a - b) <= tolerance for a, b in zip(actual, expected, strict=True))


def prepared(data_dir: Path) -> list[Path]:
    """The folders of prepared datasets."""
    return [path for path in sorted((data_dir / "prepared").glob("*")) if path.is_dir()]


def class_folders(path: Path, counts: Mapping[str, int] = COUNTS, first: int = 0) -> Path:
    """A user's folder with one subfolder per class."""
    for label, (name, count) in enumerate(counts.items()):
        for k in range(count):
            save(path / name / f"{k}.png", picture(label, max(2, len(counts)), first + k))
    return path


def split_folders(path: Path) -> Path:
    """A user's folder with three splits of two classes, one distinct image each."""
    for k, split in enumerate(("train", "val", "test")):
        class_folders(path / split, {"a": 1, "b": 1}, first=10 * k)
    return path


def refuses(
    dataset: DatasetSpec | str | Path,
    data_dir: Path,
    *messages: str,
    kind: type = DataError,
    **options: object,
) -> None:
    """`load` raises an error with these patterns and leaves nothing behind; so does `check`."""
    module = datasets if isinstance(dataset, DatasetSpec) else data
    with pytest.raises(kind) as caught:
        module.load(dataset, data_dir, **options)
    for message in messages:
        assert re.search(message, str(caught.value)), caught.value
    assert prepared(data_dir) == []
    if module is data and kind is DataError and not options:
        with suppress(DataError):
            assert not data.check(dataset, data_dir).ok


not_found = partial(refuses, kind=DatasetNotFoundError)


class Attack:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return self.path.write_text, ("gotcha",)


def write_csv(path: Path, rows: Sequence[Sequence[object]], delimiter: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def md5_of(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def pack(content: Path, archive: Path) -> None:
    """Replace content by the archive it would come from."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for file in sorted(content.rglob("*")):
                packed.write(file, file.relative_to(content.parent))
    elif content.is_dir():
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(content, content.name)
    else:
        archive.write_bytes(gzip.compress(content.read_bytes()))
    shutil.rmtree(content) if content.is_dir() else content.unlink()


def labels_of(counts: Sequence[int]) -> list[int]:
    """Labels with these counts, dealt out like cards: not in order of classes."""
    left = list(counts)
    labels: list[int] = []
    while any(left):
        labels += [label for label, count in enumerate(left) if count]
        left = [max(0, count - 1) for count in left]
    return labels


def pictures(labels: Sequence[int], classes: int, split: str, side: int) -> np.ndarray:
    """[n, side, side, 3]: one picture per label."""
    numbered = enumerate(labels, FIRST[split])
    return np.stack([picture(label, classes, k, (side, side)) for k, label in numbered])


def idx(spec: DatasetSpec, base: Path) -> Counts:
    counts = {"train": [3] * 9 + [4], "test": [2] * 10}
    files = iter(spec.files)
    for split in counts:
        labels = labels_of(counts[split])
        images = np.stack([grey(label, 10, k) for k, label in enumerate(labels, FIRST[split])])
        for header, content in (
            ([2051, len(images), 28, 28], images.tobytes()),
            ([2049, len(labels)], bytes(labels)),
        ):
            path = base / next(files).unpacks_to
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(n.to_bytes(4, "big") for n in header) + content)
    return counts


def cifar(spec: DatasetSpec, base: Path) -> Counts:
    folder = base / spec.files[0].unpacks_to
    folder.mkdir()
    classes = len(spec.classes)
    hundred = classes == 100
    counts = {"train": [1 if hundred else 5] * classes, "test": [1 if hundred else 2] * classes}

    def batch(labels: Sequence[int], split: str) -> dict[str, object]:
        data = pictures(labels, classes, split, 32).transpose(0, 3, 1, 2).reshape(-1, 3072)
        return {"data": data, "fine_labels" if hundred else "labels": list(labels)}

    train, test = labels_of(counts["train"]), labels_of(counts["test"])
    files: dict[str, object] = {"train": batch(train, "train"), "test": batch(test, "test")}
    files["meta"] = {"fine_label_names": list(spec.classes)}
    if not hundred:
        files = {f"data_batch_{k + 1}": batch(train[10 * k :][:10], "train") for k in range(5)}
        files["test_batch"] = batch(test, "test")
        files["batches.meta"] = {"label_names": list(spec.classes)}
    for name, content in files.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return counts


def stl10(spec: DatasetSpec, base: Path) -> Counts:
    folder = base / spec.files[0].unpacks_to
    folder.mkdir()
    counts = {"train": [2] * 10, "test": [1] * 9 + [2]}
    for split in counts:
        labels = labels_of(counts[split])
        # planes of colour, each column by column
        images = pictures(labels, 10, split, 96).transpose(0, 3, 2, 1)
        images.tofile(folder / f"{split}_X.bin")
        (np.array(labels, np.uint8) + 1).tofile(folder / f"{split}_y.bin")
    return counts


def imagenet_subset(spec: DatasetSpec, base: Path) -> Counts:
    folder = base / spec.files[0].unpacks_to
    wnids = list(spec.labels)
    counts = {"train": [2] * 9 + [3], "test": [1] * 10}
    for split, name in (("train", "train"), ("test", "val")):
        for label, wnid in enumerate(wnids):
            for k in range(counts[split][label]):
                image = picture(label, 10, k + FIRST[split], (40 + k, 30))
                save(folder / name / wnid / f"{wnid}_{k}.JPEG", image)
    # some of ImageNet is grey
    first = folder / "train" / wnids[0] / f"{wnids[0]}_0.JPEG"
    save(first, np.full((30, 40), shade(0, 10), np.uint8))
    write_csv(folder / f"noisy_{spec.name}.csv", [["path", "noisy_labels_0", "is_valid"]])
    return counts


# by split, the images of each class; of 2018, of each code in the order of the labels
ISIC = {
    "isic2016": {"train": [5, 3], "test": [3, 2]},
    "isic2017": {"train": [5, 3, 2], "val": [2, 1, 1], "test": [3, 2, 2]},
    "isic2018": {
        "train": [6, 5, 4, 4, 2, 2, 1],
        "val": [2, 1, 1, 1, 1, 0, 1],
        "test": [3] + [1] * 6,
    },
}


def isic_challenge(spec: DatasetSpec, base: Path) -> Counts:
    """A folder of photographs and a table for each split, among files that are no photographs.

    The table of 2016 has the class, in words or numbers; the others a column of 0 and 1 for each.
    """
    counts = {}
    kinds = list(spec.labels) if spec.name == "isic2018" else spec.classes
    for split, images, table in zip(spec.sizes, spec.files[::2], spec.files[1::2], strict=True):
        found = [kinds[k] for k in labels_of(ISIC[spec.name][split])]
        labels = [spec.classes.index(spec.labels.get(kind, kind)) for kind in found]
        counts[split] = [labels.count(label) for label in range(len(spec.classes))]
        names = [f"ISIC_{FIRST[split]:03d}{k:04d}" for k in range(len(labels))]
        folder, path = base / images.content, base / table.content
        for k, (name, label) in enumerate(zip(names, labels, strict=True), FIRST[split]):
            save(folder / f"{name}.jpg", picture(label, len(spec.classes), k))
            save(folder / f"{name}_superpixels.png", np.zeros((24, 30, 3), np.uint8))
        rows: list[list[object]] = [["image_id", *map(str.upper, spec.labels)]]
        for name, kind, label in zip(names, found, labels, strict=True):
            marks = (float(kind in pair) for pair in spec.labels.items())
            words = [kind if split == "train" else f"{label}.0"]
            rows.append([name, *(words if spec.name == "isic2016" else marks)])
        path = path / f"{path.name}.csv" if table.unpacks_to else path
        write_csv(path, rows[1:] if spec.name == "isic2016" else rows)
    return counts


# label, number of images, cells of the table
MSK = (
    (0, 10, ("Benign", "Benign melanocytic proliferations", "Nevus", "", "")),
    (1, 6, ("Malignant", "Malignant melanocytic proliferations", "Melanoma, NOS", "", "")),
    (1, 4, ("Malignant", "Malignant melanocytic proliferations", "Melanoma Invasive", "", "")),
    (2, 8, ("Benign", "Benign epidermal proliferations", "Seborrheic keratosis", "", "")),
    (3, 5, ("Malignant", "Malignant epidermal proliferations", "Basal cell carcinoma", "", "")),
    (3, 3, ("Benign", "Flat melanotic pigmentations", "Lentigo NOS", "", "")),
    (0, 2, ("", "", "", "", "")),
    (0, 1, ("Indeterminate", "", "", "", "")),
)
UDA = (
    *((0, 12, ("benign", NEVUS)), (1, 9, ("malignant", MELANOMA)), (0, 2, ("malignant", SK))),
    *((0, 1, ("malignant", diagnosis)) for diagnosis in ("angioma", "unknown", "")),
)


def isic_archive(spec: DatasetSpec, base: Path) -> Counts:
    """MSK as the archive's tool writes it today: diagnoses in up to five levels.

    UDA as in 2021: one diagnosis in lower case, images in a folder for each collection.
    """
    msk = spec.name == "msk"
    rows: list[list[str]] = []
    for label, count, cells in MSK if msk else UDA:
        for _ in range(count):
            k = len(rows)
            folder = "." if msk else "ISIC_UDA-1_1" if k % 3 else "ISIC_UDA-2_1"
            save(base / folder / f"ISIC_{k:07d}.jpg", picture(label, len(spec.classes), k))
            rows.append([f"ISIC_{k:07d}", *cells])
    diagnoses = [f"diagnosis_{k}" for k in range(1, 6)]
    header = diagnoses if msk else ["benign_malignant", "diagnosis"]
    write_csv(base / "metadata.csv", [["isic_id", *header], *rows])
    return {"all": [10, 10, 8, 8] if msk else [12, 9]}


def dermofit(spec: DatasetSpec, base: Path) -> Counts:
    """A folder for each code, with a mask beside each photograph."""
    counts = [0] * 5
    for code, diagnosis in spec.labels.items():
        label = spec.classes.index(diagnosis)
        for k in range(10 if label < 4 else 2):
            name = f"{code[0]}{sum(counts):03d}"
            folder = base / code / (name if k % 2 else "")
            save(folder / f"{name}.png", picture(label, 5, sum(counts)))
            save(folder / f"{name}mask.png", np.zeros((24, 30), np.uint8))
            counts[label] += 1
    return {"all": counts}


def derm7pt(spec: DatasetSpec, base: Path) -> Counts:
    """One table for both kinds of photographs; some names differ from the files in case."""
    release = base / "release_v0"
    counts = [0] * 5
    rows: list[list[object]] = [["case_num", "diagnosis", "sex", "clinic", "derm", "notes"]]
    for diagnosis, name in spec.labels.items():
        label = spec.classes.index(name)
        for _ in range(12 if diagnosis == BCC or name == SK else 3):
            k = sum(counts)
            derm = f"Aal/Aal{k:03d}.jpg"
            # nine real cases have one photograph for both
            clinic = f"NEL/Nel{k:03d}.JPG" if k else derm
            rows.append([k + 1, diagnosis, "male", clinic, derm, ""])
            counts[label] += 1
            # the table says NEL/Nel001.JPG, the disk nel/nel001.jpg
            for photo in {derm, clinic.lower() if k else derm}:
                save(release / "images" / photo, picture(label, 5, k))
    write_csv(release / "meta" / "meta.csv", rows)
    return {"all": counts}


def ph2(spec: DatasetSpec, base: Path) -> Counts:
    release = base / "PH2Dataset"
    lines = ["||   Name || Histological Diagnosis || Clinical Diagnosis || Asymmetry | Streaks ||"]
    for k, code in enumerate([0] * 8 + [1] * 7 + [2] * 6):
        name = f"IMD{k + 2:03d}"
        case = release / "PH2 Dataset images" / name
        save(case / f"{name}_Dermoscopic_Image" / f"{name}.bmp", picture(int(code == 2), 2, k))
        save(case / f"{name}_lesion" / f"{name}_lesion.bmp", np.zeros((24, 30), np.uint8))
        histology = "Melanoma" if code == 2 else ""
        lines.append(f"|| {name} || {histology:22} || {code:18} || 0 | A ||")
    legend = ["", "Histological Diagnosis:", "0 - Common Nevus;", "2 - Melanoma.", ""]
    (release / "PH2_dataset.txt").write_text("\r\n".join(lines + legend))
    return {"all": [15, 6]}


def mednode(spec: DatasetSpec, base: Path) -> Counts:
    release = base / "complete_mednode_dataset"
    for label, (folder, count) in enumerate((("naevus", 13), ("melanoma", 10))):
        for k in range(count):
            save(release / folder / f"{1000 + k}.jpg", picture(label, 2, k, (30 + k, 24 + 2 * k)))
    return {"all": [13, 10]}


def medmnist(spec: DatasetSpec, base: Path) -> Counts:
    classes = len(spec.classes)
    counts = {"train": [3] * classes, "val": [1] * classes, "test": [2] * (classes - 1) + [3]}
    write_npz(base / spec.files[0].path, counts, spec.shape)
    return counts


def write_npz(path: Path, counts: Counts, shape: tuple[int, ...]) -> Path:
    """A file in the layout of MedMNIST: grey images [n, h, w], labels [n, 1]."""
    arrays = {}
    for split, sizes in counts.items():
        labels = labels_of(sizes)
        numbered = enumerate(labels, FIRST[split])
        if shape[0] == 1:
            images = [grey(label, len(sizes), k, shape[1]) for k, label in numbered]
        else:
            size = (shape[2], shape[1])
            images = [picture(label, len(sizes), k, size) for k, label in numbered]
        arrays[f"{split}_images"] = np.stack(images)
        arrays[f"{split}_labels"] = np.array(labels, np.uint8)[:, None]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


_OWN = (stl10, imagenet_subset, isic_archive, dermofit, derm7pt, ph2, mednode, medmnist)
BUILDERS: dict[str, Callable[[DatasetSpec, Path], Counts]] = {
    **{builder.__name__: builder for builder in _OWN},
    **dict.fromkeys(ISIC, isic_challenge),
}


def _builder(spec: DatasetSpec) -> Callable[[DatasetSpec, Path], Counts]:
    if spec.reader == "torchvision_set":
        return cifar if spec.name.startswith("cifar") else idx
    return BUILDERS[spec.name if spec.reader == "label_folders" else spec.reader]


NAMES = tuple(name for name, spec in CATALOGUE.items() if spec.files)
