"""`zetamix compare` as users run it: output, bad input, Ctrl-C, kill -9, photographs in folders."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from browser import needs_browser, open_page
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.cli.overview import CELL_WIDTH, OverviewTable
from zetamix.experiments.compare.grid import METHODS
from zetamix.experiments.compare.progress import CellProgress, Overview

QUICK = ["--data", "crescents", "--train-size", "64", "--epochs", "2", "--device", "cpu"]


def invoke(*arguments):
    return CliRunner().invoke(app, ["compare", *arguments])


def words(result):
    """The output without the frames and line breaks of a terminal."""
    return " ".join(result.output.replace("│", " ").split())


# the command


def test_the_command_trains_answers_and_writes(tmp_path):
    out = tmp_path / "new" / "folder"
    options = [*QUICK, "--jobs", "1", "--out", str(out)]
    result = invoke(*options, "--methods", "none,mixup,zeta:2.8", "--seeds", "2")
    assert result.exit_code == 0, result.output
    text = words(result)
    assert "crescents: 64 to train, 512 to test, 2 classes · 6 runs (3 methods × 2 seeds)" in text
    assert re.search(r"none seed 1: AUC 0\.\d{4} \(\d of 6 runs done", text)
    assert "mlp, 2 epochs, batch 32, no augmentation · recipe" in text
    assert "none left" not in text
    assert re.search(r"method AUC error % NLL ECE % seeds none 0\.\d{4} ± 0\.\d{4} ", text)
    assert "Answer " in text
    assert "Against mixup:1.0 " in text
    assert "Calibration " in text
    assert str(out / "report.html") in result.output.replace("\n", "")
    found = json.loads((out / "results.json").read_text())
    assert found["metrics"] == ["auc", "error", "nll", "ece"]
    assert len(found["runs"]) == 6
    # more seeds: only what is missing
    more = invoke(*options, "--methods", "none,mixup,zeta:2.8", "--seeds", "3")
    assert "6 of 9 runs are done already." in words(more)
    assert "other settings" not in words(more)
    found = json.loads((out / "results.json").read_text())
    assert found["seeds"] == [0, 1, 2]
    assert len(found["methods"]["none"]["auc"]["values"]) == 3


def test_folders_have_a_name_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*QUICK, "--jobs", "1", "--methods", "none,zeta:2.8", "--seeds", "1")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "compare-crescents" / "report.html").exists()
    assert "2 runs (2 methods × 1 seed)" in words(result)
    # what lies below the working folder is named from there on
    assert "in out/compare-crescents/report.html" in words(result)


def test_other_settings_in_the_same_folder_are_told_before_anything_is_replaced(tmp_path):
    options = ["--data", "crescents", "--device", "cpu", "--jobs", "1", "--out", str(tmp_path)]
    first = [*options, "--train-size", "64", "--epochs", "1", "--seeds", "1"]
    assert invoke(*first, "--methods", "none,mixup").exit_code == 0
    more = invoke(*first, "--methods", "none,mixup,zeta:2.8")
    assert "other settings" not in words(more)
    other = [*options, "--train-size", "32", "--epochs", "2", "--seeds", "1"]
    result = invoke(*other, "--methods", "none,mixup")
    assert result.exit_code == 0, result.output
    assert (
        "holds a report of other settings (training samples: 64 there, 32 now; epochs: 1 there, 2 "
        "now; methods: zeta:2.8 there, not now). It will be replaced; its runs stay."
    ) in words(result)
    assert words(result).index("It will be replaced") < words(result).index("runs done")
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 5


def test_one_method_is_measured_and_not_compared(tmp_path):
    options = [*QUICK, "--jobs", "1", "--methods", "none", "--seeds", "2", "--out", str(tmp_path)]
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    text = words(result)
    assert "2 runs (1 method × 2 seeds)" in text
    assert text.index("One method is only measured, not compared: name") < text.index("runs done")
    assert re.search(r"Measured none over 2 seeds: AUC 0\.\d{4} ± 0\.\d{4}, error rate ", text)
    assert "hold against" not in text
    assert "<h2>Differences" not in (tmp_path / "report.html").read_text()


def test_the_defaults_can_be_read_in_the_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert f"By default {METHODS.replace(',', ', ')}, without" in words(invoke("--help"))


def test_a_failed_run_ends_with_1_and_the_rest_is_told(tmp_path):
    options = [*QUICK, "--jobs", "1", "--seeds", "1", "--out", str(tmp_path)]
    result = invoke(*options, "--methods", "none,mixup", "--set", "lr=1e30")
    assert result.exit_code == 1
    assert "0 of 2 runs are finished" in words(result)
    assert "mixup:1.0 seed 0 failed: " in words(result)
    assert not (tmp_path / "report.html").exists()


def test_a_time_limit_saves_and_goes_on(tmp_path):
    options = ["--data", "crescents", "--epochs", "100000", "--methods", "none", "--seeds", "1"]
    result = invoke(
        *options, "--jobs", "1", "--device", "cpu", "--out", str(tmp_path), "--time-limit", "2s"
    )
    assert result.exit_code == 0, result.output
    assert "The time is up. Everything is saved; the same command goes on." in words(result)
    assert re.search(r"Under way: none seed 0 at epoch \d+ of 100000\.", words(result))
    (folder,) = tmp_path.glob("runs/*")
    assert (folder / "checkpoint.pt").exists()


def test_a_limit_that_starting_takes_up_is_told(tmp_path, monkeypatch):
    # as on a machine that takes longer to start than the limit allows
    monkeypatch.setattr("zetamix.train.stop.Stop.out_of_time", property(lambda stop: True))
    monkeypatch.setattr("zetamix.experiments.compare.run.EVERY", 0.0)
    result = invoke(
        "--data", "crescents", "--epochs", "100000", "--methods", "none", "--seeds", "1",
        "--jobs", "1", "--device", "cpu", "--out", str(tmp_path), "--time-limit", "12s",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (
        "The time is up, and hardly a step was trained: starting takes most of 12 seconds here. "
        "Give a longer --time-limit. Everything is saved; the same command goes on."
    ) in words(result)


# bad input


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--data", "nowhere"], 1, "'nowhere' is neither a dataset that zetamix knows"),
        (["--data", "helix"], 1, "helix has no test split to compare on."),
        (["--methods", "none,zeto"], 1, "got 'zeto'. Did you mean zeta?"),
        (["--methods", "none,none"], 1, "none is given twice"),
        (["--methods", "cutmix"], 1, "cutmix:1.0 cannot mix this data: CutMix cuts"),
        (["--methods", "zeta:sources=999"], 1, "blends 999 samples into one, and a batch has"),
        (["--model", "resnet18"], 1, "resnet18 cannot take samples of shape [2]: resnet18 takes"),
        (["--data", "digits", "--model", "resnet19"], 1, "got 'resnet19'. Did you mean"),
        (["--data", "digits", "--model", "lenet5"], 1, "lenet5 cannot take samples of shape [1, 8"),
        (["--backend", "slurm"], 1, "backend must be one of local, ray, got 'slurm'."),
        (["--address", "auto"], 1, "An address is for backend ray, got 'auto' for local."),
        (["--seeds", "0"], 2, "Invalid value for '--seeds'"),
        (["--epochs", "0"], 2, "Invalid value for '--epochs'"),
        (["--jobs", "0"], 2, "Invalid value for '--jobs'"),
        (["--train-size", "1"], 1, "size must lie between 2 (one of each class) and 512"),
        (["--train-size", "9000"], 1, "and 512 (the whole split), got 9,000."),
        (["--train-size", "1.5"], 1, "size as a fraction must lie between 0 and 1, got 1.5."),
        (["--train-size", "few"], 2, "expected a number of samples or a fraction such as 0.1"),
        (["--device", "tpu"], 2, "expected cpu or cuda, got 'tpu'"),
        (["--time-limit", "soon"], 2, "Expected a duration such as 9m, 1h30m or 45s, got 'soon'."),
        (["--set", "rate=1"], 1, "A recipe has no 'rate'."),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("--data", "crescents", "--out", "made", *arguments)
    assert result.exit_code == code, result.output
    assert message in words(result)
    assert "Traceback" not in result.output
    # nothing is left behind by what was never begun
    assert not list(tmp_path.iterdir())


# photographs in folders


def photographs(folder, classes=("cat", "dog", "owl"), count=20, side=12):
    """Coloured noise around a colour of each class, in PNG files."""
    generator = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for k in range(count):
            pixels = generator.integers(0, 120, (side, side, 3), dtype=np.uint8)
            pixels[:, :, number % 3] += 100
            Image.fromarray(pixels).save(folder / name / f"{k}.png")
    return folder


@needs_browser
def test_a_folder_of_png_files_works_the_same_way(tmp_path):
    data, out = photographs(tmp_path / "my pets"), tmp_path / "out"
    result = invoke(
        "--data", str(data), "--methods", "none,cutmix,zeta:2.8", "--seeds", "2", "--epochs", "4",
        "--jobs", "1", "--device", "cpu", "--model", "digitnet", "--out", str(out),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "my pets: 42 to train, 12 to test, 3 classes" in words(result)
    found = json.loads((out / "results.json").read_text())
    assert found["dataset"]["classes"] == ["cat", "dog", "owl"]
    assert found["metrics"] == ["error", "nll", "ece"]
    seen = open_page(out / "report.html").check()
    assert [row[0] for row in seen.tables[2][1:]] == ["cat", "dog", "owl"]
    assert len(seen.images) == 4


def test_images_get_the_side_that_is_asked_for(tmp_path):
    data, out = photographs(tmp_path / "pets"), tmp_path / "out"
    common = [
        "--data", str(data), "--methods", "none", "--seeds", "1", "--epochs", "1", "--jobs", "1",
        "--device", "cpu", "--model", "digitnet", "--out", str(out), "--data-dir", str(tmp_path),
    ]  # fmt: skip
    assert invoke(*common).exit_code == 0
    result = invoke(*common, "--size", "8")
    assert result.exit_code == 0, result.output
    assert "(shape: (3, 12, 12) there, (3, 8, 8) now)" in words(result)
    assert json.loads((out / "results.json").read_text())["dataset"]["shape"] == [3, 8, 8]
    # other images are other runs
    assert len(list(out.glob("runs/*/record.json"))) == 2
    wrong = invoke("--data", "digits", "--size", "8")
    assert wrong.exit_code == 1
    assert "size is for data of your own" in words(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: photographs(folder, ("cat",)), "pets: 1 class; expected"),
        (lambda folder: (photographs(folder, ("cat", "dog")), (folder / "owl").mkdir()), "owl"),
        (lambda folder: folder.mkdir(), "no "),
    ],
    ids=["one class", "an empty class", "an empty folder"],
)
def test_a_folder_that_cannot_be_compared_is_told(make, message, tmp_path):
    make(tmp_path / "pets")
    result = invoke("--data", str(tmp_path / "pets"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1, result.output
    assert message in words(result)
    assert "Traceback" not in result.output


# interruptions, in processes of their own


def start(out, *arguments):
    command = [
        sys.executable, "-m", "zetamix", "compare", "--data", "crescents", "--device", "cpu",
        "--out", str(out), *arguments,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(condition, process, seconds=300.0):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def finished(out):
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/record.json")}


def trained_by(folder):
    """The process that holds the folder of a run."""
    lock = str(folder / ".lock")
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            held = [
                os.readlink(f"/proc/{process}/fd/{fd}") for fd in os.listdir(f"/proc/{process}/fd")
            ]
        except OSError:
            continue
        if lock in held:
            return int(process)
    return None


def under_way(out):
    """Folders of runs that have trained an epoch and are not finished."""
    begun = {path.parent for path in out.glob("runs/*/metrics.jsonl") if path.stat().st_size}
    return {folder for folder in begun if not (folder / "record.json").exists()}


def is_young(folder):
    return len((folder / "metrics.jsonl").read_text().splitlines()) < 100


def young_run(out, process):
    """The folder of a run that has most of its way before it, and the process that trains it."""
    found = []

    def look():
        pairs = ((folder, trained_by(folder)) for folder in under_way(out) if is_young(folder))
        # looked at once: a moment later it may be finished, and held by nobody
        found[:] = [(folder, pid) for folder, pid in pairs if pid is not None]
        return bool(found)

    wait_for(look, process)
    return found[0]


# so long that a young run has seconds before it: a stop takes one
LONG = ["--epochs", "400", "--seeds", "2", "--methods", "none,zeta:2.8", "--train-size", "64"]


def test_ctrl_c_saves_everything_and_kill_9_loses_no_finished_run(tmp_path):
    first = start(tmp_path, *LONG, "--jobs", "2")
    # a finished run, and another that has most of its way before it
    wait_for(lambda: finished(tmp_path) and any(map(is_young, under_way(tmp_path))), first)
    first.send_signal(signal.SIGINT)
    text = first.communicate(timeout=120)[0]
    assert first.returncode == 130, text
    assert "Stopped. Everything is saved; the same command goes on." in text
    assert "Traceback" not in text
    # what is finished is reported, and the report says that it is not all
    assert "does mixing help? (unfinished)" in (tmp_path / "report.html").read_text()
    found = json.loads((tmp_path / "results.json").read_text())
    assert not found["complete"]
    assert len(found["runs"]) == len(finished(tmp_path))
    assert re.search(r"Under way: \S+ seed \d at epoch \d+ of 400", found["verdict"]["Unfinished"])
    kept = finished(tmp_path)
    assert list(tmp_path.glob("runs/*/checkpoint.pt"))

    second = start(tmp_path, *LONG, "--jobs", "2")
    wait_for(lambda: any(trained_by(folder) for folder in under_way(tmp_path)), second)
    orphans = [pid for pid in map(trained_by, under_way(tmp_path)) if pid]
    second.kill()
    # workers notice, save and end, and with the last of them the pipe to us
    second.communicate(timeout=120)
    assert not any(trained_by(folder) in orphans for folder in under_way(tmp_path))
    for name, record in kept.items():
        assert finished(tmp_path)[name] == record

    third = start(tmp_path, *LONG, "--jobs", "1")
    text = third.communicate(timeout=300)[0]
    assert third.returncode == 0, text
    for name, record in kept.items():
        assert finished(tmp_path)[name] == record
    assert len(finished(tmp_path)) == 4
    for folder in tmp_path.glob("runs/*"):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        # no epoch twice, none missing
        assert [line["epoch"] for line in lines] == list(range(1, 401))
    assert "unfinished" not in (tmp_path / "report.html").read_text()


# what is seen meanwhile


def overview_of(states, seconds=75.0, died=0):
    cells = [
        CellProgress(method, seed, state, epochs, scores)
        for (method, seed), (state, epochs, scores) in states.items()
    ]
    return Overview(tuple(cells), 30, seconds, died)


STATES = {
    ("none", 0): ("done", 30.0, {"error": 0.0361}),
    ("none", 1): ("training", 12.4, {"error": 0.051}),
    ("zeta:2.8", 0): ("failed", 30.0, None),
    ("zeta:2.8", 1): ("waiting", 0.0, None),
}


def shown(overview, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    table = OverviewTable(console, "error rate", lambda scores: f"{100 * scores['error']:.2f} %")
    console.print(table.view(overview))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]


def test_the_live_table_shows_every_run():
    assert shown(overview_of(STATES), 100) == [
        "method seed 0 seed 1",
        "none 3.61 % 12/30 5.10 %",
        "zeta:2.8 failed ·",
        "1 of 4 runs done · 1 failed · about 80 s left · error rate, test split",
    ]


def test_on_a_narrow_terminal_it_counts():
    lines = shown(overview_of(STATES), CELL_WIDTH + 20)
    assert lines[:3] == ["method seeds now", "none 1/2 12/30 5.10 %", "zeta:2.8 0/2"]


def test_elsewhere_there_is_a_line_for_each_run():
    console = Console(file=io.StringIO(), width=100)
    with OverviewTable(console, "error rate", lambda scores: f"{scores['error']}") as table:
        table(
            overview_of(
                {("none", 0): ("done", 30.0, {"error": 0.1}), ("none", 1): ("waiting", 0.0, None)}
            )
        )
        table(
            overview_of(
                {("none", 0): ("done", 30.0, {"error": 0.1}), ("none", 1): ("training", 3.0, None)}
            )
        )
        done = {("none", k): ("done", 30.0, {"error": k / 10}) for k in (0, 1)}
        table(overview_of(done, seconds=0.0))
        table(overview_of(done, seconds=0.0))
    assert console.file.getvalue().splitlines() == [
        "1 of 2 runs are done already.",
        "none seed 1: error rate 0.1 (2 of 2 runs done)",
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "none seed 0: error rate 0.1 (1 of 2 runs done)"),
        (75.0, "none seed 0: error rate 0.1 (1 of 2 runs done, about 80 s left)"),
    ],
)
def test_the_time_left_is_told_or_nothing(seconds, expected):
    console = Console(file=io.StringIO(), width=100)
    with OverviewTable(console, "error rate", lambda scores: f"{scores['error']}") as table:
        waiting = {("none", k): ("waiting", 0.0, None) for k in (0, 1)}
        table(overview_of(waiting))
        table(overview_of({**waiting, ("none", 0): ("done", 30.0, {"error": 0.1})}, seconds))
    assert console.file.getvalue().splitlines() == [expected]
    without = shown(overview_of(STATES, seconds=None), 100)[-1]
    assert without == "1 of 4 runs done · 1 failed · error rate, test split"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_death_is_told_once(terminal):
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    with OverviewTable(console, "error rate", lambda scores: "5 %") as table:
        for died in (0, 1, 1):
            table(overview_of(STATES, died=died))
    line = "A worker died; the runs under way are tried again."
    assert console.file.getvalue().count(line) == 1


def test_a_terminal_gets_a_live_table():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with OverviewTable(console, "error rate", lambda scores: "5 %") as table:
        table(overview_of(STATES))
        assert table.live.is_started
    assert "12/30" in console.file.getvalue()
    assert not table.live.is_started


def test_the_help_is_quick_to_import():
    # heavy parts are imported inside the command
    program = (
        "import sys, zetamix.cli.app; "
        "heavy = 'matplotlib', 'sklearn', 'torchvision', 'ray', 'joblib', 'scipy'; "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
