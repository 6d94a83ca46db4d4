"""When to stop before the end: a time limit, or a signal from whoever runs the machine."""

import re
import signal
import time
from types import FrameType

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
        if self.limit is None:
            return False
        # a short limit is not spent on its own margin
        margin = min(MARGIN + self._longest, self.limit / 4)
        return time.monotonic() - self.began > self.limit - margin

    def __enter__(self) -> "Stop":
        heard = (signal.SIGTERM, signal.SIGINT)
        self._before = {number: signal.signal(number, self._hear) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == self.signal == signal.SIGINT and now - self._heard > SAME_PRESS:
            raise KeyboardInterrupt
        self.signal, self._heard = number, now
