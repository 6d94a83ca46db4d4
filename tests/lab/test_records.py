"""The keys of cells, and the schema of records."""

import dataclasses

import pytest

from zetamix_lab.records import RUN_SCHEMA, Cell, RunRecord

CELL = Cell(
    dataset="digits",
    fingerprint="0123456789abcdef",
    method="zeta:2.8",
    seed=0,
    recipe={"lr": 0.1, "milestones": [80, 120], "source": "paper, Appendix D.1"},
    train_size=1257,
)

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
    assert CELL.key == "a7c6c9477e5e"
    reordered = dict(reversed(CELL.recipe.items()))
    assert dataclasses.replace(CELL, recipe=reordered).key == CELL.key


@pytest.mark.parametrize("schema", ["zetamix/run/0", None])
def test_a_record_of_another_schema_is_refused(schema):
    with pytest.raises(ValueError, match=f"Expected a record of schema {RUN_SCHEMA}, got"):
        RunRecord.from_dict({"schema": schema})
