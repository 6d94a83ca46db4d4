"""Natural images: MNIST, Fashion-MNIST, CIFAR, STL-10, Imagenette, Imagewoof.

Addresses and checksums are torchvision's; a test compares them.
"""

from typing import Any

from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile
from zetamix.data.image_files import Fit

CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""

# the classes of the two ImageNet subsets are folders named by WordNet
IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}
IMAGEWOOF = {
    "n02086240": "Shih-Tzu",
    "n02087394": "Rhodesian ridgeback",
    "n02088364": "Beagle",
    "n02089973": "English foxhound",
    "n02093754": "Border terrier",
    "n02096294": "Australian terrier",
    "n02099601": "Golden retriever",
    "n02105641": "Old English sheepdog",
    "n02111889": "Samoyed",
    "n02115641": "Dingo",
}

IDX_KINDS = ("images-idx3", "labels-idx1")
SQUARE_224 = Fit(
    224,
    why='the paper: "resized to 224 × 224", with flips as the only other change: no crop, so the '
    "whole image is resized without keeping its aspect ratio",
)


def _idx(name: str, folder: str, mirror: str, md5s: str, **fields: Any) -> DatasetSpec:
    """MNIST or Fashion-MNIST; checksums are of the unpacked files, as distributors recompress."""
    files = [f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in IDX_KINDS]
    paths = [f"{folder}/raw/{file}" for file in files]
    return DatasetSpec(
        name=name,
        group="natural",
        shape=(1, 28, 28),
        sizes={"train": 60_000, "test": 10_000},
        url=mirror,
        reader="idx",
        files=tuple(
            RemoteFile(f"{path}.gz", path, f"{mirror}{file}.gz")
            for file, path in zip(files, paths, strict=True)
        ),
        checksums=dict(zip(paths, md5s.split(), strict=True)),
        **fields,
    )


def _binary(
    name: str, classes: str, archive: str, folder: str, checksums: dict[str, str], **fields: Any
) -> DatasetSpec:
    """CIFAR or STL-10: one archive with a folder of binary files."""
    return DatasetSpec(
        name=name,
        group="natural",
        classes=tuple(classes.split()),
        licence="none stated; cite",
        files=(RemoteFile(archive.rsplit("/", 1)[1], folder, archive),),
        checksums={f"{folder}/{file}": md5 for file, md5 in checksums.items()},
        **fields,
    )


def _imagenet_subset(
    name: str, wnids: dict[str, str], train: int, test: int, md5: str
) -> DatasetSpec:
    url = f"https://s3.amazonaws.com/fast-ai-imageclas/{name}2.tgz"
    return DatasetSpec(
        name=name,
        title=name.capitalize(),
        group="natural",
        classes=tuple(wnids.values()),
        shape=(3, 224, 224),
        sizes={"train": train, "test": test},
        licence="ImageNet's terms",
        url="https://github.com/fastai/imagenette",
        reader="imagenet_subset",
        files=(RemoteFile(f"{name}2.tgz", f"{name}2", url, md5),),
        fit=SQUARE_224,
    )


NATURAL = (
    _idx(
        "mnist",
        "MNIST",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624 "
        "2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637",
        title="MNIST",
        classes=tuple("0123456789"),
        licence="none stated",
        notes=("the paper shows it in figures and does not train on it",),
    ),
    _idx(
        "fashion_mnist",
        "FashionMNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9 "
        "8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965",
        title="Fashion-MNIST",
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        licence="MIT",
        notes=("the paper's 60,000 images are the training split only",),
    ),
    _binary(
        "cifar10",
        "airplane automobile bird cat deer dog frog horse ship truck",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        },
        title="CIFAR-10",
        shape=(3, 32, 32),
        sizes={"train": 50_000, "test": 10_000},
        url="https://www.cs.toronto.edu/~kriz/cifar.html",
        reader="cifar",
    ),
    _binary(
        "cifar100",
        CIFAR100,
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "cifar-100-python",
        {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        },
        title="CIFAR-100",
        shape=(3, 32, 32),
        sizes={"train": 50_000, "test": 10_000},
        url="https://www.cs.toronto.edu/~kriz/cifar.html",
        reader="cifar",
        notes=("the paper prints 10 classes; there are 100",),
    ),
    _binary(
        "stl10",
        "airplane bird car cat deer dog horse monkey ship truck",
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "stl10_binary",
        {
            "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
            "train_y.bin": "5a34089d4802c674881badbb80307741",
            "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
            "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
        },
        title="STL-10",
        shape=(3, 96, 96),
        sizes={"train": 5_000, "test": 8_000},
        url="https://cs.stanford.edu/~acoates/stl10/",
        reader="stl10",
        notes=("the download is 2.6 GB, mostly unlabelled images, which are not needed",),
    ),
    _imagenet_subset("imagenette", IMAGENETTE, 9_469, 3_925, "fe2fc210e6bb7c5664d602c3cd71e612"),
    _imagenet_subset("imagewoof", IMAGEWOOF, 9_025, 3_929, "9aafe18bcdb1632c4249a76c458465ba"),
)
