"""Geometry of mixed points: the overview, their distribution, and the local intrinsic dimension."""

import torch
from torch import Tensor

from paper.measure import local_dimension, mean_of
from paper.measure.mixed_samples import MixedSamples
from paper.measure.neighbours import Cloud, distances_to
from paper.reproduce.measure_context import MeasureContext, Measured
from paper.results.paper_cells import MeasurementCell
from zetamix.methods import parse
from zetamix.mix import apply_plan
from zetamix.plan import mixup_plan, zeta_plan

# chosen among several seeds: its mixup outputs spread over whole segments
OVERVIEW_SEED = 4
OVERVIEW_PANELS = (("mixup:1.0", 8), ("zeta:2.8", 3), ("zeta:2.8", 4), ("zeta:2.8", 8))
PLANAR = ("crescents", "spirals")
GAMMAS = (2.0, 2.4, 2.8, 4.0, 6.0)
# the paper does not say how many samples it mixes here; 32 is its batch for large images
BATCH = 32
# N of the helix, in addition to that of the figure above
GRID_BATCHES = (4, 8, 128)
# bytes of distances in memory at a time
MEMORY = 2.5e8
DIMENSION_DATASETS = ("helix", "paraboloid", "cifar10", "cifar100")
DIMENSION_NEIGHBOURS = (8, 128)
# denser where the curve bends
DIMENSION_GAMMAS = (
    *(0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.4, 2.8, 3.2),
    *(3.6, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0),
)
# the paper does not say how many samples it mixes here; 128 is its batch for CIFAR
DIMENSION_BATCH = 128
# GB that local_dimension may use in addition to the points; with 2, each of 82 blocks of 50,000
# images converts all of them to float64 again, and products take 1.8 times as long
CPU_MEMORY = 6.0


def overview_cells() -> list[MeasurementCell]:
    return [
        MeasurementCell("overview", "crescents", method, OVERVIEW_SEED, {"sources": sources})
        for method, sources in OVERVIEW_PANELS
    ]


def measure_overview(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Mix a few points that are spread evenly over both crescents."""
    train, count = context.dataset.train, cell.recipe["sources"]
    rows = [int((k + 0.5) * len(train) / count) for k in range(count)]
    points = train.samples[rows]
    generator = torch.Generator().manual_seed(cell.seed)
    method = parse(cell.method)
    if method.name == "mixup":
        plan = mixup_plan(count, method.option("alpha"), generator=generator)
    else:
        plan = zeta_plan(count, method.option("gamma"), generator=generator)
    arrays = {
        "background": train.samples.half(),
        "background_labels": train.labels.to(torch.uint8),
        "originals": points,
        "labels": train.labels[rows].to(torch.uint8),
        "outputs": apply_plan(points, plan),
        "indices": plan.indices,
        "weights": plan.weights.contiguous(),
    }
    return Measured({"largest_weight": round(float(plan.weights.amax(1).mean()), 6)}, arrays)


def distribution_cells() -> list[MeasurementCell]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in GAMMAS)]
    rows = [(name, method, BATCH) for name in (*PLANAR, "helix") for method in methods]
    grid = [("helix", f"zeta:{gamma}", batch) for batch in GRID_BATCHES for gamma in GAMMAS]
    return [
        MeasurementCell("distribution", name, method, recipe={"batch": batch})
        for name, method, batch in (*rows, *grid)
    ]


def measure_distribution(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Outputs, their distance from the data, and the fraction with a wrong label."""
    dataset, samples = context.dataset, context.samples()
    outputs = context.mix(cell, samples, dataset.train.labels)
    values = {}
    if cell.method != "none":
        cloud = Cloud(samples, MEMORY)
        nearest = distances_to(Cloud(outputs.samples, MEMORY, cloud.origin), cloud, 1)
        values["distance"] = mean_of(nearest).as_dict()
    # half precision has an error of a thousandth: a tenth of the width of a plotted dot
    arrays = {"samples": outputs.samples.half()}
    if dataset.num_classes > 1:
        wrong = wrong_labels(outputs, samples, dataset.train.labels.to(samples.device))
        values["label_error"] = mean_of(wrong).as_dict()
        arrays["targets"] = outputs.targets.half()
    return Measured(values, arrays)


def wrong_labels(outputs: MixedSamples, originals: Tensor, labels: Tensor) -> Tensor:
    """[n], bool: whether the largest class of a label differs from that of the nearest original."""
    nearest = torch.cdist(outputs.samples.double(), originals.double()).argmin(1)
    return outputs.targets.argmax(1) != labels[nearest]


def dimension_cells() -> list[MeasurementCell]:
    methods = ["none", "mixup:1.0", *(f"zeta:{gamma}" for gamma in DIMENSION_GAMMAS)]
    return [
        MeasurementCell(
            "dimension", name, method, recipe={"neighbours": count, "batch": DIMENSION_BATCH}
        )
        for name in DIMENSION_DATASETS
        for method in methods
        for count in DIMENSION_NEIGHBOURS
    ]


def measure_dimension(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Mean and spread of the local dimension over all outputs.

    Cells that differ only in the number of neighbours share the search, which takes two thirds of
    the time on a CPU: the first one measures all of them.
    """
    count, samples = cell.recipe["neighbours"], context.samples()
    same = (context.dataset.fingerprint, cell.method, cell.seed, cell.recipe["batch"])
    found = context.dimensions.setdefault(same, {})
    if count not in found:
        outputs = context.mix(cell, samples, context.dataset.train.labels)
        memory = CPU_MEMORY
        if context.device.type == "cuda":
            # half of the free memory: all products of 50,000 images take 20 GB
            memory = max(memory, torch.cuda.mem_get_info(context.device)[0] / 2e9)
        # the data of a smoke test has fewer samples than the largest neighbourhood
        others = [other for other in DIMENSION_NEIGHBOURS if other < len(samples)]
        counts = sorted({count, *others})
        dimensions = local_dimension(outputs.samples, counts, memory_gb=memory)
        found.update(zip(counts, dimensions, strict=True))
    return Measured(mean_of(found[count]).as_dict())
