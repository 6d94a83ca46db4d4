"""`check`: counts, broken files, duplicates, conflicting labels."""

import shutil

import numpy as np
import pytest
from miniatures import class_folders, picture, save, split_folders
from test_data_formats import csv_of, fill

from zetamix_lab import data


def shown(group):
    return [f"{s['split']} {s['name'] or s['row']} ({s['label']})" for s in group]


def test_duplicates_across_splits_are_listed_first(tmp_path):
    mine = split_folders(tmp_path / "mine")
    save(mine / "train" / "a" / "1.png", picture(0, 2, 50))
    shutil.copy(mine / "train" / "a" / "1.png", mine / "train" / "a" / "copy.png")
    shutil.copy(mine / "train" / "b" / "0.png", mine / "test" / "a" / "leak.png")
    report = data.check(mine, tmp_path)
    assert list(map(shown, report.duplicates)) == [
        ["train train/b/0.png (b)", "test test/a/leak.png (a)"],
        ["train train/a/1.png (a)", "train train/a/copy.png (a)"],
    ]
    check_parts(report.problems, "Duplicates across splits:", "Conflicting labels:")


def check_parts(problems, *parts):
    assert len(problems) == len(parts)
    assert all(part in problem for part, problem in zip(parts, problems, strict=True))


def test_all_problems_of_a_folder_are_reported_at_once(tmp_path):
    mine = tmp_path / "mine"
    fill(mine, {"a": 9, "b": 9, "alone": 1, "pair": 2, "none": 0, "stray.png": b""})
    shutil.copy(mine / "a" / "0.png", mine / "b" / "copy.png")
    (mine / "a" / "3.png").write_bytes((mine / "a" / "3.png").read_bytes()[:70])
    (mine / "b" / "7.png").write_bytes(b"")
    (mine / "b" / "8.png").unlink()
    (mine / "b" / "8.png").symlink_to(mine / "nowhere.png")
    report = data.check(mine, tmp_path / "data")
    parts = ("the image stray", "none contains no", "Class 'alone' of", "Class 'pair' of")
    check_parts(report.problems, *parts, "Conflicting", "missing from val", "missing from test")
    broken = [f"{mine}/{name}" for name in ("a/3.png", "b/7.png", "b/8.png")]
    assert sorted(line.split(": ")[0] for line in report.unreadable) == broken
    assert sum(report.sizes.values()) == 22
    # prepare still refuses
    with pytest.raises(data.DataError, match="stray"):
        data.load(mine, tmp_path / "data")


def test_all_problems_of_splits_are_reported_at_once(tmp_path):
    train = {"train/a": 4, "train/b": 4, "test/c": 2}
    fill(tmp_path / "mine", {**train, "val": 0, "valid": 0, "extra": 0})
    parts = ("extra next to train", "valid next to val", "contains no images", "class 'c'")
    check_parts(data.check(tmp_path / "mine", tmp_path / "data").problems, *parts)


def test_all_problems_of_a_table_are_reported_at_once(tmp_path):
    mine = tmp_path / "mine"
    rows = [[f"{name}/{k}.png", name, "train"] for name in ("a", "b") for k in range(6)]
    rows += [["gone.png", "a", "train"], ["a/0.png", "a", "test"], ["b/9.png", "b", "train"]]
    rows[1][2], rows[2][1] = "some", ""
    text = csv_of(["file", "label", "split"], *rows)
    fill(mine, {"a": 6, "b": 6, "b/3.png": b"", "labels.csv": text})
    report = data.check(mine / "labels.csv", tmp_path / "data")
    named = sorted(int(problem.split(", row ")[1].split(":")[0]) for problem in report.problems)
    assert named == [3, 4, 14, 15, 16]
    assert report.unreadable == (f"{mine}/b/3.png: the file is empty",)


def test_a_fatal_error_comes_with_the_problems_before_it(tmp_path):
    text = "file,label,split\na/0.png,a,val\na/1.png,,val\n"
    fill(tmp_path, {"a": 2, "labels.csv": text})
    with pytest.raises(data.DataError) as caught:
        data.check(tmp_path / "labels.csv", tmp_path / "data")
    lines = str(caught.value).split("\n  ")
    check_parts(lines, "2 problems:", "row 3: label is ''", "no row has the split train")


def test_duplicates_in_arrays_are_named_by_row(tmp_path):
    images = np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4)
    images[5], images[1] = images[2], images[0]
    labels = np.array([0, 1, 2] * 3 + [0, 1, 3])
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=labels)
    report = data.check(tmp_path / "own.npz", tmp_path)
    # a class too small to split does not end the check
    assert "Class '3'" in report.problems[0]
    assert any(problem.startswith("Conflicting labels: 1 group") for problem in report.problems)
    assert [[sample["name"] for sample in group] for group in report.duplicates] == [["", ""]] * 2


def test_progress_is_reported(tmp_path):
    mine = class_folders(tmp_path / "mine", {"a": 12, "b": 11})
    calls = []
    data.check(mine, tmp_path, progress=lambda *call: calls.append(call))
    assert {activity for activity, _, _ in calls} == {"checking"}
    assert calls[-1] == ("checking", 23, 23)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
