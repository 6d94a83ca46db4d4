"""`zetamix reproduce`: the paper's numbers, the two registries, results on disk, sessions."""

import ast
import dataclasses
import json
import math
import time
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from records_by_hand import FACTS, run_record

import zetamix.experiments.reproduce
from zetamix.data import CATALOGUE, DatasetNotFoundError, from_tensors, with_reported_split
from zetamix.experiments.reproduce import (
    EXPERIMENTS,
    Ask,
    ReproduceError,
    Results,
    Session,
    session,
)
from zetamix.experiments.reproduce.cells import Measuring, Training, Variant
from zetamix.experiments.reproduce.experiments import (
    MEASURES,
    distributions,
    mnist,
    natural,
    theorems,
)
from zetamix.experiments.reproduce.experiments.workbench import Found, Workbench
from zetamix.experiments.reproduce.smoke import shorten, small_data
from zetamix.experiments.reproduce.speed import Speed, forward_work
from zetamix.gamma import dominance_threshold
from zetamix.measure.mixed_samples import MixedSamples
from zetamix.records import Measurement
from zetamix.report.paper import DRAWINGS
from zetamix.report.paper.artifacts import look, missing
from zetamix.results import paper_values as paper
from zetamix.train import RECIPES
from zetamix.train.stop import Stop

SOURCE = Path(zetamix.experiments.reproduce.__file__).parent
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
}


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
    for dataset in EXPERIMENTS_DATASETS["skin"]:
        for model in ("resnet18", "resnet50"):
            for method in paper.METHODS:
                where = (dataset, model, method, "balanced_accuracy")
                if paper.printed("skin", *where) != paper.printed("skin-detailed", *where):
                    differ.append((dataset, model, method))
    swap = next(issue for issue in paper.footnotes("skin") if issue.name == "skin-swap")
    assert differ == [
        ("derm7pt_dermoscopic", "resnet50", "none"),
        ("mednode", "resnet50", "none"),
    ]
    assert all(swap.concerns(*place) for place in differ)
    assert not swap.concerns("mednode", "resnet18", "none")
    assert not swap.concerns("mednode", "resnet50", "mixup:1.0")


EXPERIMENTS_DATASETS = {
    id: list(dict.fromkeys(cell.dataset for cell in each.cells(Ask())))
    for id, each in EXPERIMENTS.items()
}


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
    rows = {(cell.dataset, cell.model, cell.method) for cell in EXPERIMENTS[artifact].cells(Ask())}
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


def test_every_known_issue_is_a_footnote_and_a_sentence():
    named = {name for names in paper.FOOTNOTES.values() for name in names}
    assert named == {issue["id"] for issue in paper.read()["known_issues"]}
    assert set(paper.FOOTNOTES) <= set(EXPERIMENTS)
    for artifact in paper.FOOTNOTES:
        for issue in paper.footnotes(artifact):
            assert issue.sentence.endswith("."), issue.name
            assert len(issue.sentence) > 30, issue.name
            assert "None" not in issue.sentence


@pytest.mark.parametrize(
    ("artifact", "name", "part"),
    [
        ("natural", "cifar100-classes", "prints 10 classes, there are 100"),
        ("natural", "fmnist-size", "prints 60,000 images, there are 70,000"),
        (
            "natural",
            "stl10-epochs",
            "120 epochs in the training details, 200 in the table of times",
        ),
        ("skin", "skin-swap", "MED-NODE 55.46 in the narrow table, 74.64 in the detailed one"),
        ("skin-detailed", "ph2-r18-erm-f1micro", "printed as 0.8, the other numbers imply 0.9"),
        ("medmnist", "medmnist-lr", "rate is 0.01, that of MedMNIST's own script 0.001"),
    ],
)
def test_footnotes_say_what_is_wrong(artifact, name, part):
    issue = next(each for each in paper.footnotes(artifact) if each.name == name)
    assert part in issue.sentence


def test_the_values_ship_with_the_package_and_name_nothing_of_ours():
    text = files("zetamix.experiments.reproduce").joinpath("paper_values.json").read_text()
    assert json.loads(text)["schema"] == "zetamix/paper-values/1"
    assert "/work" not in text


# registries


def test_experiments_and_drawings_have_the_same_ids():
    assert list(EXPERIMENTS) == list(DRAWINGS) == list(CELLS)


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_cells_are_as_many_as_the_paper_has_and_no_two_alike(id):
    cells = EXPERIMENTS[id].cells(Ask())
    assert len(cells) == CELLS[id]
    assert all(cells.count(cell) == 1 for cell in cells)
    for cell in cells:
        assert cell.dataset == "" or cell.dataset in CATALOGUE
        assert isinstance(cell, Training) == EXPERIMENTS[id].trains


def test_every_measure_is_used_and_every_kind_has_one():
    kinds = {
        cell.kind
        for each in EXPERIMENTS.values()
        for cell in each.cells(Ask())
        if isinstance(cell, Measuring)
    }
    assert kinds == set(MEASURES)


def imported(folder):
    """(file, module) of every import of ours in a folder."""
    for path in sorted((SOURCE / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                yield path.name, node.module
            elif isinstance(node, ast.Import):
                yield from ((path.name, alias.name) for alias in node.names)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("experiments", ("zetamix.report", "zetamix.report.paper", "matplotlib")),
        (
            "drawing",
            (
                "zetamix.experiments.reproduce.experiments",
                "zetamix.train",
                "zetamix.experiments.reproduce.session",
            ),
        ),
    ],
)
def test_what_is_run_and_how_it_is_drawn_know_nothing_of_each_other(folder, forbidden):
    found = list(imported(folder))
    assert len(found) > 40
    assert [pair for pair in found if pair[1].startswith(forbidden)] == []


# cells


def test_a_variant_is_a_recipe_of_its_own_and_says_so():
    assert Variant("crop-flip").recipe("cifar10") == RECIPES["cifar10"].change(
        augmentation="crop-flip"
    )
    assert Variant("flip").recipe("cifar10") == RECIPES["cifar10"]
    assert Variant().recipe("ph2", "resnet50").model == "resnet50"
    assert Variant("flip", 30).label == "flip, shortened to 30 epochs"


def test_a_record_of_an_older_recipe_still_fits():
    cell = natural.cells(Ask())[0]
    record = run_record(cell, 0.05)
    assert cell.fits(record)
    older = {key: value for key, value in record.cell.recipe.items() if key != "evaluate_every"}
    changed = dataclasses.replace(record.cell, recipe={**older, "evaluate_every": 5})
    assert cell.fits(dataclasses.replace(record, cell=changed))
    del older["last_batch"]
    changed = dataclasses.replace(record.cell, recipe={**older, "evaluate_every": 5})
    assert cell.fits(dataclasses.replace(record, cell=changed))


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"dataset": "cifar100"}, {"method": "zeta:2.8"}, {"recipe": {"lr": 1.0}}],
)
def test_a_record_of_something_else_does_not_fit(change):
    cell = natural.cells(Ask())[0]
    record = run_record(cell, 0.05)
    if "recipe" in change:
        change = {"recipe": record.cell.recipe | change["recipe"]}
    other = dataclasses.replace(record, cell=dataclasses.replace(record.cell, **change))
    assert not cell.fits(other)
    assert cell.fits(other, any_seed=True) == ("seed" in change)


# results


def measurement(**changes):
    values = {
        "kind": "overview",
        "dataset": "crescents",
        "fingerprint": "f",
        "method": "mixup:1.0",
        "seed": 0,
        "recipe": {"sources": 8},
        "values": {"x": 1.5},
        "wall_s": 0.1,
        "machine": FACTS,
    }
    return Measurement(**(values | changes))


def test_results_come_back_as_they_were_written(tmp_path):
    results = Results(tmp_path)
    record = measurement()
    record = dataclasses.replace(record, arrays=f"{record.key}.npz")
    points = torch.rand(5, 2)
    results.add("overview", record, {"points": points})
    cell = natural.cells(Ask())[0]
    trained = run_record(cell, 0.05)
    results.add("natural", trained)
    again = Results(tmp_path)
    assert list(again.records.values()) == [trained, record]
    torch.testing.assert_close(again.arrays(record)["points"], points, rtol=0, atol=0)
    assert again.find(cell) == trained
    assert again.find(cell, "other") is None
    assert again.homes == {trained.cell.key: "natural", record.key: "overview"}


def test_the_same_numbers_make_the_same_file(tmp_path):
    record = dataclasses.replace(measurement(), arrays="arrays/x.npz")
    contents = []
    for name in ("a", "b"):
        Results(tmp_path / name).add("overview", record, {"points": torch.arange(6.0)})
        contents.append((tmp_path / name / "overview" / record.arrays).read_bytes())
    assert contents[0] == contents[1]


def test_lines_are_json_without_nan(tmp_path):
    results = Results(tmp_path)
    results.add("overview", measurement(values={"auc": math.nan, "list": [1.0, math.inf]}))
    line = (tmp_path / "overview" / "records.jsonl").read_text()
    assert json.loads(line, parse_constant=pytest.fail)["values"] == {
        "auc": None,
        "list": [1.0, None],
    }


def test_the_later_of_two_records_counts_and_a_line_cut_off_does_not(tmp_path):
    results = Results(tmp_path)
    for value in (1.0, 2.0):
        results.add("overview", measurement(values={"x": value}))
    path = tmp_path / "overview" / "records.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole[:70])
    again = Results(tmp_path)
    assert [record.values for record in again.records.values()] == [{"x": 2.0}]
    again.add("overview", measurement(seed=1))
    assert path.read_text().startswith(whole)
    assert len(Results(tmp_path).records) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{]\n", "line 1, is not JSON. Repair or remove that line."),
        (
            '{"schema": "x"}\n',
            "line 1: expected a record of zetamix/run/1 or zetamix/measurement/1",
        ),
        ("[1]\n", "got None. Repair or remove that line."),
        ('{"schema": "zetamix/measurement/1"}\n', "a record lacks a field or has one too many"),
    ],
)
def test_a_damaged_file_is_told_in_a_sentence(tmp_path, line, message):
    path = tmp_path / "natural" / "records.jsonl"
    path.parent.mkdir()
    path.write_text(line)
    with pytest.raises(ReproduceError, match=r"records\.jsonl") as caught:
        Results(tmp_path)
    assert message in str(caught.value)


def test_arrays_that_are_gone_are_told_in_a_sentence(tmp_path):
    results = Results(tmp_path)
    record = dataclasses.replace(measurement(), arrays=f"{measurement().key}.npz")
    results.add("overview", record, {"points": torch.rand(2)})
    (tmp_path / "overview" / record.arrays).write_bytes(b"no archive")
    with pytest.raises(ReproduceError, match=r"cannot be read.*Restore it"):
        results.arrays(record)


# sessions


def small(name="cifar10", seed=0, count=16):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 10
    splits = {"train": (images, labels), "test": (images, labels)}
    return from_tensors(name, splits, CATALOGUE[name].classes)


def small_cells(epochs=1, methods=("none", "zeta:2.8")):
    recipe = RECIPES["cifar10"].change(
        model="digitnet", batch_size=8, epochs=epochs, precision="float32"
    )
    return [Training("cifar10", method, 0, recipe, "resnet18") for method in methods]


@pytest.fixture
def loaded(monkeypatch):
    """What `load` gives, by name; anything else is not here."""
    here = {"cifar10": small()}

    def load(name, root):
        if name not in here:
            raise DatasetNotFoundError(f"{name} is not here.")
        return here[name]

    monkeypatch.setattr(session, "load", load)
    return here


def open_session(tmp_path, **options):
    return Session(Results(tmp_path / "results"), work=tmp_path / "work", **options)


def test_a_session_fills_what_is_empty_and_nothing_twice(tmp_path, loaded):
    cells = small_cells()
    first = open_session(tmp_path).run("natural", cells[:1])
    assert (first.ran, first.done, first.left, first.reasons) == (1, 0, [], [])
    again = open_session(tmp_path)
    second = again.run("natural", cells)
    assert (second.ran, second.done, second.left) == (1, 1, [])
    records = list(again.results.records.values())
    assert [record.cell.method for record in records] == ["none", "zeta:2.8"]
    assert records[0].machine["torch"] == torch.__version__
    # and from another artifact
    assert open_session(tmp_path).run("sensitivity", cells).ran == 0


def test_a_session_stops_in_time_and_goes_on_where_it_stopped(tmp_path, loaded):
    cells = small_cells(epochs=4)

    class Soon(Stop):
        asked = 0

        def __call__(self):
            self.asked += 1
            return self.asked > 5

    stopped = open_session(tmp_path, stop=Soon())
    cut = stopped.run("natural", cells)
    assert (cut.ran, len(cut.left)) == (0, 2)
    assert [(run.name, run.standing) for run in stopped.under_way] == [
        ("none seed 0", "in epoch 2 of 4")
    ]
    rest = open_session(tmp_path)
    assert rest.run("natural", cells).ran == 2
    whole = open_session(tmp_path / "whole")
    whole.run("natural", cells)
    for key, record in whole.results.records.items():
        assert rest.results.records[key].last == record.last
    assert (tmp_path / "work" / "runs").is_dir()


def test_no_time_at_all_runs_nothing(tmp_path, loaded):
    stopped = open_session(tmp_path, stop=Stop(limit=0.0))
    outcome = stopped.run("theorems", EXPERIMENTS["theorems"].cells(Ask()))
    assert (outcome.ran, len(outcome.left)) == (0, 7)


def test_a_measurement_does_not_hold_up_a_stop(tmp_path, loaded, monkeypatch):
    """Nothing of it is kept, and the next call does it again."""

    def takes_long(cell, bench):
        time.sleep(60)

    monkeypatch.setitem(session.MEASURES, "equivalence", takes_long)
    cells = EXPERIMENTS["theorems"].cells(Ask())
    with Stop(limit=8.0) as stop:
        stopped = open_session(tmp_path, stop=stop)
        outcome = stopped.run("theorems", cells)
    assert [cell.kind for cell in outcome.left] == ["equivalence"]
    assert stopped.dropped == outcome.left
    monkeypatch.undo()
    assert open_session(tmp_path).run("theorems", cells).ran == 1


def test_a_finished_run_is_kept_when_another_fails(tmp_path, loaded, monkeypatch):
    real = session.train

    def fails(runs, **options):
        real(runs[:1], **options)
        raise RuntimeError("the machine caught fire")

    monkeypatch.setattr(session, "train", fails)
    with pytest.raises(RuntimeError, match="caught fire"):
        open_session(tmp_path).run("natural", small_cells())
    kept = Results(tmp_path / "results").records.values()
    assert [record.cell.method for record in kept] == ["none"]


def test_a_run_that_finished_before_a_crash_is_collected(tmp_path, loaded):
    """Its folder holds the record, the results do not yet."""
    open_session(tmp_path).run("natural", small_cells())
    (tmp_path / "results" / "natural" / "records.jsonl").unlink()
    trained = []
    again = open_session(tmp_path, watch=trained.append)
    assert again.run("natural", small_cells()).ran == 2
    assert trained == []


def test_data_that_is_not_here_leaves_its_cells_and_says_why(tmp_path, loaded):
    recipe = RECIPES["cifar100"]
    cells = [*small_cells(), Training("cifar100", "none", 0, recipe, "resnet18")]
    outcome = open_session(tmp_path).run("natural", cells)
    assert (outcome.ran, [cell.dataset for cell in outcome.left]) == (2, ["cifar100"])
    assert outcome.reasons == ["cifar100 is not here."]


def test_other_data_of_the_same_name_is_refused(tmp_path, loaded):
    open_session(tmp_path).run("natural", small_cells()[:1])
    loaded["cifar10"] = small(seed=1)
    with pytest.raises(ReproduceError, match=r"belong into one table\. Choose another --out"):
        open_session(tmp_path).run("natural", small_cells())


def test_a_cell_for_another_device_is_left(tmp_path):
    cells = [cell for cell in EXPERIMENTS["timing"].cells(Ask()) if cell.kind == "batch-time"]
    assert [cell.device for cell in cells] == ["cuda", "cpu"]
    outcome = open_session(tmp_path).run("timing", cells[:1])
    assert (outcome.ran, outcome.left) == (0, cells[:1])
    assert outcome.reasons == ["1 cells are measured with --device cuda."]


def test_isic_2018_is_reported_on_its_validation_split():
    dataset = small_data("isic2018", "/nowhere", training=True)
    reported = with_reported_split(dataset)
    assert reported.test is dataset.val
    assert reported.val is None
    assert reported.fingerprint != dataset.fingerprint
    other = small_data("isic2017", "/nowhere", training=True)
    assert with_reported_split(other) is other


# measures


def bench(tmp_path, data):
    return Workbench(Results(tmp_path), torch.device("cpu"), tmp_path, data)


def test_labels_are_wrong_where_the_nearest_original_is_of_another_class():
    outputs = MixedSamples(
        torch.tensor([[0.1], [0.9], [0.2]]),
        torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]),
        torch.zeros(3, 2),
    )
    found = distributions.labelled_wrongly(
        outputs, torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
    )
    assert found.tolist() == [False, True, True]


def test_the_theorems_hold_of_drawn_plans(tmp_path):
    for cell in theorems.cells():
        found = MEASURES[cell.kind](cell, bench(tmp_path, None)).values
        if cell.kind == "equivalence":
            assert found["largest_difference"] < 1e-14
            assert found["weights"] == pytest.approx(found["lams"], abs=1e-12)
        elif cell.recipe["sources"] == "all":
            at_two = found["largest_weight"][found["gammas"].index(2.0)]
            assert at_two == pytest.approx(6 / math.pi**2, abs=1e-9)
        else:
            assert found["plans_as_the_theorem_says"] == 1.0
            assert found["threshold"] == dominance_threshold(cell.recipe["sources"])


def test_a_theorem_that_does_not_hold_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(theorems, "dominance_threshold", lambda sources: 3.0)
    found = theorems.measure_dominance(theorems.cells()[2], bench(tmp_path, None))
    assert found.values["plans_as_the_theorem_says"] < 0.8


def test_the_oracle_that_judges_is_the_one_that_was_trained(tmp_path):
    data = small_data("mnist", "/nowhere", training=False)
    place = bench(tmp_path, data)
    oracle, *judged = shorten(mnist.cells(), torch.device("cpu"))
    found = MEASURES["oracle"](oracle, place)
    record = measurement(
        kind="oracle",
        dataset="mnist",
        fingerprint=data.fingerprint,
        recipe=oracle.recipe,
        values=found.values,
    )
    place.results.add(
        "mnist", dataclasses.replace(record, arrays=f"{record.key}.npz"), found.arrays
    )
    network = mnist.load_oracle(place)
    again = MEASURES["oracle"](oracle, place)
    assert again.values == found.values
    for name, part in network.model.state_dict().items():
        torch.testing.assert_close(part, found.arrays[f"model.{name}"], rtol=0, atol=0)
    realism = MEASURES["realism"](judged[1], place)
    assert realism.arrays["shown"].shape == (100, 16, 16)
    assert len(realism.arrays["entropies"]) == len(data.test)
    # what is shown as a wrong label is one: nothing of the class that the oracle sees
    seen = realism.arrays["example_predictions"].argmax(1)
    assert realism.arrays["example_targets"].gather(1, seen[:, None]).eq(0).all()


def test_without_an_oracle_nothing_is_judged(tmp_path):
    place = bench(tmp_path, small_data("mnist", "/nowhere", training=False))
    with pytest.raises(ReproduceError, match="no record of kind oracle"):
        MEASURES["realism"](mnist.cells()[1], place)


def test_the_first_images_of_each_class_are_the_first():
    labels = torch.tensor([1, 0, 1, 2, 0, 1, 2])
    assert mnist.first_of_each_class(labels, 3, 2).tolist() == [1, 4, 0, 2, 3, 6]


def test_quick_cells_are_the_same_ones_small_and_with_one_seed():
    device = torch.device("cpu")
    short = shorten(natural.cells(Ask()), device)
    assert len(short) == 6 * 5 * 2
    assert {cell.seed for cell in short} == {0}
    assert {(cell.recipe.model, cell.recipe.epochs) for cell in short} == {("digitnet", 1)}
    assert len(shorten(EXPERIMENTS["skin"].cells(Ask()), device)) == 100
    timing = shorten(EXPERIMENTS["timing"].cells(Ask()), device)
    assert {cell.device for cell in timing} == {"cpu"}
    assert len(timing) == 10


# what is missing, and how long it takes


def test_empty_cells_come_with_the_command_that_fills_them(tmp_path):
    table = missing(look("skin", Results(tmp_path)))
    commands = {row[0]: row[2] for row in table.rows}
    assert table.caption == "Not run yet: 100 of 100 cells"
    assert commands["MED-NODE"].startswith(
        "zetamix data prepare mednode && zetamix reproduce skin --datasets mednode"
    )
    assert "zetamix data info dermofit" in commands["DermoFit"]
    timing = missing(look("timing", Results(tmp_path)))
    assert timing.rows[0][2].endswith("zetamix reproduce timing --datasets cifar10 --device cuda")
    assert timing.rows[-1] == ["no data needed", 2, "zetamix reproduce timing --device cpu"]
    results = Results(tmp_path)
    for cell in theorems.cells():
        found = Found({})
        results.add(
            "theorems",
            measurement(
                kind=cell.kind, dataset="", method="zeta", recipe=cell.recipe, values=found.values
            ),
        )
    assert missing(look("theorems", results)) is None


def test_a_shortened_recipe_that_was_run_is_shown_beside_the_full_one(tmp_path):
    results = Results(tmp_path)
    before = look("sensitivity", results)
    short = EXPERIMENTS["sensitivity"].cells(Ask(augmentations=("crop-flip",), epochs=30))[0]
    results.add("sensitivity", run_record(short, 0.06))
    after = look("sensitivity", results)
    labels = {cell.variant.label for cell in after.trainings}
    assert labels == {"flip", "crop-flip, shortened to 30 epochs"}
    more = [cell for cell in after.trainings if cell.variant.epochs == 30]
    assert {cell.dataset for cell in more} == {"cifar10"}
    assert len(more) == 17 + 200
    # what the artifact needs, and what is missing of it, is what it was
    assert after.cells == before.cells
    assert len(after.empty) == 2 * (17 + 200)
    # nor does the table of another artifact show it
    assert look("natural", results).more == []
    # a recipe that is no variant of the paper's is not shown
    odd = dataclasses.replace(short, recipe=short.recipe.change(lr=0.3))
    results.add("sensitivity", run_record(odd, 0.06))
    assert look("sensitivity", results).more == after.more


def test_estimates_follow_the_work_and_the_records_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.reproduce.speed.measure_rate", lambda device: 1e12)
    results = Results(tmp_path)
    device = torch.device("cpu")
    cell = natural.cells(Ask())[0]
    guess = Speed(device, results).seconds(cell)
    images = 50_000 * 200 * 3
    assert guess == pytest.approx(images * forward_work("resnet18", 10, (3, 32, 32)) / 1e12)
    half = dataclasses.replace(cell, recipe=cell.recipe.change(epochs=100))
    assert Speed(device, results).seconds(half) == pytest.approx(guess / 2)
    facts = Speed(device, results).facts
    record = dataclasses.replace(
        run_record(cell, 0.05), machine=facts, wall_s=90.0, extra={"concurrent": 3}
    )
    results.add("natural", dataclasses.replace(record, machine=facts | {"processor": "other"}))
    assert Speed(device, results).seconds(cell) == guess
    results.add("natural", record)
    assert Speed(device, results).seconds(cell) == 30.0
