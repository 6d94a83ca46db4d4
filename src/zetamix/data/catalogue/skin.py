"""Skin lesions: the ten datasets of the paper, with the class mapping of each."""

from collections.abc import Mapping

from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile
from zetamix.data.image_files import Fit

# the paper's class names, in the order of its text
BCC, NEVUS, MELANOMA, SK, OTHERS = (
    "basal cell carcinoma",
    "nevus",
    "melanoma",
    "seborrheic keratosis",
    "others",
)
FIVE = (BCC, NEVUS, MELANOMA, SK, OTHERS)

LESION_256 = Fit(
    256,
    crop=0.8,
    why='the paper: "a square center-crop of the image with edge length equal to '
    '0.8*min(height, width)", then resized to 256 × 256',
)

S3 = "https://isic-challenge-data.s3.amazonaws.com"
MADE = (
    "the paper's seed is not known: a 70:10:20 split of ours, by image like the paper's, has its "
    "sizes, not its images"
)

# the training split of ISIC 2018 is HAM10000, which has a source of its own
HAM10000 = {
    "ISIC2018_Task3_Training_Input": ("HAM10000_images_part_1", "HAM10000_images_part_2"),
    "ISIC2018_Task3_Training_GroundTruth": ("HAM10000_metadata", "HAM10000_metadata.csv"),
}

# what the columns of the label files stand for
ISIC2018_CLASSES: Mapping[str, str] = {
    "NV": NEVUS,
    "MEL": MELANOMA,
    "BCC": BCC,
    "BKL": SK,
    "AKIEC": OTHERS,
    "DF": OTHERS,
    "VASC": OTHERS,
}
DERMOFIT_CLASSES: Mapping[str, str] = {
    "BCC": BCC,
    "ML": NEVUS,
    "MEL": MELANOMA,
    "SK": SK,
    "AK": OTHERS,
    "SCC": OTHERS,
    "IEC": OTHERS,
    "PYO": OTHERS,
    "VASC": OTHERS,
    "DF": OTHERS,
}
DERM7PT_CLASSES: Mapping[str, str] = {
    "basal cell carcinoma": BCC,
    "clark nevus": NEVUS,
    "reed or spitz nevus": NEVUS,
    "dermal nevus": NEVUS,
    "blue nevus": NEVUS,
    "congenital nevus": NEVUS,
    "combined nevus": NEVUS,
    "recurrent nevus": NEVUS,
    "melanoma (less than 0.76 mm)": MELANOMA,
    "melanoma (in situ)": MELANOMA,
    "melanoma (0.76 to 1.5 mm)": MELANOMA,
    "melanoma (more than 1.5 mm)": MELANOMA,
    "melanoma metastasis": MELANOMA,
    "melanoma": MELANOMA,
    "vascular lesion": OTHERS,
    "lentigo": OTHERS,
    "dermatofibroma": OTHERS,
    "melanosis": OTHERS,
    "miscellaneous": OTHERS,
    "seborrheic keratosis": SK,
}


def _zip(year: int, name: str, *, needed: bool = True) -> RemoteFile:
    return RemoteFile(
        f"{name}.zip",
        makes=name,
        urls=(f"{S3}/{year}/{name}.zip",),
        needed=needed,
        instead=HAM10000.get(name, ()),
    )


def _csv(year: int, name: str) -> RemoteFile:
    return RemoteFile(f"{name}.csv", urls=(f"{S3}/{year}/{name}.csv",))


ISIC2016 = DatasetSpec(
    name="isic2016",
    title="ISIC 2016",
    group="skin",
    classes=("benign", "malignant"),
    shape=(3, 256, 256),
    sizes={"train": 900, "test": 379},
    counts={"train": (727, 173), "test": (304, 75)},
    licence="CC0",
    where="https://challenge.isic-archive.com/data/#2016",
    reader="isic2016",
    paper_images=1_279,
    archives=(
        _zip(2016, "ISBI2016_ISIC_Part3_Training_Data"),
        _csv(2016, "ISBI2016_ISIC_Part3_Training_GroundTruth"),
        _zip(2016, "ISBI2016_ISIC_Part3_Test_Data"),
        _csv(2016, "ISBI2016_ISIC_Part3_Test_GroundTruth"),
    ),
    fit=LESION_256,
)

ISIC2017 = DatasetSpec(
    name="isic2017",
    title="ISIC 2017",
    group="skin",
    classes=(NEVUS, MELANOMA, SK),
    shape=(3, 256, 256),
    sizes={"train": 2_000, "val": 150, "test": 600},
    counts={"train": (1372, 374, 254), "val": (78, 30, 42), "test": (393, 117, 90)},
    licence="CC0",
    where="https://challenge.isic-archive.com/data/#2017",
    reader="isic2017",
    paper_images=2_750,
    archives=tuple(
        archive
        for part in ("Training", "Validation", "Test_v2")
        for archive in (
            _zip(2017, f"ISIC-2017_{part}_Data"),
            _csv(2017, f"ISIC-2017_{part}_Part3_GroundTruth"),
        )
    ),
    fit=LESION_256,
)

ISIC2018 = DatasetSpec(
    name="isic2018",
    title="ISIC 2018",
    group="skin",
    classes=FIVE,
    shape=(3, 256, 256),
    sizes={"train": 10_015, "val": 193, "test": 1_512},
    counts={
        "train": (514, 6705, 1113, 1099, 584),
        "val": (15, 123, 21, 22, 12),
        "test": (93, 909, 171, 217, 122),
    },
    licence="CC BY-NC 4.0",
    where="https://challenge.isic-archive.com/data/#2018",
    reader="isic2018",
    paper_images=10_015,
    archives=tuple(
        _zip(2018, f"ISIC2018_Task3_{part}_{kind}", needed=part != "Test")
        for part in ("Training", "Validation", "Test")
        for kind in ("Input", "GroundTruth")
    ),
    fit=LESION_256,
    reported="val",
    notes=(
        "the paper's numbers are multiples of 1/193: it reports on the official validation split",
        "7 official classes become the paper's 5: AKIEC, DF and VASC are others, BKL is "
        "seborrheic keratosis (our reading; the paper does not say)",
    ),
)

MSK = DatasetSpec(
    name="msk",
    title="MSK",
    group="skin",
    classes=(NEVUS, MELANOMA, SK, OTHERS),
    shape=(3, 256, 256),
    sizes={"train": 2_573, "val": 368, "test": 735},
    counts={"all": (2202, 826, 413, 235)},
    licence="per image",
    access="tool",
    where="https://www.isic-archive.com (isic-cli)",
    steps="isic image download --collections 289,290,288,287,286 {folder}",
    reader="isic_archive",
    paper_images=3_551,
    archives=(RemoteFile("metadata.csv"),),
    own_folder=True,
    fit=LESION_256,
    split="made",
    firm=False,
    notes=(
        "the paper's 3,551 images in 4 classes cannot be had from the archive's counts: we keep "
        "nevus, melanoma, seborrheic keratosis and all others, and drop the undiagnosed",
        MADE,
    ),
)

UDA = DatasetSpec(
    name="uda",
    title="UDA",
    group="skin",
    classes=(NEVUS, MELANOMA),
    shape=(3, 256, 256),
    sizes={"train": 420, "val": 61, "test": 120},
    counts={"all": (408, 193)},
    licence="CC0, per image",
    access="tool",
    where="https://www.isic-archive.com (isic-cli)",
    steps="isic image download --collections 292,291 {folder}",
    reader="isic_archive",
    paper_images=601,
    archives=(RemoteFile("metadata.csv"),),
    own_folder=True,
    fit=LESION_256,
    split="made",
    firm=False,
    notes=("only nevi and melanomas are kept: 601 images, as in the paper", MADE),
)

DERMOFIT = DatasetSpec(
    name="dermofit",
    title="DermoFit",
    group="skin",
    classes=FIVE,
    shape=(3, 256, 256),
    sizes={"train": 910, "val": 130, "test": 260},
    counts={"all": (239, 331, 76, 257, 397)},
    licence="signed, with a fee",
    access="request",
    where="https://licensing.edinburgh-innovations.ed.ac.uk/product/dermofit-image-library",
    steps="buy the licence, then put the folders of the ten classes (AK, BCC, DF, IEC, MEL, "
    "ML, PYO, SCC, SK, VASC), or their zip files, into {folder}",
    reader="dermofit",
    paper_images=1_300,
    archives=(
        *(RemoteFile(f"{code}.zip", makes=code, needed=False) for code in sorted(DERMOFIT_CLASSES)),
        RemoteFile("lesionlist.txt", needed=False),
    ),
    own_folder=True,
    fit=LESION_256,
    split="made",
    notes=(MADE,),
)


def _derm7pt(kind: str) -> DatasetSpec:
    return DatasetSpec(
        name=f"derm7pt_{kind}",
        title=f"derm7point, {kind}",
        group="skin",
        classes=FIVE,
        shape=(3, 256, 256),
        sizes={"train": 707, "val": 102, "test": 202},
        counts={"all": (42, 575, 252, 45, 97)},
        licence="academic research",
        access="request",
        where="https://derm.cs.sfu.ca",
        steps="ask for a login, then put release_v0.zip, or the folder release_v0, into {folder}",
        reader="derm7pt",
        paper_images=1_011,
        archives=(RemoteFile("release_v0.zip", makes="release_v0"),),
        folder="derm7pt",
        fit=LESION_256,
        split="made",
        notes=("the paper does not use the official split of 413, 203 and 395 cases", MADE),
    )


PH2 = DatasetSpec(
    name="ph2",
    title="PH²",
    group="skin",
    classes=(NEVUS, MELANOMA),
    shape=(3, 256, 256),
    sizes={"train": 140, "val": 20, "test": 40},
    counts={"all": (160, 40)},
    licence="research, teaching",
    access="request",
    where="https://www.fc.up.pt/addi/ph2%20database.html",
    steps="ask for PH2Dataset.rar, unpack it (unrar x, 7z x or bsdtar -xf), and put the "
    "folder PH2Dataset into {folder}",
    reader="ph2",
    paper_images=200,
    archives=(RemoteFile("PH2Dataset.zip", makes="PH2Dataset"),),
    fit=LESION_256,
    split="made",
    notes=("common and atypical nevi are one class", MADE),
)

MEDNODE = DatasetSpec(
    name="mednode",
    title="MED-NODE",
    group="skin",
    classes=(NEVUS, MELANOMA),
    shape=(3, 256, 256),
    sizes={"train": 119, "val": 17, "test": 34},
    counts={"all": (100, 70)},
    licence="none stated; cite",
    where="https://www.cs.rug.nl/~imaging/databases/melanoma_naevi/",
    reader="mednode",
    paper_images=170,
    archives=(
        RemoteFile(
            "complete_mednode_dataset.zip",
            makes="complete_mednode_dataset",
            urls=(
                "https://www.cs.rug.nl/~imaging/databases/melanoma_naevi/"
                "complete_mednode_dataset.zip",
            ),
        ),
    ),
    fit=LESION_256,
    split="made",
    notes=(MADE,),
)

SKIN = (
    ISIC2016,
    ISIC2017,
    ISIC2018,
    MSK,
    UDA,
    DERMOFIT,
    _derm7pt("clinical"),
    _derm7pt("dermoscopic"),
    PH2,
    MEDNODE,
)
