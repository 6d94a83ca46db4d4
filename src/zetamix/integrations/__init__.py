"""Transforms in other training libraries: one module per library, which must be installed."""

from torch import nn

from zetamix.checks import check_number


def check_arguments(transform: object, kind: type[nn.Module], until: float | None) -> None:
    """Raise unless `transform` is of the type `kind` and `until` is a fraction or None."""
    if until is not None:
        check_number("until", until, low=0, high=1)
    if not isinstance(transform, kind):
        raise TypeError(
            "transform must be one of ZetaMix, ZetaMixup, Mixup, CutMix and MixupOrCutMix, got "
            f"{type(transform).__name__}."
        )
