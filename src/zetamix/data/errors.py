"""What goes wrong with data, in sentences: which file and row, what was expected, what to do."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

# how many of many problems a message names
NAMED = 10


class DataError(ValueError):
    """Something about the given data is not as it has to be."""


class DatasetNotFoundError(DataError):
    """A dataset is not on this machine; the message says how to get it."""


Complain: TypeAlias = Callable[[Sequence[str]], None]
"""Called with what is wrong: `refuse` stops there, `check` keeps it and looks on."""


def refuse(problems: Sequence[str]) -> None:
    """Stop with all that is wrong; go on where nothing is.

    >>> refuse([])
    >>> refuse(["a.csv, row 2: no label.", "a.csv, row 5: no label."])
    Traceback (most recent call last):
    zetamix.data.errors.DataError: 2 things are wrong:
      a.csv, row 2: no label.
      a.csv, row 5: no label.
    """
    if problems:
        raise DataError(in_lines(problems))


def in_lines(problems: Sequence[str]) -> str:
    """One problem as it is; of several the first, each on its line, and how many there are."""
    if len(problems) == 1:
        return problems[0]
    lines = list(problems[:NAMED])
    if len(problems) > NAMED:
        lines.append(f"and {len(problems) - NAMED:,} more")
    return "\n  ".join([f"{len(problems):,} things are wrong:", *lines])
