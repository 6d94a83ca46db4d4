"""The artifacts: each figure and table of the paper with the cells that it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from paper.cells import PaperCell, PaperError, Request, TrainingCell, Variant
from paper.context import Measure
from paper.drawing import ZETAMIX, Result
from paper.recipes import RECIPES
from paper.records import RecordStore, View, index_of
from paper.values import TABLES
from zetamix_lab.data.augment import AUGMENTATIONS
from zetamix_lab.records import RunRecord
from zetamix_lab.text import did_you_mean
from zetamix_lab.train.recipe import Recipe


@dataclass(frozen=True)
class Artifact:
    """A figure or table of the paper, or one of ours."""

    title: str
    cells: Callable[[Request, RecordStore], Sequence[PaperCell]]
    """The cells of a request; those of some artifacts depend on the records so far."""
    draw: Callable[[View], Result]
    claim: str = ""
    """The claim of the paper in plain language; empty for what is not in the paper."""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    """Functions by kind of measurement."""
    trains: bool = False
    """Whether its cells are training runs, with a choice of seeds, augmentation and epochs."""
    complete_only: bool = False
    """Whether it is drawn only as a whole; it is measured within seconds or minutes."""


ARTIFACTS: Mapping[str, Artifact] = {
    "overview": Artifact(
        "samples and weights of each output, N = 3, 4, 8",
        overview.cells,
        overview.draw,
        "One image outweighs all others in every output",
        overview.MEASURES,
        complete_only=True,
    ),
    "distributions": Artifact(
        "crescents, spirals, helix over γ and N",
        distributions.cells,
        distributions.draw,
        "Outputs stay close to the data and keep classes apart",
        distributions.MEASURES,
        complete_only=True,
    ),
    "mnist": Artifact(
        "mixed digits, soft labels, realism by LeNet-5",
        mnist.cells,
        mnist.draw,
        "A classifier finds mixed digits more realistic than mixup's",
        mnist.MEASURES,
        complete_only=True,
    ),
    "dimension": Artifact(
        "local intrinsic dimension against γ",
        dimension.cells,
        dimension.draw,
        "Unlike mixup, it does not raise the intrinsic dimension of the data",
        dimension.MEASURES,
    ),
    "natural": Artifact(
        "table 1: error on natural images",
        tables.natural_cells,
        tables.draw,
        "Lower error on natural images than with mixup or no mixing",
        trains=True,
    ),
    "skin": Artifact(
        "balanced accuracy on skin lesions",
        tables.skin_cells,
        tables.draw,
        "Higher balanced accuracy on skin lesions than with mixup or no mixing",
        trains=True,
    ),
    "skin-detailed": Artifact(
        "skin lesions with micro and macro F1",
        tables.skin_cells,
        tables.draw,
        "Higher F1 on skin lesions than with mixup or no mixing",
        trains=True,
    ),
    "medmnist": Artifact(
        "AUC and accuracy on MedMNIST",
        tables.medmnist_cells,
        tables.draw,
        "Higher AUC on small medical images than with mixup or no mixing",
        trains=True,
    ),
    "timing": Artifact(
        "time of training and of one batch",
        timing.cells,
        timing.draw,
        "Training takes no longer than with mixup",
        timing.MEASURES,
    ),
    "sensitivity": Artifact(
        "error against γ and weight decay",
        sensitivity.cells,
        sensitivity.draw,
        "Results depend little on the parameter γ and on weight decay",
        trains=True,
    ),
    "theorems": Artifact(
        "dominance over γ and N; equivalence to mixup",
        theorems.cells,
        theorems.draw,
        "Two theorems: the condition for dominance, and mixup as a special case",
        theorems.MEASURES,
        complete_only=True,
    ),
    "zetamix-search": Artifact(
        "ZetaMix: the search for its default, on validation data",
        search.cells,
        search.draw,
        trains=True,
    ),
    "zetamix": Artifact(
        "ZetaMix against common baselines, on six datasets",
        comparison.cells,
        comparison.draw,
        measures=comparison.MEASURES,
        trains=True,
    ),
}
MEASURES = {kind: own for a in ARTIFACTS.values() for kind, own in a.measures.items()}
SPELLED = {"zetamix": ZETAMIX}
# additional methods in the paper's tables
OWN_METHODS = ("switch", ZETAMIX)


def select_cells(id: str, request: Request, store: RecordStore) -> list[PaperCell]:
    """The cells of an artifact that match a request."""
    if request.changes_training and not ARTIFACTS[id].trains:
        raise PaperError(
            "Seeds, augmentation, epochs, models and weights apply only to artifacts that train "
            f"models, and {id} trains none."
        )
    for name in request.augmentations or ():
        if name not in AUGMENTATIONS:
            expected = ", ".join(AUGMENTATIONS)
            raise PaperError(f"Expected an augmentation of {expected}, got {name!r}.")
    cells = list(ARTIFACTS[id].cells(request, store))
    # zetamix may be requested by its short name; its cells have all options
    methods = None if request.methods is None else [SPELLED.get(m, m) for m in request.methods]
    chosen = {"dataset": request.datasets, "model": request.models, "method": methods}
    for field_name, names in chosen.items():
        choices = list(filter(None, dict.fromkeys(getattr(c, field_name, "") for c in cells)))
        for name in names or ():
            if name not in choices:
                listed = f"one of {', '.join(choices)}" if choices else f"no {field_name}"
                raise PaperError(
                    f"{id}: expected {listed}, got {name!r}.{did_you_mean(name, choices)}"
                )
        cells = [cell for cell in cells if names is None or getattr(cell, field_name, "") in names]
    return cells


def make_view(id: str, store: RecordStore, request: Request | None = None) -> View:
    """The cells of an artifact, and additional variants and methods that have records.

    request: the cells to show; default all.
    """
    cells = select_cells(id, request or Request(), store)
    more = _other_variants(id, cells, store)
    if id in TABLES:
        trainings = [cell for cell in (*cells, *more) if isinstance(cell, TrainingCell)]
        own = [replace(cell, method=method) for cell in trainings for method in OWN_METHODS]
        more += [cell for cell in dict.fromkeys(own) if store.find(cell) is not None]
    return View(id, ARTIFACTS[id].title, cells, store, more)


def draw(view: View) -> Result:
    """Figures and tables of an artifact; none of one that is drawn only as a whole."""
    artifact = ARTIFACTS[view.artifact]
    return Result() if artifact.complete_only and view.empty else artifact.draw(view)


def _other_variants(id: str, cells: Sequence[PaperCell], store: RecordStore) -> list[TrainingCell]:
    """Cells of variants that were run for this artifact, for the datasets that have such a run.

    Runs of a shortened recipe count only for the artifact they were made for.
    """
    make_cells = ARTIFACTS[id].cells
    own = [other for other, artifact in ARTIFACTS.items() if artifact.cells is make_cells]
    trainings = [cell for cell in cells if isinstance(cell, TrainingCell)]
    methods = {(cell.dataset, cell.method) for cell in trainings}
    indices, variants = {c.index for c in trainings}, {cell.variant for cell in trainings}
    others: dict[tuple[str, Variant], None] = {}
    for key, record in store.records.items():
        if isinstance(record, RunRecord) and store.artifact_of[key] in own:
            where = record.cell.dataset, record.cell.method
            if where in methods and index_of(record) not in indices:
                variant = _variant_of(record)
                if variant is not None and variant not in variants:
                    others[record.cell.dataset, variant] = None
    more: list[TrainingCell] = []
    for dataset, variant in others:
        augmentations = None if variant.augmentation is None else (variant.augmentation,)
        request = Request(None, augmentations, variant.epochs, variant.weights)
        found = make_cells(request, store)
        more += [c for c in found if isinstance(c, TrainingCell) and c.dataset == dataset]
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
