"""Tables and findings on a terminal."""

import io
from dataclasses import replace

import pytest
from factories import make_comparison, make_dataset
from rich.console import Console

from zetamix_lab.cli.live import print_findings, print_header, print_table
from zetamix_lab.report import Table
from zetamix_lab.report.compare import difference_table, main_table
from zetamix_lab.train import default_recipe


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("make", [main_table, difference_table])
def test_a_table_leaves_out_columns_but_breaks_no_cell(make, width):
    """Three classes, one of them rare: seven metrics, 147 columns wide."""
    names = "none", "mixup", "cutmix", "zeta:2.8", "zeta:gamma=2.0..4.0,sources=8"
    scores = {name: [0.662 - k / 50, 0.655] for k, name in enumerate(names)}
    table = make(make_comparison(scores, dataset=make_dataset((300, 300, 100))))
    console = Console(file=io.StringIO(), width=width)
    print_table(console, table)
    text = console.file.getvalue()
    hidden = [name for name in table.columns if name in text.splitlines()[-2]]
    assert len(hidden) <= len(table.columns) - 2
    for row in table.cells:
        for cell in row[1 : len(row) - len(hidden)]:
            assert cell.text() in text
    assert width < 140 or make is difference_table or not hidden


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
