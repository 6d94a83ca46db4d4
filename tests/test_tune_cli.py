"""The command: what it prints, what it leaves, and what it says to bad input."""

import io
import json
import subprocess
import sys

import pytest
from browser import needs_browser, open_page
from rich.console import Console
from tuning import hasty_sqlite, make_question, make_trial
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.cli.standing import Watcher
from zetamix.cli.tune import SPACE, _hide_password
from zetamix.experiments.tune import Evaluating, Standing

pytestmark = pytest.mark.usefixtures(hasty_sqlite.__name__)

QUICK = ["--data", "crescents", "--train-size", "64", "--epochs", "2", "--device", "cpu"]
QUICK += ["--jobs", "1"]


def tune(*words):
    return CliRunner().invoke(app, ["tune", *map(str, words)])


def flat(text):
    return " ".join(text.split())


@needs_browser
def test_a_search_from_the_command_line(tmp_path):
    done = tune(*QUICK, "--trials", 3, "--test-seeds", 2, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    text = flat(done.stdout)
    assert "crescents: 58 to train, 6 to choose by error rate, 512 to test what is chosen" in text
    assert "3 of 3 trials done (3 finished, 0 running) test: " in text
    assert "left" not in text.partition("3 of 3 trials done")[2].partition("How flat")[0]
    assert "test: 6 of 6 models done, 100 % of all epochs" in text
    for word in ("Chosen", "How flat", "Test"):
        assert word in text
    assert f"in {tmp_path}/report.html" in text
    page = open_page(tmp_path / "report.html").check()
    assert page.title == "crescents: which γ?"
    assert (tmp_path / "study.db").exists()
    # and more of it
    done = tune(*QUICK, "--trials", 4, "--test-seeds", 0, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "4 of 4 trials done" in flat(done.stdout)
    found = json.loads((tmp_path / "results.json").read_text())
    assert len(found["trials"]) == 4
    assert found["test"] == []


def test_a_grid_from_the_command_line(tmp_path):
    done = tune(
        *QUICK, "--grid", "gamma=2:3:0.5", "--seeds", 2, "--test-seeds", 0, "--out", tmp_path
    )
    assert done.exit_code == 0, done.output
    assert "6 of 6 trials done" in flat(done.stdout)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(t["seed"], t["setting"]["gamma"]) for t in found["trials"]] == [
        (seed, gamma) for seed in (0, 1) for gamma in (2.0, 2.5, 3.0)
    ]
    assert len(found["curve"]) == 3


def test_settings_reach_the_study(tmp_path):
    done = tune(
        *QUICK, "--space", "gamma=2..3,sources=2|4", "--sampler", "random", "--metric", "nll",
        "--seed", 5, "--set", "lr=0.02", "--model", "mlp", "--trials", 1, "--test-seeds", 0,
        "--out", tmp_path, "--study", "mine",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "results.json").read_text())
    question = found["question"]
    assert (question["metric"], question["seed"], question["recipe"]["lr"]) == ("nll", 5, 0.02)
    assert question["space"] == "gamma=2..3,sources=2|4"
    assert found["sampler"] == "random"
    (trial,) = found["trials"]
    assert trial["seed"] == 5
    assert trial["value"] == trial["scores"]["nll"]


def test_a_time_limit_ends_politely(tmp_path):
    done = tune(*QUICK, "--trials", 500, "--time-limit", "2s", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "The time is up. Everything is saved; the same command goes on." in flat(done.stdout)
    assert not json.loads((tmp_path / "results.json").read_text())["finished"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (
            ["--space", "gamma=6..1"],
            1,
            "gamma: the range 6..1 is inverted; expected the smaller end first, as in 1..6.",
        ),
        (["--space", "gama=1..6"], 1, "There is no parameter 'gama'. Did you mean gamma? There"),
        (["--grid", "gamma=1..6"], 1, "A grid needs the values of gamma, got the range 1..6."),
        (["--grid", "gamma=1:2:1", "--trials", "5"], 1, "A grid has as many trials as places and"),
        (["--sampler", "luck"], 1, "sampler must be one of tpe, grid, random, got 'luck'."),
        (["--metric", "luck"], 1, "metric must be one of error, accuracy, balanced_accuracy,"),
        (["--backend", "slurm"], 1, "backend must be one of local, ray, got 'slurm'."),
        (["--data", "nowhere"], 1, "nowhere"),
        (["--model", "resnet18"], 1, "resnet18 takes images,"),
        (["--storage", "mysql://a:b@c/d"], 1, "got mysql://a:***@c/d."),
        (
            ["--storage", "postgresql://ann:secret@127.0.0.1:1/x"],
            1,
            "The storage postgresql://ann:***@127.0.0.1:1/x cannot be used:",
        ),
        (["--grid", "gamma=1:2:1", "--space", "gamma=1..2"], 2, "give --space or --grid, not"),
        (
            ["--grid", "gamma=1:2:1", "--sampler", "tpe"],
            2,
            "Invalid value for --grid: a grid is trained whole, and not drawn by tpe: leave",
        ),
        (["--size", "8"], 1, "size is for data of your own; crescents"),
        (["--device", "tpu"], 2, "expected cpu or cuda, got 'tpu'"),
        (["--time-limit", "soon"], 2, "Expected a duration such as 9m, 1h30m or 45s, got"),
        (
            ["--train-size", "many"],
            2,
            "expected a number of samples or a fraction such as 0.1, got",
        ),
    ],
)
def test_bad_input_is_a_sentence(words, status, message, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["zetamix"])
    done = tune(*QUICK, "--out", tmp_path / "out", *words)
    assert done.exit_code == status, done.output
    told = flat(done.stderr.replace("│", " "))
    assert message in told
    assert "Traceback" not in done.output
    assert "secret" not in done.output
    # nothing is begun
    assert not list(tmp_path.glob("out/trials/*"))


def test_another_question_is_refused_and_the_study_goes_on(tmp_path):
    common = [*QUICK, "--trials", 1, "--test-seeds", 0, "--out", tmp_path]
    assert tune(*common).exit_code == 0
    before = (tmp_path / "results.json").read_bytes()
    for words in (["--space", "gamma=2..3"], ["--epochs", "3"], ["--train-size", "32"]):
        done = tune(*common, *words)
        assert done.exit_code == 1
        assert "asks something else (" in flat(done.stderr)
    assert (tmp_path / "results.json").read_bytes() == before
    assert tune(*common).exit_code == 0


def test_the_default_space_can_be_read_in_the_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert f"by default: {SPACE}" in flat(tune("--help").stdout)


def test_the_page_is_named_from_the_working_folder_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = tune(*QUICK, "--trials", 1, "--test-seeds", 0, "--out", tmp_path / "here")
    assert "in here/report.html" in flat(done.stdout)
    assert "the best of 1 finished trial." in flat(done.stdout)


def test_a_password_does_not_stay_in_the_command(monkeypatch):
    address = "postgresql://ann:secret@host/x"
    monkeypatch.setattr(
        sys, "argv", ["zetamix", "tune", "--storage", address, f"--study={address}"]
    )
    _hide_password(address)
    hidden = "postgresql://ann:***@host/x"
    assert sys.argv == ["zetamix", "tune", "--storage", hidden, f"--study={hidden}"]
    _hide_password(None)


# watching


def standing(done=3, running=None, died=0):
    trials = [make_trial(k, 0.05 + k / 100, gamma=2.0 + k) for k in range(done)]
    trials += [make_trial(8, 0.5, state="pruned"), make_trial(9, None, state="failed")]
    running = {3: 12, 4: 0} if running is None else running
    return Standing.of(
        trials, total=20, running=running, spans=[60.0], lower_is_better=True, died=died
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_a_death_is_told_once(terminal):
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    with Watcher(console, make_question()) as watch:
        for died in (0, 1, 1):
            watch(standing(died=died))
        watch(Evaluating(done=1, total=9, epochs=6.0, epochs_total=12, died=1))
    line = "A worker died; the trials under way are tried again."
    assert console.file.getvalue().count(line) == 1


def test_elsewhere_than_on_a_terminal_there_is_a_line_for_each_trial():
    console = Console(file=io.StringIO(), width=200)
    with Watcher(console, make_question()) as watch:
        for progress in (standing(0), standing(1), standing(1), standing(3)):
            watch(progress)
        watch(Evaluating(done=1, total=9, epochs=6.0, epochs_total=12))
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "no trial finished yet, 2 of 20 trials done (0 finished, 1 stopped early, 1 failed, "
        "2 running), about 8 min left",
        "best so far 5.00 % at γ = 2, 3 of 20 trials done (1 finished, 1 stopped early, 1 failed, "
        "2 running), about 8 min left",
        "best so far 5.00 % at γ = 2, 5 of 20 trials done (3 finished, 1 stopped early, 1 failed, "
        "2 running), about 7 min left",
        "test: 1 of 9 models done, 50 % of all epochs",
    ]


def test_on_a_terminal_the_lines_stay_in_place():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with Watcher(console, make_question()) as watch:
        watch(standing())
        watch(Evaluating(done=1, total=9, epochs=6.0, epochs_total=12))
        assert watch.live.is_started
    shown = console.file.getvalue()
    assert "2 running: epoch 12/4, 0/4" in shown
    assert "1 of 9 models done, 50 %" in shown
    assert not watch.live.is_started


def test_the_command_is_quick_to_import():
    program = (
        "import sys, zetamix.cli.tune; "
        "heavy = 'matplotlib', 'sklearn', 'torchvision', 'optuna', 'joblib', 'scipy'; "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
