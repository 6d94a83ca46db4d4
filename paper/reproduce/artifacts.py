"""The artifacts: each figure and table of the paper with the cells that it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from paper.recipes import RECIPES
from paper.reproduce import mnist, smoke, theorems, timing, zetamix_cells
from paper.reproduce import point_clouds as clouds
from paper.reproduce import training_cells as training
from paper.reproduce.measure_context import Measure
from paper.reproduce.training_cells import CellRequest
from paper.results.paper_cells import PaperCell, ReproduceError, TrainingCell, Variant
from paper.results.paper_values import TABLES
from paper.results.record_store import PaperView, RecordStore
from zetamix.methods import parse
from zetamix_lab.data.augment import AUGMENTATIONS
from zetamix_lab.records import RunRecord
from zetamix_lab.text import did_you_mean
from zetamix_lab.train.recipe import Recipe


@dataclass(frozen=True)
class Artifact:
    """A figure or table of the paper, or an additional one."""

    title: str
    make_cells: Callable[..., Sequence[PaperCell]]
    """Called with a `CellRequest` if the artifact trains models, else without arguments."""
    trains: bool = False
    """Whether its cells are training runs, with a choice of seeds, augmentation and epochs."""
    adapts: bool = False
    """Whether its cells depend on the records so far, with which `make_cells` is then called."""
    ours: bool = False
    """Whether the paper has no such figure or table."""

    def cells(self, request: CellRequest, store: RecordStore) -> list[PaperCell]:
        if self.adapts:
            return list(self.make_cells(request, store))
        return list(self.make_cells(request) if self.trains else self.make_cells())


ARTIFACTS: Mapping[str, Artifact] = {
    "overview": Artifact("samples and weights of each output, N = 3, 4, 8", clouds.overview_cells),
    "distributions": Artifact("crescents, spirals, helix over γ and N", clouds.distribution_cells),
    "mnist": Artifact("mixed digits, soft labels, realism by LeNet-5", mnist.cells),
    "dimension": Artifact("local intrinsic dimension against γ", clouds.dimension_cells),
    "natural": Artifact("table 1: error on natural images", training.natural_cells, trains=True),
    "skin": Artifact("balanced accuracy on skin lesions", training.skin_cells, trains=True),
    "skin-detailed": Artifact(
        "skin lesions with micro and macro F1", training.skin_cells, trains=True
    ),
    "medmnist": Artifact("AUC and accuracy on MedMNIST", training.medmnist_cells, trains=True),
    "timing": Artifact("time of training and of one batch", timing.cells),
    "sensitivity": Artifact(
        "error against γ and weight decay", training.sensitivity_cells, trains=True
    ),
    "theorems": Artifact("dominance over γ and N; equivalence to mixup", theorems.cells),
    "zetamix-search": Artifact(
        "ZetaMix: the search for its default, on validation data",
        zetamix_cells.search_cells,
        trains=True,
        adapts=True,
        ours=True,
    ),
    "zetamix": Artifact(
        "ZetaMix against common baselines, on six datasets",
        zetamix_cells.proof_cells,
        trains=True,
        ours=True,
    ),
}

MEASURES: Mapping[str, Measure] = {
    "overview": clouds.measure_overview,
    "distribution": clouds.measure_distribution,
    "dominance": theorems.measure_dominance,
    "equivalence": theorems.measure_equivalence,
    "oracle": mnist.measure_oracle,
    "realism": mnist.measure_realism,
    "dimension": clouds.measure_dimension,
    "training-time": timing.measure_training,
    "batch-time": timing.measure_batch,
    "contrast": zetamix_cells.measure_contrast,
}

SPELLED = {"zetamix": parse("zetamix").full_label}
# additional methods in the paper's tables
OWN_METHODS = ("switch", SPELLED["zetamix"])


def select_cells(id: str, request: CellRequest, store: RecordStore) -> list[PaperCell]:
    """The cells of an artifact that match a request.

    store: the records so far, on which the cells of some artifacts depend.
    """
    if request.changes_training and not ARTIFACTS[id].trains:
        raise ReproduceError(
            "Seeds, augmentation, epochs, models and weights apply only to artifacts that train "
            f"models, and {id} trains none."
        )
    for name in request.augmentations or ():
        if name not in AUGMENTATIONS:
            expected = ", ".join(AUGMENTATIONS)
            raise ReproduceError(f"Expected an augmentation of {expected}, got {name!r}.")
    cells = ARTIFACTS[id].cells(request, store)
    # zetamix may be requested by its short name; its cells have all options
    methods = None if request.methods is None else [SPELLED.get(m, m) for m in request.methods]
    chosen = {"dataset": request.datasets, "model": request.models, "method": methods}
    for field, names in chosen.items():
        choices = [
            name for name in dict.fromkeys(getattr(cell, field, "") for cell in cells) if name
        ]
        for name in names or ():
            if name not in choices:
                listed = f"one of {', '.join(choices)}" if choices else f"no {field}"
                raise ReproduceError(
                    f"{id}: expected {listed}, got {name!r}.{did_you_mean(name, choices)}"
                )
        cells = [cell for cell in cells if names is None or getattr(cell, field, "") in names]
    return cells


def requests_of_all(request: CellRequest, store: RecordStore) -> dict[str, CellRequest]:
    """The artifacts that have cells of a request, each with the names of it that it has.

    A name that no artifact has is an error.
    """
    found, known = dict[str, CellRequest](), set[str]()
    for id, artifact in ARTIFACTS.items():
        if request.changes_training and not artifact.trains:
            continue
        names: dict[str, Any] = {}
        cells = artifact.cells(request, store)
        for field, option in (("dataset", "datasets"), ("model", "models"), ("method", "methods")):
            asked = getattr(request, option)
            if asked is not None:
                has = {getattr(cell, field, "") for cell in cells}
                names[option] = tuple(name for name in asked if SPELLED.get(name, name) in has)
                known.update(names[option])
                kept = {SPELLED.get(name, name) for name in names[option]}
                cells = [cell for cell in cells if getattr(cell, field, "") in kept]
        narrowed = replace(request, **names)
        if cells and select_cells(id, narrowed, store):
            found[id] = narrowed
    asked = (*(request.datasets or ()), *(request.models or ()), *(request.methods or ()))
    unknown = [name for name in asked if name not in known]
    if unknown or not found:
        raise ReproduceError(f"No artifact has {', '.join(unknown) or 'all of these together'}.")
    return found


def make_view(
    id: str, store: RecordStore, *, request: CellRequest | None = None, is_smoke: bool = False
) -> PaperView:
    """The cells of an artifact, and additional variants and methods that have records.

    request: the cells to show; default all.
    """
    artifact = ARTIFACTS[id]
    cells = select_cells(id, request or CellRequest(), store)
    if is_smoke:
        cells = smoke.shorten(cells, torch.device("cpu"))
        return PaperView(id, artifact.title, cells, store, (), smoke.LABEL, artifact.ours)
    more = _other_variants(artifact, cells, store)
    if id in TABLES:
        more += _own_methods([*cells, *more], store)
    return PaperView(id, artifact.title, cells, store, more, ours=artifact.ours)


def _own_methods(cells: Sequence[PaperCell], store: RecordStore) -> list[TrainingCell]:
    """Cells of methods that the paper does not have, with the recipes of its tables."""
    trainings = [cell for cell in cells if isinstance(cell, TrainingCell)]
    others = [replace(cell, method=method) for cell in trainings for method in OWN_METHODS]
    return [cell for cell in dict.fromkeys(others) if store.find(cell) is not None]


def _other_variants(
    artifact: Artifact, cells: Sequence[PaperCell], store: RecordStore
) -> list[TrainingCell]:
    """Cells of variants that were run for this artifact, for the datasets that have such a run.

    Runs of a shortened recipe count only for the artifact they were made for.
    """
    own = [id for id, other in ARTIFACTS.items() if other.make_cells is artifact.make_cells]
    trainings = [cell for cell in cells if isinstance(cell, TrainingCell)]
    methods = {(cell.dataset, cell.method) for cell in trainings}
    default_variants = {cell.variant for cell in trainings}
    others: dict[tuple[str, Variant], None] = {}
    for key, record in store.records.items():
        if not isinstance(record, RunRecord) or store.artifact_of[key] not in own:
            continue
        if (record.cell.dataset, record.cell.method) not in methods:
            continue
        variant = _variant_of(record)
        matches = any(cell.matches(record, any_seed=True) for cell in trainings)
        if variant is not None and variant not in default_variants and not matches:
            others[record.cell.dataset, variant] = None
    more: list[TrainingCell] = []
    for dataset, variant in others:
        augmentations = None if variant.augmentation is None else (variant.augmentation,)
        request = CellRequest(None, augmentations, variant.epochs, variant.weights)
        more += [
            cell
            for cell in artifact.cells(request, store)
            if isinstance(cell, TrainingCell) and cell.dataset == dataset
        ]
    return more


def _variant_of(record: RunRecord) -> Variant | None:
    """The variant of the paper's recipe that a run used; None for any other recipe."""
    recipe, base = Recipe.from_dict(record.cell.recipe), RECIPES[record.cell.dataset]
    epochs = None if recipe.epochs == base.epochs else recipe.epochs
    augmentation: str | None = recipe.augmentation
    if recipe.weights is not None and augmentation == base.augmentation:
        # identified by its weights only
        augmentation = None
    variant = Variant(augmentation, epochs, recipe.weights)
    return variant if variant.recipe(record.cell.dataset, recipe.model) == recipe else None
