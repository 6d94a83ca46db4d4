"""Parquet files, and Hugging Face datasets that were saved to disk."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from miniatures import picture, refuses, save, split_sizes
from PIL import Image

from zetamix_lab import data
from zetamix_lab.data import DatasetRef

CLASSES = ["cat", "dog", "emu"]


def png(label, index, size=(20, 16)):
    buffer = io.BytesIO()
    Image.fromarray(picture(label, 3, index, size)).save(buffer, "PNG")
    return buffer.getvalue()


def table(count, start=0, **columns):
    """Images of three classes in turn; the green of an image is 37 times its number."""
    numbers = range(start, start + count)
    images = [{"bytes": png(k % 3, k), "path": f"p{k // 3}_{k}.png"} for k in numbers]
    return pa.table({"image": images, "label": [k % 3 for k in numbers], **columns})


def noted(content, **features):
    """With the types of columns, as Hugging Face's library notes them."""
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return content.replace_schema_metadata(metadata)


LABEL = {"names": CLASSES, "_type": "ClassLabel"}


def save_to_disk(content, folder, shards=2):
    """The files of `datasets.Dataset.save_to_disk`, version 5."""
    folder.mkdir(parents=True)
    names = [f"data-{k:05}-of-{shards:05}.arrow" for k in range(shards)]
    step = -(-len(content) // shards)
    for k, name in enumerate(names):
        shard = content.slice(k * step, step)
        with (
            pa.OSFile(str(folder / name), "wb") as file,
            pa.ipc.new_stream(file, shard.schema) as out,
        ):
            out.write_table(shard, max_chunksize=7)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def check_pictures(dataset, expected):
    """Every image has its label, and all are there once."""
    greens = []
    for split in dataset.splits.values():
        for image, label in zip(split.samples, split.labels.tolist(), strict=True):
            number = next(k for k in range(256) if 37 * k % 256 == int(image[1, 0, 0]))
            assert label == number % 3
            greens.append(number)
    assert sorted(greens) == list(range(expected))


def test_a_parquet_file(tmp_path):
    path = tmp_path / "pets.parquet"
    pq.write_table(table(60), path, row_group_size=11)
    dataset = data.load(path, tmp_path)
    assert (dataset.name, dataset.classes) == ("pets", ("0", "1", "2"))
    assert (dataset.shape, split_sizes(dataset)) == (
        (3, 16, 20),
        {"train": 42, "val": 6, "test": 12},
    )
    check_pictures(dataset, 60)
    assert dataset.test.names()[0].endswith(".png")
    assert data.load(path, tmp_path, size=8).shape == (3, 8, 8)


def test_plain_bytes_names_of_classes_and_a_split_column(tmp_path):
    path = tmp_path / "pets.parquet"
    splits = [
        "test" if k % 10 == 0 else "validation" if k % 10 == 5 else "train" for k in range(60)
    ]
    images, names = [png(k % 3, k) for k in range(60)], [CLASSES[k % 3] for k in range(60)]
    pq.write_table(pa.table({"img": images, "class": names, "split": splits}), path)
    dataset = data.load(path, tmp_path)
    assert dataset.classes == tuple(CLASSES)
    assert split_sizes(dataset) == {"train": 48, "val": 6, "test": 6}
    check_pictures(dataset, 60)
    assert dataset.notes == ()


def test_a_saved_dataset_of_three_splits(tmp_path):
    folder = tmp_path / "pets"
    for split, count, start in (("train", 30, 0), ("validation", 9, 30), ("test", 12, 39)):
        content = noted(table(count, start), image={"_type": "Image"}, label=LABEL)
        save_to_disk(content, folder / split)
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    dataset = data.load(f"hf:{folder}", tmp_path)
    assert dataset.classes == tuple(CLASSES)
    assert split_sizes(dataset) == {"train": 30, "val": 9, "test": 12}
    check_pictures(dataset, 51)
    assert data.load(folder, tmp_path).fingerprint == dataset.fingerprint
    assert DatasetRef.resolve(f"hf:{folder}", tmp_path).load().fingerprint == dataset.fingerprint
    report = data.check(f"hf:{folder}", tmp_path)
    assert report.sizes == split_sizes(dataset)


# the library is slow to import, and shows its progress on stderr
SAVE = """
import io, sys
import datasets
from PIL import Image
from test_data_tables import CLASSES, png
datasets.disable_progress_bars()
features = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
)
def part(numbers):
    images = [Image.open(io.BytesIO(png(k % 3, k))) for k in numbers]
    rows = {"image": images, "label": [k % 3 for k in numbers]}
    return datasets.Dataset.from_dict(rows, features=features)
splits = {"train": part(range(30)), "test": part(range(30, 42))}
datasets.DatasetDict(splits).save_to_disk(sys.argv[1])
"""


@pytest.mark.slow
def test_what_the_library_of_hugging_face_saves_is_read(tmp_path):
    if importlib.util.find_spec("datasets") is None:
        pytest.skip("needs the package datasets")
    folder = tmp_path / "pets"
    here, tests, root = Path(__file__).parents[:3]
    paths = os.pathsep.join(map(str, (root / "src", root, tests, here)))
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    environment["HF_HOME"] = str(tmp_path / "home")
    done = subprocess.run(
        [sys.executable, "-c", SAVE, str(folder)],
        capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    dataset = data.load(f"hf:{folder}", tmp_path)
    assert dataset.classes == tuple(CLASSES)
    # a validation split is drawn from the training split
    assert split_sizes(dataset) == {"train": 26, "val": 4, "test": 12}
    check_pictures(dataset, 42)


def test_a_folder_of_parquet_files(tmp_path):
    folder = tmp_path / "pets" / "data"
    folder.mkdir(parents=True)
    pq.write_table(table(20), folder / "train-00000-of-00002.parquet")
    pq.write_table(table(20, 20), folder / "train-00001-of-00002.parquet")
    pq.write_table(table(9, 40), folder / "test-00000-of-00001.parquet")
    dataset = data.load(tmp_path / "pets", tmp_path)
    assert split_sizes(dataset) == {"train": 35, "val": 5, "test": 9}
    check_pictures(dataset, 49)


def test_images_beside_the_table(tmp_path):
    images = []
    for k in range(30):
        save(tmp_path / "files" / f"{k}.png", picture(k % 3, 3, k))
        images.append({"bytes": None, "path": f"files/{k}.png"})
    labels = [k % 3 for k in range(30)]
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "pets.parquet")
    check_pictures(data.load(tmp_path / "pets.parquet", tmp_path / "data"), 30)


def test_columns_of_numbers(tmp_path):
    points = np.random.default_rng(0).normal(size=(40, 2))
    content = {"x": points[:, 0], "y": points[:, 1], "label": ["a", "b"] * 20, "name": ["p"] * 40}
    path = tmp_path / "points.parquet"
    pq.write_table(pa.table(content), path)
    dataset = data.load(path, tmp_path)
    assert (dataset.shape, dataset.classes) == ((2,), ("a", "b"))
    by_x = {float(x): k % 2 for k, x in enumerate(points[:, 0].astype(np.float32))}
    rows = zip(dataset.val.samples, dataset.val.labels.tolist(), strict=True)
    assert all(by_x[float(sample[0])] == label for sample, label in rows)
    refuses(path, tmp_path / "o", "points of 2 coordinates; size is for images", size=8)
    content["y"] = [*points[:39, 1], None]
    pq.write_table(pa.table(content), path)
    refuses(path, tmp_path / "other", "row 39 of columns x, y.* contains NaN")


@pytest.mark.parametrize("form", ["columns", "lists", "matrix"])
def test_several_labels(form, tmp_path):
    rows = [[k % 2, int(k % 3 > 0), int(k % 5 == 0)] for k in range(60)]
    content = table(60).drop_columns("label")
    names = ("0", "1", "2")
    if form == "columns":
        names = ("old", "wet", "ill")
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            content = content.append_column(name, [list(column)])
    elif form == "lists":
        lists = [[k for k in range(3) if row[k]] for row in rows]
        names = tuple(CLASSES)
        content = noted(content.append_column("labels", [lists]), labels={"feature": LABEL})
    else:
        content = content.append_column("labels", [rows])
    path = tmp_path / "pets.parquet"
    pq.write_table(content, path)
    dataset = data.load(path, tmp_path)
    assert (dataset.classes, dataset.multi_label) == (names, True)
    for image, label in zip(dataset.train.samples, dataset.train.labels.tolist(), strict=True):
        assert label == rows[next(k for k in range(60) if 37 * k % 256 == int(image[1, 0, 0]))]


@pytest.mark.parametrize("group", ["Owner", re.compile(r"(p\d+)_")])
def test_groups_of_a_table(group, tmp_path):
    path = tmp_path / "pets.parquet"
    pq.write_table(table(90, owner=[k // 3 for k in range(90)]), path)
    dataset = data.load(path, tmp_path, group=group)
    sets = [{name.split("_")[0] for name in split.names()} for split in dataset.splits.values()]
    assert sum(map(len, sets)) == len(set.union(*sets)) == 30
    refuses(path, tmp_path / "other", "no column 'x'; it has image, label, owner", group="x")


def broken(content, row):
    images = content.column("image").to_pylist()
    images[row] = {"bytes": b"no image", "path": None}
    return content.set_column(0, "image", [images])


def labelled(*labels, **features):
    """30 images with these labels in turn, or of this type."""
    made = table(30).set_column(1, "label", [(list(labels) * 30)[:30]])
    return noted(made, **features) if features else made


def doubled():
    return table(30).append_column("label", [[0, 1, 2] * 10])


def named_in_latin():
    binary = pa.array([b"caf\xe9", b"the", b"lait"] * 10)
    text = pa.StringArray.from_buffers(30, binary.buffers()[1], binary.buffers()[2])
    return table(30).set_column(1, "label", text)


ODD_FEATURES = [{"names": 3, "_type": "ClassLabel"}, {"names": [[0]], "_type": "ClassLabel"}, [], 7]
INVALID = {
    "broken image": (broken(table(30), 7), "pets.parquet, row 7: not an image"),
    "no label": (table(30).drop_columns("label"), "expected one for the class, called label"),
    "no rows": (table(0), "pets.parquet has no rows"),
    "nothing to train on": (
        pa.table({"label": [0, 1] * 9, "name": ["a"] * 18}),
        r"expected one of images .*, or columns of numbers",
    ),
    "null": (labelled(None, 0, 1), "pets.parquet, row 0: no label"),
    "NaN": (labelled(0.0, float("nan"), 1.0), "pets.parquet, row 1: no label"),
    "hidden, named": (labelled(0, 1, 2, -1, label=LABEL), "row 3: label is -1; expected .* 0 to 2"),
    "hidden, in lists": (
        labelled([0], [1, 2], [-1], label={"feature": LABEL}),
        "row 2: label is -1; expected a class from 0 to 2",
    ),
    "hidden": (labelled(0, 1, -1), "row 2: label is -1; expected a class from 0"),
    "out of range": (labelled(0, 1, 2, 3, label=LABEL), "row 3: label is 3; expected a class from"),
    "nested lists": (labelled([[0]], [[1]]), r"row 0: label is '\[0\]'; expected the name or num"),
    "lists with nulls": (labelled(["a"], ["b", None]), "row 1: no label"),
    "rows of other lengths": (labelled([0, 1], [1]), "rows of 1 to 2 zeros and ones"),
    "structures": (labelled({"a": 1}, {"a": 2}), "expected the name or number of a class"),
    "no UTF-8": (named_in_latin(), "column label cannot be read|is not text in UTF-8"),
    "a column twice": (doubled(), "two columns are named 'label'"),
    "regression": (labelled(0.5, 1.25, 2.0), "targets of a regression. Expected classes"),
    "an unknown split": (table(30, split=["train"] * 29 + ["extra"]), "split 'extra'; expected"),
}


@pytest.mark.parametrize("feature", ODD_FEATURES, ids=map(str, ODD_FEATURES))
def test_odd_metadata_is_ignored_or_used(feature, tmp_path):
    path = tmp_path / "pets.parquet"
    pq.write_table(noted(table(30), label=feature), path)
    if feature in ODD_FEATURES[1:2]:
        refuses(path, tmp_path, "label is 1; expected a class from 0 to 0")
    else:
        assert data.load(path, tmp_path).classes == ("0", "1", "2")
    for text in ("[" * 100_000, '{"info": []}', "no JSON", '{"info": {"features": [1]}}'):
        pq.write_table(table(30).replace_schema_metadata({"huggingface": text}), path)
        assert data.load(path, tmp_path).classes == ("0", "1", "2")


def test_a_pipe_among_tables_is_refused(tmp_path):
    pq.write_table(table(30), tmp_path / "train.parquet")
    os.mkfifo(tmp_path / "train-2.parquet")
    refuses(tmp_path, tmp_path / "data", "train-2.parquet is not a regular file")
    (tmp_path / "saved" / "train").mkdir(parents=True)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    os.mkfifo(tmp_path / "saved" / "train" / "state.json")
    refuses(tmp_path / "saved", tmp_path / "data", "state.json cannot be read.* not a regular file")


@pytest.mark.parametrize(("content", "message"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_table_is_refused(content, message, tmp_path):
    pq.write_table(content, tmp_path / "pets.parquet")
    refuses(tmp_path / "pets.parquet", tmp_path, message)


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "pets.parquet"
    pq.write_table(table(30), path)
    path.write_bytes(path.read_bytes()[:-40])
    refuses(path, tmp_path, "pets.parquet cannot be read")
    save_to_disk(table(30), tmp_path / "saved")
    first = next((tmp_path / "saved").glob("*.arrow"))
    first.write_bytes(first.read_bytes()[:100])
    refuses(tmp_path / "saved", tmp_path, "arrow cannot be read")
    first.unlink()
    refuses(tmp_path / "saved", tmp_path, "saved is incomplete")
    with pytest.raises(data.DatasetNotFoundError):
        data.load("hf:nothing", tmp_path)


def test_duplicates_stay_in_one_split(tmp_path):
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.concat_tables([table(30), table(30)]), path)
    report = data.check(path, tmp_path)
    assert (len(report.duplicates), report.leaks) == (30, 0)
    assert torch.equal(data.load(path, tmp_path).train.counts(), torch.tensor([14, 14, 14]))
