"""The folder of a run: whose it is, what it refuses, and when training stops."""

import json
import os
import pickle
import signal
import time
from dataclasses import replace

import pytest
import torch
from filelock import FileLock

from zetamix import data
from zetamix.methods import parse
from zetamix.records import Cell, RunRecord
from zetamix.train import RECIPES, Run, train
from zetamix.train import stop as stopping
from zetamix.train.distributed import Ranks
from zetamix.train.run_folder import FolderError, RunFolder, hold
from zetamix.train.stop import MARGIN, SAME_PRESS, Stop, Stopped, parse_duration

RECIPE = RECIPES["cifar10"].change(model="mlp", epochs=2, batch_size=32, augmentation="none")


@pytest.fixture(scope="module")
def points():
    return data.load("crescents")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def new(points, folder):
    def make(method="none", recipe=RECIPE, **how):
        return Run(points, parse(method), recipe, seed=how.pop("seed", 0), out=folder, **how)

    return make


@pytest.fixture
def stopped(new, folder):
    """A run that was stopped after one step."""
    assert train([new()], stop=lambda: True).records == []
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def refused(call):
    with pytest.raises(FolderError) as caught:
        call()
    return str(caught.value)


def test_an_unfinished_run_is_not_started_over_unasked(new, folder, stopped):
    assert refused(lambda: new(resume=False)) == (
        f"{folder} holds an unfinished run of this. Add --resume to go on with it, or choose "
        "another --out."
    )


CHANGES = [
    ({"method": "zeta:2.8"}, "method: none there, zeta:2.8 asked for"),
    ({"seed": 3}, "seed: 0 there, 3 asked for"),
    (
        {"recipe": RECIPE.change(lr=0.2, epochs=4)},
        "recipe.epochs: 2 there, 4 asked for; recipe.evaluate_every: 1 there, 2 asked for; "
        "recipe.lr: 0.1 there, 0.2 asked for; "
        "recipe.milestones: [1, 2] there, [2, 4] asked for",
    ),
]


@pytest.mark.parametrize(("change", "what"), CHANGES, ids=["method", "seed", "recipe"])
@pytest.mark.parametrize("resume", [True, False])
def test_another_run_in_the_folder_is_told_by_what_differs(
    new, folder, stopped, change, what, resume
):
    assert refused(lambda: new(**change, resume=resume)) == (
        f"{folder} holds another run ({what}). Choose another --out."
    )


def test_other_data_of_the_same_name_are_another_run(points, folder, stopped):
    smaller = replace(points, train=points.train.subset(100))
    message = refused(lambda: Run(smaller, parse("none"), RECIPE, seed=0, out=folder))
    assert message == (
        f"{folder} holds another run (train_size: 512 there, 100 asked for). Choose another --out."
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_folder_that_says_nothing_sensible(new, folder, text):
    folder.mkdir()
    (folder / "cell.json").write_text(text)
    assert refused(new) == (
        f"{folder / 'cell.json'} does not say what was trained here. Choose another --out."
    )


class Malice:
    """What an attacker puts into a checkpoint: unpickling it runs a command."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_malicious_checkpoint_is_refused_and_not_run(new, folder, stopped, tmp_path, form):
    trace = tmp_path / "trace"
    if form == "torch":
        torch.save({**stopped, "best": Malice(trace)}, folder / "checkpoint.pt")
    else:
        (folder / "checkpoint.pt").write_bytes(pickle.dumps(Malice(trace)))
    message = refused(lambda: train([new()]))
    assert message.startswith(f"{folder / 'checkpoint.pt'} cannot be read (")
    assert message.endswith("). Remove it to start this run anew.")
    assert not trace.exists()
    # the same file does what it is meant to once it is trusted: the test would see it
    with (folder / "checkpoint.pt").open("rb") as file:
        torch.load(file, weights_only=False) if form == "torch" else pickle.load(file)
    assert trace.exists()


@pytest.mark.parametrize("content", [b"", b"half a checkp"], ids=["empty", "cut off"])
def test_a_checkpoint_that_is_none(new, folder, stopped, content):
    (folder / "checkpoint.pt").write_bytes(content)
    assert "cannot be read" in refused(lambda: train([new()]))


@pytest.mark.parametrize("state", [{}, torch.zeros(3), {"trainer": {}, "best": None}])
def test_a_checkpoint_of_another_make(new, folder, stopped, state):
    torch.save(state, folder / "checkpoint.pt")
    assert refused(lambda: train([new()])) == (
        f"{folder / 'checkpoint.pt'} is not a checkpoint of this version of zetamix. Remove it to "
        "start this run anew."
    )


@pytest.mark.parametrize("place", ["cuda with one process", "cpu with 2 processes"])
def test_a_run_goes_on_where_it_was_begun(new, folder, stopped, place):
    torch.save({**stopped, "hardware": place}, folder / "checkpoint.pt")
    assert refused(lambda: train([new()])) == (
        f"{folder} was begun on {place}, and this is cpu with one process. Go on there, or choose "
        "another --out."
    )


def test_a_record_of_another_run_is_no_result_of_this(new, folder):
    train([new()])
    (folder / "cell.json").unlink()
    message = refused(lambda: new("zeta:2.8"))
    assert message == f"{folder / 'record.json'} is of another run. Choose another --out."


def test_what_a_killed_process_was_writing_is_removed(new, folder, stopped):
    part = folder / ".checkpoint.pt.abc.part"
    part.write_bytes(b"half")
    train([new()], stop=lambda: True)
    assert not part.exists()
    part.write_bytes(b"half")
    train([new()])
    assert not part.exists()


def test_lines_after_the_checkpoint_are_dropped(new, folder):
    train([new(save_every=0)], stop=iter([False] * 17 + [True]).__next__)
    path = folder / "metrics.jsonl"
    assert [json.loads(line)["epoch"] for line in path.read_text().splitlines()] == [1]
    with path.open("a") as file:
        file.write('{"epoch": 2, "lr": 5}\n{"epoch": 3, "lr"')
    train([new()])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert lines[1]["lr"] < 1


def cell():
    return Cell(dataset="d", fingerprint="", method="none", seed=0, recipe={}, train_size=1)


def test_a_folder_is_made_when_it_is_opened(folder):
    made = RunFolder(folder, cell())
    assert not folder.exists()
    assert made.record is None
    made.open()
    assert [path.name for path in folder.iterdir()] == ["cell.json"]


def test_finishing_keeps_the_result_and_nothing_to_go_on_from(folder):
    made = RunFolder(folder, cell())
    made.open()
    made.save("checkpoint.pt", {})
    record = RunRecord(
        cell=cell(), last={}, best=None, confusion=[], test_size=0, wall_s=0, step_ms=0, machine={}
    )
    made.finish(record)
    assert made.record == record
    assert sorted(path.name for path in folder.iterdir()) == ["cell.json", "record.json"]


def test_a_folder_is_held_by_one_process(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with hold([one, two]):
        pass
    with FileLock(two / ".lock"):
        message = refused(lambda: hold([one, two]).__enter__())
        assert message == f"{two} is in use by another process. Wait for it, or end it."
        # what was held before the one that is in use is free again
        with hold([one]):
            pass


def test_alone_there_is_nobody_to_ask():
    alone = Ranks()
    assert alone.leads
    assert alone.average(1.0, 0.5, None) == (1.0, 0.5, None)
    assert alone.average(1.0, 0.5, 3) == (1.0, 0.5, 3)
    logits, labels = torch.rand(2, 3), torch.arange(2)
    assert alone.gather(logits, labels)[0] is logits
    assert alone.share("x") == "x"
    assert (alone.any(True), alone.any(False)) == (True, False)


DURATIONS = [
    ("45", 45), ("45s", 45), ("1.5s", 1.5), ("9m", 540), ("1h", 3600), ("1h30m", 5400),
    ("1h30m5s", 5405), (" 2H ", 7200), ("0", 0), ("90m", 5400),
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "9 m", "-5", "m", "1m1h", "1d", "1.5m"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == f"Expected a duration such as 9m, 1h30m or 45s, got {text!r}."


@pytest.mark.parametrize(
    ("limit", "stops_after"), [(540, 540 - MARGIN), (8, 6.0), (20, 15.0), (0, 0.0)]
)
def test_time_is_up_with_a_margin_to_save_in(monkeypatch, limit, stops_after):
    now = [100.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    stop = Stop(limit)
    assert not stop()
    now[0] = 100 + stops_after
    assert not stop.out_of_time
    now[0] += 0.01
    assert stop()
    assert stop.out_of_time
    assert not stop.terminated
    # time that passed before counts as well
    assert Stop(limit, began=100.0).out_of_time


def test_what_took_long_once_is_kept_back(monkeypatch):
    """Steps of a second and an evaluation of 40 s: no new one is begun 45 s before the end."""
    now = [0.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    stop = Stop(540)
    for seconds in [1, 1, 40, *[1] * 452]:
        assert not stop()
        now[0] += seconds
    assert now[0] == 494
    assert not stop()
    now[0] += 1.01
    assert stop()


def test_without_a_limit_time_is_never_up(monkeypatch):
    stop = Stop()
    monkeypatch.setattr(stopping.time, "monotonic", lambda: 1e12)
    assert not stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_and_waits_for_the_end_of_a_step(number):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with Stop() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert (stop.terminated, stop.signal, stop.out_of_time) == (True, number, False)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_press_does_not_wait(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        # torchrun passes the same press on
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        now[0] += SAME_PRESS + 0.1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_sigterm_never_interrupts():
    with Stop() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            stop._heard -= 10
        assert stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_that_cannot_be_saved_is_stopped_at_once(number):
    with Stop() as stop:
        with pytest.raises(Stopped), stop.at_once():
            os.kill(os.getpid(), number)
        assert stop()
    # outside of its context nothing is heard, and nothing is changed
    with stop.at_once():
        pass


def test_a_limit_stops_at_once_what_cannot_be_saved():
    before = signal.getsignal(signal.SIGALRM)
    with Stop(0.4) as stop:
        with pytest.raises(Stopped), stop.at_once():
            time.sleep(60)
        assert stop()
    with Stop(60) as stop, stop.at_once():
        pass
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_stopping_by_time_saves(new, folder):
    began = time.monotonic()
    with Stop(0.2) as stop:
        assert train([new(recipe=RECIPE.change(epochs=500))], stop=stop).records == []
    assert time.monotonic() - began < 10
    assert stop.out_of_time
    saved = torch.load(folder / "checkpoint.pt", weights_only=True)["trainer"]
    assert saved["epoch"] + saved["step_in_epoch"] > 0
