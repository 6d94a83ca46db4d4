"""What a user may have meant."""

import difflib
import os
from pathlib import Path

from zetamix.data.catalogue import CATALOGUE
from zetamix.text import near_names


def not_known(what: str) -> str:
    """The message for something that is neither a dataset nor a path, with the nearest of both."""
    path = Path(what).expanduser()
    near = near_names(what, CATALOGUE, limit=4)
    if len(path.parts) > 1:
        near = near_paths(path)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"{what!r} is neither a dataset that zetamix knows nor a file or folder here.{hint} "
        "`zetamix data list` shows all names."
    )


def known_as(what: str) -> str:
    """The name of the catalogue that is written this way but for case, - and _; or `what` itself.

    >>> known_as("Fashion-MNIST"), known_as("photos")
    ('fashion_mnist', 'photos')
    """
    # more than that, and a path that is not there would pass for a name
    key = what.lower().replace("-", "").replace("_", "")
    return next((name for name in CATALOGUE if name.replace("_", "") == key), what)


def near_paths(path: Path) -> list[str]:
    """Neighbours of a path that is not there, where its folder is."""
    folder = path.parent
    if not folder.is_dir():
        return []
    close = difflib.get_close_matches(path.name, os.listdir(folder), n=3, cutoff=0.7)
    return [str(folder / name) for name in close]
