"""Training that is killed at any moment resumes as if nothing had happened.

Every test compares with a run that was not interrupted: metrics, curve and weights, bit by bit.
`make test` kills a whole command three times, `make fuzz` at other moments in every round.
"""

import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from factories import (
    CRESCENTS,
    FINISHED,
    RECIPE,
    Runs,
    assert_same,
    checkpoint,
    names,
    result,
    small_digits,
)
from miniatures import class_folders
from processes import (
    fill_disk,
    kill_at_change,
    kill_while_saving,
    signal_at,
    start,
    zetamix,
)

from zetamix_lab.train import train
from zetamix_lab.train.stop import Stop

pytestmark = pytest.mark.slow
STEPS, EPOCHS = 9, 3
FAILED = 1
KILLS, FUZZ_KILLS = 3, 15


def train_digits(folder, data_dir, before):
    """Train a run in this process, which ends with a status as of a command."""
    if before is not None:
        before()
    recipe = RECIPE.change(epochs=EPOCHS, augmentation="crop-flip")
    new = Runs(small_digits(data_dir, 300), folder.parent, recipe)
    with Stop() as stop:
        run = new("zetamix", seed=4, out=folder.name, save_every=0)
        failures = train([run], stop=stop)
    for failure in failures.values():
        (folder.parent / "log").write_text(failure)
        sys.exit(FAILED)
    sys.exit(128 + stop.signal if stop.signal else 0)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A data folder, in which the digits are prepared once."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def begin(folder, data_dir):
    """Starts the run; a second call resumes it."""
    return lambda before=None: start(partial(train_digits, folder, data_dir, before))


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """The folder of a run that was not interrupted, and all changes of its files."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    trace = folder.parent / "trace"
    watch = partial(kill_at_change, folder, -1, trace)
    assert start(train_digits, folder, data_dir, watch).wait() == 0
    _, curve = result(folder)
    assert curve[2]["train_loss"] < curve[0]["train_loss"]
    return folder, trace.read_text().splitlines()


@pytest.fixture
def assert_resumes(begin, whole, folder):
    """The run is finished, with the result of the one that was not interrupted."""

    def check():
        assert begin().wait() == 0
        assert_same(folder, whole[0])
        assert names(folder) == FINISHED

    return check


def test_files_are_written_in_this_order(whole):
    """A checkpoint per epoch; in the end the model, the samples, the record, then the clean-up."""
    _, changes = whole
    renamed = [line for line in changes if line.startswith("os.rename")]
    kinds = [line.split(".")[2].split()[0] for line in renamed]
    assert kinds[:2] == ["cell", "metrics"]
    assert kinds[2:] == ["checkpoint"] * EPOCHS + ["model", "final", "test", "record"]
    assert [line for line in changes if "remove" in line] == ["os.remove checkpoint.pt"]
    assert changes.index("os.remove checkpoint.pt") > changes.index(renamed[-1])


# the beginning, every kind of write, and all of the end
@pytest.mark.parametrize("moment", [1, 6, 8, 9, 12, 13, 15, *range(-10, 0)])
def test_killed_at_a_change_of_a_file(begin, folder, whole, assert_resumes, moment):
    number = moment if moment > 0 else len(whole[1]) + 1 + moment
    assert begin(partial(kill_at_change, folder, number)).wait() == -signal.SIGKILL
    checkpoint(folder)
    assert_resumes()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed_while_saving(begin, folder, assert_resumes, number):
    """The three checkpoints and the final model: the previous checkpoint stays intact."""
    assert begin(partial(kill_while_saving, number)).wait() == -signal.SIGKILL
    assert any(name.endswith(".part") for name in names(folder))
    saved = checkpoint(folder)
    assert (0 if saved is None else saved["epoch"]) == number - 1
    assert_resumes()


def test_a_full_disk_is_reported_and_loses_nothing(begin, folder, assert_resumes):
    """The first checkpoint is written, then the disk is full, then there is space again."""
    assert begin(partial(kill_while_saving, 2)).wait() == -signal.SIGKILL
    size = (folder / "checkpoint.pt").stat().st_size
    assert begin(partial(fill_disk, size - 1)).wait() == FAILED
    text = (folder.parent / "log").read_text()
    assert text.startswith(f"{folder / 'checkpoint.pt'} cannot be written (File too large).")
    assert checkpoint(folder)["epoch"] == 1
    assert not any(name.endswith(".part") for name in names(folder))
    assert_resumes()


# the middle of an epoch, its last step, and the first of the next
@pytest.mark.parametrize("step", [STEPS + 5, 2 * STEPS, 2 * STEPS + 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_in_the_middle_of_an_epoch(begin, folder, assert_resumes, number, step):
    assert begin(partial(signal_at, step, number)).wait() == 128 + number
    saved = checkpoint(folder)
    # the step within which the signal came is finished
    assert saved["epoch"] * STEPS + saved["step_in_epoch"] == step
    assert not any(name.endswith(".part") for name in names(folder))
    assert_resumes()


class Storm:
    """`zetamix compare` in a folder of its own, of arrays or of the user's photographs."""

    def __init__(self, data, folder):
        folder.mkdir()
        self.data, self.log, self.out = data, folder / "log", folder / "out"
        path = class_folders(folder / "photos") if data == "photos" else data
        self.words, self.prepared = ["compare", "--data", path, "--out", self.out], folder / "data"
        self.words += ["--methods", "none,zeta:2.8", "--seeds", 2, "--epochs", 4]
        self.words += ["--model", "mlp", "--device", "cpu", "--jobs", 1]

    def start(self, before=None):
        environment = {"ZETAMIX_DATA": str(self.prepared)}
        return zetamix(*self.words, log=self.log, environment=environment, before=before)

    def finish(self):
        """The results of the whole command."""
        assert self.start().wait() == 0, self.log.read_text()
        assert [*self.out.glob("runs/*/*.part")] == []
        runs = {
            path.parent.name[:-13]: result(path.parent) for path in self.out.rglob("record.json")
        }
        for record, _ in runs.values():
            # of photographs the fingerprint is the same, the path in the name is not
            del record["cell"]
        return runs


@pytest.mark.fuzz
@pytest.mark.parametrize("data", [CRESCENTS, "photos"], ids=["arrays", "photos"])
def test_a_command_survives_being_killed_at_any_moment(data, tmp_path, fuzz_seed):
    # a changed file is a moment, as is any time
    trace, whole = tmp_path / "trace", Storm(data, tmp_path / "whole")
    began = time.monotonic()
    watch = partial(kill_at_change, whole.log.parent, -1, trace)
    assert whole.start(watch).wait() == 0, whole.log.read_text()
    seconds, changes = time.monotonic() - began, len(trace.read_text().splitlines())
    expected = whole.finish()
    assert len(expected) == 4
    dice, storm, killed = (
        random.Random(f"{Path(data).stem} {fuzz_seed}"),
        Storm(data, tmp_path / "storm"),
        0,
    )
    for attempt in range(KILLS if fuzz_seed == 0 else FUZZ_KILLS):
        if attempt % 2 == 0:
            moment = partial(kill_at_change, storm.log.parent, dice.randint(1, changes))
            process = storm.start(moment)
        else:
            process = storm.start()
            time.sleep(dice.uniform(0, seconds))
            process.send(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            killed += 1
        else:
            # it was faster
            assert storm.finish() == expected
            storm = Storm(data, tmp_path / f"storm{attempt}")
    assert killed
    assert storm.finish() == expected
    assert "Traceback" not in storm.log.read_text()
