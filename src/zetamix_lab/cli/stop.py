"""Ctrl-C, SIGTERM, SIGHUP and `--time-limit` of commands; `train/stop.py` has the condition."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

# `end_at_ctrl_c` comes before all imports that take time, those of typer and rich too
if TYPE_CHECKING:
    from rich.console import Console

    from zetamix_lab.train.stop import Stop

# EX_TEMPFAIL of sysexits.h: a script can repeat the command until the status is 0
WORK_LEFT = 75
INTERRUPTED = 130


def end_at_ctrl_c() -> None:
    """End the process at once, without a traceback: during imports there is nothing to save.

    If SIGINT is ignored, as in background jobs, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def raise_at_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt, so that displays and temporary folders are cleaned up."""
    ends = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ends:
            # a command imports more modules after its first checks
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def make_stop(time_limit: str | None, began: float, console: "Console") -> "Stop":
    """The stop condition: a signal, or the time limit counted from `began` (`time.monotonic`).

    console: where the receipt of a signal is printed, before runs are saved.
    """
    import typer

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


def exit_stopped(console: "Console", stop: "Stop", start_up: float, saved: str) -> NoReturn:
    """Print why a command stopped early, and exit with `stop_status`.

    start_up: the seconds before anything was trained. saved: "Everything is".
    """
    import typer

    text = stop.reason
    if not stop.signal and stop.limit is not None and start_up >= 0.8 * stop.limit:
        text += (
            f" Start-up took {start_up:.1f} s of the {stop.limit:g} s: use a longer --time-limit."
        )
    text += f" {saved} saved. Rerun the same command to resume."
    console.print(text, highlight=False, soft_wrap=True)
    raise typer.Exit(stop_status(stop))


def stop_status(stop: "Stop") -> int:
    """The exit status: 128 plus the signal, as in shells (130 for Ctrl-C); 75 for a time limit."""
    return WORK_LEFT if stop.signal is None else 128 + stop.signal
