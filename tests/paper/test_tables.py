"""Tables of trained models: the paper's value beside ours, differences, files, the page."""

import csv

import pytest
from factories import run_record
from test_values import cells_of

from paper.artifacts import draw, make_view
from paper.page import write_artifact
from paper.records import RecordStore
from paper.tables import compare, runs_of

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
    for cell in cells_of(artifact, datasets=(dataset,), seeds=(0, 1, 2)):
        values = errors.get(cell.method, ())
        if cell.recipe.augmentation == variant and cell.seed < len(values):
            store.add(artifact, run_record(cell, values[cell.seed]))
    return store


@pytest.fixture
def natural(tmp_path):
    return make_view("natural", fill(RecordStore(tmp_path / "results")))


def table_rows(table):
    lines = table.markdown().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def natural_rows(store):
    return table_rows(draw(make_view("natural", store)).tables["natural"])[2:]


def test_a_table_has_the_papers_value_ours_and_the_difference(natural):
    table = draw(natural).tables["natural"]
    head, _, *rows = table_rows(table)
    variants = ["ours, crop-flip", "ours − paper, crop-flip", "ours, flip", "ours − paper, flip"]
    assert head == ["dataset", "method", "error rate %, paper", *variants]
    assert len(rows) == 30
    ours = ["4.85 ± 0.06 (n = 3)", "−0.63", "–", "–"]
    assert rows[0] == ["CIFAR-10", "no mixing", "5.48", *ours]
    assert rows[2][2:5] == ["4.42", "4.81 ± 0.05 (n = 3)", "+0.39"]
    assert rows[5] == ["CIFAR-100", "no mixing", "23.33", "–", "–", "–", "–"]
    both = fill(natural.store, errors={"none": (0.0726,), "mixup:1.0": (0.0681,)}, variant="flip")
    row = natural_rows(both)[0]
    assert (row[3], row[5], row[6]) == ("4.85 ± 0.06 (n = 3)", "7.26 (n = 1)", "+1.78")
    assert "About the paper: CIFAR-100: the paper prints 10 classes, there are 100." in table.notes


def test_with_a_validation_split_the_best_epoch_counts(tmp_path):
    store = RecordStore(tmp_path)
    record = run_record(cells_of("medmnist")[0], 0.3, best=0.2, test_size=100)
    # a metric that is not defined is left out
    record.best["auc"] = float("nan")
    store.add("medmnist", record)
    found = runs_of(make_view("medmnist", store))
    assert dict(zip(found["metric"], found["value"], strict=True)) == {
        "accuracy": pytest.approx(80.0)
    }


WIN = {"mixup:1.0": (0.05, 0.051, 0.049), "zeta:2.4": (0.04, 0.0411, 0.0392)}
LOSS = {"mixup:1.0": (0.04, 0.0411, 0.0392), "zeta:2.4": (0.05, 0.051, 0.049)}
TIE = {"mixup:1.0": (0.05, 0.052, 0.048), "zeta:2.4": (0.051, 0.049, 0.0505)}


@pytest.mark.parametrize(
    ("errors", "outcomes"),
    [
        (WIN, ["ahead"]),
        (LOSS, ["behind"]),
        (TIE, ["not significant"]),
        ({"mixup:1.0": (0.0426,), "zeta:2.4": (0.04,)}, ["one seed"]),
        # only seeds that both methods have are paired
        ({"mixup:1.0": (0.05,), "zeta:2.4": (0.04, 0.01, 0.01)}, ["one seed"]),
        (WIN | {"zeta:2.8": (0.06, 0.0611, 0.0592)}, ["ahead", "behind"]),
    ],
)
def test_the_outcome_of_each_comparison(tmp_path, errors, outcomes):
    view = make_view("natural", fill(RecordStore(tmp_path), errors=errors))
    found = compare(view, runs_of(view))
    assert found["outcome"].tolist() == outcomes
    assert found["printed"].iloc[0] == pytest.approx(4.42 - 4.68)
    rows = table_rows(draw(view).tables["differences"])[2:]
    assert [row[-1] for row in rows] == outcomes


def test_higher_is_better_for_accuracies(tmp_path):
    store = RecordStore(tmp_path)
    errors = {"mixup:1.0": (0.3, 0.31, 0.29), "zeta:2.4": (0.2, 0.211, 0.192)}
    view = make_view("skin", fill(store, "skin", errors, "ph2", "none"))
    found = compare(view, runs_of(view))
    assert found["model"].tolist() == ["resnet18", "resnet50"]
    assert (found["mean"] > 9.8).all()
    assert found["outcome"].tolist() == ["ahead", "ahead"]


def test_notes_of_records_about_their_data_are_notes_of_the_table(tmp_path):
    store, note = RecordStore(tmp_path), "copies of 256 × 256 pixels, used as they are"
    cell = cells_of("skin", datasets=("isic2017",), methods=("none",))[0]
    store.add("skin", run_record(cell, 0.3, extra={"notes": [note]}))
    table = draw(make_view("skin", store)).tables["skin"]
    assert "ours, from scratch" in table.columns
    assert f"ISIC 2017: {note}." in table.notes


def test_an_artifact_is_written_in_every_format(natural, tmp_path):
    folder = tmp_path / "files"
    write_artifact(natural, folder)
    names = {
        f"{table}.{form}" for table in ("natural", "differences") for form in ("md", "tex", "csv")
    }
    assert {path.name for path in folder.iterdir()} == {"report.html", *names}
    page = (folder / "report.html").read_text()
    assert "15 of 180 cells" in page
    assert "Measured on a GPU · torch 2.11 · commit abc1234." in page
    assert r"4.85 $\pm$ 0.06 (n = 3)" in (folder / "natural.tex").read_text()
    head, first, *_ = csv.reader((folder / "natural.csv").read_text().splitlines())
    assert float(dict(zip(head, first, strict=True))["ours, crop-flip error"]) == pytest.approx(
        0.06
    )
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_artifact(natural, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
