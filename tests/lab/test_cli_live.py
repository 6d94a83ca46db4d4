"""What a terminal shows: progress of runs, tables on narrow terminals, start of the command."""

import io
import types
from dataclasses import replace

import pytest
from comparisons import make_comparison, make_dataset
from miniatures import class_folders
from rich.console import Console
from typer.testing import CliRunner

from zetamix_lab.cli.app import app
from zetamix_lab.cli.live import RunsView, print_findings, print_header, print_table, show_runs
from zetamix_lab.records import Cell
from zetamix_lab.report import Table
from zetamix_lab.report.compare import difference_table, main_table
from zetamix_lab.runs.progress import CellProgress, Snapshot
from zetamix_lab.train import default_recipe

LINE = {"epoch": 12, "train_loss": 1.25, "train_accuracy": 0.5, "test": {"error": 0.051}}


def progress(method, seed, state, epochs=0.0, line=None):
    cell = Cell(
        dataset="d", fingerprint="", method=method, seed=seed, recipe={"epochs": 30}, train_size=100
    )
    return CellProgress(cell, state, epochs, 0.0, line)


def done(method, seed, error=0.0361):
    return progress(method, seed, "done", 30.0, {"epoch": 30, "test": {"error": error}})


STATES = (
    done("none", 0),
    progress("none", 1, "training", 12.4, LINE),
    progress("zeta:2.8", 0, "failed", 30.0),
    progress("zeta:2.8", 1, "waiting"),
)


def shown(snapshot, width, height=25):
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    console.print(RunsView(console, clock=lambda: 0.0).view(snapshot))
    lines = console.file.getvalue().replace("━", " ").replace("╸", " ").replace("╺", " ")
    return [" ".join(line.split()) for line in lines.splitlines() if line.strip()]


def printed(*snapshots):
    console = Console(file=io.StringIO(), width=100)
    with show_runs(console) as display:
        for snapshot in snapshots:
            display(snapshot)
    return console.file.getvalue().splitlines()


# on a terminal


def test_a_row_shows_every_run():
    assert shown(Snapshot(STATES, 75.0), 110) == [
        "no mixing seed 0 3.61 %",
        "no mixing seed 1 epoch 13/30 (40 %) · loss 1.250 · train 50.0 % · test error 5.10 %",
        "zeta:2.8 seed 0 failed",
        "zeta:2.8 seed 1 waiting",
        "1 of 4 runs finished · 1 failed · about 80 s left · error rate on the test split",
    ]


def test_on_a_low_terminal_only_training_runs_have_a_row():
    assert len(shown(Snapshot(STATES), 110, height=5)) == 2


def test_a_row_shows_the_speed():
    clock = types.SimpleNamespace(now=0.0)
    console = Console(file=io.StringIO(), width=140, force_terminal=True, color_system=None)
    runs = RunsView(console, clock=lambda: clock.now)
    runs.view(Snapshot((progress("none", 1, "training", 10.4, LINE),)))
    clock.now = 4.0
    console.print(runs.view(Snapshot((progress("none", 1, "training", 12.4, LINE),), 20.0)))
    text = console.file.getvalue()
    assert "no mixing seed 1" in text
    # two epochs of 100 samples in four seconds
    status = "epoch 13/30 (40 %) · loss 1.250 · train 50.0 % · test error 5.10 % · 50 samples/s"
    assert status in text
    assert "about 20 s left" in text


def test_a_terminal_is_updated_in_place():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with show_runs(console) as display:
        display(Snapshot(STATES))
        assert display.live.is_started
    assert "13/30" in console.file.getvalue()
    assert not display.live.is_started


# elsewhere


def test_elsewhere_there_is_a_line_for_each_run():
    rest = [progress("none", seed, "waiting") for seed in range(2, 6)]
    before = Snapshot((done("none", 0), progress("none", 1, "waiting"), *rest))
    training = Snapshot((done("none", 0), progress("none", 1, "training", 12.0, LINE), *rest))
    after = Snapshot((done("none", 0), done("none", 1, 0.1), *rest), 75.0)
    assert printed(before, training, after, after) == [
        "1 of 6 runs are finished.",
        "no mixing seed 1: error rate 10.00 % (2 of 6 runs finished, about 80 s left)",
    ]


def test_runs_that_end_together_are_counted_one_by_one():
    rest = [progress("none", seed, "waiting") for seed in range(2, 6)]
    before = Snapshot((*(progress("none", seed, "waiting") for seed in range(2)), *rest))
    after = Snapshot((done("none", 0), done("none", 1), *rest))
    lines = printed(before, after)
    assert ["(1 of 6 runs finished)" in lines[0], "(2 of 6 runs finished)" in lines[1]] == [
        True
    ] * 2


def test_elsewhere_a_long_run_shows_that_it_is_alive():
    clock = types.SimpleNamespace(now=0.0)
    runs = RunsView(Console(file=io.StringIO()), clock=lambda: clock.now)
    many = [progress("none", seed, "waiting") for seed in range(5)]
    snapshot = Snapshot((progress("zeta:2.8", 0, "training", 12.4, LINE), *many), 300.0)
    assert runs.lines(snapshot) == []
    for now, lines in ((59.0, 0), (60.0, 1), (100.0, 0), (121.0, 1)):
        clock.now = now
        found = runs.lines(snapshot)
        assert len(found) == lines
    assert found == ["0 of 6 runs finished, zeta:2.8 seed 0 epoch 13/30 (40 %), about 5 min left"]


def test_elsewhere_a_single_run_prints_ten_lines():
    snapshots = [Snapshot((progress("none", 0, "waiting"),))]
    for epoch in range(1, 31):
        line = {**LINE, "epoch": epoch}
        snapshots.append(Snapshot((progress("none", 0, "training", float(epoch), line),)))
    lines = printed(*snapshots, Snapshot((done("none", 0),), 0.0))
    assert len(lines) == 10
    assert lines[0] == "no mixing seed 0: epoch 3/30, loss 1.250, error rate 5.10 %"
    assert lines[-1] == "no mixing seed 0: error rate 3.61 % (1 of 1 runs finished)"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_killed_worker_is_reported_once(terminal):
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    with show_runs(console) as display:
        for deaths in (0, 1, 1):
            display(Snapshot(STATES, deaths=deaths))
    assert console.file.getvalue().count("A worker was killed; its runs are resumed.") == 1


# tables


@pytest.fixture(scope="module")
def skewed():
    """Three classes, one of them rare: seven metrics, 147 columns wide."""
    names = "none", "mixup", "cutmix", "zeta:2.8", "zeta:gamma=2.0..4.0,sources=8"
    scores = {name: [0.662 - k / 50, 0.655] for k, name in enumerate(names)}
    return make_comparison(scores, dataset=make_dataset((300, 300, 100)))


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("make", [main_table, difference_table])
def test_a_table_leaves_out_columns_but_breaks_no_cell(skewed, make, width):
    table = make(skewed)
    console = Console(file=io.StringIO(), width=width)
    print_table(console, table)
    text = console.file.getvalue()
    # headings may be broken into lines, numbers may not
    heading, rows = text.split("\nno mixing", 1)
    shown = [head for head in table.heads if all(w in heading for w in head.name.split())]
    assert len(shown) >= 2
    for row in table.cells:
        for cell in row[1:2]:
            assert cell.text() in text
    hidden = [head.name for head in table.heads if head not in shown]
    assert all(name in rows.splitlines()[-2] for name in hidden)
    if width == 140 and make is main_table:
        assert not hidden


def test_numbers_are_never_cut_off():
    console = Console(file=io.StringIO(), width=12)
    print_table(console, Table(["method", "a"], [["none", "123456789"]]))
    assert "…" not in console.file.getvalue()


def test_names_with_brackets_are_printed_as_they_are():
    """Rich takes [old] for a style and fails at [/b]."""
    console = Console(file=io.StringIO(), width=200)
    dataset = replace(make_dataset(), name="two [old]", notes=("no sample of [/b]",))
    print_header(console, dataset, default_recipe((2,), 60), 2, 3)
    print_findings(console, [("Versus [/b]", "class [/b] and [bold]")])
    text = console.file.getvalue()
    assert text.startswith("two [old]: ")
    assert "no sample of [/b]" in text
    assert "Versus [/b]  class [/b] and [bold]" in text


# the command itself


def invoke(*arguments):
    return CliRunner().invoke(app, arguments)


def test_version():
    from importlib.metadata import version

    result = invoke("--version")
    assert (result.exit_code, result.output.strip()) == (0, f"zetamix {version('zetamix')}")


# while data is read


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        *((f"{name} --model no_such_model --data", "decoding") for name in ("train", "compare")),
        ("tune --model no_such_model --data", "decoding"),
        ("inspect --out photos/cat/0.png --data", "decoding"),
        ("data check", "checking"),
    ],
)
def test_a_terminal_shows_how_far_a_folder_is_read(command, shows, tmp_path, monkeypatch):
    """The commands end once the data is there, for want of a model or a folder to write to."""
    # rich takes anything for a terminal then
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    photos = class_folders(tmp_path / "photos", {"cat": 10, "dog": 10})
    result = CliRunner().invoke(app, [*command.split(), str(photos)])
    assert shows in result.stderr
    assert "20/20" in result.stderr or command.startswith("inspect")
