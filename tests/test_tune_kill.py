"""A search survives kill -9 of a worker or of the command, and SIGTERM. Real processes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from processes import zetamix
from test_compare_cli import trained_by, wait_for

from zetamix.records import read_lines

TRIALS, EPOCHS = 3, 80


def arguments(out, jobs):
    command = ["tune", "--data", "crescents", "--out", out, "--trials", TRIALS, "--epochs", EPOCHS]
    command += ["--train-size", 64, "--jobs", jobs, "--device", "cpu", "--test-seeds", 0]
    return [*command, "--save-every", 0, "--no-prune", "--sampler", "random"]


def tune(out):
    return zetamix(*arguments(out, jobs=1), log=out.parent / "log")


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
    results = json.loads((out / "results.json").read_text())
    assert [trial["state"] for trial in results["trials"]] == ["complete"] * TRIALS
    assert sorted(trial["seed"] for trial in results["trials"]) == list(range(TRIALS))
    assert len({str(trial["setting"]) for trial in results["trials"]}) == TRIALS
    folders = sorted(path.name for path in (out / "trials").iterdir())
    assert folders == [f"{k:04d}" for k in range(TRIALS)]
    for number in range(TRIALS):
        assert [line["epoch"] for line in curve(out, number)] == list(range(1, EPOCHS + 1))
    return results["trials"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The trials of an undisturbed search."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert tune(out).wait() == 0, (out.parent / "log").read_text()
    return check(out)


def values(trials):
    return {trial["seed"]: (trial["value"], trial["curve"]) for trial in trials}


def test_the_trials_of_a_killed_worker_resume(whole, tmp_path):
    out = tmp_path / "out"
    # not forked: what a forked process starts in turn, it waits for half a minute at its end
    command = [sys.executable, "-m", "zetamix", *map(str, arguments(out, jobs=2))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: len(curve(out)) >= 3, process)
    before = curve(out)
    victim = trained_by(out / "trials/0000")
    assert victim not in (None, process.pid)
    os.kill(victim, signal.SIGKILL)
    text = process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    assert text.count("A worker was killed") == 1
    trials = check(out)
    assert values(trials) == values(whole)
    # resumed from its checkpoint: the first epoch has the old time
    assert curve(out)[0] == before[0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_same_command_resumes_after_a_signal(number, whole, tmp_path):
    out = tmp_path / "out"
    command = tune(out)
    before = wait_for_epochs(command, out)
    command.send(number)
    if number == signal.SIGKILL:
        assert command.wait() == -number
        assert not (out / "results.json").exists()
    else:
        assert command.wait() == 128 + number
        assert "Rerun the same command to resume." in (tmp_path / "log").read_text()
        assert not json.loads((out / "results.json").read_text())["finished"]
    assert tune(out).wait() == 0, (tmp_path / "log").read_text()
    assert values(check(out)) == values(whole)
    assert curve(out)[0] == before[0]
