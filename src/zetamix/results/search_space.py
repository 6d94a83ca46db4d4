"""The search space of a study: parameters of ζ-mixup and of the recipe, each with its values."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, TypeAlias, get_type_hints

from zetamix import methods
from zetamix.methods import Method, UnknownMethodError
from zetamix.text import did_you_mean
from zetamix.train.recipe import Recipe, RecipeError

Value: TypeAlias = float | int | str
Setting: TypeAlias = dict[str, Value]
"""One value for each parameter."""

EXAMPLE = "gamma=1..6, weight_decay=log:5e-5..1e-3, gamma=1.8:5.0:0.2, sources=2|8|all or lr=0.05"
TITLES = {"gamma": "γ", "weight_decay": "weight decay", "batch_size": "batch size"}
"""Names of parameters in reports, where they differ from those in a space."""

# trials that differ in length or selection rule cannot be compared
NOT_SEARCHED = ("source", "epochs", "milestones", "select", "evaluate_every", "weights")
RECIPE_FIELDS = tuple(f.name for f in fields(Recipe) if f.name not in (*NOT_SEARCHED, "code"))
METHOD_OPTIONS = tuple(methods.OPTIONS["zeta"])
INTEGERS = ("sources", *(name for name, kind in get_type_hints(Recipe).items() if kind is int))
# significant digits of drawn numbers: training is not sensitive to a fifth digit
DIGITS = 4
# a longer list of values is probably a typing error
MOST_VALUES = 10_000


class SpaceError(ValueError):
    """An invalid search space; the message says what is valid."""


@dataclass(frozen=True)
class Parameter:
    """A range to draw from (`low` to `high`), or the values to choose from."""

    name: str
    text: str
    """The values as they were written."""
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    values: tuple[Value, ...] = ()
    step: float | None = None
    """Distance of evenly spaced values."""

    @property
    def fixed(self) -> bool:
        return len(self.values) == 1

    @property
    def ends(self) -> tuple[Value, ...]:
        """All values, or both ends of the range."""
        return self.values or (self.round(self.low), self.round(self.high))

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest of numbers."""
        numbers = [float(value) for value in self.ends]
        return min(numbers), max(numbers)

    def share(self, low: float, high: float) -> float:
        """The fraction of the span from `low` to `high`, on the scale of the parameter.

        >>> Parameter("gamma", "1..6", low=1.0, high=6.0).share(2.0, 3.0)
        0.2
        """
        ends = (*self.span, low, high)
        first, last, low, high = map(math.log, ends) if self.log else ends
        return (high - low) / (last - first)

    def round(self, value: Value) -> Value:
        """A drawn value as it is used: the nearest of the values, or a number of four digits."""
        if isinstance(value, str) or (self.values and self.step is None):
            return value
        if self.values:
            # samplers accumulate the rounding errors of steps
            return min(self.values, key=lambda choice: abs(float(choice) - value))
        if self.name in INTEGERS:
            return round(value)
        short = float(f"{value:.{DIGITS}g}")
        return short if self.low <= short <= self.high else value

    def distribution(self) -> Any:
        """Optuna's distribution for this parameter."""
        from optuna import distributions

        if self.values and self.step is None:
            return distributions.CategoricalDistribution(self.values)
        low, high = (self.values[0], self.values[-1]) if self.values else (self.low, self.high)
        if self.name in INTEGERS:
            step = 1 if self.step is None else int(self.step)
            return distributions.IntDistribution(int(low), int(high), log=self.log, step=step)
        return distributions.FloatDistribution(float(low), float(high), self.log, self.step)


@dataclass(frozen=True)
class Space:
    """The parameters that are searched or set, in the order in which they were given.

    >>> space = parse_space("gamma=1..6,weight_decay=log:5e-5..1e-3,sources=8")
    >>> [parameter.name for parameter in space.searched]
    ['gamma', 'weight_decay']
    >>> space.method({"gamma": 2.4, "sources": 8}).label
    'zeta:gamma=2.4,sources=8'
    """

    parameters: tuple[Parameter, ...]
    baseline: str = ""
    """The baseline, whose options are not searched; empty for ζ-mixup."""

    def for_baseline(self, method: str) -> "Space":
        """Only the parameters of the recipe, to tune a baseline as well.

        >>> parse_space("gamma=1..6,weight_decay=log:5e-5..1e-3").for_baseline("none").text
        'weight_decay=log:5e-5..1e-3'
        """
        return Space(tuple(p for p in self.parameters if p.name in RECIPE_FIELDS), method)

    @property
    def text(self) -> str:
        """The text that parses to this space."""
        return ",".join(f"{parameter.name}={parameter.text}" for parameter in self.parameters)

    @property
    def searched(self) -> tuple[Parameter, ...]:
        """The parameters with more than one value."""
        return tuple(parameter for parameter in self.parameters if not parameter.fixed)

    @property
    def gamma(self) -> Parameter | None:
        """γ, if it is searched."""
        return next((parameter for parameter in self.searched if parameter.name == "gamma"), None)

    def distributions(self) -> dict[str, Any]:
        return {parameter.name: parameter.distribution() for parameter in self.searched}

    def setting(self, drawn: Mapping[str, Any]) -> Setting:
        """The values to train with, from the values that a sampler drew."""
        return {p.name: p.values[0] if p.fixed else p.round(drawn[p.name]) for p in self.parameters}

    def grid(self) -> list[Setting]:
        """All combinations of values; the last parameter varies fastest.

        >>> [setting["gamma"] for setting in parse_space("gamma=1.8:2.2:0.2").grid()]
        [1.8, 2.0, 2.2]
        """
        for parameter in self.parameters:
            if not parameter.values:
                raise SpaceError(
                    f"A grid needs values of {parameter.name}, got the range {parameter.text}. "
                    "Use first:last:step, such as 1:6:0.5, or a list a|b|c."
                )
        if (count := math.prod(len(p.values) for p in self.parameters)) > MOST_VALUES:
            raise SpaceError(f"Expected at most {MOST_VALUES:,} settings in a grid, got {count:,}.")
        names = [parameter.name for parameter in self.parameters]
        combinations = product(*(parameter.values for parameter in self.parameters))
        return [dict(zip(names, values, strict=True)) for values in combinations]

    def method(self, setting: Setting) -> Method:
        """ζ-mixup with the options of a setting, or the baseline."""
        if self.baseline:
            return methods.parse(self.baseline)
        options = [f"{name}={setting[name]}" for name in METHOD_OPTIONS if name in setting]
        return methods.parse("zeta" + (f":{','.join(options)}" if options else ""))

    def recipe(self, setting: Setting, recipe: Recipe) -> Recipe:
        """The recipe with the fields of a setting."""
        fields = [f"{name}={value}" for name, value in setting.items() if name in RECIPE_FIELDS]
        return recipe.override(*fields)


def parse_space(text: str) -> Space:
    """Parse `name=values` pieces separated by commas.

    Values are a range `1..6`, a range on a logarithmic scale `log:5e-5..1e-3`, evenly spaced
    values `1.8:5.0:0.2`, a list `2|8|all`, or a single value.

    >>> parse_space("gamma=1..6, sources=2|8|all").text
    'gamma=1..6,sources=2|8|all'
    """
    parameters: dict[str, Parameter] = {}
    for piece in text.split(","):
        name, equals, values = (part.strip() for part in piece.partition("="))
        if not (name and equals and values):
            raise SpaceError(
                f"Expected name=values separated by commas, such as {EXAMPLE}, got "
                f"{piece.strip()!r}."
            )
        names = (*METHOD_OPTIONS, *RECIPE_FIELDS)
        if name in NOT_SEARCHED:
            raise SpaceError(
                f"{name} cannot be searched: trials that differ in it cannot be compared. Set it "
                f"for all trials with --set {name}=..., and search any of {', '.join(names)}."
            )
        if name not in names:
            hint = did_you_mean(name, names)
            raise SpaceError(
                f"There is no parameter {name!r}.{hint} Expected one of {', '.join(names)}."
            )
        if name in parameters:
            raise SpaceError(f"{name} is given twice; give each parameter once.")
        parameters[name] = _parse_values(name, values)
    space = Space(tuple(parameters.values()))
    first = {parameter.name: parameter.ends[0] for parameter in space.parameters}
    try:
        for parameter in space.parameters:
            for value in parameter.ends:
                setting = {**first, parameter.name: value}
                space.method(setting)
                space.recipe(setting, Recipe(source=""))
    except (UnknownMethodError, RecipeError) as error:
        raise SpaceError(f"Not every value of the space can be trained. {error}") from None
    return space


def _parse_values(name: str, text: str) -> Parameter:
    ends = text.removeprefix("log:")
    log = ends != text
    # timm:resnet18 and ../nets.py:make are names
    is_name = name == "model"
    if log or (".." in text and not is_name):
        low, high = _numbers(name, ends.split(".."), text, 2, "a range such as 1..6")
        if low >= high or (log and low <= 0):
            raise SpaceError(
                f"{name}: expected the smaller end of a range first{', above 0' if log else ''}, "
                f"got {text!r}."
            )
        return Parameter(name, text, low=low, high=high, log=log)
    if ":" in text and not is_name:
        expected = "first:last:step, such as 1.8:5.0:0.2"
        first, last, step = _numbers(name, text.split(":"), text, 3, expected)
        if first > last or step <= 0:
            raise SpaceError(f"{name}: expected {expected}, with a step above 0, got {text!r}.")
        # 1.8 + 16 × 0.2 is 5.000000000000001
        count = math.floor(min((last - first) / step, MOST_VALUES) + 1e-9) + 1
        if count > MOST_VALUES:
            raise SpaceError(f"{name}: expected at most {MOST_VALUES:,} values, got {text!r}.")
        kind = int if name in INTEGERS else float
        values = tuple(kind(round(first + index * step, 10)) for index in range(count))
        return Parameter(name, text, values=values, step=step)
    choices = tuple(_parse_value(name, part.strip()) for part in text.split("|"))
    if len(set(choices)) < len(choices):
        raise SpaceError(f"{name}={text} contains a value twice.")
    return Parameter(name, text, values=choices)


def _numbers(name: str, parts: list[str], text: str, count: int, expected: str) -> list[float]:
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise SpaceError(f"{name}: expected {expected}, got {text!r}.")
    if name in INTEGERS and not all(number.is_integer() for number in numbers):
        raise SpaceError(f"{name}: expected integers, got {text!r}.")
    return numbers


def _parse_value(name: str, text: str) -> Value:
    """A single value, as a number if possible; γ = 2 and γ = 2.0 are the same setting."""
    with suppress(ValueError):
        return int(text) if name in INTEGERS else float(text)
    return text


def format_setting(setting: Setting) -> str:
    """A setting in the text of a report.

    >>> format_setting({"gamma": 2.4, "weight_decay": 5e-4})
    'γ = 2.4, weight decay = 0.0005'
    """
    texts = {k: f"{v:g}" if isinstance(v, float) else v for k, v in setting.items()}
    return ", ".join(f"{TITLES.get(name, name)} = {text}" for name, text in texts.items())
