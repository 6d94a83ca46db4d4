"""MedMNIST: the eight files that the paper used, and today's versions of three of them."""

from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile
from zetamix.data.splits import SPLITS

# name, title, channels, sizes of train, val and test, md5
TABLE = """
pathmnist PathMNIST 3 89996 10004 7180 a8b06965200029087d5bd730944a56c1
dermamnist DermaMNIST 3 7007 1003 2005 0744692d530f8e62ec473284d019b0c7
octmnist OCTMNIST 1 97477 10832 1000 c68d92d5b585d8d81f7112f81e2d0842
pneumoniamnist PneumoniaMNIST 1 4708 524 624 28209eda62fecd6e6a2d98b1501bb15f
breastmnist BreastMNIST 1 546 78 156 750601b1f35ba3300ea97c75c52ff8f6
organmnist_axial OrganMNIST-axial 1 34581 6491 17778 866b832ed4eeba67bfb9edee1d5544e6
organmnist_coronal OrganMNIST-coronal 1 13000 2392 8268 0afa5834fb105f7705a7d93372119a21
organmnist_sagittal OrganMNIST-sagittal 1 13940 2452 8829 e5c39f1af030238290b9557d9503af9d
organamnist OrganAMNIST 1 34561 6491 17778 68e3f8846a6bd62f0c9bf841c0d9eacc
organcmnist OrganCMNIST 1 12975 2392 8216 b9ceb9546e10131b32923c5bbeaea2b1
organsmnist OrganSMNIST 1 13932 2452 8827 9ab87b696fb54e2a387ebe992d6ed5f1
"""

CLASSES = {
    "pathmnist": "adipose/background/debris/lymphocytes/mucus/smooth muscle/normal colon mucosa/"
    "cancer-associated stroma/colorectal adenocarcinoma epithelium",
    "dermamnist": "actinic keratoses and intraepithelial carcinoma/basal cell carcinoma/"
    "benign keratosis-like lesions/dermatofibroma/melanoma/melanocytic nevi/vascular lesions",
    "octmnist": "choroidal neovascularization/diabetic macular edema/drusen/normal",
    "pneumoniamnist": "normal/pneumonia",
    "breastmnist": "malignant/normal, benign",
}
ORGANS = (
    "bladder/femur-left/femur-right/heart/kidney-left/kidney-right/liver/lung-left/lung-right/"
    "pancreas/spleen"
)
NOTES = {
    "dermamnist": "the paper prints 10,005 images; there are 10,015",
    "organmnist": "the v1 file that the paper used; later versions omit blank images",
    "organ": "today's file, without the blank images of the v1 file that the paper used",
}


def _spec(row: str) -> DatasetSpec:
    name, title, channels, *sizes, md5 = row.split()
    # records of Zenodo: version 1 for the files that the paper used, else the newest
    record = "https://zenodo.org/records/" + ("4269852" if "_" in name else "10519652")
    file = f"{name}.npz"
    return DatasetSpec(
        name=name,
        title=title.replace("-", " ") + (" (v1)" if "_" in name else ""),
        group="medmnist",
        classes=tuple(CLASSES.get(name, ORGANS).split("/")),
        shape=(int(channels), 28, 28),
        sizes=dict(zip(SPLITS, map(int, sizes), strict=True)),
        licence="CC BY-NC 4.0" if name == "dermamnist" else "CC BY 4.0",
        url=record,
        reader="medmnist",
        files=(RemoteFile(file, url=f"{record}/files/{file}?download=1", md5=md5),),
        notes=tuple(note for start, note in NOTES.items() if name.startswith(start))[:1],
    )


MEDMNIST = tuple(map(_spec, TABLE.split("\n")[1:-1]))
