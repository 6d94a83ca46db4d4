"""What a terminal or a log shows: how far runs are, tables and findings."""

import io
import types
from dataclasses import replace

import pytest
from factories import make_comparison, make_dataset
from rich.console import Console

from zetamix.methods import parse
from zetamix_lab.cli.live import Display, print_findings, print_header, print_table
from zetamix_lab.progress import RUNS
from zetamix_lab.report import Table
from zetamix_lab.report.compare import difference_table, main_table
from zetamix_lab.runs.run_cells import CellResults, Tracker
from zetamix_lab.train import default_recipe, make_cell, make_recipe

LINE = {"epoch": 12, "train_loss": 1.25, "train_accuracy": 0.5, "test": {"error": 0.051}}


@pytest.fixture(scope="module")
def cells():
    dataset = make_dataset()
    recipe = make_recipe(dataset, epochs=30)
    return [make_cell(dataset, parse(m), recipe, s) for m in ("none", "zeta:2.8") for s in (0, 1)]


def tracked(cells, earlier=()):
    """A tracker, and the events that it has shown."""
    events = []
    results = CellResults({cell.key: finished(cell) for cell in earlier})
    return Tracker(results, cells, lambda *event: events.append(event)), events


def finished(cell, error=0.0361):
    """As much of a record as is shown."""
    return types.SimpleNamespace(key=cell.key, last={"error": error})


# events


def test_only_what_has_changed_is_shown(cells):
    first, second, third, fourth = cells
    tracker, events = tracked([second, third, fourth], [first])
    tracker.tick()
    assert events == [(RUNS, 0, 90, "1 of 4 runs finished")]
    tracker.update(second.key, 12.4, 0.0, LINE)
    tracker.fail(third.key, "why")
    del events[:]
    tracker.tick()
    assert events == [
        (RUNS, pytest.approx(42.4), 90, "1 of 4 runs finished, 1 failed"),
        (
            "no mixing seed 1", 12.4, 30,
            "12.4 of 30 epochs · loss 1.250 · train 50.0 % · test error 5.10 %",
        ),
        ("zeta:2.8 seed 0", 30, 30, "failed"),
    ]  # fmt: skip
    tracker.finish(finished(second))
    tracker.deaths += 1
    del events[:]
    tracker.tick()
    assert events == [
        (RUNS, 60, 90, "2 of 4 runs finished, 1 failed, 1 killed worker started again"),
        ("no mixing seed 1", 30, 30, "error rate 3.61 %"),
    ]


def test_a_resumed_run_counts_from_its_checkpoint_to_its_record(cells):
    tracker, events = tracked(cells[:1])
    tracker.update(cells[0].key, 20.0, 18.0, {})
    tracker.tick()
    assert events[0][:3] == (RUNS, 2.0, 12.0)
    # with all its epochs it is still to be evaluated and written
    tracker.update(cells[0].key, 30.0, 0.0, {})
    tracker.tick()
    _, done, total, _ = events[-1]
    assert done < total


# the display


def display(*, terminal=False, height=25):
    clock = types.SimpleNamespace(now=0.0)
    console = Console(
        file=io.StringIO(), width=120, height=height, force_terminal=terminal, color_system=None
    )
    return Display(console, clock=lambda: clock.now), console.file, clock


def test_in_a_log_every_finished_run_is_a_line():
    show, file, _ = display()
    with show:
        show(RUNS, 0, 90, "1 of 4 runs finished")
        show("none seed 1", 10, 30, "10.0 of 30 epochs")
        show(RUNS, 30, 90, "2 of 4 runs finished")
        show("none seed 1", 30, 30, "error rate 3.61 %")
    assert file.getvalue().splitlines() == [
        "1 of 4 runs finished",
        "none seed 1: error rate 3.61 % (2 of 4 runs finished)",
    ]


def test_in_a_log_a_long_run_shows_that_it_is_alive():
    show, file, clock = display()
    for now in range(0, 200, 10):
        clock.now = now
        show(RUNS, now / 10, 50, "0 of 1 run finished")
        show("none seed 0", now / 10, 50, f"{now / 10} of 50 epochs")
    lines = file.getvalue().splitlines()
    assert len(lines) == 4
    # 50 epochs of ten seconds each; the estimate is that of the last half minute
    assert lines[1] == "0 of 1 run finished, about 7 min left"


def test_reading_is_shown_on_a_terminal_only():
    show, file, _ = display()
    with show:
        show("decoding", 20, 20)
    assert file.getvalue() == ""
    show, file, _ = display(terminal=True)
    with show:
        show("decoding", 1500, 2000)
        show("downloading a.zip", 2_500_000, 0)
        show.bars.refresh()
    assert "1,500/2,000" in file.getvalue()
    assert "2 MB" in file.getvalue()


def test_a_terminal_has_a_bar_for_each_run_that_fits():
    show, _, _ = display(terminal=True, height=6)
    show(RUNS, 0, 90, "0 of 9 runs finished")
    for seed in range(9):
        show(f"none seed {seed}", 30, 30, "error rate [bold]3 %")
    show("none seed 9", 10, 30, "10.0 of 30 epochs")
    shown = [task.description for task in show.bars.tasks if task.visible]
    assert shown == [RUNS, "none seed 0", "none seed 1", "none seed 2", "none seed 9"]
    assert "[bold]3 %" in show.bars.tasks[1].fields["text"]


def test_a_closed_terminal_is_no_error():
    """Runs must still be saved, and the command asks for it (`closed`)."""
    show, file, _ = display()

    def refuse(text):
        raise BrokenPipeError

    file.write = refuse
    with show:
        show(RUNS, 0, 1, "0 of 1 run finished")
    assert show.closed


# tables and findings


def test_a_table_of_any_width_is_shown_whole():
    """The names of rows are not folded, and no number is cut off."""
    names = "none", "mixup", "cutmix", "zeta:2.8", "zeta:gamma=2.0..4.0,sources=8"
    made = make_comparison({name: [0.662 - k / 50, 0.655] for k, name in enumerate(names)})
    for table in (main_table(made), main_table(made, made.tested), difference_table(made)):
        for width in (60, 80, 200):
            console = Console(file=io.StringIO(), width=width)
            print_table(console, table)
            lines = console.file.getvalue().splitlines()
            assert "…" not in "".join(lines)
            assert max(map(len, lines)) <= width
            heads = [row[0].text() for row in table.cells]
            assert [
                line[: len(head)] for head in heads for line in lines if line.startswith(head)
            ] == heads
    # a name that would leave no space for the numbers is folded
    console = Console(file=io.StringIO(), width=60)
    print_table(console, Table(["class", "train"], [("x" * 90, 12)]))
    assert console.file.getvalue().split()[1:] == ["train", "x" * 53, "12", "x" * 37]
    # in 80 columns the metrics of the verdict have a line for each method
    console = Console(file=io.StringIO(), width=80)
    print_table(
        console, main_table(make_comparison({"none": [0.1] * 2, "zetamix": [0.2] * 2}), made.tested)
    )
    assert len(console.file.getvalue().splitlines()) == 4


def test_names_with_brackets_are_printed_as_they_are():
    """Rich takes [old] for a style and fails at [/b]."""
    console = Console(file=io.StringIO(), width=200)
    dataset = replace(make_dataset(), name="two [old]", notes=("no sample of [/b]",))
    print_header(console, dataset, default_recipe((2,), 60), 2, 3)
    print_findings(console, [("Versus [/b]", "class [/b] and [bold]")])
    text = console.file.getvalue()
    assert text.startswith("two [old]  2 methods")
    assert "no sample of [/b]" in text
    assert "Versus [/b]  class [/b] and [bold]" in text
