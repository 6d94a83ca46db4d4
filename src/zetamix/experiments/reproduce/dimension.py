"""Local intrinsic dimension of the outputs of mixup and ζ-mixup, over γ."""

import torch

from zetamix.experiments.reproduce.measure_context import MeasureContext, Measured
from zetamix.measure import local_dimension, mean_of
from zetamix.results.paper_cells import MeasurementCell

DATASETS = ("helix", "paraboloid", "cifar10", "cifar100")
NEIGHBOURS = (8, 128)
# denser where the curve bends
GAMMAS = (
    *(0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.4, 2.8, 3.2),
    *(3.6, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0),
)
# the paper does not say how many samples it mixes here; 128 is its batch for CIFAR
BATCH = 128
# GB that local_dimension may use beside the points
CPU_MEMORY = 2.0


def cells() -> list[MeasurementCell]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    return [
        MeasurementCell("dimension", name, method, recipe={"neighbours": count, "batch": BATCH})
        for name in DATASETS
        for method in methods
        for count in NEIGHBOURS
    ]


def measure(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Mean and spread of the local dimension over all outputs."""
    outputs = context.mix(cell, context.samples(), context.dataset.train.labels)
    dimensions = local_dimension(
        outputs.samples, cell.recipe["neighbours"], memory_gb=_memory(context.device)
    )
    return Measured(mean_of(dimensions).as_dict())


def _memory(device: torch.device) -> float:
    """Half of the free memory of a GPU: 50,000 images take 20 GB for all their products."""
    if device.type != "cuda":
        return CPU_MEMORY
    return max(CPU_MEMORY, torch.cuda.mem_get_info(device)[0] / 2e9)
