"""A space from the text that it is written as, checked throughout."""

import math
from collections.abc import Iterator

from zetamix.experiments.tune.parameter import WHOLE, Parameter, Value
from zetamix.experiments.tune.space import (
    NOT_SEARCHED,
    OF_METHOD,
    OF_RECIPE,
    Setting,
    Space,
    SpaceError,
)
from zetamix.methods import UnknownMethodError
from zetamix.text import did_you_mean
from zetamix.train.recipe import Recipe, RecipeError

# the sweep of the paper's appendix: 200 models over these
PAPER_SWEEP = "gamma=1..6,weight_decay=log:5e-5..1e-3"
PAPER_GRID = "gamma=1.8:5.0:0.2"

EXAMPLE = "gamma=1..6, weight_decay=log:5e-5..1e-3, gamma=1.8:5.0:0.2, sources=2|8|all or lr=0.05"


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


def _check_name(name: str) -> None:
    known = (*OF_METHOD, *OF_RECIPE)
    if name in known:
        return
    if name in NOT_SEARCHED:
        raise SpaceError(
            f"{name} cannot be searched: it changes what trials are compared by. Set it for all "
            f"with --set {name}=..., and search any of {', '.join(known)}."
        )
    hint = did_you_mean(name, known)
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
