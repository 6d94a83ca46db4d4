"""The paper's printed numbers, and the cells of its figures and tables."""

import math

import pytest

from paper import values as paper
from paper.artifacts import ARTIFACTS, MEASURES
from paper.artifacts import select_cells as cells_of
from paper.datasets import CATALOGUE
from paper.drawing import ZETAMIX
from paper.records import MeasurementCell
from paper.sensitivity import sweep_settings


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
    rows = {(cell.dataset, cell.recipe.model, cell.method) for cell in cells_of("skin")}
    differ = {
        row
        for row in rows
        if paper.printed("skin", *row, "balanced_accuracy")
        != paper.printed("skin-detailed", *row, "balanced_accuracy")
    }
    assert differ == {
        ("derm7pt_dermoscopic", "resnet50", "none"),
        ("mednode", "resnet50", "none"),
    }
    assert paper.footnotes("skin")[0].startswith("About the paper: ResNet-50 with ERM is swapped")


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
    rows = {(cell.dataset, cell.recipe.model, cell.method) for cell in cells_of(artifact)}
    found = [paper.printed(artifact, *row, metric) for row in rows for metric in metrics]
    assert len(found) == count
    assert all(map(math.isfinite, found))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("natural cifar10 resnet18 zeta:2.4 error", 4.42),
        ("skin isic2018 resnet50 zeta:4.0 balanced_accuracy", 89.18),
        # of one row, each number by itself
        ("skin-detailed msk resnet50 mixup:1.0 f1_micro", 0.7958),
        ("skin-detailed msk resnet50 mixup:1.0 f1_macro", 0.6434),
        ("medmnist octmnist resnet18 zeta:2.8 accuracy", 72.8),
        ("medmnist octmnist resnet18 zeta:2.4 auc", math.nan),
        ("natural mnist resnet18 none error", math.nan),
        ("natural cifar10 resnet18 cutmix:1.0 error", math.nan),
    ],
)
def test_numbers_are_the_papers(where, value):
    assert paper.printed(*where.split()) == pytest.approx(value, abs=0, nan_ok=True)


def test_every_known_issue_is_the_footnote_of_an_artifact():
    issues = paper.read()["known_issues"]
    assert {id for issue in issues for id in issue["artifacts"]} <= set(ARTIFACTS)
    assert all(issue["artifacts"] for issue in issues)


def test_every_measure_is_used_and_every_kind_has_one():
    cells = [cell for id in ARTIFACTS for cell in cells_of(id)]
    assert {cell.dataset for cell in cells} <= {"", *CATALOGUE}
    assert {cell.kind for cell in cells if isinstance(cell, MeasurementCell)} == set(MEASURES)


def test_the_sweep_is_a_fixed_sequence():
    """Records of a sweep are found by these settings."""
    assert sweep_settings(3) == [(5.85, 0.0004167), (3.297, 0.0007887), (4.225, 0.0005349)]
    assert sweep_settings(200)[-1] == (3.204, 0.0001452)


def test_seeds_replace_those_of_the_artifact():
    assert {cell.seed for cell in cells_of("natural", seeds=(5,))} == {5}
    # once for each dataset, method and recipe, seed by seed
    cells = cells_of("zetamix", seeds=(0, 7), datasets=("cifar10",))
    assert [cell.seed for cell in cells] == 2 * (10 * [0] + 10 * [7])
    assert [cell.subset is None for cell in cells] == 20 * [False] + 20 * [True]
    # by its short name
    assert {cell.method for cell in cells_of("zetamix", methods=("zetamix",))} == {ZETAMIX}


@pytest.mark.parametrize(
    ("id", "request_", "message"),
    [
        ("natural", {"datasets": ("cifr10",)}, "got 'cifr10'. Did you mean cifar10?"),
        ("natural", {"methods": ("cutmix:1.0",)}, "expected one of none, mixup:1.0, zeta:2.4"),
        ("theorems", {"datasets": ("cifar10",)}, "expected no dataset, got 'cifar10'"),
        ("overview", {"seeds": (3,)}, "overview trains none"),
    ],
)
def test_a_request_that_cannot_be_served(id, request_, message):
    with pytest.raises(ValueError) as caught:
        cells_of(id, **request_)
    assert message in str(caught.value)
