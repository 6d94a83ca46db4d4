"""Downloads, checksums, and unpacking of untrusted archives."""

import gzip
import io
import re
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import miniatures
import pytest

from paper import datasets as data
from paper.datasets import files as download
from zetamix_lab.data import DataError, DatasetNotFoundError


def zip_of(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def tar_of(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def gz_of(path, member):
    path.write_bytes(gzip.compress(member[1]))
    return path


KINDS = {zip_of: ".zip", tar_of: ".tar.gz", gz_of: ".gz"}


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("make", [zip_of, tar_of], ids=["zip", "tar"])
def test_a_folder_of_the_right_name_is_what_comes_out(make, tmp_path):
    archive = make(tmp_path / "set.tgz", ("set/a.txt", b"a"), ("set/deep/b.txt", b"b"))
    download.unpack(archive, tmp_path / "out" / "set")
    assert listing(tmp_path / "out") == ["set", "set/a.txt", "set/deep", "set/deep/b.txt"]
    assert (tmp_path / "out/set/deep/b.txt").read_bytes() == b"b"


def test_an_archive_without_that_folder_becomes_it_and_is_not_unpacked_twice(tmp_path):
    archive = zip_of(tmp_path / "AK.zip", ("a.png", b"a"), ("b/c.png", b"x"))
    download.unpack(archive, tmp_path / "AK")
    assert listing(tmp_path / "AK") == ["a.png", "b", "b/c.png"]
    # as another process has unpacked it
    (tmp_path / "AK" / "a.png").write_text("old")
    download.unpack(archive, tmp_path / "AK")
    assert (tmp_path / "AK" / "a.png").read_text() == "old"
    assert listing(tmp_path) == ["AK", "AK.zip", "AK/a.png", "AK/b", "AK/b/c.png"]


@pytest.mark.parametrize(("make", "suffix"), KINDS.items())
def test_an_archive_that_unpacks_to_too_much_is_refused(make, suffix, tmp_path):
    archive = make(tmp_path / f"set{suffix}", ("set/bomb", bytes(3 << 20)))
    with pytest.raises(DataError, match="unpacks to more than"):
        download.unpack(archive, tmp_path / "set", limit=1 << 20)
    assert listing(tmp_path) == [archive.name]
    download.unpack(archive, tmp_path / "set", limit=4 << 20)
    (file,) = (path for path in (tmp_path / "set", tmp_path / "set" / "bomb") if path.is_file())
    assert file.read_bytes() == bytes(3 << 20)


@pytest.mark.parametrize(("make", "suffix"), KINDS.items())
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_a_damaged_archive_is_named(make, suffix, damage, tmp_path):
    archive = make(tmp_path / f"set{suffix}", ("set/a", bytes(range(256)) * 40))
    whole = archive.read_bytes()
    archive.write_bytes({"cut": whole[: len(whole) // 2], "text": b"hello", "empty": b""}[damage])
    with pytest.raises(DataError, match=f"{archive} cannot be unpacked: "):
        download.unpack(archive, tmp_path / "set")
    assert listing(tmp_path) == [archive.name]


@pytest.fixture
def server(tmp_path):
    """A web server for the files of a folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            if self.path != "/cut":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"only this")
            return None

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
        ("{}/a.bin", "0" * 32, "the file has the md5 "),
        ("{}/gone", None, "the server returned 404 File not found"),
        ("{}/cut", None, "the connection ended after 9 of 100 bytes"),
        ("http://127.0.0.1:9/x", None, ""),
        ("file:///etc/passwd", None, "expected an http"),
        ("http://[bad", None, ""),
    ],
)
def test_a_download_that_fails_leaves_nothing(server, address, md5, message, tmp_path):
    folder, url = server
    (folder / "a.bin").write_bytes(b"content")
    text = f"a.bin could not be downloaded from {address.format(url)}: {message}"
    with pytest.raises(DataError, match=re.escape(text)):
        download.download(address.format(url), tmp_path / "new" / "a.bin", md5)
    assert [path for path in listing(tmp_path) if path != "new"] == ["web", "web/a.bin"]


def test_prepare_downloads_verifies_and_unpacks(server, tmp_path):
    folder, url = server
    spec = miniatures.build("mednode", tmp_path / "made", packed=True)
    file = "complete_mednode_dataset.zip"
    (tmp_path / "made" / "mednode" / file).rename(folder / file)
    spec = replace(spec, files=(replace(spec.files[0], url=f"{url}/{file}"),))
    root = tmp_path / "root"
    with pytest.raises(DatasetNotFoundError, match="paper data prepare mednode --data-dir"):
        data.load(spec, root)
    seen = {}
    dataset = data.prepare(spec, root, progress=lambda what, *done: seen.update({what: done}))
    assert miniatures.split_sizes(dataset) == spec.sizes
    assert list(seen) == [f"downloading {file}", f"unpacking {file}", "decoding"]
    assert seen[f"downloading {file}"] == ((folder / file).stat().st_size,) * 2
    # from now on no network is needed
    (folder / file).unlink()
    assert data.load(spec, root).fingerprint == dataset.fingerprint


def test_prepare_downloads_nothing_that_needs_a_request(tmp_path):
    with pytest.raises(DatasetNotFoundError, match="ask for a login"):
        data.prepare("derm7pt_clinical", tmp_path)


def test_a_wrong_md5_is_named(tmp_path):
    spec = miniatures.build("imagenette", tmp_path, packed=True)
    file = tmp_path / "imagenette" / "imagenette2.tgz"
    wrong = replace(spec, files=(replace(spec.files[0], md5="f" * 32),))
    with pytest.raises(DataError, match=f"{file} has the md5 {miniatures.md5_of(file)}"):
        data.load(wrong, tmp_path)
