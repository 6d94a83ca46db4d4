"""Reports of the paper's artifacts: tables beside the paper, verdicts, figures, the page."""

import csv
import dataclasses
import io

import pytest
import torch
from browser import needs_browser, open_page
from golden import check_golden
from records_by_hand import FACTS, measurement, run_record

from paper.report import make_report
from paper.report.point_clouds import project
from paper.report.tables import comparison_table, readme_table, rows_of
from paper.report.write import empty_cells, write_artifact, write_page
from paper.reproduce import ARTIFACTS, CellRequest, make_view, select_cells
from paper.results.record_store import RecordStore
from zetamix.methods import parse
from zetamix_lab.provenance import FileRef
from zetamix_lab.text import sentence_case

# error rates by method, one per seed
ERRORS = {
    "none": (0.0479, 0.0485, 0.0491),
    "mixup:1.0": (0.0426, 0.0420, 0.0432),
    "zeta:2.4": (0.0480, 0.0476, 0.0486),
    "zeta:2.8": (0.0497, 0.0490, 0.0505),
    "zeta:4.0": (0.0430, 0.0418, 0.0436),
}


def fill(store, artifact="natural", errors=ERRORS, dataset="cifar10", variant="crop-flip"):
    """Records of one dataset, for every method and seed of `errors`."""
    augmentations = None if variant is None else (variant,)
    for cell in ARTIFACTS[artifact].cells(CellRequest((0, 1, 2), augmentations), store):
        values = errors.get(cell.method, ())
        if cell.dataset == dataset and cell.seed < len(values):
            store.add(artifact, run_record(cell, values[cell.seed]))
    return store


@pytest.fixture
def natural(tmp_path):
    return make_view("natural", fill(RecordStore(tmp_path / "results")))


def table_rows(table):
    lines = table.markdown().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def natural_rows(store):
    table = comparison_table(make_view("natural", store))
    return table_rows(table)[2:]


def test_a_table_has_the_papers_value_ours_and_the_difference(natural):
    head, _, *rows = table_rows(comparison_table(natural))
    assert head == [
        "dataset",
        "method",
        "error rate %, paper",
        "ours, crop-flip",
        "ours − paper, crop-flip",
        "ours, flip",
        "ours − paper, flip",
        "see",
    ]
    assert len(rows) == 30
    assert rows[0] == [
        "CIFAR-10",
        "no mixing",
        "5.48",
        "4.85 ± 0.06 (n = 3)",
        "−0.63",
        "–",
        "–",
        "",
    ]
    assert rows[1][2:5] == ["4.68", "**4.26 ± 0.06 (n = 3)**", "−0.42"]
    assert rows[2][2:5] == ["**4.42**", "4.81 ± 0.05 (n = 3)", "+0.39"]
    assert rows[3][2:5] == ["*4.67*", "4.97 ± 0.08 (n = 3)", "+0.30"]
    assert rows[4][2:5] == ["**4.42**", "*4.28 ± 0.09 (n = 3)*", "−0.14"]
    assert rows[5] == ["CIFAR-100", "no mixing", "23.33", "–", "–", "–", "–", "1"]


def test_best_is_marked_only_where_every_method_has_the_same_seeds(tmp_path):
    errors = {method: values[:2] for method, values in ERRORS.items()}
    store = RecordStore(tmp_path)
    # not run, and run with one seed of two
    for seeds in (0, 1):
        fill(store, errors=errors | {"mixup:1.0": errors["mixup:1.0"][:seeds]})
        assert not any("*" in row[3] for row in natural_rows(store))
    fill(store, errors=errors)
    assert [row[3][:1] for row in natural_rows(store)[:5]] == ["4", "*", "4", "4", "*"]
    table = comparison_table(make_view("natural", store))
    assert "marked where every method has the same seeds" in table.notes[0]


def test_footnotes_are_numbered_and_referred_to(natural):
    table = comparison_table(natural)
    notes = [note for note in table.notes if note.startswith("[")]
    assert notes[0].startswith("[1] CIFAR-100: the paper prints 10 classes")
    assert {row[0] for row in table_rows(table)[2:] if row[-1] == "3"} == {"STL-10"}


def test_variants_have_separate_columns(tmp_path):
    store = fill(RecordStore(tmp_path))
    fill(store, errors={"none": (0.0726,), "mixup:1.0": (0.0681,)}, variant="flip")
    row = natural_rows(store)[0]
    assert (row[3], row[5], row[6]) == ("4.85 ± 0.06 (n = 3)", "7.26 (n = 1)", "+1.78")


def test_csv_keeps_numbers_in_full_and_columns_apart(natural):
    text = comparison_table(natural).csv()
    head, first, *_ = csv.reader(io.StringIO(text))
    assert len(set(head)) == len(head)
    values = dict(zip(head, first, strict=True))
    assert float(values["ours, crop-flip"]) == pytest.approx(4.85)
    assert float(values["ours, crop-flip error"]) == pytest.approx(0.06)
    assert values["ours, crop-flip n"] == "3"


def test_with_a_validation_split_the_best_epoch_counts(tmp_path):
    store = RecordStore(tmp_path)
    cell = ARTIFACTS["medmnist"].cells(CellRequest(), store)[0]
    store.add("medmnist", run_record(cell, 0.3, best=0.2, test_size=100))
    row = rows_of(make_view("medmnist", store))[0]
    assert row.summary(cell.variant, "accuracy").mean == pytest.approx(80.0)


def test_a_metric_that_is_not_defined_is_empty(tmp_path):
    store = RecordStore(tmp_path)
    cell = ARTIFACTS["medmnist"].cells(CellRequest(), store)[0]
    record = run_record(cell, 0.3)
    record.last["auc"] = float("nan")
    store.add("medmnist", record)
    row = rows_of(make_view("medmnist", store))[0]
    assert row.summary(cell.variant, "auc") is None
    assert row.summary(cell.variant, "accuracy").mean == pytest.approx(70.0)


def outcomes(report):
    """What the table of differences says, by difference."""
    rows = report.tables["differences"].rows
    return {row[3]: row[-1] for row in rows}


def test_the_report_of_a_table(natural):
    """The golden text of a verdict and its table of differences."""
    report = make_report(natural)
    assert report.verdict.status == "partly reproduced"
    table = report.tables["differences"]
    check_golden("reproduce.txt", "\n\n".join([*report.verdict.sentences, table.markdown()]))


WIN = {"mixup:1.0": (0.05, 0.051, 0.049), "zeta:2.4": (0.04, 0.0411, 0.0392)}
LOSS = {"mixup:1.0": (0.04, 0.0411, 0.0392), "zeta:2.4": (0.05, 0.051, 0.049)}
TIE = {"mixup:1.0": (0.05, 0.052, 0.048), "zeta:2.4": (0.051, 0.049, 0.0505)}


@pytest.mark.parametrize(
    ("errors", "status", "states"),
    [
        (WIN, "reproduced", ["ahead"]),
        (LOSS, "not reproduced", ["behind"]),
        (TIE, "inconclusive", ["not significant"]),
        ({"mixup:1.0": (0.0426,), "zeta:2.4": (0.04,)}, "inconclusive", ["one seed"]),
        # only seeds that both methods have are paired
        ({"mixup:1.0": (0.05,), "zeta:2.4": (0.04, 0.01, 0.01)}, "inconclusive", ["one seed"]),
        (
            WIN | {"zeta:2.8": (0.06, 0.0611, 0.0592)},
            "partly reproduced",
            ["ahead", "behind"],
        ),
        (
            WIN | {"zeta:2.8": (0.051, 0.049, 0.0505)},
            "reproduced (incomplete)",
            ["ahead", "not significant"],
        ),
        (
            LOSS | {"zeta:2.8": (0.0401, 0.041, 0.0391)},
            "not reproduced (incomplete)",
            ["behind", "not significant"],
        ),
    ],
)
def test_status_and_outcome_of_each_comparison(tmp_path, errors, status, states):
    report = make_report(make_view("natural", fill(RecordStore(tmp_path), errors=errors)))
    assert report.verdict.status == status
    assert list(outcomes(report).values()) == states


def test_a_comparison_of_the_paper_counts_once_for_all_augmentations(tmp_path):
    store = fill(RecordStore(tmp_path))
    fill(store, errors={"mixup:1.0": (0.0681,), "zeta:2.8": (0.0752,)}, variant="flip")
    report = make_report(make_view("natural", store))
    assert "in 6 of the 6 comparisons" in report.verdict.sentences[0]
    assert len(report.tables["differences"].rows) == 7


def test_higher_is_better_for_accuracies(tmp_path):
    store = RecordStore(tmp_path)
    errors = {"mixup:1.0": (0.3, 0.31, 0.29), "zeta:2.4": (0.2, 0.211, 0.192)}
    fill(store, "skin", errors, "ph2", None)
    report = make_report(make_view("skin", store))
    rows = report.tables["differences"].rows
    assert [(row[1], row[4].value > 9.8, row[-1]) for row in rows] == [
        ("ResNet-18", True, "ahead"),
        ("ResNet-50", True, "ahead"),
    ]


@pytest.mark.parametrize("id", ARTIFACTS)
def test_nothing_run_is_nothing_claimed(id, tmp_path):
    report = make_report(make_view(id, RecordStore(tmp_path)))
    assert report.verdict.status == "not run"


def test_one_dataset_for_the_readme(natural):
    rows = table_rows(readme_table(natural, "cifar10"))
    assert rows[0] == ["error %", "paper", "ours, crop-flip", "ours, flip"]
    assert rows[5] == ["ζ-mixup (2.8)", "4.67", "4.97 ± 0.08 (n = 3)", "–"]
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("angles", "expected"),
    [
        ((0, 0), [2.0, 3.0]),
        ((90, 0), [2.0, -1.0]),
        ((0, 90), [-1.0, 3.0]),
    ],
)
def test_projections_are_those_of_the_captions(angles, expected):
    found = project(torch.tensor([[1.0, 2.0, 3.0]]), angles)
    torch.testing.assert_close(found, torch.tensor([expected]), atol=1e-6, rtol=0)


def measured(cell, values):
    fields = ("kind", "dataset", "method", "recipe")
    return measurement(**{name: getattr(cell, name) for name in fields}, values=values)


def add_dimensions(store, dataset, neighbours, values):
    for cell in ARTIFACTS["dimension"].cells(CellRequest(), store):
        is_curve = (cell.dataset, cell.recipe["neighbours"]) == (dataset, neighbours)
        if is_curve and cell.method in values:
            estimate = {"n": 100, "value": values[cell.method], "spread": 0.5}
            store.add("dimension", measured(cell, estimate | {"standard_error": 0.05}))


def test_dimension_has_the_gamma_from_which_zeta_mixup_is_lower(tmp_path):
    store = RecordStore(tmp_path)
    levels = {"none": 10.0, "mixup:1.0": 14.0}
    zeta = {"zeta:2.0": 15.0, "zeta:2.8": 9.0, "zeta:4.0": 10.0}
    add_dimensions(store, "cifar10", 128, levels | zeta)
    add_dimensions(store, "helix", 8, {"none": 1.0, "mixup:1.0": 3.0, "zeta:2.8": 3.0})
    # 8 neighbours span 7 dimensions: saturated, and not counted
    add_dimensions(store, "cifar10", 8, {"none": 6.99, "mixup:1.0": 6.8, "zeta:2.8": 7.0})
    report = make_report(make_view("dimension", store))
    assert report.verdict.status == "partly reproduced"
    (sentence,) = report.verdict.sentences
    assert "inflates the dimension in 2 of 2 cases" in sentence
    assert "lower than that of mixup in 1 of them," in sentence
    assert "not counted: CIFAR-10, k = 8." in sentence
    rows = {row[0]: row for row in table_rows(report.tables["dimension"])}
    assert rows["CIFAR-10, k = 128"][1:4] == ["10.00 ± 0.50", "14.00 ± 0.50", "15.00 ± 0.50"]
    assert rows["CIFAR-10, k = 128"][-1] == "2.80"
    assert rows["1-D helix in R³, k = 8"][-1] == "–"
    assert rows["CIFAR-100, k = 8"][1] == "–"


def test_an_incomplete_dimension_is_labelled(tmp_path):
    store = RecordStore(tmp_path)
    add_dimensions(store, "helix", 8, {"none": 1.0, "mixup:1.0": 3.0, "zeta:15.0": 1.0})
    verdict = make_report(make_view("dimension", store)).verdict
    assert verdict.status == "reproduced (incomplete)"
    add_dimensions(store, "helix", 8, {"zeta:2.8": 3.5})
    verdict = make_report(make_view("dimension", store)).verdict
    assert verdict.status == "partly reproduced"


def test_times_stand_beside_the_papers_and_devices_apart(tmp_path):
    store = RecordStore(tmp_path)
    medians = {
        "copy": 10.0,
        "zetamix ZetaMixup": 80.0,
        "zetamix Mixup": 82.0,
        "paper listing": 700.0,
        "mixup, original": 120.0,
        "local synthetic instances": 900.0,
    }
    for cell in ARTIFACTS["timing"].cells(CellRequest(), store):
        if cell.kind == "training-time" and cell.dataset == "cifar10":
            seconds = {"none": 1.0, "mixup:1.0": 1.2, "zeta:2.8": 1.26}[cell.method]
            values = {"epoch_s": seconds, "epoch_s_std": 0.01, "timed": 5, "compiled": True}
            store.add("timing", measured(cell, values))
        elif cell.kind == "batch-time" and cell.device == "cuda":
            times = ("median_us", "p20_us", "p80_us")
            rows = [
                {"contender": name, "mode": "eager"} | dict.fromkeys(times, us)
                for name, us in medians.items()
            ]
            store.add("timing", measured(cell, {"rows": rows}))
    report = make_report(make_view("timing", store))
    assert report.verdict.status == "not reproduced"
    (sentence,) = report.verdict.sentences
    # 1.26 / 1.2, and 1.05 √((0.01 / 1.26)² / 5 + (0.01 / 1.2)² / 5); the paper: 81 and 79 minutes
    assert "takes 1.050 ± 0.005 times as long" in sentence
    assert "the paper's ratio is 1.025" in sentence
    assert "takes 5.83 times as long" in sentence
    training = table_rows(report.tables["training"])
    assert training[3] == [
        "CIFAR-10",
        "mixup",
        "79.00 ± 0.50",
        "4.00 ± 0.03",
        "−75.00",
        "1.200 ± 0.010 (n = 5)",
        "cuda",
    ]
    batch = table_rows(report.tables["batch"])[2:]
    assert {row[0] for row in batch} == {"cuda"}
    ours = ["cuda", "ζ-mixup, zetamix", "eager", "345.0 ± 2.5", "80.0", "−265.0", "80.0", "80.0"]
    assert ours in batch
    assert batch[-1][1:4] == ["local synthetic instances, zetamix", "eager", "38,700.0 ± 1,330.0"]


def test_sensitivity_has_a_column_for_each_recipe(tmp_path):
    store = RecordStore(tmp_path)
    for cell in ARTIFACTS["sensitivity"].cells(CellRequest(None, ("crop-flip",), 30), store):
        if cell.dataset == "cifar10" and not cell.in_sweep:
            gamma = float(cell.method.removeprefix("zeta:"))
            store.add("sensitivity", run_record(cell, 0.05 + 0.01 * (gamma - 3) ** 2))
    report = make_report(make_view("sensitivity", store))
    head, _, *rows = table_rows(report.tables["sensitivity"])
    short = "CIFAR-10, crop-flip, shortened to 30 epochs"
    assert head == ["γ", "CIFAR-10, flip", short, "CIFAR-100, flip"]
    assert len(rows) == 17
    assert rows[0] == ["1.8", "–", "6.44 (n = 1)", "–"]
    assert report.verdict.status == "inconclusive"
    sentence = report.verdict.sentences[1]
    assert "from 5.00 % at γ = 3.0 to 9.00 % at γ = 5.0" in sentence
    # √(0.05 · 0.95 / 10,000) is 0.22 points: γ that are closer to the best
    assert "0.22 points" in sentence
    assert sentence.endswith("γ = 2.6, 2.8, 3.0, 3.2, 3.4.")


def test_a_sweep_is_drawn_from_the_models_that_were_run(tmp_path):
    store = RecordStore(tmp_path)
    cells = ARTIFACTS["sensitivity"].cells(CellRequest(), store)
    sweep = [cell for cell in cells if cell.in_sweep and cell.dataset == "cifar10"]
    for cell in sweep[:20]:
        store.add("sensitivity", run_record(cell, 0.08 - 30 * cell.recipe.weight_decay))
    report = make_report(make_view("sensitivity", store))
    assert [picture.name for picture in report.pictures] == ["sensitivity", "sweep-cifar10-flip"]
    assert ": 20 models" in report.pictures[1].caption
    # the grid is separate, and empty
    assert all(row[1] == "–" for row in table_rows(report.tables["sensitivity"])[2:])


def test_an_artifact_is_written_in_every_format(natural, tmp_path):
    folder = tmp_path / "files"
    write_artifact(natural, folder)
    names = {
        f"{table}.{form}" for table in ("natural", "differences") for form in ("md", "tex", "csv")
    }
    assert {path.name for path in folder.iterdir()} == {"report.html", *names}
    page = (folder / "report.html").read_text()
    assert "15 of 180 cells" in page
    assert (
        "python -m paper data prepare cifar100 &amp;&amp; zetamix reproduce natural "
        "--datasets cifar100" in page
    )
    assert "Measured on a GPU · torch 2.11 · commit abc1234." in page
    assert r"4.85 $\pm$ 0.06 (n = 3)" in (folder / "natural.tex").read_text()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_artifact(natural, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@needs_browser
@pytest.mark.slow
def test_the_page_opens_and_shows_what_is_empty(tmp_path):
    store = fill(RecordStore(tmp_path / "results"))
    fill(store, variant="flip", errors={"zeta:2.8": (0.07,)})
    add_dimensions(store, "helix", 8, {"none": 1.0})
    path = tmp_path / "results" / "index.html"
    ids = ["natural", "dimension", "sensitivity", "timing"]
    write_page([make_view(id, store) for id in ids], path, FACTS)
    opened = open_page(path).check()
    assert opened.headings[0] == "Reproduction of ζ-mixup"
    assert opened.headings[1] == "What was reproduced"
    titles = [sentence_case(ARTIFACTS[id].title) for id in ids]
    assert opened.headings[2:] == titles
    verdicts = [row[1:] for row in opened.tables[0][1:]]
    # by verdict, with those that were not run last
    assert verdicts[0] == ["partly reproduced", "16 of 180"]
    assert verdicts[-1][0] == "not run"
    assert [image["alt"].split()[0] for image in opened.images] == ["One", "Error"]
    assert opened.tables[1][1][:4] == ["CIFAR-10", "no mixing", "5.48", "4.85 ± 0.06 n = 3"]
    assert opened.tables[1][6][3] == "–"
    cells = [cell for table in opened.tables for row in table for cell in row]
    assert "zetamix reproduce sensitivity --datasets cifar10" in " ".join(cells)
    assert open_page(path, width=500).overflow <= 0


def test_methods_of_ours_have_rows_and_no_say_in_the_verdict(tmp_path):
    store = fill(RecordStore(tmp_path))
    before = make_report(make_view("natural", store))
    cell = ARTIFACTS["natural"].cells(CellRequest((0,), ("crop-flip",)), store)[0]
    for method in ("switch", parse("zetamix").full_label):
        store.add("zetamix", run_record(dataclasses.replace(cell, method=method), 0.01))
    after = make_report(make_view("natural", store))
    rows = [row for row in table_rows(after.tables["natural"]) if row[1].endswith("(ours)")]
    assert [row[:4] for row in rows] == [
        ["CIFAR-10", "mixup/CutMix switch (ours)", "–", "1.00 (n = 1)"],
        ["CIFAR-10", "ZetaMix (ours)", "–", "1.00 (n = 1)"],
    ]
    assert after.verdict == before.verdict
    assert after.tables["differences"] == before.tables["differences"]
    # neither is the best of the paper's methods
    plain = [row for row in table_rows(after.tables["natural"]) if not row[1].endswith("(ours)")]
    assert plain == table_rows(before.tables["natural"])


def test_skin_says_what_its_networks_start_from(tmp_path):
    file = tmp_path / "imagenet.pth"
    file.write_bytes(b"weights")
    store = RecordStore(tmp_path / "results")
    request = CellRequest(datasets=("isic2017",), models=("resnet18",), methods=("none",))
    (scratch,) = select_cells("skin", request, store)
    (tuned,) = select_cells("skin", dataclasses.replace(request, weights=FileRef.read(file)), store)
    assert tuned != scratch
    note = "copies of 256 × 256 pixels, used as they are"
    for cell, error in ((scratch, 0.3), (tuned, 0.2)):
        record = run_record(cell, error)
        extra = {**record.extra, "notes": [note]}
        store.add("skin", dataclasses.replace(record, extra=extra))
    table = make_report(make_view("skin", store)).tables["skin"]
    heads = [head.name for head in table.heads]
    assert "ours, from scratch" in heads
    assert "ours, from imagenet.pth" in heads
    assert f"ISIC 2017: {note}." in table.notes


def test_empty_cells_have_commands_that_fill_them_where_they_are(tmp_path):
    store = fill(RecordStore(tmp_path / "my results"))
    folder = f"'{tmp_path / 'my results'}'"
    view = make_view("natural", store)
    notes = [cell.note for row in make_report(view).tables["natural"].cells for cell in row]
    assert (
        "fill it with: zetamix reproduce natural --datasets cifar10 --models resnet18 --methods "
        f"none --augmentation flip --out {folder}"
    ) in notes
    # cells of a CPU and of a GPU need a command each
    rows = table_rows(empty_cells(make_view("timing", store)))
    command = next(row[2] for row in rows if row[0] == "no data needed")
    start = "zetamix reproduce timing --device"
    assert command == f"{start} cpu --out {folder} && {start} cuda --out {folder}"
