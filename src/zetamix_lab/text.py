"""Pieces of text that messages and reports share."""

import difflib
import re
from collections.abc import Iterable, Sequence


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "class", "classes"), plural(1200, "image")
    ('1 class', '1,200 images')
    """
    return f"{count:,} {noun if count == 1 else plural_noun or f'{noun}s'}"


def join(items: Sequence[str], conjunction: str = "and") -> str:
    """A list as English text.

    >>> join(["a"]), join(["a", "b"], "or"), join(["a", "b", "c"])
    ('a', 'a or b', 'a, b and c')
    """
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"


def reason(error: BaseException) -> str:
    """The message of an error as part of a sentence; its type if it has no message.

    >>> reason(ValueError("Too short.")), reason(MemoryError())
    ('Too short', 'not enough memory')
    """
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    kind = "not enough memory" if isinstance(error, MemoryError) else type(error).__name__
    # the message of a KeyError is the key only
    text = f"there is no {text}" if isinstance(error, KeyError) else text.strip()
    return text.splitlines()[0].rstrip(".") if text else kind


def sentence_case(text: str) -> str:
    """The text with a capital first letter, unless it begins with a name such as zeta:2.8.

    >>> sentence_case("no mixing"), sentence_case("zeta:2.8 and no mixing")
    ('No mixing', 'zeta:2.8 and no mixing')
    """
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def printable(name: str) -> str:
    r"""The name of a file or class with what cannot be seen escaped.

    >>> [printable(name) for name in ("naïve", "bell\a", "caf\udce9", "gpj.\u202egnp")]
    ['naïve', 'bell\\x07', 'caf\\xe9', 'gpj.\\u202egnp']
    """
    # bytes that are not UTF-8, which Python reads as surrogates
    name = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:x}", name)
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in name
    )


def did_you_mean(name: str, choices: Iterable[str], limit: int = 1) -> str:
    """A suggestion to append to the message about an unknown name; empty if nothing is similar.

    >>> did_you_mean("naturel", ["natural", "skin"])
    ' Did you mean natural?'
    >>> did_you_mean("CIFAR-10", ["cifar10", "cifar100", "mnist"], limit=3)
    ' Did you mean cifar10 or cifar100?'
    """
    spelled = {_letters(choice): choice for choice in choices}
    key = _letters(name)
    starts = [choice for text, choice in spelled.items() if len(key) > 2 and text.startswith(key)]
    close = [spelled[text] for text in difflib.get_close_matches(key, spelled, limit, cutoff=0.7)]
    near = list(dict.fromkeys([*starts, *close]))[:limit]
    return f" Did you mean {join(near, 'or')}?" if near else ""


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
