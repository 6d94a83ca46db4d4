"""When to stop before the end: a time limit, or a signal from whoever runs the machine."""

import re
import signal
import time
from types import FrameType

# seconds kept back from a time limit for the last step, an evaluation and the saving
MARGIN = 5.0


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
    """Says when to stop, and why; SIGTERM is heard while it is used as a context.

    limit: seconds from now.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.began = time.monotonic()
        self.limit = limit
        self.terminated = False

    def __call__(self) -> bool:
        return self.terminated or self.out_of_time

    @property
    def out_of_time(self) -> bool:
        if self.limit is None:
            return False
        # a short limit is not spent on its own margin
        margin = min(MARGIN, self.limit / 4)
        return time.monotonic() - self.began > self.limit - margin

    def __enter__(self) -> "Stop":
        self._before = signal.signal(signal.SIGTERM, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
