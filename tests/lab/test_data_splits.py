"""Created splits: the sizes of the paper, every class in each; patients and duplicates together."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miniatures import picture, refuses, split_sizes
from test_data_formats import csv_of, fill, table

from paper.datasets import CATALOGUE
from zetamix_lab import data
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.source import array_source
from zetamix_lab.data.splits import complete_splits, suggest_column, suggest_pattern


def labels_with(*counts):
    return torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])


def created(labels, present=(), keys=None):
    """A source of these labels in train, and of one sample in each split that is present."""
    one = (torch.zeros(1), labels[:1])
    parts = {"train": (torch.zeros(len(labels)), labels), **dict.fromkeys(present, one)}
    classes = [f"class {k}" for k in range(int(labels.max()) + 1)]
    source = array_source("", classes, parts, "")
    return complete_splits(source, origin="here", keys=keys)


# of the test splits: what the printed metrics of the paper fix
TEST_CLASSES = {"uda": [82, 38], "ph2": [32, 8], "mednode": [20, 14]}


def test_splits_are_the_papers():
    made = [spec for spec in CATALOGUE.values() if spec.split == "made"]
    assert len(made) == 7
    for spec in made:
        labels = labels_with(*spec.counts["all"])
        rows = created(labels).rows
        assert {name: len(found) for name, found in rows.items()} == spec.sizes, spec.name
        test = torch.bincount(labels[rows["test"]]).tolist()
        assert test == TEST_CLASSES.get(spec.name, test)
    # with the paper's own number of images
    msk = created(labels_with(2202, 826, 413, 110)).rows.values()
    assert list(map(len, msk)) == [2485, 356, 710]


@given(
    st.lists(st.integers(3, 40), min_size=2, max_size=8),
    st.sampled_from([(), ("test",), ("val",)]),
)
def test_every_class_is_in_every_split_and_no_row_in_two(counts, present):
    labels = labels_with(*counts)
    rows = created(labels, present).rows
    for name in present:
        assert rows.pop(name).tolist() == [len(labels)]
    assert set(rows) == {"train", "val", "test"} - set(present)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(labels)))
    for found in rows.values():
        assert found.tolist() == sorted(found.tolist())
        assert set(labels[found].tolist()) == set(range(len(counts)))


def test_a_class_that_is_too_small_is_named():
    for counts, present, message in (
        ((5, 1), (), "'class 1' of here has 1 image .* val and test needs at least 3"),
        ((5, 0, 5), (), "'class 1' of here has 0 images to split"),
        ((5, 1), ("val",), "test needs at least 2 of every class"),
    ):
        with pytest.raises(DataError, match=message):
            created(labels_with(*counts), present)


NOTES = [
    ((), 1, (100, 15, 29), "No val/test split found: created a stratified 7:1:2 split (seed 0)"),
    ((), 3, (99, 15, 30), "7:1:2 split (seed 0, duplicates kept in one split)"),
    (("test",), 1, (126, 18, 1), "No val split found: created a stratified 7:1 split (seed 0)"),
    (("val",), 1, (112, 1, 32), "No test split found: created a stratified 7:2 split (seed 0)"),
    (("val", "test"), 1, (144, 1, 1), None),
]


@pytest.mark.parametrize(("present", "copies", "sizes", "note"), NOTES)
def test_missing_splits_are_created_with_a_note(present, copies, sizes, note):
    first = np.arange(144) // copies
    source = created(labels_with(72, 72), present, keys=first.tolist)
    assert tuple(map(len, source.rows.values())) == sizes
    assert len(source.notes) == (note is not None)
    assert all(note in text for text in source.notes)
    # duplicates are in one split
    drawn = [set(first[rows[rows < 144]]) for rows in source.rows.values()]
    assert sum(map(len, drawn)) == len(set.union(*drawn))


# groups: all images of a patient or lesion in one split, made or given


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
