"""Transforms in other training libraries: one module per library, which must be installed."""


def check_transform(transform: object) -> None:
    """Raise unless `transform` is one of the transforms of this library."""
    from zetamix.transforms import BatchMix

    if not isinstance(transform, BatchMix):
        raise TypeError(
            "transform must be one of ZetaMix, ZetaMixup, Mixup, CutMix and MixupOrCutMix, got "
            f"{type(transform).__name__}."
        )
