"""Groups: all images of a patient or lesion in one split, made or given."""

import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from miniatures import picture, refuses, save, split_sizes, write_csv
from test_data_formats import table

from zetamix_lab import data
from zetamix_lab.data.groups import suggest_column, suggest_pattern
from zetamix_lab.data.source import array_source
from zetamix_lab.data.splits import complete_splits

SHARES = (0.7, 0.1, 0.2)
PATIENT = re.compile(r"(p\d+)_")


def patients(folder, count=24, images=3, layout="{label}/p{patient:02}_{image}.png"):
    """Images of patients of two classes; the green of an image is 37 times its number."""
    for patient in range(count):
        for image in range(images):
            name = layout.format(label="ab"[patient % 2], patient=patient, image=image)
            save(folder / name, picture(0, 2, 3 * patient + image))
    return folder


def as_csv(folder, column="Patient_ID"):
    files = sorted(patients(folder / "mine").rglob("*.png"))
    rows = [[f.relative_to(folder), f.parent.name, f.name[:3]] for f in files]
    return write_csv(folder / "mine.csv", [["file", "label", column], *rows])


def as_parquet(folder):
    pq.write_table(table(72, owner=[k // 3 for k in range(72)]), folder / "pets.parquet")
    return folder / "pets.parquet"


def as_npz(folder):
    images, owners = np.stack([picture(0, 2, k) for k in range(72)]), np.arange(72) // 3
    arrays = {"train_images": images, "train_labels": owners % 2, "train_patient": owners}
    np.savez(folder / "own.npz", **arrays)
    return folder / "own.npz"


def as_folder(folder):
    return patients(folder / "mine")


# how 24 patients with three images each are written and grouped; a wrong group, and its message
FORMS = [
    (as_folder, PATIENT, "patient", "a folder and has no column 'patient'"),
    (as_folder, PATIENT, re.compile("x"), "matches nothing in a/p00_0.png .and 71 more"),
    (as_csv, "Patient_ID", "lesion", "no column 'lesion'; it has file, label"),
    (as_parquet, "Owner", "x", "no column 'x'; it has label, owner"),
    (as_parquet, re.compile(r"(\d+)_"), re.compile("x"), "matches nothing"),
    (as_npz, "patient", "lesion", "no array train_lesion"),
    (as_npz, "patient", PATIENT, "has no file names"),
]


def apart(dataset):
    """Whether no patient is in two splits, and all 24 are there."""
    # 173 times 37 is 1, modulo 256
    images = [(173 * split.samples[:, 1, 0, 0].long() % 256) for split in dataset.splits.values()]
    sets = [set((numbers // 3).tolist()) for numbers in images]
    return sum(map(len, sets)) == len(set.union(*sets)) == 24


@pytest.mark.parametrize(("make", "group", "wrong", "message"), FORMS)
def test_created_splits_keep_patients_together(make, group, wrong, message, tmp_path):
    path = make(tmp_path)
    assert not apart(data.load(path, tmp_path))
    dataset, other = (data.load(path, tmp_path, seed=seed, group=group) for seed in range(2))
    assert apart(dataset)
    assert apart(other)
    sizes = split_sizes(dataset)
    assert list(sizes.values()) == pytest.approx([72 * share for share in SHARES], abs=6)
    assert all((split.counts() > 0).all() for split in dataset.splits.values())
    assert "24 groups" in dataset.notes[0]
    assert other.fingerprint != dataset.fingerprint
    refuses(path, tmp_path / "other", message, group=wrong)


def test_duplicates_merge_their_groups():
    groups = [f"p{row // 2}" for row in range(80)]
    # the last image of a patient is the first of the next but one
    keys = [row - 3 if row % 20 == 4 else row for row in range(80)]
    labels = np.arange(80) // 2 % 2
    source = array_source("", "ab", {"train": (labels, labels)}, "")
    source = replace(source, groups=groups)
    split_of = complete_splits(source, seed=0, origin="x", keys=lambda: keys).splits
    for row, key in enumerate(keys):
        assert split_of[row] == split_of[key] == split_of[row - row % 2]


def test_given_splits_are_checked(tmp_path):
    folder = patients(tmp_path / "mine", layout="train/{label}/p{patient:02}_{image}.png")
    patients(tmp_path / "mine", 4, 1, layout="test/{label}/p{patient:02}_9.png")
    save(folder / "test" / "a" / "p90_0.png", picture(1, 2, 200))
    report = data.check(folder, tmp_path, group=PATIENT)
    assert [group.name for group in report.shared_groups] == ["p00", "p01", "p02", "p03"]
    assert dict(report.shared_groups[0].samples)["test"] == 1
    assert any(problem.startswith("Groups across splits: 4 groups") for problem in report.problems)
    # everyone who trains on it sees it
    notes = data.load(folder, tmp_path, group=PATIENT).notes
    assert any(note.startswith("Groups across splits") for note in notes)
    assert data.check(folder, tmp_path).shared_groups == ()


def test_too_few_groups_are_an_error(tmp_path):
    folder = patients(tmp_path / "mine", 6)
    refuses(folder, tmp_path, "6 groups .* needs at least 10", group=PATIENT)
    assert "needs at least 10" in data.check(folder, tmp_path, group=PATIENT).problems[0]
    many = patients(tmp_path / "many", 30)
    for patient in range(2):
        save(many / "c" / f"p{90 + patient}_0.png", picture(1, 2, 90 + patient))
    refuses(many, tmp_path, "Class 'c' .* has 2 groups to split", group=PATIENT)


def test_what_looks_like_a_patient_is_named_with_the_option(tmp_path):
    (note,) = data.check(as_folder(tmp_path), tmp_path).notes[:1]
    assert note.startswith("paths such as a/p00_0.png look like those of patients or lesions: ")
    assert "--group '(p[0-9]+)'" in note
    assert apart(data.load(tmp_path / "mine", tmp_path, group=re.compile("(p[0-9]+)")))
    notes = data.check(as_csv(tmp_path, "Subject ID"), tmp_path).notes
    assert any(note.startswith("the column subject id looks like patients") for note in notes)
    # names of classes, and numbers that do not repeat, are no patients
    assert suggest_pattern(["case1/a.png", "case1/b.png", "case2/c.png"], 2) == ()
    assert suggest_pattern([f"p{k}.png" for k in range(9)], 2) == ()
    assert suggest_column({"patient": ["a", "b"], "age": [4, 4], "bypass": [1, 1]}) == ()
