"""MedMNIST: the eight files that the paper used, and today's versions of three of them."""

from collections.abc import Mapping

from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile

ORGANS = tuple(
    [
        "bladder",
        "femur-left",
        "femur-right",
        "heart",
        "kidney-left",
        "kidney-right",
        "liver",
        "lung-left",
        "lung-right",
        "pancreas",
        "spleen",
    ]
)

# records of Zenodo: version 1, which the paper used, and the newest
FIRST, NEWEST = "4269852", "10519652"

V1_ORGANS = ("the v1 file that the paper used; later versions omit blank images",)
NEW_ORGANS = ("today's file, without the blank images of the v1 file that the paper used",)


def _medmnist(
    name: str,
    title: str,
    md5: str,
    classes: tuple[str, ...],
    sizes: tuple[int, int, int],
    *,
    channels: int = 1,
    counts: Mapping[str, tuple[int, ...]] | None = None,
    record: str = NEWEST,
    licence: str = "CC BY 4.0",
    paper_images: int | None = None,
    notes: tuple[str, ...] = (),
) -> DatasetSpec:
    link = f"https://zenodo.org/records/{record}/files/{name}.npz?download=1"
    return DatasetSpec(
        name=name,
        title=title,
        group="medmnist",
        classes=classes,
        shape=(channels, 28, 28),
        sizes=dict(zip(("train", "val", "test"), sizes, strict=True)),
        counts=counts or {},
        licence=licence,
        url=f"https://zenodo.org/records/{record}",
        reader="medmnist",
        files=(RemoteFile(f"{name}.npz", urls=(link,), md5=md5),),
        paper_images=paper_images,
        notes=notes,
    )


MEDMNIST = (
    _medmnist(
        "pathmnist",
        "PathMNIST",
        "a8b06965200029087d5bd730944a56c1",
        (
            "adipose",
            "background",
            "debris",
            "lymphocytes",
            "mucus",
            "smooth muscle",
            "normal colon mucosa",
            "cancer-associated stroma",
            "colorectal adenocarcinoma epithelium",
        ),
        (89_996, 10_004, 7_180),
        channels=3,
        counts={
            "train": (9366, 9509, 10360, 10401, 8006, 12182, 7886, 9401, 12885),
            "val": (1041, 1057, 1152, 1156, 890, 1354, 877, 1045, 1432),
            "test": (1338, 847, 339, 634, 1035, 592, 741, 421, 1233),
        },
        paper_images=107_180,
    ),
    _medmnist(
        "dermamnist",
        "DermaMNIST",
        "0744692d530f8e62ec473284d019b0c7",
        (
            "actinic keratoses and intraepithelial carcinoma",
            "basal cell carcinoma",
            "benign keratosis-like lesions",
            "dermatofibroma",
            "melanoma",
            "melanocytic nevi",
            "vascular lesions",
        ),
        (7_007, 1_003, 2_005),
        channels=3,
        counts={
            "train": (228, 359, 769, 80, 779, 4693, 99),
            "val": (33, 52, 110, 12, 111, 671, 14),
            "test": (66, 103, 220, 23, 223, 1341, 29),
        },
        licence="CC BY-NC 4.0",
        paper_images=10_005,
        notes=("the paper prints 10,005 images; there are 10,015",),
    ),
    _medmnist(
        "octmnist",
        "OCTMNIST",
        "c68d92d5b585d8d81f7112f81e2d0842",
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
        (97_477, 10_832, 1_000),
        counts={
            "train": (33484, 10213, 7754, 46026),
            "val": (3721, 1135, 862, 5114),
            "test": (250, 250, 250, 250),
        },
        paper_images=109_309,
    ),
    _medmnist(
        "pneumoniamnist",
        "PneumoniaMNIST",
        "28209eda62fecd6e6a2d98b1501bb15f",
        ("normal", "pneumonia"),
        (4_708, 524, 624),
        counts={"train": (1214, 3494), "val": (135, 389), "test": (234, 390)},
        paper_images=5_856,
    ),
    _medmnist(
        "breastmnist",
        "BreastMNIST",
        "750601b1f35ba3300ea97c75c52ff8f6",
        ("malignant", "normal, benign"),
        (546, 78, 156),
        counts={"train": (147, 399), "val": (21, 57), "test": (42, 114)},
        paper_images=780,
    ),
    _medmnist(
        "organmnist_axial",
        "OrganMNIST axial (v1)",
        "866b832ed4eeba67bfb9edee1d5544e6",
        ORGANS,
        (34_581, 6_491, 17_778),
        record=FIRST,
        paper_images=58_850,
        notes=V1_ORGANS,
    ),
    _medmnist(
        "organmnist_coronal",
        "OrganMNIST coronal (v1)",
        "0afa5834fb105f7705a7d93372119a21",
        ORGANS,
        (13_000, 2_392, 8_268),
        record=FIRST,
        paper_images=23_660,
        notes=V1_ORGANS,
    ),
    _medmnist(
        "organmnist_sagittal",
        "OrganMNIST sagittal (v1)",
        "e5c39f1af030238290b9557d9503af9d",
        ORGANS,
        (13_940, 2_452, 8_829),
        record=FIRST,
        paper_images=25_221,
        notes=V1_ORGANS,
    ),
    _medmnist(
        "organamnist",
        "OrganAMNIST",
        "68e3f8846a6bd62f0c9bf841c0d9eacc",
        ORGANS,
        (34_561, 6_491, 17_778),
        notes=NEW_ORGANS,
    ),
    _medmnist(
        "organcmnist",
        "OrganCMNIST",
        "b9ceb9546e10131b32923c5bbeaea2b1",
        ORGANS,
        (12_975, 2_392, 8_216),
        notes=NEW_ORGANS,
    ),
    _medmnist(
        "organsmnist",
        "OrganSMNIST",
        "9ab87b696fb54e2a387ebe992d6ed5f1",
        ORGANS,
        (13_932, 2_452, 8_827),
        notes=NEW_ORGANS,
    ),
)
