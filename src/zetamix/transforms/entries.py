"""Errors that say which entry of a batch they are about: `entry 'age': ...`."""

from collections.abc import Mapping
from typing import Any

# what rules raise, and torch within them
NAMED_ERRORS = (TypeError, ValueError, RuntimeError)


def name_entry(error: Exception, name: object, hint: str = "") -> None:
    """Put the entry's name in front of an error's message; its type and traceback stay.

    Called on the way out of a nest, from the innermost entry on, it makes one path.

    >>> error = ValueError("too short.")
    >>> for name in (1, "targets"):
    ...     name_entry(error, name)
    >>> str(error)
    "entry 'targets'[1]: too short."
    """
    if len(error.args) != 1 or not isinstance(error.args[0], str):
        # not a message of ours: how its words are made is not known
        error.add_note(f"This is about entry {name!r} of the batch.")
        return
    text, inner = getattr(error, "about_entry", (error.args[0], ()))
    text, path = text + hint, (name, *inner)
    error.__dict__["about_entry"] = (text, path)
    first, *rest = (repr(each) for each in path)
    error.args = (f"entry {first}{''.join(f'[{each}]' for each in rest)}: {text}",)


def nested_hint(name: object, value: Mapping[str, Any], rule: object) -> str:
    """What to do where one rule was given for a dict of entries.

    >>> from zetamix.mix import Anchor
    >>> nested_hint("meta", {"id": None}, Anchor())
    " For a nested dict give nested rules, as in {'meta': {'id': Anchor()}}."
    """
    inside = ", ".join(f"{key!r}: {rule!r}" for key in list(value)[:1])
    more = ", ..." if len(value) > 1 else ""
    return f" For a nested dict give nested rules, as in {{{name!r}: {{{inside}{more}}}}}."


def path_to(leaf: object, batch: object) -> list[object]:
    """The names that lead to a leaf of a nest; none where the nest is that leaf.

    >>> path_to("c", {"a": 1, "b": (2, "c")})
    ['b', 1]
    """
    if not isinstance(batch, (Mapping, tuple, list)):
        return []
    for name, entry in batch.items() if isinstance(batch, Mapping) else enumerate(batch):
        inner = path_to(leaf, entry)
        if inner or entry is leaf:
            return [name, *inner]
    return []
