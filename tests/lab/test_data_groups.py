"""Groups: all images of a patient or lesion in one split, made or given."""

import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from miniatures import picture, refuses, save, split_sizes, write_csv
from test_data_formats import table

from zetamix_lab import data
from zetamix_lab.data.groups import merge_groups, suggest_column, suggest_pattern
from zetamix_lab.data.source import array_source
from zetamix_lab.data.splits import complete_splits

SHARES = (0.7, 0.1, 0.2)
PATIENT = re.compile(r"(p\d+)_")


def patients(folder, count=24, images=3, layout="{label}/p{patient:02}_{image}.png"):
    """Images of patients of two classes; the grey level of an image tells its patient."""
    for patient in range(count):
        for image in range(images):
            name = layout.format(label="ab"[patient % 2], patient=patient, image=image)
            save(folder / name, picture(0, 2, 3 * patient + image))
    return folder


def patients_of(split):
    return {re.search(PATIENT, name)[1] for name in split.names()}


def apart(dataset):
    """Whether no patient is in two splits, and all 24 are there."""
    sets = [patients_of(split) for split in dataset.splits.values()]
    return sum(map(len, sets)) == len(set.union(*sets)) == 24


def test_created_splits_keep_patients_together(tmp_path):
    folder = patients(tmp_path / "mine")
    assert not apart(data.load(folder, tmp_path))
    dataset = data.load(folder, tmp_path, group=PATIENT)
    assert apart(dataset)
    sizes = split_sizes(dataset)
    assert sum(sizes.values()) == 72
    assert all(
        abs(sizes[name] - share * 72) <= 6 for name, share in zip(sizes, SHARES, strict=True)
    )
    assert all((split.counts() > 0).all() for split in dataset.splits.values())
    assert "24 groups" in dataset.notes[0]
    other = data.load(folder, tmp_path, seed=1, group=PATIENT)
    assert apart(other)
    assert patients_of(other.test) != patients_of(dataset.test)


def test_a_column_of_a_table(tmp_path):
    patients(tmp_path / "mine")
    files = sorted((tmp_path / "mine").rglob("*.png"))
    rows = [[f.relative_to(tmp_path), f.parent.name, f.name[:3]] for f in files]
    table = write_csv(tmp_path / "mine.csv", [["file", "label", "Patient_ID"], *rows])
    assert apart(data.load(table, tmp_path, group="Patient_ID"))
    refuses(table, tmp_path / "other", "no column 'lesion'; it has file, label", group="lesion")


@pytest.mark.parametrize("group", ["Owner", re.compile(r"(\d+)_")])
def test_groups_of_a_table(group, tmp_path):
    path = tmp_path / "pets.parquet"
    pq.write_table(table(90, owner=[k // 3 for k in range(90)]), path)
    dataset = data.load(path, tmp_path, group=group)
    sets = [{name.split("_")[0] for name in split.names()} for split in dataset.splits.values()]
    assert sum(map(len, sets)) == len(set.union(*sets)) == 30
    refuses(path, tmp_path / "other", "no column 'x'; it has label, owner", group="x")


def test_an_array_of_an_npz(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(90, 4, 4), dtype=np.uint8)
    images[:, 0, 0] = np.arange(90) // 3
    path = tmp_path / "own.npz"
    labels = np.arange(90) // 3 % 2
    np.savez(path, train_images=images, train_labels=labels, train_patient=np.arange(90) // 3)
    dataset = data.load(path, tmp_path, group="patient")
    sets = [set(split.samples[:, 0, 0, 0].tolist()) for split in dataset.splits.values()]
    assert sum(map(len, sets)) == len(set.union(*sets)) == 30
    refuses(path, tmp_path / "other", "no array train_lesion", group="lesion")
    refuses(path, tmp_path / "other", "has no file names", group=PATIENT)


def test_duplicates_merge_their_groups():
    groups = [f"p{row // 2}" for row in range(80)]
    # the last image of a patient is the first of the next but one
    keys = [row - 3 if row % 20 == 4 else row for row in range(80)]
    labels = np.arange(80) // 2 % 2
    source = array_source("", "ab", {"train": (labels, labels)}, "")
    split_of = complete_splits(
        replace(source, groups=groups), seed=0, origin="x", keys=lambda: keys
    ).splits
    assert len(set(merge_groups(groups, keys).tolist())) == 36
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
    refuses(folder, tmp_path, "matches nothing in a/p00_0.png .and 17 more", group=re.compile("x"))
    refuses(folder, tmp_path, "a folder and has no column 'patient'", group="patient")
    many = patients(tmp_path / "many", 30)
    for patient in range(2):
        save(many / "c" / f"p{90 + patient}_0.png", picture(1, 2, 90 + patient))
    refuses(many, tmp_path, "Class 'c' .* has 2 groups to split", group=PATIENT)


def test_what_looks_like_a_patient_is_named_with_the_option(tmp_path):
    folder = patients(tmp_path / "mine")
    (note,) = [note for note in data.check(folder, tmp_path).notes if "patients" in note]
    assert (
        "paths such as a/p00_0.png look like those of patients or lesions: --group '(p[0-9]+)'"
        in note
    )
    assert apart(data.load(folder, tmp_path, group=re.compile("(p[0-9]+)")))
    files = sorted(folder.rglob("*.png"))
    rows = [[f.relative_to(tmp_path), f.parent.name, f"s{k // 3}"] for k, f in enumerate(files)]
    table = write_csv(tmp_path / "mine.csv", [["file", "label", "Subject ID"], *rows])
    notes = data.check(table, tmp_path).notes
    assert any(note.startswith("the column subject id looks like patients") for note in notes)
    # names of classes, and numbers that do not repeat, are no patients
    assert suggest_pattern(["case1/a.png", "case1/b.png", "case2/c.png"], 2) == ()
    assert suggest_pattern([f"p{k}.png" for k in range(9)], 2) == ()
    assert suggest_column({"patient": ["a", "b"], "age": [4, 4], "bypass": [1, 1]}) == ()
