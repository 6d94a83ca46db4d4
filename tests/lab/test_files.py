"""Files appear complete or not at all; a damaged one is refused in a sentence."""

import json
import os
import zipfile

import pytest
import torch
from factories import finish, names

from zetamix_lab.atomic_io import new_folder, write_file, write_json, write_text
from zetamix_lab.train import load_model, train
from zetamix_lab.train.run_folder import FolderError, RunFolder


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
    order, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: order.append(os.fstat(handle).st_size))
    monkeypatch.setattr(os, "replace", lambda *paths: order.append("replace") or replace(*paths))
    write_text(tmp_path / "file", "content")
    assert order == [7, "replace"]


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


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "folder"
    # left by a killed process
    (path.parent / ".folder.part" / "half").mkdir(parents=True)
    filling = new_folder(path)
    (filling.__enter__() / "one").touch()
    with pytest.raises(Died):
        filling.gen.throw(Died())
    assert names(path.parent) == []
    with new_folder(path) as part:
        (part / "two").touch()
        assert not path.exists()
    assert (names(path.parent), names(path)) == (["folder"], ["two"])


def damaged(run, name):
    """The folder of a run, after damage to the largest array in one of its files."""
    path = run.folder.path / name
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        largest = max(file.infolist(), key=lambda part: part.compress_size)
    # behind its header, which torch fills up to 64 bytes
    place = largest.header_offset + 128 + largest.compress_size // 2
    content[place : place + 8] = bytes([0x7E]) * 8
    path.write_bytes(content)
    return run.folder.path


def test_a_damaged_tensor_of_a_checkpoint_is_not_resumed(new):
    """torch itself loads it without complaint."""
    run = new(out="run")
    train([run], stop=lambda: True)
    path = damaged(run, "checkpoint.pt") / "checkpoint.pt"
    torch.load(path, weights_only=True)
    again = new(out="run")
    assert f"{path} cannot be read: the checksum of " in train([again])[again]
    path.unlink()
    assert finish(new(out="run")).last == finish(new()).last


def test_damaged_weights_and_samples_of_a_finished_run_are_refused(new):
    run = new()
    finish(run)
    with pytest.raises(FolderError, match=r"The model in .* cannot be read: the checksum of "):
        load_model(damaged(run, "final.pt"))
    with pytest.raises(FolderError, match=r"test\.npz cannot be read: "):
        RunFolder(damaged(run, "test.npz")).read_samples()
