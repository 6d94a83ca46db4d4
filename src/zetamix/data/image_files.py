"""Image files to tensors: read, crop, resize, in as many threads as there are cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from zetamix.data.errors import DataError
from zetamix.data.source import BLOCK_BYTES, Array, Block, Part

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

# what an EXIF orientation asks a viewer to do; 1, or none, is upright
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
ON_THEIR_SIDE = (5, 6, 7, 8)

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Fit:
    """How an image gets its size: a square out of its centre, then scaled to size × size."""

    size: int | None
    """Side in pixels; None keeps images as they are."""
    crop: float | None = None
    """Side of the square in terms of the shorter side of the image; None takes all of it."""
    why: str = ""

    def describe(self) -> str:
        if self.size is None:
            return "as they are"
        scaled = f"scaled to {self.size} × {self.size}"
        if self.crop is None:
            return f"whole, {scaled}"
        square = "largest" if self.crop == 1 else f"{self.crop:g} × shorter side"
        return f"centre square ({square}), {scaled}"


NATIVE = Fit(None)


class Header(NamedTuple):
    """What the first bytes of an image say."""

    width: int
    height: int
    grey: bool


def is_image(path: Path) -> bool:
    """Whether a file goes by the name of an image; files that begin with a dot do not."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def images_below(folder: Path) -> list[Path]:
    """Every image of a folder and its subfolders, in order of their paths."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        found += [path for name in files if is_image(path := Path(place, name))]
    return sorted(found)


def decode(path: Path, fit: Fit, channels: int) -> Array:
    """One image as [channels, height, width], uint8, upright: turned as a viewer turns it."""
    with _opened(path) as image:
        image.load()
        whole = _to_mode(image, "L" if channels == 1 else "RGB")
        turn = TURNS.get(_orientation(image))
    if turn is not None:
        whole = whole.transpose(turn)
    fitted = np.asarray(_fitted(whole, fit))
    return fitted[None] if channels == 1 else np.moveaxis(fitted, 2, 0)


def read_header(path: Path) -> Header:
    with _opened(path) as image:
        lies = _orientation(image) in ON_THEIR_SIDE
        if lies and image.format == "TIFF":
            # Pillow turns these itself, and has always swapped their sides when it is done
            image.load()
            lies = False
        width, height = reversed(image.size) if lies else image.size
        grey = image.mode in ("1", "L", "I;16", "I;16B", "I;16L")
        return Header(width, height, grey)


def file_part(
    files: Sequence[Path],
    labels: Sequence[int] | Array,
    shape: tuple[int, ...],
    fit: Fit,
    *,
    base: Path,
) -> Part:
    """A split whose samples are image files; their names are kept relative to `base`."""

    def attempt(path: Path) -> Array | str:
        try:
            image = decode(path, fit, shape[0])
        except Exception as error:  # what a broken file makes a decoder raise has no one type
            return f"{path}: {explain(error)}"
        if image.shape != shape:
            return f"{path}: {_sides(image.shape)} pixels instead of {_sides(shape)}"
        return image

    def blocks() -> Iterator[Block]:
        step = max(1, min(8 * _workers(), BLOCK_BYTES // int(np.prod(shape))))
        for first, made in in_parallel(attempt, files, step):
            good = [image for image in made if not isinstance(image, str)]
            broken = {first + k: why for k, why in enumerate(made) if isinstance(why, str)}
            stacked = np.stack(good) if good else np.empty((0, *shape), np.uint8)
            yield Block(first, stacked, broken)

    names = [os.path.relpath(file, base) for file in files]
    return Part(np.asarray(labels, np.int64), blocks, names)


def in_parallel(
    work: Callable[[Given], Made], items: Sequence[Given], step: int
) -> Iterator[tuple[int, list[Made]]]:
    """Work on `step` items at a time, in threads: Pillow decodes and scales without the GIL."""
    with ThreadPoolExecutor(_workers(), thread_name_prefix="zetamix-decode") as pool:
        for first in range(0, len(items), step):
            yield first, list(pool.map(work, items[first : first + step]))


def explain(error: Exception) -> str:
    """Why an image cannot be read, in words."""
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not an image in a format that Pillow knows"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return "more pixels than any photograph has; refused as a decompression bomb"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    text = str(error).strip().rstrip(".") or type(error).__name__
    return text[0].lower() + text[1:]


def _opened(path: Path) -> Image.Image:
    if path.stat().st_size == 0:
        raise DataError("the file is empty")
    return Image.open(path)


def _orientation(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        # Pillow would decode all of it to see whether there is more behind the pixels
        return 1
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # what is wrong with metadata is not wrong with the image
        return 1


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        # Pillow would clip 16 bits at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise DataError(
            f"pixels are 32-bit numbers (mode {image.mode}), whose range says nothing; expected 8 "
            "or 16 bits"
        )
    elif image.mode == "P" and "transparency" in image.info:
        # straight to RGB, Pillow warns
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)


def _fitted(image: Image.Image, fit: Fit) -> Image.Image:
    if fit.size is None:
        return image
    if fit.crop is not None:
        side = max(1, int(fit.crop * min(image.size)))
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    if image.size == (fit.size, fit.size):
        return image
    return image.resize((fit.size, fit.size), Image.Resampling.BILINEAR)


def _sides(shape: tuple[int, ...]) -> str:
    return f"{shape[2]} × {shape[1]}"


def _workers() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
