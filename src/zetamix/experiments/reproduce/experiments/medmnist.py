"""The table of MedMNIST: eight datasets, three methods."""

from zetamix.experiments.reproduce.cells import Training
from zetamix.experiments.reproduce.experiments.ask import Ask

DATASETS = (
    *("pathmnist", "dermamnist", "octmnist", "pneumoniamnist", "breastmnist"),
    *("organmnist_axial", "organmnist_coronal", "organmnist_sagittal"),
)
MODEL = "resnet18"
METHODS = ("none", "mixup:1.0", "zeta:2.8")
SEEDS = (0,)


def cells(ask: Ask) -> list[Training]:
    return [
        Training(name, method, seed, variant.recipe(name, MODEL), MODEL, variant)
        for name in DATASETS
        for seed in ask.seeds_or(SEEDS)
        for variant in ask.variants_or((None,))
        for method in METHODS
    ]
