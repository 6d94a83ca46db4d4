"""Transforms inside other training stacks: one module per library, which it imports."""

from torch import nn

from zetamix._checks import check_number


def check_arguments(transform: object, kind: type[nn.Module], until: float | None) -> None:
    """Raise unless a callback or trainer was given a transform of this kind, and a share."""
    if until is not None:
        check_number("until", until, low=0, high=1)
    if not isinstance(transform, kind):
        raise TypeError(
            "transform must be one of zetamix.transforms, such as ZetaMix(num_classes=10), got "
            f"{type(transform).__name__}."
        )
