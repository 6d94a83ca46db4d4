"""When to stop before the end: a time limit, or a signal from whoever runs the machine."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# seconds kept back from a time limit for the saving, beside the longest time between two questions,
# which is a step or an evaluation
MARGIN = 5.0
# a launcher such as torchrun passes the Ctrl-C on that its children have got already
SAME_PRESS = 1.0


def parse_duration(text: str) -> float:
    """Seconds of a duration.

    >>> parse_duration("9m"), parse_duration("1h30m"), parse_duration("45")
    (540.0, 5400.0, 45.0)
    """
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip().lower())
    if not match or not any(match.groups()):
        raise ValueError(f"Expected a duration such as 9m, 1h30m or 45s, got {text!r}.")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds


class Stopped(BaseException):
    """Work that has nothing to save was stopped in its middle; no `except Exception` may eat it."""


class Stop:
    """Says when to stop, and why; SIGTERM and Ctrl-C are heard while it is used as a context.

    Both wait for the end of a step, where everything can be saved. A second Ctrl-C does not.

    limit: seconds from `began` on, a time of `time.monotonic`; from now on by default.
    """

    def __init__(self, limit: float | None = None, began: float | None = None) -> None:
        self.began = time.monotonic() if began is None else began
        self.limit = limit
        self.signal: int | None = None
        """The signal that was heard."""
        self._heard = 0.0
        self._asked: float | None = None
        self._longest = 0.0
        self._before: dict[int, Any] = {}
        self._at_once = False

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._asked is not None:
            self._longest = max(self._longest, now - self._asked)
        self._asked = now
        return self.terminated or self.out_of_time

    @property
    def terminated(self) -> bool:
        return self.signal is not None

    @property
    def out_of_time(self) -> bool:
        return self.limit is not None and self._left(self.limit) < 0

    def _left(self, limit: float) -> float:
        # a short limit is not spent on its own margin
        margin = min(MARGIN + self._longest, limit / 4)
        return self.began + limit - margin - time.monotonic()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """For work that cannot be saved half done: a stop raises `Stopped` in its middle."""
        if not self._before:
            # nobody listens
            yield
            return
        # Windows has no alarms: there a limit is kept between two pieces of work only
        alarm = self.limit is not None and hasattr(signal, "SIGALRM")
        before = signal.getsignal(signal.SIGALRM) if alarm else None
        try:
            self._at_once = True
            if self.limit is not None and alarm:
                signal.signal(signal.SIGALRM, self._give_up)
                signal.setitimer(signal.ITIMER_REAL, max(0.001, self._left(self.limit)))
            yield
        finally:
            self._at_once = False
            if alarm:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        if self._at_once:
            raise Stopped

    def __enter__(self) -> "Stop":
        heard = (signal.SIGTERM, signal.SIGINT)
        self._before = {number: signal.signal(number, self._hear) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == self.signal == signal.SIGINT and now - self._heard > SAME_PRESS:
            raise KeyboardInterrupt
        self.signal, self._heard = number, now
        if self._at_once:
            raise Stopped
