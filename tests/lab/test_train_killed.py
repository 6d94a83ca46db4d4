"""`zetamix train`, killed at any moment, resumes as if nothing had happened.

Every test compares with a run that was not interrupted: metrics, curve and weights, bit by bit.
"""

import random
import signal
import time
from functools import partial

import pytest
from accidents import fill_disk, kill_at_change, kill_while_saving, signal_at, slow_down
from factories import FINISHED, assert_same, checkpoint, names, result
from processes import zetamix

from zetamix_lab.train.run_folder import RunFolder

pytestmark = pytest.mark.slow
STEPS, EPOCHS = 9, 3
ARGUMENTS = [
    "train", "--data", "digits", "--train-size", 300, "--epochs", EPOCHS, "--seeds", "4,",
    "--set", "augmentation=crop-flip", "--save-every", 0, "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """With a data folder, in which the digits are prepared once."""
    return [*ARGUMENTS, "--data-dir", tmp_path_factory.mktemp("data")]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def start(arguments, folder, log):
    """Starts the command; a second call resumes it."""

    def start_command(*more, before=None, **environment):
        return zetamix(
            *arguments, "--out", folder, *more, log=log, before=before, environment=environment
        )

    return start_command


@pytest.fixture(scope="module")
def whole(arguments, tmp_path_factory):
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    log = folder / "log"
    assert zetamix(*arguments, "--out", folder / "run", log=log).wait() == 0, log.read_text()
    assert names(folder / "run") == FINISHED
    _, curve = result(folder / "run")
    assert curve[2]["train_loss"] < curve[0]["train_loss"]
    return folder / "run"


@pytest.fixture
def assert_resumes(start, whole, folder, log):
    """The same command finishes the run, with the result of the one that was not interrupted."""

    def check(*more):
        assert start(*more).wait() == 0, log.read_text()
        assert_same(folder, whole)
        assert names(folder) == FINISHED

    return check


@pytest.fixture(scope="module")
def changes(arguments, tmp_path_factory):
    """All changes of files by a whole run."""
    folder = tmp_path_factory.mktemp("changes")
    watch = partial(kill_at_change, folder / "run", -1, folder / "trace")
    command = zetamix(*arguments, "--out", folder / "run", log=folder / "log", before=watch)
    assert command.wait() == 0
    return (folder / "trace").read_text().splitlines()


def test_files_are_written_in_this_order(changes):
    """A checkpoint per epoch; in the end the model, then the record, then the clean-up."""
    renamed = [line for line in changes if line.startswith("os.rename")]
    kinds = [line.split(".")[2].split()[0] for line in renamed]
    assert kinds == ["cell", "metrics", *["checkpoint"] * EPOCHS, "model", "final", "record"]
    assert [line for line in changes if "remove" in line] == ["os.remove checkpoint.pt"]
    assert changes.index("os.remove checkpoint.pt") > changes.index(renamed[-1])


# the beginning, every kind of write, and all of the end
MOMENTS = [1, 6, 8, 9, 12, 13, 15, *range(-10, 0)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_a_change_of_a_file(start, folder, changes, assert_resumes, moment):
    number = moment if moment > 0 else len(changes) + 1 + moment
    assert start(before=partial(kill_at_change, folder, number)).wait() == -signal.SIGKILL
    checkpoint(folder)
    assert_resumes()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed_while_saving(start, folder, assert_resumes, number):
    """The three checkpoints and the final model: the previous checkpoint stays intact."""
    assert start(before=partial(kill_while_saving, number)).wait() == -signal.SIGKILL
    assert any(name.endswith(".part") for name in names(folder))
    saved = checkpoint(folder)
    assert (0 if saved is None else saved["epoch"]) == number - 1
    assert_resumes()


def test_a_full_disk_is_reported_and_loses_nothing(start, folder, log, assert_resumes):
    """The first checkpoint is written, then the disk is full, then there is space again."""
    assert start(before=partial(kill_while_saving, 2)).wait() == -signal.SIGKILL
    size = (folder / "checkpoint.pt").stat().st_size
    assert start(before=partial(fill_disk, size - 1), COLUMNS="200").wait() == 1
    text = log.read_text()
    assert f"{folder / 'checkpoint.pt'} cannot be written (File too large)." in text
    assert "Traceback" not in text
    assert checkpoint(folder)["epoch"] == 1
    assert not any(name.endswith(".part") for name in names(folder))
    assert_resumes()


def test_killed_repeatedly_at_random_moments(start, folder, assert_resumes):
    """Killed 0 to 0.8 s after each start, until the run is finished.

    Steps take 1.3 s in all, or a fast machine would finish them before it is killed once.
    """
    dice = random.Random(20240229)
    lives = 0
    while not (folder / "record.json").exists():
        process = start(before=partial(slow_down, 0.05))
        lives += 1
        time.sleep(dice.uniform(0, 0.8) + 0.1 * lives)
        process.send(signal.SIGKILL)
        assert process.wait() in (-signal.SIGKILL, 0)
        checkpoint(folder)
        assert all({"epoch", "test"} <= line.keys() for line in RunFolder(folder).read_curve())
    assert lives > 1
    assert_resumes()


# the middle of an epoch, its last step, and the first of the next
@pytest.mark.parametrize("step", [STEPS + 5, 2 * STEPS, 2 * STEPS + 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_saves_in_the_middle_of_an_epoch(start, folder, log, assert_resumes, number, step):
    assert start(before=partial(signal_at, step, number)).wait() == 128 + number, log.read_text()
    assert "Stopped. Everything is saved. Rerun the same command to resume." in log.read_text()
    assert "Traceback" not in log.read_text()
    saved = checkpoint(folder)
    # the step within which the signal came is finished
    assert saved["epoch"] * STEPS + saved["step_in_epoch"] == step
    assert not any(name.endswith(".part") for name in names(folder))
    assert_resumes()


def test_a_time_limit_stops_in_time(start, folder, log, assert_resumes):
    """Steps that take 13 s in all and a limit of 4 s: the command ends with status 75."""
    began = time.monotonic()
    assert start("--time-limit", "4s", before=partial(slow_down, 0.5)).wait() == 75
    # besides the limit, the time to start a process on a busy machine
    assert time.monotonic() - began < 4 + 4
    assert "The time limit is reached." in log.read_text()
    saved = checkpoint(folder)
    assert 0 < saved["epoch"] * STEPS + saved["step_in_epoch"] < EPOCHS * STEPS
    assert_resumes("--time-limit", "1h")


def test_two_commands_cannot_use_one_folder(start, folder, log):
    first = start(before=partial(slow_down, 0.25))
    while not (folder / "cell.json").exists():
        assert first.running
        time.sleep(0.02)
    assert start(COLUMNS="200").wait() == 1
    assert f"{folder} is in use by another process." in log.read_text()
    first.send(signal.SIGTERM)
    assert first.wait() == 143
