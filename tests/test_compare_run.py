"""A comparison from the first run to the last: what is trained, what is kept, what goes wrong."""

from pathlib import Path

import pytest
import torch
from comparisons import make_dataset
from filelock import FileLock

from zetamix import data
from zetamix.experiments.compare import CompareError, compare, make_grid
from zetamix.experiments.compare.grid import Place
from zetamix.experiments.compare.progress import Tracker
from zetamix.experiments.compare.run import _plan_jobs, _token
from zetamix.experiments.compare.work import Job, train_cells
from zetamix.experiments.workers import FileBoard
from zetamix.methods import parse_list
from zetamix.results.comparison import read_record
from zetamix.train import Run
from zetamix.train.run_folder import RunFolder


def grid_of(out, what="crescents", methods="none,zeta:2.8", **how):
    how = {"seeds": 2, "epochs": 2, "train_size": 64, **how}
    return make_grid(what, parse_list(methods), out=Path(out), **how)


def run(grid, **how):
    return compare(grid, **{"jobs": 1, "device": "cpu", **how})


def records(out):
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("runs/*/record.json")}


def test_every_run_is_trained_and_read(tmp_path):
    found = run(grid_of(tmp_path))
    assert found.complete
    assert set(found.records) == {(m, s) for m in ("none", "zeta:2.8") for s in (0, 1)}
    assert found.failures == {}
    assert found.where == "1 process"
    for key, record in found.records.items():
        assert (record.cell.method, record.cell.seed) == key
        assert [line["epoch"] for line in found.curves[key]] == [1, 2]
        assert found.curves[key][-1]["test"] == record.last
        counts = torch.tensor(record.confusion)
        assert counts.sum() == 512
        assert float(1 - counts.diagonal().sum() / 512) == pytest.approx(record.last["error"])
    assert found.primary == "auc"
    assert found.values("none", "auc") == {
        seed: found.records["none", seed].last["auc"] for seed in (0, 1)
    }
    # of one class both recalls, in the order of seeds
    assert found.recalls("none").shape == (2, 2)


def test_the_same_comparison_in_two_processes_has_the_same_numbers(tmp_path):
    one = run(grid_of(tmp_path / "one"))
    # given as a value, which goes to the processes as such
    two = run(grid_of(tmp_path / "two", data.load("crescents")), jobs=2)
    assert two.where == "2 processes side by side"
    assert {key: r.last for key, r in one.records.items()} == {
        key: r.last for key, r in two.records.items()
    }
    assert {r.machine["threads"] for r in two.records.values()} == {"1"}


def test_only_what_is_missing_is_trained(tmp_path):
    run(grid_of(tmp_path, seeds=1))
    before = records(tmp_path)
    assert len(before) == 2
    found = run(grid_of(tmp_path, seeds=2, methods="none,zeta:2.8,mixup"))
    after = records(tmp_path)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before
    assert found.complete
    again = run(grid_of(tmp_path, seeds=2, methods="none,zeta:2.8,mixup"))
    assert records(tmp_path) == after
    assert again.where == ""
    # of fewer seeds only those are told
    assert set(run(grid_of(tmp_path, seeds=1)).records) == {("none", 0), ("zeta:2.8", 0)}


def test_a_stop_saves_what_is_under_way_and_the_same_call_goes_on(tmp_path):
    # three seconds of training, and a stop that takes up to one
    grid = grid_of(tmp_path, seeds=1, epochs=3000, methods="none")
    stopped = run(grid, stop=lambda: bool(list(tmp_path.glob("runs/*/metrics.jsonl"))))
    assert not stopped.complete
    assert stopped.failures == {}
    (folder,) = tmp_path.glob("runs/*")
    assert (folder / "checkpoint.pt").exists()
    epochs = len((folder / "metrics.jsonl").read_text().splitlines())
    assert epochs < 3000
    seen = []
    found = run(grid, watch=seen.append)
    assert found.complete
    # it went on, and is what it would have been in one go
    assert min(overview.cells[0].epochs for overview in seen[1:]) >= epochs
    other = run(grid_of(tmp_path / "other", seeds=1, epochs=3000, methods="none"))
    assert found.records["none", 0].last == other.records["none", 0].last


def test_progress_is_told_to_the_end(tmp_path):
    seen = []
    grid = grid_of(tmp_path, epochs=60)
    run(grid, watch=seen.append)
    assert [(cell.method, cell.seed) for cell in seen[0].cells] == [
        (place.method, place.seed) for place in grid.places
    ]
    last = seen[-1]
    assert last.count("done") == 4
    assert last.seconds_left == 0
    assert last.epochs == 60
    assert all(cell.scores["auc"] > 0.5 for cell in last.cells)
    training = [cell for overview in seen for cell in overview.cells if cell.state == "training"]
    assert training
    assert all(0 <= cell.epochs <= 60 for cell in training)
    done = [overview.count("done") for overview in seen]
    assert done == sorted(done)


def test_a_failed_run_does_not_stop_the_others(tmp_path, monkeypatch):
    samples = torch.randn(64, 2)
    labels = (samples[:, 0] > 0).long()
    from zetamix.data import from_tensors

    dataset = from_tensors("points", dict.fromkeys(("train", "test"), (samples, labels)))
    grid = grid_of(tmp_path, dataset, train_size=None, changes=["lr=1e30"])
    found = run(grid)
    assert set(found.failures) == {(m, s) for m in ("none", "zeta:2.8") for s in (0, 1)}
    assert all("is not finite in epoch 1" in text for text in found.failures.values())
    assert found.records == {}
    # and is told again, not counted as finished
    assert set(run(grid).failures) == set(found.failures)


def test_of_several_in_one_process_the_failed_one_is_left_out(tmp_path, monkeypatch):
    grid = grid_of(tmp_path, methods="none,mixup,zeta:2.8", seeds=1)
    step = Run._close_epoch

    def fail(self, trainer):
        if self.method.name == "mixup":
            from zetamix.train.trainer import NonFiniteLossError

            raise NonFiniteLossError("The loss is not finite.")
        return step(self, trainer)

    monkeypatch.setattr(Run, "_close_epoch", fail)
    board = FileBoard(tmp_path / "board")
    job = Job(grid.places, grid.recipe, grid.out, _token(grid.out), "cpu", jobs=3)
    outcome = train_cells(job, grid.dataset, board)
    assert outcome.failures == {grid.places[1].key: "The loss is not finite."}
    assert [read_record(grid.out, place) is not None for place in grid.places] == [
        True,
        False,
        True,
    ]


def test_a_full_gpu_is_told_with_what_to_do(tmp_path, monkeypatch):
    grid = grid_of(tmp_path, methods="none", seeds=1)

    def fail(self):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore")

    monkeypatch.setattr(Run, "start", fail)
    found = run(grid)
    assert found.failures["none", 0] == (
        "The GPU is out of memory. Train fewer runs side by side (--jobs), or smaller batches "
        "(--set batch_size=...). torch says: CUDA out of memory. Tried to allocate 2 GiB."
    )


def test_an_error_of_ours_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "start", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(grid_of(tmp_path))


# one comparison in a folder at a time


def test_a_folder_in_use_is_told(tmp_path):
    grid = grid_of(tmp_path)
    with FileLock(tmp_path / ".lock"), pytest.raises(CompareError) as caught:
        run(grid)
    assert str(caught.value) == (
        f"{tmp_path} is in use by another comparison. Wait for it, or choose another --out."
    )
    assert run(grid).complete


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CompareError, match=r"^Cannot write to .*file/out: Not a directory"):
        run(grid_of(tmp_path / "file" / "out"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "record.json cannot be read ("),
        (lambda text: "{}", "record.json cannot be read ("),
        (
            lambda text: text.replace('"seed": 0', '"seed": 7'),
            "record.json is the record of another run",
        ),
    ],
)
def test_a_damaged_record_is_told(change, message, tmp_path):
    grid = grid_of(tmp_path, seeds=1, methods="none")
    run(grid)
    (path,) = tmp_path.glob("runs/*/record.json")
    path.write_text(change(path.read_text()))
    with pytest.raises(CompareError) as caught:
        run(grid)
    assert message in str(caught.value)
    assert "Remove it to train this" in str(caught.value)


# a folder that only the asking machine has


def test_what_is_trained_elsewhere_comes_home_whole(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    grid = grid_of(tmp_path / "home", seeds=1)
    board = FileBoard(tmp_path / "board")
    job = Job(grid.places, grid.recipe, tmp_path / "not here", "token", "cpu")
    outcome = train_cells(job, grid.dataset, board)
    assert set(outcome.files) == {place.key for place in grid.places}
    # nothing is left there
    assert not [path for path in elsewhere.rglob("*") if path.is_file()]
    for place in grid.places:
        RunFolder.unpack(grid.out / place.folder, outcome.files[place.key])
    expected = run(grid_of(tmp_path / "other", seeds=1))
    found = run(grid)
    assert found.where == ""
    assert {k: r.last for k, r in found.records.items()} == {
        k: r.last for k, r in expected.records.items()
    }
    state = torch.load(grid.out / grid.places[0].folder / "final.pt", weights_only=True)
    assert state


def test_a_folder_of_the_same_name_is_not_home(tmp_path):
    grid = grid_of(tmp_path)
    (tmp_path / "other").mkdir()
    token = _token(grid.out)
    assert token == _token(grid.out)
    assert token != _token(tmp_path / "other")
    job = Job(grid.places[:1], grid.recipe, grid.out, "another", "cpu")
    outcome = train_cells(job, grid.dataset, FileBoard(tmp_path / "board"))
    assert list(outcome.files) == [grid.places[0].key]


def test_a_finished_run_is_not_overwritten(tmp_path):
    RunFolder.unpack(tmp_path, dict.fromkeys(RunFolder.FILES, b"first"))
    RunFolder.unpack(tmp_path, dict.fromkeys(RunFolder.FILES, b"second"))
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"first"}


def test_data_that_differs_elsewhere_is_told_for_every_run(tmp_path):
    grid = grid_of(tmp_path)
    job = Job(grid.places[:2], grid.recipe, grid.out, "token", "cpu")
    outcome = train_cells(job, make_dataset(), FileBoard(tmp_path / "board"))
    assert set(outcome.failures) == {place.key for place in grid.places[:2]}
    assert outcome.files == {}


def test_two_processes_never_train_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.compare.work.PATIENCE", 0.1)
    grid = grid_of(tmp_path)
    folder = grid.out / grid.places[0].folder
    folder.mkdir(parents=True)
    job = Job(grid.places[:1], grid.recipe, grid.out, _token(grid.out), "cpu")
    from zetamix.train.run_folder import FolderError

    with FileLock(folder / ".lock"), pytest.raises(FolderError, match="in use by another process"):
        train_cells(job, grid.dataset, FileBoard(tmp_path / "board"))


# who trains what


def test_on_a_cpu_every_run_is_a_job(tmp_path):
    grid = grid_of(tmp_path)
    jobs, count = _plan_jobs(grid, grid.places, 3, "local", "cpu", False)
    assert [len(job.places) for job in jobs] == [1, 1, 1, 1]
    assert count == 3


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
def test_on_gpus_one_process_each_trains_several_side_by_side(
    gpus, jobs, sizes, side_by_side, tmp_path, monkeypatch
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    grid = grid_of(tmp_path)
    plan, count = _plan_jobs(grid, grid.places, jobs, "local", None, False)
    assert [len(job.places) for job in plan] == sizes
    assert {job.concurrent for job in plan} == {side_by_side}
    assert [job.device for job in plan] == [f"cuda:{k}" for k in range(len(sizes))]
    assert count == len(plan)
    assert sorted(p.key for job in plan for p in job.places) == sorted(p.key for p in grid.places)


def test_a_cluster_decides_on_devices_itself(tmp_path):
    grid = grid_of(tmp_path)
    plan, count = _plan_jobs(grid, grid.places, None, "ray", None, False)
    assert [(len(job.places), job.device) for job in plan] == [(1, None)] * 4
    assert count is None


# time left


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("zetamix.experiments.compare.progress.time.monotonic", lambda: self.now)


def test_time_left_follows_the_work_done_under_our_eyes(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    grid = grid_of(tmp_path, epochs=10)
    tracker = Tracker(grid)
    first, second, third, fourth = (place.key for place in grid.places)
    tracker.done[first] = {}
    assert tracker.look().seconds_left is None
    # it went on from a checkpoint of six epochs, which is no work of ours
    tracker.words = {second: {"epochs": 6.0, "scores": None}}
    assert tracker.look().seconds_left is None
    clock.now += 20
    tracker.words = {second: {"epochs": 8.0, "scores": {"auc": 0.5}}}
    overview = tracker.look()
    # two epochs in 20 s, and 2 + 10 + 10 to go
    assert overview.seconds_left == pytest.approx(220)
    assert [cell.state for cell in overview.cells] == ["done", "training", "waiting", "waiting"]
    assert overview.cells[1].scores == {"auc": 0.5}
    tracker.failed = {third}
    assert tracker.look().seconds_left == pytest.approx(120)
    assert tracker.look().count("failed") == 1
    # all epochs are over, and one run has yet to be written: that is not nothing
    tracker.words = {second: {"epochs": 10.0, "scores": None}}
    tracker.done |= {fourth: {}}
    assert tracker.look().seconds_left is None
    tracker.done |= {second: {}}
    assert tracker.look().seconds_left == 0


def test_places_know_their_names():
    from zetamix.records import Cell

    cell = Cell(dataset="d", fingerprint="", method="zeta:2.8", seed=3, recipe={}, train_size=1)
    assert Place(cell).name == "zeta:2.8 seed 3"
