"""Tables on a narrow terminal: no cell broken over two lines, and nothing left out."""

import io

import pytest
from comparisons import make_comparison, make_dataset
from rich.console import Console

from zetamix.cli.compare import _print
from zetamix.cli.narrow import blocks, fold_name
from zetamix.report import Table
from zetamix.report.compare_tables import difference_table, main_table

SCORES = {
    "none": [0.662, 0.655],
    "mixup": [0.651, 0.674],
    "cutmix": [0.671, 0.664],
    "zeta:2.8": [0.612, 0.634],
    "zeta:gamma=2.0..4.0,sources=8": [0.662, 0.644],
}


@pytest.fixture(scope="module")
def skewed():
    """Of three classes, one of them rare: five metrics, 93 columns wide."""
    return make_comparison(SCORES, dataset=make_dataset((300, 300, 100)))


def printed(comparison, width):
    console = Console(file=io.StringIO(), width=width)
    _print(console, comparison)
    return console.file.getvalue()


def lines(tables, width):
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_cell_of_a_comparison_is_broken_over_two_lines(skewed, width):
    rows = printed(skewed, width).splitlines()
    assert max(map(len, rows)) <= width
    for table in (main_table(skewed), difference_table(skewed)):
        for row in table.cells:
            # the name of the longest method is folded
            start = row[0].text().split(",")[0]
            own = "\n".join(line for line in rows if line.startswith(start))
            for cell in row[1:]:
                assert cell.text() in own
    text = printed(skewed, width)
    assert "±\n" not in text
    assert "± \n" not in text


def test_at_80_columns_calibration_goes_below_and_each_reference_has_a_table(skewed):
    heads = [line.split() for line in printed(skewed, 80).splitlines() if "method" in line[:6]]
    assert heads[0] == ["method", "accuracy", "%", "macro", "F1", "%", "error", "%"]
    assert heads[1] == ["method", "NLL", "ECE", "%", "seeds"]
    assert heads[2][:3] == ["method", "minus", "none"]
    assert heads[3][:3] == ["method", "minus", "mixup:1.0"]
    assert len(heads) == 4


def test_where_there_is_room_each_table_is_one(skewed):
    wide = printed(skewed, 140).splitlines()
    assert len([line for line in wide if line.startswith("method")]) == 2
    assert any(line.startswith("zeta:gamma=2.0..4.0,sources=8 ") for line in wide)


def test_a_heading_is_no_reason_for_a_wide_column():
    table = Table(["method", "balanced accuracy %", "p"], [["none", "33.80 ± 0.65", "0.2"]])
    assert lines(blocks(table, 80, [[1], [2]]), 80) == [
        "        balanced",
        "method  accuracy %    p",
        "none    33.80 ± 0.65  0.2",
    ]


def test_columns_that_belong_together_part_only_where_they_must():
    table = Table(["method", "a", "b"], [["none", "12345", "12345"]])
    # 6 for the name, and 2 between columns
    assert len(blocks(table, 20, [[1, 2]])) == 1
    assert len(blocks(table, 19, [[1, 2]])) == 2


def test_what_fits_nowhere_is_folded_and_not_cut_off():
    table = Table(["method", "a"], [["none", "123456789"]])
    text = "".join(lines(blocks(table, 12, [[1]]), 12))
    assert "…" not in text
    assert "89" in text


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (29, ["zeta:gamma=2.0..4.0,sources=8"]),
        (28, ["zeta:gamma=2.0..4.0,", "sources=8"]),
        (19, ["zeta:", "gamma=2.0..4.0,", "sources=8"]),
        (3, ["zeta:", "gamma=2.0..4.0,", "sources=8"]),
    ],
)
def test_names_are_folded_between_options(width, expected):
    assert fold_name("zeta:gamma=2.0..4.0,sources=8", width).split("\n") == expected
