"""The files of a comparison: tables, figures, the page in a browser."""

import json
import random
import re
import socket
import string
import time
from dataclasses import replace
from html import unescape
from unicodedata import category

import pandas as pd
import pytest
import torch
from browser import needs_browser, open_page
from factories import MACHINE, make_comparison, make_dataset
from golden import check_golden
from matplotlib.axes import Axes
from matplotlib.mathtext import MathTextParser

from zetamix_lab.comparison import Comparison
from zetamix_lab.metrics import EVALUATED, SCALED
from zetamix_lab.report.compare import (
    class_table,
    difference_table,
    main_table,
    without_folders,
    write_report,
)
from zetamix_lab.report.compare_figures import draw_curves, draw_differences
from zetamix_lab.report.compare_text import summarise
from zetamix_lab.runs.own import read_table
from zetamix_lab.statistics import KEYS
from zetamix_lab.text import printable

SIX = {
    "none": [0.100, 0.110, 0.105],
    "mixup": [0.150, 0.161, 0.154],
    "cutmix": [0.120, 0.101, 0.155],
    "zeta:2.4": [0.060, 0.071, 0.065],
    "zeta:2.8": [0.050, 0.061, 0.055],
    "zeta:4.0": [0.100, 0.112, 0.101],
}
TWO = {"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.1]}
MACHINE_INFO = {**MACHINE, "command": "zetamix compare --data 'my photos'"}
MANY = (400, 400, 400)


@pytest.fixture(scope="module")
def six():
    return make_comparison(SIX, dataset=make_dataset(MANY), description="2 processes side by side")


@pytest.fixture(scope="module")
def page(six, tmp_path_factory):
    return write_report(six, tmp_path_factory.mktemp("report"), MACHINE_INFO)


def texts(table):
    return [[cell.text() for cell in row] for row in table.cells]


def marked(table):
    """The first cell and the column of every bold cell."""
    return {
        (row[0].text(), name)
        for row in table.cells
        for name, cell in zip(table.columns, row, strict=True)
        if cell.mark
    }


# tables


def test_bold_is_what_is_significantly_better_and_nothing_else(six):
    tests = six.tests[(six.tests["baseline"] == "none") & six.tests["significant"]]
    better = tests[tests["mean"] < 0]
    heads = {"error": "error %", "nll_scaled": "NLL (T)", "ece_scaled": "ECE (T) %"}
    expected = {(row.method, heads[row.metric]) for row in better.itertuples()}
    assert marked(main_table(six)) == expected
    assert {method for method, _ in expected} == {"zeta:2.4", "zeta:2.8"}
    assert "Bold: significantly better than no mixing" in main_table(six).notes[0]
    noisy = make_comparison({"none": [0.3, 0.1], "zeta:2.8": [0.2, 0.1]})
    assert marked(main_table(noisy)) == set()
    assert "Bold" not in " ".join(main_table(noisy).notes)


def test_own_metrics_may_be_named_as_ours_are():
    """Two columns "AUC", of which the first is of a table of runs made elsewhere."""
    rows = [("d", m, s, name, s / 9) for m in "ab" for s in range(3) for name in ("AUC", "auc")]
    runs = pd.DataFrame(rows, columns=[*KEYS, "value"])
    made = Comparison(name="d", requested=("a", "b"), seeds=(0, 1, 2), given=runs)
    assert list(main_table(made).columns) == ["method", "AUC", "AUC", "seeds"]
    assert texts(main_table(made))[0][1:] == ["0.1111 ± 0.1111"] * 2 + ["3"]


def test_classes(six):
    table = class_table(six)
    assert list(table.columns)[:3] == ["class", "samples", "no mixing"]
    # 40, 44 and 42 wrong of 400
    assert texts(table)[0][:3] == ["0", "400", "89.5 ± 0.5"]
    dataset = make_dataset((10, 10, 10))
    rows = (dataset.test.labels != 1).nonzero().squeeze(1)
    made = make_comparison(TWO, dataset=replace(dataset, test=dataset.test.keep(rows)))
    assert [row[0] for row in texts(class_table(made))] == ["0", "2"]
    # a run of many classes has no confusion matrix
    without = replace(six.records["none", 0], confusion=[])
    assert class_table(replace(six, records={**six.records, ("none", 0): without})) is None


# files


def test_tables_in_every_form(six, page):
    """The verdict and all tables in Markdown and LaTeX, word for word."""
    names = ("differences", "curves", "outputs")
    figures = {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")}
    results = {f"results.{kind}" for kind in ("json", "csv", "md", "tex")}
    files = {path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*.*")}
    assert files == {"report.html", *figures, *results}
    text = (page.parent / "results.md").read_text()
    # all but the machine
    check_golden("compare-results.md", text.rpartition("\n\n")[0])
    check_golden("compare-results.tex", (page.parent / "results.tex").read_text())
    assert f"torch {torch.__version__}" in page.read_text()
    # a cell has its seeds as a tooltip; one seed has no deviation and no interval
    assert main_table(six).cells[0][1].note == "seed 0: 10.00, seed 1: 11.00, seed 2: 10.50"
    one = make_comparison({"none": [0.2], "zeta:2.8": [0.1]})
    assert main_table(one).cells[0][1].text() == "20.00"
    assert texts(difference_table(one))[1] == ["zeta:2.8", "−10.00 (no interval)", "–"]


def test_json_has_everything(six, page):
    found = json.loads((page.parent / "results.json").read_text(), parse_constant=pytest.fail)
    assert found["schema"] == "zetamix/compare/2"
    assert found["command"] == "zetamix compare --data 'my photos'"
    assert found["verdict"] == summarise(six, found["command"])
    assert found["complete"]
    assert found["dataset"]["samples"] == {"train": 1200, "val": 1200, "test": 1200}
    zeta = found["methods"]["zeta:2.8"]["error"]
    assert zeta["mean"] == pytest.approx(0.0553333)
    assert zeta["values"] == {"0": 0.05, "1": 0.061, "2": 0.055}
    assert set(found["methods"]["none"]) == {*EVALUATED, *SCALED}
    assert len(found["runs"]) == len(found["curves"]) == 18
    differences = {(d["method"], d["baseline"], d["metric"]): d for d in found["differences"]}
    assert len(differences) == 2 * 5 * len(six.recorded)
    one = differences["zeta:2.8", "none", "error"]
    assert one["significant"]
    assert one["low"] < one["mean"] < one["high"] < 0
    assert found["recalls"]["none"]["0"] == pytest.approx([0.9, 0.89, 0.895])
    assert found["recipe"]["epochs"] == 3


def test_the_csv_is_a_table_of_runs_that_makes_the_same_comparison(six, page):
    again = read_table(page.parent / "results.csv")
    assert again.finished == six.finished
    assert again.metrics == [*six.records["none", 0].last]
    rows = [list(runs.iloc[:, 1:].itertuples(index=False)) for runs in (again.runs, six.runs)]
    assert rows[0] == rows[1]


def test_nan_is_null_in_json_and_left_out_of_the_csv(tmp_path):
    scores = [{"error": 0.2, "auc": float("nan")}]
    made = make_comparison({"none": scores, "zeta:2.8": scores}, dataset=make_dataset(MANY))
    write_report(made, tmp_path, MACHINE_INFO)
    found = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert found["methods"]["none"]["auc"]["mean"] is None
    assert "auc" not in pd.read_csv(tmp_path / "results.csv")["metric"].unique()


def test_absolute_paths_are_their_last_part():
    texts = {
        "--data /home/ann/photos/": "--data photos/",
        "--model=/a/b/net.py:make": "--model=net.py:make",
        "'/a b/c'": "'/a b/c'",
        "/data/x/run/record.json cannot be read": "record.json cannot be read",
        r"C:\Users\ann\photos": "photos",
        "and/or 1/2/3 out/a https://a.org/b/c": "and/or 1/2/3 out/a https://a.org/b/c",
    }
    assert without_folders({"a": [*texts]}) == {"a": [*texts.values()]}


def test_no_file_has_an_absolute_path(tmp_path):
    path = "/home/ann/secret/photos"
    dataset = replace(make_dataset(), notes=(f"read from {path}",), origin=path)
    gone = [("none", 1)]
    made = make_comparison(
        TWO, dataset=dataset, missing=gone, failures=dict.fromkeys(gone, f"{path} is full.")
    )
    write_report(made, tmp_path, {**MACHINE, "command": f"zetamix compare --data {path}"})
    for file in tmp_path.glob("re*"):
        text = file.read_text()
        assert "secret" not in text, file.name
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)


HOSTILE = ("$", "$10%-$20%", r"a$\b$", "$5-$10", "<b>x</b>", "x\u202egnp", "a\u200bb")
HOSTILE += ("_a_", "[a](b)", "#~^&")


@pytest.mark.fuzz
def test_class_names_are_text_everywhere(tmp_path, monkeypatch, fuzz_seed):
    """A dollar sign in a name failed the report after all training, two were a formula."""
    dice, parsed = random.Random(fuzz_seed), []
    unseen = [sign for sign in map(chr, range(0x20000)) if category(sign) in ("Cc", "Cf")]
    some = [dice.choices(string.printable, k=6) + dice.sample(unseen, 2) for _ in range(10)]
    drawn = tuple("".join(dice.sample(signs, 8)) for signs in some)
    monkeypatch.setattr(MathTextParser, "parse", lambda self, text, *_: parsed.append(text))
    # so few that their names are below the axes
    for names in (HOSTILE, drawn):
        dataset = make_dataset((20,) * len(names), name="$<i>_x_$", classes=names)
        page = write_report(make_comparison(TWO, dataset=dataset), tmp_path, MACHINE_INFO)
        html = re.sub(r"base64,[\w+/=]+", "", page.read_text())
        assert "<b>x" not in html
        assert "<i>" not in html
        for text in (html, *((tmp_path / f"results.{kind}").read_text() for kind in ("md", "tex"))):
            assert not {*unseen} - {"\n"} & {*text}
        shown = unescape(html)
        assert [name for name in names if printable(name) not in shown] == []
    assert not parsed
    assert r"# \$\<i>\_x\_\$: does" in (tmp_path / "results.md").read_text()
    assert r"% \$$<$i$>$\_x\_\$: does" in (tmp_path / "results.tex").read_text()


@pytest.mark.slow
def test_many_classes_take_seconds(tmp_path):
    """With 10,000 classes the report did not end in 310 s."""
    dataset = make_dataset((10,) * 60 + (1,) * 9940)
    made = make_comparison({m: [0.1] * 2 for m in ("none", "mixup", "zetamix")}, dataset=dataset)
    began = time.perf_counter()
    page = write_report(made, tmp_path, MACHINE_INFO)
    assert time.perf_counter() - began < 30
    assert page.stat().st_size < 10_000_000
    assert "Per-class recall" not in page.read_text()


# figures


def plotted(draw, comparison, method="plot"):
    """The arguments of a method of the axes while a figure is drawn."""
    calls = []
    real = getattr(Axes, method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Axes, method, lambda *a, **k: calls.append((a[1:], k)) or real(*a, **k))
        picture = draw(comparison)
    return picture, calls


def test_curves_are_means_over_seeds(six):
    _, calls = plotted(draw_curves, six)
    assert [style["label"] for _, style in calls[:6]] == ["no mixing", *six.methods[1:]]
    error, nll = [arguments for arguments, style in calls if style["label"] == "zeta:2.8"]
    assert list(error[0]) == [1, 2, 3]
    assert list(error[1]) == pytest.approx([3 * 5.5333, 2 * 5.5333, 5.5333], rel=1e-4)
    assert nll[1].iloc[-1] == pytest.approx(2 * 0.055333, rel=1e-4)


@pytest.mark.parametrize("spike", [50.0, float("inf")])
def test_a_spike_does_not_flatten_the_curves(spike):
    made = make_comparison({"none": [0.1, 0.11], "zeta:2.8": [0.3, 0.31]}, epochs=30)
    line = made.curves["none", 0][20]
    line["test"] = {**line["test"], "nll": spike}
    assert plotted(draw_curves, made, "set_yscale")[1] == [(("log",), {})]


def test_a_run_without_a_curve_has_no_figure(six, tmp_path):
    deleted = replace(six, curves={**six.curves, next(iter(six.curves)): []})
    assert "Learning curves" not in write_report(deleted, tmp_path, MACHINE).read_text()


def test_differences_show_seeds_means_and_intervals(six):
    _, seeds = plotted(draw_differences, six)
    assert [len(a[0]) for a, _ in seeds] == [3] * 10
    _, means = plotted(draw_differences, six, "errorbar")
    expected = [test for b in six.baselines for test in six.differences(b).itertuples()]
    assert [a[0] for a, _ in means] == pytest.approx([100 * test.mean for test in expected])
    halves = [100 * (test.high - test.mean) for test in expected]
    assert [style["xerr"] for _, style in means] == pytest.approx(halves)
    filled = [style["markerfacecolor"] != "white" for _, style in means]
    assert filled == [test.significant for test in expected]


# the page


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_answers(six, page, width):
    seen = open_page(page, width=width).check()
    assert seen.title == seen.headings[0] == "made: does mixing help?"
    assert seen.tables[0][0] == list(main_table(six).columns)
    found = json.loads((page.parent / "results.json").read_text())["verdict"]
    text = " ".join(seen.text.split())
    order = [found["Result"], found["Next"], found["Caution"]]
    order += ["Differences in error rate. Small dots", "made: 1,200 test samples"]
    order += ["zeta:2.4, zeta:2.8", "Learning curves"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert len(seen.images) == 3
    assert min(image["width"] for image in seen.images) > 300
    # paragraphs are folded
    assert found["Calibration"] not in text
    assert found["Calibration"] in page.read_text()


@needs_browser
@pytest.mark.parametrize(
    ("scores", "dataset", "images"),
    [
        ({"none": [0.1]}, {}, 2),
        ({"zeta:2.8": [0.1, 0.2]}, {"shape": (2,), "counts": (30, 30)}, 1),
        ({"none": [0.1], "mixup": [0.0]}, {"shape": (3, 120, 100)}, 3),
        (
            {"none": [0.0] * 2, "smoothing": [0.0] * 2},
            {"classes": ["<b>a</b> & c", 40 * "b", ""]},
            3,
        ),
    ],
    ids=["one run", "points", "photographs", "names"],
)
def test_small_comparisons_have_a_page_too(scores, dataset, images, tmp_path):
    made = make_comparison(scores, dataset=make_dataset(**dataset))
    seen = open_page(write_report(made, tmp_path, MACHINE_INFO)).check()
    assert len(seen.images) == images
