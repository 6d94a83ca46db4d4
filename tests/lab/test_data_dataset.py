"""Splits and datasets, references to them, and their fingerprints."""

import importlib
import pickle
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from miniatures import class_folders, save

from zetamix_lab import data
from zetamix_lab.data import DatasetRef, load_cached

SAMPLES = torch.arange(40, dtype=torch.uint8).view(20, 1, 1, 2)
LABELS = torch.tensor([0] * 10 + [1] * 6 + [2] * 4)


def small(samples=SAMPLES, labels=LABELS, **options):
    return data.from_tensors("small", {"train": (samples, labels)}, **options)


def test_a_dataset_describes_its_splits_classes_and_shape():
    whole = small()
    split = whole.train
    assert (len(split), split.shape, split.counts().tolist()) == (20, (1, 1, 2), [10, 6, 4])
    assert torch.equal(split.take(torch.tensor([3, 1])), split.samples[[3, 1]])
    assert list(whole.splits) == ["train"]
    assert list(whole.holdout(0.1).splits) == ["train", "val"]
    assert (whole.val, whole.test) == (None, None)
    assert (whole.classes, whole.num_classes, whole.shape) == (("0", "1", "2"), 3, (1, 1, 2))


@pytest.mark.parametrize(
    ("size", "counts"), [(10, [5, 3, 2]), (0.5, [5, 3, 2]), (3, [1, 1, 1]), (1.0, [10, 6, 4])]
)
def test_a_subset_is_stratified_and_always_the_same(size, counts):
    split = small().train
    subset, again = split.subset(size), split.subset(size)
    assert subset.counts().tolist() == counts
    # samples and labels stay together
    label_of = dict(zip(split.samples[:, 0, 0, 0].tolist(), split.labels.tolist(), strict=True))
    firsts = subset.samples[:, 0, 0, 0].tolist()
    assert [label_of[first] for first in firsts] == subset.labels.tolist()
    assert torch.equal(subset.rows, again.rows)
    # only its rows are read
    inner = subset.subset(3)
    assert "samples" not in vars(inner)
    assert torch.equal(inner.take(torch.tensor([2])), inner.samples[2:])
    assert inner.pool.data_ptr() == split.pool.data_ptr()


def test_holdout_takes_val_from_train():
    whole = small()
    held = whole.holdout(0.3)
    assert held.val.counts().tolist() == [3, 2, 1]
    assert held.train.counts().tolist() == [7, 4, 3]
    assert sorted([*held.train.rows.tolist(), *held.val.rows.tolist()]) == list(range(20))
    assert len({each.fingerprint for each in (whole, held, whole.holdout(0.2))}) == 3
    assert whole.holdout(0.95).train.counts().tolist() == [1, 1, 1]
    assert held.notes == ("val: 6 samples held out of train, stratified (seed 0)",)


def test_a_holdout_keeps_duplicates_together_unless_they_are_a_whole_class():
    samples = torch.randint(256, (40, 1, 4, 4), dtype=torch.uint8).repeat(2, 1, 1, 1)
    dataset = small(samples, (torch.arange(40) % 2).repeat(2))
    parted = dataset.holdout(0.25)
    assert (len(parted.train), parted.val.counts().tolist()) == (60, [10, 10])
    train, val = (map(str, part.samples.tolist()) for part in (parted.train, parted.val))
    assert set(train).isdisjoint(val)
    one = small(torch.cat([torch.zeros(4, 2), torch.rand(4, 2)]), torch.arange(8) // 4)
    assert one.holdout(0.25).val.counts().tolist() == [1, 1]


def made(labels, split="train", count=2):
    return data.from_tensors("bad", {split: (torch.zeros(count, 1), torch.tensor(labels))})


REFUSED = [
    (lambda: made([0, 1], split="test"), "splits must be train and optionally"),
    (lambda: made([0, -1]), "train must have one label from 0"),
    (lambda: made([0, 1], count=3), "for each of its 3 samples"),
    (lambda: made([[0, 2], [1, 0]]), "train must have a row of 2 zeros and ones"),
    (
        lambda: small().train.subset(2),
        r"between 3 \(.*\) and 20 \(.*\), or be a fraction up to 1\.0, got 2",
    ),
    (lambda: small().train.subset(21), "got 21"),
    (lambda: small().train.subset(1.5), "got 1.5"),
    (lambda: small().train.subset(0.0), "got 0.0"),
    (lambda: small().holdout(0.1).holdout(0.1), "already has a validation split of 3"),
]


def test_invalid_arguments_are_refused():
    for call, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            call()


def test_the_fingerprint_is_of_classes_samples_labels_and_splits():
    changed = SAMPLES.clone()
    changed[7] += 1
    renamed = small(classes=["a", "b", "c"])
    moved = data.from_tensors("small", dict.fromkeys(["train", "test"], (SAMPLES, LABELS)))
    variants = [small(), small(), renamed, small(changed), small(labels=LABELS.flip(0)), moved]
    assert len({variant.fingerprint for variant in variants}) == 5


# computed with the code of commit 99cc921; committed records carry such fingerprints
def test_fingerprints_never_change(tmp_path):
    assert data.load("digits", tmp_path).fingerprint == "b1d3d39664fb6fc4"
    generator = np.random.default_rng(0)
    folder = tmp_path / "made"
    for name in ("cats", "dogs"):
        for k in range(12):
            pixels = generator.integers(0, 256, (10, 10, 3), dtype=np.uint8)
            save(folder / name / f"{k}.png", pixels)
        save(folder / name / "copy.png", pixels)
    assert data.load(folder, tmp_path).fingerprint == "9e8bd84b6dc0b409"
    assert data.load(folder, tmp_path, size=8).fingerprint == "af5d7919490360d4"
    images = generator.integers(0, 256, (40, 6, 6), dtype=np.uint8)
    images[5] = images[7]
    path = tmp_path / "arr.npz"
    np.savez(path, train_images=images, train_labels=np.arange(40) % 2)
    assert data.load(path, tmp_path).fingerprint == "aa7c435a7caf0a1d"


def test_a_reference_gives_the_same_part_in_every_process():
    ref = DatasetRef("digits", train_size=64)
    dataset = ref.load()
    again = load_cached(ref, dataset.fingerprint)
    assert len(dataset.train) == 64
    assert torch.equal(again.train.samples, dataset.train.samples)
    assert load_cached(DatasetRef("digits", 64), dataset.fingerprint) is again
    with pytest.raises(data.DataError, match="expected the fingerprint abc"):
        load_cached(ref, "abc")


def test_a_reference_has_absolute_paths(tmp_path, monkeypatch):
    class_folders(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    ref = DatasetRef("photos", 0.5, 32)
    assert ref == DatasetRef(tmp_path / "photos", 0.5, 32)
    assert ref.name == str(tmp_path / "photos")
    # a name of the catalogue stays one, even if there is a folder of that name
    (tmp_path / "digits").mkdir()
    assert DatasetRef("digits").name == "digits"
    assert pickle.loads(pickle.dumps(ref)) == ref


def test_a_missing_package_names_the_extra_to_install():
    with mock.patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.startswith(("zetamix_lab.data", "PIL"))]:
            del sys.modules[name]
        sys.modules["PIL"] = None
        with pytest.raises(ModuleNotFoundError, match=r"needs PIL.* pip install 'zetamix\[lab\]'"):
            importlib.import_module("zetamix_lab.data")
