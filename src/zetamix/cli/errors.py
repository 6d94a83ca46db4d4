"""Errors that a user can act on are printed as one sentence; a traceback means a bug."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer
from rich.console import Console

if TYPE_CHECKING:
    from zetamix.train.stop import Stop


WORK_LEFT = 75


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors of this package, a full GPU and refused files on stderr, and exit with 1."""
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        try:
            yield
        except Exception as error:
            message = _message(error)
            if message is None:
                raise
            print_error(message)
            raise typer.Exit(1) from None


def exit_stopped(console: Console, stop: "Stop", hint: str = "") -> None:
    """Say why a command stopped before its work was done, and exit with `stop_status`."""
    console.print(
        f"{stop.reason}{hint} Everything is saved. Rerun the same command to resume.",
        highlight=False,
        soft_wrap=True,
    )
    raise typer.Exit(stop_status(stop))


def stop_status(stop: "Stop") -> int:
    """As shells do, 130 for Ctrl-C and 143 for SIGTERM; 75 where a time limit left work to do.

    75 is EX_TEMPFAIL of sysexits.h, "retry later": a script can repeat the command until it is 0.
    """
    return WORK_LEFT if stop.signal is None else 128 + stop.signal


def _message(error: Exception) -> str | None:
    """The sentence to print; None for a bug."""
    from zetamix.train.concurrent_runs import RunFailure

    failure = RunFailure.from_error(error)
    if failure is not None:
        return failure.message
    if _is_ours(error):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        prefix = "" if error.filename is None else f"Cannot use {error.filename}: "
        return f"{prefix}{error.strerror}."
    return None


def _is_ours(error: Exception) -> bool:
    """Whether the error is of a class of this package, or a ValueError that it raised itself."""
    if type(error).__module__.startswith("zetamix."):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not isinstance(error, ValueError):
        return False
    return str(last.tb_frame.f_globals.get("__name__")).startswith("zetamix.")


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings of this package without their line of code, those of others as they are."""
    if category is UserWarning and "zetamix" in Path(filename).parts:
        print_error(str(message), style="yellow")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def print_error(text: str, style: str = "red") -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
