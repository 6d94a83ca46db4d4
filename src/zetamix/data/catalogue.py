"""The datasets that are known by name."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Spec:
    """What is known about a dataset before looking at it."""

    name: str
    title: str
    group: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    sizes: Mapping[str, int]
    licence: str


def _digits(count: int) -> tuple[str, ...]:
    return tuple(str(k) for k in range(count))


_SYNTHETIC = "made by zetamix"

CATALOGUE: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec(
            "digits",
            "Digits",
            "embedded",
            _digits(10),
            (1, 8, 8),
            {"train": 1257, "val": 180, "test": 360},
            "CC BY 4.0 (UCI)",
        ),
        Spec(
            "crescents",
            "Crescents",
            "synthetic",
            ("upper", "lower"),
            (2,),
            {"train": 512, "test": 512},
            _SYNTHETIC,
        ),
        Spec(
            "spirals",
            "Spirals",
            "synthetic",
            ("first", "second"),
            (2,),
            {"train": 512, "test": 512},
            _SYNTHETIC,
        ),
        Spec("helix", "Helix in R³", "synthetic", ("helix",), (3,), {"train": 8192}, _SYNTHETIC),
        Spec(
            "helix12", "Helix in R¹²", "synthetic", ("helix",), (12,), {"train": 8192}, _SYNTHETIC
        ),
        Spec(
            "paraboloid",
            "3-D paraboloid in R¹²",
            "synthetic",
            ("paraboloid",),
            (12,),
            {"train": 8192},
            _SYNTHETIC,
        ),
    )
}
