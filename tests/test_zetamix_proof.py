"""ZetaMix's search and proof: rounds, choice, verdict, and what the report shows of records."""

import pytest
import torch
from records_by_hand import run_record

from zetamix.experiments.reproduce import CellRequest, make_view, select_cells
from zetamix.experiments.reproduce.measure_context import MeasureContext
from zetamix.experiments.reproduce.smoke import synthetic_data
from zetamix.experiments.reproduce.zetamix_cells import measure_contrast
from zetamix.methods import parse
from zetamix.report.paper import make_report
from zetamix.results import zetamix_search as search
from zetamix.results.paper_cells import MeasurementCell, TrainingCell
from zetamix.results.record_store import RecordStore

ZETAMIX = parse("zetamix").full_label


def cells_of(id, store, **request):
    return select_cells(id, CellRequest(**request), store)


def made_errors(scores):
    """Errors of all runs that the rounds ask for, by a score of each method."""
    errors = {method: {} for method in search.METHODS}
    for _ in search.ROUNDS:
        for part, methods in search.plan_rounds(errors):
            for method in methods:
                for dataset, seed in part.pairs:
                    scale = {"cifar10": 0.2, "cifar100": 0.5, "fashion_mnist": 0.1}[dataset]
                    errors[method][dataset, seed] = scale * scores[method]
            if any(pair not in errors[m] for m in methods for pair in part.pairs):
                break
    return errors


def test_every_setting_is_spelled_out_and_parses_to_itself():
    assert len(search.FAMILY) == len(set(search.FAMILY)) == 24
    for label in search.METHODS:
        assert parse(label).label == label


def test_rounds_keep_the_better_settings_and_baselines_ahead_of_them():
    scores = {method: 1.0 + k / 100 for k, method in enumerate(search.METHODS)}
    best, worst = search.FAMILY[5], search.FAMILY[0]
    scores |= {best: 0.5, worst: 2.0, "switch": 0.6, "none": 3.0}
    errors = made_errors(scores)
    rounds = list(search.plan_rounds(errors))
    assert rounds[0][1] == list(search.METHODS)
    for part, methods in rounds[1:]:
        assert methods[:2] == [best, "switch"]
        assert len([m for m in methods if m in search.FAMILY]) == part.keep
        assert worst not in methods
        assert "none" not in methods
    choice = search.choose(errors)
    assert (choice.method, choice.rounds) == (best, len(search.ROUNDS))
    assert choice.finalists[:2] == [best, "switch"]
    assert len(choice.pairs) == 3 * 4


def test_a_round_to_come_is_planned_and_nothing_is_chosen_before_the_first():
    nothing = {method: {} for method in search.METHODS}
    sizes = [len(methods) for _, methods in search.plan_rounds(nothing)]
    assert sizes == [31, 8, 4, 2]
    assert search.choose(nothing) is None
    first = {m: {("cifar10", 0): 0.2 + k / 100} for k, m in enumerate(search.METHODS)}
    assert search.choose(first).rounds == 1
    # one run of the first round is missing: its setting comes last, and the round is not complete
    del first[search.FAMILY[0]]["cifar10", 0]
    assert search.choose(first) is None
    assert search.FAMILY[0] not in list(search.plan_rounds(first))[1][1]


def test_cells_of_the_search_follow_the_records(tmp_path):
    store = RecordStore(tmp_path)
    cells = cells_of("zetamix-search", store)
    assert {cell.subset.validation for cell in cells} == {5_000}
    first = [cell for cell in cells if (cell.dataset, cell.seed) == ("cifar10", 0)]
    assert cells[:31] == first
    for k, cell in enumerate(first):
        # the last of the list is the best
        store.add("zetamix-search", run_record(cell, 0.3 - k / 1000, extra=cell.extra))
    later = cells_of("zetamix-search", store)[31]
    assert (later.dataset, later.method) == ("cifar100", first[-1].method)
    # the same data, but not the same part of it: not a record of the proof
    own = {cell.dataset: cell for cell in cells_of("zetamix", store) if cell.subset is not None}
    assert store.runs_of(own["cifar10"]) == []
    every = cells_of("zetamix-search", store, seeds=(0, 7), datasets=("cifar100",))
    assert len(every) == 2 * 31


def test_the_report_of_a_search(tmp_path):
    store = RecordStore(tmp_path)
    for _ in search.ROUNDS:
        for cell in cells_of("zetamix-search", store):
            if store.find(cell) is None:
                error = 0.2 + search.METHODS.index(cell.method) / 500 + cell.seed / 1000
                extra = {**cell.extra, "new_bn": {"error": error - 0.01}}
                store.add("zetamix-search", run_record(cell, error, extra=extra))
    report = make_report(make_view("zetamix-search", store))
    assert report.verdict.status == "default chosen"
    name = "2 sources, γ 0–4, variance kept, 50 % pasted"
    assert (
        f"4 of 4 rounds the best setting of ZetaMix is {name}, with" in report.verdict.sentences[0]
    )
    assert report.verdict.sentences[1] == (
        "Significantly worse: 2 sources, γ 0–4, variance kept, 0 % pasted."
    )
    rows = report.tables["settings"].cells
    assert len(rows) == 31
    first = [cell.text() for cell in rows[0]]
    assert first[:3] == [name, "20.15 ± 0.13 (n = 4)", "1"]
    assert (first[-3], first[-1]) == ("1.0", "−1.00")
    assert rows[-1][3].value is None
    changes = {row[0].value: row[1].text() for row in report.tables["changes"].cells}
    assert changes["paste=0.0"] == "+0.20 ± 0.00 (n = 4)"


@pytest.mark.parametrize("status", ["target reached", "target not reached"])
def test_the_verdict_of_the_proof(status, tmp_path):
    store = RecordStore(tmp_path)
    cells = [cell for cell in cells_of("zetamix", store) if isinstance(cell, TrainingCell)]
    for cell in cells:
        error = 0.2 + 0.0001 * cell.seed
        error -= 0.05 if cell.method == ZETAMIX else 0.0
        if status == "target not reached" and cell.method == "cutmix:1.0":
            error = 0.1
        store.add("zetamix", run_record(cell, error, best=error, extra=cell.extra))
    view = make_view("zetamix", store)
    report = make_report(view)
    assert report.verdict.status == status
    ahead, behind = ("6", "0 comparisons") if status == "target reached" else ("0", "6 comparisons")
    sentence = report.verdict.sentences[0]
    assert f"no mixing, mixup and CutMix on {ahead} of 6 datasets" in sentence
    assert f"in {behind} (target: 0)" in sentence
    rows = {row[0].value: row[1:] for row in report.tables["zetamix"].cells}
    assert rows["no mixing"][0].text() == "20.05 ± 0.03* (n = 10)"
    assert rows["no mixing"][1].text().startswith("0.7995 ± 0.0003*")
    cutmix = rows["CutMix"][0]
    if status == "target not reached":
        assert (cutmix.suffix, cutmix.mark) == ("†", "best")
    else:
        assert rows["ZetaMix"][0].mark == "best"


def test_runs_of_other_tables_count_and_missing_ones_are_said(tmp_path):
    store = RecordStore(tmp_path)
    shared = [
        cell
        for cell in cells_of("natural", store, datasets=("cifar10",), methods=("none", "zeta:2.8"))
        if cell.variant.augmentation == "crop-flip"
    ]
    for cell in shared:
        store.add("natural", run_record(cell, 0.05))
    view = make_view("zetamix", store)
    assert len(view.records) == 6
    report = make_report(view)
    assert report.verdict.status == "not run"
    full = [row[5].text() for row in report.tables["zetamix"].cells]
    assert full == ["5.00 ± 0.00 (n = 3)", *["–"] * 4, "5.00 ± 0.00 (n = 3)", "–"]


def test_zetamix_is_asked_for_by_its_short_name(tmp_path):
    found = cells_of("zetamix", RecordStore(tmp_path), methods=("zetamix",), datasets=("cifar100",))
    assert {cell.method for cell in found} == {ZETAMIX}
    assert len(found) == 3


def test_contrast_is_lost_by_averaging_and_kept_by_zetamix(tmp_path):
    data = synthetic_data("cifar10", training=False)
    context = MeasureContext(RecordStore(tmp_path), torch.device("cpu"), tmp_path, data)
    recipe = {"split": "train", "images": 90, "batch": 32, "bins": 10, "top": 2.4}

    def contrast(method):
        values = measure_contrast(
            MeasurementCell("contrast", "cifar10", method, 0, recipe), context
        )
        assert sum(values.values["counts"]) == values.values["contrast"]["n"] == 90
        return values.values["contrast"]["value"]

    plain = contrast("none")
    assert contrast("zeta:1.8") < 0.8 * plain
    assert contrast("smoothing:0.1") == plain
    assert contrast("zetamix:paste=0") == pytest.approx(plain, rel=0.1)
