"""Errors about data: which file and row, what was expected, what to do."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

# a message lists at most this many problems
MAX_LISTED = 10


class DataError(ValueError):
    """The given data is invalid; the message names the file and row."""


class DatasetNotFoundError(DataError):
    """A dataset is not on this machine; the message says how to get it."""


OnProblem: TypeAlias = Callable[[Sequence[str]], None]
"""Called with problems: `raise_problems` stops there, `check` collects them and continues."""


def raise_problems(problems: Sequence[str], title: str = "") -> None:
    """Raise one error for all problems, if there are any; it lists the first of them.

    title: a sentence about them; one problem needs none.

    >>> raise_problems([])
    >>> raise_problems(["a.csv, row 2: no label.", "a.csv, row 5: no label."])
    Traceback (most recent call last):
    zetamix_lab.data.errors.DataError: 2 problems:
      a.csv, row 2: no label.
      a.csv, row 5: no label.
    """
    if len(problems) == 1 and not title:
        raise DataError(problems[0])
    if problems:
        lines = list(problems[:MAX_LISTED])
        if len(problems) > MAX_LISTED:
            lines.append(f"and {len(problems) - MAX_LISTED:,} more")
        raise DataError("\n  ".join([title or f"{len(problems):,} problems:", *lines]))


def check_distinct(classes: Sequence[str], origin: str) -> None:
    """Raise if two classes have the same name.

    >>> check_distinct(["cat", "dog", "cat"], "pets")
    Traceback (most recent call last):
    zetamix_lab.data.errors.DataError: pets: two classes are named 'cat'; expected distinct names.
    """
    for name, count in Counter(classes).items():
        if count > 1:
            raise DataError(f"{origin}: two classes are named {name!r}; expected distinct names.")
