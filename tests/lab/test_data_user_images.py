"""A user's own images: folders and CSV files."""

import os
import re
import shutil
from pathlib import Path

import miniatures
import numpy as np
import pytest
import torch
from miniatures import class_folders, not_found, picture, prepared, refuses, save, write_csv
from PIL import Image

from zetamix_lab import data


def totals(dataset):
    return sum(split.counts() for split in dataset.splits.values()).tolist()


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


# folders


def test_a_folder_of_classes_is_split(mine, data_dir):
    dataset = data.load(class_folders(mine), data_dir)
    assert (dataset.name, dataset.classes) == ("mine", ("cat", "dog", "owl"))
    assert dataset.shape == (3, 24, 30)
    # 22 images: 7 leave (rounded up), 3 of them for val
    assert miniatures.split_sizes(dataset) == {"train": 15, "val": 3, "test": 4}
    assert totals(dataset) == [10, 7, 5]
    miniatures.check_shades(dataset)
    assert dataset.notes == (
        "No val/test split found: created a stratified 70/10/20 split (seed 0)",
    )
    assert dataset.origin.startswith(f"{mine}, a folder of images")


def test_splits_of_a_folder_are_kept_and_a_missing_one_is_created(mine, data_dir):
    class_folders(mine / "Train", {"cat": 8, "dog": 8, "owl": 8})
    class_folders(mine / "test", {"cat": 2, "dog": 1, "owl": 1}, first=50)
    dataset = data.load(mine, data_dir)
    assert miniatures.split_sizes(dataset) == {"train": 21, "val": 3, "test": 4}
    miniatures.check_shades(dataset)
    assert "No val split found" in dataset.notes[0]
    class_folders(mine / "validation", {"cat": 1, "dog": 1, "owl": 2}, first=70)
    dataset = data.load(mine, data_dir)
    assert miniatures.split_sizes(dataset) == {"train": 24, "val": 4, "test": 4}
    assert dataset.notes == ()


def test_data_quality_problems_are_notes_of_the_dataset(mine, data_dir):
    for first, (split, classes) in enumerate(
        {"train": ("cat", "dog"), "val": ("cat",), "test": ("cat", "dog")}.items()
    ):
        class_folders(mine / split, dict.fromkeys(classes, 2), first=10 * first)
    shutil.copy(mine / "train" / "cat" / "0.png", mine / "train" / "dog" / "same.png")
    shutil.copy(mine / "train" / "cat" / "1.png", mine / "test" / "cat" / "seen.png")
    notes = data.load(mine, data_dir).notes
    kinds = ["Duplicates across splits: 1 group", "Conflicting labels: 1 group"]
    kinds += ["Classes missing from val: no sample of dog"]
    assert [note.startswith(kind) for note, kind in zip(notes, kinds, strict=True)] == [True] * 3
    # and from the cache
    assert data.load(mine, data_dir).notes == notes
    assert len(data.check(mine, data_dir).problems) == 3


def test_nested_folders_links_and_other_files(mine, data_dir, tmp_path):
    class_folders(mine)
    save(mine / "cat" / "deep" / "er" / "9.png", picture(0, 3, 99))
    (mine / "cat" / "notes.txt").write_text("which cats")
    (mine / "readme.md").write_text("")
    (mine / ".DS_Store").write_text("")
    # a class may be a link to another folder
    shutil.move(mine / "owl", tmp_path / "owls")
    (mine / "owl").symlink_to(tmp_path / "owls")
    dataset = data.load(mine, data_dir)
    assert totals(dataset) == [11, 7, 5]
    assert dataset.notes[0] == "ignored non-image files: readme.md and 1 more"


def test_classes_are_in_natural_order(mine, data_dir):
    class_folders(mine, {"class10": 3, "class2": 3, "class1": 3})
    assert data.load(mine, data_dir).classes == ("class1", "class2", "class10")


@pytest.mark.parametrize(
    ("sides", "size", "shape"),
    [
        ([(30, 24)], None, (24, 30)),
        ([(300, 200)], None, (224, 224)),
        ([(65, 24), (24, 30)], None, (224, 224)),
        ([(30, 24), (24, 30)], None, (24, 24)),
        ([(32, 64), (41, 50), (60, 48)], None, (48, 48)),
        ([(5, 4), (4, 4)], None, (8, 8)),
        ([(30, 24)], 16, (16, 16)),
    ],
)
def test_all_images_get_one_size(sides, size, shape, mine, data_dir):
    for side in sides:
        for label, name in enumerate(miniatures.COUNTS):
            for k in range(3):
                save(mine / name / f"{side[0]}-{k}.png", picture(label, 3, k, side))
    dataset = data.load(mine, data_dir, size=size)
    assert dataset.shape == (3, *shape)
    resized = f"centre square (largest), resized to {shape[0]} × {shape[1]}"
    assert dataset.origin.endswith("not resized" if shape == (24, 30) else resized)
    # a size that was chosen because images are small is explained
    small = size is None and shape[0] in (8, 24, 48) and shape != (24, 30)
    assert any("none has a side over 64" in note for note in dataset.notes) == small
    miniatures.check_shades(dataset)


def test_grey_images_have_one_channel_unless_one_has_colour(mine, data_dir):
    for name in miniatures.COUNTS:
        for k in range(3):
            save(mine / name / f"{k}.png", np.full((8, 8), k, np.uint8))
    assert data.load(mine, data_dir).shape == (1, 8, 8)
    save(mine / "cat" / "0.png", picture(0, 3, 0, (8, 8)))
    assert data.load(mine, data_dir).shape == (3, 8, 8)


def test_a_changed_folder_is_prepared_again_and_replaces_the_old_form(mine, data_dir):
    class_folders(mine)
    first = data.load(mine, data_dir)
    (old,) = prepared(data_dir)
    save(mine / "dog" / "more.png", picture(1, 3, 50))
    second = data.load(mine, data_dir)
    assert totals(second) == [10, 8, 5]
    assert first.fingerprint != second.fingerprint
    (new,) = prepared(data_dir)
    assert new != old
    # memory-mapped samples stay usable
    assert first.train.samples.sum().item() > 0
    # a file of the same size with another time, too
    before = (mine / "dog" / "1.png").stat()
    os.utime(mine / "dog" / "1.png", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    data.load(mine, data_dir)
    assert prepared(data_dir) != [new]


def test_seeds_and_sizes_are_prepared_separately(mine, data_dir):
    class_folders(mine)
    settings = [(0, None), (1, None), (0, 8)]
    before = [data.load(mine, data_dir, seed=k, size=size).fingerprint for k, size in settings]
    assert len(set(before)) == len(prepared(data_dir)) == 3
    save(mine / "cat" / "0.png", picture(0, 3, 99))
    again = data.load(mine, data_dir, size=8)
    assert again.fingerprint != before[2]
    # the other forms are neither used for this one nor removed with it
    assert len(prepared(data_dir)) == 3
    assert data.load(mine, data_dir).shape == (3, 24, 30)
    assert data.load(mine, data_dir, size=8).fingerprint == again.fingerprint


def test_two_folders_of_one_name_are_two_datasets(tmp_path, data_dir):
    one = data.load(class_folders(tmp_path / "a" / "mine"), data_dir)
    other = data.load(class_folders(tmp_path / "b" / "mine", {"x": 3, "y": 4}), data_dir)
    assert one.classes != other.classes
    assert data.load(tmp_path / "a" / "mine", data_dir).classes == one.classes


def broken_images(mine):
    for file in [*class_folders(mine, {"cat": 3, "dog": 3}).glob("*/*")]:
        file.write_text("no image")


def all_of(*makers):
    return lambda mine: [make(mine) for make in makers]


def folders(name, counts=miniatures.COUNTS):
    return lambda mine: class_folders(mine / name, counts)


def empty(name):
    return lambda mine: (mine / name).mkdir()


def stray(mine):
    save(mine / "stray.png", picture(0, 3, 0))


INVALID_FOLDERS = {
    "empty": (lambda mine: None, "mine: no folders; expected"),
    "stray image": (
        all_of(folders("."), stray),
        "mine: the image stray.png is not in a class folder",
    ),
    "empty class": (all_of(folders("."), empty("emu")), "mine/emu contains no images"),
    "beside train": (all_of(folders("train"), folders("extra")), "extra next to train"),
    "two vals": (all_of(*map(folders, ("train", "val", "valid"))), "val and valid are both val"),
    "class not in train": (
        all_of(folders("train"), folders("test", {"cat": 1, "emu": 1})),
        "class 'emu' has no sample in train",
    ),
    "one class": (folders(".", {"cat": 5}), "mine: 1 class with samples to train on; expected two"),
    "no class": (empty("train"), "mine/train contains no images; expected"),
    "one image": (folders(".", {"cat": 5, "dog": 1}), "'dog' of .*mine has 1 image .* at least 3"),
    "empty split": (all_of(folders("train"), empty("val")), "mine/val contains no images"),
    "all broken": (broken_images, "mine: none of 6 images can be read"),
}


@pytest.mark.parametrize(("make", "message"), INVALID_FOLDERS.values(), ids=INVALID_FOLDERS.keys())
def test_an_invalid_folder_is_refused(make, message, mine, data_dir):
    make(mine)
    refuses(mine, data_dir, message)


def test_all_broken_images_are_named(mine, data_dir):
    class_folders(mine)
    broken = [mine / "cat" / "2.png", mine / "cat" / "gone.png", mine / "owl" / "1.png"]
    broken[0].write_bytes(broken[0].read_bytes()[:60])
    broken[1].symlink_to(mine / "nowhere.png")
    broken[2].write_text("no image")
    lines = [f"\n *{file}: " for file in broken]
    refuses(mine, data_dir, r"^3 images of mine cannot be read.*(\n.*){3}$", *lines)


def test_broken_images_are_left_out_on_request(mine, data_dir):
    class_folders(mine, {"cat": 60, "dog": 60})
    whole = data.load(mine, data_dir)
    names = {split: whole.splits[split].names() for split in whole.splits}
    broken = {"train": names["train"][3], "val": names["val"][0], "test": names["test"][-1]}
    for name in broken.values():
        (mine / name).write_bytes((mine / name).read_bytes()[:60])
    with pytest.raises(data.DataError, match=r"add --skip-broken to the command"):
        data.load(mine, data_dir)
    kept = data.load(mine, data_dir, skip_broken=True)
    assert f"3 unreadable images skipped: {mine}" in kept.notes[-1]
    assert "and 2 more (listed by zetamix check)" in kept.notes[-1]
    # every other image is where it was, with its own label and pixels
    for split, name in broken.items():
        rows = [row for row, other in enumerate(names[split]) if other != name]
        assert kept.splits[split].names() == [names[split][row] for row in rows]
        assert torch.equal(kept.splits[split].labels, whole.splits[split].labels[rows])
        assert torch.equal(kept.splits[split].samples, whole.splits[split].samples[rows])
    # later loads need no option
    assert data.load(mine, data_dir).fingerprint == kept.fingerprint != whole.fingerprint


def test_a_class_without_a_readable_image_is_refused(mine, data_dir):
    class_folders(mine, {"cat": 9, "dog": 9})
    for file in (mine / "dog").iterdir():
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(data.DataError, match=r"mine: no image of dog can be read"):
        data.load(mine, data_dir, skip_broken=True)
    with pytest.raises(
        ValueError, match=r"skip_broken is for your own images only: digits without"
    ):
        data.load("digits", data_dir, skip_broken=True)


def test_reading_stops_after_many_broken_images(mine, data_dir):
    class_folders(mine, {"cat": 60, "dog": 60})
    for file in [*(mine / "dog").iterdir()]:
        file.write_text("no image")
    with pytest.raises(data.DataError, match="images or more of mine cannot be read") as caught:
        data.load(mine, data_dir)
    assert str(caught.value).count("\n") < 60


def test_odd_names_of_files_survive(mine, data_dir):
    class_folders(mine)
    odd = os.fsdecode(b"w\xffird\n name.png")
    path = os.fsencode(mine / "cat") + b"/" + os.fsencode(odd)
    Image.fromarray(picture(0, 3, 77)).save(path, format="png")
    names = [name for split in data.load(mine, data_dir).splits.values() for name in split.names()]
    assert len(names) == 23
    assert f"cat/{odd}".replace("\n", "\\n") in names


def test_duplicates_stay_in_one_created_split(mine, data_dir):
    class_folders(mine, {"cat": 20, "dog": 20})
    for file in [*mine.rglob("*.png")]:
        shutil.copy(file, file.with_stem(f"{file.stem}-again"))
    dataset = data.load(mine, data_dir)
    # 40 images twice over, split as 40 would be
    assert miniatures.split_sizes(dataset) == {"train": 56, "val": 8, "test": 16}
    assert "duplicates kept in one split" in dataset.notes[0]
    assert data.check(mine, data_dir).leaks == 0
    # a class with too few distinct images does not separate the duplicates of others
    for k in range(6):
        save(mine / "owl" / f"{k}.png", picture(1, 3, k % 2))
    report = data.check(mine, data_dir)
    assert report.leaks == 2
    assert {sample.label for group in report.duplicates[:2] for sample in group} == {"owl"}


def test_a_file_that_cannot_be_opened_is_no_duplicate(mine, data_dir, monkeypatch):
    opened = Path.open

    def deny(self, *arguments, **options):
        if self.name == "0.png":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *arguments, **options)

    class_folders(mine, {"cat": 4, "dog": 4})
    monkeypatch.setattr(Path, "open", deny)
    # all have one size, so the content of all is compared
    assert sum(data.check(mine, data_dir).sizes.values()) == 8


# CSV files


def write_images(folder, counts=miniatures.COUNTS):
    """Images in `folder/photos`; the rows of a table that lists them."""
    rows = []
    for label, (name, count) in enumerate(counts.items()):
        for k in range(count):
            save(folder / "photos" / f"{name}{k}.png", picture(label, 3, k))
            rows.append([f"photos/{name}{k}.png", name])
    return rows


def write_labels(folder, rows, header=("file", "label"), delimiter=","):
    return write_csv(folder / "labels.csv", [header, *rows], delimiter)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_a_csv_of_files_and_classes(delimiter, mine, data_dir):
    path = write_labels(mine, write_images(mine), ["File", "Label"], delimiter)
    dataset = data.load(path, data_dir)
    assert (dataset.name, dataset.classes) == ("labels", ("cat", "dog", "owl"))
    assert totals(dataset) == [10, 7, 5]
    miniatures.check_shades(dataset)
    assert dataset.train.names()[0].startswith("photos/cat")


def test_a_csv_with_splits_and_other_columns(mine, data_dir):
    splits = ["train", "train", "val", "Test", "training"]
    rows = [[k, *row, splits[k % 5], "x"] for k, row in enumerate(write_images(mine))]
    path = write_labels(mine, rows, ["n", "image", "class", "split", "sex"])
    assert miniatures.split_sizes(data.load(path, data_dir)) == {"train": 14, "val": 4, "test": 4}


def test_names_without_folder_suffix_or_case(mine, data_dir):
    rows = [[Path(name).stem.upper(), label] for name, label in write_images(mine)]
    path = write_labels(mine, rows, ["image_id", "diagnosis"])
    dataset = data.load(path, data_dir)
    assert totals(dataset) == [10, 7, 5]
    miniatures.check_shades(dataset)
    save(mine / "other" / "cat0.png", picture(0, 3, 0))
    refuses(path, data_dir / "new", "row 2: 'CAT0' is ambiguous")


def test_absolute_paths_and_a_byte_order_mark(mine, data_dir, tmp_path):
    far = tmp_path / "far"
    rows = [[str(far / name), label] for name, label in write_images(far)]
    path = write_labels(mine, rows, ["path", "label"])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert totals(data.load(path, data_dir)) == [10, 7, 5]


def test_a_changed_label_is_noticed(mine, data_dir):
    rows = write_images(mine)
    data.load(write_labels(mine, rows), data_dir)
    rows[0][1] = "dog"
    assert totals(data.load(write_labels(mine, rows), data_dir)) == [9, 8, 5]


def with_cell(row, column, text):
    def change(rows):
        rows[row - 1][column] = text
        return rows

    return change


def with_splits(choose):
    return lambda rows: [[*rows[0], "split"], *([*row, choose(row)] for row in rows[1:])]


INVALID_TABLES = {
    "no image column": (
        with_cell(1, 0, "picture"),
        "columns picture besides the class; expected one of images",
    ),
    "no label column": (
        with_cell(1, 1, "kind"),
        "columns file, kind; expected one for the class, called label",
    ),
    "image missing": (with_cell(5, 0, "photos/gone.png"), "row 5: image 'photos/gone.png' not fo"),
    "no image named": (with_cell(4, 0, ""), "row 4: no image"),
    "no label": (with_cell(3, 1, ""), "row 3: no label"),
    "twice": (with_cell(6, 0, "photos/cat0.png"), "row 6: 'photos/cat0.png' is already in row 2"),
    "short row": (lambda rows: [*rows[:3], ["a"], *rows[4:]], "row 4: image 'a' not found"),
    "long row": (lambda rows: [*rows[:3], ["a"] * 3, *rows[4:]], "row 4: expected 2 cells, got 3"),
    "no rows": (lambda rows: rows[:1], "has a header and no rows"),
    "one class": (lambda rows: rows[:11], "1 class with samples to train on; expected two"),
    "wrong split": (with_splits(lambda row: "holdout"), "row 2: split 'holdout'; expected train"),
    "no train": (with_splits(lambda row: "val"), "no row has the split train"),
    "class not in train": (
        with_splits(lambda row: "test" if row[1] == "owl" else "train"),
        "class 'owl' has no sample in train",
    ),
    "single image": (lambda rows: rows[:19], "Class 'owl' of .* has 1 image to split"),
}


@pytest.mark.parametrize(("change", "message"), INVALID_TABLES.values(), ids=INVALID_TABLES.keys())
def test_an_invalid_csv_is_refused(change, message, mine, data_dir):
    path = write_csv(mine / "labels.csv", change([["file", "label"], *write_images(mine)]))
    refuses(path, data_dir, f"labels.csv.*{message}" if "Class" not in message else message)


def test_all_invalid_rows_are_named(mine, data_dir):
    rows = write_images(mine)
    rows[0][0], rows[1][0], rows[3][1] = "photos/gone.png", rows[2][0], ""
    named = r"^2 problems:\n.*, row 2: .*gone.png.*\n.*, row 4: .*is already in row 3.*$"
    refuses(write_labels(mine, rows), data_dir, named)
    path = write_labels(mine, [[row[0], ""] for row in write_images(mine)])
    refuses(path, data_dir, "^22 problems:", r"row 11: no label.*\n  and 12 more")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is empty; expected a header with a column for the image \(file, image"),
        ("file,label\nä.png,x\n".encode("latin-1"), "is not text in UTF-8"),
        (b"\0\1\2", "is not a text file"),
        (b'file,label\n"' + b"x" * 200_000 + b'",y\n', "row 2: image 'x"),
    ],
    ids=["empty", "latin-1", "binary", "endless"],
)
def test_a_file_that_is_no_csv(content, message, mine, data_dir):
    (mine / "labels.csv").write_bytes(content)
    refuses(mine / "labels.csv", data_dir, f"{mine / 'labels.csv'}.*{message}")


def test_labels_with_bars_are_several_labels(mine, data_dir):
    rows = [
        [name, ["old|wet", "wet", "old|ill|wet"][k % 3]]
        for k, (name, _) in enumerate(write_images(mine))
    ]
    dataset = data.load(write_labels(mine, rows), data_dir)
    assert (dataset.classes, dataset.multi_label) == (("ill", "old", "wet"), True)
    assert totals(dataset) == [7, 15, 22]
    assert dataset.notes[0] == "multi-label: any number of 3 labels for every sample"


def test_a_table_of_numbers(mine, data_dir):
    rows = [[k, 0.5 * k, "ab"[k % 2]] for k in range(40)]
    path = write_labels(mine, rows, ["age", "dose", "target"])
    dataset = data.load(path, data_dir)
    assert (dataset.shape, dataset.classes, len(dataset.train)) == ((2,), ("a", "b"), 28)
    assert all(x[0] == 2 * x[1] for x in dataset.train.samples)
    refuses(path, data_dir / "o", "points of 2 coordinates; size is for images", size=8)
    path = write_labels(
        mine, [[*row[:2], 0.37 * row[0]] for row in rows], ["age", "dose", "target"]
    )
    refuses(path, data_dir / "other", "target has 40 different numbers, such as .*: targets of")


# names and paths


def test_a_file_of_another_kind_is_refused(tmp_path, data_dir):
    (tmp_path / "notes.txt").write_text("")
    refuses(tmp_path / "notes.txt", data_dir, r"a \.csv, \.npz or \.parquet file, got \.txt")
    (tmp_path / "photos.tar.gz").write_bytes(b"")
    refuses(tmp_path / "photos.tar.gz", data_dir, "is an archive: unpack it and pass the folder")
    not_found("~nosuchuser/photos", data_dir, "is neither a dataset by name")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CIFAR 10", "Did you mean cifar10 or cifar100?"),
        ("fashion mnist", "Did you mean fashion_mnist?"),
        (
            "xyzzy",
            "neither a dataset by name (digits, mnist, fashion_mnist, cifar10, cifar100) nor",
        ),
    ],
)
def test_an_unknown_name_gets_suggestions(name, hint, data_dir):
    not_found(name, data_dir, re.escape(hint))


SPELLINGS = {"MNIST": "mnist", "fashion-mnist": "fashion_mnist", "CIFAR-10": "cifar10"}


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_names_ignore_case_and_hyphens(spelling, name, data_dir, tmp_path, monkeypatch):
    not_found(spelling, data_dir, f"{name} is not in {data_dir}/{name} .*Download it with: python")
    # a folder of that name takes precedence, and a path is never a name
    monkeypatch.chdir(tmp_path)
    not_found(f"./{spelling}", data_dir, "is neither a dataset")
    class_folders(tmp_path / spelling)
    assert data.load(spelling, data_dir).classes == ("cat", "dog", "owl")


def test_a_path_that_does_not_exist_gets_suggestions(mine, data_dir):
    not_found(mine.with_name("mines"), data_dir, "Did you mean mine")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits", {"seed": -1}, "seed must lie between 0 and 2\\*\\*31 - 1, got -1"),
        ("mine", {"size": 0}, "size must lie between 1 and 4096 pixels, got 0"),
        (
            "cifar10",
            {"size": 64},
            "size is for your own data only; cifar10 is used as it is published",
        ),
    ],
)
def test_invalid_numbers_are_refused(name, options, message, data_dir):
    with pytest.raises(ValueError, match=message):
        data.load(name, data_dir, **options)
