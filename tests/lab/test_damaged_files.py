"""A damaged file of tensors gives what was written or a sentence, never another result.

Bits are flipped anywhere in each kind of file. `make fuzz` flips more of them.
"""

import hashlib
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import finish
from fuzz import count

from zetamix_lab import data
from zetamix_lab.atomic_io import load_tensors
from zetamix_lab.train import load_model, train
from zetamix_lab.train.run_folder import FolderError, RunFolder

FLIPS = 25


@pytest.fixture(scope="module")
def folders(digits, tmp_path_factory):
    """A run that was stopped, one that is finished, and a plan."""
    from factories import Runs

    path = tmp_path_factory.mktemp("runs")
    new = Runs(digits, path)
    curve = path / "stopped" / "metrics.jsonl"
    # after its first epoch, which an evaluation ends
    train([new(out="stopped", save_every=0)], stop=lambda: curve.stat().st_size > 0)
    finish(new(out="done"))
    return path


def predict(folder):
    with torch.no_grad():
        return load_model(folder)((torch.arange(64.0) / 64).view(1, 1, 8, 8))


READERS = {
    "stopped/checkpoint.pt": lambda path: RunFolder(path.parent).load_checkpoint(),
    "done/final.pt": lambda path: predict(path.parent),
    "done/model.json": lambda path: predict(path.parent),
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
