"""Skin lesions: the ten datasets of the paper, with the class mapping of each."""

from collections.abc import Mapping
from typing import Any

from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile
from zetamix.data.image_files import Fit

# the paper's class names, in the order of its text
FIVE = BCC, NEVUS, MELANOMA, SK, OTHERS = (
    "basal cell carcinoma",
    "nevus",
    "melanoma",
    "seborrheic keratosis",
    "others",
)

LESION_256 = Fit(
    256,
    crop=0.8,
    why='the paper: "a square center-crop of the image with edge length equal to '
    '0.8*min(height, width)", then resized to 256 × 256',
)

S3 = "https://isic-challenge-data.s3.amazonaws.com"
MADE = (
    "the paper's seed is unknown: this 70/10/20 split by image has the sizes of the paper's, but "
    "not the same images"
)


def _mapping(**values: str) -> Mapping[str, str]:
    """Comma-separated values of a label file, by class."""
    names = {"bcc": BCC, "nevus": NEVUS, "melanoma": MELANOMA, "sk": SK, "others": OTHERS}
    return {value: names[name] for name in values for value in values[name].split(",")}


ISIC2018_CLASSES = _mapping(nevus="nv", melanoma="mel", bcc="bcc", sk="bkl", others="akiec,df,vasc")
DERMOFIT_CLASSES = _mapping(
    bcc="BCC", nevus="ML", melanoma="MEL", sk="SK", others="AK,SCC,IEC,PYO,VASC,DF"
)
DERM7PT_CLASSES = _mapping(
    bcc="basal cell carcinoma",
    nevus="clark nevus,reed or spitz nevus,dermal nevus,blue nevus,congenital nevus,combined nevus,"
    "recurrent nevus",
    melanoma="melanoma (less than 0.76 mm),melanoma (in situ),melanoma (0.76 to 1.5 mm),"
    "melanoma (more than 1.5 mm),melanoma metastasis,melanoma",
    others="vascular lesion,lentigo,dermatofibroma,melanosis,miscellaneous",
    sk="seborrheic keratosis",
)


def _skin(**fields: Any) -> DatasetSpec:
    return DatasetSpec(group="skin", shape=(3, 256, 256), fit=LESION_256, **fields)


def _zip(year: int, name: str, *, required: bool = True) -> RemoteFile:
    return RemoteFile(f"{name}.zip", name, f"{S3}/{year}/{name}.zip", required=required)


def _csv(year: int, name: str) -> RemoteFile:
    return RemoteFile(f"{name}.csv", url=f"{S3}/{year}/{name}.csv")


def _isic_archive(collections: str, **fields: Any) -> DatasetSpec:
    return _skin(
        access="tool",
        url="https://www.isic-archive.com (isic-cli)",
        steps=f"isic image download --collections {collections} {{folder}}",
        reader="isic_archive",
        files=(RemoteFile("metadata.csv"),),
        split="made",
        fixed_size=False,
        **fields,
    )


def _derm7pt(kind: str) -> DatasetSpec:
    return _skin(
        name=f"derm7pt_{kind}",
        title=f"derm7point, {kind}",
        classes=FIVE,
        sizes={"train": 707, "val": 102, "test": 202},
        counts={"all": (42, 575, 252, 45, 97)},
        licence="academic research",
        access="request",
        url="https://derm.cs.sfu.ca",
        steps="ask for a login, then put release_v0.zip, or the folder release_v0, into {folder}",
        reader="derm7pt",
        files=(RemoteFile("release_v0.zip", "release_v0"),),
        folder="derm7pt",
        split="made",
        notes=("the paper does not use the official split of 413, 203 and 395 cases", MADE),
    )


SKIN = (
    _skin(
        name="isic2016",
        title="ISIC 2016",
        classes=("benign", "malignant"),
        sizes={"train": 900, "test": 379},
        counts={"train": (727, 173), "test": (304, 75)},
        licence="CC0",
        url="https://challenge.isic-archive.com/data/#2016",
        reader="isic2016",
        files=tuple(
            file
            for part in ("Training", "Test")
            for file in (
                _zip(2016, f"ISBI2016_ISIC_Part3_{part}_Data"),
                _csv(2016, f"ISBI2016_ISIC_Part3_{part}_GroundTruth"),
            )
        ),
    ),
    _skin(
        name="isic2017",
        title="ISIC 2017",
        classes=(NEVUS, MELANOMA, SK),
        sizes={"train": 2_000, "val": 150, "test": 600},
        counts={"train": (1372, 374, 254), "val": (78, 30, 42), "test": (393, 117, 90)},
        licence="CC0",
        url="https://challenge.isic-archive.com/data/#2017",
        reader="isic2017",
        files=tuple(
            file
            for part in ("Training", "Validation", "Test_v2")
            for file in (
                _zip(2017, f"ISIC-2017_{part}_Data"),
                _csv(2017, f"ISIC-2017_{part}_Part3_GroundTruth"),
            )
        ),
    ),
    _skin(
        name="isic2018",
        title="ISIC 2018",
        classes=FIVE,
        sizes={"train": 10_015, "val": 193, "test": 1_512},
        counts={
            "train": (514, 6705, 1113, 1099, 584),
            "val": (15, 123, 21, 22, 12),
            "test": (93, 909, 171, 217, 122),
        },
        licence="CC BY-NC 4.0",
        url="https://challenge.isic-archive.com/data/#2018",
        reader="isic2018",
        files=tuple(
            _zip(2018, f"ISIC2018_Task3_{part}_{kind}", required=part != "Test")
            for part in ("Training", "Validation", "Test")
            for kind in ("Input", "GroundTruth")
        ),
        reported="val",
        notes=(
            "the paper's numbers are multiples of 1/193: it reports on the official validation "
            "split",
            "7 official classes become the paper's 5: AKIEC, DF and VASC are others, BKL is "
            "seborrheic keratosis (an assumption; the paper does not say)",
        ),
    ),
    _isic_archive(
        "289,290,288,287,286",
        name="msk",
        title="MSK",
        classes=(NEVUS, MELANOMA, SK, OTHERS),
        sizes={"train": 2_573, "val": 368, "test": 735},
        counts={"all": (2202, 826, 413, 235)},
        licence="per image",
        notes=(
            "the archive's counts do not give the paper's 3,551 images in 4 classes: nevus, "
            "melanoma, seborrheic keratosis and all others are kept, undiagnosed images dropped",
            MADE,
        ),
    ),
    _isic_archive(
        "292,291",
        name="uda",
        title="UDA",
        classes=(NEVUS, MELANOMA),
        sizes={"train": 420, "val": 61, "test": 120},
        counts={"all": (408, 193)},
        licence="CC0, per image",
        notes=("only nevi and melanomas are kept: 601 images, as in the paper", MADE),
    ),
    _skin(
        name="dermofit",
        title="DermoFit",
        classes=FIVE,
        sizes={"train": 910, "val": 130, "test": 260},
        counts={"all": (239, 331, 76, 257, 397)},
        licence="signed, with a fee",
        access="request",
        url="https://licensing.edinburgh-innovations.ed.ac.uk/product/dermofit-image-library",
        steps="buy the licence, then put the folders of the ten classes (AK, BCC, DF, IEC, MEL, "
        "ML, PYO, SCC, SK, VASC), or their zip files, into {folder}",
        reader="dermofit",
        files=tuple(RemoteFile(f"{code}.zip", code) for code in sorted(DERMOFIT_CLASSES)),
        split="made",
        notes=(MADE,),
    ),
    _derm7pt("clinical"),
    _derm7pt("dermoscopic"),
    _skin(
        name="ph2",
        title="PH²",
        classes=(NEVUS, MELANOMA),
        sizes={"train": 140, "val": 20, "test": 40},
        counts={"all": (160, 40)},
        licence="research, teaching",
        access="request",
        url="https://www.fc.up.pt/addi/ph2%20database.html",
        steps="ask for PH2Dataset.rar, unpack it (unrar x, 7z x or bsdtar -xf), and put the "
        "folder PH2Dataset into {folder}",
        reader="ph2",
        files=(RemoteFile("PH2Dataset.zip", "PH2Dataset"),),
        split="made",
        notes=("common and atypical nevi are one class", MADE),
    ),
    _skin(
        name="mednode",
        title="MED-NODE",
        classes=(NEVUS, MELANOMA),
        sizes={"train": 119, "val": 17, "test": 34},
        counts={"all": (100, 70)},
        licence="none stated; cite",
        url="https://www.cs.rug.nl/~imaging/databases/melanoma_naevi/",
        reader="mednode",
        files=(
            RemoteFile(
                "complete_mednode_dataset.zip",
                "complete_mednode_dataset",
                "https://www.cs.rug.nl/~imaging/databases/melanoma_naevi/"
                "complete_mednode_dataset.zip",
            ),
        ),
        split="made",
        notes=(MADE,),
    ),
)
