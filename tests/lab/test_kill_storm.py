"""Commands that are killed again and again leave, in the end, what an undisturbed one leaves.

`make test` kills each command three times, `make fuzz` at other moments in every round.
"""

import json
import random
import signal
import time
from functools import partial

import pytest
from accidents import kill_at_change
from factories import result
from fuzz import count
from miniatures import class_folders
from processes import zetamix

pytestmark = pytest.mark.fuzz
KILLS, FUZZ_KILLS = 3, 15
CRESCENTS = ["--data", "crescents", "--train-size", 64, "--device", "cpu", "--jobs", 1]
COMMANDS = {
    "train": ["train", *CRESCENTS, "--epochs", 6, "--seeds", 2, "--save-every", 0],
    "compare": ["compare", *CRESCENTS, "--epochs", 4, "--methods", "none,zeta:2.8", "--seeds", 2],
    "tune": ["tune", *CRESCENTS, "--epochs", 4, "--trials", 2, "--test-seeds", 1, "--no-prune",
             "--sampler", "random", "--save-every", 0],
    "prepare": ["data", "prepare"],
}  # fmt: skip


class Storm:
    """One command in a folder of its own."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        folder.mkdir()
        self.out = folder / ("data/prepared" if name == "prepare" else "out")
        self.words = [*COMMANDS[name], "--data-dir", folder / "data"]
        self.words += (
            [class_folders(folder / "photos")] if name == "prepare" else ["--out", self.out]
        )

    def start(self, before=None):
        return zetamix(*self.words, log=self.folder / "log", before=before)

    def finish(self):
        """The result of the whole command."""
        assert self.start().wait() == 0, (self.folder / "log").read_text()
        # those of a report are removed when they are old: other commands may write it as well
        parts = [*self.folder.glob("data/**/*.part"), *self.out.glob("*/*/*.part")]
        assert parts == []
        if self.name == "prepare":
            (prepared,) = (path for path in self.out.iterdir() if path.is_dir())
            return {path.name: path.read_bytes() for path in prepared.glob("*.[sln]*s")}
        found = {
            str(path.parent.relative_to(self.out)): result(path.parent)
            for path in self.out.rglob("record.json")
        }
        if self.name != "train":
            results = json.loads((self.out / "results.json").read_text())
            trials = results.get("trials", [])
            found["trials"] = sorted((t["seed"], t["value"], t["state"]) for t in trials)
        return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_survives_being_killed_at_any_moment(name, tmp_path, fuzz_seed):
    # a changed file is a moment, as is any time
    trace = tmp_path / "trace"
    whole = Storm(name, tmp_path / "whole")
    began = time.monotonic()
    assert whole.start(partial(kill_at_change, whole.out, -1, trace)).wait() == 0
    seconds, changes = time.monotonic() - began, len(trace.read_text().splitlines())
    expected = whole.finish()
    dice = random.Random(f"{name} {fuzz_seed}")
    storm = Storm(name, tmp_path / "storm")
    killed = 0
    for attempt in range(KILLS if fuzz_seed == 0 else FUZZ_KILLS):
        if attempt % 2 == 0:
            process = storm.start(partial(kill_at_change, storm.out, dice.randint(1, changes)))
        else:
            process = storm.start()
            time.sleep(dice.uniform(0, seconds))
            process.send(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            killed += 1
        else:
            # it was faster
            assert storm.finish() == expected
            storm = Storm(name, tmp_path / f"storm{attempt}")
    count(f"kills of {name}", killed)
    assert killed
    assert storm.finish() == expected
    assert "Traceback" not in (storm.folder / "log").read_text()
