"""Groups: all images of a patient or lesion in one split, made or given."""

import re
from dataclasses import replace

import numpy as np
import pytest
from miniatures import picture, refuses, split_sizes
from test_data_formats import csv_of, fill, table

from zetamix_lab import data
from zetamix_lab.data.source import array_source
from zetamix_lab.data.splits import complete_splits, suggest_column, suggest_pattern

SHARES = (0.7, 0.1, 0.2)
PATIENT = re.compile(r"(p\d+)_")


def patients(folder="mine", count=24, images=3):
    """Images of patients of two classes, three numbers each; the green is 37 times the number."""
    return {
        f"{folder}/{'ab'[patient % 2]}/p{patient:02}_{image}.png": picture(
            0, 2, 3 * patient + image
        )
        for patient in range(count)
        for image in range(images)
    }


OWNERS = np.arange(72) // 3
ROWS = [[file, file.split("/")[1], file.split("/")[2][:3]] for file in patients()]
CSV = {**patients(), "mine.csv": csv_of(["file", "label", "Patient_ID"], *ROWS)}
PARQUET = {"pets.parquet": table(72, owner=OWNERS)}
IMAGES = np.stack(list(patients().values()))
ARRAYS = {"train_images": IMAGES, "train_labels": OWNERS % 2, "train_patient": OWNERS}
NPZ = {"own.npz": ARRAYS}
# files of 24 patients with three images each, and how they are grouped; a wrong group, its message
FORMS = [
    ("mine", patients(), PATIENT, "patient", "a folder and has no column 'patient'"),
    ("mine", patients(), PATIENT, re.compile("x"), "matches nothing in a/p00_0.png .72 such files"),
    ("mine.csv", CSV, "Patient_ID", "lesion", "no column 'lesion'; it has file, label"),
    ("pets.parquet", PARQUET, "Owner", "x", "no column 'x'; it has label, owner"),
    ("pets.parquet", PARQUET, re.compile(r"(\d+)_"), re.compile("x"), "matches nothing"),
    ("own.npz", NPZ, "patient", "lesion", "not train_lesion; expected"),
    ("own.npz", NPZ, "patient", PATIENT, "has no file names"),
]


def apart(dataset):
    """Whether no patient is in two splits, and all 24 are there."""
    # 173 times 37 is 1, modulo 256
    images = [(173 * split.samples[:, 1, 0, 0].long() % 256) for split in dataset.splits.values()]
    sets = [set((numbers // 3).tolist()) for numbers in images]
    return sum(map(len, sets)) == len(set.union(*sets)) == 24


@pytest.mark.parametrize(("name", "files", "group", "wrong", "message"), FORMS)
def test_created_splits_keep_patients_together(name, files, group, wrong, message, tmp_path):
    fill(tmp_path, files)
    path = tmp_path / name
    assert not apart(data.load(path, tmp_path))
    dataset = data.load(path, tmp_path, group=group)
    assert apart(dataset)
    sizes = split_sizes(dataset)
    assert list(sizes.values()) == pytest.approx([72 * share for share in SHARES], abs=6)
    assert all((split.counts() > 0).all() for split in dataset.splits.values())
    assert "24 groups" in dataset.notes[0]
    refuses(path, tmp_path / "other", message, group=wrong)


def test_duplicates_merge_their_groups():
    groups = [f"p{row // 2}" for row in range(80)]
    # the last image of a patient is the first of the next but one
    keys = [row - 3 if row % 20 == 4 else row for row in range(80)]
    labels = np.arange(80) // 2 % 2
    source = array_source("", "ab", {"train": (labels, labels)}, "")
    source = replace(source, groups=groups)
    split_of = complete_splits(source, origin="x", keys=lambda: keys).splits
    for row, key in enumerate(keys):
        assert split_of[row] == split_of[key] == split_of[row - row % 2]


def test_given_splits_are_checked(tmp_path):
    folder = tmp_path / "mine"
    fill(folder, {**patients("train"), "test/a/p90_0.png": picture(1, 2, 200)})
    fill(folder, {f"test/{'ab'[k % 2]}/p{k:02}_9.png": picture(0, 2, 3 * k) for k in range(4)})
    report = data.check(folder, tmp_path, group=PATIENT)
    assert report.shared_groups == {f"p0{k}": ["test", "train"] for k in range(4)}
    assert any(problem.startswith("Groups across splits: 4 groups") for problem in report.problems)
    # everyone who trains on it sees it
    notes = data.load(folder, tmp_path, group=PATIENT).notes
    assert any(note.startswith("Groups across splits") for note in notes)
    assert data.check(folder, tmp_path).shared_groups == {}


def test_too_few_groups_are_an_error(tmp_path):
    fill(tmp_path, {**patients(count=6), **patients("many", 30)})
    folder, many = tmp_path / "mine", tmp_path / "many"
    refuses(folder, tmp_path, "6 groups .* needs at least 10", group=PATIENT)
    assert "needs at least 10" in data.check(folder, tmp_path, group=PATIENT).problems[0]
    fill(many, {f"c/p{k}_0.png": picture(1, 2, k) for k in (90, 91)})
    refuses(many, tmp_path, "Class 'c' .* has 2 groups to split", group=PATIENT)


def test_what_looks_like_a_patient_is_named_with_the_option(tmp_path):
    fill(tmp_path, {**CSV, "mine.csv": CSV["mine.csv"].replace("Patient_ID", "Subject ID")})
    note = data.check(tmp_path / "mine", tmp_path).notes[0]
    assert note.startswith("paths such as a/p00_0.png may be of patients or lesions: ")
    assert "--group '(p[0-9]+)'" in note
    assert apart(data.load(tmp_path / "mine", tmp_path, group=re.compile("(p[0-9]+)")))
    notes = data.check(tmp_path / "mine.csv", tmp_path).notes
    assert any(note.startswith("the column subject id may be of patients") for note in notes)
    # names of classes, and numbers that do not repeat, are no patients
    assert suggest_pattern(["case1/a.png", "case1/b.png", "case2/c.png"], 2) == ()
    assert suggest_pattern([f"p{k}.png" for k in range(9)], 2) == ()
    assert suggest_column({"patient": ["a", "b"], "age": [4, 4], "bypass": [1, 1]}) == ()
