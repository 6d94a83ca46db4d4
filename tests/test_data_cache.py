"""Prepared data: complete or absent, memory-mapped, never stale, shared by processes."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import miniatures
import numpy as np
import pytest
import torch
from filelock import FileLock
from miniatures import installed, write_npz

from zetamix import data
from zetamix.data import image_files
from zetamix.data.loading import resolve


def prepared(root):
    return [path for path in sorted((root / "prepared").iterdir()) if path.is_dir()]


@pytest.fixture
def uda(tmp_path):
    with installed("uda", data_dir=tmp_path):
        yield tmp_path


def test_a_later_load_needs_no_source(uda):
    first = data.load("uda")
    shutil.rmtree(uda / "uda")
    again = data.load("uda")
    assert again.fingerprint == first.fingerprint
    assert torch.equal(again.test.samples, first.test.samples)
    assert (again.origin, again.notes) == (first.origin, first.notes)


def test_a_later_load_decodes_nothing(uda, monkeypatch):
    data.load("uda")

    def never(*_):
        raise AssertionError("decoded again")

    monkeypatch.setattr(image_files, "decode", never)
    data.load("uda")
    data.prepare("uda")


def test_a_load_reads_no_sample(uda):
    """Loading and counting 1 GB of samples that are a hole on disk takes no memory and no time."""
    data.load("uda")
    (folder,) = prepared(uda)
    meta = json.loads((folder / "meta.json").read_text())
    rows = 5000
    meta["splits"]["train"] = rows
    labels = np.zeros(rows, "<i8")
    (folder / "train.labels").write_bytes(labels.tobytes())
    size = rows * 3 * 256 * 256
    with (folder / "train.samples").open("wb") as file:
        file.truncate(size)
    meta["files"]["train.samples"]["bytes"] = size
    meta["files"]["train.labels"]["bytes"] = labels.nbytes
    (folder / "meta.json").write_text(json.dumps(meta))
    before = resident()
    started = time.perf_counter()
    dataset = data.load("uda")
    assert len(dataset.train) == rows
    assert dataset.train.counts().tolist() == [rows, 0]
    part = dataset.train.subset(10)
    assert part.take(torch.tensor([0])).sum() == 0
    assert time.perf_counter() - started < 1
    assert resident() - before < 100e6 < size


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_writing_to_samples_never_reaches_the_file(uda):
    samples = data.load("uda").train.samples
    samples.zero_()
    assert data.load("uda").train.samples.sum().item() > 0
    assert data.check("uda").ok


def test_samples_can_be_read_from_a_folder_that_cannot_be_written(uda):
    data.load("uda")
    (folder,) = prepared(uda)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert data.load("uda").train.samples.sum().item() > 0
    finally:
        folder.chmod(0o755)


def test_nothing_but_the_dataset_is_left(uda):
    data.load("uda")
    (folder,) = prepared(uda)
    kinds = ("samples", "labels", "names")
    files = {f"{split}.{kind}" for split in ("train", "val", "test") for kind in kinds}
    assert {path.name for path in folder.iterdir()} == files | {"meta.json"}
    others = [path.name for path in (uda / "prepared").iterdir() if path != folder]
    assert all(name.endswith(".lock") for name in others)


@pytest.mark.parametrize("harm", ["cut", "gone", "no meta", "half a meta", "old format"])
def test_damaged_data_is_prepared_again(harm, uda):
    print_before = data.load("uda").fingerprint
    (folder,) = prepared(uda)
    meta = folder / "meta.json"
    if harm == "cut":
        (folder / "val.samples").write_bytes((folder / "val.samples").read_bytes()[:-1])
    elif harm == "gone":
        (folder / "val.labels").unlink()
    elif harm == "no meta":
        meta.unlink()
    elif harm == "half a meta":
        meta.write_text(meta.read_text()[:100])
    else:
        meta.write_text(json.dumps({**json.loads(meta.read_text()), "format": 0}))
    assert data.load("uda").fingerprint == print_before
    assert data.check("uda").ok


def test_damaged_data_without_its_source_is_refused(uda):
    data.load("uda")
    (folder,) = prepared(uda)
    (folder / "val.samples").write_bytes(b"")
    shutil.rmtree(uda / "uda")
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load("uda")
    assert str(caught.value).startswith(
        f"Prepared data is damaged: {folder / 'val.samples'} has 0 bytes instead of 589,824. UDA"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"fit": image_files.Fit(256, crop=0.7)},
        {"classes": ("naevus", "melanoma")},
    ],
    ids=["fit", "classes"],
)
def test_settings_determine_the_folder(change, tmp_path):
    spec = miniatures.build("mednode", tmp_path)
    specs = (spec, replace(spec, **change))
    assert len({resolve(changed, tmp_path, 0, None).folder for changed in specs}) == 2


def test_force_prepares_again(uda):
    data.prepare("uda")
    (folder,) = prepared(uda)
    (folder / "mark").write_text("old")
    data.prepare("uda")
    assert (folder / "mark").exists()
    data.prepare("uda", force=True)
    assert not (folder / "mark").exists()
    assert data.check("uda").ok


def test_force_without_a_source_keeps_the_prepared_data(uda):
    data.prepare("uda")
    shutil.rmtree(uda / "uda")
    with pytest.raises(data.DatasetNotFoundError):
        data.prepare("uda", force=True)
    assert len(data.load("uda").train) == 14


class Stopped(BaseException):
    """Like KeyboardInterrupt, which pytest takes for its own."""


@pytest.mark.parametrize("stop", [Stopped, RuntimeError, MemoryError])
def test_an_interrupted_run_leaves_nothing(stop, uda):
    def interrupt(what, done, total):
        if what == "decoding":
            raise stop

    with pytest.raises(stop):
        data.prepare("uda", progress=interrupt)
    assert prepared(uda) == []
    assert not [*(uda / "prepared").glob("*.part")]
    assert len(data.load("uda").train) == 14


def test_what_a_killed_process_left_is_cleared(uda):
    folder = resolve("uda", None, 0, None).folder
    left = folder.parent / f".{folder.name}.abc.part"
    left.mkdir(parents=True)
    (left / "train.samples").write_bytes(b"half")
    other = folder.parent / ".other-123.abc.part"
    other.mkdir()
    data.load("uda")
    assert not left.exists()
    assert other.exists()


def prepare_and_report(root, queue):
    dataset = data.prepare(root / "own.npz", root, progress=lambda what, *_: queue.put(what))
    queue.put({"fingerprint": dataset.fingerprint})


def test_processes_prepare_the_same_set_once(tmp_path):
    write_npz(tmp_path / "own.npz", {"train": [400] * 10}, (3, 32, 32))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=prepare_and_report, args=(tmp_path, queue)) for _ in "ab"]
    folder = resolve(tmp_path / "own.npz", tmp_path, 0, None).folder
    folder.parent.mkdir()
    # held until both of them wait for it
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        for worker in workers:
            worker.start()
        for _ in workers:
            assert queue.get(timeout=60).startswith("waiting for another process")
        assert prepared(tmp_path) == []
    messages = []
    while sum(isinstance(message, dict) for message in messages) < len(workers):
        messages.append(queue.get(timeout=60))
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    results = [message["fingerprint"] for message in messages if isinstance(message, dict)]
    assert results == [data.load(tmp_path / "own.npz", tmp_path).fingerprint] * 2
    # one decoded three splits of one block each, the other found the result
    assert [text for text in messages if not isinstance(text, dict)] == ["decoding"] * 3
    assert len(prepared(tmp_path)) == 1


PROGRAM = """
import sys, time
from zetamix import data
def slow(what, done, total):
    if what == "decoding":
        print("decoding", flush=True)
        time.sleep(60)
data.prepare(sys.argv[1], sys.argv[2], progress=slow)
"""


def test_ctrl_c_leaves_nothing_half_done(tmp_path):
    write_npz(tmp_path / "own.npz", {"train": [10] * 3}, (3, 8, 8))
    root = tmp_path / "root"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "own.npz"), str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout.readline().strip() == b"decoding"
        assert [*(root / "prepared").glob(".*.part")]
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=30) != 0
    assert prepared(root) == []
    assert not [*(root / "prepared").glob(".*.part")]


def test_a_data_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(data.DataError) as caught:
        data.load("digits", tmp_path / "file" / "data")
    assert f"{tmp_path}/file/data/prepared: Not a directory" in str(caught.value)
    assert "--data-dir, data_dir= or the variable ZETAMIX_DATA" in str(caught.value)


def test_the_data_folder_is_argument_variable_or_cache(tmp_path, monkeypatch):
    from zetamix.data.source import resolve_data_dir

    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "variable"))
    assert resolve_data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert resolve_data_dir(None) == tmp_path / "variable"
    monkeypatch.delenv("ZETAMIX_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_data_dir(None) == tmp_path / ".cache" / "zetamix"


def test_digits_are_real_and_quick(tmp_path):
    first = data.load("digits", tmp_path)
    assert {name: len(split) for name, split in first.splits.items()} == (
        data.CATALOGUE["digits"].sizes
    )
    assert first.train.samples.max().item() == 255
    # 0 has a hole in its middle, 1 has none
    middle = first.train.samples[:, 0, 3:5, 3:5].float().mean((1, 2))
    assert (
        middle[first.train.labels == 0].mean() < 20 < 180 < middle[first.train.labels == 1].mean()
    )
    started = time.perf_counter()
    again = data.load("digits", tmp_path)
    assert time.perf_counter() - started < 0.2
    assert again.fingerprint == first.fingerprint
