"""Local intrinsic dimension of what mixup and ζ-mixup make, over γ."""

import torch

from zetamix.experiments.reproduce.cells import Measuring
from zetamix.experiments.reproduce.experiments.workbench import Found, Workbench
from zetamix.measure import local_dimension, mean_of

DATASETS = ("helix", "paraboloid", "cifar10", "cifar100")
NEIGHBOURS = (8, 128)
# closer where the curve bends
GAMMAS = (
    *(0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.4, 2.8, 3.2),
    *(3.6, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0),
)
# the paper does not say how many samples it mixes here; 128 is its batch for CIFAR
BATCH = 128
# what local_dimension may use beside the points, in gigabytes
CPU_MEMORY = 2.0


def cells() -> list[Measuring]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    return [
        Measuring("dimension", name, method, recipe={"neighbours": neighbours, "batch": BATCH})
        for name in DATASETS
        for method in methods
        for neighbours in NEIGHBOURS
    ]


def measure(cell: Measuring, bench: Workbench) -> Found:
    """Mean and spread of the local dimension over all outputs."""
    outputs = bench.mixed(cell.method, cell.recipe["batch"], cell.seed)
    found = local_dimension(
        outputs.samples, cell.recipe["neighbours"], memory_gb=_memory(bench.device)
    )
    return Found(mean_of(found).as_dict())


def _memory(device: torch.device) -> float:
    """Half of what a GPU has free: 50,000 images take 20 GB for all their products."""
    if device.type != "cuda":
        return CPU_MEMORY
    return max(CPU_MEMORY, torch.cuda.mem_get_info(device)[0] / 2e9)
