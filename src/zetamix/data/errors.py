"""What goes wrong with data, in sentences: which file and row, what was expected, what to do."""


class DataError(ValueError):
    """Something about the given data is not as it has to be."""


class NotHereError(DataError):
    """A dataset is not on this machine; the message says how to get it."""
