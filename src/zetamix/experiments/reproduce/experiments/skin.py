"""The two tables of skin lesions: ten datasets, two models, five methods."""

from zetamix.experiments.reproduce.cells import Training
from zetamix.experiments.reproduce.experiments.ask import Ask
from zetamix.results.paper_values import METHODS

DATASETS = (
    *("isic2016", "isic2017", "isic2018", "msk", "uda"),
    *("dermofit", "derm7pt_clinical", "derm7pt_dermoscopic", "ph2", "mednode"),
)
MODELS = ("resnet18", "resnet50")
# every value that the paper prints is of a single run
SEEDS = (0,)


def cells(ask: Ask) -> list[Training]:
    return [
        Training(name, method, seed, variant.recipe(name, model), model, variant)
        for name in DATASETS
        for seed in ask.seeds_or(SEEDS)
        for variant in ask.variants_or((None,))
        for model in MODELS
        for method in METHODS
    ]
