"""The recipes of the paper's Appendix D, one row per dataset."""

import math
from collections.abc import Sequence
from pathlib import Path

from zetamix_lab.data.catalogue import CATALOGUE
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.metrics import check_metric
from zetamix_lab.models import OWN_MODELS, default_model, initialise
from zetamix_lab.train.recipe import OWN, Recipe, RecipeError

_CIFAR = Recipe(
    source="paper, Appendix D.1",
    model="resnet18",
    epochs=200,
    batch_size=128,
    lr=0.1,
    milestones=(80, 120, 160),
    decay=0.2,
    evaluate_every=5,
)
_IMAGENET = _CIFAR.change(
    epochs=80, batch_size=32, lr=0.01, milestones=(25, 50, 65), evaluate_every=1
)
_SKIN = Recipe(
    source="paper, Appendix D.2",
    model="resnet18",
    epochs=50,
    batch_size=32,
    lr=0.01,
    milestones=(10, 20, 30, 40),
    decay=0.1,
    # the centre crop and resize that D.2 calls augmentation are part of preparing the data
    augmentation="none",
    select="balanced_accuracy",
)
# D.3 gives rate, loss, SGD and batch size and refers to "the original paper" for the rest: epochs,
# momentum without Nesterov, no weight decay, the constant rate, the normalisation and the selection
# by validation AUC are those of MedMNIST v1's script (whose own rate is 0.001, not 0.01)
_MED = Recipe(
    source="paper, Appendix D.3",
    model="resnet18",
    epochs=100,
    batch_size=128,
    lr=0.01,
    nesterov=False,
    weight_decay=0.0,
    augmentation="none",
    normalize="half",
    select="auc",
)

RECIPES: dict[str, Recipe] = {
    "cifar10": _CIFAR,
    "cifar100": _CIFAR,
    "fashion_mnist": _CIFAR.change(batch_size=32),
    # 120 epochs in Appendix D, 200 in the paper's table of times
    "stl10": _CIFAR.change(epochs=120, batch_size=32, milestones=(80,), evaluate_every=2),
    "imagenette": _IMAGENET,
    "imagewoof": _IMAGENET,
    "isic2016": _SKIN,
    "isic2017": _SKIN,
    "isic2018": _SKIN.change(epochs=20, milestones=(4, 8, 12, 16), evaluate_every=1),
    **dict.fromkeys(("msk", "uda", "dermofit", "derm7pt_clinical", "derm7pt_dermoscopic"), _SKIN),
    **dict.fromkeys(("ph2", "mednode"), _SKIN),
    **dict.fromkeys(("pathmnist", "dermamnist", "octmnist", "pneumoniamnist", "breastmnist"), _MED),
    **dict.fromkeys(("organmnist_axial", "organmnist_coronal", "organmnist_sagittal"), _MED),
}

# the current organ datasets use the recipes of the paper's versions
SAME_AS = {
    "organamnist": "organmnist_axial",
    "organcmnist": "organmnist_coronal",
    "organsmnist": "organmnist_sagittal",
}


def make_recipe(
    dataset: Dataset, *, changes: Sequence[str] = (), **fields: str | Path | float | None
) -> Recipe:
    """The recipe for a dataset after changes such as "lr=0.05".

    fields: the same by name, such as lr=0.05; None changes nothing. `weights` is a file with the
        state dict that training starts from (`zetamix_lab.models.load_weights`). Without
        `optimizer`, networks with layer normalisation, such as transformers and ConvNeXt, get
        AdamW, and all others SGD.
    """
    named = [f"{name}={value}" for name, value in fields.items() if value is not None]
    name = dataset.name if _is_from_catalogue(dataset) else ""
    recipe = default_recipe(name, dataset.shape, len(dataset.train))
    wanted = recipe.override(*named, *changes)
    is_set = any(text.startswith("optimizer=") for text in (*named, *changes))
    adamw = wanted.optimizer == "adamw" or (not is_set and _suits_adamw(wanted, dataset))
    if adamw:
        recipe = with_adamw(recipe, wanted.batch_size)
    if wanted.weights is not None and (adamw or recipe.source == OWN):
        # a tenth, as usual for fine-tuning: a rate for training from scratch erases the weights
        recipe = recipe.change(lr=recipe.lr / 10)
    if dataset.multi_label:
        recipe = recipe.change(select="map")
    recipe = recipe.override(*named, *changes)
    try:
        check_metric(recipe.select, multi_label=dataset.multi_label)
    except ValueError as error:
        raise RecipeError(f"select: {error}") from None
    return recipe


def _is_from_catalogue(dataset: Dataset) -> bool:
    """Whether this is the dataset of that name, and not a folder with the same name."""
    spec = CATALOGUE.get(dataset.name)
    if spec is None:
        return False
    return (spec.shape, len(spec.classes)) == (dataset.shape, dataset.num_classes)


def with_adamw(recipe: Recipe, batch_size: int) -> Recipe:
    """A recipe with AdamW, warm-up over a tenth of the epochs, and cosine annealing.

    Weight decay is that of DeiT and ConvNeXt. Their rates, 0.001 to 0.004 for batches of 1,024 to
    4,096, are scaled by the square root of the batch size, as is usual for Adam.
    """
    return recipe.change(
        optimizer="adamw",
        lr=5e-4 * math.sqrt(batch_size / 128),
        weight_decay=0.05,
        schedule="cosine",
        milestones=(),
        warmup=min(max(1, round(recipe.epochs / 10)), recipe.epochs - 1),
    )


def _suits_adamw(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether the network uses layer normalisation, with which SGD trains poorly."""
    if recipe.model.startswith("resnet") or recipe.model in OWN_MODELS:
        return False
    network = initialise(
        recipe.model, dataset.num_classes, dataset.shape, 0, stem=recipe.stem, code=recipe.code
    )
    kinds = [type(part).__name__ for part in network.modules()]
    return any("LayerNorm" in kind for kind in kinds) and not any("BatchNorm" in k for k in kinds)


def default_recipe(name: str, shape: tuple[int, ...], count: int) -> Recipe:
    """The paper's recipe for its datasets; for all others one that suits their size.

    shape: the shape of one sample. count: the number of training samples.

    >>> default_recipe("cifar10", (3, 32, 32), 50_000).source
    'paper, Appendix D.1'
    >>> default_recipe("my photos", (3, 128, 128), 500).batch_size
    32
    """
    name = SAME_AS.get(name, name)
    if name in RECIPES:
        return RECIPES[name]
    # small datasets get small batches: 500 photos are 15 steps per epoch
    batch_size = 128 if count >= 10_000 else 64 if count >= 1_000 else 32
    images = len(shape) == 3
    return Recipe(
        source=OWN,
        model=default_model(shape),
        epochs=30,
        batch_size=batch_size,
        # the rate is proportional to the batch size
        lr=0.1 * batch_size / 128 if images else 0.05,
        schedule="cosine",
        # a mirrored photograph is still one; a mirrored digit is not
        augmentation="flip" if images and shape[0] == 3 else "none",
        select="balanced_accuracy",
    )
