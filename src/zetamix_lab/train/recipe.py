"""Hyperparameters of a training run: defaults by the data, changed by name, stored as JSON."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zetamix.methods import Method
from zetamix_lab.data.dataset import Dataset
from zetamix_lab.data.loader import AUGMENTATIONS, ROUND
from zetamix_lab.metrics import EVALUATED, MULTI_LABEL_ONLY, evaluated
from zetamix_lab.models import default_model, initialise
from zetamix_lab.provenance import FileRef
from zetamix_lab.text import did_you_mean, plural

CHOICES = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("steps", "cosine"),
    "augmentation": tuple(AUGMENTATIONS),
    "normalize": ("dataset", "half", "none"),
    "stem": ("auto", "small", "imagenet"),
    "last_batch": ("drop", "keep"),
    "precision": ("auto", "bfloat16", "float32"),
    "class_weights": ("none", "balanced"),
    "select": ("none", *EVALUATED, *MULTI_LABEL_ONLY),
}
# fields that are in `Recipe.as_dict`, and so in the key of a cell, only if they are set: records of
# before the field existed keep their keys
LATER = ("last_epochs", "optimizer", "warmup", "class_weights", "weights")


class RecipeError(ValueError):
    """An invalid recipe. The message says which values are valid."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a training run, except data, method and seed."""

    source: str
    """Where the values come from: a section of the paper, or zetamix."""
    model: str = "resnet18"
    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    schedule: str = "steps"
    """"steps" multiplies the rate by `decay` at each of `milestones`; "cosine" anneals to 0."""
    milestones: tuple[int, ...] = ()
    decay: float = 0.2
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    augmentation: str = "flip"
    normalize: str = "dataset"
    """"dataset" is the mean and standard deviation per channel of the training split; "half" is
    MedMNIST's (0.5, 0.5)."""
    stem: str = "auto"
    """"auto" is a 3 × 3 stem without pooling for images up to 64 pixels: the ImageNet stem costs
    several points on 32 × 32 images."""
    last_batch: str = "drop"
    """"drop" leaves out the last, smaller batch, which holds other samples each epoch: all steps
    then have one shape, as a CUDA graph needs."""
    select: str = "accuracy"
    """The validation metric that selects the best epoch, or "none"; the last epoch is always
    reported."""
    precision: str = "auto"
    """"auto" is bfloat16 on GPUs that support it."""
    evaluate_every: int = 1
    """Number of epochs between evaluations; the last epoch is always evaluated."""
    last_epochs: int = 1
    """Epochs at the end that are all evaluated; of several, the record has the test metrics of
    each."""
    optimizer: str = "sgd"
    """"sgd" with `momentum` and `nesterov`, or "adamw", which decays weights but neither biases nor
    the parameters of normalisation."""
    warmup: int = 0
    """Epochs in which the learning rate rises linearly, step by step, before the schedule."""
    class_weights: str = "none"
    """"balanced" weighs the loss of a class by samples / (classes · samples of the class)."""
    weights: FileRef | None = None
    """The state dict that training starts from; None starts from scratch."""

    def __post_init__(self) -> None:
        def check(name: str, valid: bool, expected: str) -> None:
            if not valid:
                raise RecipeError(f"{name} must {expected}, got {getattr(self, name)!r}.")

        for name, allowed in CHOICES.items():
            check(name, getattr(self, name) in allowed, f"be one of {', '.join(allowed)}")
        for name in ("epochs", "batch_size", "evaluate_every"):
            # the order of the data is drawn from the seed and the number of the epoch, below ROUND
            check(name, 1 <= getattr(self, name) < ROUND, f"be from 1 to {ROUND - 1:,}")
        for name in ("lr", "weight_decay", "momentum", "decay"):
            check(name, 0 <= getattr(self, name) < math.inf, "be a finite number of at least 0")
        total = f"the {self.epochs} epochs"
        check("warmup", 0 <= self.warmup < self.epochs, f"be at least 0 and less than {total}")
        check("last_epochs", 1 <= self.last_epochs <= self.epochs, f"be from 1 to {total}")
        increasing = [0, *self.milestones] == sorted({0, *self.milestones})
        check("milestones", increasing, "be at least 1 and increase")
        if self.nesterov and self.momentum == 0:
            raise RecipeError("nesterov needs momentum above 0. Set nesterov=false.")

    def rate(self, epoch: int, done: float = 1.0) -> float:
        """The learning rate of an epoch, counted from 0.

        done: the fraction of the epoch completed after the current step, for the linear increase
            during warm-up.

        >>> recipe = Recipe(source="", epochs=200, lr=0.1, milestones=(80, 120, 160))
        >>> [round(recipe.rate(epoch), 4) for epoch in (0, 79, 80, 199)]
        [0.1, 0.1, 0.02, 0.0008]
        """
        if epoch < self.warmup:
            return self.lr * (epoch + done) / self.warmup
        if self.schedule == "cosine":
            fraction = (epoch - self.warmup) / (self.epochs - self.warmup)
            return self.lr * 0.5 * (1 + math.cos(math.pi * fraction))
        passed = sum(epoch >= milestone for milestone in self.milestones)
        return self.lr * self.decay**passed

    def steps(self, samples: int) -> int:
        """Optimiser steps of a run on `samples` training samples."""
        full, rest = divmod(samples, min(self.batch_size, samples))
        return self.epochs * (full + (rest > 0 and self.last_batch == "keep"))

    def check_sources(self, method: Method, samples: int) -> None:
        """Raise if a method mixes more samples than a batch of so many training samples has."""
        available, sources = min(self.batch_size, samples), method.values.get("sources")
        if sources is not None and sources > available:
            fewer = f"sources={available} or fewer, " if available > 1 else ""
            raise RecipeError(
                f"{method.label} mixes {sources} samples, but a batch has {available}. "
                f"Use {fewer}sources=all, or a larger batch_size."
            )

    def change(self, **changes: Any) -> "Recipe":
        """The recipe with some fields changed, given as values or as text.

        Other epochs scale the milestones, the warm-up and the interval of evaluations, unless these
        are given too.

        >>> recipe = Recipe(source="", epochs=200, milestones=(80, 120, 160))
        >>> short = recipe.change(epochs=20)
        >>> short.milestones, short.change(lr="0.05", milestones="5,10").milestones
        ((8, 12, 16), (5, 10))
        """
        names = [name for name in Recipe.__annotations__ if name != "source"]
        changes = _read_fields(changes, names)
        epochs = changes.get("epochs", self.epochs)
        if epochs != self.epochs:
            part = epochs / self.epochs
            warmup = min(max(1, round(part * self.warmup)), epochs - 1) if self.warmup else 0
            changes = {
                "milestones": tuple(sorted({max(1, round(part * m)) for m in self.milestones})),
                "warmup": warmup,
                "evaluate_every": max(1, self.evaluate_every * epochs // self.epochs),
                "last_epochs": min(self.last_epochs, epochs),
                **changes,
            }
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """The values as JSON has them; `from_dict` is the inverse."""
        values = {
            name: value.as_dict() if isinstance(value, FileRef) else value
            for name, value in self.__dict__.items()
            if name not in LATER or value != getattr(Recipe, name)
        }
        return {**values, "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        return cls(**_read_fields(values, [*Recipe.__annotations__]))

    @property
    def start(self) -> str:
        """The initial weights as text."""
        return "from scratch" if self.weights is None else f"from {self.weights}"

    @property
    def optimisation(self) -> str:
        """Optimiser, learning rate and weight decay as text."""
        warmup = f" after {plural(self.warmup, 'epoch')} of warm-up" if self.warmup else ""
        nesterov = " (Nesterov)" if self.nesterov else ""
        sgd = f"SGD with momentum {self.momentum:g}{nesterov}"
        return (
            f"{'AdamW' if self.optimizer == 'adamw' else sgd}, learning rate {self.lr:g} "
            f"({self.schedule}{warmup}), weight decay {self.weight_decay:g}"
        )

    @property
    def network(self) -> dict[str, Any]:
        """The options of `zetamix_lab.models.initialise`."""
        return {"stem": self.stem, "weights": self.weights}


def parse_changes(texts: Iterable[str], **fields: Any) -> dict[str, Any]:
    """The arguments of `Recipe.change` from texts such as "lr=0.05", and fields by name.

    fields: None changes nothing.

    >>> parse_changes(["lr=0.05", "augmentation = crop-flip"], epochs=3, model=None)
    {'epochs': 3, 'lr': '0.05', 'augmentation': 'crop-flip'}
    """
    changes = {name: value for name, value in fields.items() if value is not None}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise RecipeError(f"Expected name=value, such as lr=0.05, got {text!r}.")
        if name in changes:
            raise RecipeError(f"{name} is given twice; give it once.")
        changes[name] = value
    return changes


def _read_fields(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The values of fields from text, from JSON or as they are; raises for other names."""
    for name in values:
        if name not in names:
            hint = did_you_mean(name, names)
            raise RecipeError(f"A recipe has no {name!r}.{hint} It has: {', '.join(names)}.")
    return {name: _read(name, value) for name, value in values.items()}


def _read(name: str, value: Any) -> Any:
    """The value of a field from text, from JSON or as it is."""
    kind = Recipe.__annotations__[name]
    if isinstance(value, Mapping):
        return FileRef.from_dict(value)
    if name == "weights" and isinstance(value, str | Path):
        return FileRef.read(value)
    expected = {"milestones": "epochs separated by commas", "nesterov": "true or false"}
    try:
        if name == "milestones":
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(int(part) for part in parts if str(part).strip())
        if not isinstance(value, str):
            return float(value) if kind is float else value
        return {"true": True, "false": False}[value.lower()] if kind is bool else kind(value)
    except (KeyError, ValueError):
        text = expected.get(name, f"a value of type {kind.__name__}")
        raise RecipeError(f"{name}: expected {text}, got {value!r}.") from None


def make_recipe(dataset: Dataset, *, gpu: bool = True, **changes: str | Path | float) -> Recipe:
    """The recipe for a dataset after changes such as lr=0.05.

    gpu: whether a GPU will train, which the default model depends on.
    changes: as in `Recipe.change`. `weights` is a file with the state dict that training starts
        from (`load_weights`). Without `optimizer`, networks with layer normalisation, such as
        transformers and ConvNeXt, get AdamW, and all others SGD.
    """
    multi = dataset.multi_label
    recipe = default_recipe(dataset.shape, len(dataset.train), multi_label=multi, gpu=gpu)
    wanted = recipe.change(**changes)
    chosen = "optimizer" in changes
    if wanted.optimizer == "adamw" or (not chosen and _suits_adamw(wanted, dataset)):
        # weight decay is that of DeiT and ConvNeXt. Their rates, 0.001 to 0.004 for batches of
        # 1,024 to 4,096, are scaled by the square root of the batch size, as is usual for Adam
        recipe = recipe.change(
            optimizer="adamw",
            lr=5e-4 * math.sqrt(wanted.batch_size / 128),
            weight_decay=0.05,
            warmup=3,
        )
    if wanted.weights is not None:
        # a tenth, as usual for fine-tuning: a rate for training from scratch erases the weights
        recipe = recipe.change(lr=recipe.lr / 10)
    recipe = recipe.change(**changes)
    names = ["none", *evaluated(dataset.num_classes, multi_label=multi)]
    if recipe.select not in names:
        raise RecipeError(f"select must be one of {', '.join(names)}, got {recipe.select!r}.")
    return recipe


def default_recipe(
    shape: tuple[int, ...], count: int, *, multi_label: bool = False, gpu: bool = True
) -> Recipe:
    """A recipe by the shape of one sample and the number of training samples.

    gpu: whether a GPU will train.

    >>> recipe = default_recipe((3, 128, 128), 500)
    >>> recipe.model, recipe.batch_size, recipe.augmentation
    ('resnet18', 32, 'flip')
    """
    # small datasets get small batches: 500 photos are 15 steps per epoch
    batch_size = 128 if count >= 10_000 else 64 if count >= 1_000 else 32
    images = len(shape) == 3
    return Recipe(
        source="zetamix",
        model=default_model(shape, gpu=gpu),
        batch_size=batch_size,
        # the rate is proportional to the batch size
        lr=0.1 * batch_size / 128 if images else 0.05,
        schedule="cosine",
        # a mirrored photograph is still one; a mirrored digit is not
        augmentation="flip" if images and shape[0] == 3 else "none",
        select="map" if multi_label else "balanced_accuracy",
    )


def _suits_adamw(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether the network uses layer normalisation, with which SGD trains poorly."""
    network = initialise(recipe.model, dataset.num_classes, dataset.shape, stem=recipe.stem)
    kinds = " ".join(type(part).__name__ for part in network.modules())
    return "LayerNorm" in kinds and "BatchNorm" not in kinds
