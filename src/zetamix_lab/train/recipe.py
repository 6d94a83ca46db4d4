"""Hyperparameters of a training run: frozen, validated, changed by name."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from zetamix.methods import Method
from zetamix.text import did_you_mean, plural
from zetamix_lab.data.augment import AUGMENTATIONS
from zetamix_lab.metrics import EVALUATED, MULTI_LABEL_ONLY
from zetamix_lab.models import is_python_file
from zetamix_lab.provenance import FileChangedError, FileRef

CHOICES = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("steps", "cosine"),
    "augmentation": tuple(AUGMENTATIONS),
    "normalize": ("dataset", "half", "none"),
    "stem": ("auto", "small", "imagenet"),
    "last_batch": ("drop", "keep"),
    "precision": ("auto", "bfloat16", "float32"),
    "select": (*EVALUATED, *MULTI_LABEL_ONLY),
}


# the source of recipes that are not the paper's
OWN = "zetamix"


class RecipeError(ValueError):
    """An invalid recipe. The message says which values are valid."""


# metadata of fields that are in `Recipe.as_dict`, and so in the key of a cell, only if they are
# set: records that were written before the field existed keep their keys
LATER = {"later": True}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a training run, except data, method and seed."""

    source: str
    """Where the values come from: a section of the paper, or zetamix."""
    model: str = "auto"
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

    # not stated in the paper; each docstring explains the default
    augmentation: str = "flip"
    """Appendix D says flip only, Sec. 4.5 "rotation, flipping, cropping"; "crop-flip" comes closer
    to the paper's error rates (5.48 % on CIFAR-10 without mixing)."""
    normalize: str = "dataset"
    """Not stated. "dataset" is the mean and standard deviation per channel of the training split,
    as is usual; "half" is MedMNIST's (0.5, 0.5)."""
    stem: str = "auto"
    """Not stated. The ImageNet stem costs several points on 32 × 32 images, which the paper's error
    rates exclude: images up to 64 pixels get a 3 × 3 stem without pooling."""
    last_batch: str = "drop"
    """Not stated. "drop" leaves out the last, smaller batch, which holds other samples each epoch:
    all steps then have one shape, as a CUDA graph needs."""
    select: str = "accuracy"
    """Not stated. The validation metric that selects the best epoch; the last epoch is always
    reported as well."""
    precision: str = "auto"
    """Not stated; the paper's GPU had float32 only. "auto" is bfloat16 on GPUs that support it."""

    evaluate_every: int = 1
    """Number of epochs between evaluations; the last epoch is always evaluated."""

    optimizer: str = field(default="sgd", metadata=LATER)
    """"sgd" with `momentum` and `nesterov`, or "adamw", which decays weights but neither biases nor
    the parameters of normalisation."""
    warmup: int = field(default=0, metadata=LATER)
    """Epochs in which the learning rate rises linearly, step by step, before the schedule."""
    code: FileRef | None = field(default=None, metadata=LATER)
    """The file of a model "FILE.py:FUNCTION", found when the recipe is made."""
    weights: FileRef | None = field(default=None, metadata=LATER)
    """The state dict that training starts from; None starts from scratch."""

    def __post_init__(self) -> None:
        if self.code is None and is_python_file(self.model):
            path, _, function = self.model.rpartition(":")
            code = _read_file("model", path)
            # only the file name: the file is identified by its content
            object.__setattr__(self, "model", f"{code.path.name}:{function}")
            object.__setattr__(self, "code", code)
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise RecipeError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}."
                )
        for name in ("epochs", "batch_size", "evaluate_every"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("lr", "weight_decay", "momentum", "decay"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise RecipeError(f"{name} must be a finite number of at least 0, got {value}.")
        if not 0 <= self.warmup < self.epochs:
            raise RecipeError(
                f"warmup must be at least 0 and less than the {self.epochs} epochs, got "
                f"{self.warmup}."
            )
        if self.nesterov and self.momentum == 0:
            raise RecipeError("nesterov needs momentum above 0. Set nesterov=false.")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise RecipeError(f"milestones must increase, got {list(self.milestones)}.")

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

    def check_sources(self, method: Method, samples: int, processes: int = 1) -> None:
        """Raise if a method mixes more samples than a batch has.

        samples: the number of training samples, which limits the batch.
        """
        available = max(1, min(self.batch_size, samples) // processes)
        if method.sources is not None and method.sources > available:
            where = " in each process" if processes > 1 else ""
            fewer = f"sources={available} or fewer, " if available > 1 else ""
            raise RecipeError(
                f"{method.label} mixes {method.sources} samples, but a batch has {available}"
                f"{where}. Use {fewer}sources=all, or a larger batch_size."
            )

    def change(self, **changes: Any) -> "Recipe":
        """The recipe with some fields changed; other epochs scale milestones and warm-up.

        >>> recipe = Recipe(source="", epochs=200, milestones=(80, 120, 160))
        >>> recipe.change(epochs=20).milestones
        (8, 12, 16)
        """
        for name in changes:
            self._check_name(name)
        if "model" in changes:
            changes["code"] = None
        epochs = changes.get("epochs", self.epochs)
        if "milestones" not in changes and epochs != self.epochs:
            scaled = {max(1, round(m * epochs / self.epochs)) for m in self.milestones}
            changes["milestones"] = tuple(sorted(scaled))
        if "warmup" not in changes and self.warmup:
            scaled_warmup = max(1, round(self.warmup * epochs / self.epochs))
            changes["warmup"] = min(scaled_warmup, epochs - 1)
        if "epochs" in changes and "evaluate_every" not in changes:
            changes["evaluate_every"] = max(1, self.evaluate_every * epochs // self.epochs)
        return dataclasses.replace(self, **changes)

    def override(self, *assignments: str) -> "Recipe":
        """The recipe after `name=value` assignments from the command line.

        >>> Recipe(source="").override("lr=0.05", "augmentation=crop-flip").lr
        0.05
        """
        changes: dict[str, Any] = {}
        for text in assignments:
            name, equals, value = text.partition("=")
            if not equals:
                raise RecipeError(f"Expected name=value, such as lr=0.05, got {text!r}.")
            name = name.strip()
            self._check_name(name)
            if name in changes:
                raise RecipeError(f"{name} is given twice; give it once.")
            changes[name] = _parse_value(name, value.strip())
        return self.change(**changes)

    def _check_name(self, name: str) -> None:
        names = [
            each.name for each in dataclasses.fields(self) if each.name not in ("source", "code")
        ]
        if name not in names:
            hint = did_you_mean(name, names)
            raise RecipeError(f"A recipe has no {name!r}.{hint} It has: {', '.join(names)}.")

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if not each.metadata.get("later") or value != each.default:
                values[each.name] = value.as_dict() if isinstance(value, FileRef) else value
        return {**values, "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Recipe":
        files = {
            name: FileRef.from_dict(value)
            for name, value in values.items()
            if isinstance(value, dict)
        }
        return cls(**{**values, "milestones": tuple(values["milestones"]), **files})

    @property
    def start(self) -> str:
        """The initial weights as text."""
        return "from scratch" if self.weights is None else f"from {self.weights}"

    @property
    def origin(self) -> str:
        """Where the values come from, as text."""
        return "default of this library" if self.source == OWN else self.source

    @property
    def optimisation(self) -> str:
        """Optimiser, learning rate and weight decay as text."""
        schedule = self.schedule
        if self.warmup:
            schedule += f" after {plural(self.warmup, 'epoch')} of warm-up"
        rates = f"learning rate {self.lr:g} ({schedule}), weight decay {self.weight_decay:g}"
        if self.optimizer == "adamw":
            return f"AdamW, {rates}"
        nesterov = " (Nesterov)" if self.nesterov else ""
        return f"SGD with momentum {self.momentum:g}{nesterov}, {rates}"

    @property
    def network(self) -> dict[str, Any]:
        """The options of `zetamix_lab.models.initialise`."""
        return {"stem": self.stem, "code": self.code, "weights": self.weights}


def _read_file(name: str, path: str) -> FileRef:
    try:
        return FileRef.read(path)
    except FileChangedError as error:
        raise RecipeError(f"{name}: {error}") from None


def _parse_value(name: str, value: str) -> Any:
    kind = get_type_hints(Recipe)[name]
    if name == "weights":
        return _read_file(name, value)
    try:
        if name == "milestones":
            return tuple(int(part) for part in value.split(",") if part.strip())
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        return kind(value)
    except (KeyError, ValueError):
        expected = {"milestones": "epochs separated by commas", bool: "true or false"}
        text = expected.get(name, expected.get(kind, f"a value of type {kind.__name__}"))
        raise RecipeError(f"{name}: expected {text}, got {value!r}.") from None
