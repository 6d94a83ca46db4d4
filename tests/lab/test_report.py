"""Tables in four forms, figures that do not change, and a page that opens with no network."""

import csv
import io
import itertools
import math
from xml.etree import ElementTree

import matplotlib
import pytest
import torch
from browser import needs_browser, open_page
from matplotlib import pyplot
from matplotlib.axes import Axes

from zetamix_lab.report import (
    Cell,
    Picture,
    Section,
    Table,
    drawing,
    render_page,
    series_style,
)
from zetamix_lab.report.compare_figures import draw_outputs

MACHINE = {"command": "zetamix x --a <b>", "processor": "CPU", "threads": "2", "torch": "2.15"}
TABLE = Table(
    columns=["method", "error %", "n", "note"],
    rows=[
        ["none", Cell(5.4821, error=0.0519), 3, None],
        ["mixup_1|0", Cell(4.68, error=0.1), 3, r"a$\b$ & #~^"],
        ["ζ < γ", Cell(-4.42, error=0.1, n=1797, mark="best"), 12345, "$10%-$20%"],
    ],
    caption="Errors",
    notes=["mean ± standard error"],
    tips={"error %": "lower is better"},
)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(24.632, error=12.34), "25 ± 12"),
        (Cell(0.00012345, error=0.00001), "0.000123 ± 0.000010"),
        (Cell(1.8323161, error=2e-7), "1.832 ± 0.000"),
        (Cell(1e-9), "0.000"),
        (Cell(1234567.8, error=1000.0), "1,234,568 ± 1,000"),
        (Cell(0.5, error=math.nan), "0.5000"),
        (Cell(1.0, error=0.0), "1.000 ± 0.000"),
        (Cell(97.134), "97.13"),
        (Cell(-0.0001, digits=2), "0.00"),
        (Cell(-1.25, digits=2), "−1.25"),
        (Cell(0.0), "0"),
        (Cell(12345), "12,345"),
        (Cell(math.nan), "–"),
        (Cell(math.inf), "∞"),
        (Cell(0.25, digits=2, n=1000), "0.25 (n = 1,000)"),
        (Cell(1.5, digits=2, signed=True), "+1.50"),
        (Cell(0.001, digits=2, signed=True), "0.00"),
        (Cell(-1.5, digits=2, signed=True, suffix="*"), "−1.50*"),
    ],
)
def test_a_cell_shows_what_is_significant(cell, text):
    assert cell.text() == text


def test_markdown():
    assert TABLE.markdown().splitlines() == [
        "| method | error % | n | note |",
        "|---|---:|---:|---|",
        "| none | 5.482 ± 0.052 | 3 | – |",
        "| mixup\\_1\\|0 | 4.68 ± 0.10 | 3 | a\\$\\\\b\\$ & #\\~^ |",
        "| ζ \\< γ | **−4.42 ± 0.10 (n = 1,797)** | 12,345 | \\$10%-\\$20% |",
    ]


def test_latex():
    assert TABLE.latex().splitlines() == [
        r"\begin{tabular}{lrrl}",
        r"\toprule",
        r"method & error \% & n & note \\",
        r"\midrule",
        r"none & 5.482 $\pm$ 0.052 & 3 & -- \\",
        r"mixup\_1$|$0 & 4.68 $\pm$ 0.10 & 3 & "
        r"a\$\textbackslash{}b\$ \& \#\textasciitilde{}\textasciicircum{} \\",
        r"$\zeta$ $<$ $\gamma$ & \textbf{$-$4.42 $\pm$ 0.10 (n = 1,797)} & 12,345 & "
        r"\$10\%-\$20\% \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_keeps_every_digit():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows[0] == ["method", "error %", "error % error", "error % n", "n", "note"]
    assert rows[1] == ["none", "5.4821", "0.0519", "", "3", ""]
    assert rows[3] == ["ζ < γ", "-4.42", "0.1", "1797", "12345", "$10%-$20%"]


def test_html_is_well_formed_and_escaped():
    page = page_of(TABLE)
    tree = ElementTree.fromstring(page[page.index("<main>") : page.index("</main>") + 7])
    headings = [cell.text for cell in tree.findall(".//thead//th")]
    assert headings == ["method", "error %", "n", "note"]
    assert tree.find(".//thead/tr/th[2]").get("title") == "lower is better"
    assert TABLE.text_columns == [True, False, False, True]
    assert [cell.text for cell in tree.findall(".//tbody/tr/th")] == ["none", "mixup_1|0", "ζ < γ"]
    assert tree.find(".//tbody/tr[3]/td").get("class") == "best"
    assert tree.find(".//caption").text == "Errors"


def draw(value=3.0):
    with drawing(4, 3) as figure:
        axes = figure.subplots()
        axes.plot([0, 1, value], label="rising", **series_style(1))
        axes.imshow([[0.0, 1.0], [1.0, 0.0]])
        axes.legend()
        return Picture.of(figure, "line", alt='A "rising" line.', caption="Three <numbers>.")


def test_a_figure_is_the_same_for_the_same_numbers(tmp_path):
    before = dict(matplotlib.rcParams)
    first, again, other = draw(), draw(), draw(4.0)
    # and matplotlib is as it was
    assert dict(matplotlib.rcParams) == before
    assert pyplot.get_fignums() == []
    assert (first.svg, first.png) == (again.svg, again.png)
    assert first.svg != other.svg
    assert first.size == (400, 300)
    first.save(tmp_path)
    assert (tmp_path / "line.svg").read_text() == first.svg
    assert (tmp_path / "line.png").read_bytes() == first.png


def test_series_differ_without_colour():
    styles = [series_style(k) for k in range(30)]
    assert len({(style["color"], str(style["linestyle"])) for style in styles}) == 30
    # neighbours differ in line and marker
    for one, two in itertools.pairwise(styles):
        assert one["linestyle"] != two["linestyle"]
        assert one["marker"] != two["marker"]


def page_of(*blocks, title="A & B"):
    lead = {"Result": "1 < 2.", "Caution": "Words."}
    return render_page(title, [Section("Part <1>", blocks)], machine=MACHINE, lead=lead)


@needs_browser
def test_the_page_opens_in_a_browser_with_everything_in_it(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page_of("Words & more.", TABLE, draw(), draw(5.0)))
    seen = open_page(page).check()
    assert (seen.title, *seen.headings) == ("A & B", "A & B", "Part <1>")
    shown = [(image["alt"], image["caption"]) for image in seen.images]
    assert shown == [('A "rising" line.', "Three <numbers>.")] * 2
    assert seen.tables[0][3] == ["ζ < γ", "−4.42 ± 0.10 n = 1,797", "12,345", "$10%-$20%"]
    for words in ("zetamix x --a <b>", "CPU, 2 threads · torch 2.15", "1 < 2."):
        assert words in seen.text
    # narrow as a phone, the page is no wider than the window
    open_page(page, width=500).check()


def test_many_notes_are_folded_and_few_are_not():
    few, many = (page_of(Table(["a"], [["b"]], notes=["note"] * n)) for n in (4, 5))
    assert "more notes" not in few
    assert "<summary>2 more notes</summary>" in many
    assert many.count('<p class="note">note</p>') == 5


def test_an_image_of_one_line_is_shown(monkeypatch):
    """Of 1 × 300 pixels the reduced height rounded to 0."""
    shown, real = [], Axes.imshow
    monkeypatch.setattr(Axes, "imshow", lambda *a, **k: shown.append(a[1].shape) or real(*a, **k))
    draw_outputs({"original": (torch.rand(10, 1, 1, 300), torch.eye(10))}, tuple("0123456789"))
    assert shown
    assert min(min(shape) for shape in shown) == 1
