"""Cells and records: a key for exactly one run, lines that survive a crash."""

import dataclasses
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import start

from zetamix.records import RUN_SCHEMA, Cell, Measurement, RunRecord, append_record, read_lines


def cell(**changes):
    recipe = {"lr": 0.1, "milestones": [80, 120], "source": "paper, Appendix D.1"}
    values = {
        "dataset": "digits",
        "fingerprint": "0123456789abcdef",
        "method": "zeta:2.8",
        "seed": 0,
        "recipe": recipe,
        "train_size": 1257,
    }
    return Cell(**{**values, **changes})


def record(seed=0, error=0.25, **changes):
    return RunRecord(
        cell=cell(seed=seed),
        last={"error": error},
        best=None,
        confusion=[[3, 1], [0, 4]],
        test_size=8,
        wall_s=1.5,
        step_ms=0.25,
        machine={"processor": "μ-processor"},
        **changes,
    )


def read(path):
    """The later of two records with the same key."""
    records = [RunRecord.from_dict(values) for values in read_lines(path)]
    return list({record.key: record for record in records}.values())


CHANGED = {
    "dataset": "mnist",
    "fingerprint": "f" * 16,
    "method": "zeta:2.4",
    "seed": 1,
    "recipe": {"lr": 0.2},
    "train_size": 100,
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Cell)])
def test_whatever_decides_a_run_decides_its_key(name):
    assert cell(**{name: CHANGED[name]}).key != cell().key


def test_the_key_is_the_same_everywhere():
    """Computed once with sha256sum of the JSON text: a changed key would orphan every result."""
    assert cell().key == "a7c6c9477e5e"
    shuffled = {"source": "paper, Appendix D.1", "milestones": [80, 120], "lr": 0.1}
    assert cell(recipe=shuffled).key == cell().key


def test_a_record_survives_json():
    first = record(parameters=7, extra={"graph": True})
    values = json.loads(json.dumps(first.as_dict()))
    assert (values["key"], values["schema"]) == (first.cell.key, RUN_SCHEMA)
    assert RunRecord.from_dict(values) == first


def test_a_measurement_survives_json_and_has_a_key_of_its_inputs_alone():
    first = Measurement(
        kind="dimension", dataset="digits", fingerprint="01", method="zeta:2.8", seed=0,
        recipe={"neighbours": 8}, values={"mean": 3.5}, wall_s=1.0, machine={},
    )  # fmt: skip
    assert Measurement.from_dict(json.loads(json.dumps(first.as_dict()))) == first
    assert first.key == "c63c3bc51b40"
    assert dataclasses.replace(first, values={}, wall_s=2.0, machine={"gpu": "x"}).key == first.key
    assert dataclasses.replace(first, kind="realism").key != first.key


@pytest.mark.parametrize("schema", ["zetamix/run/0", None])
def test_a_record_of_another_schema_is_told(schema):
    values = {**record().as_dict(), "schema": schema}
    with pytest.raises(ValueError) as caught:
        RunRecord.from_dict(values)
    assert str(caught.value) == (
        f"Expected a record of schema zetamix/run/1, got {schema!r}. Read it with the version of "
        "zetamix that wrote it."
    )


def test_append_and_read(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    assert read(path) == []
    for seed in (0, 1):
        append_record(path, record(seed))
    append_record(path, record(0, error=0.5))
    assert path.read_text().count("\n") == 3
    # the later of two with the same key
    assert {found.cell.seed: found.last["error"] for found in read(path)} == {0: 0.5, 1: 0.25}


@given(st.data())
def test_a_line_cut_off_anywhere_is_dropped_and_the_next_is_whole(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("records") / "records.jsonl"
    append_record(path, record(0))
    whole = path.stat().st_size
    append_record(path, record(1))
    with path.open("r+b") as file:
        file.truncate(data.draw(st.integers(whole + 1, path.stat().st_size - 1)))
    # with all but its newline, the last record is whole
    assert [found.cell.seed for found in read(path)] in ([0], [0, 1])
    append_record(path, record(2))
    assert [found.cell.seed for found in read(path)] == [0, 2]


def test_a_long_cut_off_line_is_dropped(tmp_path):
    path = tmp_path / "records.jsonl"
    append_record(path, record(0))
    with path.open("ab") as file:
        file.write(b"{" + b"x" * (1 << 18))
    append_record(path, record(1))
    assert [found.cell.seed for found in read(path)] == [0, 1]


def test_a_file_that_is_one_cut_off_line_starts_anew(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"key": "0')
    assert read(path) == []
    append_record(path, record(0))
    assert len(read(path)) == 1


def test_a_broken_line_in_the_middle_is_told(tmp_path):
    path = tmp_path / "records.jsonl"
    append_record(path, record(0))
    with path.open("ab") as file:
        file.write(b"{oh no\n")
    append_record(path, record(1))
    with pytest.raises(ValueError) as caught:
        list(read_lines(path))
    assert str(caught.value) == f"{path}, line 2, is not JSON. Repair or remove that line."


def add_many(path, first):
    for seed in range(first, first + 40):
        append_record(path, record(seed, extra={"long": "x" * 5000}))


def test_processes_append_side_by_side(tmp_path):
    path = tmp_path / "records.jsonl"
    others = [start(add_many, path, first) for first in (100, 200)]
    assert [other.wait() for other in others] == [0, 0]
    expected = {*range(100, 140), *range(200, 240)}
    assert {found.cell.seed for found in read(path)} == expected


def test_a_record_is_on_the_disk_when_append_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    append_record(tmp_path / "records.jsonl", record())
    assert synced == [(tmp_path / "records.jsonl").stat().st_size]
