"""How far something is: one event for reading, training and measuring."""

from typing import Protocol


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
