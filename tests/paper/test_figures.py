"""Figures and their measurements: point clouds, MNIST, dimension, times, sensitivity, theorems."""

import dataclasses
import math

import pytest
import torch
from factories import measurement, run_record
from test_tables import table_rows
from test_values import cells_of

from paper import mnist, theorems
from paper.artifacts import ARTIFACTS, COMPLETE_ONLY, MEASURES, draw, make_view
from paper.context import Context
from paper.datasets import with_reported_split
from paper.dimension import curves_of
from paper.distributions import project, wrong_labels
from paper.records import MeasurementCell, RecordStore
from zetamix.gamma import dominance_threshold
from zetamix_lab.data import from_tensors


def context_of(tmp_path, data=None):
    context = Context(RecordStore(tmp_path), torch.device("cpu"))
    context.dataset = data
    return context


def images(name, classes, count, shape=(1, 16, 16), splits=("train", "test")):
    """Noise around a grey level per class."""
    labels = torch.arange(count) % classes
    made = {}
    for seed, split in enumerate(splits):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randint(56, (count, *shape), generator=generator)
        grey = (200 * labels // classes).view(-1, *[1] * len(shape))
        made[split] = (noise + grey).to(torch.uint8), labels
    return from_tensors(name, made, [str(k) for k in range(classes)])


def measured(cell, values):
    fields = ("kind", "dataset", "method", "seed", "recipe")
    return measurement(**{name: getattr(cell, name) for name in fields}, values=values)


@pytest.mark.parametrize("id", ARTIFACTS)
def test_without_records_there_is_nothing_of_ours(id, tmp_path):
    result = draw(make_view(id, RecordStore(tmp_path)))
    assert result.findings == ()
    assert id not in COMPLETE_ONLY or result.tables == {}


# point clouds


@pytest.mark.parametrize(
    ("angles", "expected"),
    [((0, 0), [2.0, 3.0]), ((90, 0), [2.0, -1.0]), ((0, 90), [-1.0, 3.0])],
)
def test_projections_are_those_of_the_captions(angles, expected):
    found = project(torch.tensor([[1.0, 2.0, 3.0]]), angles)
    torch.testing.assert_close(found, torch.tensor([expected]), atol=1e-6, rtol=0)


def test_labels_are_wrong_where_the_nearest_original_is_of_another_class():
    outputs = torch.tensor([[0.1], [0.9], [0.2]])
    targets = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    found = wrong_labels(outputs, targets, torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
    assert found.tolist() == [False, True, True]


def test_outputs_of_a_large_gamma_stay_on_the_data(tmp_path):
    points = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    labels = (points[:, 0] > 0).long()
    data = from_tensors("crescents", {"train": (points, labels)}, ("a", "b"))
    measure = MEASURES["distribution"]

    def found(method):
        cell = MeasurementCell("distribution", "crescents", method, 0, {"batch": 32})
        return measure(cell, context_of(tmp_path, data))

    assert set(found("none")) == {"label_error", "samples", "targets"}
    near, far = found("zeta:15.0"), found("mixup:1.0")
    assert near["distance"]["value"] < 0.01 < far["distance"]["value"]
    assert near["label_error"]["value"] == 0


# MNIST


def test_the_oracle_that_judges_is_the_one_that_was_trained(tmp_path):
    context, (oracle, *judged) = (
        context_of(tmp_path, images("mnist", 10, 100, (1, 28, 28))),
        mnist.cells(),
    )
    with pytest.raises(ValueError, match="no record of kind oracle"):
        MEASURES["realism"](judged[1], context)
    oracle = dataclasses.replace(oracle, recipe={**oracle.recipe, "epochs": 1})
    found = MEASURES["oracle"](oracle, context)
    arrays = {name: part for name, part in found.items() if isinstance(part, torch.Tensor)}
    record = dataclasses.replace(measured(oracle, {}), fingerprint=context.dataset.fingerprint)
    context.store.add("mnist", record, arrays)
    for name, part in mnist.load_oracle(context).model.state_dict().items():
        torch.testing.assert_close(part, arrays[f"model.{name}"], rtol=0, atol=0)
    realism = MEASURES["realism"](judged[1], context)
    assert realism["shown"].shape == (100, 28, 28)
    assert len(realism["entropies"]) == len(context.dataset.test)
    # what is shown as a wrong label is one: nothing of the class that the oracle sees
    seen = realism["example_predictions"].argmax(1)
    assert realism["example_targets"].gather(1, seen[:, None]).eq(0).all()


def test_the_first_images_of_each_class_are_the_first():
    labels = torch.tensor([1, 0, 1, 2, 0, 1, 2])
    assert mnist.first_of_each_class(labels, 3, 2).tolist() == [1, 4, 0, 2, 3, 6]


def test_isic_2018_is_reported_on_its_validation_split():
    splits = ("train", "val", "test")
    dataset = images("isic2018", 7, 7, (3, 4, 4), splits)
    reported = with_reported_split(dataset)
    assert reported.test is dataset.val
    assert reported.val is None
    assert reported.fingerprint != dataset.fingerprint
    other = images("isic2017", 3, 3, (3, 4, 4), splits)
    assert with_reported_split(other) is other


# dimension


def add_dimensions(store, dataset, neighbours, values):
    for cell in cells_of("dimension"):
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
    # 8 neighbours span 7 dimensions
    add_dimensions(store, "cifar10", 8, {"none": 6.99, "mixup:1.0": 6.8, "zeta:2.8": 7.0})
    view = make_view("dimension", store)
    assert [c.title for c in curves_of(view) if c.is_saturated] == ["CIFAR-10, k = 8"]
    rows = {row[0]: row for row in table_rows(draw(view).tables["dimension"])}
    assert rows["CIFAR-10, k = 128"][1:4] == ["10.00 ± 0.50", "14.00 ± 0.50", "15.00 ± 0.50"]
    assert rows["CIFAR-10, k = 128"][-1] == "2.80"
    assert rows["1-D helix in R³, k = 8"][-1] == "–"
    # without records there is neither a row nor a panel
    assert len(rows) == 5


# times


def test_times_are_beside_the_papers_and_devices_apart(tmp_path):
    store = RecordStore(tmp_path)
    medians = {
        "copy": 10.0,
        "zetamix ZetaMixup": 80.0,
        "zetamix Mixup": 82.0,
        "paper listing": 700.0,
        "mixup, original": 120.0,
        "local synthetic instances": 900.0,
    }
    for cell in cells_of("timing"):
        if cell.kind == "training-time" and cell.dataset == "cifar10":
            seconds = {"none": 1.0, "mixup:1.0": 1.2, "zeta:2.8": 1.26}[cell.method]
            values = {"epoch_s": seconds, "epoch_s_std": 0.01, "timed": 5, "compiled": True}
            store.add("timing", measured(cell, values))
        elif cell.kind == "batch-time" and cell.recipe["device"] == "cuda":
            times = ("median_us", "p20_us", "p80_us")
            rows = [
                {"contender": name, "mode": "eager"} | dict.fromkeys(times, us)
                for name, us in medians.items()
            ]
            store.add("timing", measured(cell, {"rows": rows}))
    tables = draw(make_view("timing", store)).tables
    ours = ["79.00 ± 0.50", "4.00 ± 0.03", "−75.00", "1.200 ± 0.010 (n = 5)", "cuda"]
    assert table_rows(tables["training"])[3] == ["CIFAR-10", "mixup", *ours]
    batch = table_rows(tables["batch"])[2:]
    assert {row[0] for row in batch} == {"cuda"}
    ours = ["cuda", "ζ-mixup, zetamix", "eager", "345.0 ± 2.5", "80.0", "−265.0", "80.0", "80.0"]
    assert ours in batch
    assert batch[-1][1:4] == ["local synthetic instances, zetamix", "eager", "38,700.0 ± 1,330.0"]


def test_a_batch_is_timed_with_every_contender(tmp_path):
    recipe = {"device": "cpu", "shape": [4, 3, 16, 16], "rounds": 3}
    cell = MeasurementCell("batch-time", "", "all", 0, recipe)
    rows = MEASURES["batch-time"](cell, context_of(tmp_path))["rows"]
    assert {row["contender"] for row in rows} >= {"copy", "paper listing", "zetamix ZetaMixup"}
    assert all(0 < row["p20_us"] <= row["median_us"] <= row["p80_us"] for row in rows)


def test_epochs_are_timed_without_the_first_and_the_last(tmp_path):
    cell = cells_of("timing")[0]
    training = {**cell.recipe["training"], "model": "digitnet", "batch_size": 8}
    small = dataclasses.replace(cell, recipe={**cell.recipe, "timed": 2, "training": training})
    data = images("cifar10", 10, 16, (3, 16, 16))
    values = MEASURES["training-time"](small, context_of(tmp_path, data))
    assert values["timed"] == 2
    assert values["epoch_s"] > 0
    assert not (tmp_path / "runs" / "timing").exists()


# sensitivity


def test_sensitivity_has_a_column_for_each_recipe(tmp_path):
    store = RecordStore(tmp_path)
    for cell in cells_of("sensitivity"):
        if cell.recipe.epochs == 30:
            gamma = float(cell.method.removeprefix("zeta:"))
            store.add("sensitivity", run_record(cell, 0.05 + 0.01 * (gamma - 3) ** 2))
    head, _, *rows = table_rows(draw(make_view("sensitivity", store)).tables["sensitivity"])
    short = "CIFAR-10, flip, shortened to 30 epochs"
    assert head == ["γ", "CIFAR-10, flip", short, "CIFAR-100, flip"]
    assert len(rows) == 17
    assert rows[0] == ["1.8", "–", "6.44 (n = 1)", "–"]


def test_a_sweep_is_drawn_from_the_models_that_were_run(tmp_path):
    store = RecordStore(tmp_path)
    cells = cells_of("sensitivity")
    sweep = [
        cell for cell in cells if cell.recipe.weight_decay != 5e-4 and cell.dataset == "cifar10"
    ]
    for cell in sweep[:20]:
        store.add("sensitivity", run_record(cell, 0.08 - 30 * cell.recipe.weight_decay))
    result = draw(make_view("sensitivity", store))
    assert [picture.name for picture in result.pictures] == ["sweep-cifar10-flip"]
    assert ": 20 models" in result.pictures[0].caption
    # the grid is separate, and empty
    assert all(row[1] == "–" for row in table_rows(result.tables["sensitivity"])[2:])


# the theorems


def test_the_theorems_hold_of_drawn_plans(tmp_path):
    for cell in theorems.cells():
        found = MEASURES[cell.kind](cell, context_of(tmp_path))
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
    found = theorems.measure_dominance(theorems.cells()[2], context_of(tmp_path))
    assert found["plans_as_the_theorem_says"] < 0.8
