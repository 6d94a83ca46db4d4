"""Downloads, checksums, and archives that must not be trusted."""

import gzip
import io
import stat
import tarfile
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import miniatures
import pytest

from zetamix import data
from zetamix.data import archives
from zetamix.data.catalogue import CATALOGUE


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


def tar_entry(name, kind, target="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link(name):
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("make", [zip_of, tar_of], ids=["zip", "tar"])
def test_a_folder_of_the_right_name_is_what_comes_out(make, tmp_path):
    archive = make(tmp_path / "set.tgz", ("set/a.txt", b"a"), ("set/deep/b.txt", b"b"))
    archives.unpack(archive, tmp_path / "out" / "set", None)
    assert listing(tmp_path / "out") == ["set", "set/a.txt", "set/deep", "set/deep/b.txt"]
    assert (tmp_path / "out/set/deep/b.txt").read_bytes() == b"b"


def test_an_archive_without_that_folder_becomes_it(tmp_path):
    archive = zip_of(
        tmp_path / "AK.zip", ("a.png", b"a"), ("__MACOSX/._a.png", b"x"), ("._b", b"x")
    )
    archives.unpack(archive, tmp_path / "AK", None)
    assert listing(tmp_path / "AK") == ["a.png"]


def test_what_another_process_has_unpacked_stays(tmp_path):
    archive = zip_of(tmp_path / "set.zip", ("set/a.txt", b"new"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.txt").write_text("old")
    archives.unpack(archive, tmp_path / "set", None)
    assert (tmp_path / "set" / "a.txt").read_text() == "old"
    assert listing(tmp_path) == ["set", "set.zip", "set/a.txt"]


def test_a_compressed_file(tmp_path):
    archive = tmp_path / "labels.gz"
    archive.write_bytes(gzip.compress(b"labels"))
    archives.unpack(archive, tmp_path / "labels", None)
    assert (tmp_path / "labels").read_bytes() == b"labels"


OUTSIDE = "which would be written outside of its folder. It is refused."
HOSTILE = {
    "zip absolute": (zip_of, [("/tmp/evil", b"x")], f"holds '/tmp/evil', {OUTSIDE}"),
    "zip dots": (zip_of, [("set/../../evil", b"x")], f"holds 'set/../../evil', {OUTSIDE}"),
    "zip backslash": (zip_of, [("..\\evil", b"x")], OUTSIDE),
    "zip drive": (zip_of, [("C:evil", b"x")], f"holds 'C:evil', {OUTSIDE}"),
    "zip link": (zip_of, [(zip_link("set/l"), "/etc/passwd")], "holds a link, 'set/l'. It is"),
    "tar absolute": (tar_of, [("/tmp/evil", b"x")], f"holds '/tmp/evil', {OUTSIDE}"),
    "tar dots": (tar_of, [("../evil", b"x")], f"holds '../evil', {OUTSIDE}"),
    "tar link": (tar_of, [(tar_entry("l", tarfile.SYMTYPE), b"")], "holds a link, 'l'. It is"),
    "tar hard link": (tar_of, [(tar_entry("l", tarfile.LNKTYPE), b"")], "holds a link, 'l'."),
    "tar device": (tar_of, [(tar_entry("d", tarfile.CHRTYPE), b"")], "holds a device, 'd'."),
    "tar pipe": (tar_of, [(tar_entry("p", tarfile.FIFOTYPE), b"")], "holds a device, 'p'."),
}


@pytest.mark.parametrize(("make", "members", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive_is_refused(make, members, message, tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    archive = make(inner / "set.zip", ("set/good.txt", b"good"), *members)
    before = listing(tmp_path)
    with pytest.raises(data.DataError) as caught:
        archives.unpack(archive, inner / "set", None)
    assert str(caught.value).startswith(str(archive))
    assert message in str(caught.value)
    assert listing(tmp_path) == before


def gz_bomb(path, content):
    path.write_bytes(gzip.compress(content))
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda path, content: zip_of(path, ("set/bomb", content)),
        lambda path, content: tar_of(path, ("set/bomb", content)),
        lambda path, content: gz_bomb(path.with_suffix(".gz"), content),
    ],
    ids=["zip", "tar", "gz"],
)
def test_a_bomb_is_refused(make, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "BOMB_FLOOR", 1 << 20)
    archive = make(tmp_path / "set.zip", bytes(3 << 20))
    with pytest.raises(data.DataError, match=r"would unpack to more than 0\.0 GB, from 0\.000 GB"):
        archives.unpack(archive, tmp_path / "set", None)
    assert listing(tmp_path) == [archive.name]
    monkeypatch.setattr(archives, "BOMB_RATIO", 10_000)
    archives.unpack(archive, tmp_path / "set", None)


def test_a_flood_of_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_MEMBERS", 5)
    archive = zip_of(tmp_path / "set.zip", *((f"set/{k}", b"") for k in range(6)))
    with pytest.raises(data.DataError, match="would unpack to more"):
        archives.unpack(archive, tmp_path / "set", None)


@pytest.mark.parametrize("name", ["set.zip", "set.tar.gz", "labels.gz"])
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_a_damaged_archive_is_named(name, damage, tmp_path):
    archive = tmp_path / name
    content = bytes(range(256)) * 40
    if name == "set.zip":
        zip_of(archive, ("set/a", content))
    elif name == "set.tar.gz":
        tar_of(archive, ("set/a", content))
    else:
        archive.write_bytes(gzip.compress(content))
    whole = archive.read_bytes()
    archive.write_bytes({"cut": whole[: len(whole) // 2], "text": b"hello", "empty": b""}[damage])
    with pytest.raises(data.DataError) as caught:
        archives.unpack(archive, tmp_path / "set", None)
    assert str(caught.value).startswith(f"{archive} cannot be unpacked: ")
    assert str(caught.value).endswith("Delete it and get it again.")
    assert listing(tmp_path) == [name]


def test_find_path_does_not_mind_case(tmp_path):
    (tmp_path / "Aa").mkdir()
    (tmp_path / "Aa" / "B.TXT").write_text("")
    assert archives.find_path(tmp_path, "aA/b.txt") == tmp_path / "Aa" / "B.TXT"
    assert archives.find_path(tmp_path, "aA/c.txt") is None
    assert archives.find_path(tmp_path, "aA/b.txt/c") is None


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
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()
        thread.join()


def test_a_download_that_works(server, tmp_path):
    folder, url = server
    (folder / "a.bin").write_bytes(b"content")
    seen = []
    md5 = miniatures.md5_of(folder / "a.bin")
    path = tmp_path / "new" / "a.bin"
    archives.download(
        (f"{url}/gone", f"{url}/a.bin"), path, md5, lambda *progress: seen.append(progress)
    )
    assert path.read_bytes() == b"content"
    assert seen == [("downloading a.bin", 7, 7)]


@pytest.mark.parametrize(
    ("file", "md5", "message"),
    [
        ("a.bin", "0" * 32, "what came has the md5 "),
        ("gone", None, "the server answers 404 File not found"),
        ("cut", None, "the connection ended after 9 of 100 bytes"),
    ],
)
def test_a_download_that_fails_leaves_nothing(server, file, md5, message, tmp_path):
    folder, url = server
    (folder / "a.bin").write_bytes(b"content")
    with pytest.raises(data.DataError) as caught:
        archives.download((f"{url}/{file}",), tmp_path / "a.bin", md5, None)
    assert str(caught.value).startswith(f"a.bin could not be downloaded. {url}/{file}: {message}")
    assert str(caught.value).endswith(f"put it at {tmp_path / 'a.bin'}.")
    assert listing(tmp_path) == ["web", "web/a.bin"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "file:///etc/passwd", "http://[bad"])
def test_an_address_that_cannot_be_reached(url, tmp_path):
    with pytest.raises(data.DataError, match=r"x could not be downloaded\."):
        archives.download((url,), tmp_path / "x", None, None)
    assert listing(tmp_path) == []


def test_prepare_downloads_verifies_and_unpacks(server, tmp_path):
    folder, url = server
    spec = miniatures.build("mednode", tmp_path / "made", packed=True)
    file = "complete_mednode_dataset.zip"
    (tmp_path / "made" / "mednode" / file).rename(folder / file)
    spec = replace(spec, archives=(replace(spec.archives[0], urls=(f"{url}/{file}",)),))
    root = tmp_path / "root"
    with pytest.raises(data.DatasetNotFoundError, match="zetamix data prepare mednode --data-dir"):
        data.load(spec, root)
    seen = []
    dataset = data.prepare(spec, root, progress=lambda what, *_: seen.append(what))
    assert {name: len(split) for name, split in dataset.splits.items()} == spec.sizes
    assert list(dict.fromkeys(seen)) == [f"downloading {file}", f"unpacking {file}", "decoding"]
    # from now on no network is needed
    (folder / file).unlink()
    assert data.load(spec, root).fingerprint == dataset.fingerprint


def test_prepare_downloads_nothing_that_needs_a_request(tmp_path):
    with pytest.raises(data.DatasetNotFoundError, match="ask for a login"):
        data.prepare("derm7pt_clinical", tmp_path)
    assert not any(a.urls for a in CATALOGUE["derm7pt_clinical"].archives)


def test_a_wrong_md5_is_a_sentence(tmp_path):
    spec = miniatures.build("breastmnist", tmp_path)
    file = tmp_path / "breastmnist" / "breastmnist.npz"
    wrong = replace(spec, archives=(replace(spec.archives[0], md5="f" * 32),))
    with pytest.raises(data.DataError) as caught:
        data.load(wrong, tmp_path)
    assert str(caught.value) == (
        f"{file} has the md5 {miniatures.md5_of(file)}, expected {'f' * 32}: it is damaged, or "
        "another version. Delete it, and the archive it came from, and get it again."
    )
