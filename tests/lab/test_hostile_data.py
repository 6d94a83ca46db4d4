"""Bad datasets and archives: each is read, or refused in a sentence, in bounded time and memory."""

import json
import os
import random
import shutil
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from fuzz import count
from hostile import ARCHIVES, BOMB_LIMIT, CONTENTS, DATASETS, TRACE, png
from miniatures import class_folders, write_npz
from processes import zetamix

from paper.datasets.files import unpack
from zetamix_lab import data
from zetamix_lab.data import DataError, image_files
from zetamix_lab.data.readers import npz

SECONDS = 30


@pytest.fixture(autouse=True)
def _no_hang():
    """A pipe is not waited for."""

    def fail(number, frame):
        raise TimeoutError(f"Not over after {SECONDS} s.")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def survives(path, data_dir):
    """`check` and `load` of data: whether it is usable. Any error is a sentence about data."""
    with warnings.catch_warnings():
        # Pillow warns of large images, which are refused
        warnings.simplefilter("ignore")
        try:
            ok = data.check(path, data_dir).ok
        except DataError as error:
            ok = False
            check_sentence(error)
        try:
            dataset = data.load(path, data_dir)
        except DataError as error:
            check_sentence(error)
        else:
            json.dumps(dataset.classes, ensure_ascii=False).encode()
            assert all(name.isprintable() for name in dataset.classes)
    assert not TRACE.exists()
    return ok


def check_sentence(error):
    text = str(error)
    assert len(text) > 10, text
    assert "()" not in text, text


READABLE = {
    "a class in Latin-1", "a class with a control character", "a class with a line break",
    "a class with markup", "a class with a long name", "an npz with names of control characters",
    "a CSV with a control character in its header", "a Parquet file of control characters",
    "a Parquet file of lists",
}  # fmt: skip


@pytest.mark.parametrize("name", DATASETS)
def test_bad_data_is_refused_in_a_sentence(name, tmp_path):
    usable = survives(DATASETS[name](tmp_path), tmp_path / "data")
    assert usable == (name in READABLE) or name == "x.png is a folder"


@pytest.mark.parametrize("name", ARCHIVES)
def test_bad_archives_leave_nothing_outside(name, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    archive = ARCHIVES[name](inside)
    try:
        unpack(archive, inside / "target", limit=BOMB_LIMIT)
    except DataError as error:
        check_sentence(error)
        assert not (inside / "target").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside"]
    assert not Path("/tmp/zetamix-escaped").exists()
    for path in inside.rglob("*"):
        assert path.is_file() or path.is_dir()
        assert path.resolve().is_relative_to(inside)


def test_no_program_is_started_for_a_postscript_image(tmp_path, monkeypatch):
    """Pillow runs Ghostscript for EPS, whatever the suffix."""
    started = []
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("subprocess.Popen", lambda *words, **_: started.append(words))
    photos = class_folders(tmp_path / "photos")
    (photos / "cat" / "x.png").write_bytes(CONTENTS["EPS"])
    report = data.check(photos, tmp_path / "data")
    assert len(report.unreadable) == 1
    assert "x.png: not an image in a supported format" in report.unreadable[0]
    assert not started
    assert not (tmp_path / "started").exists()


def test_an_npz_that_unpacks_to_a_multiple_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    zeros = np.zeros((2000, 64, 64), np.uint8)
    np.savez_compressed(path, train_images=zeros, train_labels=np.arange(2000) % 2)
    # 8 MB of zeros are allowed: they cost nothing
    assert data.load(path, tmp_path / "data").num_classes == 2
    monkeypatch.setattr(npz, "BOMB_BYTES", 1 << 20)
    os.utime(path)
    with pytest.raises(DataError, match=r"unpacks to 0\.0 GB, \d+ times its size: refused as"):
        data.load(path, tmp_path / "data")


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "LARGE_PIXELS", 500)
    decoding, most, lock = [0], [0], threading.Lock()
    resize = image_files.Image.Image.resize

    def slow(image, *words):
        with lock:
            decoding[0] += 1
            most[0] = max(most[0], decoding[0])
        threading.Event().wait(0.01)
        with lock:
            decoding[0] -= 1
        return resize(image, *words)

    monkeypatch.setattr(image_files.Image.Image, "resize", slow)
    data.load(class_folders(tmp_path / "photos"), tmp_path / "data", size=16)
    assert most[0] == 1


def test_an_image_of_too_many_pixels_is_refused_by_its_header(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(png(13_300, 13_300))
    with pytest.warns(match="Image size"), pytest.raises(DataError) as caught:
        image_files.read_header(path)
    assert str(caught.value).startswith("13,300 × 13,300 pixels; expected at most 89 million.")


@pytest.mark.slow
def test_names_that_are_not_text_are_printed(tmp_path):
    photos = DATASETS["a class in Latin-1"](tmp_path)
    (class_folders(photos) / "owl" / os.fsdecode(b"\xff.png")).write_bytes(b"broken")
    log = tmp_path / "log"
    assert zetamix("check", photos, "--data-dir", tmp_path / "data", log=log).wait() == 1
    text = log.read_text()
    assert "Traceback" not in text
    assert "caf\\xe9" in text
    assert "\\udcff.png" in text or "\\xff.png" in text


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["folder", "npz", "csv"])
def test_damaged_files_of_a_dataset(kind, tmp_path, fuzz_seed):
    """Random bytes are changed in files that were good."""
    dice = random.Random(fuzz_seed)
    good = class_folders(tmp_path / "good")
    for index, image in enumerate(sorted(good.rglob("*.*"))):
        image.rename(image.with_suffix((".png", ".jpg", ".tif")[index % 3]))
    if kind == "npz":
        write_npz(good / "x.npz", {"train": [5, 5]}, (1, 8, 8))
    if kind == "csv":
        files = sorted(good.rglob("*/*.*"))
        lines = [f"{file.relative_to(good)},{file.parent.name}\n" for file in files]
        (good / "x.csv").write_text("file,label\n" + "".join(lines))
    for attempt in range(5):
        bad = tmp_path / f"bad{attempt}"
        shutil.copytree(good, bad)
        path = bad if kind == "folder" else bad / f"x.{kind}"
        files = sorted(bad.rglob("*/*.*")) if kind == "folder" else [path]
        for file in dice.sample(files, min(3, len(files))):
            content = bytearray(file.read_bytes())
            for _ in range(dice.randint(1, 8)):
                content[dice.randrange(len(content))] = dice.randrange(256)
            file.write_bytes(content[: dice.choice([len(content), dice.randrange(len(content))])])
        survives(path, tmp_path / f"data{attempt}")
        count("damaged datasets")
