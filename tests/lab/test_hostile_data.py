"""Bad datasets: each is read, or refused in a sentence, in bounded time and memory."""

import json
import os
import random
import signal
import socket
import struct
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from miniatures import class_folders, refuses, save
from processes import zetamix
from test_data_formats import FORMATS, fill

from zetamix_lab import data
from zetamix_lab.data import DataError, image_files
from zetamix_lab.data.readers import npz

TRACE = Path("/tmp/zetamix-was-here")
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def bind(path):
    # the path of a socket may not be long
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/x")
        os.rename(f"{short}/x", path)


# what is at cat/x.png in a folder of images
IMAGES = {
    "EPS": EPS,
    "EPS of DOS": b"\xc5\xd0\xd3\xc6" + struct.pack("<IIIIIIH", 32, len(EPS), 0, 0, 0, 0, 0) + EPS,
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
    "PDF": b"%PDF-1.4\n%%EOF",
    "a script": b"#!/bin/sh\ntouch /tmp/zetamix-was-here\n",
    "a pickle": b"cos\nsystem\n(S'touch /tmp/zetamix-was-here'\ntR.",
    "zeros": bytes(1000),
    "half a signature": b"\x89PNG\r\n",
    "an XBM": b"#define im_width 8\n#define im_height 8\nstatic char im_bits[] = {0};\n",
    "a TIFF whose directory is itself": b"II*\0\x08\0\0\0\x00\x00\x08\0\0\0",
    "2^31 pixels wide": b"P6 2147483647 1 255\n",
    "no pixels": b"P6 0 0 255\n",
    "fewer pixels than it says": b"P6 24 24 255\n0123456789",
    "a pipe": os.mkfifo,
    "a socket": bind,
    "a folder": os.mkdir,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to("x.png"),
    "a link to an endless file": lambda path: path.symlink_to("/dev/zero"),
}
# names of classes, and how they are shown
NAMES = {
    b"caf\xe9": r"caf\xe9",
    b"bell\x07\x1b[31m": r"bell\x07\x1b[31m",
    b"two\nlines": r"two\nlines",
    b"[red]<script>alert(1)<": "[red]<script>alert(1)<",
    b"x" * 255: "x" * 255,
}


def with_classes(folder, *names):
    """A folder of images with these classes too."""
    class_folders(folder)
    for name in names:
        other = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
        for k in range(6):
            save(other / f"{k}.png", np.full((24, 30, 3), 30 * k, np.uint8))
    return folder


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


@contextmanager
def sentences():
    """An error is a sentence about data; gives a list of it."""
    found = []
    try:
        yield found
    except DataError as error:
        found.append(str(error))
    assert all(len(text) > 10 and "()" not in text for text in found), found


def survives(path, data_dir):
    """`check` and `load` of data: whether it is usable."""
    report = None
    with sentences():
        report = data.check(path, data_dir)
    with sentences():
        classes = data.load(path, data_dir).classes
        json.dumps(classes, ensure_ascii=False).encode()
        assert all(name.isprintable() for name in classes)
    assert not TRACE.exists()
    return report is not None and report.ok


@pytest.mark.filterwarnings("ignore:Image size")
@pytest.mark.parametrize("name", IMAGES)
def test_a_bad_image_is_refused_in_a_sentence(name, tmp_path):
    path, made = class_folders(tmp_path / "photos") / "cat" / "x.png", IMAGES[name]
    path.write_bytes(made) if isinstance(made, bytes) else made(path)
    # a folder in that of a class is searched for images
    assert survives(tmp_path / "photos", tmp_path / "data") == (name == "a folder")


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_of_classes_are_shown_escaped(name, tmp_path):
    photos = with_classes(tmp_path / "photos", name)
    assert survives(photos, tmp_path / "data")
    assert NAMES[name] in data.load(photos, tmp_path / "data").classes


def test_two_classes_with_one_shown_name_are_refused(tmp_path):
    photos = with_classes(tmp_path / "photos", b"caf\\xe9", b"caf\xe9")
    refuses(photos, tmp_path / "data", r"two classes are named 'caf\\\\xe9'")


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet", "arrow", "png"])
def test_a_pipe_is_not_opened(suffix, tmp_path):
    os.mkfifo(tmp_path / f"x.{suffix}")
    refuses(tmp_path / f"x.{suffix}", tmp_path / "data", "neither a folder nor a regular file")


def test_no_program_is_started_for_a_postscript_image(tmp_path, monkeypatch):
    """Pillow runs Ghostscript for EPS, whatever the suffix."""
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda *words, **_: started.append(words))
    photos = class_folders(tmp_path / "photos")
    (photos / "cat" / "x.png").write_bytes(EPS)
    report = data.check(photos, tmp_path / "data")
    assert len(report.unreadable) == 1
    assert "x.png: not an image in a supported format" in report.unreadable[0]
    assert not started


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


@pytest.mark.slow
def test_names_that_are_not_text_are_printed(tmp_path):
    photos = with_classes(tmp_path / "photos", b"caf\xe9")
    (class_folders(photos) / "owl" / os.fsdecode(b"\xff.png")).write_bytes(b"broken")
    log = tmp_path / "log"
    assert zetamix("check", photos, "--data-dir", tmp_path / "data", log=log).wait() == 1
    text = log.read_text()
    assert "Traceback" not in text
    assert "caf\\xe9" in text
    assert "\\udcff.png" in text or "\\xff.png" in text


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["folder", "CSV", "npz", "bytes", "shards", "Hugging Face"])
def test_damaged_files_of_a_dataset(kind, tmp_path, fuzz_seed):
    """Random bytes are changed in files that were good, and one may become a special file."""
    dice = random.Random(fuzz_seed)
    name, good = FORMATS[kind]
    for attempt in range(5):
        path = tmp_path / f"bad{attempt}" / name
        fill(path.parent, good)
        files = [path] if path.is_file() else sorted(path.rglob("*.*"))
        for file in dice.sample(files, min(3, len(files))):
            content = bytearray(file.read_bytes())
            for _ in range(dice.randint(1, 8)):
                content[dice.randrange(len(content))] = dice.randrange(256)
            file.write_bytes(content[: dice.choice([len(content), dice.randrange(len(content))])])
        if dice.random() < 0.5:
            special = dice.choice(files)
            special.unlink()
            dice.choice([made for made in IMAGES.values() if callable(made)])(special)
        survives(path, tmp_path / f"data{attempt}")
