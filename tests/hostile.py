"""Bad datasets and archives, generated: each is a function that fills a folder and returns a path.

`DATASETS` are for `zetamix check` and `load`, `ARCHIVES` for `unpack`.
"""

import io
import os
import socket
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from miniatures import class_folders
from PIL import Image

TRACE = Path("/tmp/zetamix-was-here")
# what a file named x.png may hold instead of a PNG
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
CONTENTS = {
    "nothing": b"",
    "text": b"hello, I am no image",
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
}


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG with that header, whatever its pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + crc

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


CONTENTS |= {
    "13,300² pixels": png(13_300, 13_300),
    "2^31 pixels wide": png(2**31 - 1, 1),
    "no pixels": png(0, 0),
    "fewer pixels than it says": png(24, 24, b"\0" * 10),
}


def _image(content: bytes) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        (class_folders(folder / "photos") / "cat" / "x.png").write_bytes(content)
        return folder / "photos"

    return build


def _special(make: Callable[[Path], object]) -> Callable[[Path], Path]:
    """A folder of images with something at cat/x.png that is no file."""

    def build(folder: Path) -> Path:
        make(class_folders(folder / "photos") / "cat" / "x.png")
        return folder / "photos"

    return build


def _socket(path: Path) -> None:
    # the path of a socket may not be long
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/x")
        os.rename(f"{short}/x", path)


def _named(name: bytes) -> Callable[[Path], Path]:
    """A folder of images with one more class of that name."""

    def build(folder: Path) -> Path:
        photos = class_folders(folder / "photos")
        other = os.fsencode(photos) + b"/" + name
        os.makedirs(other)
        for k in range(6):
            image = Image.fromarray(np.full((24, 30, 3), 30 * k, np.uint8))
            image.save(os.fsdecode(other + b"/%d.png" % k))
        return photos

    return build


def _file(name: str, content: bytes | str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return build


def _multi_label(*columns: str) -> Callable[[Path], Path]:
    """A CSV file of images with two columns of zeros and ones."""

    def build(folder: Path) -> Path:
        files = sorted(class_folders(folder / "photos").rglob("*.png"))
        rows = [
            f"photos/{f.parent.name}/{f.name},{k % 2},{k // 2 % 2}" for k, f in enumerate(files)
        ]
        text = "\n".join([f"file,{','.join(columns)}", *rows])
        (folder / "x.csv").write_text(text)
        return folder / "x.csv"

    return build


def _parquet(labels: list[object]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        numbers = [float(k) for k in range(len(labels))]
        table = pyarrow.table({"x": numbers, "y": numbers[::-1], "label": labels})
        pyarrow.parquet.write_table(table, folder / "x.parquet")
        return folder / "x.parquet"

    return build


def _saved_dataset(name: str, text: str) -> Callable[[Path], Path]:
    """A folder of Hugging Face with this description."""

    def build(folder: Path) -> Path:
        (folder / "saved").mkdir()
        (folder / "saved" / name).write_text(text)
        return folder / "saved"

    return build


def _pipe(name: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return build


def _cut(build: Callable[[Path], Path], size: int) -> Callable[[Path], Path]:
    """A file without its end."""

    def build_cut(folder: Path) -> Path:
        path = build(folder)
        os.truncate(path, size)
        return path

    return build_cut


def _classes(**counts: int) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        for name in counts:
            (folder / "photos" / name).mkdir(parents=True)
        return class_folders(folder / "photos", counts)

    return build


def _npz(**arrays: object) -> Callable[[Path], Path]:
    """An `.npz` of three classes, except for these arrays."""

    def build(folder: Path) -> Path:
        labels = np.arange(30) % 3
        good = {"train_images": np.zeros((30, 8, 8), np.uint8), "train_labels": labels}
        good["train_images"][:] = labels[:, None, None] + 50 * (np.arange(30)[:, None, None] // 3)
        changed = {key: value for key, value in {**good, **arrays}.items() if value is not None}
        np.savez_compressed(folder / "arrays.npz", **changed)
        return folder / "arrays.npz"

    return build


DATASETS: dict[str, Callable[[Path], Path]] = {
    **{f"x.png holds {name}": _image(content) for name, content in CONTENTS.items()},
    "x.png is a pipe": _special(os.mkfifo),
    "x.png is a socket": _special(_socket),
    "x.png is a folder": _special(os.mkdir),
    "x.png links to nothing": _special(lambda path: path.symlink_to("nowhere")),
    "x.png links to itself": _special(lambda path: path.symlink_to("x.png")),
    "x.png links to an endless file": _special(lambda path: path.symlink_to("/dev/zero")),
    "a class in Latin-1": _named(b"caf\xe9"),
    "a class with a control character": _named(b"bell\x07\x1b[31m"),
    "a class with a line break": _named(b"two\nlines"),
    "a class with markup": _named(b"[red]<script>alert(1)<"),
    "a class with a long name": _named(b"x" * 255),
    "two classes with one printed name": lambda folder: (
        _named(b"caf\\xe9")(folder) and _named(b"caf\xe9")(folder)
    ),
    "a pipe as CSV": _pipe("x.csv"),
    "a pipe as npz": _pipe("x.npz"),
    "a CSV of files elsewhere": _file(
        "x.csv", "file,label\n../../../etc/passwd,cat\n/dev/zero,dog\n"
    ),
    "a CSV with a control character in its header": _multi_label("a\x07", "b"),
    "a CSV that is an image": _file("x.csv", png(8, 8)),
    "an npz with names twice": _npz(classes=np.array(["a", "b", "a"])),
    "an npz with names of control characters": _npz(classes=np.array(["a\x07", "b", "c"])),
    "an npz with a number as names": _npz(classes=np.array(3)),
    "an npz of labels in the millions": _npz(train_labels=np.arange(30) * 10**9),
    "an npz of complex numbers": _npz(train_images=np.zeros((30, 4), complex)),
    "a Parquet file of control characters": _parquet(["a\x07", "b", "c"] * 10),
    "a Parquet file of lists": _parquet([["a"], ["b"], ["c"]] * 10),
    "a Parquet file of text": _file("x.parquet", "no parquet"),
    "a Parquet file of nothing": _file("x.parquet", b""),
    "a pipe as Parquet": _pipe("x.parquet"),
    "a saved dataset of a list": _saved_dataset("dataset_dict.json", "[]"),
    "a saved dataset of a number": _saved_dataset("dataset_dict.json", '{"splits": 3}'),
    "a saved dataset elsewhere": _saved_dataset("dataset_dict.json", '{"splits": ["../../x"]}'),
}


def _tar(*members: tarfile.TarInfo) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / "bad.tar"
        with tarfile.open(path, "w") as file:
            for member in members:
                file.addfile(member, io.BytesIO(b"x" * member.size))
        return path

    return build


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    return member


def _zip(name: str, content: bytes = b"x", mode: int = 0) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        with zipfile.ZipFile(folder / "bad.zip", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(info, content)
        return folder / "bad.zip"

    return build


BOMB_LIMIT = 1_000_000
ARCHIVES: dict[str, Callable[[Path], Path]] = {
    "a tar with a path upwards": _tar(_member("../escaped", size=1)),
    "a tar with an absolute path": _tar(_member("/tmp/zetamix-escaped", size=1)),
    "a tar with a link outside": _tar(_member("a", tarfile.SYMTYPE, "../../escaped")),
    "a tar that writes through a link": _tar(
        _member("a", tarfile.SYMTYPE, ".."), _member("a/escaped", size=1)
    ),
    "a tar with a hard link outside": _tar(_member("a", tarfile.LNKTYPE, "../../escaped")),
    "a tar with a device": _tar(_member("a", tarfile.CHRTYPE)),
    "a tar with a pipe": _tar(_member("a", tarfile.FIFOTYPE)),
    "a tar that is too large": _tar(_member("a", size=BOMB_LIMIT + 1)),
    "a tar cut off": _cut(_tar(_member("a", size=9000)), 700),
    "a tar of text": _file("bad.tar", b"no archive at all, only text\n" * 50),
    "a zip with a path upwards": _zip("../escaped"),
    "a zip with an absolute path": _zip("/tmp/zetamix-escaped"),
    "a zip with a link": _zip("a", b"/etc/passwd", 0o120777),
    "a zip that is too large": _zip("a", bytes(BOMB_LIMIT + 1)),
    "a zip with a name of another system": _zip("a\\..\\..\\escaped"),
    "a zip cut off": _cut(_zip("a", b"x" * 900), 60),
    "a gz that is too large": _file("bad.gz", zlib.compress(bytes(BOMB_LIMIT + 1), wbits=31)),
    "a gz of text": _file("bad.gz", b"no archive"),
    "a file of nothing": _file("bad.zip", b""),
}
