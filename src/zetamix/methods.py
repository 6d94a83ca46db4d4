"""Mixing methods by name and options: `none`, `mixup:0.2`, `zetamix`, `zeta:2.8`."""

import difflib
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix.transforms import (
    CutMix,
    LabelSmoothing,
    Mixup,
    MixupOrCutMix,
    ZetaMix,
    ZetaMixup,
)

Transform: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

BUILDERS: dict[str, Callable[..., Transform]] = {
    "smoothing": LabelSmoothing,
    "mixup": Mixup,
    "cutmix": CutMix,
    "switch": MixupOrCutMix,
    "zetamix": ZetaMix,
    "zeta": ZetaMixup,
}
# the class of `zeta` is called ZetaMixup
ALIASES = {"zetamixup": "zeta"}
# of the data and the program, not of a method
_NO_OPTIONS = ("num_classes", "ignore_index", "rules", "mean", "generator", "stream")
_LAST = ("p", "until")


def _read_options(build: Callable[..., Transform]) -> dict[str, Any]:
    """The options of a transform and their defaults; those that all have come last."""
    parameters = inspect.signature(build).parameters
    names = sorted((name for name in parameters if name not in _NO_OPTIONS), key=_LAST.__contains__)
    return {name: parameters[name].default for name in names}


# the options of each method with their defaults; the first may be given without its name: zeta:2.8
OPTIONS = {"none": {}, **{name: _read_options(build) for name, build in BUILDERS.items()}}
WORDS = {"yes": True, "no": False, "all": None}
# methods whose label has only the options that differ from their defaults
SHORT = ("none", "switch", "zetamix")


class UnknownMethodError(ValueError):
    """A method or an option that does not exist; the message lists those that do."""


@dataclass(frozen=True)
class Method:
    """One way to mix a batch, by its name and the options that differ from their defaults."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """The text that parses to this method: `zetamix`, `zeta:2.8`, `zeta:gamma=2.4,p=0.5`."""
        if self.name in SHORT:
            return _spell(self.name, dict(self.options))
        first = next(iter(OPTIONS[self.name]))
        values = {first: OPTIONS[self.name][first], **dict(self.options)}
        if list(values) == [first] and not isinstance(values[first], tuple):
            return f"{self.name}:{_print(values[first])}"
        return _spell(self.name, values)

    @property
    def values(self) -> dict[str, Any]:
        """All options, including those at their defaults."""
        return {**OPTIONS[self.name], **dict(self.options)}

    @property
    def full_label(self) -> str:
        """The label with every option, so that it does not depend on defaults."""
        return _spell(self.name, self.values)

    @property
    def until(self) -> float:
        """The fraction of training in which samples are mixed; later epochs are unmixed."""
        return self.values.get("until", 1.0)  # type: ignore[no-any-return]

    def transform(
        self, num_classes: int, generator: torch.Generator | None = None
    ) -> Transform | None:
        """The transform from `(samples, labels)` to `(samples, targets)`; None for `none`."""
        build = BUILDERS.get(self.name)
        given = {"num_classes": num_classes, "generator": generator, **self.values}
        return None if build is None else build(**given)

    def mix(
        self,
        samples: Tensor,
        labels: Tensor,
        num_classes: int,
        generator: torch.Generator,
        *,
        mean: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mix floating point samples that are not normalised, to show or measure the outputs.

        Training mixes normalised samples. If the method keeps the variance, `mean` is subtracted
        first and added afterwards; by default it is the mean of each channel of `samples`. Warnings
        are suppressed.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            transform = self.transform(num_classes, generator)
            if transform is None:
                hot = labels if labels.ndim == 2 else F.one_hot(labels, num_classes).to(samples)
                return samples, hot
            if not getattr(transform, "keep_variance", False):
                return transform(samples, labels)
            mean = channel_means(samples) if mean is None else mean
            mixed, targets = transform(samples - mean, labels)
            return mixed + mean, targets

    def __str__(self) -> str:
        return self.label


def channel_means(samples: Tensor) -> Tensor:
    """[1, channels, 1, ...]: the mean of each channel, or of each feature."""
    return samples.mean([0, *range(2, samples.ndim)], keepdim=True)


def display_name(label: str, until: float | None = None) -> str:
    """The name of a method in prose.

    until: what the methods of a comparison share; the name has that of a method only if it differs.

    >>> display_name("none"), display_name("zeta:2.8")
    ('no mixing', 'zeta:2.8')
    >>> display_name("mixup:alpha=1.0,until=0.8", 0.8), display_name("mixup:1.0", 0.8)
    ('mixup:1.0', 'mixup:alpha=1.0,until=1.0')
    """
    if label == "none":
        return "no mixing"
    try:
        method = parse(label)
    except UnknownMethodError:
        # of a table of runs that were made elsewhere
        return label
    if until is None or "until" not in OPTIONS[method.name]:
        return label
    options = {key: value for key, value in method.options if key != "until"}
    options |= {"until": method.until} if method.until != until else {}
    return Method(method.name, tuple(options.items())).label


def parse(text: str, until: float | None = None) -> Method:
    """Read one method.

    until: of a method that mixes and does not name its own; None is the default of the method.

    >>> parse("zeta:2.8").label, parse("zeta").values["gamma"]
    ('zeta:2.8', 2.8)
    >>> parse("zeta:gamma=0..4,sources=4").options
    (('gamma', (0.0, 4.0)), ('sources', 4))
    """
    name, options = _read_text(text)
    if until is not None and "until" in OPTIONS[name]:
        options.setdefault("until", until)
    # in a fixed order and without defaults, so that equal methods compare equal
    kept = [(key, options[key]) for key in OPTIONS[name] if key in options]
    if name != "zetamix" or len(kept) < len(OPTIONS[name]):
        # a label with every option must keep its meaning when defaults change
        kept = [(k, v) for k, v in kept if repr(v) != repr(OPTIONS[name][k])]
    method = Method(name, tuple(kept))
    try:
        # an invalid value raises now and not in training
        method.transform(2)
    except (TypeError, ValueError) as error:
        raise UnknownMethodError(f"{method.label}: {error}") from None
    return method


def _read_text(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a method and the options given, including those at their defaults."""
    name, _, rest = text.strip().partition(":")
    name = ALIASES.get(name, name)
    if name not in OPTIONS:
        near = difflib.get_close_matches(name.lower(), OPTIONS, 1)
        raise UnknownMethodError(
            f"Expected a method such as none, mixup:1.0, cutmix, switch, zetamix or zeta:2.8, got "
            f"{text.strip()!r}.{f' Did you mean {near[0]}?' if near else ''}"
        )
    options: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        key, given, value = part.partition("=")
        if not given:
            key, value = next(iter(OPTIONS[name]), ""), part
        key = key.strip()
        if key not in OPTIONS[name]:
            names = ", ".join(OPTIONS[name]) or "none"
            raise UnknownMethodError(f"{name} has no option {part!r}; its options: {names}.")
        if key in options:
            raise UnknownMethodError(f"{name} has the option {key} twice, in {text.strip()!r}.")
        options[key] = _read(key, value.strip())
    return name, options


def parse_list(text: str, until: float | None = None) -> list[Method]:
    """Read methods separated by commas; `key=value` pieces belong to the method before them.

    until: as in `parse`.

    >>> [method.label for method in parse_list("none,zeta:gamma=2.4,sources=8,mixup")]
    ['none', 'zeta:gamma=2.4,sources=8', 'mixup:1.0']
    """
    pieces: list[str] = []
    for piece in text.split(","):
        if pieces and re.match(r"\s*\w+\s*=", piece):
            pieces[-1] += "," + piece.strip()
        elif piece.strip():
            pieces.append(piece.strip())
    methods = [parse(piece, until) for piece in pieces]
    if not methods:
        raise UnknownMethodError("Expected at least one method, such as none,mixup,zeta:2.8.")
    labels = [method.label for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise UnknownMethodError(f"{label} is given twice; give each method once.")
    return methods


def _read(key: str, value: str) -> Any:
    """A number, a range such as 0..4, or a word; the transform checks that the option takes it."""
    if value in WORDS:
        return WORDS[value]
    low, is_range, high = value.partition("..")
    try:
        if is_range:
            return float(low), float(high)
        return int(value) if key == "sources" else float(value)
    except ValueError:
        return value


def _print(value: Any) -> str:
    if isinstance(value, tuple):
        return "..".join(_print(part) for part in value)
    return next((word for word, meaning in WORDS.items() if value is meaning), str(value))


def _spell(name: str, options: dict[str, Any]) -> str:
    return ":".join([name, ",".join(f"{k}={_print(v)}" for k, v in options.items())]).rstrip(":")
