"""Errors of commands: a message if the user can act on it, else a traceback and what to do."""

import dis
import errno
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from zetamix_lab.cli.stop import INTERRUPTED, raise_at_ctrl_c

OURS = ("zetamix.", "zetamix_lab.", "paper.")
UNEXPECTED = "This is unexpected: please report it to the authors of zetamix, with the lines above."


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors of this package, of files and of a full GPU to stderr, and exit with 1.

    Any other error is raised with a request to report it. Ctrl-C exits with 130.
    """
    with raise_at_ctrl_c(), warnings.catch_warnings():
        warnings.showwarning = _print_warning
        # such an image raises an error with its name instead
        warnings.filterwarnings("ignore", r"Image size \(.*exceeds limit")
        try:
            yield
        except KeyboardInterrupt:
            text = "Interrupted. Rerun the same command; training resumes from the last checkpoint."
            print_error(text, style="yellow")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("click", "typer"):
                raise
            message = _message(error)
            if message is None:
                error.add_note(UNEXPECTED)
                raise
            print_error(message)
            raise typer.Exit(1) from None


def _message(error: Exception) -> str | None:
    """The message to print; None for an unexpected error."""
    if _is_ours(error):
        return str(error)
    from zetamix_lab.train.run import describe_failure

    if (failure := describe_failure(error)) is not None:
        return failure
    if isinstance(error, OSError) and error.errno is not None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = " Free some space, then rerun the same command to resume." if full else ""
        return f"Cannot use {error.filename or 'a file'}: {error.strerror}.{advice}"
    return None


def _is_ours(error: Exception) -> bool:
    """Whether the error is of a class of this package, or a ValueError that it raised itself."""
    if type(error).__module__.startswith(OURS):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not str(last.tb_frame.f_globals.get("__name__")).startswith(OURS):
        return False
    # by a `raise`, and not by a call such as int("x")
    raised = dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    return isinstance(error, ValueError) and raised


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print warnings of this package as one line, and other warnings as Python does."""
    if category is UserWarning and {"zetamix", "zetamix_lab"} & {*Path(filename).parts}:
        print_error(str(message), style="yellow")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def print_error(text: str, style: str = "red") -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
