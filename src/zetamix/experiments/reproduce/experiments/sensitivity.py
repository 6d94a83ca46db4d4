"""Error against γ, and a sweep over γ and weight decay.

The paper's sweep is a Bayesian search, which shows most where results are good. Ours draws from the
same two distributions without looking at results, so that every model is a cell like any other, and
the first k are a sweep of k models: it can stop and go on anywhere. A search that looks is
`zetamix tune`.
"""

from zetamix.experiments.reproduce.cells import Training, Variant
from zetamix.experiments.reproduce.experiments.ask import Ask
from zetamix.results.search_space import PAPER_SEARCH, PAPER_TRIALS, parse_space, random_settings

SWEEP, MODELS = parse_space(PAPER_SEARCH), PAPER_TRIALS
DATASETS = ("cifar10", "cifar100")
MODEL = "resnet18"
GAMMAS = tuple(round(1.8 + 0.2 * step, 1) for step in range(17))
SEEDS = (0,)


def cells(ask: Ask) -> list[Training]:
    """The grid of a dataset before its sweep, which takes twelve times as long."""
    seeds, variants = ask.seeds_or(SEEDS), ask.variants_or(("flip",))
    found = []
    for name in DATASETS:
        for part in (grid, sweep):
            for seed in seeds:
                for variant in variants:
                    found += part(name, seed, variant)
    return found


def grid(dataset: str, seed: int, variant: Variant) -> list[Training]:
    recipe = variant.recipe(dataset, MODEL)
    return [Training(dataset, f"zeta:{gamma}", seed, recipe, MODEL, variant) for gamma in GAMMAS]


def sweep(dataset: str, seed: int, variant: Variant) -> list[Training]:
    recipe = variant.recipe(dataset, MODEL)
    return [
        Training(
            dataset,
            SWEEP.method(setting).label,
            seed,
            SWEEP.recipe(setting, recipe),
            MODEL,
            variant,
            of_sweep=True,
        )
        for setting in random_settings(SWEEP, MODELS)
    ]
