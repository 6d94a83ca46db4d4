"""Transforms inside other training stacks: one module per library, which it imports."""

from torch import nn


def check_transform(transform: object, kind: type[nn.Module]) -> None:
    """Raise unless a transform of this kind was passed to a callback or trainer."""
    if not isinstance(transform, kind):
        raise TypeError(
            "transform must be one of zetamix.transforms, such as ZetaMix(num_classes=10), got "
            f"{type(transform).__name__}."
        )
