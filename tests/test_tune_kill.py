"""What a search survives: its workers killed, itself killed, a polite end. Real processes."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from processes import zetamix

from zetamix import data
from zetamix.records import read_lines

TRIALS, EPOCHS = 3, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where the digits are prepared once for all commands."""
    folder = tmp_path_factory.mktemp("data")
    data.load("digits", root=folder)
    return folder


def tune(root, out, *, jobs=1):
    command = ["tune", "--data", "digits", "--root", root, "--out", out, "--trials", TRIALS]
    command += ["--epochs", EPOCHS, "--train-size", 200, "--jobs", jobs, "--device", "cpu"]
    command += ["--test-seeds", 0, "--save-every", 0, "--no-prune", "--sampler", "random"]
    return zetamix(*command, log=out.parent / "log")


def workers_of(pid):
    """The processes that joblib has started for a command, by their ids."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"popen_loky_posix" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def curve(out, trial=0):
    return list(read_lines(out / f"trials/{trial:04d}/metrics.jsonl"))


def wait_for_epochs(command, out, epochs=3):
    began = time.monotonic()
    while len(curve(out)) < epochs:
        assert command.running, (out.parent / "log").read_text()
        assert time.monotonic() - began < 100
        time.sleep(0.02)
    return curve(out)


def check(out):
    """All trials are there, once each, and every epoch of each was trained once."""
    found = json.loads((out / "results.json").read_text())
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * TRIALS
    assert sorted(trial["seed"] for trial in found["trials"]) == list(range(TRIALS))
    assert len({str(trial["setting"]) for trial in found["trials"]}) == TRIALS
    folders = sorted(path.name for path in (out / "trials").iterdir())
    assert folders == [f"{k:04d}" for k in range(TRIALS)]
    for number in range(TRIALS):
        assert [line["epoch"] for line in curve(out, number)] == list(range(1, EPOCHS + 1))
    assert not list((out / ".commands").iterdir())
    return found["trials"]


@pytest.fixture(scope="module")
def whole(root, tmp_path_factory):
    """What comes of it where nothing happens."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert tune(root, out).wait() == 0, (out.parent / "log").read_text()
    return check(out)


def values(trials):
    return {trial["seed"]: (trial["value"], trial["curve"]) for trial in trials}


def test_a_killed_worker_costs_some_time_and_no_trial(root, whole, tmp_path):
    out = tmp_path / "out"
    command = tune(root, out, jobs=2)
    before = wait_for_epochs(command, out)
    victims = workers_of(command.process.pid)
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)
    assert command.wait() == 0, (tmp_path / "log").read_text()
    trials = check(out)
    assert values(trials) == values(whole)
    # it went on from its checkpoint: the first epoch took as long as it took then
    assert curve(out)[0] == before[0]


def test_a_killed_command_is_gone_on_with_by_the_same_command(root, whole, tmp_path):
    out = tmp_path / "out"
    command = tune(root, out)
    before = wait_for_epochs(command, out)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    assert not (out / "results.json").exists()
    assert tune(root, out).wait() == 0, (tmp_path / "log").read_text()
    trials = check(out)
    assert values(trials) == values(whole)
    assert curve(out)[0] == before[0]


def test_a_polite_end_leaves_a_report_and_the_same_command_goes_on(root, whole, tmp_path):
    out = tmp_path / "out"
    command = tune(root, out)
    wait_for_epochs(command, out)
    command.send(signal.SIGTERM)
    assert command.wait() == 128 + signal.SIGTERM
    log = (tmp_path / "log").read_text()
    assert "Stopped. Everything is saved; the same command goes on." in log
    found = json.loads((out / "results.json").read_text())
    assert not found["finished"]
    assert tune(root, out).wait() == 0, (tmp_path / "log").read_text()
    assert values(check(out)) == values(whole)
