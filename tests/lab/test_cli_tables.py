"""Tables and findings on a terminal."""

import io
from dataclasses import replace

from factories import make_comparison, make_dataset
from rich.console import Console

from zetamix_lab.cli.live import print_findings, print_header, print_table
from zetamix_lab.report import Table
from zetamix_lab.report.compare import difference_table, main_table
from zetamix_lab.train import default_recipe


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
