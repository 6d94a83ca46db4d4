"""The playground: a page that mixes a batch in the browser, with the user's own images.

`playground.html`, in the same folder, is the whole page, with handwritten digits. This module
replaces its images.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix.atomic_io import write_text
from zetamix.data import Dataset
from zetamix.text import plural, printable

PAGE = Path(__file__).with_name("playground.html")
DATA_BLOCK = re.compile(r'(<script type="application/json" id="data">).*?(</script>)', re.DOTALL)

# a page of 48 colour images of 64 × 64 pixels has 0.8 MB
LARGEST_SIDE = 64
MOST_IMAGES = 48
# images as small as the digits take little space
SMALL_SIDE, MOST_SMALL_IMAGES = 16, 80
# the smallest batch of the page
FEWEST_IMAGES = 4


def write_playground(dataset: Dataset, path: str | Path, *, seed: int = 0) -> None:
    """Write the page with images of this dataset.

    seed: seed that selects the images, with as many of each class as possible.
    """
    write_text(Path(path), render_playground(dataset, seed=seed))


def render_playground(dataset: Dataset, *, seed: int = 0) -> str:
    """The page with images of this dataset, as HTML."""
    text = json.dumps(playground_data(dataset, seed=seed), separators=(",", ":"))
    # a class may be called </script>: inside JSON strings, characters special to HTML are escaped
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    page, count = DATA_BLOCK.subn(
        lambda block: block[1] + text + block[2], PAGE.read_text(encoding="utf-8")
    )
    if count != 1:
        raise ValueError(f"{PAGE} must have one block of data, got {count}. Reinstall zetamix.")
    return page


def playground_data(dataset: Dataset, *, seed: int = 0) -> dict[str, Any]:
    """The images, labels, classes and mean that the page reads, JSON-serialisable."""
    _check_images(dataset)
    count = MOST_SMALL_IMAGES if max(dataset.shape[1:]) <= SMALL_SIDE else MOST_IMAGES
    rows = _choose_rows(dataset.train.labels, count, torch.Generator().manual_seed(seed))
    images = _as_bytes(_downscale(dataset.train.take(rows)))
    # classes without an image are omitted
    used, labels = torch.unique(dataset.train.labels[rows], return_inverse=True)
    mean = images.double().mean((0, 2, 3)) / 255
    return {
        "credit": _credit(dataset, len(rows)),
        "classes": [printable(dataset.classes[label]) for label in used.tolist()],
        "labels": labels.tolist(),
        "channels": images.shape[1],
        "size": list(images.shape[2:]),
        "mean": [round(number, 4) for number in mean.tolist()],
        "pixels": base64.b64encode(images.contiguous().numpy().tobytes()).decode("ascii"),
    }


def _check_images(dataset: Dataset) -> None:
    name, shape = printable(dataset.name), dataset.shape
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(
            f"The playground needs grey or RGB images, but samples of {name} have the shape "
            f"{list(shape)}. Choose a dataset of images."
        )
    if dataset.multi_label:
        raise ValueError(
            f"The playground needs one class per image, but {name} has several labels per sample. "
            "Choose another dataset."
        )
    if len(dataset.train) < FEWEST_IMAGES:
        raise ValueError(
            f"The playground needs at least {FEWEST_IMAGES} training images, but {name} has "
            f"{len(dataset.train)}."
        )


def _choose_rows(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Rows in rounds of one image of each class, so that neighbours differ in class."""
    order = torch.randperm(len(labels), generator=generator)
    rounds: dict[int, list[int]] = {}
    keyed: list[tuple[int, int, int]] = []
    for row in order.tolist():
        own = rounds.setdefault(int(labels[row]), [])
        own.append(row)
        # the order within a round is that of the shuffle
        keyed.append((len(own), len(keyed), row))
    return torch.tensor([row for _, _, row in sorted(keyed)[:count]])


def _downscale(images: Tensor) -> Tensor:
    """Images with no side over LARGEST_SIDE, their proportions kept."""
    longest = max(images.shape[2:])
    if longest <= LARGEST_SIDE:
        return images
    size = [max(1, round(side * LARGEST_SIDE / longest)) for side in images.shape[2:]]
    small = F.interpolate(images.float(), size, mode="area")
    return small.round().to(images.dtype) if images.dtype == torch.uint8 else small


def _as_bytes(images: Tensor) -> Tensor:
    """Images as uint8; floating point values outside [0, 1] are scaled to their range."""
    if images.dtype == torch.uint8:
        return images
    low, high = images.min().item(), images.max().item()
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    # in float64, where the difference of any two numbers of float32 is finite
    span = (high - low) or 1.0
    return ((images.double() - low) / span * 255).round().to(torch.uint8)


def _credit(dataset: Dataset, shown: int) -> str:
    if dataset.name == "digits":
        return (
            "Images: handwritten digits by E. Alpaydin and C. Kaynak, UCI Machine Learning "
            "Repository, as distributed with scikit-learn (load_digits, BSD licence)."
        )
    return (
        f"Images: {shown} of the {plural(len(dataset.train), 'training image')} of "
        f"{printable(dataset.name)}."
    )
