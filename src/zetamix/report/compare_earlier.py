"""The report that a folder holds already, which may be that of another comparison."""

import json
from collections.abc import Mapping
from typing import Any

from zetamix.experiments.compare.grid import Grid


def what_differs(grid: Grid) -> list[str]:
    """In words, what the report in the folder has that a new one will not; empty where all stays.

    More methods and more seeds go on with a comparison; another recipe and other data do not.
    """
    there = _read(grid)
    if there is None:
        return []
    old, new = there["recipe"], json.loads(json.dumps(grid.recipe.as_dict()))
    found = _data(there["dataset"], grid)
    found += [
        f"{name}: {old.get(name)} there, {new[name]} now"
        for name in new
        if name != "source" and old.get(name) != new[name]
    ]
    asked = [method.label for method in grid.methods]
    dropped = [label for label in there["methods"] if label not in asked]
    if dropped:
        found.append(f"methods: {', '.join(dropped)} there, not now")
    seeds, now = len(there["seeds"]), len(grid.seeds)
    return [*found, f"seeds: {seeds} there, {now} now"] if seeds > now else found


def _data(there: Mapping[str, Any], grid: Grid) -> list[str]:
    dataset = grid.dataset
    asked = {
        "data": (there["name"], dataset.name),
        "shape": (tuple(there["shape"]), tuple(dataset.shape)),
        "training samples": (there["samples"]["train"], len(dataset.train)),
    }
    found = [f"{name}: {old} there, {new} now" for name, (old, new) in asked.items() if old != new]
    if not found and there["fingerprint"] != dataset.fingerprint:
        found.append("data: its samples or splits have changed")
    return found


def _read(grid: Grid) -> dict[str, Any] | None:
    """None where there is no report, or one that another version wrote."""
    try:
        there: dict[str, Any] = json.loads((grid.out / "results.json").read_text())
        # all that is asked about below
        _ = there["recipe"]["epochs"], there["methods"], there["seeds"]
        _ = there["dataset"]["name"], there["dataset"]["shape"], there["dataset"]["fingerprint"]
        _ = there["dataset"]["samples"]["train"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return there
