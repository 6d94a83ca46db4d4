"""What is searched: parameters of ζ-mixup and of the recipe, each with its values."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias, get_type_hints

from zetamix import methods
from zetamix.experiments.tune.parameter import Parameter, Value
from zetamix.methods import Method
from zetamix.train.recipe import Recipe

Setting: TypeAlias = dict[str, Value]
"""One value for each parameter."""

# how a search would compare what is not comparable: other lengths, other judges
NOT_SEARCHED = ("source", "epochs", "milestones", "select", "evaluate_every")
OF_RECIPE = tuple(f.name for f in dataclasses.fields(Recipe) if f.name not in NOT_SEARCHED)
OF_METHOD = tuple(methods.OPTIONS["zeta"])


class SpaceError(ValueError):
    """A space that cannot be searched; the message says what can."""


@dataclass(frozen=True)
class Space:
    """All parameters that are searched or set, in the order in which they were given.

    >>> from zetamix.experiments.tune import parse_space
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

        >>> from zetamix.experiments.tune import parse_space
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
