"""ZetaMix's search and proof: rounds, choice, verdict, and what the report shows of records."""

from statistics import fmean

import pytest
import torch
from records_by_hand import run_record

from paper.report import make_report
from paper.report.zetamix_search_text import setting_name
from paper.reproduce import CellRequest, make_view, select_cells
from paper.reproduce.measure_context import MeasureContext
from paper.reproduce.smoke import synthetic_data
from paper.reproduce.zetamix_cells import measure_contrast
from paper.results import zetamix_search as search
from paper.results.paper_cells import MeasurementCell, TrainingCell
from paper.results.record_store import RecordStore
from zetamix.methods import parse
from zetamix_lab.provenance import FileRef

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
    for label in (*search.METHODS, *search.CONTROLS):
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


def test_controls_belong_to_the_last_round_and_change_nothing(tmp_path):
    """The cells have them; ranks, the rounds that are complete and the choice do not."""
    scores = {method: 1.0 + k / 100 for k, method in enumerate(search.METHODS)}
    errors = made_errors(scores)
    plain, rounds = search.choose(errors), list(search.plan_rounds(errors))
    # far better than anything, on one dataset only: its mean would become another
    controls = {
        control: {("fashion_mnist", 2): 0.0001, ("fashion_mnist", 3): 0.0001}
        for control in search.CONTROLS
    }
    assert search.choose({**errors, **controls}) == plain
    assert list(search.plan_rounds({**errors, **controls})) == rounds
    best, pairs = plain.method, plain.pairs
    alone = search.relative_errors(best, errors, pairs)
    assert search.relative_errors(best, {**errors, **controls}, pairs) == alone

    cells = cells_of("zetamix-search", RecordStore(tmp_path))
    found = [cell for cell in cells if cell.method in search.CONTROLS]
    assert {(cell.dataset, cell.seed) for cell in found} == set(search.ROUNDS[-1].pairs)
    assert len(found) == 12
    assert [parse(cell.method).until for cell in found] == [0.8] * 12


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
    assert len(every) == 2 * (31 + 2)


def run_search(store, error_of, only=lambda cell: True):
    """Records of every run that the rounds ask for."""
    for _ in search.ROUNDS:
        for cell in cells_of("zetamix-search", store):
            if store.find(cell) is None and only(cell):
                error = error_of(cell)
                extra = {**cell.extra, "new_bn": {"error": error - 0.01}}
                store.add("zetamix-search", run_record(cell, error, extra=extra))


def error_in_order(cell):
    """The first setting of the list is the best; controls are as good as the second."""
    place = search.METHODS.index(cell.method) if cell.method in search.METHODS else 1
    return 0.2 + place / 500 + cell.seed / 1000


def test_the_report_of_a_search(tmp_path):
    store = RecordStore(tmp_path)
    run_search(store, error_in_order)
    report = make_report(make_view("zetamix-search", store))
    assert report.verdict.status == "default chosen"
    name = "2 sources, γ 0–4, variance kept, 50 % pasted"
    sentences = report.verdict.sentences
    assert f"4 of 4 rounds (71 runs) the best setting of ZetaMix is {name}. It" in sentences[0]
    assert sentences[1] == (
        f"The default of ZetaMix is different: {setting_name(parse('zetamix').full_label)}."
    )
    assert (
        "20.00, compared with no mixing 24.80 (+4.80), mixup/CutMix switch 25.00 (+5.00)"
        in (sentences[2])
    )
    assert sentences[3] == (
        "Significantly worse (95 %, paired over 12 runs each, Holm's correction): 0 % pasted."
    )
    assert "stopping early (until) explain it? No. Relative" in sentences[4]
    assert len(sentences) == 5
    rows = report.tables["settings"].cells
    assert len(rows) == 31
    first = [cell.text() for cell in rows[0]]
    assert first[:2] == [name, "20.15 ± 0.13 (n = 4)"]
    assert first[-1] == "−1.00"
    assert rows[-1][2].value is None
    assert [picture.name for picture in report.pictures] == ["zetamix-search"]


def test_what_an_option_changes_is_over_all_settings_that_differ_in_it_only(tmp_path):
    store = RecordStore(tmp_path)
    run_search(store, error_in_order)
    errors = search.read_errors(store, {c.dataset: c for c in cells_of("zetamix-search", store)})
    found = {(c.option, c.value): c.comparisons for c in search.compare_options(errors)}
    assert len(found) == len(search.SINGLE_CHANGES)
    kept = {label for label, _, _ in found["keep_variance", "no"]}
    changes = ({}, {"paste": 0.0}, {"sources": 3, "gamma": "0.0..3.0", "paste": 0.0})
    assert kept == {search.spell(change) for change in changes}
    for (label, dataset, seed), (before, after) in found["until", 0.9].items():
        assert before == errors[label][dataset, seed]
        assert after == errors[label.replace("until=1.0", "until=0.9")][dataset, seed]
    table = make_report(make_view("zetamix-search", store)).tables["changes"]
    cell = {row[0].value: row for row in table.cells}["50 % pasted → 0 % pasted"][1]
    points = [
        100 * (after - before)
        for (_, dataset, _), (before, after) in found["paste", 0.0].items()
        if dataset == "cifar10"
    ]
    # of the centre with four seeds, and of other settings
    assert len(points) > 4
    assert (cell.value, cell.n) == (pytest.approx(fmean(points)), len(points))


@pytest.mark.parametrize(
    ("error", "answer"), [(0.3, "No."), (0.1, "Yes, as far as these runs show.")]
)
def test_whether_stopping_early_explains_the_choice(error, answer, tmp_path):
    store = RecordStore(tmp_path)
    run_search(
        store,
        lambda c: error + c.seed / 1000 if c.method in search.CONTROLS else error_in_order(c),
    )
    report = make_report(make_view("zetamix-search", store))
    asked = [s for s in report.verdict.sentences if s.startswith("Does stopping early")]
    assert len(asked) == 1
    assert f"explain it? {answer}" in asked[0]
    rows = {row[0].value: row for row in report.tables["controls"].cells}
    assert list(rows)[2:] == ["mixup, until = 0.8", "mixup/CutMix switch, until = 0.8"]
    # the finalists on the two seeds that the controls were run with, and not on their other two
    assert [row[1].text() for row in rows.values()] == [
        "20.25 ± 0.07 (n = 2)",
        "20.45 ± 0.07 (n = 2)",
        *[f"{100 * error + 0.25:.2f} ± 0.07 (n = 2)"] * 2,
    ]
    # never the choice
    assert report.verdict.sentences[0].count("until = 0.8") == 0


def test_controls_that_differ_by_chance_decide_nothing(tmp_path):
    store = RecordStore(tmp_path)
    noise = {("cifar10", 2): 0.01, ("cifar10", 3): -0.008}

    def error_of(cell):
        if cell.method in search.CONTROLS:
            return 0.2005 + cell.seed / 1000 + noise.get((cell.dataset, cell.seed), 0.0)
        return error_in_order(cell)

    run_search(store, error_of)
    sentences = make_report(make_view("zetamix-search", store)).verdict.sentences
    assert any("explain it? Not decided." in sentence for sentence in sentences)


def test_a_search_without_its_last_round_says_so(tmp_path):
    store = RecordStore(tmp_path)
    best = search.FAMILY.index(ZETAMIX)

    def error_of(cell):
        return error_in_order(cell) - (0.1 if cell.method == search.FAMILY[best] else 0.0)

    run_search(store, error_of, only=lambda cell: cell.seed < 2)
    report = make_report(make_view("zetamix-search", store))
    assert report.verdict.status == "default chosen (incomplete)"
    assert "which is its default" in report.verdict.sentences[0]
    asked = report.verdict.sentences[-1]
    names = "mixup, until = 0.8 and mixup/CutMix switch, until = 0.8"
    assert asked.startswith(f"Does stopping early (until) explain it? Not run: {names}")
    assert "controls" not in report.tables
    # the finalists alone: the choice is complete, and the question still is not answered
    run_search(store, error_of, only=lambda cell: cell.method not in search.CONTROLS)
    report = make_report(make_view("zetamix-search", store))
    assert report.verdict.status == "default chosen"
    assert "explain it? Not run" in report.verdict.sentences[-1]


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


def test_nothing_is_marked_where_methods_have_other_seeds(tmp_path):
    """The best of one seed beside means of two would be the luckiest."""
    store = RecordStore(tmp_path)
    cells = cells_of("zetamix", store, datasets=("breastmnist",), seeds=(0, 1))
    *most, last = [cell for cell in cells if isinstance(cell, TrainingCell)]
    assert (last.method, last.seed) == (ZETAMIX, 1)
    for cell in most:
        error = 0.1 if cell.method == ZETAMIX else 0.2
        store.add("zetamix", run_record(cell, error, best=error, extra=cell.extra))

    def marks():
        rows = make_report(make_view("zetamix", store)).tables["zetamix"].cells
        return {row[0].value: row[2].mark for row in rows}

    assert {*marks().values()} == {""}
    store.add("zetamix", run_record(last, 0.1, best=0.1, extra=last.extra))
    assert marks()["ZetaMix"] == "best"


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


def test_weights_reach_every_run(tmp_path):
    file = tmp_path / "imagenet.pth"
    file.write_bytes(b"weights")
    weights, store = FileRef.read(file), RecordStore(tmp_path / "results")
    for id in ("zetamix", "zetamix-search"):
        cells = cells_of(id, store, weights=weights)
        trainings = [cell for cell in cells if isinstance(cell, TrainingCell)]
        assert {cell.recipe.weights for cell in trainings} == {weights}
