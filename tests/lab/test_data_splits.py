"""Stratified splits: sizes of the paper, every class in every split, the same for a seed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper.datasets import CATALOGUE
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.source import array_source
from zetamix_lab.data.splits import complete_splits


def labels_with(*counts):
    return torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])


def created(labels, present=(), seed=0, keys=None):
    """A source of these labels in train, and of one sample in each split that is present."""
    one = (torch.zeros(1), labels[:1])
    parts = {"train": (torch.zeros(len(labels)), labels), **dict.fromkeys(present, one)}
    classes = [f"class {k}" for k in range(int(labels.max()) + 1)]
    source = array_source("", classes, parts, "")
    return complete_splits(source, seed=seed, origin="here", keys=keys)


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
    st.integers(0, 5),
)
def test_every_class_is_in_every_split_and_no_row_in_two(counts, present, seed):
    labels = labels_with(*counts)
    rows = created(labels, present, seed=seed).rows
    for name in present:
        assert rows.pop(name).tolist() == [len(labels)]
    assert set(rows) == {"train", "val", "test"} - set(present)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(labels)))
    for found in rows.values():
        assert found.tolist() == sorted(found.tolist())
        assert set(labels[found].tolist()) == set(range(len(counts)))


@pytest.mark.parametrize(
    ("counts", "present", "message"),
    [
        ((5, 1), (), "'class 1' of here has 1 image .* val and test needs at least 3"),
        ((5, 0, 5), (), "'class 1' of here has 0 images to split"),
        ((5, 1), ("val",), "test needs at least 2 of every class"),
    ],
)
def test_a_class_that_is_too_small_is_named(counts, present, message):
    with pytest.raises(DataError, match=message):
        created(labels_with(*counts), present)


NOTES = [
    ((), 1, (100, 15, 29), "No val/test split found: created a stratified 7:1:2 split (seed 3)"),
    ((), 3, (99, 15, 30), "7:1:2 split (seed 3, duplicates kept in one split)"),
    (("test",), 1, (126, 18, 1), "No val split found: created a stratified 7:1 split (seed 3)"),
    (("val",), 1, (112, 1, 32), "No test split found: created a stratified 7:2 split (seed 3)"),
    (("val", "test"), 1, (144, 1, 1), None),
]


@pytest.mark.parametrize(("present", "copies", "sizes", "note"), NOTES)
def test_missing_splits_are_created_with_a_note(present, copies, sizes, note):
    first = np.arange(144) // copies
    source = created(labels_with(72, 72), present, seed=3, keys=first.tolist)
    assert tuple(map(len, source.rows.values())) == sizes
    assert len(source.notes) == (note is not None)
    assert all(note in text for text in source.notes)
    # duplicates are in one split
    drawn = [set(first[rows[rows < 144]]) for rows in source.rows.values()]
    assert sum(map(len, drawn)) == len(set.union(*drawn))
