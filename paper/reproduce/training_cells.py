"""Cells of the models to train: the paper's three tables, and the sensitivity to γ."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from paper.results.paper_cells import TrainingCell, Variant
from paper.results.paper_values import METHODS
from zetamix_lab.provenance import FileRef

NATURAL = ("cifar10", "cifar100", "fashion_mnist", "stl10", "imagenette", "imagewoof")
SKIN = (
    *("isic2016", "isic2017", "isic2018", "msk", "uda"),
    *("dermofit", "derm7pt_clinical", "derm7pt_dermoscopic", "ph2", "mednode"),
)
MEDMNIST = (
    *("pathmnist", "dermamnist", "octmnist", "pneumoniamnist", "breastmnist"),
    *("organmnist_axial", "organmnist_coronal", "organmnist_sagittal"),
)
# Appendix D.1 says flip only; Sec. 4.5 mentions cropping, and only with it are error rates near
# the paper's: 4.74 % on CIFAR-10 without mixing, 7.26 % with flip only; the paper has 5.48 %
NATURAL_VARIANTS = ("crop-flip", "flip")
SENSITIVITY_DATASETS = ("cifar10", "cifar100")
SENSITIVITY_GAMMAS = tuple(round(1.8 + 0.2 * step, 1) for step in range(17))
# the paper's sweep of each dataset: γ is uniform, weight decay log-uniform
SWEEP_MODELS = 200
SWEEP_GAMMA, SWEEP_WEIGHT_DECAY = (1.0, 6.0), (5e-5, 1e-3)


@dataclass(frozen=True)
class CellRequest:
    """The cells that a user requests; None means the default of the artifact."""

    seeds: tuple[int, ...] | None = None
    augmentations: tuple[str, ...] | None = None
    epochs: int | None = None
    weights: FileRef | None = None
    datasets: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None

    @property
    def changes_training(self) -> bool:
        changes = (self.seeds, self.augmentations, self.epochs, self.weights, self.models)
        return any(change is not None for change in changes)

    def seeds_or(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return default if self.seeds is None else self.seeds

    def variants_or(self, default: tuple[str | None, ...]) -> list[Variant]:
        """Variants to train; None in `default` is the recipe's own augmentation."""
        augmentations = default if self.augmentations is None else self.augmentations
        return [Variant(name, self.epochs, self.weights) for name in augmentations]


def natural_cells(request: CellRequest) -> list[TrainingCell]:
    """Table 1: six datasets, three seeds, two readings of the augmentation."""
    return _cells(request, NATURAL, tuple(METHODS), seeds=(0, 1, 2), variants=NATURAL_VARIANTS)


def skin_cells(request: CellRequest) -> list[TrainingCell]:
    """Ten datasets, two models. Every value that the paper prints is of a single run."""
    return _cells(request, SKIN, tuple(METHODS), models=("resnet18", "resnet50"))


def medmnist_cells(request: CellRequest) -> list[TrainingCell]:
    """Eight datasets, three methods."""
    return _cells(request, MEDMNIST, ("none", "mixup:1.0", "zeta:2.8"))


def _cells(
    request: CellRequest,
    datasets: Sequence[str],
    methods: Sequence[str],
    *,
    models: Sequence[str] = ("resnet18",),
    seeds: tuple[int, ...] = (0,),
    variants: tuple[str | None, ...] = (None,),
) -> list[TrainingCell]:
    """Ordered by seed, so that an unfinished table has all methods."""
    return [
        TrainingCell(dataset, method, seed, variant.recipe(dataset, model), model, variant)
        for dataset in datasets
        for seed in request.seeds_or(seeds)
        for variant in request.variants_or(variants)
        for model in models
        for method in methods
    ]


def sensitivity_cells(request: CellRequest) -> list[TrainingCell]:
    """The grid over γ of a dataset before its sweep, which takes twelve times as long.

    The paper's sweep is a Bayesian search, which samples good settings more densely. This sweep
    draws from the same two distributions independently of results: each setting is an ordinary
    cell, and the first k are a sweep of k models, so that it can be stopped and resumed anywhere.
    """
    grid = [(gamma, None) for gamma in SENSITIVITY_GAMMAS]
    return [
        TrainingCell(
            dataset,
            f"zeta:{gamma}",
            seed,
            variant.recipe(dataset, "resnet18", weight_decay),
            "resnet18",
            variant,
            in_sweep=weight_decay is not None,
        )
        for dataset in SENSITIVITY_DATASETS
        for settings in (grid, sweep_settings(SWEEP_MODELS))
        for seed in request.seeds_or((0,))
        for variant in request.variants_or(("flip",))
        for gamma, weight_decay in settings
    ]


def sweep_settings(count: int) -> list[tuple[float, float]]:
    """Random (γ, weight decay), to four digits; a longer sweep begins with a shorter one.

    >>> sweep_settings(2)
    [(5.85, 0.0004167), (3.297, 0.0007887)]
    """
    generator = torch.Generator().manual_seed(0)
    settings = []
    for _ in range(count):
        u, v = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        gamma = SWEEP_GAMMA[0] + u * (SWEEP_GAMMA[1] - SWEEP_GAMMA[0])
        low, high = SWEEP_WEIGHT_DECAY
        weight_decay = low * (high / low) ** v
        settings.append((float(f"{gamma:.4g}"), float(f"{weight_decay:.4g}")))
    return settings
