"""What goes wrong is told in a sentence; a traceback is for bugs."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Print what a user can mend as one line on standard error, and leave with status 1."""
    import torch

    from zetamix.data import DataError
    from zetamix.methods import UnknownMethodError
    from zetamix.models import UnknownModelError
    from zetamix.train.folder import FolderError
    from zetamix.train.recipe import RecipeError
    from zetamix.train.trainer import NonFiniteLossError

    mendable = (
        DataError,
        FolderError,
        NonFiniteLossError,
        RecipeError,
        UnknownMethodError,
        UnknownModelError,
    )
    try:
        yield
    except mendable as error:
        _say(str(error))
        raise typer.Exit(1) from None
    except torch.cuda.OutOfMemoryError as error:
        _say(
            "The GPU is out of memory. Train fewer runs side by side (--concurrent), or smaller "
            f"batches (--set batch_size=...). torch says: {str(error).splitlines()[0]}"
        )
        raise typer.Exit(1) from None


def _say(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(text, style="red", markup=False, highlight=False)
