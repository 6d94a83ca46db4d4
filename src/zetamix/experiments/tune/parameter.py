"""One thing that is searched: a range to draw from, or the values to choose from."""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias, get_type_hints

from zetamix.train.recipe import Recipe

Value: TypeAlias = float | int | str

WHOLE = ("sources", *(n for n, kind in get_type_hints(Recipe).items() if kind is int))

# digits that are kept of a drawn number: a training run does not feel the fifth
DIGITS = 4


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

        >>> Parameter("gamma", "1..6", low=1.0, high=6.0).share(2.0, 3.0)
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
