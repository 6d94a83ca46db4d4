"""Cells of ZetaMix: the search for its default, and the comparison with the baselines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from paper.measure.estimate import mean_of
from paper.reproduce.measure_context import MeasureContext, Measured
from paper.reproduce.training_cells import CellRequest
from paper.results import zetamix_search as search
from paper.results.paper_cells import MeasurementCell, PaperCell, Subset, TrainingCell
from paper.results.record_store import RecordStore
from zetamix.methods import parse
from zetamix_lab.data.augment import measure_scale
from zetamix_lab.data.loader import Loader

PROOF_METHODS = (
    *("none", "mixup:1.0", "cutmix:1.0", "switch", "smoothing:0.1", "zeta:2.8"),
    # with every option: if a default changes, the comparison has to be run again
    parse("zetamix").full_label,
)


@dataclass(frozen=True)
class Stage:
    """Seeds of one dataset of the comparison. Their number was fixed before the first run."""

    dataset: str
    seeds: Sequence[int]
    subset: Subset | None = None


# three seeds everywhere, then more where a run takes seconds: with three, a difference has to be
# eleven times its standard error to be significant after Holm's correction over six methods
STAGES = (
    Stage("cifar10", range(3), Subset(5_000)),
    Stage("breastmnist", range(10)),
    Stage("isic2017", range(3)),
    Stage("fashion_mnist", range(3), Subset(10_000)),
    Stage("cifar10", range(3)),
    Stage("cifar10", range(3, 10), Subset(5_000)),
    Stage("cifar100", range(3)),
    Stage("isic2017", range(3, 5)),
    Stage("fashion_mnist", range(3, 5), Subset(10_000)),
)
CONTRAST_IMAGES, CONTRAST_BATCH = 10_000, 128
# bins of the histogram of contrast, from 0 to the top
CONTRAST_BINS, CONTRAST_TOP = 60, 2.4


def search_cells(request: CellRequest, store: RecordStore) -> list[TrainingCell]:
    """The cells of each round, with the settings that are still candidates by the records so far.

    If seeds are requested: every setting and control on every dataset with these seeds.
    """
    cells = []
    for variant in request.variants_or((None,)):
        first = {
            dataset: search.make_cell(dataset, "none", 0, subset, variant)
            for dataset, subset in search.DATASETS.items()
        }
        if request.seeds is None:
            rounds = search.plan_rounds(search.read_errors(store, first))
        else:
            everything = search.Round(
                tuple(search.DATASETS), request.seeds, controls=search.CONTROLS
            )
            rounds = iter([(everything, list(search.METHODS))])
        cells += [
            replace(first[dataset], method=method, seed=seed)
            for part, methods in rounds
            for dataset, seed in part.pairs
            for method in (*methods, *part.controls)
        ]
    return cells


def proof_cells(request: CellRequest) -> list[PaperCell]:
    """The contrast of training images, then the models of all stages."""
    recipe: dict[str, Any] = {"images": CONTRAST_IMAGES, "batch": CONTRAST_BATCH}
    recipe |= {"bins": CONTRAST_BINS, "top": CONTRAST_TOP}
    images = [("test", "none"), *(("train", method) for method in PROOF_METHODS)]
    contrast = [
        MeasurementCell("contrast", "cifar10", method, recipe={"split": split, **recipe})
        for split, method in images
    ]
    if request.seeds is None:
        stages: Sequence[Stage] = STAGES
    else:
        # each dataset once
        chosen = {(stage.dataset, stage.subset): stage for stage in STAGES}
        stages = [Stage(name, request.seeds, subset) for name, subset in chosen]
    trainings = [
        search.make_cell(stage.dataset, method, seed, stage.subset, variant)
        for stage in stages
        for seed in stage.seeds
        for variant in request.variants_or((None,))
        for method in PROOF_METHODS
    ]
    return [*contrast, *trainings]


def measure_contrast(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """The standard deviation of the pixels of each image, normalised and mixed as in training.

    Without crops, because their black borders add contrast (1.0 instead of 0.84 on CIFAR-10).
    """
    recipe, dataset = cell.recipe, context.dataset
    loader = Loader(
        dataset.splits[recipe["split"]],
        recipe["batch"],
        scale=measure_scale(dataset.train.samples),
        seed=cell.seed,
        device=context.device,
    )
    generator = torch.Generator(context.device).manual_seed(cell.seed)
    mix = parse(cell.method).transform(dataset.num_classes, generator)
    batches = islice(loader, -(-recipe["images"] // recipe["batch"]))
    mixed = ((images if mix is None else mix(images, labels)[0]) for images, labels in batches)
    contrast = torch.cat([images.flatten(1).std(1) for images in mixed])[: recipe["images"]]
    counts = torch.histc(contrast, recipe["bins"], 0, recipe["top"])
    return Measured({"contrast": mean_of(contrast).as_dict(), "counts": counts.int().tolist()})
