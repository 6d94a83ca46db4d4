"""What is searched: parameters of ζ-mixup and of the recipe, each with its values."""

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias, get_type_hints

from zetamix import methods
from zetamix.methods import Method, UnknownMethodError
from zetamix.train.recipe import Recipe, RecipeError

Value: TypeAlias = float | int | str
Setting: TypeAlias = dict[str, Value]
"""One value for each parameter."""

# the sweep of the paper's appendix: 200 models over these
PAPER_SWEEP = "gamma=1..6,weight_decay=log:5e-5..1e-3"
PAPER_GRID = "gamma=1.8:5.0:0.2"

# how a search would compare what is not comparable: other lengths, other judges
NOT_SEARCHED = ("source", "epochs", "milestones", "select", "evaluate_every")
OF_RECIPE = tuple(f.name for f in dataclasses.fields(Recipe) if f.name not in NOT_SEARCHED)
OF_METHOD = tuple(methods.OPTIONS["zeta"])
WHOLE = ("sources", *(n for n, kind in get_type_hints(Recipe).items() if kind is int))

# digits that are kept of a drawn number: a training run does not feel the fifth
DIGITS = 4
EXAMPLE = "gamma=1..6, weight_decay=log:5e-5..1e-3, gamma=1.8:5.0:0.2, sources=2|8|all or lr=0.05"


class SpaceError(ValueError):
    """A space that cannot be searched; the message says what can."""


@dataclass(frozen=True)
class Parameter:
    """A range to draw from (`low`, `high`), or the values to choose from (`values`)."""

    name: str
    text: str
    """As it was given, behind the name."""
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    values: tuple[Value, ...] = ()
    step: float | None = None
    """Of values that are evenly spaced."""

    @property
    def fixed(self) -> bool:
        return len(self.values) == 1

    @property
    def numeric(self) -> bool:
        return not any(isinstance(value, str) for value in self.values)

    @property
    def ends(self) -> tuple[Value, ...]:
        """What has to be possible for the whole parameter to be."""
        return self.values or (self.tidy(self.low), self.tidy(self.high))

    @property
    def span(self) -> tuple[float, float] | None:
        """The smallest and the largest number; None where there are none, or only one."""
        if not self.numeric or self.fixed:
            return None
        numbers = [float(value) for value in self.ends]
        return min(numbers), max(numbers)

    def share(self, low: float, high: float) -> float:
        """How much of the span lies from `low` to `high`, on its own scale.

        >>> parse_space("gamma=1..6").parameters[0].share(2.0, 3.0)
        0.2
        """
        if self.span is None:
            return 0.0
        first, last = self.span
        if self.log:
            first, last, low, high = (math.log(each) for each in (first, last, low, high))
        return (high - low) / (last - first)

    def tidy(self, value: float | str) -> Value:
        """A drawn value as it is used: one of the values, or a number with four digits."""
        if self.values:
            if self.step is None:
                return next(known for known in self.values if known == value)
            # a sampler adds steps up, with their rounding
            return min(self.values, key=lambda known: abs(float(known) - float(value)))
        number = float(value)
        if self.name in WHOLE:
            return round(number)
        short = float(f"{number:.{DIGITS}g}")
        return short if self.low <= short <= self.high else number

    def distribution(self) -> Any:
        """The same in Optuna's words."""
        from optuna import distributions as known

        if self.values and self.step is None:
            return known.CategoricalDistribution(self.values)
        low, high = (self.values[0], self.values[-1]) if self.values else (self.low, self.high)
        if self.name in WHOLE:
            step = 1 if self.step is None else int(self.step)
            return known.IntDistribution(int(low), int(high), log=self.log, step=step)
        return known.FloatDistribution(float(low), float(high), log=self.log, step=self.step)


@dataclass(frozen=True)
class Space:
    """All parameters that are searched or set, in the order in which they were given.

    >>> space = parse_space("gamma=1..6,weight_decay=log:5e-5..1e-3,sources=8")
    >>> [parameter.name for parameter in space.searched]
    ['gamma', 'weight_decay']
    >>> space.method({"gamma": 2.4, "sources": 8}).label
    'zeta:gamma=2.4,sources=8'
    """

    parameters: tuple[Parameter, ...]

    @property
    def text(self) -> str:
        """What parses to this space."""
        return ",".join(f"{each.name}={each.text}" for each in self.parameters)

    @property
    def searched(self) -> tuple[Parameter, ...]:
        """Those with more than one value."""
        return tuple(each for each in self.parameters if not each.fixed)

    @property
    def gamma(self) -> Parameter | None:
        """γ, where it is searched over numbers."""
        found = [each for each in self.searched if each.name == "gamma" and each.span is not None]
        return found[0] if found else None

    def distributions(self) -> dict[str, Any]:
        return {each.name: each.distribution() for each in self.searched}

    def setting(self, drawn: Mapping[str, Any]) -> Setting:
        """The values to train with, from what a sampler drew."""
        return {
            each.name: each.values[0] if each.fixed else each.tidy(drawn[each.name])
            for each in self.parameters
        }

    def grid(self) -> list[Setting]:
        """Every combination, the last parameter varying fastest.

        >>> [setting["gamma"] for setting in parse_space("gamma=1.8:2.2:0.2").grid()]
        [1.8, 2.0, 2.2]
        """
        for each in self.parameters:
            if not each.values:
                raise SpaceError(
                    f"A grid needs the values of {each.name}, got the range {each.text}. Write "
                    f"first:last:step, such as {each.name}={each.low:g}:{each.high:g}:"
                    f"{(each.high - each.low) / 10:g}, or the values as a|b|c."
                )
        names = [each.name for each in self.parameters]
        combinations = product(*(each.values for each in self.parameters))
        return [dict(zip(names, values, strict=True)) for values in combinations]

    def method(self, setting: Setting) -> Method:
        """ζ-mixup with the options of a setting."""
        options = [f"{name}={setting[name]}" for name in OF_METHOD if name in setting]
        return methods.parse("zeta" + (f":{','.join(options)}" if options else ""))

    def recipe(self, setting: Setting, recipe: Recipe) -> Recipe:
        """The recipe with the fields of a setting."""
        changes = {name: value for name, value in setting.items() if name in OF_RECIPE}
        return recipe.change(**{name: _typed(name, value) for name, value in changes.items()})


def parse_space(text: str) -> Space:
    """Read `name=values` pieces separated by commas.

    Values are a range `1..6`, a range on a logarithmic scale `log:5e-5..1e-3`, evenly spaced ones
    `1.8:5.0:0.2`, a list `2|8|all`, or one alone.

    >>> parse_space("gamma=1..6, sources=2|8|all").text
    'gamma=1..6,sources=2|8|all'
    """
    parameters: list[Parameter] = []
    for piece in text.split(","):
        name, given, values = (part.strip() for part in piece.partition("="))
        if not (name and given and values):
            raise SpaceError(
                f"Expected name=values pieces separated by commas, such as {EXAMPLE}, got "
                f"{piece.strip()!r}."
            )
        _check_name(name)
        if name in [each.name for each in parameters]:
            raise SpaceError(f"{name} is given twice; give each parameter once.")
        parameters.append(_read(name, values))
    space = Space(tuple(parameters))
    _check_values(space)
    return space


def label(setting: Setting) -> str:
    """A setting as it is printed: `γ = 2.4, weight decay = 0.0005`.

    >>> label({"gamma": 2.4, "weight_decay": 5e-4})
    'γ = 2.4, weight decay = 0.0005'
    """
    parts = (f"{NAMES.get(name, name)} = {_short(value)}" for name, value in setting.items())
    return ", ".join(parts)


NAMES = {"gamma": "γ", "weight_decay": "weight decay", "batch_size": "batch size"}


def _short(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_name(name: str) -> None:
    known = (*OF_METHOD, *OF_RECIPE)
    if name in known:
        return
    if name in NOT_SEARCHED:
        raise SpaceError(
            f"{name} cannot be searched: it changes what trials are compared by. Set it for all "
            f"with --set {name}=..., and search any of {', '.join(known)}."
        )
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise SpaceError(f"There is no parameter {name!r}.{hint} There are: {', '.join(known)}.")


def _read(name: str, text: str) -> Parameter:
    kind, colon, rest = text.partition(":")
    if colon and kind.strip() == "log":
        return _read_range(name, text, rest, log=True)
    if ".." in text:
        return _read_range(name, text, text, log=False)
    if colon:
        return _read_steps(name, text)
    values = tuple(_value(name, part.strip()) for part in text.split("|"))
    if len(set(values)) < len(values):
        raise SpaceError(f"{name}={text} names a value twice.")
    return Parameter(name, text, values=values)


def _read_range(name: str, text: str, ends: str, *, log: bool) -> Parameter:
    parts = ends.split("..")
    if len(parts) != 2:
        raise SpaceError(f"{name}: expected a range such as 1..6 or log:5e-5..1e-3, got {text!r}.")
    low, high = (_number(name, part, text) for part in parts)
    if low >= high:
        raise SpaceError(
            f"{name}: the range {text} is {'empty' if low == high else 'inverted'}; expected the "
            "smaller end first" + (f", as in {high:g}..{low:g}." if low > high else ".")
        )
    if log and low <= 0:
        raise SpaceError(f"{name}: a logarithmic range starts above 0, got {text!r}.")
    if name in WHOLE and not (low.is_integer() and high.is_integer()):
        raise SpaceError(f"{name}: expected whole numbers, got {text!r}.")
    return Parameter(name, text, low=low, high=high, log=log)


def _read_steps(name: str, text: str) -> Parameter:
    parts = text.split(":")
    if len(parts) != 3:
        raise SpaceError(f"{name}: expected first:last:step, such as 1.8:5.0:0.2, got {text!r}.")
    first, last, step = (_number(name, part, text) for part in parts)
    if first > last or step <= 0:
        raise SpaceError(
            f"{name}: expected first:last:step with first up to last and a step above 0, got "
            f"{text!r}."
        )
    # 1.8 + 16 × 0.2 is 5.000000000000001
    count = math.floor((last - first) / step + 1e-9) + 1
    numbers = [round(first + index * step, 10) for index in range(count)]
    if name in WHOLE:
        if not all(number.is_integer() for number in numbers):
            raise SpaceError(f"{name}: expected whole numbers, got {text!r}.")
        return Parameter(name, text, values=tuple(int(n) for n in numbers), step=step)
    return Parameter(name, text, values=tuple(numbers), step=step)


def _number(name: str, text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SpaceError(f"{name}: expected finite numbers, got {text.strip()!r} in {whole!r}.")
    return value


def _value(name: str, text: str) -> Value:
    """A single value, as a number where it reads as one."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        # γ = 2 and γ = 2.0 are one setting
        return number if name in WHOLE else float(number)
    return text


def _typed(name: str, value: Value) -> Any:
    """A recipe's field is what its type says: flags are words in a space."""
    if get_type_hints(Recipe)[name] is bool:
        if str(value).lower() not in ("true", "false"):
            raise SpaceError(f"{name}: expected true or false, got {value!r}.")
        return str(value).lower() == "true"
    wanted = get_type_hints(Recipe)[name]
    if wanted in (int, float) and not isinstance(value, (int, float)):
        raise SpaceError(f"{name}: expected numbers, got {value!r}.")
    if wanted is int and not float(value).is_integer():
        raise SpaceError(f"{name}: expected whole numbers, got {value!r}.")
    return wanted(value)


def _check_values(space: Space) -> None:
    """Both ends of every range and every value, now and not in trial 17."""
    try:
        for setting in _corners(space):
            space.method(setting)
            space.recipe(setting, Recipe(source=""))
    except (UnknownMethodError, RecipeError) as error:
        raise SpaceError(f"The space cannot be trained throughout. {error}") from None


def _corners(space: Space) -> Iterator[Setting]:
    middle = {each.name: each.ends[0] for each in space.parameters}
    for each in space.parameters:
        for value in each.ends:
            yield {**middle, each.name: value}
