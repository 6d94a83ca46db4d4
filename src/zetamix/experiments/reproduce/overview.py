"""The overview figure: which samples contribute to which output, and with what weight."""

import torch

from zetamix.experiments.reproduce.measure_context import MeasureContext, Measured
from zetamix.methods import parse
from zetamix.mix import apply_plan
from zetamix.plan import mixup_plan, zeta_plan
from zetamix.results.paper_cells import MeasurementCell

# chosen among several seeds: its mixup outputs spread over whole segments
SEED = 4
PANELS = (("mixup:1.0", 8), ("zeta:2.8", 3), ("zeta:2.8", 4), ("zeta:2.8", 8))


def cells() -> list[MeasurementCell]:
    return [
        MeasurementCell("overview", "crescents", method, SEED, {"sources": sources})
        for method, sources in PANELS
    ]


def measure(cell: MeasurementCell, context: MeasureContext) -> Measured:
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
