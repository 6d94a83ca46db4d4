"""A user's own data: .npz archives, folders of images, CSV files."""
# ruff: noqa: E501 (a message is compared in one piece, so it is written in one piece)

import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from miniatures import picture, save, shade, write_csv, write_npz
from PIL import Image

from zetamix import data
from zetamix.data import image_files as decode
from zetamix.data.readers import sizes as sizes_of_images

COUNTS = {"cat": 10, "dog": 7, "owl": 5}


def sizes(dataset):
    return {name: len(split) for name, split in dataset.splits.items()}


def totals(dataset):
    return sum(split.counts() for split in dataset.splits.values()).tolist()


def class_folders(path, counts=None, size=(30, 24)):
    for label, (name, count) in enumerate((counts or COUNTS).items()):
        for k in range(count):
            save(path / name / f"{k}.png", picture(label, 3, k, size))
    return path


def labelled(dataset):
    """Every image has the shade of its class."""
    for split in dataset.splits.values():
        wanted = torch.tensor([shade(int(label), dataset.num_classes) for label in split.labels])
        assert (split.samples[:, 0, 0, 0].long() - wanted).abs().max().item() <= 2


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def refuses(path, root, message, **options):
    with pytest.raises(data.DataError) as caught:
        data.load(path, root, **options)
    assert message.format(path=path) in str(caught.value)
    left = [found.name for found in root.rglob("*") if not found.name.endswith(".lock")]
    assert left in ([], ["prepared"])


# folders


def test_a_folder_of_classes_is_split(mine, root):
    dataset = data.load(class_folders(mine), root)
    assert (dataset.name, dataset.classes, dataset.shape) == (
        "mine",
        ("cat", "dog", "owl"),
        (3, 24, 30),
    )
    # 22 images: 7 leave (rounded up), 3 of them for val
    assert sizes(dataset) == {"train": 15, "val": 3, "test": 4}
    assert totals(dataset) == [10, 7, 5]
    labelled(dataset)
    assert dataset.notes == ("val and test are split off train by us: stratified, 7:1:2, seed 0",)
    assert dataset.origin == f"{mine}, a folder of images; images as they are"


def test_splits_of_a_folder_are_kept_and_the_missing_one_made(mine, root):
    class_folders(mine / "Train", {"cat": 8, "dog": 8, "owl": 8})
    class_folders(mine / "test", {"cat": 2, "dog": 1, "owl": 1})
    dataset = data.load(mine, root)
    assert sizes(dataset) == {"train": 21, "val": 3, "test": 4}
    labelled(dataset)
    class_folders(mine / "validation", {"cat": 1, "dog": 1, "owl": 2})
    dataset = data.load(mine, root)
    assert sizes(dataset) == {"train": 24, "val": 4, "test": 4}
    # nothing about splits that were made; but the pictures of a class repeat from split to split
    assert dataset.notes == (
        "5 groups of identical samples are in more than one split, so a score is partly on samples "
        "that were seen before (zetamix data check names the first)",
    )


def test_what_spoils_a_score_is_a_note_of_the_data(mine, root):
    for split, classes in {
        "train": ("cat", "dog"),
        "val": ("cat",),
        "test": ("cat", "dog"),
    }.items():
        for number, name in enumerate(classes):
            for k in range(2):
                save(mine / split / name / f"{k}.png", picture(number, len(split), k))
    shutil.copy(mine / "train" / "cat" / "0.png", mine / "train" / "dog" / "same.png")
    shutil.copy(mine / "train" / "cat" / "1.png", mine / "test" / "cat" / "seen.png")
    dataset = data.load(mine, root)
    expected = [
        "1 group of identical samples is in more than one split, so a score is partly on samples "
        "that were seen before (zetamix data check names the first)",
        "1 group of identical samples has different classes, of which one at most is right "
        "(zetamix data check names the first)",
        "val has no sample of dog, so a score on it says nothing about it",
    ]
    assert list(dataset.notes) == expected
    # and from the cache
    assert list(data.load(mine, root).notes) == expected
    problems = data.check(mine, root).problems
    assert "val has no sample of dog, so a score on it says nothing about it." in problems


def test_nested_folders_links_and_other_files(mine, root, tmp_path):
    class_folders(mine)
    save(mine / "cat" / "deep" / "er" / "9.png", picture(0, 3, 99))
    (mine / "cat" / "notes.txt").write_text("which cats")
    (mine / "readme.md").write_text("")
    (mine / ".DS_Store").write_text("")
    # a class may be a link to where its images are
    shutil.move(mine / "owl", tmp_path / "owls")
    (mine / "owl").symlink_to(tmp_path / "owls")
    dataset = data.load(mine, root)
    assert totals(dataset) == [11, 7, 5]
    assert dataset.notes[0] == "not taken for images: readme.md and 1 more"


def test_names_are_in_the_order_a_person_expects(mine, root):
    class_folders(mine, {"class10": 3, "class2": 3, "class1": 3})
    assert data.load(mine, root).classes == ("class1", "class2", "class10")


@pytest.mark.parametrize(
    ("sides", "size", "shape", "how"),
    [
        ([(30, 24)], None, (3, 24, 30), "as they are"),
        ([(300, 200)], None, (3, 224, 224), "centre square (largest), scaled to 224 × 224"),
        ([(65, 24), (24, 30)], None, (3, 224, 224), "centre square (largest), scaled to 224 × 224"),
        ([(30, 24), (24, 30)], None, (3, 24, 24), "centre square (largest), scaled to 24 × 24"),
        (
            [(32, 64), (41, 50), (60, 48)],
            None,
            (3, 48, 48),
            "centre square (largest), scaled to 48 × 48",
        ),
        ([(5, 4), (4, 4)], None, (3, 8, 8), "centre square (largest), scaled to 8 × 8"),
        ([(30, 24)], 16, (3, 16, 16), "centre square (largest), scaled to 16 × 16"),
    ],
)
def test_one_size_for_all(sides, size, shape, how, mine, root):
    for side in sides:
        for label, name in enumerate(COUNTS):
            for k in range(3):
                save(mine / name / f"{side[0]}-{k}.png", picture(label, 3, k, side))
    dataset = data.load(mine, root, size=size)
    assert dataset.shape == shape
    assert dataset.origin.endswith(f"images {how}")
    labelled(dataset)


def test_small_images_say_which_size_they_got(mine, root):
    class_folders(mine)
    assert data.load(mine, root, size=24).notes == data.load(mine, root).notes
    save(mine / "cat" / "0.png", picture(0, 3, 0, (40, 33)))
    assert data.load(mine, root).notes[0] == (
        "images differ in size and none has a side over 64 pixels: scaled to 24 × 24, the median of "
        "their shorter sides rounded up to a multiple of 8"
    )


def test_small_images_that_an_earlier_version_enlarged_are_prepared_anew(mine, root, monkeypatch):
    class_folders(mine)
    save(mine / "cat" / "0.png", picture(0, 3, 0, (40, 33)))
    monkeypatch.setattr(sizes_of_images, "SMALL_SIDE", 0)
    assert data.load(mine, root).shape == (3, 224, 224)
    monkeypatch.undo()
    assert data.load(mine, root).shape == (3, 24, 24)
    (folder,) = [path for path in (root / "prepared").iterdir() if path.is_dir()]
    # once, and in the same place
    before = (folder / "meta.json").stat().st_mtime_ns
    assert data.prepare(mine, root).shape == (3, 24, 24)
    assert (folder / "meta.json").stat().st_mtime_ns == before
    # a size that was asked for is not touched
    assert data.load(mine, root, size=224).shape == (3, 224, 224)
    assert data.load(mine, root, size=224).shape == (3, 224, 224)


def test_photographs_stay_as_they_were_prepared(mine, root, monkeypatch):
    class_folders(mine, {"cat": 3, "dog": 3}, size=(70, 50))
    save(mine / "dog" / "0.png", picture(1, 3, 0, (40, 33)))
    data.load(mine, root)
    (meta,) = (root / "prepared").glob("*/meta.json")
    before = meta.stat().st_mtime_ns
    opened = []
    monkeypatch.setattr(
        sizes_of_images, "read_header", lambda path: opened.append(path) or decode.read_header(path)
    )
    assert data.load(mine, root).shape == (3, 224, 224)
    assert meta.stat().st_mtime_ns == before
    # the first of them says enough
    assert len(opened) == 1


def test_grey_images_have_one_channel_unless_one_has_colour(mine, root):
    for name in COUNTS:
        for k in range(3):
            save(mine / name / f"{k}.png", np.full((8, 8), k, np.uint8))
    assert data.load(mine, root).shape == (1, 8, 8)
    save(mine / "cat" / "0.png", picture(0, 3, 0, (8, 8)))
    assert data.load(mine, root).shape == (3, 8, 8)


def test_a_changed_folder_is_prepared_anew_and_the_old_form_removed(mine, root):
    class_folders(mine)
    first = data.load(mine, root)
    (kept,) = [path.name for path in (root / "prepared").iterdir() if path.is_dir()]
    save(mine / "dog" / "more.png", picture(1, 3, 50))
    second = data.load(mine, root)
    assert len(second.train) + len(second.val) + len(second.test) == 23
    assert first.fingerprint != second.fingerprint
    (now,) = [path.name for path in (root / "prepared").iterdir() if path.is_dir()]
    assert now != kept
    # what was mapped stays usable
    assert first.train.samples.sum().item() > 0
    # a file of the same size with other content, too
    before = (mine / "dog" / "1.png").stat()
    os.utime(mine / "dog" / "1.png", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    data.load(mine, root)
    assert [path.name for path in (root / "prepared").iterdir() if path.is_dir()] != [now]


def test_seeds_and_sizes_live_side_by_side(mine, root):
    class_folders(mine)
    prints = {
        data.load(mine, root, seed=seed, size=size).fingerprint
        for seed, size in [(0, None), (1, None), (0, 8)]
    }
    assert len(prints) == 3
    assert len([path for path in (root / "prepared").iterdir() if path.is_dir()]) == 3


def test_a_changed_file_renews_each_size_by_itself(mine, root):
    class_folders(mine)
    prepared = {size: data.prepare(mine, root, size=size) for size in (None, 8, 16)}
    assert [found.shape[-1] for found in prepared.values()] == [30, 8, 16]
    save(mine / "cat" / "0.png", picture(0, 3, 99))
    again = data.load(mine, root, size=8)
    assert again.fingerprint != prepared[8].fingerprint
    # the other sizes are not taken for this one, nor removed with it
    assert len([path for path in (root / "prepared").iterdir() if path.is_dir()]) == 3
    assert data.load(mine, root, size=16).shape == (3, 16, 16)
    assert data.load(mine, root).shape == (3, 24, 30)
    assert data.load(mine, root, size=8).fingerprint == again.fingerprint
    assert len([path for path in (root / "prepared").iterdir() if path.is_dir()]) == 3


def test_two_folders_of_one_name_are_two_datasets(tmp_path, root):
    one = data.load(class_folders(tmp_path / "a" / "mine"), root)
    other = data.load(class_folders(tmp_path / "b" / "mine", {"x": 3, "y": 4}), root)
    assert one.classes != other.classes
    assert data.load(tmp_path / "a" / "mine", root).classes == one.classes


def loose(mine):
    class_folders(mine)
    save(mine / "stray.png", picture(0, 3, 0))


def empty_class(mine):
    class_folders(mine)
    (mine / "emu").mkdir()


def beside_train(mine):
    class_folders(mine / "train")
    class_folders(mine / "extra")


def two_vals(mine):
    for name in ("train", "val", "valid"):
        class_folders(mine / name)


def new_class_in_test(mine):
    class_folders(mine / "train")
    class_folders(mine / "test", {"cat": 1, "emu": 1})


def one_class(mine):
    class_folders(mine, {"cat": 5})


def no_class(mine):
    (mine / "train").mkdir()


def single_image(mine):
    class_folders(mine, {"cat": 5, "dog": 1})


def no_images(mine):
    class_folders(mine / "train")
    (mine / "val").mkdir()


def all_broken(mine):
    for name in ("cat", "dog"):
        (mine / name).mkdir()
        for k in range(3):
            (mine / name / f"{k}.png").write_text("no image")


FOLDERS = {
    "empty": (lambda mine: None, "{path}: no folders; expected a folder for each class with its images (class/…), or the same in each of train, val and test (train/class/…)."),
    "loose": (loose, "{path}: the image stray.png lies outside of any class; expected a folder for each class"),
    "empty class": (empty_class, "{path}/emu holds no image. Add some, or delete the folder."),
    "beside train": (beside_train, "{path}: extra lies beside train; expected"),
    "two vals": (two_vals, "{path}: val and valid are both val."),
    "new class in test": (new_class_in_test, "{path}/test/emu: there is no class 'emu' in train. Every class needs images to train on."),
    "one class": (one_class, "{path}: 1 class; expected"),
    "no class": (no_class, "{path}: 0 classes; expected"),
    "single image": (single_image, "Class 'dog' of {path} has 1 image to split. Making val and test needs at least 3 of every class"),
    "split without images": (no_images, "{path}/val holds no image"),
    "all broken": (all_broken, "{path}: none of 6 files can be read as an image."),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_that_will_not_do(make, message, mine, root):
    make(mine)
    refuses(mine, root, message)


def test_broken_images_are_all_named(mine, root):
    class_folders(mine)
    cut = mine / "cat" / "2.png"
    cut.write_bytes(cut.read_bytes()[:60])
    (mine / "owl" / "1.png").write_text("no image")
    with pytest.raises(data.DataError) as caught:
        data.load(mine, root)
    first, *named = str(caught.value).split("\n")
    assert (
        first
        == "2 images of mine cannot be read, so nothing was prepared. Replace these files or take them out:"
    )
    assert sorted(line.split(": ")[0].strip() for line in named) == [
        str(cut),
        str(mine / "owl" / "1.png"),
    ]
    assert not [path for path in (root / "prepared").iterdir() if path.is_dir()]


def test_a_link_to_nowhere_is_named(mine, root):
    class_folders(mine)
    (mine / "cat" / "gone.png").symlink_to(mine / "nowhere.png")
    refuses(mine, root, f"  {mine / 'cat' / 'gone.png'}: no such file")


def test_a_folder_of_rubbish_is_not_read_to_its_end(mine, root):
    class_folders(mine, {"cat": 60, "dog": 60})
    for file in [*(mine / "dog").iterdir()]:
        file.write_text("no image")
    with pytest.raises(data.DataError, match="images and perhaps more of mine cannot be read"):
        data.load(mine, root)


# CSV files


def write_table(mine, rows, name="labels.csv", delimiter=","):
    write_csv(mine / name, rows, delimiter)
    return mine / name


def good_rows(mine, folder="photos", counts=None):
    rows = []
    for label, (name, count) in enumerate((counts or COUNTS).items()):
        for k in range(count):
            save(mine / folder / f"{name}{k}.png", picture(label, 3, k))
            rows.append([f"{folder}/{name}{k}.png", name])
    return rows


@pytest.mark.parametrize("delimiter", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_a_table_of_files_and_classes(delimiter, mine, root):
    path = write_table(mine, [["File", "Label"], *good_rows(mine)], delimiter=delimiter)
    dataset = data.load(path, root)
    assert (dataset.name, dataset.classes) == ("labels", ("cat", "dog", "owl"))
    assert totals(dataset) == [10, 7, 5]
    labelled(dataset)
    assert dataset.train.names()[0].startswith("photos/cat")


def test_a_table_with_splits_and_other_columns(mine, root):
    splits = ["train", "train", "val", "Test", "training"]
    rows = [[k, *row, splits[k % 5], "x"] for k, row in enumerate(good_rows(mine))]
    path = write_table(mine, [["n", "image", "class", "split", "sex"], *rows])
    assert sizes(data.load(path, root)) == {"train": 14, "val": 4, "test": 4}


def test_names_without_folder_ending_or_case(mine, root):
    rows = [
        [name.split("/")[1].removesuffix(".png").upper(), label] for name, label in good_rows(mine)
    ]
    dataset = data.load(write_table(mine, [["image_id", "diagnosis"], *rows]), root)
    assert totals(dataset) == [10, 7, 5]
    labelled(dataset)


def test_absolute_paths_and_a_byte_order_mark(mine, root, tmp_path):
    rows = [[str(tmp_path / "far" / name), label] for name, label in good_rows(tmp_path / "far")]
    path = write_table(mine, [["path", "label"], *rows])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert totals(data.load(path, root)) == [10, 7, 5]


def test_a_changed_label_is_noticed(mine, root):
    rows = good_rows(mine)
    path = write_table(mine, [["file", "label"], *rows])
    first = data.load(path, root)
    rows[0][1] = "dog"
    write_table(mine, [["file", "label"], *rows])
    assert totals(data.load(path, root)) == [9, 8, 5]
    assert first.train.counts().sum() > 0


def with_cell(row, column, text):
    def change(rows):
        rows[row - 1][column] = text
        return rows

    return change


TABLES = {
    "no image column": (with_cell(1, 0, "picture"), "{path}, row 1: expected a column for the image, called file, image, path, filename, file_name, image_id or image_path; got picture, label."),
    "no label column": (with_cell(1, 1, "kind"), "{path}, row 1: expected a column for the class, called label, class, target or diagnosis; got file, kind."),
    "image missing": (with_cell(5, 0, "photos/gone.png"), "{path}, row 5: there is no image 'photos/gone.png' in"),
    "no image named": (with_cell(4, 0, ""), "{path}, row 4: no image; expected the path of a file."),
    "no label": (with_cell(3, 1, ""), "{path}, row 3: no label; expected the image's class."),
    "twice": (with_cell(6, 0, "photos/cat0.png"), "{path}, row 6: 'photos/cat0.png' is in row 2 too."),
    "short row": (lambda rows: [*rows[:3], ["photos/cat3.png"], *rows[4:]], "{path}, row 4: expected 2 cells, got 1."),
    "no rows": (lambda rows: rows[:1], "{path} has a header and no rows; expected one row for each image."),
    "one class": (lambda rows: rows[:11], "{path} names one class, 'cat'; expected two."),
    "wrong split": (lambda rows: [[*row, "split" if k == 0 else "holdout"] for k, row in enumerate(rows)], "{path}, row 2: split 'holdout'; expected train, val or test."),
    "no train": (lambda rows: [[*row, "split" if k == 0 else "val"] for k, row in enumerate(rows)], "{path}: no row has the split train; expected some to train on."),
    "class not in train": (lambda rows: [[*row, "split" if k == 0 else "test" if row[1] == "owl" else "train"] for k, row in enumerate(rows)], "{path}: no image of class 'owl' is in train. Every class needs images to train on."),
    "single image": (lambda rows: rows[:19], "Class 'owl' of {path} has 1 image to split."),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), TABLES.values(), ids=TABLES.keys())
def test_a_table_that_will_not_do(change, message, mine, root):
    path = write_table(mine, change([["file", "label"], *good_rows(mine)]))
    refuses(path, root, message)


def test_all_rows_that_will_not_do_are_named(mine, root):
    rows = good_rows(mine)
    rows[0][0], rows[1][0], rows[3][1] = "photos/gone.png", rows[2][0], ""
    rows[4].append("more")
    path = write_table(mine, [["file", "label"], *rows])
    with pytest.raises(data.DataError) as caught:
        data.load(path, root)
    assert str(caught.value).split("\n  ") == [
        "4 things are wrong:",
        f"{path}, row 6: expected 2 cells, got 3.",
        f"{path}, row 2: there is no image 'photos/gone.png' in {mine}.",
        f"{path}, row 4: 'photos/cat2.png' is in row 3 too.",
        f"{path}, row 5: no label; expected the image's class.",
    ]
    write_table(mine, [["file", "label"], *([row[0], ""] for row in good_rows(mine)), ["x", "y"]])
    refuses(path, root, "23 things are wrong:")
    refuses(path, root, f"\n  {path}, row 11: no label; expected the image's class.\n  and 13 more")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"",
            "{path} is empty; expected a header with a column for the image (file, image, path, "
            "filename, file_name, image_id, image_path) and one for its class (label, class, "
            "target, diagnosis), and a row for each image.",
        ),
        (
            "file,label\nä.png,x\n".encode("latin-1"),
            "{path} is not text in UTF-8. Save it as CSV in UTF-8.",
        ),
        (b"\0\1\2", "{path} is not a text file. Save it as CSV in UTF-8."),
        (
            b'file,label\n"' + b"x" * 200_000 + b'",y\n',
            "{path}, row 2: field larger than field limit (131072).",
        ),
    ],
    ids=["empty", "latin-1", "binary", "endless"],
)
def test_a_file_that_is_no_table(content, message, mine, root):
    (mine / "labels.csv").write_bytes(content)
    refuses(mine / "labels.csv", root, message)


def test_a_name_that_fits_two_images(mine, root):
    rows = good_rows(mine)
    save(mine / "other" / "cat0.png", picture(0, 3, 0))
    rows[0][0] = "cat0"
    refuses(write_table(mine, [["file", "label"], *rows]), root, "row 2: 'cat0' could be")


# npz archives


def test_an_npz_of_images(tmp_path, root):
    write_npz(tmp_path / "own.npz", {"train": [8] * 3, "val": [1] * 3, "test": [2] * 3}, (3, 9, 7))
    dataset = data.load(tmp_path / "own.npz", root)
    assert (dataset.name, dataset.classes, dataset.shape) == ("own", ("0", "1", "2"), (3, 9, 7))
    assert sizes(dataset) == {"train": 24, "val": 3, "test": 6}
    labelled(dataset)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8)])
def test_missing_splits_of_an_npz_are_made(shape, tmp_path, root):
    write_npz(tmp_path / "own.npz", {"train": [10] * 3}, shape)
    dataset = data.load(tmp_path / "own.npz", root, seed=4)
    assert sizes(dataset) == {"train": 21, "val": 3, "test": 6}
    labelled(dataset)
    assert dataset.notes == ("val and test are split off train by us: stratified, 7:1:2, seed 4",)


def test_an_npz_of_points_and_names(tmp_path, root):
    points = np.arange(60, dtype=np.float64).reshape(20, 3)
    labels = np.arange(20) % 2
    np.savez(
        tmp_path / "points.npz",
        train_images=points,
        train_labels=labels,
        classes=np.array(["low", "high"]),
    )
    dataset = data.load(tmp_path / "points.npz", root)
    assert (dataset.shape, dataset.classes) == ((3,), ("low", "high"))
    assert dataset.train.samples.dtype == torch.float32
    row = int(dataset.train.samples[4, 0]) // 3
    assert dataset.train.labels[4] == row % 2


IMAGES, LABELS = np.zeros((6, 4, 4), np.uint8), np.array([0, 1, 0, 1, 0, 1])
LAYOUT = "expected the MedMNIST layout: train_images [n, h, w] or [n, h, w, 3], uint8, and train_labels [n], integers"
OBJECTS = np.array([{"a": 1}] * 6, dtype=object)
NPZ = {
    "no train": ({"images": IMAGES}, "{path} holds images; " + LAYOUT),
    "no labels": ({"train_images": IMAGES}, "{path} holds train_images without train_labels; " + LAYOUT),
    "float images": ({"train_images": IMAGES.astype(float), "train_labels": LABELS}, "{path}: train_images is [6, 4, 4], float64; " + LAYOUT),
    "channels first": ({"train_images": np.zeros((6, 3, 8, 8), np.uint8), "train_labels": LABELS}, "{path}: train_images is [6, 3, 8, 8], uint8; " + LAYOUT),
    "no image": ({"train_images": IMAGES[:0], "train_labels": LABELS[:0]}, "{path}: train_images is [0, 4, 4], uint8"),
    "fewer labels": ({"train_images": IMAGES, "train_labels": LABELS[:5]}, "{path}: train_labels is [5], int64; expected one integer for each of the 6 images, [6] or [6, 1]."),
    "many labels each": ({"train_images": IMAGES, "train_labels": np.zeros((6, 14), int)}, "{path}: train_labels is [6, 14], int64; expected one integer"),
    "labels as text": ({"train_images": IMAGES, "train_labels": LABELS.astype(str)}, "{path}: train_labels is [6], <U21; expected one integer"),
    "negative label": ({"train_images": IMAGES, "train_labels": np.array([0, 1, -1, 1, 0, 1])}, "{path}: row 2 of train_labels is -1; expected classes from 0 on."),
    "gap": ({"train_images": IMAGES, "train_labels": np.array([0, 2, 0, 2, 0, 2])}, "{path}: class '1' (label 1) has no image in train_labels. Number the classes from 0 without gaps, and train on each of them."),
    "endless classes": ({"train_images": IMAGES, "train_labels": LABELS * 10**12}, "{path}: the largest label of train_labels is 1,000,000,000,000, for 6 images to train on. Number the classes from 0 without gaps."),
    "label without class": ({"train_images": IMAGES, "train_labels": LABELS, "classes": np.array(["a"])}, "{path}: row 1 of train_labels is 1 (and 2 more rows likewise), but there is 1 class to train on, 0."),
    "label not in train": ({"train_images": IMAGES, "train_labels": LABELS, "test_images": IMAGES, "test_labels": np.array([9, 1, 0, 1, 0, 1])}, "{path}: row 0 of test_labels is 9, but there are 2 classes to train on, 0 to 1."),
    "other size": ({"train_images": IMAGES, "train_labels": LABELS, "test_images": np.zeros((6, 5, 5), np.uint8), "test_labels": LABELS}, "{path}: test_images has samples of shape [5, 5], train_images of [4, 4]; all splits need the same."),
    "pickled images": ({"train_images": OBJECTS, "train_labels": LABELS}, "{path}: train_images holds pickled Python objects, which are never loaded; " + LAYOUT),
    "pickled labels": ({"train_images": IMAGES, "train_labels": OBJECTS}, "{path}: train_labels holds pickled Python objects, which are never loaded"),
    "not numbers": ({"train_images": np.full((6, 2), np.nan), "train_labels": LABELS}, "{path}: row 0 of train_images holds NaN or infinity; expected numbers."),
    "single image": ({"train_images": IMAGES[:4], "train_labels": np.array([0, 0, 0, 1])}, "Class '1' of {path} has 1 image to split."),
}  # fmt: skip


@pytest.mark.parametrize(("arrays", "message"), NPZ.values(), ids=NPZ.keys())
def test_an_npz_that_will_not_do(arrays, message, tmp_path, root):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays)
    refuses(path, root, message)


def test_an_npz_never_unpickles(tmp_path, root):
    touched = tmp_path / "touched"

    class Attack:
        def __reduce__(self):
            return touched.write_text, ("gotcha",)

    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (6,), }".ljust(117)
        + b"\n"
    )
    np.savez(tmp_path / "own.npz", train_labels=LABELS)
    with zipfile.ZipFile(tmp_path / "own.npz", "a") as archive:
        archive.writestr("train_images.npy", header + pickle.dumps(Attack()))
    refuses(tmp_path / "own.npz", root, "train_images holds pickled Python objects")
    assert not touched.exists()


def damaged(path, harm):
    np.savez_compressed(
        path,
        train_images=np.arange(6 * 400 * 400, dtype=np.uint8).reshape(6, 400, 400),
        train_labels=LABELS,
    )
    content = bytearray(path.read_bytes())
    if harm == "cut":
        content = content[: len(content) // 2]
    elif harm == "flipped":
        middle = content.index(b"train_images.npy") + 600
        content[middle : middle + 64] = bytes(64)
    else:
        content = bytearray(b"hello")
    path.write_bytes(content)


@pytest.mark.parametrize("harm", ["cut", "flipped", "text"])
def test_a_damaged_npz_is_named(harm, tmp_path, root):
    damaged(tmp_path / "own.npz", harm)
    refuses(tmp_path / "own.npz", root, "{path}")


def test_a_header_that_promises_more_than_there_is(tmp_path, root):
    header = (
        b"\x93NUMPY\x01\x00v\x00"
        + b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 9999, 9999), }".ljust(117)
        + b"\n"
    )
    np.savez(tmp_path / "own.npz", train_labels=LABELS)
    with zipfile.ZipFile(tmp_path / "own.npz", "a") as archive:
        archive.writestr("train_images.npy", header + bytes(16))
    refuses(
        tmp_path / "own.npz",
        root,
        "train_images.npy should hold 99,980,001,000,000 bytes of [1000000, 9999, 9999], but holds 16.",
    )


# anything else


def test_what_is_nothing_that_can_be_read(tmp_path, root):
    (tmp_path / "notes.txt").write_text("")
    refuses(
        tmp_path / "notes.txt",
        root,
        "{path}: expected a folder of images, a .csv file or an .npz archive, got .txt.",
    )


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("CIFAR 10", "Did you mean cifar10 or cifar100?"),
        ("fashion mnist", "Did you mean fashion_mnist?"),
        ("derm7pt", "Did you mean derm7pt_clinical or derm7pt_dermoscopic?"),
        ("xyzzy", "nor a file or folder here. `zetamix data list` shows all names."),
    ],
)
def test_a_name_that_is_not_known_gets_the_nearest(what, hint, root):
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load(what, root)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("MNIST", "mnist"),
        ("fashion-mnist", "fashion_mnist"),
        ("CIFAR-10", "cifar10"),
        ("Derm7pt-Clinical", "derm7pt_clinical"),
    ],
)
def test_names_are_known_in_any_case_and_with_hyphens(what, name, root, tmp_path, monkeypatch):
    with pytest.raises(data.DatasetNotFoundError, match=f"\\({name}\\) is not in {root}"):
        data.load(what, root)
    # a folder here is that folder; a path that is not here is no name
    monkeypatch.chdir(tmp_path)
    with pytest.raises(data.DatasetNotFoundError, match="is neither a dataset"):
        data.load(f"./{what}", root)
    class_folders(tmp_path / what)
    assert data.load(what, root).classes == ("cat", "dog", "owl")


def test_a_path_that_is_not_there_gets_its_neighbours(mine, root):
    class_folders(mine)
    with pytest.raises(data.DatasetNotFoundError, match=f"Did you mean {mine}"):
        data.load(mine.with_name("mien"), root)


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ("digits", {"seed": -1}, "seed must lie between 0 and 2\\*\\*31 - 1, got -1"),
        ("mine", {"size": 0}, "size must lie between 1 and 4096 pixels, got 0"),
        ("cifar10", {"size": 64}, "size is for data of your own; cifar10 has images of 32 pixels"),
    ],
)
def test_numbers_of_no_sense(what, options, message, root):
    with pytest.raises(ValueError, match=message):
        data.load(what, root, **options)


def test_size_is_not_for_an_npz(tmp_path, root):
    write_npz(tmp_path / "own.npz", {"train": [3] * 3}, (1, 8, 8))
    with pytest.raises(ValueError, match=r"size is for image files; own\.npz holds images of one"):
        data.load(tmp_path / "own.npz", root, size=16)


def test_odd_names_of_files_survive(mine, root):
    class_folders(mine)
    odd = os.fsdecode(b"w\xffird\n name.png")
    Image.fromarray(picture(0, 3, 77)).save(
        os.fsencode(mine / "cat") + b"/" + os.fsencode(odd), format="png"
    )
    names = [name for split in data.load(mine, root).splits.values() for name in split.names()]
    assert len(names) == 23
    assert f"cat/{odd}".replace("\n", "\\n") in names


def test_copies_stay_in_one_split_of_ours(mine, root):
    for number, name in enumerate(("cat", "dog")):
        for k in range(20):
            save(mine / name / f"{k}.png", picture(number, 2, k))
            shutil.copy(mine / name / f"{k}.png", mine / name / f"{k}-again.png")
    dataset = data.load(mine, root)
    # 40 images twice over, split as 40 would be
    assert sizes(dataset) == {"train": 56, "val": 8, "test": 16}
    assert dataset.notes == (
        "val and test are split off train by us: stratified, 7:1:2 of the different samples, "
        "seed 0",
    )
    assert data.check(mine, root).leaks == 0
    # a class with too few different images does not part the copies of others
    for k in range(6):
        save(mine / "owl" / f"{k}.png", picture(1, 3, k % 2))
    report = data.check(mine, root)
    assert report.leaks == 2
    assert {place.label for group in report.duplicates[:2] for place in group} == {"owl"}


def test_a_file_that_cannot_be_opened_is_told_as_one(mine, root, monkeypatch):
    opened = Path.open

    def refuse(self, *how, **more):
        if self.name == "0.png":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *how, **more)

    class_folders(mine, {"cat": 4, "dog": 4})
    monkeypatch.setattr(Path, "open", refuse)
    # all are of one size, so all are looked into for copies
    assert sum(data.check(mine, root).sizes.values()) == 8


def test_copies_in_an_archive_stay_in_one_split_of_ours(tmp_path, root):
    images = np.random.default_rng(0).integers(256, size=(30, 8, 8), dtype=np.uint8)
    labels = np.arange(30) % 2
    path = tmp_path / "twice.npz"
    np.savez(path, train_images=np.tile(images, (2, 1, 1)), train_labels=np.tile(labels, 2))
    dataset = data.load(path, root)
    assert sizes(dataset) == {"train": 42, "val": 6, "test": 12}
    assert data.check(path, root).leaks == 0
    again = data.load(path, root, seed=1)
    assert not torch.equal(again.test.samples, dataset.test.samples)
    assert data.check(path, root, seed=1).leaks == 0
