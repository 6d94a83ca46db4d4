"""The artifacts: each figure and table of the paper with the cells that it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import ModuleType
from typing import NamedTuple

from paper import (
    comparison,
    dimension,
    distributions,
    mnist,
    overview,
    search,
    sensitivity,
    tables,
    theorems,
    timing,
)
from paper.context import Measure
from paper.drawing import ZETAMIX, Result
from paper.records import PaperCell, RecordStore, TrainingCell, View
from paper.values import TABLES
from zetamix_lab.text import did_you_mean


class Artifact(NamedTuple):
    """A figure or table of the paper, or one of ours."""

    title: str
    module: ModuleType
    """Has `cells()`, which the artifact needs, and `draw(view)`, which returns a `Result`."""


ARTIFACTS: Mapping[str, Artifact] = {
    "overview": Artifact("samples and weights of each output, N = 3, 4, 8", overview),
    "distributions": Artifact("crescents, spirals, helix over γ and N", distributions),
    "mnist": Artifact("mixed digits, soft labels, realism by LeNet-5", mnist),
    "dimension": Artifact("local intrinsic dimension against γ", dimension),
    "natural": Artifact("table 1: error on natural images", tables),
    "skin": Artifact("balanced accuracy on skin lesions", tables),
    "skin-detailed": Artifact("skin lesions with micro and macro F1", tables),
    "medmnist": Artifact("AUC and accuracy on MedMNIST", tables),
    "timing": Artifact("time of training and of one batch", timing),
    "sensitivity": Artifact("error against γ and weight decay", sensitivity),
    "theorems": Artifact("dominance over γ and N; equivalence to mixup", theorems),
    "zetamix-search": Artifact("ZetaMix: the search for its default, on validation data", search),
    "zetamix": Artifact("ZetaMix against common baselines, on six datasets", comparison),
}
# measured within seconds or minutes, and drawn only as a whole
COMPLETE_ONLY = ("overview", "distributions", "mnist", "theorems")
# by the kind of the cell
MEASURES: Mapping[str, Measure] = {
    "overview": overview.measure,
    "distribution": distributions.measure,
    "oracle": mnist.measure_oracle,
    "realism": mnist.measure_realism,
    "dimension": dimension.measure,
    "training-time": timing.measure_training,
    "batch-time": timing.measure_batch,
    "dominance": theorems.measure_dominance,
    "equivalence": theorems.measure_equivalence,
    "contrast": comparison.measure_contrast,
}


def select_cells(
    id: str,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[PaperCell]:
    """The cells of an artifact, or only those of some datasets and methods.

    seeds: replace those of the artifact, which trains models.
    """
    cells: list[PaperCell]
    cells = tables.cells(id) if id in TABLES else ARTIFACTS[id].module.cells()
    # zetamix may be requested by its short name; its cells have all options
    spelled = [ZETAMIX if method == "zetamix" else method for method in methods]
    for field, names in {"dataset": datasets, "method": spelled}.items():
        choices = list(filter(None, dict.fromkeys(getattr(cell, field) for cell in cells)))
        for name in names:
            if name not in choices:
                listed = f"one of {', '.join(choices)}" if choices else f"no {field}"
                raise ValueError(
                    f"{id}: expected {listed}, got {name!r}.{did_you_mean(name, choices)}"
                )
        cells = [cell for cell in cells if not names or getattr(cell, field) in names]
    return _with_seeds(id, cells, seeds) if seeds else cells


def _with_seeds(id: str, cells: Sequence[PaperCell], seeds: Sequence[int]) -> list[PaperCell]:
    """The models of these cells with other seeds, seed by seed within a dataset."""
    alike = {cell.index: cell for cell in cells if isinstance(cell, TrainingCell)}.values()
    if not alike:
        raise ValueError(f"--seeds applies only to artifacts that train models; {id} trains none.")
    groups = [list(group) for _, group in groupby(alike, lambda cell: (cell.dataset, cell.subset))]
    return [replace(cell, seed=seed) for group in groups for seed in seeds for cell in group]


def make_view(id: str, store: RecordStore, cells: Sequence[PaperCell] | None = None) -> View:
    """The cells of an artifact, by default all, with their records."""
    return View(id, ARTIFACTS[id].title, select_cells(id) if cells is None else cells, store)


def draw(view: View) -> Result:
    """Figures and tables of an artifact; none of one that is drawn only as a whole."""
    if view.artifact in COMPLETE_ONLY and view.empty:
        return Result()
    result: Result = ARTIFACTS[view.artifact].module.draw(view)
    return result
