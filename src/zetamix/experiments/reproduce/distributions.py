"""How mixup and ζ-mixup spread points: crescents, spirals and a helix, over γ and N."""

import torch
from torch import Tensor

from zetamix.experiments.reproduce.measure_context import MeasureContext, Measured
from zetamix.measure import mean_of
from zetamix.measure.mixed_samples import MixedSamples
from zetamix.measure.neighbours import Cloud, distances_to
from zetamix.results.paper_cells import MeasurementCell

PLANAR = ("crescents", "spirals")
GAMMAS = (2.0, 2.4, 2.8, 4.0, 6.0)
# the paper does not say how many samples it mixes here; 32 is its batch for large images
BATCH = 32
GRID_BATCHES = (4, 8, 32, 128)
# bytes of distances to hold at a time
MEMORY = 2.5e8


def cells() -> list[MeasurementCell]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    rows = [(name, method, BATCH) for name in (*PLANAR, "helix") for method in methods]
    grid = [
        ("helix", f"zeta:{gamma}", batch)
        for batch in GRID_BATCHES
        for gamma in GAMMAS
        if batch != BATCH
    ]
    return [
        MeasurementCell("distribution", name, method, recipe={"batch": batch})
        for name, method, batch in (*rows, *grid)
    ]


def measure(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Outputs, their distance from the data, and the fraction with a wrong label."""
    dataset, samples = context.dataset, context.samples()
    outputs = context.mix(cell, context.samples(), context.dataset.train.labels)
    values = {}
    if cell.method != "none":
        values["distance"] = mean_of(_distances(outputs.samples, samples)).as_dict()
    # half precision is exact to a thousandth: a tenth of the width of a plotted dot
    arrays = {"samples": outputs.samples.half()}
    if dataset.num_classes > 1:
        wrong = wrong_labels(outputs, samples, dataset.train.labels.to(samples.device))
        values["label_error"] = mean_of(wrong).as_dict()
        arrays["targets"] = outputs.targets.half()
    return Measured(values, arrays)


def _distances(outputs: Tensor, originals: Tensor) -> Tensor:
    """[n]: Euclidean distance from each output to the nearest original."""
    cloud = Cloud(originals, MEMORY)
    return distances_to(Cloud(outputs, MEMORY, cloud.origin), cloud, 1)


def wrong_labels(outputs: MixedSamples, originals: Tensor, labels: Tensor) -> Tensor:
    """[n], bool: whether the heaviest class of a label is not that of the nearest original."""
    nearest = torch.cdist(outputs.samples.double(), originals.double()).argmin(1)
    return outputs.targets.argmax(1) != labels[nearest]
