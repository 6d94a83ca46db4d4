"""An artifact: the cells behind it and how they are drawn, joined by its id."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from zetamix.data import CATALOGUE
from zetamix.experiments.reproduce import smoke as quick
from zetamix.experiments.reproduce.cells import Cell, Training, Variant
from zetamix.experiments.reproduce.experiments import EXPERIMENTS, Ask, Experiment
from zetamix.records import RunRecord
from zetamix.report import Cell as TableCell
from zetamix.report import Column, Table
from zetamix.report.paper import DRAWINGS, Answer, Drawn, View
from zetamix.results.record_store import Results
from zetamix.train import RECIPES, Recipe

# artifacts that show nothing of the paper's own: without a record there is nothing to draw
FIGURES = ("overview", "distributions", "mnist", "dimension", "sensitivity", "theorems")


def look(id: str, results: Results, *, is_quick: bool = False, device: str = "cpu") -> View:
    """The cells of an artifact as they are shown: those it needs, and variants that were run."""
    experiment = EXPERIMENTS[id]
    cells = list(experiment.cells(Ask()))
    if is_quick:
        return View(id, quick.shorten(cells, torch.device(device)), results, is_quick=True)
    return View(id, cells, results, more=_other_variants(experiment, cells, results))


def draw(view: View) -> Drawn:
    """Figures, tables and verdict; those of a quick run say what they are and judge nothing."""
    if view.artifact in FIGURES and not view.records:
        return Drawn(verdict=["Nothing of this figure has been measured yet."])
    drawn = DRAWINGS[view.artifact](view)
    if not view.is_quick:
        return drawn
    label = quick.LABEL.capitalize()
    tables = {
        name: replace(table, caption=f"{label}. {table.caption}")
        for name, table in drawn.tables.items()
    }
    return replace(drawn, tables=tables, verdict=[f"{label}."], answer=Answer(quick.LABEL))


def _other_variants(
    experiment: Experiment, cells: Sequence[Cell], results: Results
) -> list[Training]:
    """Cells of shortened or otherwise changed recipes, for the datasets that have a run of them.

    A recipe that was shortened for one artifact says nothing in another.
    """
    homes = [id for id, other in EXPERIMENTS.items() if other.cells is experiment.cells]
    known = [cell for cell in cells if isinstance(cell, Training)]
    methods = {(cell.dataset, cell.method) for cell in known}
    shown = {cell.variant for cell in known}
    found: dict[tuple[str, Variant], None] = {}
    for key, record in results.records.items():
        if not isinstance(record, RunRecord) or results.homes[key] not in homes:
            continue
        if (record.cell.dataset, record.cell.method) not in methods:
            continue
        variant = _variant(record)
        fits = any(cell.fits(record, any_seed=True) for cell in known)
        if variant is not None and variant not in shown and not fits:
            found[record.cell.dataset, variant] = None
    more: list[Training] = []
    for dataset, variant in found:
        augmentations = None if variant.augmentation is None else (variant.augmentation,)
        asked = experiment.cells(Ask(augmentations=augmentations, epochs=variant.epochs))
        more += [c for c in asked if isinstance(c, Training) and c.dataset == dataset]
    return more


def _variant(record: RunRecord) -> Variant | None:
    """The variant of the paper's recipe that a run is of; None where it is of none."""
    recipe, base = Recipe.from_dict(record.cell.recipe), RECIPES[record.cell.dataset]
    epochs = None if recipe.epochs == base.epochs else recipe.epochs
    variant = Variant(recipe.augmentation, epochs)
    return variant if variant.recipe(record.cell.dataset, recipe.model) == recipe else None


def missing(view: View) -> Table | None:
    """Which cells are empty, and the command that would fill them; None where none is."""
    rows: list[list[TableCell | str | int]] = []
    empty = view.empty
    for name in dict.fromkeys(cell.dataset for cell in empty):
        group = [cell for cell in empty if cell.dataset == name]
        title = CATALOGUE[name].title if name else "no data needed"
        rows.append([title, len(group), _command(view.artifact, name, group)])
    if not rows:
        return None
    columns = [Column("data"), Column("empty cells"), Column("the command that fills them")]
    return Table(columns, rows, f"Not run yet: {len(empty)} of {len(view.cells)} cells")


def _command(artifact: str, name: str, cells: Sequence[Cell]) -> str:
    words = ["zetamix reproduce", artifact]
    words += [f"--datasets {name}"] if name else []
    devices = {cell.device for cell in cells} - {None}
    words += [f"--device {device}" for device in sorted(map(str, devices))[:1]]
    command = " ".join(words)
    if not name or CATALOGUE[name].access == "built in":
        return command
    if CATALOGUE[name].access == "download":
        return f"zetamix data prepare {name} && {command}"
    return f"{command}, once the data is here: zetamix data info {name}"
