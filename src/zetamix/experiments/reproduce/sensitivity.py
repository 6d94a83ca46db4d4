"""Error against γ, and a sweep over γ and weight decay.

The paper's sweep is a Bayesian search, which samples good settings more densely. Ours draws from
the same two distributions independently of results: each setting is a cell like any other, and the
first k are a sweep of k models, which can stop and resume anywhere. `zetamix tune` searches.
"""

import torch

from zetamix.experiments.reproduce.training_tables import CellRequest
from zetamix.results.paper_cells import TrainingCell, Variant

DATASETS = ("cifar10", "cifar100")
MODEL = "resnet18"
GAMMAS = tuple(round(1.8 + 0.2 * step, 1) for step in range(17))
# the paper's sweep of each dataset: γ is uniform, weight decay log-uniform
SWEEP_MODELS = 200
SWEEP_GAMMA, SWEEP_WEIGHT_DECAY = (1.0, 6.0), (5e-5, 1e-3)


def cells(request: CellRequest) -> list[TrainingCell]:
    """The grid of a dataset before its sweep, which takes twelve times as long."""
    return [
        cell
        for dataset in DATASETS
        for part in (_grid, _sweep)
        for seed in request.seeds_or((0,))
        for variant in request.variants_or(("flip",))
        for cell in part(dataset, seed, variant)
    ]


def _grid(dataset: str, seed: int, variant: Variant) -> list[TrainingCell]:
    recipe = variant.recipe(dataset, MODEL)
    return [
        TrainingCell(dataset, f"zeta:{gamma}", seed, recipe, MODEL, variant) for gamma in GAMMAS
    ]


def _sweep(dataset: str, seed: int, variant: Variant) -> list[TrainingCell]:
    recipe = variant.recipe(dataset, MODEL)
    return [
        TrainingCell(
            dataset,
            f"zeta:{gamma}",
            seed,
            recipe.change(weight_decay=weight_decay),
            MODEL,
            variant,
            in_sweep=True,
        )
        for gamma, weight_decay in sweep_settings(SWEEP_MODELS)
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
