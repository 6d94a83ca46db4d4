"""Datasets without files: synthetic points, and the digits of scikit-learn."""

from zetamix.data.catalogue.spec import DatasetSpec

NOISE = "Gaussian noise of standard deviation 0.1; test is a second draw"
HELIX = "M5a_Helix1d of scikit-dimension"


def _synthetic(
    name: str, title: str, dimension: int, classes: tuple[str, ...], note: str
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        title=title,
        group="synthetic",
        classes=classes,
        shape=(dimension,),
        sizes={"train": 512, "test": 512} if len(classes) > 1 else {"train": 8_192},
        licence="drawn from a seed",
        reader="",
        access="built in",
        split="drawn",
        notes=(note,),
    )


SYNTHETIC = (
    DatasetSpec(
        name="digits",
        title="Digits of scikit-learn",
        group="embedded",
        classes=tuple("0123456789"),
        shape=(1, 8, 8),
        sizes={"train": 1_257, "val": 180, "test": 360},
        counts={"all": (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)},
        licence="CC BY 4.0",
        reader="digits",
        access="built in",
        url="https://archive.ics.uci.edu/dataset/80",
        split="made",
        notes=("real handwriting to try things out without a download; not in the paper",),
    ),
    _synthetic("crescents", "Crescents", 2, ("upper", "lower"), NOISE),
    _synthetic("spirals", "Spirals", 2, ("first", "second"), NOISE),
    _synthetic("helix", "1-D helix in R³", 3, ("helix",), HELIX),
    _synthetic(
        "helix12", "1-D helix in R¹²", 12, ("helix",), f"{HELIX}, in the first three of twelve axes"
    ),
    _synthetic(
        "paraboloid",
        "3-D paraboloid in R¹²",
        12,
        ("paraboloid",),
        "Mp1_Paraboloid of scikit-dimension, the paper's 3-D manifold in R¹²",
    ),
)
