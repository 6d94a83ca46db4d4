"""Ctrl-C, SIGTERM, SIGHUP and `--time-limit` of commands; `train/stop.py` has the condition."""

import os
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from zetamix_lab.train.stop import Stop

# EX_TEMPFAIL of sysexits.h: a script can repeat the command until the status is 0
WORK_LEFT = 75


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
