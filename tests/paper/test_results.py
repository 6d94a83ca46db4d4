"""The committed records: complete, recognised as cells, and rendered to tables and pages."""

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from paper import search
from paper.artifacts import ARTIFACTS, draw, make_view
from paper.comparison import BREAST, LATE
from paper.drawing import ZETAMIX
from paper.records import RecordStore
from zetamix_lab.records import RunRecord

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results"
LINES = [
    (path.parent.name, json.loads(line))
    for path in sorted(FOLDER.glob("*/records.jsonl"))
    for line in path.read_text().splitlines()
]
# by artifact: cells with a committed record, and all cells
CELLS = {
    "overview": (4, 4),
    "distributions": (36, 36),
    "mnist": (4, 4),
    "dimension": (176, 4 * 22 * 2),
    "natural": (25, 6 * 5 * 3 * 2),
    "skin": (3, 10 * 2 * 5),
    "skin-detailed": (3, 10 * 2 * 5),
    "medmnist": (3, 8 * 3),
    "timing": (5, 3 * 3 + 2),
    "sensitivity": (20, 17 + (17 + 200) * 2),
    "theorems": (7, 7),
    "zetamix-search": (83, 31 + 2 * 8 + 3 * 4 + 6 * (2 + 2)),
    "zetamix": (207, 8 + 10 * (10 + 10 + 5 + 5 + 3 + 3)),
}


@pytest.fixture(scope="module")
def store():
    return RecordStore(FOLDER)


def test_every_record_names_its_commit_and_machine_and_no_path():
    for artifact, line in LINES:
        assert artifact in ARTIFACTS
        machine = line["machine"]
        assert re.match(r"[0-9a-f]{7,}", machine["commit"]), machine
        assert machine["processor"]
        assert machine["torch"]
        assert machine["command"].startswith("zetamix ")
        assert not re.search(r"(?<!\w)/\w", machine["command"]), machine["command"]


def test_records_keep_their_keys_and_fields(store):
    assert {line["key"] for _, line in LINES} == set(store.records)
    for _, line in LINES:
        # a checksum belongs to the line, not to the record; older lines have none
        fields = {name: value for name, value in line.items() if name != "sha256"}
        assert store.records[line["key"]].as_dict() == fields


def test_every_record_is_that_of_a_cell(store):
    """Or not in a table: random anchors, an earlier default of ZetaMix, one model of a sweep."""
    found = {record.key for id in ARTIFACTS for record in make_view(id, store).records}
    others = [store.records[key] for key in set(store.records) - found]
    methods = {getattr(record, "cell", record).method for record in others}
    assert methods == {
        "zeta:gamma=2.4,anchor=random",
        "zeta:gamma=4.0,anchor=random",
        "zeta:5.85",
        ZETAMIX.replace("paste=0.5", "paste=0.0").replace("until=0.8", "until=1.0"),
    }
    assert len(others) == 4


@pytest.mark.parametrize("id", ARTIFACTS)
def test_cells_are_as_many_as_the_paper_has_and_no_two_alike(id, store):
    view = make_view(id, store)
    assert (len(view.cells) - len(view.empty), len(view.cells)) == CELLS[id]
    assert len({(cell.index, cell.seed) for cell in view.cells}) == len(view.cells)


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


# point clouds and densities take seconds to draw: tests/test_docs.py finds these two in the site
DRAWN = [id for id in ARTIFACTS if id not in ("distributions", "mnist")]


@pytest.mark.parametrize("id", DRAWN)
def test_every_artifact_is_drawn(id, store):
    result = draw(make_view(id, store))
    assert result.tables or result.pictures
    assert all(picture.png for picture in result.pictures)
    assert all(len(table.rows) > 1 for table in result.tables.values())


def test_the_oracle_is_as_good_as_the_papers(store):
    oracle = make_view("mnist", store).measurements("oracle")[0]
    assert oracle.values["accuracy"]["n"] == 10_000
    assert oracle.values["accuracy"]["value"] >= 0.9931


def test_the_rounds_of_the_search_kept_the_best(store):
    """By the relative errors of the runs of the rounds before."""
    errors, pairs, last = search.errors_of(make_view("zetamix-search", store)), [], None
    for datasets, seeds, methods in search.ROUNDS:
        family = [method for method in methods if method in search.FAMILY]
        if last is not None:
            order = search.relative_errors(errors)[pairs].loc[last].mean(axis=1).sort_values()
            ranked = [method for method in order.index if method in search.FAMILY]
            assert set(ranked[: len(family)]) == set(family)
            # no baseline was better than the worst of them
            assert set(order.index[: len(family)]) == set(family)
        last, pairs = family, [*pairs, *((d, s) for d in datasets for s in seeds)]
    assert pairs == [*dict.fromkeys(pairs)]


def changes_by(errors, old, new):
    """The mean change on each dataset, of settings that differ in one option only."""
    pairs = [(label, label.replace(old, new)) for label in search.FAMILY if old in label]
    pairs = [pair for pair in pairs if pair[1] in search.FAMILY]
    found = [100 * (errors.loc[other] - errors.loc[one]) for one, other in pairs]
    return pd.concat(found).dropna().groupby(level=0).mean()


def test_the_page_of_zetamix_quotes_the_records(store):
    """Each number of the list of options, from the records."""
    view = make_view("zetamix-search", store)
    errors, tables = search.errors_of(view), draw(view).tables
    page = (ROOT / "docs" / "results" / "zetamix.md").read_text()
    listed = page[page.index("- **Variance.**") : page.index("- **What did not help.**")]
    options = [("paste=0.5", f"paste={share}") for share in ("0.0", "0.25", "1.0")]
    options += [("keep_variance=yes", "keep_variance=no"), ("until=1.0", "until=0.9")]
    found = pd.concat([changes_by(errors, *option) for option in options])
    assert set(re.findall(r"\d\.\d\d\b", listed)) == {f"{abs(value):.2f}" for value in found}
    relative = [row[-1].text() for row in tables["settings"].cells[:2]]
    above = " ".join(row[-1].text() for row in tables["controls"].cells)
    for number in re.findall(r"[+−]?\d\.\d{3}", listed):
        assert number in relative or number.lstrip("+") in above, number


def test_the_note_under_breastmnist_is_true(store):
    runs = [
        (r.cell.method, r.cell.seed, "gpu" in r.machine)
        for r in make_view("zetamix", store).records
        if isinstance(r, RunRecord) and r.cell.dataset == "breastmnist"
    ]
    table = pd.DataFrame(runs, columns=["method", "seed", "gpu"])
    late = table["method"].isin(LATE.values())
    assert (table["gpu"] == (late | (table["seed"] > 3))).all()
    assert "Seeds 0–3 of all rows but those named until = 0.8" in BREAST
