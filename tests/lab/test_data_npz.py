"""A user's arrays: `.npz` files in the MedMNIST layout."""

import pickle
import zipfile

import numpy as np
import pytest
import torch
from miniatures import Attack, check_shades, refuses, save, split_sizes, write_npz

from zetamix_lab import data


def test_an_npz_of_images(tmp_path):
    counts = {"train": [8] * 3, "val": [1] * 3, "test": [2] * 3}
    dataset = data.load(write_npz(tmp_path / "own.npz", counts, (3, 9, 7)), tmp_path)
    assert (dataset.name, dataset.classes, dataset.shape) == ("own", ("0", "1", "2"), (3, 9, 7))
    assert split_sizes(dataset) == {"train": 24, "val": 3, "test": 6}
    check_shades(dataset)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8)])
def test_missing_splits_are_created(shape, tmp_path):
    path = write_npz(tmp_path / "own.npz", {"train": [10] * 3}, shape)
    dataset = data.load(path, tmp_path, seed=4)
    assert split_sizes(dataset) == {"train": 21, "val": 3, "test": 6}
    check_shades(dataset)
    assert "(seed 4)" in dataset.notes[0]


def test_points_and_names_of_classes(tmp_path):
    points, labels = np.arange(60, dtype=np.float64).reshape(20, 3), np.arange(20) % 2
    path = tmp_path / "points.npz"
    np.savez(path, train_images=points, train_labels=labels, classes=np.array(["low", "high"]))
    dataset = data.load(path, tmp_path)
    assert (dataset.shape, dataset.classes) == ((3,), ("low", "high"))
    assert dataset.train.samples.dtype == torch.float32
    row = int(dataset.train.samples[4, 0]) // 3
    assert dataset.train.labels[4] == row % 2


def test_duplicates_stay_in_one_created_split(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(30, 8, 8), dtype=np.uint8)
    path = tmp_path / "twice.npz"
    labels = np.tile(np.arange(30) % 2, 2)
    np.savez(path, train_images=np.tile(images, (2, 1, 1)), train_labels=labels)
    dataset, other = (data.load(path, tmp_path, seed=seed) for seed in (0, 1))
    assert split_sizes(dataset) == {"train": 42, "val": 6, "test": 12}
    assert not torch.equal(other.test.samples, dataset.test.samples)
    assert data.check(path, tmp_path).leaks == data.check(path, tmp_path, seed=1).leaks == 0


IMAGES, LABELS = np.zeros((6, 4, 4), np.uint8), np.array([0, 1, 0, 1, 0, 1])
OBJECTS = np.array([{"a": 1}] * 6, dtype=object)


def arrays(images=IMAGES, labels=LABELS, **more):
    return {"train_images": images, "train_labels": labels, **more}


INVALID = {
    "no train": (
        {"images": IMAGES},
        "contains images without the labels of train; expected the MedMNIST",
    ),
    "no labels": ({"train_images": IMAGES}, "contains train_images without the labels of train"),
    "int images": (arrays(IMAGES.astype(int)), r"train_images is \[6, 4, 4\], int64"),
    "channels first": (arrays(np.zeros((6, 3, 8, 8), np.uint8)), r"\[6, 3, 8, 8\], uint8"),
    "no image": (arrays(IMAGES[:0], LABELS[:0]), r"train_images is \[0, 4, 4\], uint8"),
    "fewer labels": (arrays(labels=LABELS[:5]), r"train_labels is \[5\], .* each of the 6 images"),
    "no 0/1 matrix": (arrays(labels=np.full((6, 14), 2)), r"train_labels is \[6, 14\], int64"),
    "negative label": (
        arrays(labels=np.array([0, 1, -1, 1, 0, 1])),
        "train_labels, row 2: label is -1; expected a class from 0",
    ),
    "gap": (arrays(labels=2 * LABELS, classes=np.array(list("abc"))), "class 'b' has no sample in"),
    "numbers": (arrays(labels=LABELS + 0.5), "targets of a regression. Expected classes"),
    "label without class": (
        arrays(classes=np.array(["a"])),
        "train_labels, row 1: label is 1; expected a class from 0 to 0",
    ),
    "label not in train": (
        arrays(test_images=IMAGES, test_labels=np.array([9, 1, 0, 1, 0, 1])),
        "class '9' has no sample in train",
    ),
    "other size": (
        arrays(test_images=np.zeros((6, 5, 5), np.uint8), test_labels=LABELS),
        r"test has samples of shape \[1, 5, 5\] .* train has \[1, 4, 4\]",
    ),
    "pickled images": (arrays(OBJECTS), "train_images cannot be read: [Oo]bject arrays"),
    "pickled labels": (arrays(labels=OBJECTS), "train_labels cannot be read: [Oo]bject arrays"),
    "not finite": (arrays(np.full((6, 2), np.nan)), "row 0 of train_images contains NaN"),
    "single image": (arrays(IMAGES[:4], np.array([0, 0, 0, 1])), "Class '1' of .* has 1 image"),
}


@pytest.mark.parametrize(("content", "message"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_npz_is_refused(content, message, tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **content)
    refuses(path, tmp_path, message, str(path))


def write_raw(path, shape, descr, content):
    """An .npz whose `train_images` has a header of its own."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    np.savez(path, train_labels=LABELS)
    with zipfile.ZipFile(path, "a") as archive:
        magic = b"\x93NUMPY\x01\x00v\x00"
        archive.writestr("train_images.npy", magic + header.encode() + content)


def test_an_npz_is_never_unpickled(tmp_path):
    path, touched = tmp_path / "own.npz", tmp_path / "touched"
    write_raw(path, "(6,)", "|O", pickle.dumps(Attack(touched)))
    refuses(path, tmp_path, str(path), "train_images cannot be read: [Oo]bject arrays")
    assert not touched.exists()


def test_a_header_that_promises_more_than_there_is(tmp_path):
    write_raw(tmp_path / "own.npz", "(1000000, 9999, 9999)", "|u1", bytes(16))
    refuses(tmp_path / "own.npz", tmp_path, "own.npz: train_images cannot be read")


@pytest.mark.parametrize("damage", ["cut", "flipped", "text"])
def test_a_damaged_npz_is_named(damage, tmp_path):
    path = tmp_path / "own.npz"
    images = np.arange(6 * 400 * 400, dtype=np.uint8).reshape(6, 400, 400)
    np.savez_compressed(path, train_images=images, train_labels=LABELS)
    content = path.read_bytes()
    middle = content.index(b"train_images.npy") + 600
    flipped = content[:middle] + bytes(64) + content[middle + 64 :]
    changed = {"cut": content[: len(content) // 2], "flipped": flipped, "text": b"hello"}
    path.write_bytes(changed[damage])
    refuses(path, tmp_path, f"{path}.* read")


def test_size_resizes_arrays_as_it_does_files(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(12, 20, 30, 3), dtype=np.uint8)
    path = tmp_path / "own.npz"
    np.savez(path, train_images=images, train_labels=np.arange(12) % 2)
    for row, image in enumerate(images):
        save(tmp_path / "files" / str(row % 2) / f"{row:02}.png", image)
    arrays, files = (data.load(tmp_path / name, tmp_path, size=8) for name in ("own.npz", "files"))
    assert arrays.shape == (3, 8, 8)
    every = [
        {sample.numpy().tobytes() for split in dataset.splits.values() for sample in split.samples}
        for dataset in (arrays, files)
    ]
    assert len(every[0]) == 12
    assert every[0] == every[1]
    assert data.load(path, tmp_path).shape == (3, 20, 30)


def test_size_is_not_for_points(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, train_images=np.random.default_rng(0).random((12, 5)), train_labels=[0, 1] * 6)
    refuses(path, tmp_path, "points of 5 coordinates; size is for images", size=8)


@pytest.mark.parametrize("channels", [(), (3,)])
def test_float_images_keep_their_range(channels, tmp_path):
    images = np.random.default_rng(0).normal(-300, 500, (12, 10, 8, *channels))
    path = tmp_path / "ct.npz"
    np.savez(path, train_images=images, train_labels=np.arange(12) % 2)
    dataset = data.load(path, tmp_path)
    assert dataset.train.samples.dtype == torch.float32
    assert dataset.shape == (len(channels) * 2 + 1, 10, 8)
    stored = {float(image.ravel()[0]) for image in images.astype(np.float32)}
    assert {float(image[0, 0, 0]) for image in dataset.train.samples} <= stored
    small = data.load(path, tmp_path, size=4)
    assert small.shape[1:] == (4, 4)
    # the mean of the centre square, and not clipped to bytes
    assert -500 < float(small.train.samples.mean()) < -100


def test_duplicates_of_different_classes_stay_in_one_created_split(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(60, 8, 8), dtype=np.uint8)
    images[40:] = images[:20]
    path = tmp_path / "conflicts.npz"
    np.savez(path, train_images=images, train_labels=np.repeat([0, 1], 30))
    report = data.check(path, tmp_path)
    assert (report.conflicts, report.leaks) == (20, 0)


@pytest.mark.parametrize(
    "names", ["x_train y_train", "X y", "data target", "images labels", "Train_Images train_label"]
)
def test_other_names_of_arrays(names, tmp_path):
    images = np.random.default_rng(0).integers(256, size=(30, 8, 8), dtype=np.uint8)
    samples, labels = names.split()
    np.savez(tmp_path / "own.npz", **{samples: images, labels: np.array(list("ab") * 15)})
    dataset = data.load(tmp_path / "own.npz", tmp_path)
    assert (dataset.classes, len(dataset.train)) == (("a", "b"), 21)


def test_a_member_that_is_no_array(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("classes", "cat dog")
    refuses(path, tmp_path, "classes is a file that is no array")
