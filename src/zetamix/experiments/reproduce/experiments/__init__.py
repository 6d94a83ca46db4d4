"""Which cells each artifact of the paper needs and how they are measured; not how it is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zetamix.experiments.reproduce.cells import Cell
from zetamix.experiments.reproduce.experiments import (
    dimension,
    distributions,
    medmnist,
    mnist,
    natural,
    overview,
    sensitivity,
    skin,
    theorems,
    timing,
)
from zetamix.experiments.reproduce.experiments.ask import Ask as Ask
from zetamix.experiments.reproduce.experiments.workbench import Measure


@dataclass(frozen=True)
class Experiment:
    """The cells behind one artifact."""

    id: str
    what: str
    cells: Callable[[Ask], Sequence[Cell]]
    trains: bool
    """Whether its cells are training runs, of which seeds, variants and epochs can be chosen."""


def _measured(id: str, what: str, cells: Callable[[], Sequence[Cell]]) -> Experiment:
    return Experiment(id, what, lambda ask: cells(), trains=False)


def _trained(id: str, what: str, cells: Callable[[Ask], Sequence[Cell]]) -> Experiment:
    return Experiment(id, what, cells, trains=True)


EXPERIMENTS: Mapping[str, Experiment] = {
    each.id: each
    for each in (
        _measured("overview", "which samples go into which output, N = 3, 4, 8", overview.cells),
        _measured(
            "distributions",
            "crescents, spirals, a helix, over γ and N",
            distributions.cells,
        ),
        _measured("mnist", "digits mixed, soft labels, realism by LeNet-5", mnist.cells),
        _measured("dimension", "local intrinsic dimension against γ", dimension.cells),
        _trained("natural", "table 1: error on natural images", natural.cells),
        _trained("skin", "balanced accuracy on skin lesions", skin.cells),
        _trained("skin-detailed", "the same, with micro and macro F1", skin.cells),
        _trained("medmnist", "AUC and accuracy on MedMNIST", medmnist.cells),
        _measured("timing", "times of training and of one batch", timing.cells),
        _trained("sensitivity", "error against γ, and against weight decay", sensitivity.cells),
        _measured("theorems", "dominance over γ and N; mixup as a case of ζ-mixup", theorems.cells),
    )
}

MEASURES: Mapping[str, Measure] = {
    "overview": overview.measure,
    "distribution": distributions.measure,
    "dominance": theorems.measure_dominance,
    "equivalence": theorems.measure_equivalence,
    "oracle": mnist.measure_oracle,
    "realism": mnist.measure_realism,
    "dimension": dimension.measure,
    "training-time": timing.measure_training,
    "batch-time": timing.measure_batch,
}
