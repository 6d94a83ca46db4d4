"""The committed records: complete, recognised as cells, and rendered to the reports."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path

import pytest
import torch

from paper.report import make_report
from paper.report.mnist import is_lower
from paper.report.point_clouds import farther_than_mixup
from paper.report.tables import readme_table
from paper.reproduce import ARTIFACTS, CellRequest, make_view, select_cells
from paper.results import zetamix_search as search
from paper.results.record_store import RecordStore
from zetamix import ZetaMix
from zetamix.methods import parse
from zetamix_lab.records import RunRecord

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results"
LINES = [
    (path.parent.name, json.loads(line))
    for path in sorted(FOLDER.glob("*/records.jsonl"))
    for line in path.read_text().splitlines()
]
STATUS = {
    "overview": "reproduced",
    "distributions": "partly reproduced",
    "mnist": "partly reproduced",
    "dimension": "partly reproduced",
    "natural": "not reproduced (incomplete)",
    "skin": "not run",
    "skin-detailed": "not run",
    "medmnist": "inconclusive",
    "timing": "partly reproduced",
    "sensitivity": "inconclusive",
    "theorems": "reproduced",
    "zetamix-search": "default chosen (incomplete)",
    "zetamix": "inconclusive (incomplete)",
}


@pytest.fixture(scope="module")
def store():
    return RecordStore(FOLDER)


def cells_of(id, **request):
    return select_cells(id, CellRequest(**request), RecordStore(Path("no records")))


def test_every_record_names_its_commit_and_machine_and_no_path():
    assert len(LINES) > 100
    for artifact, line in LINES:
        assert artifact in ARTIFACTS
        machine = line["machine"]
        assert re.match(r"[0-9a-f]{7,}", machine["commit"]), machine
        assert machine["processor"]
        assert machine["torch"]
        assert machine["command"].startswith("zetamix ")
        assert not re.search(r"(?<!\w)/\w", machine["command"]), machine["command"]
        assert "quick" not in line["extra"]


def test_records_keep_their_keys_and_fields(store):
    assert {line["key"] for _, line in LINES} == set(store.records)
    for _, line in LINES:
        # a checksum belongs to the line, not to the record; older lines have none
        fields = {name: value for name, value in line.items() if name != "sha256"}
        assert store.records[line["key"]].as_dict() == fields


def test_every_array_is_there_and_no_other(store):
    named = {
        f"{store.artifact_of[key]}/{record.arrays}"
        for key, record in store.records.items()
        if not isinstance(record, RunRecord) and record.arrays is not None
    }
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/arrays/*")}
    assert named == there
    assert len(there) > 30


def test_nothing_that_is_rendered_is_committed():
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    command = ["git", "-C", str(FOLDER), "ls-files"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    rendered = {name for name in names if "/" in name and "/arrays/" not in name}
    assert rendered <= {f"{id}/records.jsonl" for id in ARTIFACTS}


# point clouds and densities take 10 to 20 s to draw
SLOW = dict.fromkeys(("distributions", "mnist"), pytest.mark.slow)


@pytest.mark.parametrize("id", [pytest.param(id, marks=SLOW.get(id, ())) for id in ARTIFACTS])
def test_every_artifact_renders_to_its_verdict(id, store):
    view = make_view(id, store)
    report = make_report(view)
    assert report.verdict.status == STATUS[id]
    if id in ("overview", "distributions", "theorems", "mnist"):
        assert view.empty == []
        assert all(picture.png for picture in report.pictures)


@pytest.mark.parametrize("dataset", ["helix", "paraboloid", "cifar10", "cifar100"])
def test_dimension_is_complete(dataset, store):
    cells = cells_of("dimension", datasets=(dataset,))
    assert len(cells) == 44
    assert all(store.find(cell) is not None for cell in cells)


def test_the_oracle_is_as_good_as_the_papers(store):
    oracle = make_view("mnist", store).measurements("oracle")[0]
    assert oracle.values["accuracy"]["n"] == 10_000
    assert oracle.values["accuracy"]["value"] >= 0.9931


METHODS = ["none", "mixup:1.0", "zeta:2.4", "zeta:2.8", "zeta:4.0"]
FINGERPRINTS = {"cifar10": "d1a5e29ad572d9ec", "fashion_mnist": "1db2732ee67ef173"}


@pytest.mark.parametrize(
    ("dataset", "variant", "seeds"),
    [("cifar10", "crop-flip", [0, 1, 2]), ("cifar10", "flip", [0]), ("fashion_mnist", "flip", [0])],
)
def test_runs_are_recognised_as_cells_of_the_table(dataset, variant, seeds, store):
    """By their keys, which are computed from the recipes of today."""
    cells = cells_of("natural", datasets=(dataset,))
    found = {
        (cell.method, cell.seed): store.find(cell).cell
        for cell in cells
        if cell.variant.label == variant and store.find(cell) is not None
    }
    assert set(found) == {(method, seed) for method in METHODS for seed in seeds}
    assert {cell.fingerprint for cell in found.values()} == {FINGERPRINTS[dataset]}
    assert {cell.recipe["epochs"] for cell in found.values()} == {200}


def test_failed_claims_follow_from_the_records(store):
    """Read from the lines, without the code of the report."""
    distance = {
        (line["dataset"], line["method"]): line["values"]["distance"]["value"]
        for artifact, line in LINES
        if artifact == "distributions" and "distance" in line["values"]
        if line["recipe"]["batch"] == 32
    }
    expected = {
        name: [
            gamma
            for gamma in ("2.0", "2.4", "2.8", "4.0", "6.0")
            if distance[name, f"zeta:{gamma}"] > distance[name, "mixup:1.0"]
        ]
        for name in ("crescents", "spirals", "helix")
    }
    assert farther_than_mixup(make_view("distributions", store), 32) == expected
    realism = {r.method: r for r in make_view("mnist", store).measurements("realism")}
    assert is_lower(realism) == {"oracle_entropy": True, "cross_entropy": True, "loss": False}


def test_the_tables_are_rendered_from_the_records(store):
    spec = importlib.util.spec_from_file_location("render_results", FOLDER / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = "docs/results/paper.md"
    places = "".join(f"<!-- {name} -->\nold\n<!-- /{name} -->\n" for name in module.PAGES[page])
    rendered = module.render(places, page)
    table = readme_table(make_view("natural", store), "cifar10").markdown()
    assert rendered.startswith(f"<!-- cifar10 -->\n{table}\n<!-- /cifar10 -->\n")
    assert "| mixup | 4.68 |" in rendered
    # of the records of `natural`, those that are cells of both tables
    empty = "".join(f"<!-- {name} -->\n<!-- /{name} -->\n" for name in module.PAGES["README.md"])
    row = "| no mixing | 0.8879 ± 0.0196 (n = 4) | 4.74 ± 0.05 (n = 3) |"
    assert row in module.render(empty)
    with pytest.raises(ValueError, match="must contain <!-- cifar10 --> and"):
        module.render(empty, page)


def test_the_default_is_what_the_complete_rounds_chose(store):
    cells = {cell.dataset: cell for cell in make_view("zetamix-search", store).trainings}
    choice = search.choose(search.read_errors(store, cells))
    assert choice.rounds >= 3
    assert choice.method == parse("zetamix").full_label
    # the constructor's paste is None, which depends on the data: compared by what images become
    # (`until` belongs to the training loop)
    images, labels = torch.randn(64, 3, 8, 8), torch.arange(64) % 2
    chosen = parse(choice.method).transform(2, torch.Generator().manual_seed(0))
    default = ZetaMix(num_classes=2, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(default(images, labels), chosen(images, labels), strict=True):
        assert torch.equal(ours, theirs)
    options = {key: parse(choice.method).option(key) for key in ("gamma", "sources", "p")}
    assert {key: getattr(default, key) for key in options} == options


def test_the_search_is_as_far_as_the_readme_says(store):
    """Three rounds, in 59 records; the fourth and its controls are left."""
    view = make_view("zetamix-search", store)
    lines = [line for artifact, line in LINES if artifact == "zetamix-search"]
    assert {line["machine"]["commit"] for line in lines} == {"4b9253d"}
    text = (FOLDER / "README.md").read_text()
    assert f"{len(lines)} records" in text
    assert f"{len(view.empty)} runs" in text


def test_the_page_of_zetamix_quotes_the_records(store):
    """Each number of the list of options, from the table of the report."""
    table = make_report(make_view("zetamix-search", store)).tables["changes"]
    rows = {row[0].value: row for row in table.cells}
    page = (ROOT / "docs" / "results" / "zetamix.md").read_text()
    listed = page[page.index("- **Variance.**") : page.index("- **What did not help.**")]
    quoted = set(re.findall(r"\d\.\d\d", listed))
    names = [f"50 % pasted → {share} % pasted" for share in (0, 25, 100)]
    names += ["variance kept → variance not kept", "until = 1 → until = 0.9"]
    cells = [cell for name in names for cell in rows[name][1:4]]
    assert quoted == {f"{abs(cell.value):.2f}" for cell in cells if cell.value is not None}
    assert rows["variance kept → variance not kept"][-1].value == "3 of 3"
    assert rows["until = 1 → until = 0.9"][-1].value == "0 of 6"
    for name in (
        *(f"2 sources → {n} sources" for n in (3, 4)),
        *(f"p = 1 → p = {p}" for p in (0.5, 0.8)),
    ):
        assert rows[name][-2].value > 0
    assert all(row[-2].value > 0 for name, row in rows.items() if name.startswith("γ"))
