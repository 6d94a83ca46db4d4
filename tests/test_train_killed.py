"""`zetamix train` killed at any moment goes on as if nothing had been.

Every test compares with one run that nobody touched: metrics, curve and weights, bit by bit.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from accidents import FullDisk, KilledAt, KilledWhileSaving, SignalledAt, Slow
from folders import FINISHED, names
from processes import zetamix

from zetamix.records import read_lines

STEPS = 9
EPOCHS = 3
ARGUMENTS = [
    "train", "--data", "digits", "--train-size", 300, "--epochs", EPOCHS, "--seed", 4,
    "--set", "augmentation=crop-flip", "--save-every", 0, "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where the digits are prepared, once."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def command(root, tmp_path):
    """Starts the command; a second start is the same command once more."""

    def run(*more, before=None, out=tmp_path / "run", **environment):
        arguments = [*ARGUMENTS, "--data-dir", root, "--out", out, *more]
        return zetamix(*arguments, log=tmp_path / "log", before=before, environment=environment)

    return run


@pytest.fixture(scope="module")
def untouched(root, tmp_path_factory):
    """The folder of the run that nobody touched."""
    folder = tmp_path_factory.mktemp("untouched")
    log = folder / "log"
    started = zetamix(*ARGUMENTS, "--data-dir", root, "--out", folder / "run", log=log)
    assert started.wait() == 0, log.read_text()
    return folder / "run"


def result(folder):
    record = json.loads((folder / "record.json").read_text())
    curve = list(read_lines(folder / "metrics.jsonl"))
    for line in curve:
        del line["seconds"]
    kept = ("cell", "last", "best", "confusion", "test_size", "parameters")
    return {name: record[name] for name in kept}, curve


def assert_same(folder, untouched):
    assert result(folder) == result(untouched)
    found, expected = (
        torch.load(path / "final.pt", weights_only=True) for path in (folder, untouched)
    )
    assert found.keys() == expected.keys()
    for key in expected:
        assert torch.equal(found[key], expected[key]), key
    assert names(folder) == names(untouched)


def checkpoint(folder):
    """The state in a checkpoint, which must be whole if it is there at all."""
    path = folder / "checkpoint.pt"
    return torch.load(path, weights_only=True)["trainer"] if path.exists() else None


def test_the_run_that_nobody_touched(untouched):
    assert names(untouched) == FINISHED
    _, curve = result(untouched)
    assert [line["epoch"] for line in curve] == [1, 2, 3]
    assert curve[2]["train_loss"] < curve[0]["train_loss"]


@pytest.fixture(scope="module")
def touches(root, tmp_path_factory):
    """Every time that a whole run touches a file, in words."""
    folder = tmp_path_factory.mktemp("touches")
    watch = KilledAt(folder / "run", -1, folder / "trace")
    arguments = [*ARGUMENTS, "--data-dir", root, "--out", folder / "run"]
    assert zetamix(*arguments, log=folder / "log", before=watch).wait() == 0
    return (folder / "trace").read_text().splitlines()


def test_a_run_touches_what_we_think(touches):
    """A checkpoint an epoch, and in the end the model, then the record, then the tidying."""
    renamed = [line for line in touches if line.startswith("os.rename")]
    kinds = [line.split(".")[2].split()[0] for line in renamed]
    assert kinds == ["cell", "metrics", *["checkpoint"] * EPOCHS, "model", "final", "record"]
    assert [line for line in touches if "remove" in line] == ["os.remove checkpoint.pt"]
    assert touches.index("os.remove checkpoint.pt") > touches.index(renamed[-1])


# spread over the run: its beginning, every kind of write, and all of its end
MOMENTS = [1, 3, 6, 8, 10, 11, 13, 15, 17, 19, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_whenever_it_touches_a_file(command, untouched, touches, tmp_path, moment):
    number = moment if moment > 0 else len(touches) + 1 + moment
    folder = tmp_path / "run"
    assert command(before=KilledAt(folder, number)).wait() == -signal.SIGKILL
    checkpoint(folder)
    assert command().wait() == 0, (tmp_path / "log").read_text()
    assert_same(folder, untouched)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed_while_saving(command, untouched, tmp_path, number):
    """The three checkpoints and the final model: the one before stays, whole."""
    folder = tmp_path / "run"
    assert command(before=KilledWhileSaving(number)).wait() == -signal.SIGKILL
    assert any(name.endswith(".part") for name in names(folder))
    saved = checkpoint(folder)
    assert (0 if saved is None else saved["epoch"]) == number - 1
    assert command().wait() == 0
    assert_same(folder, untouched)


def test_a_full_disk_is_told_and_loses_nothing(command, untouched, root, tmp_path):
    """The first checkpoint was written, then the disk is full, then there is room again."""
    folder = tmp_path / "run"
    assert command(before=KilledWhileSaving(2)).wait() == -signal.SIGKILL
    assert command(before=FullDisk(checkpoint_size(folder) - 1), COLUMNS="200").wait() == 1
    text = (tmp_path / "log").read_text()
    assert (
        f"{folder / 'checkpoint.pt'} cannot be written (File too large). What was saved before is "
        "whole: make room, and rerun the same command to resume."
    ) in text
    assert "Traceback" not in text
    assert checkpoint(folder)["epoch"] == 1
    assert not any(name.endswith(".part") for name in names(folder))
    assert command().wait() == 0
    assert_same(folder, untouched)


def checkpoint_size(folder):
    return (folder / "checkpoint.pt").stat().st_size


def test_killed_again_and_again_at_random_moments(command, untouched, tmp_path):
    """Lives of 0 to 0.8 s, from the moment that the command runs, until one gets to the end."""
    dice = random.Random(20240229)
    folder = tmp_path / "run"
    lives = 0
    while not (folder / "record.json").exists():
        process = command()
        lives += 1
        time.sleep(dice.uniform(0, 0.8) + 0.1 * lives)
        process.send(signal.SIGKILL)
        status = process.wait()
        assert status in (-signal.SIGKILL, 0)
        checkpoint(folder)
        for line in read_lines(folder / "metrics.jsonl"):
            assert {"epoch", "test"} <= line.keys()
    assert command().wait() == 0
    assert lives > 1
    assert_same(folder, untouched)


# the middle of an epoch, its last step, and the first of the next
@pytest.mark.parametrize("step", [STEPS + 5, 2 * STEPS, 2 * STEPS + 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_saves_in_the_middle_of_an_epoch(command, untouched, tmp_path, number, step):
    status = command(before=SignalledAt(step, number)).wait()
    text = (tmp_path / "log").read_text()
    assert status == 128 + number, text
    assert "Stopped. Everything is saved; rerun the same command to resume." in text
    assert "Traceback" not in text
    saved = checkpoint(tmp_path / "run")
    # the step in which the signal came is finished
    assert saved["epoch"] * STEPS + saved["step_in_epoch"] == step
    assert not any(name.endswith(".part") for name in names(tmp_path / "run"))
    assert command().wait() == 0
    assert_same(tmp_path / "run", untouched)


def test_a_time_limit_stops_in_time_and_goes_on(command, untouched, tmp_path):
    """Steps that take 13 s in all and a limit of 4 s: it ends by itself, with status 0."""
    began = time.monotonic()
    assert command("--time-limit", "4s", before=Slow(0.5)).wait() == 0
    # beside the limit itself, what it takes to start a process on a busy machine
    assert time.monotonic() - began < 4 + 4
    text = (tmp_path / "log").read_text()
    assert "The time is up. Everything is saved; rerun the same command to resume." in text
    saved = checkpoint(tmp_path / "run")
    assert 0 < saved["epoch"] * STEPS + saved["step_in_epoch"] < EPOCHS * STEPS
    assert command("--time-limit", "1h").wait() == 0
    assert_same(tmp_path / "run", untouched)


def test_two_commands_do_not_share_a_folder(command, tmp_path):
    first = command(before=Slow(0.25))
    while not (tmp_path / "run" / "cell.json").exists():
        assert first.running
        time.sleep(0.02)
    second = command()
    assert second.wait() == 1
    assert f"{tmp_path / 'run'} is in use by another process. Wait for it, or end it." in (
        " ".join((tmp_path / "log").read_text().split())
    )
    first.send(signal.SIGTERM)
    assert first.wait() == 143


def test_the_installed_command_is_killed_and_goes_on(root, untouched, tmp_path):
    """The same with the script itself, in a fresh interpreter, as a user would."""
    script = Path(sys.executable).with_name("zetamix")
    folder = tmp_path / "run"
    words = [str(word) for word in [script, *ARGUMENTS, "--data-dir", root, "--out", folder]]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, **quiet)
    while checkpoint(folder) is None:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    shutil.copytree(folder, tmp_path / "copy")
    assert zetamix(*words[1:-1], tmp_path / "copy", log=tmp_path / "log").wait() == 0
    assert_same(tmp_path / "copy", untouched)
