"""`zetamix tune`: what it prints and writes, and what it refuses."""

import io
import json
import re
import sys

import pytest
from browser import needs_browser, open_page
from rich.console import Console
from tuning import hasty_sqlite, make_spec, make_trial
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.cli.tune import SPACE, show_trials
from zetamix.experiments.tune.study import SearchProgress
from zetamix.results.tuning import best_of

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
    assert "crescents: 58 training, 6 validation and 512 test samples" in text
    assert "3 of 3 trials done (3 complete, 0 running)" in text
    # of points: no mixing, zetamix, zeta:2.8, and the chosen setting
    assert "then 8 runs of the final test (4 methods × 2 seeds; --test-seeds 0 skips it)" in text
    assert re.search(r"\((\d) of \1 runs finished", text)
    for heading in ("Chosen", "Test"):
        assert heading in text
    assert f"Report written to {tmp_path}/report.html" in text
    page = open_page(tmp_path / "report.html").check()
    assert page.title == "crescents: which γ for ζ-mixup?"
    assert (tmp_path / "study.db").exists()
    # and more of it
    done = tune(*QUICK, "--trials", 4, "--test-seeds", 0, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "4 of 4 trials done" in flat(done.stdout)
    assert "final test" not in flat(done.stdout)
    found = json.loads((tmp_path / "results.json").read_text())
    assert len(found["trials"]) == 4
    assert found["test"] == []


def test_a_grid_from_the_command_line(tmp_path):
    done = tune(
        *QUICK, "--grid", "gamma=2:3:0.5", "--seeds", "0,4", "--test-seeds", 0, "--out", tmp_path
    )
    assert done.exit_code == 0, done.output
    assert "6 of 6 trials done" in flat(done.stdout)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(t["seed"], t["setting"]["gamma"]) for t in found["trials"]] == [
        (seed, gamma) for seed in (0, 4) for gamma in (2.0, 2.5, 3.0)
    ]
    assert len(found["curve"]) == 3


def test_settings_reach_the_study(tmp_path):
    done = tune(
        *QUICK, "--space", "gamma=2..3,sources=2|4", "--sampler", "random", "--metric", "nll",
        "--sampler-seed", 5, "--set", "lr=0.02", "--model", "mlp", "--trials", 1, "--test-seeds", 0,
        "--out", tmp_path, "--study", "mine",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "results.json").read_text())
    study = found["study"]
    assert (study["metric"], study["seed"], study["recipe"]["lr"]) == ("nll", 5, 0.02)
    assert study["space"] == "gamma=2..3,sources=2|4"
    assert found["sampler"] == "random"
    (trial,) = found["trials"]
    assert trial["seed"] == 5
    assert trial["value"] == trial["scores"]["nll"]


def test_a_time_limit_ends_politely(tmp_path):
    done = tune(*QUICK, "--trials", 500, "--time-limit", "2s", "--out", tmp_path)
    assert done.exit_code == 75, done.output
    assert "Rerun the same command to resume." in flat(done.stdout)
    assert not json.loads((tmp_path / "results.json").read_text())["finished"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--grid", "gamma=1..6"], 1, "A grid needs values of gamma, got the range 1..6."),
        (["--grid", "gamma=1:2:1", "--trials", "5"], 1, "A grid trains every setting with every"),
        (["--metric", "luck"], 1, "metric must be one of error, accuracy, balanced_accuracy,"),
        (["--backend", "slurm"], 1, "backend must be one of local, ray, got 'slurm'."),
        (["--data", "nowhere"], 1, "nowhere"),
        (["--model", "resnet18"], 1, "resnet18 takes images,"),
        (["--storage", "mysql://a:b@c/d"], 1, "got mysql://a:***@c/d."),
        (
            ["--storage", "postgresql://127.0.0.1:1/x?user=ann&password=secret"],
            1,
            "The storage postgresql+psycopg://ann:***@127.0.0.1:1/x cannot be used:",
        ),
        (
            ["--storage", "postgresql://ann:sec@secret/ret@127.0.0.1:1/x"],
            1,
            "--storage is not a database URL.",
        ),
        (["--grid", "gamma=1:2:1", "--space", "gamma=1..2"], 2, "cannot be combined with --space"),
        (
            ["--grid", "gamma=1:2:1", "--sampler", "tpe"],
            2,
            "Invalid value for --grid: cannot be combined with --sampler tpe",
        ),
        (["--size", "8"], 1, "size is for your own"),
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
        assert "was created with other settings (" in flat(done.stderr)
    assert (tmp_path / "results.json").read_bytes() == before
    assert tune(*common).exit_code == 0


def test_the_default_space_can_be_read_in_the_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert f"The default search space is {SPACE}" in flat(tune("--help").stdout)


def test_the_page_is_named_from_the_working_folder_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = tune(*QUICK, "--trials", 1, "--test-seeds", 0, "--out", tmp_path / "here")
    assert "Report written to here/report.html" in flat(done.stdout)
    assert "the best of 1 complete trial." in flat(done.stdout)


@pytest.mark.parametrize("form", ["{}", "--storage={}"])
def test_no_password_is_written(form, tmp_path, monkeypatch):
    """The query of a URL may hold one, too; SQLite ignores it, and every file is written."""
    url = f"sqlite:///{tmp_path}/study.db?password=S3cr3t"
    words = [*QUICK, "--trials", "1", "--test-seeds", "1", "--out", str(tmp_path)]
    words += ["--storage", url] if form == "{}" else [form.format(url)]
    monkeypatch.setattr(sys, "argv", ["zetamix", "tune", *words])
    done = tune(*words)
    assert done.exit_code == 0, done.output
    assert "S3cr3t" not in done.output
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"sqlite://" in path.read_bytes() for path in files if path.suffix == ".json")
    assert [path for path in files if b"S3cr3t" in path.read_bytes()] == []


# progress


def progress(complete=3, deaths=0):
    trials = [make_trial(k, 0.05 + k / 100, gamma=2.0 + k) for k in range(complete)]
    return SearchProgress(
        total=20,
        counts={"complete": complete, "pruned": 1, "diverged": 0, "failed": 1},
        running={3: 12, 4: 0},
        best=best_of(trials, "error"),
        seconds_left=480.0,
        deaths=deaths,
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_a_death_is_reported_once(terminal):
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    with show_trials(console, make_spec()) as watch:
        for deaths in (0, 1, 1):
            watch(progress(deaths=deaths))
    assert console.file.getvalue().count("A worker was killed") == 1


def test_a_pipe_gets_one_line_per_trial():
    console = Console(file=io.StringIO(), width=200)
    with show_trials(console, make_spec()) as watch:
        for complete in (0, 1, 1, 3):
            watch(progress(complete))
    first, second, third = console.file.getvalue().splitlines()
    assert first == (
        "no trial complete yet, 2 of 20 trials done (1 pruned, 1 failed, 2 running), "
        "about 8 min left"
    )
    assert second.startswith(
        "best so far: error rate 5.00 % at γ = 2, 3 of 20 trials done (1 complete, "
    )
    assert "5 of 20 trials done (3 complete, " in third


def test_a_terminal_shows_the_epochs_in_place():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with show_trials(console, make_spec()) as watch:
        watch(progress())
        assert watch.live.is_started
    assert "epoch 12/4, 0/4" in console.file.getvalue()
    assert not watch.live.is_started
