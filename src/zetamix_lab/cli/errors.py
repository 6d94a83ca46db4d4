"""Errors of commands: a message if the user can act on it, else one line and a traceback file."""

import dis
import errno
import platform
import re
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TextIO

import typer
from rich.console import Console

from zetamix import __version__
from zetamix_lab.cli.stop import INTERRUPTED, raise_at_ctrl_c
from zetamix_lab.text import reason


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors of this package, of files and of a full GPU to stderr, and exit with 1.

    The traceback of any other error is written to a file. Ctrl-C exits with 130.
    """
    with raise_at_ctrl_c(), warnings.catch_warnings():
        warnings.showwarning = _print_warning
        # such an image raises an error with its name instead
        warnings.filterwarnings("ignore", r"Image size \(.*exceeds limit")
        try:
            yield
        except KeyboardInterrupt:
            print_error(
                "Interrupted. Rerun the same command; training resumes from the last checkpoint.",
                style="yellow",
            )
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("click", "typer"):
                raise
            print_error(_message(error) or _report(error))
            raise typer.Exit(1) from None


def _message(error: Exception) -> str | None:
    """The message to print; None for an unexpected error."""
    if _is_ours(error):
        return str(error)
    from zetamix_lab.train.concurrent_runs import describe_failure

    if (failure := describe_failure(error)) is not None:
        return failure
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = " Free some space, then rerun the same command to resume." if full else ""
        return f"Cannot use {error.filename}: {error.strerror}.{advice}"
    return None


def _is_ours(error: Exception) -> bool:
    """Whether the error is of a class of this package, or a ValueError that it raised itself."""
    if type(error).__module__.startswith(("zetamix.", "zetamix_lab.")):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and isinstance(error, ValueError) and _raised_here(last)


def _raised_here(place: TracebackType) -> bool:
    """Whether a `raise` in this package raised the error, and not a call such as int("x")."""
    instruction = place.tb_frame.f_code.co_code[place.tb_lasti]
    module = str(place.tb_frame.f_globals.get("__name__"))
    return (
        module.startswith(("zetamix.", "zetamix_lab."))
        and dis.opname[instruction] == "RAISE_VARARGS"
    )


def _report(error: Exception) -> str:
    """Write the traceback to a file; return the message that names it."""
    from importlib.metadata import version

    # not of the metadata, which a checkout on the path has none of
    versions = f"zetamix {__version__}, torch {version('torch')}"
    system = f"Python {platform.python_version()}, {platform.platform()}"
    command = shlex.join(["zetamix", *map(hide_urls, sys.argv[1:])])
    lines = hide_urls("".join(traceback.format_exception(error)))
    text = f"{versions}, {system}\n{command}\n{lines}"
    summary = hide_urls(f"{type(error).__name__}: {reason(error)}")
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="zetamix-error-",
            suffix=".txt",
            encoding="utf-8",
            errors="backslashreplace",
            delete=False,
        ) as file:
            file.write(text)
    except OSError:
        # a full disk, for example
        return f"{text}\nUnexpected error ({summary}). Please report it with the lines above."
    return (
        f"Unexpected error ({summary}). Please report it to the authors of zetamix, with the "
        f"traceback in {file.name}."
    )


def hide_urls(text: str) -> str:
    """The text without possible passwords: the rest of a line after :// or password=.

    >>> hide_urls("no connection to postgresql://ann:se @'cret@host/studies")
    'no connection to postgresql://***'
    """
    return re.sub(r"(?i)((?<=://)|(?<=password=)).*", "***", text)


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print warnings of this package as one line, and other warnings as Python does."""
    if category is UserWarning and {"zetamix", "zetamix_lab"} & {*Path(filename).parts}:
        print_error(str(message), style="yellow")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def print_error(text: str, style: str = "red") -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
