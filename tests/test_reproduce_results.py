"""The committed results: whole, recognised, rendered as they are, with where they come from."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from zetamix.experiments.reproduce import EXPERIMENTS, Ask, Results
from zetamix.records import RunRecord
from zetamix.report.paper import distributions, mnist
from zetamix.report.paper.artifacts import draw, look
from zetamix.report.paper.natural import draw_one
from zetamix.report.paper.write import _readme

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "results"
LINES = [
    (path.parent.name, json.loads(line))
    for path in sorted(FOLDER.glob("*/records.jsonl"))
    for line in path.read_text().splitlines()
]
# those that need no figure to be drawn again
TABLES = ("natural", "skin", "skin-detailed", "medmnist", "timing")


@pytest.fixture(scope="module")
def results():
    return Results(FOLDER)


def render():
    spec = importlib.util.spec_from_file_location("render_results", FOLDER / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_record_names_its_commit_and_machine_and_no_place():
    assert len(LINES) > 100
    for artifact, line in LINES:
        assert artifact in EXPERIMENTS
        machine = line["machine"]
        assert re.match(r"[0-9a-f]{7,}", machine["commit"]), machine
        assert machine["processor"]
        assert machine["torch"]
        assert machine["command"].startswith("zetamix ")
        assert not re.search(r"(?<!\w)/\w", machine["command"]), machine["command"]
        assert "quick" not in line["extra"]


def test_keys_are_those_of_their_cells(results):
    assert {line["key"] for _, line in LINES} == set(results.records)


def test_every_array_is_there_and_no_other(results):
    named = {
        f"{results.homes[key]}/{record.arrays}"
        for key, record in results.records.items()
        if not isinstance(record, RunRecord) and record.arrays is not None
    }
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/arrays/*")}
    assert named == there
    assert len(there) > 30


@pytest.mark.parametrize("id", ["overview", "distributions", "theorems", "mnist"])
def test_what_needs_no_gpu_is_complete(id, results):
    view = look(id, results)
    assert view.empty == []
    names = {path.stem for path in (FOLDER / id).glob("*.svg")}
    assert names == {path.stem for path in (FOLDER / id).glob("*.png")} != set()


@pytest.mark.parametrize("dataset", ["helix", "paraboloid"])
def test_dimension_is_complete_for_points(dataset, results):
    cells = [c for c in EXPERIMENTS["dimension"].cells(Ask()) if c.dataset == dataset]
    assert len(cells) == 44
    assert all(results.find(cell) is not None for cell in cells)


def test_the_oracle_is_as_good_as_the_papers(results):
    oracle = next(record for _, record in look("mnist", results).measured("oracle"))
    assert oracle.values["accuracy"]["n"] == 10_000
    assert oracle.values["accuracy"]["value"] >= 0.9931


METHODS = ["none", "mixup:1.0", "zeta:2.4", "zeta:2.8", "zeta:4.0"]
FINGERPRINTS = {"cifar10": "d1a5e29ad572d9ec", "fashion_mnist": "1db2732ee67ef173"}


@pytest.mark.parametrize(
    ("dataset", "variant", "seeds"),
    [("cifar10", "crop-flip", [0, 1, 2]), ("cifar10", "flip", [0]), ("fashion_mnist", "flip", [0])],
)
def test_runs_are_recognised_as_cells_of_the_table(dataset, variant, seeds, results):
    """By their keys, which are computed from the recipes of today."""
    cells = [c for c in EXPERIMENTS["natural"].cells(Ask()) if c.dataset == dataset]
    found = {
        (cell.method, cell.seed): results.find(cell).cell
        for cell in cells
        if cell.variant.label == variant and results.find(cell) is not None
    }
    assert set(found) == {(method, seed) for method in METHODS for seed in seeds}
    assert {cell.fingerprint for cell in found.values()} == {FINGERPRINTS[dataset]}
    assert {cell.recipe["epochs"] for cell in found.values()} == {200}


def test_where_ours_differ_from_the_paper_the_words_say_so(results):
    """What the records have, read without the drawing."""
    far = {
        (line["dataset"], line["method"]): line["values"]["distance"]["value"]
        for artifact, line in LINES
        if artifact == "distributions" and "distance" in line["values"]
        if line["recipe"]["batch"] == 32
    }
    told = distributions._verdict(look("distributions", results))[-1]
    for name in ("crescents", "spirals", "helix"):
        gammas = [
            gamma
            for gamma in ("2.0", "2.4", "2.8", "4.0", "6.0")
            if far[name, f"zeta:{gamma}"] > far[name, "mixup:1.0"]
        ]
        assert f"{name} at γ = {', '.join(gammas)}" in told
    judged = {cell.method: record for cell, record in look("mnist", results).measured("realism")}
    lower = {"oracle_entropy": True, "cross_entropy": True, "loss": False}
    assert mnist._lower(judged) == lower


@pytest.mark.parametrize("id", TABLES)
def test_tables_are_rendered_from_the_records(id, results):
    view = look(id, results)
    assert (FOLDER / id / "README.md").read_text() == _readme(view, draw(view)), (
        "run: zetamix reproduce page"
    )


def test_the_page_shows_every_artifact():
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<h2>([\w-]+):", text) == list(EXPERIMENTS)
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_the_readme_table_is_rendered_from_the_records(results):
    table = draw_one(look("natural", results), "cifar10").markdown()
    text = "before\n<!-- cifar10 -->\nold | numbers\n<!-- /cifar10 -->\nafter\n"
    found = render().rendered(text)
    assert found == f"before\n<!-- cifar10 -->\n{table}\n<!-- /cifar10 -->\nafter\n"
    assert render().rendered(found) == found
    assert "| mixup | 4.68 |" in found
    with pytest.raises(ValueError, match="must hold <!-- cifar10 --> and <!-- /cifar10 --> once"):
        render().rendered("nothing to fill")
