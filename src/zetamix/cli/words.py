"""Words that several commands share."""


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "epoch"), counted(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
