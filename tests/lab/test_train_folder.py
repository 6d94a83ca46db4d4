"""The folder of a run: what it refuses, how it is packed, and when training stops."""

import json
import os
import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from factories import names, two_crescents
from filelock import FileLock

from zetamix.methods import parse
from zetamix_lab.train import Recipe, Run, train
from zetamix_lab.train import stop as stop_module
from zetamix_lab.train.run_folder import FolderError, RunFolder, hold
from zetamix_lab.train.stop import MARGIN, SAME_PRESS, Stop, parse_duration

RECIPE = Recipe(source="test", model="mlp", epochs=2, batch_size=32, augmentation="none")


@pytest.fixture(scope="module")
def points():
    return two_crescents()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def new(points, folder):
    def make(method="none", recipe=RECIPE, *, seed=0, dataset=points, **options):
        return Run(dataset, parse(method), recipe, seed=seed, **{"out": folder, **options})

    return make


@pytest.fixture
def stopped(new, folder):
    """The checkpoint of a run that was stopped after one step."""
    train([new()], stop=lambda: True)
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def failure(run):
    """Why a run cannot be trained."""
    return train([run])[run]


CHANGES = [
    ({"method": "zeta:2.8"}, "method: none there, zeta:2.8 requested"),
    ({"seed": 3}, "seed: 0 there, 3 requested"),
    (
        {"recipe": RECIPE.change(lr=0.2, epochs=4)},
        "epochs: 2 there, 4 requested; evaluate_every: 1 there, 2 requested; lr: 0.1 there, 0.2 "
        "requested",
    ),
    ({"train": 100}, "train_size: 512 there, 100 requested"),
]


@pytest.mark.parametrize(("change", "difference"), CHANGES, ids=[next(iter(c)) for c, _ in CHANGES])
@pytest.mark.parametrize("finished", [False, True])
def test_a_folder_with_another_run_is_refused(new, points, folder, finished, change, difference):
    train([new()], stop=lambda: not finished)
    before = names(folder)
    if "train" in change:
        change = {"dataset": replace(points, train=points.train.subset(change["train"]))}
    text = f"{folder} is the folder of another run ({difference}). Choose another --out."
    with pytest.raises(FolderError, match=f"^{re.escape(text)}$"):
        new(**change)
    assert names(folder) == before
    if finished:
        (folder / "cell.json").unlink()
        with pytest.raises(FolderError, match="is the record of another run"):
            new(**change)


ADVICE = {
    "cell.json": "Remove its folder to train this run again.",
    "record.json": "Remove it to train this run again.",
    "checkpoint.pt": "Remove it to restart this run.",
}
DAMAGED = [b"", b"{", b"[]", b"{}", b"3", b"null", b'{"schema": "zetamix/run/1"}', b"[" * 100_000,
           b"\0", b'"\xe9"', {}, torch.zeros(3), {"schema": "2"}, "pipe"]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED)
@pytest.mark.parametrize("name", ADVICE)
def test_a_file_that_cannot_be_read_is_refused_with_advice(new, folder, stopped, name, content):
    path = folder / name
    path.unlink(missing_ok=True)
    if content == "pipe":
        # a read would never return
        os.mkfifo(path)
    else:
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(FolderError) as caught:
        new().start()
    assert str(caught.value).startswith(f"{path} cannot be read: ")
    assert str(caught.value).endswith(f". {ADVICE[name]}")
    assert "()" not in str(caught.value)


class Malice:
    """Runs a command when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


def test_a_malicious_checkpoint_is_refused_and_not_executed(new, folder, stopped, tmp_path):
    path, trace = folder / "checkpoint.pt", tmp_path / "trace"
    torch.save({**stopped, "trainer": Malice(trace)}, path)
    assert "checkpoint.pt cannot be read: " in failure(new())
    assert not trace.exists()
    # the test would notice: a trusting load executes it
    torch.load(path, weights_only=False)
    assert trace.exists()


def test_a_run_resumes_on_the_kind_of_device_it_was_started_on(new, folder, stopped):
    torch.save({**stopped, "device": "cuda"}, folder / "checkpoint.pt")
    assert failure(new()) == (
        f"{folder} was started on cuda, but this is cpu. Resume it there, or choose another --out."
    )


def test_epochs_after_the_checkpoint_are_dropped(new, folder):
    train([new(save_every=0)], stop=iter([False] * 17 + [True]).__next__)
    path = folder / "metrics.jsonl"
    before = path.read_text()
    assert [json.loads(line)["epoch"] for line in before.splitlines()] == [1]
    path.write_text("")
    assert "a line for each epoch from 1 to 1, got 0 lines" in failure(new())
    path.write_text(before + '{"epoch": 2, "lr": 5}\n{"epoch": 3, "lr"')
    train([new()])
    lines = RunFolder(folder).read_curve()
    assert [line["epoch"] for line in lines] == [1, 2]
    assert lines[1]["lr"] < 1


def test_lines_that_are_missing_or_doubled_in_a_curve_are_noticed(new, folder):
    train([new(recipe=RECIPE.change(epochs=3))])
    path = folder / "metrics.jsonl"
    one, two, three = path.read_text().splitlines(keepends=True)
    for lines in ([one, three], [one, two, two, three], [one, two, three[:-9]], [one, two], []):
        path.write_text("".join(lines))
        with pytest.raises(FolderError, match=r"a line for each epoch from 1 to 3, got \d lines"):
            RunFolder(folder).read_curve()
    # of a run that is not finished the last line may be cut
    (folder / "record.json").unlink()
    path.write_text(one + two + three[:-9])
    assert [line["epoch"] for line in RunFolder(folder).read_curve()] == [1, 2]
    path.write_text(one + three)
    with pytest.raises(FolderError, match="a line for each epoch"):
        RunFolder(folder).read_curve()


def test_a_model_need_not_be_kept(new, folder):
    train([new(keep_model=False)])
    assert names(folder) == ["cell.json", "metrics.jsonl", "record.json", "test.npz"]


def test_a_folder_is_locked_by_one_owner(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with hold([one, two]):
        pass
    with FileLock(two / ".lock"):
        with pytest.raises(FolderError) as caught:
            hold([one, two]).__enter__()
        assert str(caught.value) == f"{two} is in use by another process. Wait for it, or stop it."
        # the folder that was locked before the refused one is free again
        with hold([one]):
            pass


SUCH, YEAR = "such as 9m, 1h30m or 45s", "of at most a year"
DURATIONS = [
    *[("45", 45), ("45s", 45), ("1.5s", 1.5), ("9m", 540), ("1h", 3600), ("1h30m", 5400)],
    *[("1h30m5s", 5405), (" 2H ", 7200), ("0", 0), ("90m", 5400)],
    *((text, SUCH) for text in ("", "soon", "9 m", "-5", "m", "1m1h", "1d", "1.5m")),
    *((text, YEAR) for text in ("8761h", "9" * 400)),
]


@pytest.mark.parametrize(("text", "expected"), DURATIONS)
def test_durations(text, expected):
    if not isinstance(expected, str):
        assert parse_duration(text) == expected
        return
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == f"Expected a duration {expected}, got {text[:40]!r}."


@pytest.fixture
def clock(monkeypatch):
    """The time of a `Stop`, in `clock.now`."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(stop_module, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("limit", "stops_after"), [(540, 540 - MARGIN), (8, 6.0), (20, 15.0), (0, 0.0)]
)
def test_a_time_limit_leaves_a_margin_for_saving(clock, limit, stops_after):
    stop = Stop(limit)
    clock.now += stops_after
    assert not stop()
    clock.now += 0.01
    assert stop()
    assert stop.signal is None
    # the time since the start of the command counts as well
    assert Stop(limit, began=100.0)()
    assert not Stop()()
    # steps of a second and an evaluation of 40 s: the last step begins 45 s before the limit
    stop = Stop(540)
    for seconds in [1, 1, 40, *[1] * 452, 1.01]:
        assert not stop()
        clock.now += seconds
    assert stop()


HANDLED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", HANDLED)
def test_a_signal_takes_effect_at_the_end_of_a_step(number):
    """It is acknowledged at once and only once."""
    before, seen = [signal.getsignal(kind) for kind in HANDLED], []
    with Stop(on_signal=lambda: seen.append("stopping")) as stop:
        assert not stop()
        for _ in range(2):
            os.kill(os.getpid(), number)
            assert seen == ["stopping"]
        assert stop()
        assert stop.signal == number
    assert [signal.getsignal(kind) for kind in HANDLED] == before


def test_a_second_ctrl_c_interrupts_and_sigterm_never_does(clock):
    with Stop() as stop:
        # a launcher passes the same press on
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        clock.now += SAME_PRESS + 0.1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with Stop() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            clock.now += 10
        assert stop()
