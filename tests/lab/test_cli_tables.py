"""Tables and findings on a terminal."""

import io
from dataclasses import replace

from factories import make_comparison, make_dataset
from rich.console import Console

from zetamix_lab.cli.live import print_findings, print_header, print_table
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


def test_the_header_says_which_model_is_the_default_without_a_gpu():
    for side, gpu, told in ((32, False, True), (32, True, False), (8, False, False)):
        console, shape = Console(file=io.StringIO(), width=400), (3, side, side)
        recipe = default_recipe(shape, 60, gpu=gpu)
        print_header(console, make_dataset(shape=shape), recipe, 2, 3)
        text = "smallnet is the default without a GPU, resnet18 with one"
        assert (text in console.file.getvalue()) is told
