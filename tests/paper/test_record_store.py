"""The store of records: what fits a cell, what is written and read, views of an artifact."""

import dataclasses
import json
import math

import pytest
import torch
from factories import measurement, run_record
from hypothesis import given
from hypothesis import strategies as st
from processes import start
from test_values import cells_of

from paper.artifacts import make_view
from paper.page import empty_cells
from paper.records import Measurement, RecordStore, append_record
from zetamix_lab.records import RunRecord, read_lines


def test_a_record_of_an_older_recipe_still_fits(tmp_path):
    cell, store = cells_of("natural")[0], RecordStore(tmp_path)
    record = run_record(cell, 0.05)
    older = {key: value for key, value in record.cell.recipe.items() if key != "last_batch"}
    changed = dataclasses.replace(record.cell, recipe=older)
    store.add("natural", dataclasses.replace(record, cell=changed))
    assert store.find(cell).cell.recipe == older


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"dataset": "cifar100"}, {"method": "zeta:2.8"}, {"recipe": {"lr": 1.0}}],
)
def test_a_record_of_something_else_does_not_fit(change, tmp_path):
    cell, store = cells_of("natural")[0], RecordStore(tmp_path)
    record = run_record(cell, 0.05)
    if "recipe" in change:
        change = {"recipe": record.cell.recipe | change["recipe"]}
    other = dataclasses.replace(record.cell, **change)
    store.add("natural", dataclasses.replace(record, cell=other))
    assert store.find(cell) is None
    assert len(store.runs_of(cell)) == ("seed" in change)


def test_a_run_on_a_part_of_the_data_is_another_cell(tmp_path):
    store = RecordStore(tmp_path)
    cut = next(cell for cell in cells_of("zetamix") if getattr(cell, "subset", None))
    store.add("zetamix", run_record(cut, 0.2, extra=cut.extra))
    assert store.find(cut) is not None
    assert store.find(dataclasses.replace(cut, subset=None)) is None
    search = next(cell for cell in cells_of("zetamix-search") if cell.method == cut.method)
    assert search.recipe == cut.recipe
    assert store.find(search) is None


def test_results_come_back_as_they_were_written(tmp_path):
    results, points = RecordStore(tmp_path), torch.rand(5, 2)
    record = measurement()
    record = dataclasses.replace(record, arrays=f"arrays/{record.key}.npz")
    results.add("overview", record, {"points": points})
    cell = cells_of("natural")[0]
    trained = run_record(cell, 0.05)
    results.add("natural", trained)
    again = RecordStore(tmp_path)
    assert list(again.records.values()) == [trained, record]
    torch.testing.assert_close(again.arrays(record)["points"], points, rtol=0, atol=0)
    assert again.find(cell) == trained
    assert again.artifact_of == {trained.cell.key: "natural", record.key: "overview"}
    # the same numbers make the same file
    RecordStore(tmp_path / "b").add("overview", record, {"points": points})
    one, other = (folder / "overview" / record.arrays for folder in (tmp_path, tmp_path / "b"))
    assert one.read_bytes() == other.read_bytes()


def test_the_later_of_two_records_counts_and_lines_are_json_without_nan(tmp_path):
    results = RecordStore(tmp_path)
    for values in ({"x": 1.0}, {"auc": math.nan, "list": [1.0, math.inf]}):
        results.add("overview", measurement(values=values))
    line = (tmp_path / "overview" / "records.jsonl").read_text().splitlines()[1]
    read = json.loads(line, parse_constant=pytest.fail)["values"]
    assert read == {"auc": None, "list": [1.0, None]}
    assert [record.values for record in RecordStore(tmp_path).records.values()] == [read]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{]\n", "line 2: not JSON. Repair or remove that line."),
        ('{"schema": "x"}\n', "line 2: expected a record of schema zetamix/run/1 or"),
        ("[1]\n", "line 2: expected a JSON object. Repair or remove that line."),
        ('{"schema": "zetamix/measurement/1"}\n', "a missing or unknown field"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, line, message):
    path = tmp_path / "natural" / "records.jsonl"
    append_record(path, record(0))
    with path.open("a") as file:
        file.write(line)
    append_record(path, record(1))
    with pytest.raises(ValueError, match=r"records\.jsonl") as caught:
        RecordStore(tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("flipped", [True, False])
def test_arrays_that_cannot_be_read_are_named(tmp_path, flipped):
    results = RecordStore(tmp_path)
    record = dataclasses.replace(measurement(), arrays=f"arrays/{measurement().key}.npz")
    results.add("overview", record, {"points": torch.rand(2)})
    path = tmp_path / "overview" / record.arrays
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    path.write_bytes(damaged if flipped else b"no archive")
    with pytest.raises(ValueError, match=r"cannot be read: .*\. Restore the file"):
        results.arrays(record)


def test_empty_cells_come_with_the_command_that_fills_them(tmp_path):
    store = RecordStore(tmp_path / "my results")
    text = empty_cells(make_view("skin", store))
    assert text.startswith("Not run yet: 100 of 100 cells, of ISIC 2016 (10), ")
    assert f"python -m paper skin --out '{tmp_path / 'my results'}';" in text
    for cell in cells_of("theorems"):
        record = measurement(kind=cell.kind, dataset="", method="zeta", recipe=cell.recipe)
        store.add("theorems", record)
    assert empty_cells(make_view("theorems", store)) == ""


def test_a_measurement_survives_json_and_keeps_its_key():
    """The key was computed once with sha256sum of the JSON text: committed results depend on it."""
    values = {"kind": "dimension", "dataset": "digits", "fingerprint": "01", "method": "zeta:2.8"}
    found = measurement(**values, recipe={"neighbours": 8})
    assert found.key == "c63c3bc51b40"
    assert Measurement.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    # the result and the machine are not part of the key
    assert dataclasses.replace(found, values={}, wall_s=2.0, machine={}).key == found.key


def record(seed):
    found = run_record(cells_of("natural")[0], 0.05)
    return dataclasses.replace(found, cell=dataclasses.replace(found.cell, seed=seed))


def seeds(path):
    return [RunRecord.from_dict(values).cell.seed for values in read_lines(path)]


@given(st.data(), st.sampled_from([0, 1 << 18]))
def test_a_line_cut_off_anywhere_is_dropped_and_the_next_is_whole(tmp_path_factory, data, length):
    path = tmp_path_factory.mktemp("records") / "records.jsonl"
    append_record(path, record(0))
    whole = path.stat().st_size
    append_record(path, dataclasses.replace(record(1), extra={"long": "x" * length}))
    end = data.draw(st.integers(1, path.stat().st_size - 1))
    with path.open("r+b") as file:
        file.truncate(end)
    kept = [0] if end >= whole else []
    # without its newline alone, the last record is whole
    assert seeds(path) in (kept, [*kept, len(kept)])
    append_record(path, record(2))
    assert seeds(path) == [*kept, 2]


def append_many(path, first):
    for seed in range(first, first + 40):
        append_record(path, dataclasses.replace(record(seed), extra={"long": "x" * 5000}))


@pytest.mark.slow
def test_processes_append_side_by_side(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    others = [start(append_many, path, first) for first in (100, 200)]
    assert [other.wait() for other in others] == [0, 0]
    assert set(seeds(path)) == {*range(100, 140), *range(200, 240)}
