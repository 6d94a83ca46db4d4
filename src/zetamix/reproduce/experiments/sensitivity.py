"""Error against γ. The sweep over γ and weight decay is a study of `zetamix tune`."""

from zetamix.reproduce.cells import Training
from zetamix.reproduce.experiments.ask import Ask

DATASETS = ("cifar10", "cifar100")
MODEL = "resnet18"
GAMMAS = tuple(round(1.8 + 0.2 * step, 1) for step in range(17))
SEEDS = (0,)


def cells(ask: Ask) -> list[Training]:
    return [
        Training(name, f"zeta:{gamma}", seed, variant.recipe(name, MODEL), MODEL, variant)
        for name in DATASETS
        for seed in ask.seeds_or(SEEDS)
        for variant in ask.variants_or(("flip",))
        for gamma in GAMMAS
    ]
