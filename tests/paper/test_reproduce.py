"""`zetamix reproduce`: the paper's numbers, artifacts and cells, the record store, sessions."""

import dataclasses
import json
import math
import re
import time
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from records_by_hand import measurement, run_record

from paper.datasets import CATALOGUE, with_reported_split
from paper.measure.mixed_samples import MixedSamples
from paper.recipes import RECIPES
from paper.report import REPORTS
from paper.report.write import empty_cells
from paper.reproduce import (
    ARTIFACTS,
    CellRequest,
    Session,
    TimeEstimates,
    make_view,
    mnist,
    point_clouds,
    select_cells,
    theorems,
)
from paper.reproduce.artifacts import MEASURES
from paper.reproduce.measure_context import MeasureContext
from paper.reproduce.smoke import shorten, synthetic_data
from paper.reproduce.training_cells import sweep_settings
from paper.results import paper_values as paper
from paper.results.paper_cells import (
    MeasurementCell,
    ReproduceError,
    Subset,
    TrainingCell,
    Variant,
)
from paper.results.record_store import RecordStore
from zetamix.gamma import dominance_threshold
from zetamix_lab.data import DatasetNotFoundError, from_tensors
from zetamix_lab.train.stop import Stop

CELLS = {
    "overview": 4,
    "distributions": 36,
    "mnist": 4,
    "dimension": 4 * 22 * 2,
    "natural": 6 * 5 * 3 * 2,
    "skin": 10 * 2 * 5,
    "skin-detailed": 10 * 2 * 5,
    "medmnist": 8 * 3,
    "timing": 3 * 3 + 2,
    "sensitivity": (17 + 200) * 2,
    "theorems": 7,
    # all settings on one dataset, then fewer on more, at last with two controls
    "zetamix-search": 31 + 2 * 8 + 3 * 4 + 6 * (2 + 2),
    "zetamix": 8 + 7 * (10 + 10 + 5 + 5 + 3 + 3),
}


def cells_of(id, **request):
    return select_cells(id, CellRequest(**request), RecordStore(Path("no records")))


# the paper


def test_the_printed_gains_over_mixup_follow_from_the_printed_errors():
    table = paper.read()["tables"]["natural"]
    checked = 0
    for dataset, gains in table["printed_relative_gain_over_mixup_percent"].items():
        errors = table["values"][dataset]
        for method, gain in gains.items():
            expected = 100 * (errors["mixup"] - errors[method]) / errors["mixup"]
            assert round(expected, 2) == gain, (dataset, method)
            checked += 1
    assert checked == 18


def test_the_two_skin_tables_differ_in_the_two_cells_that_the_footnote_names():
    differ = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells_of("skin")):
        for model in ("resnet18", "resnet50"):
            for method in paper.METHODS:
                where = (dataset, model, method, "balanced_accuracy")
                if paper.printed("skin", *where) != paper.printed("skin-detailed", *where):
                    differ.append((dataset, model, method))
    swap = next(issue for issue in paper.footnotes("skin") if issue.id == "skin-swap")
    assert differ == [
        ("derm7pt_dermoscopic", "resnet50", "none"),
        ("mednode", "resnet50", "none"),
    ]
    names = ("dataset", "model", "method")
    assert [tuple(row[name] for name in names) for row in swap.rows] == differ
    assert swap.concerns(dataset="mednode", model="resnet50", method="none")
    assert not swap.concerns(dataset="mednode", model="resnet18", method="none")


@pytest.mark.parametrize(
    ("artifact", "metrics", "count"),
    [
        ("natural", ["error"], 30),
        ("skin", ["balanced_accuracy"], 100),
        ("skin-detailed", ["balanced_accuracy", "f1_micro", "f1_macro"], 300),
        ("medmnist", ["auc", "accuracy"], 48),
    ],
)
def test_every_cell_of_a_table_has_its_printed_value(artifact, metrics, count):
    rows = {(cell.dataset, cell.model, cell.method) for cell in cells_of(artifact)}
    found = [paper.printed(artifact, *row, metric) for row in rows for metric in metrics]
    assert len(found) == count
    assert all(isinstance(value, float) for value in found)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("natural", "cifar10", "resnet18", "none", "error"), 5.48),
        (("skin", "isic2018", "resnet50", "zeta:4.0", "balanced_accuracy"), 89.18),
        (("skin-detailed", "ph2", "resnet18", "none", "f1_micro"), 0.8),
        (("medmnist", "octmnist", "resnet18", "zeta:2.8", "auc"), 0.918),
        (("medmnist", "octmnist", "resnet18", "zeta:2.4", "auc"), None),
        (("natural", "mnist", "resnet18", "none", "error"), None),
        (("natural", "cifar10", "resnet18", "cutmix:1.0", "error"), None),
    ],
)
def test_printed_values(where, value):
    assert paper.printed(*where) == value


def test_emphasis_is_the_papers():
    assert paper.emphasis("natural", "cifar10", "resnet18", "zeta:2.4", "error") == "bold"
    msk = "msk", "resnet50", "mixup:1.0"
    assert paper.emphasis("skin", *msk, "balanced_accuracy") == "underline"
    # of one row, each number is set by itself
    assert paper.emphasis("skin-detailed", *msk, "f1_micro") == "underline"
    assert paper.emphasis("skin-detailed", *msk, "f1_macro") == ""
    octmnist = "medmnist", "octmnist", "resnet18"
    assert paper.emphasis(*octmnist, "none", "auc") == "bold"
    assert paper.emphasis(*octmnist, "none", "accuracy") == ""
    assert paper.emphasis(*octmnist, "zeta:2.8", "accuracy") == "bold"


def test_every_known_issue_is_the_footnote_of_an_artifact():
    issues = [issue for id in ARTIFACTS for issue in paper.footnotes(id)]
    assert {issue.id for issue in issues} == {issue["id"] for issue in paper.read()["known_issues"]}
    for issue in issues:
        assert issue.sentence.endswith("."), issue.id
        assert set(issue.artifacts) <= set(ARTIFACTS)
        for row in issue.rows:
            assert row["dataset"] in CATALOGUE
            assert row.get("method", "none") in paper.METHODS


def test_the_values_ship_with_the_package_and_name_nothing_of_ours():
    text = files("paper.results").joinpath("paper_values.json").read_text()
    assert json.loads(text)["schema"] == "zetamix/paper-values/1"
    assert "/work" not in text


# registries


def test_every_artifact_has_a_report():
    assert list(ARTIFACTS) == list(REPORTS) == list(CELLS)


@pytest.mark.parametrize("id", ARTIFACTS)
def test_cells_are_as_many_as_the_paper_has_and_no_two_alike(id):
    cells = cells_of(id)
    assert len(cells) == CELLS[id]
    assert all(cells.count(cell) == 1 for cell in cells)
    for cell in cells:
        assert cell.dataset == "" or cell.dataset in CATALOGUE
        assert isinstance(cell, TrainingCell) == ARTIFACTS[id].trains or cell.kind == "contrast"


def test_every_measure_is_used_and_every_kind_has_one():
    cells = [cell for id in ARTIFACTS for cell in cells_of(id)]
    assert {cell.kind for cell in cells if isinstance(cell, MeasurementCell)} == set(MEASURES)


def test_the_sweep_is_a_fixed_sequence():
    """Records of a sweep are found by these settings."""
    assert sweep_settings(3) == [(5.85, 0.0004167), (3.297, 0.0007887), (4.225, 0.0005349)]
    assert sweep_settings(200)[-1] == (3.204, 0.0001452)


# cells


def test_a_variant_is_a_recipe_of_its_own_and_says_so():
    assert Variant("crop-flip").recipe("cifar10") == RECIPES["cifar10"].change(
        augmentation="crop-flip"
    )
    assert Variant("flip").recipe("cifar10") == RECIPES["cifar10"]
    assert Variant().recipe("ph2", "resnet50").model == "resnet50"
    assert Variant("flip", 30).label == "flip, shortened to 30 epochs"


def test_a_record_of_an_older_recipe_still_fits():
    cell = cells_of("natural")[0]
    record = run_record(cell, 0.05)
    assert cell.matches(record)
    older = {key: value for key, value in record.cell.recipe.items() if key != "evaluate_every"}
    changed = dataclasses.replace(record.cell, recipe={**older, "evaluate_every": 5})
    assert cell.matches(dataclasses.replace(record, cell=changed))
    del older["last_batch"]
    changed = dataclasses.replace(record.cell, recipe={**older, "evaluate_every": 5})
    assert cell.matches(dataclasses.replace(record, cell=changed))


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"dataset": "cifar100"}, {"method": "zeta:2.8"}, {"recipe": {"lr": 1.0}}],
)
def test_a_record_of_something_else_does_not_fit(change):
    cell = cells_of("natural")[0]
    record = run_record(cell, 0.05)
    if "recipe" in change:
        change = {"recipe": record.cell.recipe | change["recipe"]}
    other = dataclasses.replace(record, cell=dataclasses.replace(record.cell, **change))
    assert not cell.matches(other)
    assert cell.matches(other, any_seed=True) == ("seed" in change)


# results


def test_results_come_back_as_they_were_written(tmp_path):
    results = RecordStore(tmp_path)
    record = measurement()
    record = dataclasses.replace(record, arrays=f"{record.key}.npz")
    points = torch.rand(5, 2)
    results.add("overview", record, {"points": points})
    cell = cells_of("natural")[0]
    trained = run_record(cell, 0.05)
    results.add("natural", trained)
    again = RecordStore(tmp_path)
    assert list(again.records.values()) == [trained, record]
    torch.testing.assert_close(again.arrays(record)["points"], points, rtol=0, atol=0)
    assert again.find(cell) == trained
    assert again.artifact_of == {trained.cell.key: "natural", record.key: "overview"}


def test_the_same_numbers_make_the_same_file(tmp_path):
    record = dataclasses.replace(measurement(), arrays="arrays/x.npz")
    contents = []
    for name in ("a", "b"):
        RecordStore(tmp_path / name).add("overview", record, {"points": torch.arange(6.0)})
        contents.append((tmp_path / name / "overview" / record.arrays).read_bytes())
    assert contents[0] == contents[1]


def test_lines_are_json_without_nan(tmp_path):
    results = RecordStore(tmp_path)
    results.add("overview", measurement(values={"auc": math.nan, "list": [1.0, math.inf]}))
    line = (tmp_path / "overview" / "records.jsonl").read_text()
    assert json.loads(line, parse_constant=pytest.fail)["values"] == {
        "auc": None,
        "list": [1.0, None],
    }


def test_the_later_of_two_records_counts_and_a_line_cut_off_does_not(tmp_path):
    results = RecordStore(tmp_path)
    for value in (1.0, 2.0):
        results.add("overview", measurement(values={"x": value}))
    path = tmp_path / "overview" / "records.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole[:70])
    again = RecordStore(tmp_path)
    assert [record.values for record in again.records.values()] == [{"x": 2.0}]
    again.add("overview", measurement(seed=1))
    assert path.read_text().startswith(whole)
    assert len(RecordStore(tmp_path).records) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{]\n", "line 1: not JSON. Repair or remove that line."),
        (
            '{"schema": "x"}\n',
            "line 1: expected a record of schema zetamix/run/1 or zetamix/measurement/1",
        ),
        ("[1]\n", "line 1: expected a JSON object, got list. Repair or remove that line."),
        ('{"schema": "zetamix/measurement/1"}\n', "a missing or unknown field"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, line, message):
    path = tmp_path / "natural" / "records.jsonl"
    path.parent.mkdir()
    path.write_text(line)
    with pytest.raises(ReproduceError, match=r"records\.jsonl") as caught:
        RecordStore(tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("flipped", [True, False])
def test_arrays_that_cannot_be_read_are_named(tmp_path, flipped):
    results = RecordStore(tmp_path)
    record = dataclasses.replace(measurement(), arrays=f"{measurement().key}.npz")
    results.add("overview", record, {"points": torch.rand(2)})
    path = tmp_path / "overview" / record.arrays
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    path.write_bytes(damaged if flipped else b"no archive")
    with pytest.raises(ReproduceError, match=r"cannot be read: .*\. Restore the file"):
        results.arrays(record)


# sessions


def small(name="cifar10", seed=0, count=16):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 10
    splits = {"train": (images, labels), "test": (images, labels)}
    return from_tensors(name, splits, CATALOGUE[name].classes)


def small_cells(epochs=1, methods=("none", "zeta:2.8"), **changes):
    recipe = RECIPES["cifar10"].change(
        **{"model": "digitnet", "batch_size": 8, "epochs": epochs, "precision": "float32"} | changes
    )
    return [TrainingCell("cifar10", method, 0, recipe, "resnet18") for method in methods]


def open_session(folder, seed=0, **options):
    """A session that has CIFAR-10, drawn from a seed, and no other dataset."""

    def load(name, data_dir):
        if name != "cifar10":
            raise DatasetNotFoundError(f"{name} is not here.")
        return small(seed=seed)

    return Session(RecordStore(folder), jobs=1, load_dataset=load, **options)


def test_a_session_runs_empty_cells_once(tmp_path):
    cells = small_cells()
    first = open_session(tmp_path).run("natural", cells[:1])
    assert (first.ran, first.had_record, first.empty, first.reasons) == (1, 0, [], [])
    again = open_session(tmp_path)
    second = again.run("natural", cells)
    assert (second.ran, second.had_record, second.empty) == (1, 1, [])
    records = list(again.store.records.values())
    assert [record.cell.method for record in records] == ["none", "zeta:2.8"]
    assert records[0].machine["torch"] == torch.__version__
    # records of another artifact count
    assert open_session(tmp_path).run("sensitivity", cells).ran == 0


class StopOnceTraining(Stop):
    """Stops after the first step of the first run."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __call__(self):
        return any(self.folder.glob("runs/*/cell.json"))


def test_a_stopped_session_resumes_to_the_same_result(tmp_path):
    cells = small_cells(epochs=4)
    stopped = open_session(tmp_path / "a", stop=StopOnceTraining(tmp_path / "a"))
    outcome = stopped.run("natural", cells)
    assert (outcome.ran, len(outcome.empty)) == (0, 2)
    (run,) = stopped.unfinished
    assert re.search(r"no mixing seed 0, 0\.\d of 4 epochs$", run)
    rest = open_session(tmp_path / "a")
    assert rest.run("natural", cells).ran == 2
    whole = open_session(tmp_path / "b")
    whole.run("natural", cells)
    for key, record in whole.store.records.items():
        assert rest.store.records[key].last == record.last


def test_a_record_is_stored_as_soon_as_its_run_is_finished(tmp_path):
    """Not when all runs of a dataset are: a session may be killed before."""

    def watch(name, done, total, text=""):
        if name != "runs" and done == total:
            raise KeyboardInterrupt

    session = open_session(tmp_path, display=lambda: nullcontext(watch))
    with pytest.raises(KeyboardInterrupt):
        session.run("natural", small_cells())
    assert RecordStore(tmp_path).records
    open_session(tmp_path).run("natural", small_cells())
    # and once only
    lines = (tmp_path / "natural" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 2


def test_no_time_at_all_runs_nothing(tmp_path):
    outcome = open_session(tmp_path, stop=Stop(limit=0.0)).run("theorems", cells_of("theorems"))
    assert (outcome.ran, len(outcome.empty)) == (0, 7)


def test_a_measurement_does_not_delay_a_stop(tmp_path):
    """It is discarded, and the next session starts it again."""
    cells = cells_of("theorems")[-2:]
    measures = {"equivalence": lambda cell, context: time.sleep(60)}
    with Stop(limit=4.0) as stop:
        stopped = open_session(tmp_path, stop=stop, measures=measures)
        outcome = stopped.run("theorems", cells)
    assert [cell.kind for cell in outcome.empty] == ["equivalence"]
    assert stopped.discarded == outcome.empty
    assert open_session(tmp_path).run("theorems", cells).ran == 1


@pytest.mark.parametrize(("validation", "evaluated_on"), [(None, "test"), (30, "train")])
def test_a_subset_is_another_cell_and_says_what_it_was_evaluated_on(
    tmp_path, validation, evaluated_on
):
    whole = small_cells()[0]
    cut = dataclasses.replace(whole, subset=Subset(40, validation))
    data = small(count=100)
    made = cut.subset.apply(data)
    where = getattr(data, evaluated_on)
    assert (len(made.train), made.val) == (40, None)
    held = {sample.numpy().tobytes() for sample in made.test.samples}
    assert len(held) == (validation or 100)
    assert held <= {sample.numpy().tobytes() for sample in where.samples}
    session = Session(RecordStore(tmp_path), jobs=1, load_dataset=lambda *_: data)
    assert session.run("natural", [whole, cut]).ran == 2
    store = RecordStore(tmp_path)
    assert store.find(cut).cell.train_size == 40
    assert store.find(cut).test_size == (validation or 100)
    assert store.find(whole).cell.train_size == 100
    other = dataclasses.replace(whole, subset=Subset(40, 20))
    assert store.find(other) is None


def test_cells_that_depend_on_results_are_chosen_after_each_group(tmp_path):
    session = open_session(tmp_path)
    first, second = small_cells()

    def choose():
        # a dataset between them: neighbours of one dataset are one group
        missing = TrainingCell("cifar100", "none", 0, RECIPES["cifar100"], "resnet18")
        record = session.store.find(first)
        return [first, missing, *([] if record is None else [second])]

    outcome = session.run("natural", choose)
    assert (outcome.ran, len(outcome.empty)) == (2, 1)


def test_a_run_that_fails_leaves_the_others(tmp_path):
    diverging = small_cells(lr=1e30, epochs=3)[:1]
    outcome = open_session(tmp_path).run("natural", [*diverging, *small_cells()[1:]])
    assert (outcome.ran, outcome.empty) == (1, diverging)
    assert len(outcome.reasons) == 1
    assert outcome.reasons[0].startswith("cifar10, no mixing seed 0 failed: ")


def test_a_run_that_finished_before_a_crash_is_collected(tmp_path):
    """Its folder has the record, the store has not."""
    open_session(tmp_path).run("natural", small_cells())
    (tmp_path / "natural" / "records.jsonl").unlink()
    folders = sorted((tmp_path / "runs").iterdir())
    before = [(path / "metrics.jsonl").stat().st_mtime_ns for path in folders]
    assert open_session(tmp_path).run("natural", small_cells()).ran == 2
    assert [(path / "metrics.jsonl").stat().st_mtime_ns for path in folders] == before


def test_a_missing_dataset_leaves_its_cells(tmp_path):
    cells = [*small_cells(), TrainingCell("cifar100", "none", 0, RECIPES["cifar100"], "resnet18")]
    outcome = open_session(tmp_path).run("natural", cells)
    assert (outcome.ran, [cell.dataset for cell in outcome.empty]) == (2, ["cifar100"])
    assert outcome.reasons == ["cifar100 is not here."]


def test_other_data_of_the_same_name_is_refused(tmp_path):
    open_session(tmp_path).run("natural", small_cells()[:1])
    with pytest.raises(ReproduceError, match="Choose another --out"):
        open_session(tmp_path, seed=1).run("natural", small_cells())


def test_a_cell_for_another_device_is_left(tmp_path):
    cells = [cell for cell in cells_of("timing") if cell.kind == "batch-time"]
    assert [cell.device for cell in cells] == ["cuda", "cpu"]
    outcome = open_session(tmp_path).run("timing", cells[:1])
    assert (outcome.ran, outcome.empty) == (0, cells[:1])
    assert outcome.reasons == ["1 of the cells need --device cuda."]


def test_isic_2018_is_reported_on_its_validation_split():
    dataset = synthetic_data("isic2018", training=True)
    reported = with_reported_split(dataset)
    assert reported.test is dataset.val
    assert reported.val is None
    assert reported.fingerprint != dataset.fingerprint
    other = synthetic_data("isic2017", training=True)
    assert with_reported_split(other) is other


# measures


def context_of(tmp_path, data):
    return MeasureContext(RecordStore(tmp_path), torch.device("cpu"), tmp_path, data)


def test_labels_are_wrong_where_the_nearest_original_is_of_another_class():
    outputs = MixedSamples(
        torch.tensor([[0.1], [0.9], [0.2]]),
        torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]),
        torch.zeros(3, 2),
    )
    found = point_clouds.wrong_labels(outputs, torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    assert found.tolist() == [False, True, True]


def test_the_theorems_hold_of_drawn_plans(tmp_path):
    for cell in theorems.cells():
        found = MEASURES[cell.kind](cell, context_of(tmp_path, None)).values
        if cell.kind == "equivalence":
            assert found["largest_difference"] < 1e-14
            assert found["weights"] == pytest.approx(found["lams"], abs=1e-12)
        elif cell.recipe["sources"] == "all":
            at_two = found["largest_weight"][found["gammas"].index(2.0)]
            assert at_two == pytest.approx(6 / math.pi**2, abs=1e-9)
        else:
            assert found["plans_as_the_theorem_says"] == 1.0
            assert found["threshold"] == dominance_threshold(cell.recipe["sources"])


def test_a_theorem_that_does_not_hold_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(theorems, "dominance_threshold", lambda sources: 3.0)
    found = theorems.measure_dominance(theorems.cells()[2], context_of(tmp_path, None))
    assert found.values["plans_as_the_theorem_says"] < 0.8


def test_the_oracle_that_judges_is_the_one_that_was_trained(tmp_path):
    data = synthetic_data("mnist", training=False)
    context = context_of(tmp_path, data)
    oracle, *judged = shorten(mnist.cells(), torch.device("cpu"))
    found = MEASURES["oracle"](oracle, context)
    record = measurement(
        kind="oracle",
        dataset="mnist",
        fingerprint=data.fingerprint,
        recipe=oracle.recipe,
        values=found.values,
    )
    context.store.add(
        "mnist", dataclasses.replace(record, arrays=f"{record.key}.npz"), found.arrays
    )
    network = mnist.load_oracle(context)
    again = MEASURES["oracle"](oracle, context)
    assert again.values == found.values
    for name, part in network.model.state_dict().items():
        torch.testing.assert_close(part, found.arrays[f"model.{name}"], rtol=0, atol=0)
    realism = MEASURES["realism"](judged[1], context)
    assert realism.arrays["shown"].shape == (100, 16, 16)
    assert len(realism.arrays["entropies"]) == len(data.test)
    # what is shown as a wrong label is one: nothing of the class that the oracle sees
    seen = realism.arrays["example_predictions"].argmax(1)
    assert realism.arrays["example_targets"].gather(1, seen[:, None]).eq(0).all()


def test_without_an_oracle_nothing_is_judged(tmp_path):
    context = context_of(tmp_path, synthetic_data("mnist", training=False))
    with pytest.raises(ReproduceError, match="no record of kind oracle"):
        MEASURES["realism"](mnist.cells()[1], context)


def test_the_first_images_of_each_class_are_the_first():
    labels = torch.tensor([1, 0, 1, 2, 0, 1, 2])
    assert mnist.first_of_each_class(labels, 3, 2).tolist() == [1, 4, 0, 2, 3, 6]


def test_quick_cells_are_the_same_ones_small_and_with_one_seed():
    device = torch.device("cpu")
    short = shorten(cells_of("natural"), device)
    assert len(short) == 6 * 5 * 2
    assert {cell.seed for cell in short} == {0}
    assert {(cell.recipe.model, cell.recipe.epochs) for cell in short} == {("digitnet", 1)}
    assert len(shorten(cells_of("skin"), device)) == 100
    timing = shorten(cells_of("timing"), device)
    assert {cell.device for cell in timing} == {"cpu"}
    assert len(timing) == 10


# views, empty cells and estimates


def test_empty_cells_come_with_the_command_that_fills_them(tmp_path):
    table = empty_cells(make_view("skin", RecordStore(tmp_path)))
    commands = {row[0]: row[2] for row in table.rows}
    assert sum(row[1] for row in table.rows) == 100
    assert commands["MED-NODE"].startswith(
        "python -m paper data prepare mednode && zetamix reproduce skin --datasets mednode"
    )
    assert "python -m paper data info dermofit" in commands["DermoFit"]
    timing = empty_cells(make_view("timing", RecordStore(tmp_path)))
    command = f"zetamix reproduce timing --datasets cifar10 --device cuda --out {tmp_path}"
    assert timing.rows[0][2].endswith(command)
    assert timing.rows[-1][:2] == ["no data needed", 2]
    store = RecordStore(tmp_path)
    for cell in theorems.cells():
        record = measurement(kind=cell.kind, dataset="", method="zeta", recipe=cell.recipe)
        store.add("theorems", record)
    assert empty_cells(make_view("theorems", store)) is None


def test_a_shortened_recipe_that_was_run_is_shown_beside_the_full_one(tmp_path):
    store = RecordStore(tmp_path)
    before = make_view("sensitivity", store)
    short = cells_of("sensitivity", augmentations=("crop-flip",), epochs=30)[0]
    store.add("sensitivity", run_record(short, 0.06))
    after = make_view("sensitivity", store)
    labels = {cell.variant.label for cell in after.trainings}
    assert labels == {"flip", "crop-flip, shortened to 30 epochs"}
    more = [cell for cell in after.trainings if cell.variant.epochs == 30]
    assert {cell.dataset for cell in more} == {"cifar10"}
    assert len(more) == 17 + 200
    # the cells of the artifact, and which of them are empty, do not change
    assert after.cells == before.cells
    assert len(after.empty) == 2 * (17 + 200)
    # nor does another artifact show them
    assert make_view("natural", store).more == []
    # a recipe that is no variant of the paper's is not shown
    odd = dataclasses.replace(short, recipe=short.recipe.change(lr=0.3))
    store.add("sensitivity", run_record(odd, 0.06))
    assert make_view("sensitivity", store).more == after.more


def estimate(store, *cells, gpu="H100"):
    found = map(TimeEstimates(store, {"gpu": gpu}), cells)
    return [None if one is None else (round(one.seconds, 6), one.machine) for one in found]


def test_time_is_estimated_from_the_records_of_a_dataset(tmp_path):
    store = RecordStore(tmp_path)
    cell = cells_of("natural")[0]
    assert estimate(store, cell) == [None]
    for seconds, seed in ((90.0, 0), (60.0, 1), (9000.0, 2)):
        record = run_record(dataclasses.replace(cell, seed=seed), 0.05)
        changes = {"wall_s": seconds, "extra": {"concurrent": 3}, "machine": {"gpu": "H200"}}
        store.add("natural", dataclasses.replace(record, **changes))
    half = dataclasses.replace(cell, recipe=cell.recipe.change(epochs=100))
    like = cells_of("natural", datasets=("cifar100",))[0]
    other = cells_of("natural", datasets=("stl10",))[0]
    # the median of three runs side by side, per epoch; images of the same shape take as long
    expected = [(30.0, "H200"), (15.0, "H200"), (30.0, "H200"), None]
    assert estimate(store, cell, half, like, other) == expected
    # records of this machine count before those of another
    record = dataclasses.replace(run_record(like, 0.05), wall_s=50.0, machine={"gpu": "H100"})
    store.add("natural", record)
    assert estimate(store, cell, like) == [(50.0, "H100"), (50.0, "H100")]
    assert estimate(store, cell, like, gpu="H200") == [(30.0, "H200"), (30.0, "H200")]
    store.add("theorems", measurement(kind="dominance", dataset="", wall_s=2.0))
    first, second = estimate(store, *theorems.cells()[-2:])
    assert first[0] == 2.0
    assert second is None


@pytest.mark.parametrize(
    ("id", "request_", "message"),
    [
        ("natural", {"datasets": ("cifr10",)}, "got 'cifr10'. Did you mean cifar10?"),
        ("natural", {"methods": ("cutmix:1.0",)}, "expected one of none, mixup:1.0, zeta:2.4"),
        ("natural", {"augmentations": ("rotate",)}, "got 'rotate'"),
        ("theorems", {"datasets": ("cifar10",)}, "expected no dataset, got 'cifar10'"),
        ("overview", {"epochs": 3}, "overview trains none"),
    ],
)
def test_a_request_that_cannot_be_served(id, request_, message):
    with pytest.raises(ReproduceError) as caught:
        cells_of(id, **request_)
    assert message in str(caught.value)
