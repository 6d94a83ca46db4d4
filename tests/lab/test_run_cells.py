"""Cells from the first step to the record: what is trained, kept and resumed, and what fails."""

import dataclasses
import types
from pathlib import Path

import pytest
import torch
from factories import CRESCENTS
from filelock import FileLock

from paper.datasets.manifolds import draw_splits
from zetamix.methods import parse
from zetamix_lab import data
from zetamix_lab.data import DatasetRef, from_tensors
from zetamix_lab.runs.run_cells import (
    Job,
    Settings,
    plan_jobs,
    run_cells,
    train_cells,
    use_device,
)
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


def run(cells, dataset, out, **options):
    options = {"jobs": 1, "device": "cpu", "poll_seconds": 0.01, **options}
    return run_cells(cells, dataset, out=Path(out), **options)


def train_here(job, settings, stopped=lambda: False):
    """The records and failures of `train_cells` by key."""
    messages = []
    train_cells(job, settings, messages.append, stopped)
    kinds = {kind: {k: v for name, k, v in messages if name == kind} for kind, _, _ in messages}
    return kinds.get("record", {}), kinds.get("failure", {})


def longer(cell, epochs):
    return dataclasses.replace(cell, recipe={**cell.recipe, "epochs": epochs})


def scores(results):
    return {key: record.last for key, record in results.records.items()}


def stamps(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/record.json")}


# what is trained


def test_every_cell_is_trained(cells, dataset, tmp_path):
    results = run(cells, dataset, tmp_path)
    assert results.complete
    assert list(results.records) == [cell.key for cell in cells]
    assert (results.failures, results.trained, results.description) == ({}, 4, "1 process")
    for cell in cells:
        record = results.records[cell.key]
        assert record.cell == cell
        assert results.progress[cell.key].line["test"] == record.last
        assert len(RunFolder(tmp_path / cell.folder).read_curve()) == 2


@pytest.mark.parametrize("ref", [None, FEW])
def test_two_processes_give_the_same_numbers(cells, dataset, ref, tmp_path):
    one = run(cells, dataset, tmp_path / "one")
    two = run(cells, dataset, tmp_path / "two", jobs=2, ref=ref)
    assert two.description == "2 processes side by side"
    assert scores(one) == scores(two)
    assert {record.machine["threads"] for record in two.records.values()} == {"1"}


def test_only_what_is_missing_is_trained(cells, dataset, tmp_path):
    run(cells[:2], dataset, tmp_path)
    before = stamps(tmp_path)
    results = run(cells, dataset, tmp_path)
    assert results.trained == 2
    assert {name: stamps(tmp_path)[name] for name in before} == before
    again = run(cells, dataset, tmp_path)
    assert (again.trained, again.description, again.complete) == (0, "", True)


def test_a_stop_saves_runs_and_the_same_call_resumes_them(cells, dataset, tmp_path):
    cell = longer(cells[0], 300)
    curve = tmp_path / cell.folder / "metrics.jsonl"
    stopped = run([cell], dataset, tmp_path, stop=lambda: curve.exists() and curve.stat().st_size)
    assert (stopped.records, stopped.failures, stopped.trained) == ({}, {}, 0)
    reached = stopped.progress[cell.key]
    assert reached.state == "training"
    assert 0 < reached.epochs < 300
    assert (curve.parent / "checkpoint.pt").exists()
    resumed = run([cell], dataset, tmp_path)
    assert resumed.complete
    assert resumed.progress[cell.key].resumed >= reached.epochs
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
    assert seen[-1][0] == "zeta:2.8 seed 1"
    assert seen[-1][1:3] == (60, 60)
    assert [event for event in seen if event[0] == "runs"][-1][1:] == (
        pytest.approx(240, abs=8),
        pytest.approx(240, abs=8),
        "4 of 4 runs finished",
    )
    of_one = [done for name, done, _, _ in seen if name == "no mixing seed 0"]
    assert of_one == sorted(of_one)
    assert any(0 < done < 59 for done in of_one)
    assert len(finished) == 4
    assert finished[0][1] < finished[-1][1] < len(seen) + 1


# what fails


def test_a_diverged_run_does_not_end_the_others(cells, dataset, tmp_path):
    bad = dataclasses.replace(cells[0], recipe={**cells[0].recipe, "lr": 1e30, "epochs": 3})
    for side_by_side in (1, 2):
        settings = Settings(dataset, tmp_path / str(side_by_side))
        records, failures = train_here(Job((bad, cells[1]), "cpu", side_by_side), settings)
        assert list(failures) == [bad.key]
        assert "not finite" in failures[bad.key]
        assert list(records) == [cells[1].key]
    results = run([bad, cells[1]], dataset, tmp_path)
    assert list(results.failures) == [bad.key]
    assert list(results.records) == [cells[1].key]
    assert results.progress[bad.key].state == "failed"


def test_a_run_that_is_out_of_memory_does_not_end_the_others(cells, dataset, tmp_path, monkeypatch):
    start = Run.start

    def run_out(self):
        if self.method.name == "zeta":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore")
        return start(self)

    monkeypatch.setattr(Run, "start", run_out)
    job = Job(tuple(cells), "cpu", side_by_side=4)
    _, failures = train_here(job, Settings(dataset, tmp_path))
    assert set(failures) == {cell.key for cell in cells if cell.method == "zeta:2.8"}
    for message in failures.values():
        assert "--jobs" in message
        assert "Tried to allocate 2 GiB." in message
    for cell in cells:
        finished = RunFolder(tmp_path / cell.folder).read_record() is not None
        assert finished == (cell.method == "none")


def test_a_bug_is_raised(cells, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "start", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(cells, dataset, tmp_path)


def test_data_that_differs_in_a_worker_fails_its_cells(cells, tmp_path):
    labels = torch.arange(64) % 2
    other = from_tensors("other", dict.fromkeys(("train", "test"), (torch.randn(64, 2), labels)))
    records, failures = train_here(Job(tuple(cells[:2]), "cpu"), Settings(other, tmp_path))
    assert (set(failures), records) == ({cell.key for cell in cells[:2]}, {})


def test_a_folder_of_another_run_is_refused_before_anything_is_trained(cells, dataset, tmp_path):
    run(cells[:1], dataset, tmp_path)
    (tmp_path / cells[0].folder).rename(tmp_path / cells[1].folder)
    with pytest.raises(FolderError, match="is the folder of another run"):
        run(cells[1:2], dataset, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "cannot be read"),
        (lambda text: "{}", "cannot be read"),
        (lambda text: text.replace('"seed": 0', '"seed": 7'), "the record of another run"),
    ],
)
def test_a_damaged_record_is_reported(change, message, cells, dataset, tmp_path):
    run(cells[:1], dataset, tmp_path)
    path = tmp_path / cells[0].folder / "record.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(FolderError, match=message):
        run(cells[:1], dataset, tmp_path)


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
        assert run(cells[:1], dataset, tmp_path).complete


def test_a_worker_that_was_left_behind_keeps_its_folder(cells, dataset, tmp_path):
    folder = tmp_path / cells[0].folder
    folder.mkdir()
    settings = Settings(dataset, tmp_path, orphan_seconds=0.05)
    with FileLock(folder / ".lock"):
        _, failures = train_here(Job((cells[0],), "cpu"), settings)
    assert "in use by another process" in failures[cells[0].key]


# other machines


def test_a_run_of_another_machine_leaves_its_record_and_curve_here(
    cells, dataset, tmp_path, monkeypatch
):
    """As from a cluster whose machines do not share a folder."""

    def elsewhere(job, settings, send, stopped):
        settings = dataclasses.replace(settings, out=tmp_path / "elsewhere")
        train_cells(job, settings, send, stopped)

    monkeypatch.setattr("zetamix_lab.runs.run_cells.train_cells", elsewhere)
    results = run(cells[:2], dataset, tmp_path / "home")
    monkeypatch.undo()
    assert results.complete
    again = run(cells[:2], dataset, tmp_path / "home")
    assert (again.complete, again.trained) == (True, 0)
    here = run(cells[:2], dataset, tmp_path / "here")
    assert scores(again) == scores(results) == scores(here)
    for cell in cells[:2]:
        home, there = (RunFolder(tmp_path / n / cell.folder) for n in ("home", "elsewhere"))
        assert home.read_curve() == there.read_curve() != []
        assert (home.read_samples().loss == there.read_samples().loss).all()


# devices


def test_on_a_cpu_every_cell_is_a_job(cells):
    plan, workers = plan_jobs(cells, 3, "local", None, gpus=0)
    assert [job.cells for job in plan] == [(cell,) for cell in cells]
    assert workers == 3
    plan, workers = plan_jobs(cells, 9, "local", "cpu", gpus=2)
    assert ([job.device for job in plan], workers) == (["cpu"] * 4, 4)


@pytest.mark.parametrize(
    ("gpus", "jobs", "sizes", "side_by_side"),
    [
        (1, None, [4], 4),
        (1, 2, [4], 2),
        (2, None, [2, 2], 4),
        (3, 6, [2, 1, 1], 2),
        (8, None, [1] * 4, 4),
    ],
)
def test_every_gpu_has_a_process_that_trains_several_runs(cells, gpus, jobs, sizes, side_by_side):
    plan, workers = plan_jobs(cells, jobs, "local", None, gpus=gpus)
    assert [len(job.cells) for job in plan] == sizes
    assert {job.side_by_side for job in plan} == {side_by_side}
    assert [job.device for job in plan] == [f"cuda:{k}" for k in range(len(sizes))]
    assert workers == len(plan)
    assert sorted(c.key for job in plan for c in job.cells) == sorted(c.key for c in cells)


def test_a_gpu_that_is_named_is_the_only_one(cells):
    plan, workers = plan_jobs(cells, None, "local", "cuda:1", gpus=2)
    assert ([job.device for job in plan], workers) == (["cuda:1"], 1)


def test_a_cluster_places_every_run_by_itself(cells):
    plan, workers = plan_jobs(cells, None, "ray", None)
    assert [(len(job.cells), job.device) for job in plan] == [(1, None)] * 4
    assert workers is None


@pytest.mark.parametrize(
    ("name", "available", "expected", "selected"),
    [
        ("cuda:1", True, "cuda:1", ["cuda:1"]),
        (None, True, "cuda", []),
        (None, False, "cpu", []),
        ("cpu", True, "cpu", []),
    ],
)
def test_the_gpu_of_a_process_is_made_the_current_one(name, available, expected, selected):
    chosen = []
    cuda = types.SimpleNamespace(
        is_available=lambda: available, set_device=lambda device: chosen.append(str(device))
    )
    cudnn = types.SimpleNamespace(benchmark=False)
    assert str(use_device(name, cuda, cudnn)) == expected
    assert chosen == selected
    assert cudnn.benchmark == expected.startswith("cuda")


def test_data_without_a_test_split_is_refused(tmp_path):
    dataset = data.from_tensors("helix", draw_splits("helix", 0))
    cell = make_cell(dataset, parse("none"), make_recipe(dataset, epochs=1), 0)
    with pytest.raises(ValueError, match="has no test split to report on"):
        run([cell], dataset, tmp_path)
