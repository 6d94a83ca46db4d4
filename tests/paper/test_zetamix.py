"""ZetaMix: the search for its default on validation data, and its comparison on test data."""

import pytest
from factories import run_record
from test_figures import context_of, images
from test_values import cells_of

from paper import search
from paper.artifacts import draw, make_view
from paper.comparison import LATE, RIVAL, measure_contrast
from paper.drawing import ZETAMIX
from paper.records import MeasurementCell, RecordStore, TrainingCell
from zetamix.methods import parse


def test_every_setting_is_spelled_out_and_parses_to_itself():
    assert len(set(search.FAMILY)) == 24
    for label in (*search.METHODS, *search.CONTROLS, *LATE.values()):
        assert parse(label).label == label
    assert [parse(control).until for control in search.CONTROLS] == [0.8, 0.8]


def search_records(store, error_of):
    """Records of every run of the rounds."""
    for cell in cells_of("zetamix-search"):
        store.add("zetamix-search", run_record(cell, error_of(cell), extra=cell.extra))
    view = make_view("zetamix-search", store)
    return search.errors_of(view), view


def error_in_order(cell):
    """The first setting of the list is the best; controls are as good as the second."""
    place = search.METHODS.index(cell.method) if cell.method in search.METHODS else 1
    return 0.2 + place / 500 + cell.seed / 1000


def test_the_tables_of_a_search(tmp_path):
    errors, view = search_records(RecordStore(tmp_path), error_in_order)
    tables = draw(view).tables
    rows = tables["settings"].cells
    assert len(rows) == 31
    # four seeds of two settings, two of the next two, one on each dataset of eight
    assert [row[1].n for row in rows[:9]] == [4, 4, 2, 2, 1, 1, 1, 1, 1]
    assert rows[-1][2].value is None
    controls = {row[0].value: row for row in tables["controls"].cells}
    names = ["mixup, until = 0.8", "mixup/CutMix switch, until = 0.8"]
    assert list(controls)[2:] == names
    # the finalists on the two seeds that the controls were run with, and not on their other two
    assert [row[1].n for row in controls.values()] == [2, 2, 2, 2]
    # which do not affect relative errors
    ranked, before = list(search.METHODS), search.relative_errors(errors)
    errors.loc[list(search.CONTROLS)] = 0.001
    assert before.loc[ranked].equals(search.relative_errors(errors).loc[ranked])


def compare_records(store, error_of):
    for cell in cells_of("zetamix"):
        if isinstance(cell, TrainingCell):
            # the best epoch is another one: the last one counts
            store.add("zetamix", run_record(cell, error_of(cell), best=0.5, extra=cell.extra))
    table = draw(make_view("zetamix", store)).tables["zetamix"]
    return {row[0].value: row[1:] for row in table.cells}


@pytest.mark.parametrize("is_best", [True, False])
def test_only_what_is_significant_is_marked(tmp_path, is_best):
    def error_of(cell):
        error = 0.2 + 0.0001 * cell.seed
        if cell.method == LATE["cutmix:1.0"]:
            return error if is_best else 0.1
        return error - (0.05 if cell.method == ZETAMIX else 0.0)

    rows = compare_records(RecordStore(tmp_path), error_of)
    assert rows["no mixing"][0].text() == "20.05 ± 0.03*"
    # by the AUC of the last epoch
    assert rows["no mixing"][1].text() == "0.7995 ± 0.0003*"
    assert rows["ZetaMix"][0].mark == ("best" if is_best else "")
    assert rows["CutMix, until = 0.8"][0].mark == ("" if is_best else "best")
    assert {row[0].mark for name, row in rows.items() if "ZetaMix" not in name} <= {"", "best"}
    rival = rows[RIVAL][0].value
    assert ": −5.00 (" in rival if is_best else rival.startswith("CutMix, until = 0.8: +5.04 (")


def test_a_difference_by_chance_is_not_marked(tmp_path):
    noise = {("none", 0): 0.03, ("none", 1): -0.02, (ZETAMIX, 2): 0.01}
    rows = compare_records(
        RecordStore(tmp_path), lambda c: 0.2 + noise.get((c.method, c.seed), 0.001 * c.seed)
    )
    texts = [cell.text() for name, row in rows.items() if name != RIVAL for cell in row]
    assert not any("*" in text for text in texts)
    assert {cell.mark for row in rows.values() for cell in row} == {""}


def test_runs_of_other_tables_count(tmp_path):
    store = RecordStore(tmp_path)
    for cell in cells_of("natural", datasets=("cifar10",), methods=("none", "zeta:2.8")):
        # fewer seeds are said
        if cell.recipe.augmentation == "crop-flip" and (cell.method, cell.seed) != ("none", 2):
            store.add("natural", run_record(cell, 0.05))
    view = make_view("zetamix", store)
    assert len(view.records) == 5
    full = {row[0].value: row[1].text() for row in draw(view).tables["zetamix"].cells}
    assert {name: text for name, text in full.items() if text != "–"} == {
        "no mixing": "5.00 ± 0.00 (n = 2)",
        "ζ-mixup (2.8)": "5.00 ± 0.00",
    }
    table = draw(make_view("zetamix", store)).tables["zetamix"]
    assert table.columns[1] == "CIFAR-10, error %, 3 seeds"


def test_contrast_is_lost_by_averaging_and_kept_by_zetamix(tmp_path):
    context = context_of(tmp_path, images("cifar10", 10, 100, (3, 16, 16)))
    recipe = {"split": "train", "images": 90, "batch": 32, "bins": 10, "top": 2.4}

    def contrast(method):
        cell = MeasurementCell("contrast", "cifar10", method, 0, recipe)
        values = measure_contrast(cell, context)
        assert sum(values["counts"]) == values["contrast"]["n"] == 90
        return values["contrast"]["value"]

    plain = contrast("none")
    assert contrast("zeta:1.8") < 0.8 * plain
    assert contrast("smoothing:0.1") == plain
    assert contrast("zetamix:paste=0") == pytest.approx(plain, rel=0.1)
