"""What goes wrong is told in a sentence; a traceback is for bugs."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Print what a user can mend as one line on standard error, and leave with status 1.

    That is: our own errors, which are sentences, a GPU that is full, and files that the system
    does not let us read or write.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _note
        try:
            yield
        except Exception as error:
            text = _sentence(error)
            if text is None:
                raise
            _say(text)
            raise typer.Exit(1) from None


def _sentence(error: Exception) -> str | None:
    """What to tell; None for a bug."""
    import torch

    # what goes wrong while a graph is captured comes with a second error, of the capture's end
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.cuda.OutOfMemoryError):
            return (
                "The GPU is out of memory. Train fewer runs side by side (--concurrent), or "
                "smaller batches (--set batch_size=...). torch says: " + str(cause).splitlines()[0]
            )
        cause = cause.__context__
    if _ours(error):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        what = "" if error.filename is None else f"Cannot use {error.filename}: "
        return f"{what}{error.strerror}."
    return None


def _ours(error: Exception) -> bool:
    """Whether the error is of a class of this package, or a ValueError that it raised itself."""
    if type(error).__module__.startswith("zetamix."):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not isinstance(error, ValueError):
        return False
    return str(last.tb_frame.f_globals.get("__name__")).startswith("zetamix.")


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of ours without the line of code it comes from; those of others as they are."""
    if category is UserWarning and "zetamix" in Path(filename).parts:
        _say(str(message), style="yellow")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def _say(text: str, style: str = "red") -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
