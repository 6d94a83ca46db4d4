"""Atomic writes: a file or folder appears complete or not at all."""

import json
import os

import pytest
from factories import names

from zetamix_lab.atomic_io import new_folder, write_file, write_json, write_text


def test_files_are_replaced_and_json_is_readable(tmp_path):
    path = tmp_path / "a" / "b.json"
    write_text(path, "old")
    write_json(path, {"γ": [1, 2.5]})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"γ": [1, 2.5]}
    assert '"γ"' in text
    assert text.endswith("}\n")
    assert names(path.parent) == ["b.json"]


class Died(BaseException):
    """Not an Exception, as KeyboardInterrupt."""


@pytest.mark.parametrize("error", [OSError("disk full"), Died()], ids=["error", "interrupt"])
@pytest.mark.parametrize("before", [None, b"old"], ids=["new", "replaced"])
def test_a_writer_that_fails_keeps_the_old_file(tmp_path, error, before):
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)

    def write(file):
        file.write(b"half")
        file.flush()
        raise error

    with pytest.raises(type(error)):
        write_file(path, write)
    assert names(tmp_path) == ([] if before is None else ["file"])
    assert before is None or path.read_bytes() == before


def test_old_temporary_files_of_a_killed_process_are_removed(tmp_path):
    """Another process may be writing the same file: a young one is left alone."""
    old, young, other = (tmp_path / f".{name}.part" for name in ("file.a", "file.b", "files.a"))
    for part in (old, young, other):
        part.write_text("half")
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    write_text(tmp_path / "file", "")
    assert names(tmp_path) == sorted([young.name, other.name, "file"])


def test_the_content_is_synced_before_the_rename(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace

    def synced(handle):
        order.append(("fsync", os.fstat(handle).st_size))
        sync(handle)

    def replaced(part, path):
        order.append(("replace", os.stat(part).st_size))
        replace(part, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_text(tmp_path / "file", "content")
    assert order == [("fsync", 7), ("replace", 7)]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_files_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "file", "")
        with new_folder(tmp_path / "folder"):
            pass
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_folder_appears_complete(tmp_path):
    path = tmp_path / "a" / "folder"
    with new_folder(path) as part:
        (part / "one").write_text("1")
        assert not path.exists()
        assert part.parent == path.parent
    assert names(path) == ["one"]
    assert names(path.parent) == ["folder"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    def fill_half():
        with new_folder(tmp_path / "folder") as part:
            (part / "one").write_text("1")
            raise Died

    with pytest.raises(Died):
        fill_half()
    assert names(tmp_path) == []


def test_the_faster_of_two_folders_is_kept(tmp_path):
    path = tmp_path / "folder"
    with new_folder(path) as slow:
        (slow / "slow").write_text("")
        with new_folder(path) as fast:
            (fast / "fast").write_text("")
    assert names(path) == ["fast"]
    assert names(tmp_path) == ["folder"]


def test_a_file_at_the_path_of_a_folder_is_an_error(tmp_path):
    path = tmp_path / "folder"
    path.write_text("")
    with pytest.raises(OSError, match="folder"), new_folder(path):
        pass
    assert names(tmp_path) == ["folder"]
