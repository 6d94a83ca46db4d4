"""What needs no files: synthetic points, and the digits that come with scikit-learn."""

from zetamix.data.catalogue.spec import DatasetSpec

NOISE_NOTE = "Gaussian noise of standard deviation 0.1; test is a second draw"


def _synthetic(
    name: str,
    title: str,
    dimension: int,
    classes: tuple[str, ...],
    sizes: dict[str, int],
    *notes: str,
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        title=title,
        group="synthetic",
        classes=classes,
        shape=(dimension,),
        sizes=sizes,
        licence="drawn from a seed",
        reader="",
        access="built in",
        split="drawn",
        notes=notes,
    )


FLAT = {"train": 512, "test": 512}
CURVED = {"train": 8_192}

MADE = (
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
        where="https://archive.ics.uci.edu/dataset/80",
        split="made",
        notes=("real handwriting, for trying things out without a download; not in the paper",),
    ),
    _synthetic("crescents", "Crescents", 2, ("upper", "lower"), FLAT, NOISE_NOTE),
    _synthetic("spirals", "Spirals", 2, ("first", "second"), FLAT, NOISE_NOTE),
    _synthetic(
        "helix", "1-D helix in R³", 3, ("helix",), CURVED, "M5a_Helix1d of scikit-dimension"
    ),
    _synthetic(
        "helix12",
        "1-D helix in R¹²",
        12,
        ("helix",),
        CURVED,
        "M5a_Helix1d of scikit-dimension, in the first three of twelve axes",
    ),
    _synthetic(
        "paraboloid",
        "3-D paraboloid in R¹²",
        12,
        ("paraboloid",),
        CURVED,
        "Mp1_Paraboloid of scikit-dimension: where the paper speaks of a 3-D manifold in R¹²",
    ),
)
