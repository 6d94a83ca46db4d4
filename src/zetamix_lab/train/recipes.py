"""The recipe for a dataset: by its size, and by the network that is trained."""

import math
from collections.abc import Sequence
from pathlib import Path

from zetamix_lab.data.dataset import Dataset
from zetamix_lab.metrics import check_metric
from zetamix_lab.models import OWN_MODELS, default_model, initialise
from zetamix_lab.train.recipe import OWN, Recipe, RecipeError, parse_changes


def make_recipe(
    dataset: Dataset,
    *,
    changes: Sequence[str] = (),
    gpu: bool = True,
    **fields: str | Path | float | None,
) -> Recipe:
    """The recipe for a dataset after changes such as "lr=0.05".

    gpu: whether a GPU will train; without one small images get a smaller network.
    fields: the same by name, such as lr=0.05; None changes nothing. `weights` is a file with the
        state dict that training starts from (`zetamix_lab.models.load_weights`). Without
        `optimizer`, networks with layer normalisation, such as transformers and ConvNeXt, get
        AdamW, and all others SGD.
    """
    given = parse_changes(changes, **fields)
    recipe = default_recipe(
        dataset.shape, len(dataset.train), multi_label=dataset.multi_label, gpu=gpu
    )
    wanted = recipe.change(**given)
    if wanted.optimizer == "adamw" or ("optimizer" not in given and _suits_adamw(wanted, dataset)):
        recipe = with_adamw(recipe, wanted.batch_size)
    if wanted.weights is not None:
        # a tenth, as usual for fine-tuning: a rate for training from scratch erases the weights
        recipe = recipe.change(lr=recipe.lr / 10)
    recipe = recipe.change(**given)
    try:
        if recipe.select != "none":
            check_metric(recipe.select, dataset.num_classes, multi_label=dataset.multi_label)
    except ValueError as error:
        raise RecipeError(f"select: {error}") from None
    return recipe


def default_recipe(
    shape: tuple[int, ...], count: int, *, multi_label: bool = False, gpu: bool = True
) -> Recipe:
    """A recipe by the shape of one sample and the number of training samples.

    >>> recipe = default_recipe((3, 128, 128), 500)
    >>> recipe.model, recipe.batch_size, recipe.augmentation
    ('resnet18', 32, 'flip')
    """
    # small datasets get small batches: 500 photos are 15 steps per epoch
    batch_size = 128 if count >= 10_000 else 64 if count >= 1_000 else 32
    images = len(shape) == 3
    return Recipe(
        source=OWN,
        model=default_model(shape, gpu=gpu),
        epochs=30,
        batch_size=batch_size,
        # the rate is proportional to the batch size
        lr=0.1 * batch_size / 128 if images else 0.05,
        schedule="cosine",
        # a mirrored photograph is still one; a mirrored digit is not
        augmentation="flip" if images and shape[0] == 3 else "none",
        select="map" if multi_label else "balanced_accuracy",
    )


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
