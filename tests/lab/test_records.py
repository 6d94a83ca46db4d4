"""Cells and records: keys, JSON, and lines that survive a crash."""

import dataclasses
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import start

from zetamix_lab.records import RUN_SCHEMA, Cell, Measurement, RunRecord, append_record, read_lines

CELL = Cell(
    dataset="digits",
    fingerprint="0123456789abcdef",
    method="zeta:2.8",
    seed=0,
    recipe={"lr": 0.1, "milestones": [80, 120], "source": "paper, Appendix D.1"},
    train_size=1257,
)
RUN = RunRecord(
    cell=CELL,
    last={"error": 0.25},
    best=None,
    confusion=[[3, 1], [0, 4]],
    test_size=8,
    wall_s=1.5,
    step_ms=0.25,
    machine={"processor": "μ-processor"},
)
MEASUREMENT = Measurement(
    kind="dimension",
    dataset="digits",
    fingerprint="01",
    method="zeta:2.8",
    seed=0,
    recipe={"neighbours": 8},
    values={"mean": 3.5},
    wall_s=1.0,
    machine={},
)


def record(seed):
    return dataclasses.replace(RUN, cell=dataclasses.replace(CELL, seed=seed))


def seeds(path):
    return [RunRecord.from_dict(values).cell.seed for values in read_lines(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "records.jsonl"


CHANGES = [
    {"dataset": "mnist"}, {"fingerprint": "f" * 16}, {"method": "zeta:2.4"}, {"seed": 1},
    {"recipe": {"lr": 0.2}}, {"train_size": 100},
]  # fmt: skip


def test_every_field_of_a_cell_decides_its_key():
    assert {next(iter(change)) for change in CHANGES} == {f.name for f in dataclasses.fields(Cell)}
    keys = {dataclasses.replace(CELL, **change).key for change in [{}, *CHANGES]}
    assert len(keys) == 1 + len(CHANGES)


def test_keys_never_change():
    """Computed once with sha256sum of the JSON text: committed results depend on them."""
    assert (CELL.key, MEASUREMENT.key) == ("a7c6c9477e5e", "c63c3bc51b40")
    reordered = dict(reversed(CELL.recipe.items()))
    assert dataclasses.replace(CELL, recipe=reordered).key == CELL.key
    # the result and the machine are not part of the key
    other = dataclasses.replace(MEASUREMENT, values={}, wall_s=2.0, machine={"gpu": "x"})
    assert other.key == MEASUREMENT.key


@pytest.mark.parametrize("result", [RUN, MEASUREMENT], ids=["run", "measurement"])
def test_a_record_survives_json(result):
    values = json.loads(json.dumps(result.as_dict()))
    assert values["key"] == result.key
    assert type(result).from_dict(values) == result


@pytest.mark.parametrize("schema", ["zetamix/run/0", None])
def test_a_record_of_another_schema_is_refused(schema):
    with pytest.raises(ValueError, match=f"Expected a record of schema {RUN_SCHEMA}, got"):
        RunRecord.from_dict({**RUN.as_dict(), "schema": schema})


def test_records_are_appended_and_synced(path, monkeypatch):
    assert seeds(path) == []
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    for seed in (0, 1, 0):
        append_record(path, record(seed))
    assert seeds(path) == [0, 1, 0]
    assert synced[-1] == path.stat().st_size


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


def test_a_broken_line_in_the_middle_is_an_error(path):
    append_record(path, record(0))
    with path.open("ab") as file:
        file.write(b"{oh no\n")
    append_record(path, record(1))
    with pytest.raises(ValueError, match=r"line 2: not JSON\."):
        seeds(path)


def append_many(path, first):
    for seed in range(first, first + 40):
        append_record(path, dataclasses.replace(record(seed), extra={"long": "x" * 5000}))


@pytest.mark.slow
def test_processes_append_side_by_side(path):
    others = [start(append_many, path, first) for first in (100, 200)]
    assert [other.wait() for other in others] == [0, 0]
    assert set(seeds(path)) == {*range(100, 140), *range(200, 240)}
