"""Stop conditions of a command: a time limit, Ctrl-C, SIGTERM and a closed terminal (SIGHUP)."""

import math
import re
import signal
import time
from collections.abc import Callable
from typing import Any

# seconds of a time limit reserved for saving, in addition to the longest interval between two calls
# of the condition
MARGIN = 5.0
# seconds within which a second SIGINT is the same Ctrl-C, passed on by a launcher such as uv run
SAME_PRESS = 1.0
YEAR = 365 * 24 * 3600.0


def parse_duration(text: str) -> float:
    """A duration in seconds.

    >>> parse_duration("9m"), parse_duration("1h30m"), parse_duration("45")
    (540.0, 5400.0, 45.0)
    """
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip().lower())
    if not match or not any(match.groups()):
        raise ValueError(f"Expected a duration such as 9m, 1h30m or 45s, got {text!r}.")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if total > YEAR:
        raise ValueError(f"Expected a duration of at most a year, got {text[:40]!r}.")
    return total


class Stopped(BaseException):
    """Raised within an evaluation, which cannot be checkpointed.

    It derives from BaseException so that `except Exception` does not swallow it.
    """


class Stop:
    """A stop condition: call it between two pieces of work, and stop when it returns True.

    As a context manager it handles SIGTERM, SIGHUP and Ctrl-C, which then take effect at the end of
    a step. A second Ctrl-C raises KeyboardInterrupt.

    limit: seconds after `began`, by default from now on. None for no limit.
    on_signal: called once, when the first signal arrives.
    """

    def __init__(
        self,
        limit: float | None = None,
        began: float | None = None,
        on_signal: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit, self.on_signal = limit, on_signal
        self.began = time.monotonic() if began is None else began
        self.signal: int | None = None
        """The signal that was received."""
        self._signal_time = 0.0
        self._last_call: float | None = None
        self._longest_interval = 0.0
        self._old_handlers: dict[int, Any] = {}

    def __call__(self) -> bool:
        now = time.monotonic()
        self._longest_interval = max(self._longest_interval, now - (self._last_call or now))
        self._last_call = now
        return self.signal is not None or self._remaining() < 0

    @property
    def reason(self) -> str:
        """One sentence for the user."""
        return "The time limit is reached." if self.signal is None else "Stopped."

    def _remaining(self) -> float:
        """Seconds until work must stop."""
        if self.limit is None:
            return math.inf
        # the margin is at most a quarter of a short limit
        margin = min(MARGIN + self._longest_interval, self.limit / 4)
        return self.began + self.limit - margin - time.monotonic()

    def __enter__(self) -> "Stop":
        handled = [signal.SIGTERM, signal.SIGINT]
        # a command that was started with nohup ignores it, and Windows does not have it
        hangup = getattr(signal, "SIGHUP", None)
        if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
            handled.append(hangup)
        self._old_handlers = {number: signal.signal(number, self._on_signal) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        now = time.monotonic()
        if number == self.signal == signal.SIGINT and now - self._signal_time > SAME_PRESS:
            raise KeyboardInterrupt
        first, self.signal, self._signal_time = self.signal is None, number, now
        if first:
            self.on_signal()
