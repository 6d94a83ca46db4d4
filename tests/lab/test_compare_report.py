"""The files of a comparison: tables, figures, the page in a browser."""

import csv
import io
import json
from dataclasses import replace

import pytest
import torch
from browser import needs_browser, open_page
from comparisons import MACHINE, make_comparison, make_dataset
from matplotlib.axes import Axes

from zetamix_lab.metrics import EVALUATED, SCALED
from zetamix_lab.report.compare import (
    class_table,
    describe_method,
    describe_replaced,
    difference_table,
    draw_confusion,
    draw_curves,
    draw_differences,
    main_table,
    make_csv,
    write_report,
)
from zetamix_lab.report.compare_text import summarise

SIX = {
    "none": [0.100, 0.110, 0.105],
    "mixup": [0.150, 0.161, 0.154],
    "cutmix": [0.120, 0.101, 0.155],
    "zeta:2.4": [0.060, 0.071, 0.065],
    "zeta:2.8": [0.050, 0.061, 0.055],
    "zeta:4.0": [0.100, 0.112, 0.101],
}
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


# tables


def test_the_main_table_has_means_deviations_and_marks(six):
    table = main_table(six)
    assert [head.name for head in table.heads] == [
        "method", "error %", "NLL", "ECE %", "NLL (T)", "ECE (T) %", "seeds",
    ]  # fmt: skip
    assert texts(table)[0] == [
        "no mixing", "10.50 ± 0.50", "0.2100 ± 0.0100", "10.50 ± 0.50", "0.1050 ± 0.0050",
        "5.25 ± 0.25", "3",
    ]  # fmt: skip
    marks = {row[0].text(): row[1].mark for row in table.cells}
    assert {label: mark for label, mark in marks.items() if mark} == {"zeta:2.8": "best"}
    assert table.cells[0][1].note == "seed 0: 10.00, seed 1: 11.00, seed 2: 10.50"
    assert table.caption == "made: 1,200 test samples, after the last epoch"


def test_ties_are_not_marked_and_higher_can_be_better():
    # 0.100001 is printed as 0.1
    scores = {"none": 0.2, "mixup": 0.1, "zeta:2.8": 0.100001, "zeta:4.0": 0.3}
    made = make_comparison(
        {label: [error] for label, error in scores.items()}, dataset=make_dataset((10, 40, 10))
    )
    table = main_table(made)
    assert table.heads[1].name == "balanced accuracy %"
    assert [row[1].mark for row in table.cells] == ["", "", "", ""]
    # one seed has no deviation, one method no best
    assert table.cells[0][1].text() == "80.00"
    assert main_table(make_comparison({"none": [0.1]})).cells[0][1].mark == ""


def test_nothing_is_marked_where_methods_have_other_seeds():
    scores = {"none": [0.2, 0.3], "zeta:2.8": [0.1, 0.2]}
    for missing, marks in (((), {"", "best"}), ([("zeta:2.8", 1)], {""})):
        made = make_comparison(scores, missing=missing)
        for table in (main_table(made), class_table(made)):
            assert {cell.mark for row in table.cells for cell in row} == marks


def test_binary_data_leads_with_the_auc():
    made = make_comparison({"none": [0.2, 0.3], "zeta": [0.1, 0.2]}, dataset=make_dataset((10, 10)))
    assert [head.name for head in main_table(made).heads][1:3] == ["AUC", "error %"]
    assert texts(main_table(made))[1][1] == "0.9250 ± 0.0354"
    assert "AUC" in difference_table(made).caption


def test_the_table_of_differences_marks_significant_ones(six):
    table = difference_table(six)
    assert [head.name for head in table.heads] == [
        "method", "minus no mixing (95 %)", "Holm-corrected p", "minus mixup:1.0 (95 %)",
        "Holm-corrected p",
    ]  # fmt: skip
    rows = {row[0]: row[1:] for row in texts(table)}
    assert rows["no mixing"][:2] == ["–", "–"]
    assert rows["mixup:1.0"][2:] == ["–", "–"]
    assert rows["zeta:2.8"][0] == "−4.97 (−5.11 to −4.82)"
    by_name = {row[0].text(): row for row in table.cells}
    for found in six.differences("none"):
        assert (by_name[found.method][1].mark == "best") == found.significant
        assert by_name[found.method][2].text() in ("< 0.001", f"{found.p_holm:.3f}")
    assert by_name["zeta:2.8"][1].note == "seed 0: −5.00, seed 1: −4.90, seed 2: −5.00"


def test_significance_before_correction_is_not_marked():
    noisy = {f"zeta:{k}.0": [0.30 + k / 50, 0.20, 0.10] for k in range(2, 6)}
    scores = {"none": [0.20, 0.20, 0.20], "zeta:2.8": [0.15, 0.17, 0.16], **noisy}
    made = make_comparison(scores, dataset=make_dataset(MANY))
    assert any(found.excludes_zero for found in made.differences("none"))
    assert {cell.mark for row in difference_table(made).cells for cell in row} == {""}


def test_one_seed_has_no_interval_in_the_table():
    made = make_comparison({"none": [0.2], "zeta:2.8": [0.1]})
    assert texts(difference_table(made))[1] == ["zeta:2.8", "−10.00 (one seed)", "–"]


def test_classes(six):
    table = class_table(six)
    assert [head.name for head in table.heads][:3] == ["class", "samples", "no mixing"]
    assert len(table.rows) == 3
    # 40, 44 and 42 wrong of 400
    assert texts(table)[0][:3] == ["0", "400", "89.5 ± 0.5"]
    marks = [cell.mark for cell in table.cells[0][2:]]
    assert marks.count("best") == 1
    assert marks[4] == "best"


def test_the_table_of_many_classes_is_folded(tmp_path):
    dataset = make_dataset((20,) * 30)
    made = make_comparison({"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.1]}, dataset=dataset)
    assert len(class_table(made).rows) == 30
    assert "<summary>Per-class recall, %</summary>" in write_report(
        made, tmp_path, MACHINE_INFO
    ).read_text(encoding="utf-8")


def test_a_class_without_test_samples_is_left_out():
    dataset = make_dataset((10, 10, 10))
    test = dataset.test
    dataset = replace(dataset, test=test.keep((test.labels != 1).nonzero().squeeze(1)))
    made = make_comparison({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.1]}, dataset=dataset)
    assert [row[0] for row in texts(class_table(made))] == ["0", "2"]
    assert made.primary == "balanced_accuracy"


# files


def test_files(page):
    files = {path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*.*")}
    names = ("differences", "curves", "confusion", "outputs")
    figures = {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")}
    results = {f"results.{kind}" for kind in ("json", "csv", "md", "tex")}
    assert files == {"report.html", *figures, *results}


def test_json_has_everything(six, page):
    found = json.loads(
        (page.parent / "results.json").read_text(),
        parse_constant=lambda text: pytest.fail(f"{text} is not JSON"),
    )
    assert found["schema"] == "zetamix/compare/1"
    assert found["command"] == "zetamix compare --data 'my photos'"
    assert found["verdict"] == dict(summarise(six))
    assert found["complete"]
    assert found["dataset"]["samples"] == {"train": 1200, "val": 1200, "test": 1200}
    zeta = found["methods"]["zeta:2.8"]["error"]
    assert zeta["mean"] == pytest.approx(0.0553333)
    assert zeta["values"] == {"0": 0.05, "1": 0.061, "2": 0.055}
    assert set(found["methods"]["none"]) == {*EVALUATED, *SCALED}
    assert len(found["runs"]) == len(found["curves"]) == 18
    assert {(d["baseline"], d["metric"]) for d in found["differences"]} == {
        (r, m) for r in ("none", "mixup:1.0") for m in six.metrics
    }
    assert len(found["differences"]) == 2 * 5 * 5
    one = next(
        d for d in found["differences"] if (d["method"], d["metric"]) == ("zeta:2.8", "error")
    )
    assert one["significant"]
    assert one["low"] < one["mean"] < one["high"] < 0
    assert found["recalls"]["none"]["0"] == pytest.approx([0.9, 0.89, 0.895])
    assert found["recipe"]["epochs"] == 3


def test_cautions_are_in_every_file_and_nan_is_null_in_json(tmp_path):
    scores = [{"error": 0.67, "auc": float("nan")}]
    made = make_comparison({"none": scores, "zeta:2.8": scores}, dataset=make_dataset(MANY))
    page, caution = write_report(made, tmp_path, MACHINE_INFO), dict(summarise(made))["Caution"]
    found = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert found["verdict"]["Caution"] == caution
    assert found["methods"]["none"]["auc"]["mean"] is None
    assert ",," in (tmp_path / "results.csv").read_text()
    assert f"**Caution.** {caution}" in (tmp_path / "results.md").read_text()
    assert caution in page.read_text()


def test_csv_has_a_line_for_each_run_in_full(six):
    rows = list(csv.DictReader(io.StringIO(make_csv(six))))
    assert len(rows) == 18
    first = six.records["none", 0]
    assert rows[0]["method"] == "none"
    assert float(rows[0]["error"]) == first.last["error"]
    assert rows[0]["key"] == first.cell.key
    assert set(EVALUATED) < set(rows[0])


def test_markdown_and_latex(six, page):
    text = (page.parent / "results.md").read_text()
    assert text.startswith("# made: does mixing help?\n\n**Verdict.** Compared with no mixing (")
    assert "| zeta:2.8 | **5.53 ± 0.55** |" in text
    assert "| zeta:2.4 | 6.53 ± 0.55 |" in text
    assert "`zetamix compare --data 'my photos'`" in text
    latex = (page.parent / "results.tex").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert r"zeta:2.8 & \textbf{5.53 $\pm$ 0.55} &" in latex
    assert r"error \%" in latex


def test_the_method_section_states_its_limits(six):
    text = " ".join(describe_method(six))
    assert "6 methods with 3 seeds each, on the same 1,200 training and 1,200 test samples" in text
    recipe = six.recipe
    assert (
        f"{recipe.model}, from scratch, 3 epochs, batch size {recipe.batch_size}, SGD with" in text
    )
    assert "not the choice of training and test samples" in text
    assert "Trained (2 processes side by side): 18 runs on" in text
    assert "The times of all runs add up to 9.0 minutes." in text


def test_runs_of_several_machines_are_listed():
    made = make_comparison({"none": [0.1, 0.1], "zeta:2.8": [0.1, 0.2]})
    made.records["none", 1].machine.update(gpu="NVIDIA H200", torch="2.11")
    text = next(line for line in describe_method(made) if line.startswith("Trained"))
    assert text.startswith("Trained: 3 runs on ")
    assert "; 1 run on NVIDIA H200 · torch 2.11" in text


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
    picture, calls = plotted(draw_curves, six)
    by_label = {}
    for arguments, style in calls:
        by_label.setdefault(style["label"], []).append(arguments)
    assert list(by_label) == ["no mixing", *six.methods[1:]]
    epochs, error = by_label["zeta:2.8"][0]
    assert epochs == [1, 2, 3]
    assert error == pytest.approx([3 * 5.5333, 2 * 5.5333, 5.5333], rel=1e-4)
    # validation beside test, then the other metric
    assert by_label["zeta:2.8"][1] == by_label["zeta:2.8"][0]
    assert by_label["zeta:2.8"][2][1][-1] == pytest.approx(2 * 0.055333, rel=1e-4)
    assert "test split and validation split" in picture.caption
    assert "bands" in picture.caption
    assert "bands" not in draw_curves(make_comparison({"none": [0.1]})).caption


def limits_of(comparison):
    """The figure of curves, and the limits of its two axes: error rate and NLL."""
    picture, calls = plotted(draw_curves, comparison, "set_ylim")
    # matplotlib's own calls name their arguments
    return picture, [limits for limits, options in calls if len(limits) == 2 and not options]


@pytest.mark.parametrize("spike", [None, 50.0, float("inf")])
def test_a_spike_does_not_flatten_the_curves(spike):
    made = make_comparison({"none": [0.1, 0.11], "zeta:2.8": [0.3, 0.31]}, epochs=30)
    _, usual = limits_of(made)
    if spike is not None:
        line = made.curves["none", 0][20]
        line["test"] = {**line["test"], "nll": spike}
    picture, limits = limits_of(made)
    # of the error rate, and of the negative log-likelihood but for the epoch left out
    assert limits[0] == usual[0]
    assert limits[1] == pytest.approx(usual[1], abs=0.05 * usual[1][1])
    assert ("; spikes in negative log-likelihood exceed" in picture.caption) == (spike == 50)


def test_a_method_that_is_far_worse_is_no_spike():
    made = make_comparison({**{label: [0.01] for label in SIX}, "zeta:4.0": [0.4]}, epochs=30)
    picture, limits = limits_of(made)
    assert "spikes" not in picture.caption
    assert limits[0][1] > 100 * 0.4


def test_without_validation_there_are_test_curves_alone():
    dataset = replace(make_dataset(), val=None)
    made = make_comparison({"none": [0.1], "zeta:2.8": [0.2]}, dataset=dataset, temperature=None)
    picture, calls = plotted(draw_curves, made)
    assert len(calls) == 2 * 2
    assert "validation" not in picture.caption


def test_records_of_earlier_versions_have_a_report(tmp_path):
    """They lack the scores after temperature scaling."""
    made = make_comparison({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.2]}, temperature=None)
    assert not any("T)" in head.name for head in main_table(made).heads)
    page = write_report(made, tmp_path, MACHINE_INFO).read_text()
    assert "No temperature scaling: not every run" in page
    found = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert "nll_scaled" not in found["methods"]["none"]


def test_curves_of_runs_that_were_evaluated_at_other_epochs():
    made = make_comparison({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.2]})
    del made.curves["none", 0][1]["test"]
    _, calls = plotted(draw_curves, made)
    assert calls[0][0][0] == [1, 3]


def test_a_run_whose_curve_was_deleted_has_a_report_without_curves(six, tmp_path):
    curves = {**six.curves, next(iter(six.curves)): []}
    page = write_report(replace(six, curves=curves), tmp_path, MACHINE)
    text = page.read_text()
    assert "Learning curves" not in text
    assert "Per-class recall" in text


def test_differences_show_seeds_means_and_intervals(six):
    _, seeds = plotted(draw_differences, six)
    assert [len(a[0]) for a, _ in seeds] == [3] * 10
    _, means = plotted(draw_differences, six, "errorbar")
    expected = [d for baseline in six.baselines for d in six.differences(baseline)]
    assert [a[0] for a, _ in means] == pytest.approx([100 * d.mean for d in expected])
    halves = [100 * (d.high - d.mean) for d in expected]
    assert [style["xerr"] for _, style in means] == pytest.approx(halves)
    filled = [style["markerfacecolor"] != "white" for _, style in means]
    assert filled == [d.significant for d in expected]


@pytest.mark.parametrize("classes", [3, 20, 40])
def test_confusion_of_few_and_many_classes(classes):
    dataset = make_dataset((10,) * classes, classes=[f"class {k}" for k in range(classes)])
    picture = draw_confusion(make_comparison({"none": [0.1], "zeta:2.8": [0.2]}, dataset=dataset))
    assert "of no mixing, zeta:2.8" in picture.alt


# the page


@needs_browser
@pytest.mark.parametrize("width", [1200, 500])
def test_the_report_opens_in_a_browser(six, page, width):
    seen = open_page(page, width=width).check()
    assert seen.title == "made: does mixing help?"
    assert seen.headings[1:] == [
        "All methods",
        "Differences",
        "Learning curves",
        "Classes",
        "Training inputs",
        "Method",
    ]
    assert len(seen.images) == 4
    for image in seen.images:
        assert image["width"] > 300
        assert len(image["caption"]) > 40
    assert [len(table) for table in seen.tables] == [7, 7, 4]
    assert seen.tables[0] == [
        [head.name for head in main_table(six).heads],
        *texts(main_table(six)),
    ]
    text = " ".join(seen.text.split())
    for _, sentence in summarise(six):
        assert sentence in text
    # the answer comes before anything else
    assert text.index("Compared with no mixing") < text.index("All methods")
    assert "zetamix compare --data 'my photos'" in text
    assert f"torch {torch.__version__}" in text


@needs_browser
@pytest.mark.parametrize(
    ("scores", "dataset", "images"),
    [
        ({"none": [0.1]}, {}, 3),
        ({"zeta:2.8": [0.1, 0.2]}, {"shape": (2,), "counts": (30, 30)}, 3),
        ({"none": [0.1], "mixup": [0.0]}, {"shape": (3, 120, 100)}, 4),
        (
            {"none": [0.0, 0.0], "local": [0.0, 0.0]},
            {"counts": (9, 9), "classes": ["<b>a</b> & c", "very long name of a class indeed"]},
            4,
        ),
    ],
    ids=["one run", "points", "photographs", "names"],
)
def test_small_comparisons_have_a_page_too(scores, dataset, images, tmp_path):
    made = make_comparison(scores, dataset=make_dataset(**dataset))
    seen = open_page(write_report(made, tmp_path, MACHINE_INFO)).check()
    assert len(seen.images) == images


def test_what_a_report_replaces_is_named(tmp_path):
    three = make_comparison({label: [0.1, 0.2] for label in ("none", "mixup:1.0", "zeta:2.8")})
    two = make_comparison({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.2]})
    assert describe_replaced(two, tmp_path) == ""
    write_report(three, tmp_path, MACHINE_INFO)
    assert describe_replaced(three, tmp_path) == ""
    assert "that also had mixup:1.0. Their runs are kept" in describe_replaced(two, tmp_path)
    # naming mixup would train it anew: the runs of before have another recipe
    longer = make_comparison({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.2]}, epochs=9)
    assert describe_replaced(longer, tmp_path) == (
        "It replaces a report with other data or settings (digitnet, 3 epochs, samples of 1 × 8 × "
        "8), whose runs are kept. To keep both reports, use another --out."
    )
    (tmp_path / "results.json").write_text("{")
    assert describe_replaced(two, tmp_path) == ""


def test_a_crash_leaves_the_old_page(tmp_path, monkeypatch):
    made = make_comparison({"none": [0.1, 0.2], "zeta:2.8": [0.1, 0.2]})
    page = write_report(made, tmp_path, MACHINE_INFO)
    before = page.read_text()
    monkeypatch.setattr("zetamix_lab.report.compare.class_table", lambda comparison: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(made, tmp_path, MACHINE_INFO)
    assert page.read_text() == before
    assert not list(tmp_path.rglob("*.part"))
