"""How mixup and ζ-mixup spread points: crescents, spirals, and a helix, over γ and N."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zetamix.experiments.reproduce.cells import Measuring
from zetamix.experiments.reproduce.experiments.workbench import Found, Workbench
from zetamix.measure import mean_of
from zetamix.measure.neighbours import Cloud, distances_to

if TYPE_CHECKING:
    from zetamix.measure.mixed_samples import MixedSamples

FLAT = ("crescents", "spirals")
GAMMAS = (2.0, 2.4, 2.8, 4.0, 6.0)
# the paper does not say how many samples it mixes here; 32 is its batch for large images
BATCH = 32
GRID_BATCHES = (4, 8, 32, 128)
# bytes for distances at a time
MEMORY = 2.5e8


def cells() -> list[Measuring]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    rows = [(name, method, BATCH) for name in (*FLAT, "helix") for method in methods]
    grid = [
        ("helix", f"zeta:{gamma}", batch)
        for batch in GRID_BATCHES
        for gamma in GAMMAS
        if batch != BATCH
    ]
    return [
        Measuring("distribution", name, method, recipe={"batch": batch})
        for name, method, batch in (*rows, *grid)
    ]


def measure(cell: Measuring, bench: Workbench) -> Found:
    """Outputs, their distance from the data, and the share that is labelled wrongly."""
    dataset, samples = bench.dataset, bench.samples()
    outputs = bench.mixed(cell.method, cell.recipe["batch"], cell.seed)
    values = {}
    if cell.method != "none":
        values["distance"] = mean_of(_distances(outputs.samples, samples)).as_dict()
    # half precision shows a point to a thousandth: a tenth of the width of its dot
    arrays = {"samples": outputs.samples.half()}
    if dataset.num_classes > 1:
        wrong = labelled_wrongly(outputs, samples, dataset.train.labels.to(samples.device))
        values["label_error"] = mean_of(wrong).as_dict()
        arrays["targets"] = outputs.targets.half()
    return Found(values, arrays)


def _distances(outputs: Tensor, originals: Tensor) -> Tensor:
    """[n]: from each output to the nearest original, in the units of the space."""
    cloud = Cloud(originals, MEMORY)
    return distances_to(Cloud(outputs, MEMORY, cloud.origin), cloud, 1)


def labelled_wrongly(outputs: "MixedSamples", originals: Tensor, labels: Tensor) -> Tensor:
    """[n], bool: whether the heaviest class of a label is not that of the nearest original."""
    nearest = torch.cdist(outputs.samples.double(), originals.double()).argmin(1)
    return outputs.targets.argmax(1) != labels[nearest]
