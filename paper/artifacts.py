"""The artifacts: each figure and table of the paper with the cells that it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

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
from paper.cells import PaperCell, PaperError, Request, TrainingCell
from paper.context import Measure
from paper.drawing import ZETAMIX, Result
from paper.records import RecordStore, View, cell_of
from paper.values import TABLES
from zetamix_lab.records import RunRecord
from zetamix_lab.text import did_you_mean


@dataclass(frozen=True)
class Artifact:
    """A figure or table of the paper, or one of ours."""

    module: ModuleType
    """With the functions `cells` and `draw`."""
    title: str
    claim: str = ""
    """The claim of the paper in plain language; empty for what is not in the paper."""
    make_cells: Callable[[Request], Sequence[PaperCell]] | None = None
    """Instead of `cells`, where a module has several artifacts."""

    def cells(self, request: Request) -> list[PaperCell]:
        return list((self.make_cells or self.module.cells)(request))


ARTIFACTS: Mapping[str, Artifact] = {
    "overview": Artifact(
        overview,
        "samples and weights of each output, N = 3, 4, 8",
        "One image outweighs all others in every output",
    ),
    "distributions": Artifact(
        distributions,
        "crescents, spirals, helix over γ and N",
        "Outputs stay close to the data and keep classes apart",
    ),
    "mnist": Artifact(
        mnist,
        "mixed digits, soft labels, realism by LeNet-5",
        "A classifier finds mixed digits more realistic than mixup's",
    ),
    "dimension": Artifact(
        dimension,
        "local intrinsic dimension against γ",
        "Unlike mixup, it does not raise the intrinsic dimension of the data",
    ),
    "natural": Artifact(
        tables,
        "table 1: error on natural images",
        "Lower error on natural images than with mixup or no mixing",
        tables.natural_cells,
    ),
    "skin": Artifact(
        tables,
        "balanced accuracy on skin lesions",
        "Higher balanced accuracy on skin lesions than with mixup or no mixing",
        tables.skin_cells,
    ),
    "skin-detailed": Artifact(
        tables,
        "skin lesions with micro and macro F1",
        "Higher F1 on skin lesions than with mixup or no mixing",
        tables.skin_cells,
    ),
    "medmnist": Artifact(
        tables,
        "AUC and accuracy on MedMNIST",
        "Higher AUC on small medical images than with mixup or no mixing",
        tables.medmnist_cells,
    ),
    "timing": Artifact(
        timing, "time of training and of one batch", "Training takes no longer than with mixup"
    ),
    "sensitivity": Artifact(
        sensitivity,
        "error against γ and weight decay",
        "Results depend little on the parameter γ and on weight decay",
    ),
    "theorems": Artifact(
        theorems,
        "dominance over γ and N; equivalence to mixup",
        "Two theorems: the condition for dominance, and mixup as a special case",
    ),
    "zetamix-search": Artifact(search, "ZetaMix: the search for its default, on validation data"),
    "zetamix": Artifact(comparison, "ZetaMix against common baselines, on six datasets"),
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
# additional methods in the paper's tables
OWN_METHODS = ("switch", ZETAMIX)


def select_cells(id: str, request: Request) -> list[PaperCell]:
    """The cells of an artifact that match a request."""
    cells = ARTIFACTS[id].cells(request)
    if request.changes_training and not any(isinstance(cell, TrainingCell) for cell in cells):
        raise PaperError(
            "Seeds, augmentation, epochs, models and weights apply only to artifacts that train "
            f"models, and {id} trains none."
        )
    # zetamix may be requested by its short name; its cells have all options
    spelled = [ZETAMIX if method == "zetamix" else method for method in request.methods or ()]
    chosen = {"dataset": request.datasets, "model": request.models, "method": spelled}
    for field, names in chosen.items():
        choices = list(filter(None, dict.fromkeys(getattr(c, field, "") for c in cells)))
        for name in names or ():
            if name not in choices:
                listed = f"one of {', '.join(choices)}" if choices else f"no {field}"
                raise PaperError(
                    f"{id}: expected {listed}, got {name!r}.{did_you_mean(name, choices)}"
                )
        cells = [cell for cell in cells if not names or getattr(cell, field, "") in names]
    return cells


def make_view(id: str, store: RecordStore, request: Request | None = None) -> View:
    """The cells of an artifact, and additional variants and methods that have records.

    request: the cells to show; default all.
    """
    cells = select_cells(id, request or Request())
    more = _other_recipes(id, cells, store)
    if id in TABLES:
        trainings = [cell for cell in (*cells, *more) if isinstance(cell, TrainingCell)]
        own = [replace(cell, method=method) for cell in trainings for method in OWN_METHODS]
        more += [cell for cell in dict.fromkeys(own) if store.find(cell) is not None]
    return View(id, ARTIFACTS[id].title, cells, store, more)


def draw(view: View) -> Result:
    """Figures and tables of an artifact; none of one that is drawn only as a whole."""
    if view.artifact in COMPLETE_ONLY and view.empty:
        return Result()
    result: Result = ARTIFACTS[view.artifact].module.draw(view)
    return result


def _other_recipes(id: str, cells: Sequence[PaperCell], store: RecordStore) -> list[TrainingCell]:
    """The cells of other variants of the recipe that have a record.

    Runs of a shortened recipe count only for the artifact they were made for.
    """
    own, asked = ARTIFACTS[id], {cell.index for cell in cells}
    kind = own.module, own.make_cells
    alike = [other for other, each in ARTIFACTS.items() if (each.module, each.make_cells) == kind]
    runs = [
        cell_of(record)
        for key, record in store.records.items()
        if isinstance(record, RunRecord) and store.artifact_of[key] in alike
    ]
    others = {}
    for cell in runs:
        recipe = cell.recipe
        if cell.index not in asked:
            variant = Request((cell.seed,), (recipe.augmentation,), recipe.epochs, recipe.weights)
            others[cell] = variant
    made = {variant: own.cells(variant) for variant in set(others.values())}
    return [cell for cell, variant in others.items() if cell in made[variant]]
