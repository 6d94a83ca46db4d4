"""Prepared data: complete or absent, memory-mapped, never stale, shared by processes."""

import multiprocessing
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from miniatures import class_folders, prepared, write_npz

from zetamix_lab import data
from zetamix_lab.data import DataError
from zetamix_lab.data.source import resolve_data_dir

COUNTS = {"cat": 12, "dog": 9}


@pytest.fixture
def pets(tmp_path, monkeypatch):
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path))
    return class_folders(tmp_path / "pets", COUNTS)


def test_a_load_reads_no_sample(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(8000, 64, 64, 3), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", train_images=images, train_labels=np.arange(8000) % 2)
    data.load(tmp_path / "own.npz", tmp_path)
    before = resident()
    dataset = data.load(tmp_path / "own.npz", tmp_path)
    assert dataset.train.counts().tolist() == [2800, 2800]
    assert dataset.train.subset(10).take(torch.tensor([0])).sum() > 0
    assert resident() - before < 20e6 < dataset.train.pool.numel()


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_prepared_files_are_only_read(pets):
    data.load(pets)
    (folder,) = prepared(pets.parent)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    try:
        data.load(pets).train.samples.zero_()
        assert data.load(pets).train.samples.sum().item() > 0
    finally:
        folder.chmod(0o755)
    assert data.check(pets).ok


def test_nothing_but_the_dataset_is_left(pets):
    """Even after a process was killed while it prepared the data."""
    data.load(pets)
    (folder,) = prepared(pets.parent)
    folder.rename(folder.with_name(f".{folder.name}.part"))
    other = folder.with_name(".other-123.part")
    other.mkdir()
    data.load(pets)
    kinds = ("samples", "labels")
    files = {f"{split}.{kind}" for split in ("train", "val", "test") for kind in kinds}
    assert {path.name for path in folder.iterdir()} == files | {"meta.json"}
    others = {path for path in folder.parent.iterdir() if path.suffix != ".lock"}
    assert others == {folder, other}


DAMAGES = {
    "cut": lambda folder: os.truncate(folder / "val.samples", 10),
    "gone": lambda folder: (folder / "val.labels").unlink(),
    "no meta": lambda folder: (folder / "meta.json").unlink(),
    "half a meta": lambda folder: os.truncate(folder / "meta.json", 100),
    "another meta": lambda folder: (folder / "meta.json").write_text('{"format": 0}'),
    "a pipe": lambda folder: ((folder / "meta.json").unlink(), os.mkfifo(folder / "meta.json")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_data_is_prepared_again(damage, pets):
    before = data.load(pets).fingerprint
    damage(*prepared(pets.parent))
    assert data.load(pets).fingerprint == before
    assert data.check(pets).ok


class Stopped(BaseException):
    """Like KeyboardInterrupt, which pytest takes for its own."""


@pytest.mark.parametrize("stop", [Stopped, RuntimeError, MemoryError])
def test_an_interrupted_run_leaves_nothing(stop, pets):
    def interrupt(what, done, total):
        if what == "decoding":
            raise stop

    with pytest.raises(stop):
        data.load(pets, progress=interrupt)
    assert prepared(pets.parent) == []
    assert not [*(pets.parent / "prepared").glob("*.part")]
    assert len(data.load(pets).train) == 14


def prepare_and_report(root, queue):
    dataset = data.load(root / "own.npz", root, progress=lambda what, *_: queue.put(what))
    queue.put(dataset.fingerprint)


@pytest.mark.slow
def test_processes_prepare_the_same_set_once(tmp_path):
    path = write_npz(tmp_path / "own.npz", {"train": [400] * 10}, (3, 32, 32))
    fingerprint = data.load(path, tmp_path).fingerprint
    (folder,) = prepared(tmp_path)
    shutil.rmtree(folder)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=prepare_and_report, args=(tmp_path, queue)) for _ in "ab"]
    # held until both of them wait for it
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        for worker in workers:
            worker.start()
        for _ in workers:
            assert queue.get(timeout=60).startswith("waiting for another process")
        assert prepared(tmp_path) == []
    # one decodes three splits of one block each, the other finds the result
    messages = Counter(queue.get(timeout=60) for _ in range(5))
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert messages == {"decoding": 3, fingerprint: 2}
    assert len(prepared(tmp_path)) == 1


def test_a_data_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError) as caught:
        data.load("digits", tmp_path / "file" / "data")
    assert f"{tmp_path}/file/data/prepared: Not a directory" in str(caught.value)
    assert "the variable ZETAMIX_DATA or data_dir=" in str(caught.value)


def test_the_data_folder_is_argument_variable_or_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "variable"))
    assert resolve_data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert resolve_data_dir(None) == tmp_path / "variable"
    monkeypatch.delenv("ZETAMIX_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_data_dir(None) == tmp_path / ".cache" / "zetamix"
    with pytest.raises(DataError, match="~nosuchuser/data: there is no such user"):
        resolve_data_dir("~nosuchuser/data")
