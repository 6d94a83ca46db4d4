"""How commands end: errors, Ctrl-C, signals, `--time-limit` (`train/stop.py` is the condition)."""

import errno
import linecache
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from zetamix_lab.train.stop import Stop

# EX_TEMPFAIL of sysexits.h: a script can repeat the command until the status is 0
WORK_LEFT = 75
OURS = ("zetamix.", "zetamix_lab.", "paper.")
UNEXPECTED = "This is unexpected: please report it to the authors of zetamix, with the lines above."


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors of this package, of files and of a full GPU to stderr, and exit with 1.

    Any other error is raised with a request to report it. Ctrl-C exits with 130.
    """
    # `main` let it end the process at once; from now on displays and folders are cleaned up
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        # such an image raises an error with its name instead
        warnings.filterwarnings("ignore", r"Image size \(.*exceeds limit")
        try:
            yield
        except KeyboardInterrupt:
            text = "Interrupted. Rerun the same command; training resumes from the last checkpoint."
            print_error(text, style="yellow")
            raise typer.Exit(128 + signal.SIGINT) from None
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
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    ours = _in_package(frame)
    # by a `raise`, and not by a call such as int("x")
    raised = linecache.getline(frame.f_code.co_filename, line).strip().startswith("raise ")
    is_own_class = type(error).__module__.startswith(OURS)
    return is_own_class or (ours and raised and isinstance(error, ValueError))


def _in_package(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(OURS)


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning of this package as one line, any other with its category and place."""
    frame = sys._getframe(1)
    # Python calls this by a function of `warnings`
    while frame.f_back is not None and frame.f_globals.get("__name__") == "warnings":
        frame = frame.f_back
    text = (
        str(message)
        if _in_package(frame)
        else f"{category.__name__}: {message} ({filename}:{lineno})"
    )
    print_error(text, style="yellow")


def print_error(text: str, style: str = "red") -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)


def make_stop(time_limit: str | None, began: float, console: Console) -> "Stop":
    """The stop condition: a signal, or the time limit counted from `began` (`time.monotonic`).

    console: where the receipt of a signal is printed, before runs are saved.
    """
    from zetamix_lab.train.stop import Stop, parse_duration

    def acknowledge() -> None:
        text = "Stopping … Press Ctrl-C again to quit at once."
        try:
            console.print(text, highlight=False, soft_wrap=True)
        except RuntimeError:
            # the signal interrupted a write to the same stream
            os.write(2, f"\n{text}\n".encode())
        except (OSError, SystemExit):
            # the terminal is gone, at which rich exits
            return

    try:
        limit = None if time_limit is None else parse_duration(time_limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--time-limit") from None
    return Stop(limit, began=began, on_signal=acknowledge)


def stop_status(stop: "Stop") -> int:
    """The exit status: 128 plus the signal, as in shells (130 for Ctrl-C); 75 for a time limit."""
    return WORK_LEFT if stop.signal is None else 128 + stop.signal
