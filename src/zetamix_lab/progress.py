"""How far something is: one event for reading, training and measuring."""

from typing import Protocol

# the event about all runs together
RUNS = "runs"


class Progress(Protocol):
    """Called with what is done, how much of it, and the total (0 if unknown).

    text: what else is known, such as the loss.
    """

    def __call__(self, name: str, done: float, total: float, text: str = "", /) -> None: ...


def count_epochs(epochs: float, total: float) -> str:
    """Completed epochs, with the fraction of the current one.

    >>> count_epochs(12.44, 30)
    '12.4 of 30 epochs'
    """
    return f"{epochs:.1f} of {total:.0f} epochs"


def about(seconds: float) -> str:
    """A time as people say it.

    >>> about(3), about(42), about(200), about(9000)
    ('a few seconds', 'about 40 s', 'about 3 min', 'about 2.5 h')
    """
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {round(seconds, -1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
