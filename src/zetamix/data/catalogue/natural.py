"""Natural images: MNIST, Fashion-MNIST, CIFAR, STL-10, Imagenette, Imagewoof."""

from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile
from zetamix.data.image_files import Fit

DIGITS = tuple("0123456789")

IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CIFAR100 = _split(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
)

# the classes of the two ImageNet subsets are folders, named by WordNet
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

SQUARE_224 = Fit(
    224,
    why='the paper: "resized to 224 × 224", with flips as the only other change: no crop, so the '
    "whole image is scaled and its aspect ratio is not kept",
)


def _idx_files(folder: str, mirrors: tuple[str, ...], md5s: str) -> tuple[RemoteFile, ...]:
    """The four compressed files of MNIST and its likes."""
    return tuple(
        RemoteFile(
            f"{folder}/raw/{name}.gz",
            unpacks_to=f"{folder}/raw/{name}",
            urls=tuple(f"{mirror}{name}.gz" for mirror in mirrors),
            md5=md5,
        )
        for name, md5 in zip(IDX, _split(md5s), strict=True)
    )


def _idx_checksums(folder: str, md5s: str) -> dict[str, str]:
    """Of the unpacked files: some distributors compress them anew."""
    return {f"{folder}/raw/{name}": md5 for name, md5 in zip(IDX, _split(md5s), strict=True)}


def _imagenet_subset(stem: str, md5: str) -> tuple[RemoteFile, ...]:
    url = f"https://s3.amazonaws.com/fast-ai-imageclas/{stem}.tgz"
    return (RemoteFile(f"{stem}.tgz", stem, (url,), md5),)


MNIST = DatasetSpec(
    name="mnist",
    title="MNIST",
    group="natural",
    classes=DIGITS,
    shape=(1, 28, 28),
    sizes={"train": 60_000, "test": 10_000},
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    licence="none stated",
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    reader="idx",
    notes=("the paper shows it in figures and does not train on it",),
    files=_idx_files(
        "MNIST",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
        "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
    ),
    checksums=_idx_checksums(
        "MNIST",
        "6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624 "
        "2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637",
    ),
)

FASHION_MNIST = DatasetSpec(
    name="fashion_mnist",
    title="Fashion-MNIST",
    group="natural",
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    shape=(1, 28, 28),
    sizes={"train": 60_000, "test": 10_000},
    counts={"train": (6000,) * 10, "test": (1000,) * 10},
    licence="MIT",
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    reader="idx",
    paper_images=60_000,
    notes=("the paper's 60,000 images are the training split only",),
    files=_idx_files(
        "FashionMNIST",
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
        "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
    ),
    checksums=_idx_checksums(
        "FashionMNIST",
        "f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9 "
        "8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965",
    ),
)

CIFAR10 = DatasetSpec(
    name="cifar10",
    title="CIFAR-10",
    group="natural",
    classes=_split("airplane automobile bird cat deer dog frog horse ship truck"),
    shape=(3, 32, 32),
    sizes={"train": 50_000, "test": 10_000},
    counts={"train": (5000,) * 10, "test": (1000,) * 10},
    licence="none stated; cite",
    url="https://www.cs.toronto.edu/~kriz/cifar.html",
    reader="cifar",
    paper_images=60_000,
    files=(
        RemoteFile(
            "cifar-10-python.tar.gz",
            unpacks_to="cifar-10-batches-py",
            urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            md5="c58f30108f718f92721af3b95e74349a",
        ),
    ),
    checksums={
        "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
        "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
        "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)

CIFAR_100 = DatasetSpec(
    name="cifar100",
    title="CIFAR-100",
    group="natural",
    classes=CIFAR100,
    shape=(3, 32, 32),
    sizes={"train": 50_000, "test": 10_000},
    counts={"train": (500,) * 100, "test": (100,) * 100},
    licence="none stated; cite",
    url="https://www.cs.toronto.edu/~kriz/cifar.html",
    reader="cifar",
    paper_images=60_000,
    files=(
        RemoteFile(
            "cifar-100-python.tar.gz",
            unpacks_to="cifar-100-python",
            urls=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            md5="eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
    checksums={
        "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
        "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "cifar-100-python/meta": "7973b15100ade9c7d40fb424638fde48",
    },
    notes=("the paper prints 10 classes; there are 100",),
)

STL10 = DatasetSpec(
    name="stl10",
    title="STL-10",
    group="natural",
    classes=_split("airplane bird car cat deer dog horse monkey ship truck"),
    shape=(3, 96, 96),
    sizes={"train": 5_000, "test": 8_000},
    counts={"train": (500,) * 10, "test": (800,) * 10},
    licence="none stated; cite",
    url="https://cs.stanford.edu/~acoates/stl10/",
    reader="stl10",
    paper_images=13_000,
    files=(
        RemoteFile(
            "stl10_binary.tar.gz",
            unpacks_to="stl10_binary",
            urls=("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
            md5="91f7769df0f17e558f3565bffb0c7dfb",
        ),
    ),
    checksums={
        "stl10_binary/train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
        "stl10_binary/train_y.bin": "5a34089d4802c674881badbb80307741",
        "stl10_binary/test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "stl10_binary/test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
    },
    notes=(
        "the download is 2.6 GB, most of it unlabelled images, which are not used and need not be "
        "there",
    ),
)

IMAGENETTE_SPEC = DatasetSpec(
    name="imagenette",
    title="Imagenette",
    group="natural",
    classes=tuple(IMAGENETTE.values()),
    shape=(3, 224, 224),
    sizes={"train": 9_469, "test": 3_925},
    counts={
        "train": (963, 955, 993, 858, 941, 956, 961, 931, 951, 960),
        "test": (387, 395, 357, 386, 409, 394, 389, 419, 399, 390),
    },
    licence="ImageNet's terms",
    url="https://github.com/fastai/imagenette",
    reader="imagenet_subset",
    paper_images=13_394,
    files=_imagenet_subset("imagenette2", "fe2fc210e6bb7c5664d602c3cd71e612"),
    fit=SQUARE_224,
)

IMAGEWOOF_SPEC = DatasetSpec(
    name="imagewoof",
    title="Imagewoof",
    group="natural",
    classes=tuple(IMAGEWOOF.values()),
    shape=(3, 224, 224),
    sizes={"train": 9_025, "test": 3_929},
    counts={
        "train": (941, 942, 932, 580, 949, 943, 949, 928, 921, 940),
        "test": (409, 408, 418, 224, 401, 407, 401, 422, 429, 410),
    },
    licence="ImageNet's terms",
    url="https://github.com/fastai/imagenette",
    reader="imagenet_subset",
    paper_images=12_954,
    files=_imagenet_subset("imagewoof2", "9aafe18bcdb1632c4249a76c458465ba"),
    fit=SQUARE_224,
)

NATURAL = (MNIST, FASHION_MNIST, CIFAR10, CIFAR_100, STL10, IMAGENETTE_SPEC, IMAGEWOOF_SPEC)
