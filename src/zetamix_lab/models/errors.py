"""Errors about models."""


class UnknownModelError(ValueError):
    """An unknown model, or one that does not accept such samples."""


class WeightsError(ValueError):
    """A file that does not hold the weights of a model."""
