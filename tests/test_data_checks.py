"""`check`: counts, broken files, duplicates, checksums."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from miniatures import build, picture, save, write_npz

from zetamix import data


def folder_of(path, counts):
    for label, (name, count) in enumerate(counts.items()):
        for k in range(count):
            save(path / name / f"{k}.png", picture(label, 2, k))
    return path


def test_what_is_as_expected(tmp_path):
    spec = build("uda", tmp_path)
    report = data.check(spec, tmp_path)
    assert report.ok
    assert (report.sizes, report.expected_sizes) == (spec.sizes, spec.sizes)
    totals = {c.label: (c.found, c.expected) for c in report.counts if c.split == "all"}
    assert totals == {"nevus": (12, 12), "melanoma": (9, 9)}
    by_split = {c.split: 0 for c in report.counts}
    for count in report.counts:
        by_split[count.split] += count.found
    assert by_split == {**spec.sizes, "all": 21}
    # looking changes nothing
    assert not (tmp_path / "prepared").exists()


def test_a_missing_image_is_a_problem(tmp_path):
    spec = build("mednode", tmp_path)
    (tmp_path / "mednode" / "complete_mednode_dataset" / "naevus" / "1003.jpg").unlink()
    report = data.check(spec, tmp_path)
    assert not report.ok
    assert report.problems == (
        "train has 15 samples; expected 16.",
        "nevus has 12 samples in all; expected 13.",
    )


def test_wrong_classes_are_a_problem_unless_a_checksum_says_otherwise(tmp_path):
    spec = build("isic2016", tmp_path)
    swapped = replace(spec, counts={"train": (3, 5), "test": (3, 2)})
    assert data.check(swapped, tmp_path).problems == (
        "benign has 5 samples in train; expected 3.",
        "malignant has 3 samples in train; expected 5.",
    )
    spec = build("breastmnist", tmp_path)
    report = data.check(replace(spec, counts={**spec.counts, "val": (2, 0)}), tmp_path)
    assert report.ok
    assert [c.differs for c in report.counts if c.split == "val"] == [True, True]


def test_an_archive_that_grows_is_no_problem(tmp_path):
    spec = build("uda", tmp_path)
    assert data.check(replace(spec, sizes={"train": 1, "val": 1, "test": 1}), tmp_path).ok


def test_broken_images_are_named(tmp_path):
    mine = folder_of(tmp_path / "mine", {"a": 30, "b": 30})
    for name in ("a/3.png", "b/7.png"):
        (mine / name).write_bytes((mine / name).read_bytes()[:70])
    (mine / "b" / "9.png").write_text("no image")
    report = data.check(mine, tmp_path / "root")
    assert not report.ok
    assert sorted(line.split(": ")[0] for line in report.corrupt) == [
        str(mine / name) for name in ("a/3.png", "b/7.png", "b/9.png")
    ]
    assert report.problems == ()
    # rows of the others are still theirs
    assert report.duplicates == ()


def test_duplicates_are_named_leaks_first(tmp_path):
    mine = tmp_path / "mine"
    for split, first in (("train", 0), ("val", 10), ("test", 20)):
        for label, name in enumerate(("a", "b")):
            for k in range(4):
                save(mine / split / name / f"{k}.png", picture(label, 2, first + k))
    shutil.copy(mine / "train" / "a" / "1.png", mine / "train" / "a" / "copy.png")
    shutil.copy(mine / "train" / "b" / "2.png", mine / "test" / "a" / "leak.png")
    report = data.check(mine, tmp_path / "root")
    assert report.ok
    assert [tuple(map(str, group)) for group in report.duplicates] == [
        ("train train/b/2.png (b)", "test test/a/leak.png (a)"),
        ("train train/a/1.png (a)", "train train/a/copy.png (a)"),
    ]
    assert (report.leaks, report.contradictions) == (1, 1)


def test_duplicates_in_arrays_are_named_by_row(tmp_path):
    images = np.arange(9 * 16, dtype=np.uint8).reshape(9, 4, 4)
    images[5] = images[2]
    labels = np.arange(9) % 3
    other = {"val_images": images[:3] + 99, "val_labels": labels[:3]}
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=labels, **other)
    (group,) = data.check(tmp_path / "own.npz", tmp_path, seed=0).duplicates
    splits = {place.split for place in group}
    assert splits <= {"train", "test"}
    assert all(str(place) == f"{place.split} row {place.row} (2)" for place in group)


def test_prepared_data_is_checked_against_its_checksums(tmp_path):
    write_npz(tmp_path / "own.npz", {"train": [5] * 3}, (1, 8, 8))
    data.load(tmp_path / "own.npz", tmp_path)
    (file,) = (tmp_path / "prepared").glob("*/train.samples")
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)
    report = data.check(tmp_path / "own.npz", tmp_path)
    assert report.problems == (
        f"Prepared data is damaged: {file} has changed since it was written: its checksum differs. "
        "Prepare it again.",
    )


def test_prepared_data_is_looked_at_where_there_is_no_source(tmp_path):
    spec = build("isic2017", tmp_path)
    data.load(spec, tmp_path)
    before = data.check(spec, tmp_path)
    shutil.rmtree(tmp_path / "isic2017")
    after = data.check(spec, tmp_path)
    assert after.ok
    assert (after.counts, after.duplicates) == (before.counts, before.duplicates)
    assert after.duplicates[0][0].name.startswith("ISIC-2017_")


def test_what_is_not_here_cannot_be_checked(tmp_path):
    with pytest.raises(data.NotHereError, match="zetamix data prepare cifar10"):
        data.check("cifar10", tmp_path)


def test_progress_is_told(tmp_path):
    spec = build("mednode", tmp_path)
    seen = []
    data.check(spec, tmp_path, progress=lambda *told: seen.append(told))
    assert {what for what, _, _ in seen} == {"checking"}
    assert seen[-1] == ("checking", 23, 23)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_synthetic_data_is_checked_too():
    report = data.check("spirals", seed=3)
    assert report.ok
    assert [c.found for c in report.counts if c.split == "test"] == [256, 256]
