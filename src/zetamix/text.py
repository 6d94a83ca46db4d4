"""Words that everything which talks to people shares."""

import difflib
from collections.abc import Iterable


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "class", "classes"), counted(1200, "image")
    ('1 class', '1,200 images')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """A question to put behind a message about a word that is not known; empty where none is near.

    >>> did_you_mean("naturel", ["natural", "skin"])
    ' Did you mean natural?'
    """
    near = difflib.get_close_matches(word, list(known), n=most)
    return f" Did you mean {' or '.join(near)}?" if near else ""
