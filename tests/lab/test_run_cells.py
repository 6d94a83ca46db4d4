"""Cells from the first step to the record: what is trained, kept and resumed, and what fails."""

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch
from factories import CRESCENTS
from filelock import FileLock

from zetamix.methods import parse
from zetamix_lab.data import DatasetRef, from_tensors
from zetamix_lab.runs import run_cells as module
from zetamix_lab.runs.run_cells import Job, plan_jobs, run_cells, train_cells, use_device
from zetamix_lab.train import Run, make_cell, make_recipe
from zetamix_lab.train.run_folder import FolderError, RunFolder

FEW = DatasetRef(str(CRESCENTS), train_size=64)


@pytest.fixture(scope="module")
def dataset():
    return FEW.load()


@pytest.fixture(scope="module")
def cells(dataset):
    recipe = make_recipe(dataset, epochs=2)
    return [make_cell(dataset, parse(m), recipe, s) for s in (0, 1) for m in ("none", "zeta:2.8")]


@pytest.fixture(autouse=True)
def every_moment(monkeypatch):
    """Progress is reported as often as in a long run."""
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)


def run(cells, dataset, out, **options):
    return run_cells(cells, dataset, out=Path(out), **{"jobs": 1, "device": "cpu", **options})


def train_here(cells, dataset, out):
    """The records and failures of `train_cells` by key."""
    found = {"record": {}, "failure": {}, "progress": {}}
    job = Job(tuple(cells), "cpu")
    send = lambda message: found[message[0]].update({message[1]: message[2]})  # noqa: E731
    train_cells(dataset, out, {}, job, send, lambda: False)
    return found["record"], found["failure"]


def longer(cell, epochs):
    return dataclasses.replace(cell, recipe={**cell.recipe, "epochs": epochs})


def scores(results):
    return {key: record.last for key, record in results.records.items()}


def stamps(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/record.json")}


# what is trained


@pytest.mark.parametrize("ref", [None, FEW])
def test_every_cell_is_trained_to_the_same_numbers_in_two_processes(cells, dataset, ref, tmp_path):
    one = run(cells, dataset, tmp_path / "one")
    two = run(cells, dataset, tmp_path / "two", jobs=2, ref=ref)
    assert [one.description, two.description] == ["1 process", "2 processes side by side"]
    assert (two.failures, two.unfinished) == ({}, {})
    assert [record.cell for record in two.records.values()] == cells
    assert scores(one) == scores(two)
    assert {record.machine["threads"] for record in two.records.values()} == {"1"}
    for cell in cells:
        assert len(RunFolder(tmp_path / "two" / cell.folder).read_curve()) == 2


def test_only_what_is_missing_is_trained(cells, dataset, tmp_path):
    run(cells[:2], dataset, tmp_path)
    before = stamps(tmp_path)
    trained = []
    run(cells, dataset, tmp_path, finished=trained.append)
    assert [record.cell for record in trained] == cells[2:]
    assert {name: stamps(tmp_path)[name] for name in before} == before
    again = run(cells, dataset, tmp_path)
    assert (len(again.records), again.description) == (4, "")


def test_a_stop_saves_runs_and_the_same_call_resumes_them(cells, dataset, tmp_path):
    cell = longer(cells[0], 50)
    curve = tmp_path / cell.folder / "metrics.jsonl"
    stopped = run([cell], dataset, tmp_path, stop=lambda: curve.exists() and curve.stat().st_size)
    assert (stopped.records, stopped.failures) == ({}, {})
    assert 0 < stopped.unfinished[cell.key] < 50
    assert (curve.parent / "checkpoint.pt").exists()
    seen = {}
    resumed = run([cell], dataset, tmp_path, watch=lambda name, *event: seen.update({name: event}))
    # epochs before the stop are not of this call
    assert seen["runs"][1] <= 50 - stopped.unfinished[cell.key]
    assert scores(resumed) == scores(run([cell], dataset, tmp_path / "at once"))


def test_progress_and_records_are_reported_when_they_are_there(cells, dataset, tmp_path):
    seen, finished = [], []
    run(
        [longer(cell, 60) for cell in cells],
        dataset,
        tmp_path,
        watch=lambda *event: seen.append(event),
        finished=lambda record: finished.append((record.key, len(seen))),
    )
    assert seen[0] == ("runs", 0, 240, "0 of 4 runs finished")
    last = {name: event for name, *event in seen}
    assert last["zeta:2.8 seed 1"][:2] == [60, 60]
    every = pytest.approx(240, abs=8)
    assert last["runs"] == [every, every, "4 of 4 runs finished"]
    of_one = [done for name, done, _, _ in seen if name == "no mixing seed 0"]
    assert of_one == sorted(of_one)
    assert any(0 < done < 59 for done in of_one)
    assert len(finished) == 4
    assert finished[0][1] < finished[-1][1] < len(seen) + 1


# what fails


def test_a_bug_is_raised(cells, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "start", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(cells, dataset, tmp_path)


def test_data_that_differs_in_a_worker_fails_its_cells(cells, tmp_path):
    labels = torch.arange(64) % 2
    other = from_tensors("other", dict.fromkeys(("train", "test"), (torch.randn(64, 2), labels)))
    records, failures = train_here(cells[:2], other, tmp_path)
    assert (set(failures), records) == ({cell.key for cell in cells[:2]}, {})


# two commands, and workers of a killed one


def test_another_command_is_refused_at_once(cells, dataset, tmp_path):
    folder = tmp_path / cells[1].folder
    folder.mkdir()
    with (
        FileLock(folder / ".command.lock"),
        pytest.raises(FolderError, match="in use by another process"),
    ):
        run(cells, dataset, tmp_path)
    # what it does not train is free
    with FileLock(folder / ".command.lock"):
        assert run(cells[:1], dataset, tmp_path).records


def test_a_worker_that_was_left_behind_keeps_its_folder(cells, dataset, tmp_path, monkeypatch):
    folder = tmp_path / cells[0].folder
    folder.mkdir()
    monkeypatch.setattr(module, "ORPHAN_SECONDS", 0.05)
    with FileLock(folder / ".lock"):
        _, failures = train_here(cells[:1], dataset, tmp_path)
    assert "in use by another process" in failures[cells[0].key]


# other machines


def test_a_run_of_another_machine_leaves_its_record_and_curve_here(
    cells, dataset, tmp_path, monkeypatch
):
    """As from a cluster whose machines do not share a folder."""
    there = partial(train_cells, dataset, tmp_path / "elsewhere", {})
    monkeypatch.setattr(module, "partial", lambda *_: there)
    results = run(cells[:2], dataset, tmp_path / "home")
    monkeypatch.undo()
    again = run(cells[:2], dataset, tmp_path / "home")
    assert (len(again.records), again.description) == (2, "")
    here = run(cells[:2], dataset, tmp_path / "here")
    assert scores(again) == scores(results) == scores(here)
    for cell in cells[:2]:
        home, there = (RunFolder(tmp_path / n / cell.folder) for n in ("home", "elsewhere"))
        assert home.read_curve() == there.read_curve() != []
        assert (home.read_samples().loss == there.read_samples().loss).all()


# devices


@pytest.mark.parametrize(
    ("gpus", "options", "workers", "devices", "side_by_side"),
    [
        # on a CPU every cell is a job
        (0, {"jobs": 3}, 3, [None] * 4, 1),
        (2, {"jobs": 9, "device": "cpu"}, 4, ["cpu"] * 4, 1),
        # every GPU has a process that trains several runs
        (1, {}, 1, ["cuda:0"], 4),
        (1, {"jobs": 2}, 1, ["cuda:0"], 2),
        (2, {}, 2, ["cuda:0", "cuda:1"], 4),
        (2, {"device": "cuda:1"}, 1, ["cuda:1"], 4),
        (3, {"jobs": 6, "device": "cuda"}, 3, ["cuda:0", "cuda:1", "cuda:2"], 2),
        (8, {}, 4, [f"cuda:{k}" for k in range(4)], 4),
        # a cluster chooses
        (2, {"backend": "ray"}, None, [None] * 4, 1),
        # the function of a user may need a whole GPU
        (2, {"alone": True}, 2, ["cuda:0", "cuda:1"] * 2, 1),
        (2, {"alone": True, "device": "cpu"}, 1, ["cpu"] * 4, 1),
    ],
)
def test_the_jobs_of_a_machine(cells, gpus, options, workers, devices, side_by_side, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    options = {"jobs": None, "backend": "local", "device": None, **options}
    plan, count = plan_jobs(cells, **options)
    assert ([job.device for job in plan], count) == (devices, workers)
    assert {job.side_by_side for job in plan} == {side_by_side}
    sizes = [len(job.cells) for job in plan]
    assert max(sizes) - min(sizes) < 2
    assert {cell for job in plan for cell in map(id, job.cells)} == {*map(id, cells)}


@pytest.mark.parametrize(
    ("name", "available", "expected"),
    [("cuda:1", True, "cuda:1"), (None, True, "cuda"), (None, False, "cpu"), ("cpu", True, "cpu")],
)
def test_the_gpu_of_a_process_is_made_the_current_one(name, available, expected, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(str(device)))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    assert str(use_device(name)) == expected
    assert chosen == ["cuda:1"] * (name == "cuda:1")
    assert torch.backends.cudnn.benchmark == expected.startswith("cuda")
