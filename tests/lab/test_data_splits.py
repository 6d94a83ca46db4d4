"""Stratified splits: sizes of the paper, every class in every split, the same for a seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper.datasets import CATALOGUE
from zetamix_lab.data.errors import DataError
from zetamix_lab.data.source import array_source
from zetamix_lab.data.splits import allocate, classes_in_turn, complete_splits


def labels_with(*counts):
    return torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])


def created(labels, present=(), **options):
    """A source of these labels in train, and of one sample in each split that is present."""
    one = (torch.zeros(1), labels[:1])
    parts = {"train": (torch.zeros(len(labels)), labels), **dict.fromkeys(present, one)}
    classes = [f"class {k}" for k in range(int(labels.max()) + 1)]
    return complete_splits(array_source("", classes, parts, ""), origin="here", **options)


def split(labels, present=(), **options):
    """The rows of train and of the splits that were created."""
    rows = created(labels, present, **{"seed": 0, **options}).rows
    return {name: torch.from_numpy(some) for name, some in rows.items() if name not in present}


# sizes, and the classes of some test splits, that the printed metrics of the paper fix;
# MSK with its own number of images
PAPER = {
    "msk": ((2202, 826, 413, 110), (2485, 356, 710), None),
    "uda": ((408, 193), (420, 61, 120), [82, 38]),
    "dermofit": ((239, 331, 76, 257, 397), (910, 130, 260), None),
    "derm7pt": ((42, 575, 252, 45, 97), (707, 102, 202), None),
    "ph2": ((160, 40), (140, 20, 40), [32, 8]),
    "mednode": ((100, 70), (119, 17, 34), [20, 14]),
}


@pytest.mark.parametrize(("counts", "sizes", "test"), PAPER.values(), ids=PAPER.keys())
def test_splits_are_the_papers(counts, sizes, test):
    labels = labels_with(*counts)
    rows = split(labels)
    assert tuple(len(rows[name]) for name in ("train", "val", "test")) == sizes
    assert test is None or torch.bincount(labels[rows["test"]]).tolist() == test


def test_the_catalogue_has_the_sizes_that_the_recipe_gives():
    made = [spec for spec in CATALOGUE.values() if spec.split == "made"]
    assert len(made) == 8
    for spec in made:
        rows = split(labels_with(*spec.counts["all"]))
        assert {name: len(found) for name, found in rows.items()} == spec.sizes, spec.name


@given(
    st.lists(st.integers(3, 40), min_size=2, max_size=8),
    st.sampled_from([(), ("test",), ("val",)]),
    st.integers(0, 5),
)
def test_every_class_is_in_every_split_and_no_row_in_two(counts, present, seed):
    labels = labels_with(*counts)
    rows = split(labels, present=present, seed=seed)
    assert set(rows) == {"train", "val", "test"} - set(present)
    assert torch.cat(list(rows.values())).sort().values.tolist() == list(range(len(labels)))
    for found in rows.values():
        assert found.tolist() == sorted(found.tolist())
        assert set(labels[found].tolist()) == set(range(len(counts)))


def test_a_seed_fixes_a_split_and_another_gives_another():
    labels = labels_with(50, 30)
    first, again, other = split(labels), split(labels), split(labels, seed=1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["test"], other["test"])


def test_what_is_there_already_is_not_made():
    labels = labels_with(16, 16)
    assert split(labels, present=("val", "test"))["train"].tolist() == list(range(32))
    one = split(labels, present=("test",))
    assert {name: len(rows) for name, rows in one.items()} == {"train": 28, "val": 4}
    two = split(labels_with(18, 18), present=("val",))
    assert {name: len(rows) for name, rows in two.items()} == {"train": 28, "test": 8}


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
        split(labels_with(*counts), present=present)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.data())
def test_shares_are_proportional_and_add_up(sizes, data):
    count = data.draw(st.integers(len(sizes), sum(sizes)))
    shares = allocate(sizes, count, least=1, keep=0)
    assert sum(shares) == count
    assert all(1 <= share <= size for share, size in zip(shares, sizes, strict=True))
    # nobody is further from its quota than rounding and the floor of one explain
    quotas = [size * count / sum(sizes) for size in sizes]
    excess = sum(max(0, 1 - quota) for quota in quotas)
    assert all(abs(s - q) <= 1 + excess for s, q in zip(shares, quotas, strict=True))


def test_bounds_win_over_the_count():
    assert allocate([10, 1, 1], 2, least=1, keep=0) == [1, 1, 1]
    assert allocate([3, 3], 6, least=1, keep=1) == [2, 2]


@pytest.mark.parametrize(
    ("present", "keys", "note"),
    [
        ((), None, "No val/test split found: created a stratified 70/10/20 split (seed 3)"),
        (("test",), None, "No val split found: created a stratified split of 1/8 of train"),
        (("val",), None, "No test split found: created a stratified split of 2/9 of train"),
        ((), lambda: [k // 2 for k in range(40)], "duplicates kept in one split"),
        (("val", "test"), None, None),
    ],
)
def test_a_note_describes_created_splits(present, keys, note):
    notes = created(labels_with(20, 20), present, seed=3, keys=keys).notes
    assert len(notes) == (note is not None)
    assert all(note in text for text in notes)


def test_duplicates_stay_together():
    first = torch.arange(60) // 3
    rows = split(labels_with(30, 30), keys=first.tolist)
    assert {name: len(found) for name, found in rows.items()} == {"train": 42, "val": 6, "test": 12}
    groups = [set(first[found].tolist()) for found in rows.values()]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_classes_in_turn_follow_the_labels_to_their_device():
    labels = torch.tensor([1, 1, 0, 1, 0])
    # whatever is made without a device is on another one than the labels
    with torch.device("meta"):
        chosen = classes_in_turn(labels, 4)
    assert chosen.tolist() == [2, 0, 4, 1]
