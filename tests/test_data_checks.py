"""`check`: counts, broken files, duplicates, checksums."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from miniatures import build, picture, save, write_csv, write_npz

from zetamix import data


def folder_of(path, counts):
    for label, (name, count) in enumerate(counts.items()):
        for k in range(count):
            save(path / name / f"{k}.png", picture(label, max(2, len(counts)), k))
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
    assert [tuple(map(str, group)) for group in report.duplicates] == [
        ("train train/b/2.png (b)", "test test/a/leak.png (a)"),
        ("train train/a/1.png (a)", "train train/a/copy.png (a)"),
    ]
    assert (report.leaks, report.contradictions) == (1, 1)
    assert report.problems == (
        "1 group of identical samples is in more than one split, so a score is partly on samples "
        "that were seen before. Keep one of each, in one split.",
        "1 group of identical samples has different classes, of which one at most is right. Keep "
        "one of each, in one class.",
    )


@pytest.mark.parametrize(
    ("copy", "leaks", "contradictions"),
    [
        ("train/a/copy.png", 0, 0),
        ("train/b/copy.png", 0, 1),
        ("val/a/copy.png", 1, 0),
        ("test/a/copy.png", 1, 0),
        ("test/b/copy.png", 1, 1),
    ],
)
def test_duplicates_are_wrong_across_splits_and_classes(copy, leaks, contradictions, tmp_path):
    mine = tmp_path / "mine"
    for split, first in (("train", 0), ("val", 10), ("test", 20)):
        for label, name in enumerate(("a", "b")):
            save(mine / split / name / "0.png", picture(label, 2, first))
    shutil.copy(mine / "train" / "a" / "0.png", mine / copy)
    report = data.check(mine, tmp_path / "root")
    assert len(report.duplicates) == 1
    assert (report.leaks, report.contradictions) == (leaks, contradictions)
    assert len(report.problems) == leaks + contradictions
    assert report.ok == (not leaks and not contradictions)


def test_copies_in_val_and_test_are_wrong_too(tmp_path):
    mine = tmp_path / "mine"
    for split, first in (("train", 0), ("val", 10), ("test", 10)):
        for label, name in enumerate(("a", "b")):
            save(mine / split / name / "0.png", picture(label, 2, first))
    report = data.check(mine, tmp_path / "root")
    assert (report.ok, report.leaks) == (False, 2)


def test_a_known_set_with_leaks_is_told_with_what_to_do(tmp_path):
    spec = build("isic2016", tmp_path)
    base = tmp_path / "isic2016"
    shutil.copy(
        base / "ISBI2016_ISIC_Part3_Training_Data" / "ISIC_0000000.jpg",
        base / "ISBI2016_ISIC_Part3_Test_Data" / "ISIC_0001000.jpg",
    )
    (problem,) = data.check(spec, tmp_path).problems
    assert problem == (
        "1 group of identical samples is in more than one split, so a score is partly on samples "
        "that were seen before. Where that is how ISIC 2016 is published, leaving it so keeps "
        "results comparable with those of others: mention it beside them."
    )


def test_all_that_is_wrong_with_a_folder_is_told_at_once(tmp_path):
    mine = folder_of(tmp_path / "mine", {"a": 9, "b": 9, "alone": 1, "pair": 2})
    (mine / "none").mkdir()
    save(mine / "stray.png", picture(0, 2, 0))
    (mine / "a" / "3.png").write_bytes((mine / "a" / "3.png").read_bytes()[:70])
    (mine / "b" / "7.png").write_bytes(b"")
    (mine / "b" / "8.png").unlink()
    (mine / "b" / "8.png").symlink_to(mine / "nowhere.png")
    shutil.copy(mine / "a" / "0.png", mine / "b" / "copy.png")
    report = data.check(mine, tmp_path / "root")
    told = [problem.split(".")[0] for problem in report.problems]
    assert told[0].startswith(f"{mine}: the image stray")
    assert told[1:4] == [
        f"{mine / 'none'} holds no image",
        f"Class 'alone' of {mine} has 1 image to split",
        f"Class 'pair' of {mine} has 2 images to split",
    ]
    assert told[-1].startswith("1 group of identical samples has different classes")
    assert sorted(line.removeprefix(f"{mine}/")[:7] for line in report.corrupt) == [
        "a/3.png",
        "b/7.png",
        "b/8.png",
    ]
    assert sum(report.sizes.values()) == 22
    # prepare still refuses
    with pytest.raises(data.DataError, match="stray"):
        data.prepare(mine, tmp_path / "root")


def test_all_that_is_wrong_with_splits_is_told_at_once(tmp_path):
    mine = tmp_path / "mine"
    folder_of(mine / "train", {"a": 4, "b": 4})
    folder_of(mine / "test", {"c": 2})
    (mine / "val").mkdir()
    (mine / "valid").mkdir()
    (mine / "extra").mkdir()
    told = data.check(mine, tmp_path / "root").problems
    assert [message.split(";")[0] for message in told] == [
        f"{mine}: extra lies beside train",
        f"{mine}: val and valid are both val.",
        f"{mine / 'test' / 'c'}: there is no class 'c' in train. Every class needs images to train "
        "on.",
        f"{mine / 'val'} holds no image",
    ]


def test_a_folder_without_a_readable_image_names_them_all(tmp_path):
    mine = tmp_path / "mine"
    for name in ("a", "b"):
        for k in range(3):
            (mine / name).mkdir(parents=True, exist_ok=True)
            (mine / name / f"{k}.png").write_text("no image")
    report = data.check(mine, tmp_path / "root")
    assert report.problems == (f"{mine}: none of 6 files can be read as an image.",)
    assert len(report.corrupt) == 6


def test_all_that_is_wrong_with_a_table_is_told_at_once(tmp_path):
    mine = folder_of(tmp_path / "mine", {"a": 6, "b": 6})
    (mine / "b" / "3.png").write_bytes(b"")
    rows = [[f"{name}/{k}.png", name, "train"] for name in ("a", "b") for k in range(6)]
    rows += [["gone.png", "a", "train"], ["a/0.png", "a", "test"], ["b/9.png", "b", "train"]]
    rows[1][2], rows[2][1] = "some", ""
    write_csv(mine / "labels.csv", [["file", "label", "split"], *rows])
    report = data.check(mine / "labels.csv", tmp_path / "root")
    assert [problem.split(", ", 1)[1].split(": ")[0] for problem in report.problems] == [
        "row 3",
        "row 4",
        "row 14",
        "row 15",
        "row 16",
    ]
    assert report.corrupt == (f"{mine / 'b' / '3.png'}: the file is empty",)


def test_what_ends_a_check_comes_with_what_was_found_before(tmp_path):
    mine = folder_of(tmp_path / "mine", {"a": 2})
    rows = [["a/0.png", "a", "val"], ["a/1.png", "", "val"]]
    write_csv(mine / "labels.csv", [["file", "label", "split"], *rows])
    with pytest.raises(data.DataError) as caught:
        data.check(mine / "labels.csv", tmp_path / "root")
    first, *others = str(caught.value).split("\n  ")
    assert first == "3 things are wrong:"
    assert others[0].endswith("row 3: no label; expected the image's class.")
    assert others[2].endswith("no row has the split train; expected some to train on.")


def test_an_npz_with_a_class_too_small_is_looked_at_all_the_same(tmp_path):
    images = np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4)
    images[1] = images[0]
    labels = np.array([0, 1] * 5 + [0, 2])
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=labels)
    report = data.check(tmp_path / "own.npz", tmp_path)
    assert report.problems[0].startswith(f"Class '2' of {tmp_path / 'own.npz'} has 1 image")
    assert report.contradictions == 1


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
    # two of one class
    photos = tmp_path / "isic2017" / "ISIC-2017_Training_Data"
    shutil.copy(photos / "ISIC_0080000.jpg", photos / "ISIC_0080003.jpg")
    data.load(spec, tmp_path)
    before = data.check(spec, tmp_path)
    shutil.rmtree(tmp_path / "isic2017")
    after = data.check(spec, tmp_path)
    assert after.ok
    assert (after.counts, after.duplicates) == (before.counts, before.duplicates)
    assert after.duplicates[0][0].name.startswith("ISIC-2017_")


def test_what_is_not_here_cannot_be_checked(tmp_path):
    with pytest.raises(data.DatasetNotFoundError, match="zetamix data prepare cifar10"):
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
