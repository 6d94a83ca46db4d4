"""Files appear complete or not at all; a damaged one gives what was written or a sentence.

Bits are flipped anywhere in each kind of file of tensors. `make fuzz` flips more of them.
"""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import Runs, finish, names
from fuzz import count

from zetamix_lab import data
from zetamix_lab.atomic_io import load_tensors, new_folder, write_file, write_json, write_text
from zetamix_lab.train import load_model, train
from zetamix_lab.train.run_folder import FolderError, RunFolder

FLIPS = 25


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


def test_a_folder_appears_complete_and_the_faster_of_two_is_kept(tmp_path):
    path = tmp_path / "a" / "folder"
    with new_folder(path) as slow:
        (slow / "slow").write_text("")
        assert not path.exists()
        assert slow.parent == path.parent
        with new_folder(path) as fast:
            (fast / "fast").write_text("")
    assert names(path) == ["fast"]
    assert names(path.parent) == ["folder"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    filling = new_folder(tmp_path / "folder")
    (filling.__enter__() / "one").write_text("1")
    with pytest.raises(Died):
        filling.gen.throw(Died())
    assert names(tmp_path) == []


def test_a_file_at_the_path_of_a_folder_is_an_error(tmp_path):
    path = tmp_path / "folder"
    path.write_text("")
    with pytest.raises(OSError, match="folder"), new_folder(path):
        pass
    assert names(tmp_path) == ["folder"]


@pytest.fixture(scope="module")
def folders(digits, tmp_path_factory):
    """A run that was stopped, and one that is finished."""
    path = tmp_path_factory.mktemp("runs")
    new = Runs(digits, path)
    curve = path / "stopped" / "metrics.jsonl"
    # after its first epoch, which an evaluation ends
    train([new(out="stopped", save_every=0)], stop=lambda: curve.stat().st_size > 0)
    finish(new(out="done"))
    return path


READERS = {
    "stopped/checkpoint.pt": lambda path: RunFolder(path.parent).load_checkpoint(),
    "done/final.pt": lambda path: load_model(path.parent).state_dict(),
    "done/test.npz": lambda path: vars(RunFolder(path.parent).read_samples()),
}


def same(found, expected):
    """Equal, tensors and NaN included."""
    if isinstance(expected, dict):
        keys = found.keys() == expected.keys()
        return keys and all(same(found[key], value) for key, value in expected.items())
    if isinstance(expected, torch.Tensor):
        return torch.equal(found, expected)
    if isinstance(expected, np.ndarray):
        return np.array_equal(found, expected)
    return found == expected or str(found) == str(expected)


def flip_bits(path, dice):
    """Flip up to eight bits of eight bytes in a row."""
    content = bytearray(path.read_bytes())
    first = dice.randrange(len(content))
    for place in range(first, min(first + 8, len(content))):
        content[place] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", READERS)
def test_flipped_bits_are_noticed(folders, tmp_path, name, fuzz_seed):
    expected = READERS[name](folders / name)
    dice = random.Random(f"{name} {fuzz_seed}")
    noticed = 0
    for attempt in range(FLIPS):
        folder = tmp_path / str(attempt)
        shutil.copytree(folders, folder)
        flip_bits(folder / name, dice)
        try:
            found = READERS[name](folder / name)
        except ValueError as error:
            noticed += str(folder) in str(error)
        else:
            # bits between the parts of a file
            assert same(found, expected)
        shutil.rmtree(folder)
    count("damaged files", FLIPS)
    assert noticed > FLIPS / 3


def test_a_damaged_tensor_of_a_checkpoint_is_not_resumed(folders, new, tmp_path):
    """As it was found: eight bytes within a tensor, which torch itself loads without complaint."""
    shutil.copytree(folders / "stopped", tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    weights = load_tensors(path)["trainer"]["model"]
    tensor = max(weights.values(), key=torch.Tensor.numel)
    place = bytes(content).index(bytes(tensor.untyped_storage()))
    content[place + 3 : place + 11] = bytes([0x7E]) * 8
    path.write_bytes(content)
    torch.load(path, weights_only=True)
    run = new(out="run")
    message = train([run]).failures[run]
    assert message.startswith(f"{path} cannot be read: the checksum of ")
    assert message.endswith("Remove it to restart this run.")
    path.unlink()
    assert finish(new(out="run")).last == finish(new()).last


@pytest.mark.parametrize(
    "text", ["[]", "{}", "3", "null", '{"schema": "zetamix/run/1"}', "[" * 100_000, "\0", '"\xe9"']
)
def test_a_record_that_is_none_is_refused(folders, tmp_path, text):
    shutil.copytree(folders / "done", tmp_path / "run")
    path = tmp_path / "run" / "record.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FolderError) as caught:
        RunFolder(tmp_path / "run").read_record()
    assert str(caught.value).startswith(f"{path} cannot be read: ")
    assert str(caught.value).endswith("Remove it to train this run again.")
    assert "()" not in str(caught.value)


def test_prepared_data_is_verified_once(tmp_path, monkeypatch):
    read = []

    def digest(file, kind, compute=hashlib.file_digest):
        read.append(Path(file.name).name)
        return compute(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", digest)
    for _ in range(3):
        data.load("digits", data_dir=tmp_path / "here")
    # its checksums were computed while it was written
    assert read == []
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    for _ in range(3):
        data.load("digits", data_dir=tmp_path / "there")
    splits = ("train", "val", "test")
    assert sorted(read) == sorted(f"{s}.{kind}" for s in splits for kind in ("labels", "samples"))
