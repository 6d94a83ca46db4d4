"""A user's data in every format: what is read, and what is refused with which sentence."""

import io
import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from unittest import mock

import miniatures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from miniatures import (
    Attack,
    check_shades,
    class_folders,
    not_found,
    picture,
    prepared,
    refuses,
    save,
    split_sizes,
)
from PIL import Image

from zetamix_lab import data

CLASSES = ["cat", "dog", "emu"]
LABEL = {"names": CLASSES, "_type": "ClassLabel"}


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def totals(dataset):
    return sum(split.counts() for split in dataset.splits.values()).tolist()


def png(label, index, size=(20, 16)):
    buffer = io.BytesIO()
    Image.fromarray(picture(label, 3, index, size)).save(buffer, "PNG")
    return buffer.getvalue()


def table(count, start=0, **columns):
    """Images of three classes in turn; the green of an image is 37 times its number."""
    numbers = range(start, start + count)
    images = [{"bytes": png(k % 3, k), "path": f"{k // 3}_{k}.png"} for k in numbers]
    return pa.table({"image": images, "label": [k % 3 for k in numbers], **columns})


def noted(content, **features):
    """With the types of columns, as Hugging Face's library notes them."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return content.replace_schema_metadata(metadata)


def fill(folder, files):
    """Folders of a number of images; images, text, bytes, tables, arrays, or a pipe for None."""
    for number, (name, content) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, int):
            path.mkdir()
            for k in range(content):
                save(path / f"{k}.png", picture(number % 3, 3, 10 * number + k))
        elif isinstance(content, np.ndarray):
            save(path, content)
        elif isinstance(content, dict):
            np.savez(path, **content)
        elif content is None:
            os.mkfifo(path)
        elif not isinstance(content, pa.Table):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        elif path.suffix == ".parquet":
            pq.write_table(content, path)
        else:
            with pa.ipc.new_stream(str(path), content.schema) as out:
                out.write_table(content, max_chunksize=7)


def saved(folder, content):
    """The files of `datasets.Dataset.save_to_disk`, version 5, and one that `map` caches there."""
    half = len(content) // 2
    parts = {0: content.slice(0, half), 1: content.slice(half)}
    files = {f"{folder}/data-{k:05}-of-00002.arrow": part for k, part in parts.items()}
    return files | {f"{folder}/cache-12.arrow": content, f"{folder}/state.json": "{}"}


ZEROS, LABELS = np.zeros((6, 4, 4), np.uint8), np.array([0, 1, 0, 1, 0, 1])


def arrays(images=ZEROS, labels=LABELS, **more):
    return {"train_images": images, "train_labels": labels, **more}


def csv_of(*rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def number_of(image):
    # 173 times 37 is 1, modulo 256
    return 173 * int(image[1, 0, 0]) % 256


def check_pictures(dataset, expected):
    """Every image has its label, and all are there once."""
    found = []
    for split in dataset.splits.values():
        found += zip(map(number_of, split.samples), split.labels.tolist(), strict=True)
    assert sorted(found) == [(k, k % 3) for k in range(expected)]


# the same 60 images in every format, in splits or without


IMAGES = np.stack([picture(k % 3, 3, k, (20, 16)) for k in range(60)])
PHOTOS = [f"pets/{CLASSES[k % 3]}/{k:02}.png" for k in range(60)]
FOLDER = dict(zip(PHOTOS, IMAGES, strict=True))
NAMED = [CLASSES[k % 3] for k in range(60)]
ENCODED = [png(k % 3, k) for k in range(60)]
TABLE = noted(table(60), label=LABEL)
CSV = csv_of(["File", "Label", "sex"], *zip(PHOTOS, NAMED, "x" * 60, strict=True))
ARRAYS = {"train_images": IMAGES, "train_labels": np.arange(60)[:, None] % 3, "classes": CLASSES}
FORMATS = {
    "folder": ("pets", FOLDER),
    "CSV": ("pets.csv", {**FOLDER, "pets.csv": CSV}),
    "semicolons": ("pets.csv", {**FOLDER, "pets.csv": "\ufeff" + CSV.replace(",", ";")}),
    "tabs": ("pets.csv", {**FOLDER, "pets.csv": "\ufeff" + CSV.replace(",", "\t")}),
    "Parquet": ("pets.parquet", {"pets.parquet": TABLE}),
    "bytes": ("pets.parquet", {"pets.parquet": pa.table({"img": ENCODED, "class": NAMED})}),
    "shards": ("pets", {f"pets/data/train-{k}.parquet": TABLE[30 * k :][:30] for k in range(2)}),
    "Hugging Face": ("pets", saved("pets", TABLE)),
    "npz": ("pets.npz", {"pets.npz": ARRAYS}),
}


@pytest.mark.parametrize(("name", "files"), FORMATS.values(), ids=FORMATS)
def test_the_same_images_are_the_same_dataset_in_every_format(name, files, mine, data_dir):
    fill(mine, files)
    path = mine / name
    dataset = data.load(path, data_dir)
    assert (dataset.name, dataset.classes, dataset.shape) == ("pets", tuple(CLASSES), (3, 16, 20))
    assert split_sizes(dataset) == {"train": 42, "val": 6, "test": 12}
    assert dataset.train.counts().tolist() == [14, 14, 14]
    assert dataset.notes == ("No val/test split found: created a stratified 7:1:2 split (seed 0)",)
    assert dataset.origin.startswith(str(path))
    check_pictures(dataset, 60)
    if path.suffix != ".npz":
        assert data.load(f"hf:{path}", data_dir, size=8).shape == (3, 8, 8)
    report = data.check(path, data_dir)
    assert (report.ok, report.sizes, report.duplicates) == (True, split_sizes(dataset), [])
    # a file with another time is prepared again, and replaces the old form
    before = prepared(data_dir)
    file = path if path.is_file() else max(path.rglob("*.[!j]*"))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    assert data.load(path, data_dir).fingerprint == dataset.fingerprint
    assert len(prepared(data_dir)) == len(before)
    assert prepared(data_dir) != before


@pytest.mark.slow
def test_what_the_library_of_hugging_face_saves_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}

    def part(numbers):
        images = [Image.open(io.BytesIO(ENCODED[k])) for k in numbers]
        rows = {"image": images, "label": [k % 3 for k in numbers]}
        return datasets.Dataset.from_dict(rows, features=datasets.Features(features))

    parts = {"train": part(range(30)), "test": part(range(30, 42))}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "pets"))
    dataset = data.load(f"hf:{tmp_path / 'pets'}", tmp_path)
    assert dataset.classes == tuple(CLASSES)
    # a validation split is drawn from the training split
    assert split_sizes(dataset) == {"train": 26, "val": 4, "test": 12}
    check_pictures(dataset, 42)


SPLITS = ["test" if k % 10 == 0 else "Validation" if k % 10 == 5 else "Train" for k in range(60)]
ROWS_OF = {name: [k for k in range(60) if SPLITS[k] == name] for name in dict.fromkeys(SPLITS)}
# names without folder and suffix
STEMS = [f"{k:02}" for k in range(60)]
IN_TABLE = csv_of(["image_id", "diagnosis", "split"], *zip(STEMS, NAMED, SPLITS, strict=True))
IN_FOLDERS, IN_ARRAYS = {}, {}
for part, rows in ROWS_OF.items():
    IN_FOLDERS |= saved(f"pets/{part}", TABLE.take(rows))
    name = part[:3].lower() if part == "Validation" else part.lower()
    IN_ARRAYS |= {f"{name}_images": IMAGES[rows], f"{name}_labels": np.array(rows) % 3}
IN_SPLITS = {
    "folder": ("pets", {f"pets/{SPLITS[k]}/{NAMED[k]}/{k}.png": IMAGES[k] for k in range(60)}),
    "CSV": ("pets.csv", {**FOLDER, "pets.csv": IN_TABLE}),
    "Parquet": ("pets.parquet", {"pets.parquet": table(60, split=SPLITS)}),
    "Hugging Face": ("pets", IN_FOLDERS),
    "npz": ("pets.npz", {"pets.npz": IN_ARRAYS}),
}


@pytest.mark.parametrize(("name", "files"), IN_SPLITS.values(), ids=IN_SPLITS)
def test_existing_splits_are_kept(name, files, mine, data_dir):
    fill(mine, files)
    dataset = data.load(mine / name, data_dir)
    assert split_sizes(dataset) == {"train": 48, "val": 6, "test": 6}
    assert dataset.notes == ()
    check_pictures(dataset, 60)
    assert {number_of(image) % 10 for image in dataset.test.samples} == {0}


# labels


KINDS = ("ill", "old", "wet")
SEVERAL = [[k % 2, int(k % 3 > 0), int(k % 5 == 0)] for k in range(60)]


def several(form, rows):
    """A table of the 60 images with these labels."""
    lists = [[k for k in range(3) if row[k]] for row in rows]
    names = [[KINDS[k] for k in some] for some in lists]
    if form == "csv":
        cells = [[photo, *row] for photo, row in zip(PHOTOS, rows, strict=True)]
        return csv_of(["path", *KINDS], *cells)
    if form == "npz":
        return {**arrays(IMAGES, np.array(rows)), "classes": np.array(KINDS)}
    columns = {
        "columns": dict(zip(KINDS, map(list, zip(*rows, strict=True)), strict=True)),
        "lists": {"labels": lists},
        "names": {"label": names},
        "matrix": {"labels": rows},
        "bars": {"label": ["|".join(some) for some in names]},
    }
    made = pa.table({"image": table(60)["image"], **columns[form]})
    feature = {"feature": {"names": KINDS, "_type": "ClassLabel"}}
    return noted(made, labels=feature) if form == "lists" else made


@pytest.mark.parametrize("one_hot", [False, True], ids=["several", "one"])
@pytest.mark.parametrize("form", ["columns", "lists", "names", "matrix", "bars", "npz", "csv"])
def test_several_labels_of_a_sample(form, one_hot, mine, data_dir):
    rows = [[int(j == k % 3) for j in range(3)] for k in range(60)] if one_hot else SEVERAL
    if form == "bars":
        # a sample without any label would be one of the class "", and without bars it has a class
        rows = [[*row[:2], int(row[2] or not any(row))] for row in rows]
    name = f"pets.{form if form in ('npz', 'csv') else 'parquet'}"
    fill(mine, {**FOLDER, name: several(form, rows)})
    dataset = data.load(mine / name, data_dir)
    assert dataset.classes == (("0", "1", "2") if form == "matrix" else KINDS)
    assert dataset.multi_label is not one_hot
    note = "multi-label: any number of 3 labels for every sample"
    if one_hot:
        note = "labels are one-hot: read as 3 classes"
    assert note in dataset.notes or (one_hot and form == "bars")
    assert totals(dataset) == np.sum(rows, 0).tolist()
    for image, label in zip(dataset.train.samples, dataset.train.labels.tolist(), strict=True):
        row = rows[number_of(image)]
        assert label == (row.index(1) if one_hot else row)


def test_classes_are_in_natural_order(mine, data_dir):
    class_folders(mine, {"class10": 3, "class2": 3, "class1": 3})
    assert data.load(mine, data_dir).classes == ("class1", "class2", "class10")


@pytest.mark.parametrize("channels", [(), (3,)])
def test_float_images_keep_their_range(channels, tmp_path):
    images = np.random.default_rng(0).normal(-300, 500, (12, 10, 8, *channels))
    path = tmp_path / "ct.npz"
    np.savez(path, train_images=images, train_labels=np.arange(12) % 2)
    dataset = data.load(path, tmp_path)
    assert dataset.train.samples.dtype == torch.float32
    assert dataset.shape == (len(channels) * 2 + 1, 10, 8)
    stored = {float(image.ravel()[0]) for image in images.astype(np.float32)}
    assert {float(image[0, 0, 0]) for image in dataset.train.samples} <= stored
    with pytest.raises(data.DataError, match=r"ct\.npz: size is for image files; resize arrays"):
        data.load(path, tmp_path, size=4)


# sizes


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
    check_shades(dataset)


def test_grey_images_have_one_channel_unless_one_has_colour(mine, data_dir):
    fill(mine, {f"{'ab'[k % 2]}/{k}.png": np.full((8, 8), k, np.uint8) for k in range(6)})
    assert data.load(mine, data_dir).shape == (1, 8, 8)
    fill(mine, {"a/0.png": picture(0, 3, 0, (8, 8))})
    assert data.load(mine, data_dir).shape == (3, 8, 8)


def test_sizes_are_prepared_separately(mine, data_dir):
    class_folders(mine)
    before = [data.load(mine, data_dir, size=size).fingerprint for size in (None, 16, 8)]
    assert len(set(before)) == len(prepared(data_dir)) == 3
    save(mine / "cat" / "0.png", picture(0, 3, 99))
    again = data.load(mine, data_dir, size=8)
    assert again.fingerprint != before[2]
    # the other forms are neither used for this one nor removed with it
    assert len(prepared(data_dir)) == 3
    # and neither is a folder of the same name elsewhere
    other = data.load(class_folders(mine / "b" / "mine", {"x": 3, "y": 4}), data_dir)
    assert other.classes == ("x", "y")


# odd files


def test_nested_folders_links_and_other_files(mine, data_dir, tmp_path):
    class_folders(mine)
    fill(mine, {"cat/deep/er/9.png": picture(0, 3, 99), "cat/notes.txt": "", "readme.md": ""})
    hidden = (".DS_Store", "cat/.hidden.png", "cat/__MACOSX/0.png", ".git/0.png")
    fill(mine, dict.fromkeys(hidden, ""))
    # a class may be a link to another folder
    shutil.move(mine / "owl", tmp_path / "owls")
    (mine / "owl").symlink_to(tmp_path / "owls")
    odd = os.fsdecode(b"w\xffird\n name.png")
    path = os.fsencode(mine / "cat") + b"/" + os.fsencode(odd)
    Image.fromarray(picture(0, 3, 77)).save(path, format="png")
    dataset = data.load(mine, data_dir)
    assert totals(dataset) == [12, 7, 5]
    assert dataset.notes[0] == "ignored non-image files: cat/notes.txt and 1 more"


def test_broken_images_are_left_out_on_request(mine, data_dir):
    class_folders(mine, {"cat": 60, "dog": 60})
    whole = data.load(mine, data_dir)
    rows = {"train": 3, "val": 0, "test": len(whole.test) - 1}
    samples = {split: whole.splits[split].samples[row] for split, row in rows.items()}
    paths = [
        path
        for sample in samples.values()
        for path in sorted(mine.rglob("*.png"))
        if torch.equal(data.read_image(path, whole.shape), sample)
    ]
    for path in paths:
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(data.DataError, match=r"add --skip-broken to the command") as caught:
        data.load(mine, data_dir)
    first, *lines = str(caught.value).split("\n")
    assert first.startswith("3 images of mine cannot be read")
    assert [line.split(": ")[0].strip() for line in lines] == list(map(str, paths))
    kept = data.load(mine, data_dir, skip_broken=True)
    assert "3 unreadable images skipped: " in kept.notes[-1]
    assert "and 2 more (listed by zetamix check)" in kept.notes[-1]
    # every other image is where it was, with its own label and pixels
    for split, row in rows.items():
        left = torch.arange(len(whole.splits[split])) != row
        assert torch.equal(kept.splits[split].labels, whole.splits[split].labels[left])
        assert torch.equal(kept.splits[split].samples, whole.splits[split].samples[left])
    # later loads need no option
    assert data.load(mine, data_dir).fingerprint == kept.fingerprint != whole.fingerprint


def test_images_that_cannot_be_left_out(mine, data_dir):
    class_folders(mine, {"cat": 60, "dog": 60})
    for file in (mine / "dog").iterdir():
        file.write_text("no image")
    with pytest.raises(data.DataError, match=r"60 images of mine cannot be (.*\n)+  and 50 more$"):
        data.load(mine, data_dir)
    with pytest.raises(data.DataError, match=r"mine: no image of dog can be read"):
        data.load(mine, data_dir, skip_broken=True)


TWICE = [*range(40), *range(40)]
DUPLICATES = {
    "twice": {f"twice/{NAMED[k]}/{place}.png": IMAGES[k] for place, k in enumerate(TWICE)},
    "twice.npz": {"twice.npz": arrays(IMAGES[TWICE], np.array(TWICE) % 3)},
    "twice.parquet": {"twice.parquet": TABLE.take(TWICE)},
}


@pytest.mark.parametrize("name", DUPLICATES)
def test_duplicates_stay_in_one_created_split(name, mine, data_dir):
    fill(mine, DUPLICATES[name])
    path = mine / name
    dataset = data.load(path, data_dir)
    # 40 images twice over, split as 40 would be
    assert split_sizes(dataset) == {"train": 56, "val": 8, "test": 16}
    assert "duplicates kept in one split" in dataset.notes[0]
    report = data.check(path, data_dir)
    assert (len(report.duplicates), report.problems) == (40, ())


def test_a_class_of_few_distinct_images_does_not_separate_others(mine, data_dir):
    class_folders(mine, {"cat": 20, "dog": 20})
    for k in range(6):
        save(mine / "owl" / f"{k}.png", picture(1, 3, 90 + k % 2))
    report = data.check(mine, data_dir)
    assert report.problems[0].startswith("Duplicates across splits: 2 groups")
    assert {sample["label"] for group in report.duplicates for sample in group} == {"owl"}


def test_a_file_that_cannot_be_opened_is_no_duplicate(mine, data_dir, monkeypatch):
    class_folders(mine, {"cat": 4, "dog": 4})
    # all have one size, so the content of all is compared
    monkeypatch.setattr(Path, "read_bytes", mock.Mock(side_effect=PermissionError))
    assert sum(data.check(mine, data_dir).sizes.values()) == 8


# what is refused


def labelled(*labels, **features):
    """30 images with these labels in turn, or of this type."""
    made = table(30).set_column(1, "label", [(list(labels) * 30)[:30]])
    return noted(made, **features) if features else made


def imaged(**fields):
    """Nine structures for images."""
    return table(9).set_column(0, "image", [[fields] * 9])


PETS = {"cat": 3, "dog": 3}
BYTES = pa.table({"image": [b""], "label": [0]})
TRAIN = {"train/cat": 3, "train/dog": 3}
FOLDERS = {
    "empty": ({}, "mine: no folders; expected"),
    "stray image": ({**PETS, "x.png": ""}, "mine: the image x.png is not in a class folder"),
    "beside train": ({**TRAIN, "extra": 0}, "extra next to train"),
    "two vals": ({**TRAIN, "val/cat": 1, "valid/cat": 1}, "unexpected folder valid next to val"),
    "class not in train": ({**TRAIN, "test/emu": 1}, "class 'emu' has no sample in train"),
    "no class": ({"train": 0}, "mine/train contains no images; expected"),
    "one image": ({"cat": 5, "dog": 1}, "'dog' of .*mine has 1 image .* at least 3"),
    "all broken": (
        {f"{name}/{k}.png": "" for name in PETS for k in range(3)},
        "6 images of mine cannot be read",
    ),
    "a pipe": ({"train-0.parquet": table(9), "train-1.parquet": None}, "is not a regular file"),
    "no Arrow file": ({"state.json": "{}"}, "mine is incomplete: expected every Arrow file"),
    "one of two files": ({"state.json": "", "data-0-of-2.arrow": ""}, "mine is incomplete"),
    "unsupervised": ({"more/state.json": "", "more/0.arrow": ""}, "more is no split; expected tr"),
    "no train in tables": ({"test.parquet": table(9)}, "mine has no split train; it has test"),
    "two types": ({"train-0.parquet": table(9), "train-1.parquet": BYTES}, "mine cannot be read: "),
}

CATS = {"cat": 4, "dog": 4, "owl": 4}
ROWS = [f"{name}/{k}.png,{name},train\n" for name in CATS for k in range(4)]
TEXT = "".join(["file,label,split\n", *ROWS])
POINTS = "\n".join(["age,target", *(f"{k},{0.37 * k}" for k in range(40))])
TWO_BAD = TEXT.replace("cat/0", "gone").replace("cat/2", "cat/1")
CSV_FILES = {
    "no image column": (POINTS, "columns age, target; expected one of image files.* --train train"),
    "no label column": (TEXT.replace("label", "kind"), "columns file, kind, split; expected one f"),
    "image missing": (TEXT.replace("cat/3.", "cat/gone."), "row 5: image 'cat/gone.png' not found"),
    "no label": (TEXT.replace("1.png,cat", "1.png,"), "row 3: label is ''; expected the na"),
    "no labels": (re.sub(",[cdo]..,", ",,", TEXT), r"^12 pr(.*\n)+.*row 11: .*\n  and 2 more$"),
    "no rows": ("file,label", "has a header and no rows"),
    "two bad rows": (TWO_BAD, r"^2 problems:\n.*row 2: .*gone.*\n.*row 4: .* already in row 3\.$"),
    "ambiguous": (TEXT.replace("cat/0.png", "0"), "row 2: '0' is ambiguous: .*/0.png"),
    "long row": (TEXT.replace("cat/2.png", "a,a"), "row 4: expected 3 cells, got 4"),
    "a column twice": (TEXT.replace("label", "file"), "row 1: two columns are named 'file'"),
    "wrong split": (TEXT.replace("train", "hold", 1), "row 2: split 'hold'; expected train"),
    "no train": (TEXT.replace("train", "val"), "no row has the split train"),
    "empty": ("", "labels.csv cannot be read: the file is empty. Expected CSV in UTF-8"),
    "latin-1": ("file,label\nä.png,x\n".encode("latin-1"), "cannot be read: 'utf-8' codec can't"),
    "binary": (b"\0\1\2", "labels.csv has"),
    "open quote": ('file,label\n"a.png,y\n', "cannot be read: .*EOF inside"),
}

BINARY = pa.array([b"caf\xe9", b"the", b"lait"] * 10)
LATIN = pa.StringArray.from_buffers(30, *BINARY.buffers()[1:])
PATHS = pa.StructArray.from_arrays([BINARY, LATIN], ["bytes", "path"])
IN_LISTS = labelled([0], [1, 2], [-1], label={"feature": LABEL})
POINT_TABLE = pa.table({"label": [0, 1] * 9, "x": [*range(18)]})
FRACTIONS = [str(k / 8) for k in range(30)]
PARQUET_TABLES = {
    "broken image": (imaged(bytes=b"x", path=None), "9 images of pets cannot be read"),
    "paths in Latin-1": (table(30).set_column(0, "image", PATHS), "cannot be read: .*[Uu][Tt][Ff]"),
    "no label": (table(30).drop_columns("label"), "expected one for the class, called label"),
    "points": (POINT_TABLE, "columns label, x; expected one of images.* compare --train train"),
    "null": (labelled(None, 0, 1), "pets.parquet, row 0: label is 'None'; expected"),
    "blank": (labelled("a", " ", "b"), "row 1: label is ' '"),
    "hidden, in lists": (IN_LISTS, "row 2: label is '-1'; expected .* from 0 to 2"),
    "out of range": (labelled(0, 1, 2, 3, label=LABEL), "row 3: label is '3'; expected .* from 0"),
    "nested lists": (labelled([[0]], [[1]]), r"row 0: label is '\[0\]'; expected the name or num"),
    "rows of other lengths": (labelled([0, 1], [1]), "rows of 1 to 2 zeros and ones"),
    "Latin-1": (table(30).set_column(1, "label", LATIN), "cannot be read: .*[Uu][Tt][Ff]"),
    "a column twice": (table(1).append_column("label", [[0]]), "duplicate field names"),
    "regression": (labelled(0.5, 1.25, 2.0), "targets of a regression. Expected classes"),
    "a regression in text": (labelled(*FRACTIONS), "30 different numbers, such as 0.5:"),
}

OBJECTS = np.array([{"a": 1}] * 6, dtype=object)
ABC = np.array(list("abc"))


def with_file(name, content, **arrays):
    """The content of an .npz with one more file."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(name, content)
    return packed.getvalue()


OTHER = arrays(test_images=np.zeros((6, 5, 5), np.uint8), test_labels=LABELS)
FLOATS = arrays(test_images=np.zeros((6, 4, 4)), test_labels=LABELS)
HEADER = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 9999, 9999), }".ljust(117)
HUGE = with_file("train_images.npy", b"\x93NUMPY\1\0v\0" + HEADER + b"\n", train_labels=LABELS)
STRIPES = np.tile(np.arange(250, dtype=np.uint8), 240).reshape(6, 100, 100)
PACKED = with_file("notes", b"", **arrays(STRIPES))
FLIPPED = PACKED[:300] + bytes(64) + PACKED[364:]
NPZ_FILES = {
    "other names": ({"x_train": ZEROS, "y_train": LABELS}, "has x_train, y_train, not train"),
    "another split": (arrays(valid_images=ZEROS, valid_labels=LABELS), "; expected the MedMNIST"),
    "points": (arrays(np.zeros((6, 2))), r"train_images is \[6, 2\].* compare --train train.py"),
    "int images": (arrays(ZEROS.astype(int)), r"train_images is \[6, 4, 4\], int64"),
    "no image": (arrays(ZEROS[:0], LABELS[:0]), r"train_images is \[0, 4, 4\], uint8"),
    "fewer labels": (arrays(labels=LABELS[:5]), r"train_labels is \[5\], int64"),
    "gap": (arrays(labels=2 * LABELS, classes=ABC), "class 'b' has no sample in train"),
    "more columns": (arrays(labels=np.eye(6), classes=ABC), "row 3: label is '3'; .* from 0 to 2"),
    "other size": (
        OTHER,
        r"test_images is \[6, 5, 5\], uint8, and train_images \[6, 4, 4\], uint8",
    ),
    "other type": (FLOATS, r"test_images is \[6, 4, 4\], float64, and train_images .*, uint8"),
    "names twice": (arrays(classes=np.array(["a", "a"])), "two classes are named 'a'"),
    "a regression": (arrays(labels=LABELS / 2), "targets of a regression"),
    "not finite": (arrays(np.full((6, 2, 2), np.nan)), "train_images is .*; expected .* finite"),
    "more than its file": (HUGE, "own.npz: train_images cannot be read"),
    "no array": (with_file("train_images.npy", "a b", train_labels=LABELS), "own.npz: train_imag"),
    "flipped": (FLIPPED, "train_images cannot be read"),
}

REFUSED = [
    ("notes.txt", {"notes.txt": ""}, r"a \.csv, \.npz or \.parquet file, got \.txt"),
    ("photos.tar.gz", {"photos.tar.gz": ""}, "is an archive: unpack it and pass the folder"),
    *(("", files, message) for files, message in FOLDERS.values()),
    *(("labels.csv", CATS | {"labels.csv": text}, why) for text, why in CSV_FILES.values()),
    *(("pets.parquet", {"pets.parquet": made}, why) for made, why in PARQUET_TABLES.values()),
    *(("own.npz", {"own.npz": made}, why) for made, why in NPZ_FILES.values()),
]
IDS = ["text", "archive", *FOLDERS, *CSV_FILES, *PARQUET_TABLES, *NPZ_FILES]


@pytest.mark.parametrize(("name", "files", "message"), REFUSED, ids=IDS)
def test_invalid_data_is_refused_with_its_place_and_reason(name, files, message, mine, data_dir):
    fill(mine, files)
    refuses(mine / name, data_dir, message, str(mine / name))


def test_an_npz_is_never_unpickled(tmp_path):
    path, touched = tmp_path / "own.npz", tmp_path / "touched"
    np.savez(path, **arrays(np.array([Attack(touched)] * 6, dtype=object)))
    refuses(path, tmp_path, str(path), "train_images cannot be read: [Oo]bject arrays")
    assert not touched.exists()


ODD_FEATURES = [{"names": 3, "_type": "ClassLabel"}, [], 7]
ODD_METADATA = [
    *("[" * 100_000, '{"info": []}', "no JSON", '{"info": {"features": [1]}}', "7"),
    *(json.dumps({"info": {"features": {"label": feature}}}) for feature in ODD_FEATURES),
]


def test_odd_metadata_is_ignored(tmp_path):
    for text in ODD_METADATA:
        path = tmp_path / "pets.parquet"
        pq.write_table(table(30).replace_schema_metadata({"huggingface": text}), path)
        assert data.load(path, tmp_path).classes == ("0", "1", "2")


# names and paths


def test_an_unknown_name_gets_suggestions(data_dir):
    for name, hint in (
        ("CIFAR 10", "Did you mean cifar10 or cifar100?"),
        ("xyzzy", "dataset by name (digits, mnist, fashion_mnist, cifar10, cifar100) nor"),
        ("~nosuchuser/photos", "is neither a dataset by name"),
        ("hf:nothing", "is neither a dataset by name"),
    ):
        not_found(name, data_dir, re.escape(hint))


SPELLINGS = {"MNIST": "mnist", "fashion-mnist": "fashion_mnist", "CIFAR-10": "cifar10"}


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_names_ignore_case_and_hyphens(spelling, name, data_dir, tmp_path, monkeypatch):
    not_found(spelling, data_dir, f"{name} is not in {data_dir}/{name} .*Download it with: python")
    # a folder of that name takes precedence, and a path is never a name
    monkeypatch.chdir(tmp_path)
    not_found(f"./{spelling}", data_dir, "is neither a dataset")
    class_folders(tmp_path / spelling)
    not_found(tmp_path / f"{spelling}s", data_dir, f"Did you mean {spelling}")
    assert data.load(spelling, data_dir).classes == ("cat", "dog", "owl")


def test_a_name_is_read_from_the_files_of_torchvision(tmp_path):
    miniatures.build("mnist", tmp_path)
    dataset = data.load("mnist", tmp_path)
    assert dataset.classes == tuple("0123456789")
    assert split_sizes(dataset) == {"train": 31, "test": 20}
    check_shades(dataset)


OPTIONS = [
    ("mine", {"size": 0}, "size must lie between 1 and 4096 pixels, got 0"),
    ("cifar10", {"size": 64}, "size is for your own data; cifar10 is used as it is publ"),
    ("mnist", {"group": "a"}, "group is for your own data; mnist is used as it is publ"),
    ("digits", {"skip_broken": True}, "for your own images only: get digits again"),
]


@pytest.mark.parametrize(("name", "options", "message"), OPTIONS)
def test_invalid_options_are_refused(name, options, message, data_dir):
    with pytest.raises(ValueError, match=message):
        data.load(name, data_dir, **options)
