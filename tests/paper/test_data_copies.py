"""Copies of catalogued datasets: arrays, folders of classes, archives of them."""

import shutil
import tarfile
from dataclasses import replace

import miniatures
import numpy as np
import pytest

from paper import datasets as data
from paper.datasets import CATALOGUE, status
from zetamix_lab.data import DataError

FOLDERS = ("nevus", "melanoma", "seborrheic_keratosis")
COUNTS = {"train": (3, 2, 2), "val": (1, 1, 1), "test": (2, 1, 1)}


def lesions(folder, counts=COUNTS, side=256):
    """A copy of ISIC 2017 as `split/class/…`, and the spec that describes it."""
    for split, sizes in counts.items():
        for label, (name, size) in enumerate(zip(FOLDERS, sizes, strict=True)):
            for index in range(size):
                image = miniatures.picture(
                    label, 3, index + miniatures.FIRST[split], size=(side, side)
                )
                miniatures.save(folder / split / name / f"ISIC_{index:07d}.jpg", image)
    sizes = {split: sum(row) for split, row in COUNTS.items()}
    return replace(CATALOGUE["isic2017"], counts=COUNTS, sizes=sizes)


def refuses(spec, data_dir, message):
    with pytest.raises(DataError, match=message):
        data.prepare(spec, data_dir)


@pytest.mark.parametrize("name", ["isic2017", "isic2017_256", "isic2017_256.tar", "isic2017.zip"])
def test_folders_of_classes_replace_the_official_files(name, tmp_path):
    spec = lesions(tmp_path / "made" / "isic2017")
    if name.endswith(("tar", "zip")):
        kind = name.rpartition(".")[2]
        shutil.make_archive(str(tmp_path / name.removesuffix(f".{kind}")), kind, tmp_path / "made")
    else:
        shutil.copytree(tmp_path / "made" / "isic2017", tmp_path / name)
    shutil.rmtree(tmp_path / "made")
    assert status(spec, tmp_path) == "files"
    dataset = data.prepare(spec, tmp_path)
    miniatures.check_shades(dataset)
    assert {name: tuple(part.counts().tolist()) for name, part in dataset.splits.items()} == COUNTS
    (note,) = [note for note in dataset.notes if note.startswith("copies of 256 × 256")]
    assert "crop" in note


def test_originals_in_folders_are_cropped_and_resized(tmp_path):
    spec = lesions(tmp_path / "isic2017", side=300)
    dataset = data.load(spec, tmp_path)
    assert dataset.shape == (3, 256, 256)
    assert not any("used as they are" in note for note in dataset.notes)
    # blue grows from 0 to 255 over the whole height; the crop leaves out a tenth at each end
    assert dataset.train.samples[0, 2, 0, 0] > 20


def test_wrong_copies_are_refused(tmp_path):
    spec = lesions(tmp_path / "a" / "isic2017", {**COUNTS, "train": (2, 3, 2)})
    refuses(spec, tmp_path / "a", "train has 2 of nevus instead of 3, 3 of melanoma instead of 2")
    lesions(tmp_path / "b" / "isic2017")
    (tmp_path / "b/isic2017/val/nevus").rename(tmp_path / "b/isic2017/val/freckle")
    refuses(spec, tmp_path / "b", "unexpected folder freckle; expected melanoma")
    lesions(tmp_path / "c" / "isic2017")
    shutil.rmtree(tmp_path / "c/isic2017/test")
    refuses(spec, tmp_path / "c", r"no folder test; expected train\|val\|test/class")
    lesions(tmp_path / "d" / "isic2017")
    miniatures.save(
        tmp_path / "d/isic2017/test/nevus/ISIC_0000000.jpg", miniatures.picture(0, 3, 0)
    )
    refuses(spec, tmp_path / "d", "ISIC_0000000.jpg: 30 × 24 pixels instead of 256 × 256")


def test_damaged_archives_are_refused(tmp_path):
    spec = lesions(tmp_path / "isic2017_copy" / "isic2017")
    whole = tmp_path / "whole.tar"
    with tarfile.open(whole, "w") as tar:
        tar.add(tmp_path / "isic2017_copy", arcname=".")
    shutil.rmtree(tmp_path / "isic2017_copy")
    (tmp_path / "isic2017_256.tar").write_bytes(whole.read_bytes()[:15_000])
    refuses(spec, tmp_path, "isic2017_256.tar cannot be unpacked")
    with tarfile.open(tmp_path / "isic2017_256.tar", "w") as tar:
        tar.add(__file__, arcname="isic2017/readme.py")
    refuses(spec, tmp_path, "isic2017_256.tar cannot replace ISIC 2017: expected train")


def test_resized_imagenette_is_known_by_its_size(tmp_path):
    spec = miniatures.build("imagenette", tmp_path)
    assert not any("copies" in note for note in data.load(spec, tmp_path).notes)
    for file in (tmp_path / "imagenette").rglob("*.JPEG"):
        label = list(spec.labels).index(file.parent.name)
        miniatures.save(file, miniatures.picture(label, 10, 0, size=(224, 224)))
    shutil.rmtree(tmp_path / "prepared")
    dataset = data.load(spec, tmp_path)
    assert "copies of 224 × 224 pixels, used as they are, not the original files" in dataset.notes
    miniatures.check_shades(dataset)


def saved_again(path):
    """The same arrays in a file with another md5, as another version of numpy writes it."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in reversed(file.files)}
    np.savez(path, **arrays)
    return path


def test_a_medmnist_file_that_was_saved_again(tmp_path):
    spec = miniatures.build("breastmnist", tmp_path)
    path = tmp_path / "breastmnist" / "breastmnist.npz"
    official = data.load(spec, tmp_path)
    saved_again(path)
    shutil.rmtree(tmp_path / "prepared")
    dataset = data.load(spec, tmp_path)
    assert dataset.fingerprint == official.fingerprint
    assert any("without a checksum" in note for note in dataset.notes)
    shutil.rmtree(tmp_path / "prepared")
    swapped = {split: counts[::-1] for split, counts in spec.counts.items()}
    refuses(replace(spec, counts=swapped), tmp_path, "not BreastMNIST as published: t.* instead of")
    larger = replace(spec, sizes={**spec.sizes, "train": 546})
    refuses(larger, tmp_path, "not BreastMNIST as published: train has 6 samples instead of 546")
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    refuses(spec, tmp_path, "cannot be read")
