"""Downloads, checksums, and unpacking of untrusted archives."""

import gzip
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import miniatures
import pytest

from paper import datasets as data
from paper.datasets.files import download, unpack
from zetamix_lab.data import DataError, DatasetNotFoundError


def tar(*members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for made in members:
            file.addfile(made, io.BytesIO(b"x" * made.size))
    return packed.getvalue()


def member(name, kind=tarfile.REGTYPE, link="", size=0):
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


def zipped(*names, content=b"x", mode=0):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, content)
    return packed.getvalue()


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# the folder of the right name is what comes out, else everything
UNPACKED = {
    "a folder.zip": (zipped("set/a", "set/deep/b"), ["a", "deep", "deep/b"]),
    "a folder.tgz": (tar(member("set/a", size=3)), ["a"]),
    "files.zip": (zipped("a", "b/c"), ["a", "b", "b/c"]),
    "one file.gz": (gzip.compress(b"numbers"), []),
}


@pytest.mark.parametrize("name", UNPACKED)
def test_an_archive_is_unpacked_once(name, tmp_path):
    content, expected = UNPACKED[name]
    (tmp_path / name).write_bytes(content)
    unpack(tmp_path / name, tmp_path / "out" / "set")
    assert listing(tmp_path / "out") == ["set", *(f"set/{path}" for path in expected)]
    # as another process has unpacked it
    (tmp_path / "out" / "set" / "old").mkdir(parents=True) if expected else None
    unpack(tmp_path / name, tmp_path / "out" / "set")
    assert ("set/old" in listing(tmp_path / "out")) == bool(expected)


HOSTILE = {
    "a path upwards.tar": tar(member("../escaped", size=1)),
    "an absolute path.tar": tar(member("/tmp/zetamix-escaped", size=1)),
    "a link outside.tar": tar(member("a", tarfile.SYMTYPE, "../../escaped")),
    "written through a link.tar": tar(
        member("a", tarfile.SYMTYPE, ".."), member("a/escaped", size=1)
    ),
    "a hard link outside.tar": tar(member("a", tarfile.LNKTYPE, "../../escaped")),
    "a device.tar": tar(member("a", tarfile.CHRTYPE)),
    "a pipe.tar": tar(member("a", tarfile.FIFOTYPE)),
    "cut off.tar": tar(member("a", size=9000))[:60],
    "text.tar": b"no archive at all, only text\n" * 50,
    "a path upwards.zip": zipped("../escaped"),
    "an absolute path.zip": zipped("/tmp/zetamix-escaped"),
    "a link.zip": zipped("a", content=b"/etc/passwd", mode=0o120777),
    "a name of another system.zip": zipped("a\\..\\..\\escaped"),
    "cut off.zip": zipped("a", content=b"x" * 900)[:60],
    "cut off.gz": gzip.compress(bytes(range(256)) * 40)[:200],
    "text.gz": b"no archive",
    "nothing.zip": b"",
    "nothing.gz": b"",
}
# what can be unpacked without them
HARMLESS = [name for name in HOSTILE if name.endswith(".zip") and name[:2] == "a "]
HARMLESS += ["an absolute path.zip", "an absolute path.tar"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_leave_nothing_outside(name, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / name).write_bytes(HOSTILE[name])
    if name in HARMLESS:
        unpack(inside / name, inside / "target")
    else:
        with pytest.raises(DataError, match=f"{name} cannot be unpacked: .{{10,}} Delete it"):
            unpack(inside / name, inside / "target")
        assert listing(inside) == [name]
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert not Path("/tmp/zetamix-escaped").exists()
    assert all(path.is_file() or path.is_dir() for path in inside.rglob("*"))
    assert all(path.resolve().is_relative_to(inside) for path in inside.rglob("*"))


@pytest.fixture
def server(tmp_path):
    """A web server for the files of a folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("address", "md5", "message"),
    [
        ("{}/a.bin", "0" * 32, "File not found or corrupted"),
        ("{}/gone", None, "404"),
        ("http://127.0.0.1:9/x", None, "refused"),
        ("nowhere", None, "unknown url type"),
    ],
)
def test_a_download_that_fails_leaves_nothing(server, address, md5, message, tmp_path):
    folder, url = server
    (folder / "a.bin").write_bytes(b"content")
    with pytest.raises(DataError, match=f"a.bin could not be downloaded from .*{message}.* save "):
        download(address.format(url), tmp_path / "new" / "a.bin", md5)
    assert listing(tmp_path) == ["new", "web", "web/a.bin"]


def test_prepare_downloads_verifies_and_unpacks(server, tmp_path):
    folder, url = server
    spec = miniatures.build("mednode", tmp_path / "made", packed=True)
    file = "complete_mednode_dataset.zip"
    (tmp_path / "made" / "mednode" / file).rename(folder / file)
    spec = replace(spec, files=(replace(spec.files[0], url=f"{url}/{file}"),))
    root = tmp_path / "root"
    with pytest.raises(DatasetNotFoundError, match="paper data mednode --prepare --data-dir"):
        data.load(spec, root)
    with pytest.raises(DatasetNotFoundError, match="ask for a login"):
        data.prepare("derm7pt_clinical", root)
    dataset = data.prepare(spec, root)
    assert miniatures.split_sizes(dataset) == spec.sizes
    # from now on no network is needed
    (folder / file).unlink()
    assert data.load(spec, root).fingerprint == dataset.fingerprint


def test_a_wrong_md5_is_named(tmp_path):
    spec = miniatures.build("imagenette", tmp_path, packed=True)
    file = tmp_path / "imagenette" / "imagenette2.tgz"
    wrong = replace(spec, files=(replace(spec.files[0], md5="f" * 32),))
    with pytest.raises(DataError, match=f"{file} has the md5 {miniatures.md5_of(file)}"):
        data.load(wrong, tmp_path)
