"""Image files to arrays: decode, crop and resize, in as many threads as there are cores."""

import io
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from zetamix_lab.data.errors import DataError
from zetamix_lab.data.source import BLOCK_BYTES, Array, Block, Rows
from zetamix_lab.text import reason

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

# images of one size up to this side are not resized
NATIVE_SIDE = 256
DEFAULT_SIZE = 224
# images of different sizes with no side over this are resized to their median side: for 32 to 48
# pixels, 224 would give 20 to 50 times as many pixels without more detail
SMALL_SIDE = 64

# only these decoders; otherwise Pillow would try all, and start Ghostscript for EPS
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# above this, Pillow warns about a decompression bomb; decoding and cropping take 8 bytes per pixel
MAX_PIXELS = 89_478_485
# larger images are decoded one at a time, independently of the number of threads
LARGE_PIXELS = 1 << 25
_LARGE = threading.Lock()

# EXIF orientations with width and height swapped
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)
# of TIFF files: 1 for unsigned integers, 2 for signed ones, 3 for floating point
SAMPLE_FORMAT, SIGNED = 339, 2

# one more than cores, so that one can wait for a file; on two cores 2,000 files of 256² took 1.47
# to 1.50 s with two threads, 1.45 to 1.50 with three, 1.67 with six
THREADS = (os.cpu_count() or 1) + 1
# blocks that threads decode ahead of the one that the caller handles
AHEAD = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Fit:
    """How an image is brought to its size: a square centre crop, then a resize to size × size."""

    size: int | None
    """Side in pixels; None keeps images unchanged."""
    crop: float | None = None
    """Side of the square relative to the shorter side of the image; None skips the crop."""
    why: str = ""

    def describe(self) -> str:
        if self.size is None:
            return "not resized"
        scaled = f"resized to {self.size} × {self.size}"
        if self.crop is None:
            return scaled
        square = "largest" if self.crop == 1 else f"{self.crop:g} × shorter side"
        return f"centre square ({square}), {scaled}"


NATIVE = Fit(None)


def is_image(path: Path) -> bool:
    """Whether a file has the name of an image and is not hidden."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def subfolders(folder: Path) -> list[Path]:
    """The folders directly in a folder, without hidden ones and what macOS adds to archives."""
    return [
        entry
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith((".", "__MACOSX"))
    ]


def images_below(folder: Path) -> list[Path]:
    """Every image of a folder and its subfolders, in order of their paths."""
    images = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        images += [path for name in files if is_image(path := Path(parent, name))]
    return sorted(images)


def decode(path: Path | bytes, fit: Fit, shape: tuple[int, ...]) -> Array:
    """One image as uint8, rotated as its EXIF data says; raises if its shape is another.

    path: its file, or the content of one.
    shape: (channels, height, width) with `fit` applied.
    """
    with _open(path) as image:
        image.load()
        # Pillow would read signed bytes as if they were unsigned
        signed = getattr(image, "tag_v2", {}).get(SAMPLE_FORMAT, (1,))[0] == SIGNED
        if signed or image.mode == "F" or (image.mode, image.format) == ("I", "TIFF"):
            raise DataError(
                "pixels are signed, 32-bit or floating point numbers; expected unsigned ones of 8 "
                "or 16 bits. Convert the image, for instance to a PNG"
            )
        orientation = _orientation(image)
        # without this, Pillow rewrites the metadata, which fails if some other tag is broken
        image.info.pop("exif", None)
        upright = image if orientation == 1 else ImageOps.exif_transpose(image)
        fitted = _apply_fit(_to_mode(upright, "L" if shape[0] == 1 else "RGB"), fit)
    if fitted.size != (shape[2], shape[1]):
        raise DataError(
            f"{fitted.width} × {fitted.height} pixels instead of {shape[2]} × {shape[1]}"
        )
    pixels = np.array(fitted)
    return pixels[None] if shape[0] == 1 else np.ascontiguousarray(np.moveaxis(pixels, 2, 0))


def read_image(path: str | Path, shape: tuple[int, ...]) -> Tensor:
    """One image file as a tensor of `shape`, as images of a folder are read for training.

    It is rotated as its EXIF data says, converted to grey or RGB, and, if `shape` is square,
    cropped to its largest centre square and resized. The result is uint8.

    shape: (channels, height, width): `shape` of a dataset, or of a model from `load_model`.
    """
    if len(shape) != 3:
        raise ValueError(f"shape must be (channels, height, width), got {tuple(shape)}.")
    fit = Fit(shape[1], crop=1.0) if shape[1] == shape[2] else NATIVE
    try:
        return torch.from_numpy(decode(Path(path), fit, shape))
    except Exception as error:  # decoders raise errors of any type for broken files
        raise DataError(f"{path}: {explain(error)}.") from error


def read_shape(file: Path | bytes) -> tuple[int, int, int] | None:
    """(channels, height, width) of an image, without decoding it; None if it cannot be read."""
    try:
        with _open(file) as image:
            sideways = _orientation(image) in SIDEWAYS
            if sideways and image.format == "TIFF":
                # Pillow rotates TIFF files itself, but swaps width and height only after decoding
                image.load()
                sideways = False
            width, height = reversed(image.size) if sideways else image.size
            grey = image.mode in ("1", "L") or image.mode.startswith("I")
            return 1 if grey else 3, height, width
    except Exception:  # decoders raise errors of any type for broken files
        return None


def choose_fit(
    found: Sequence[tuple[int, int, int] | None], size: int | None
) -> tuple[tuple[int, ...], Fit]:
    """The shape of one sample, and how images of these shapes are brought to it."""
    # files that cannot be read are reported when they are decoded
    shapes = list(filter(None, found))
    channels = max((shape[0] for shape in shapes), default=3)
    sides = {shape[1:] for shape in shapes}
    largest = max(map(max, sides), default=DEFAULT_SIZE)
    if size is None and len(sides) == 1 and largest <= NATIVE_SIDE:
        return (channels, *sides.pop()), NATIVE
    side, why = size or DEFAULT_SIZE, ""
    if size is None and largest <= SMALL_SIDE:
        side = -(-median_low(min(shape[1:]) for shape in shapes) // 8) * 8
        why = (
            f"images differ in size and none has a side over {SMALL_SIDE} pixels: resized to "
            f"{side} × {side}, the median of their shorter sides rounded up to a multiple of 8"
        )
    return (channels, side, side), Fit(side, crop=1.0, why=why)


def read_images(
    images: Sequence[Path | bytes], shape: tuple[int, ...], fit: Fit, places: Sequence[str] = ()
) -> Callable[[Rows], Iterator[Block]]:
    """Reads rows of images, from their files, or from contents, which messages call by `places`."""

    def attempt(row: int) -> Array | str:
        image = images[row]
        try:
            return decode(image, fit, shape)
        except Exception as error:  # decoders raise errors of any type for broken files
            return f"{image if isinstance(image, Path) else places[row]}: {explain(error)}"

    def read(rows: Rows) -> Iterator[Block]:
        step = max(1, min(64, BLOCK_BYTES // int(np.prod(shape))))
        decoded = map_parallel(attempt, rows.tolist(), AHEAD * step)
        for first in range(0, len(rows), step):
            found = list(islice(decoded, step))
            good = [k for k, pixels in enumerate(found) if not isinstance(pixels, str)]
            samples = np.array([found[k] for k in good], np.uint8).reshape(-1, *shape)
            broken = [why for why in found if isinstance(why, str)]
            yield Block(rows[first : first + step][good], samples, broken)

    return read


def map_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Map items in threads, in order: Pillow decodes and resizes without the GIL.

    ahead: how many more than the caller has taken are worked on, while it handles them.
    """
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="zetamix-reader")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def explain(error: Exception) -> str:
    """The reason why an image cannot be read."""
    if isinstance(error, UnidentifiedImageError):
        return f"not an image in a supported format ({', '.join(FORMATS)})"
    text = reason(error)
    return text[0].lower() + text[1:]


@contextmanager
def _open(path: Path | bytes) -> Iterator[Image.Image]:
    if isinstance(path, Path) and not stat.S_ISREG(path.stat().st_mode):
        # opening a pipe would block
        raise DataError("not a regular file")
    if (path.stat().st_size if isinstance(path, Path) else len(path)) == 0:
        raise DataError("the file is empty")
    file = path if isinstance(path, Path) else io.BytesIO(path)
    with Image.open(file, formats=FORMATS) as image:
        pixels = image.width * image.height
        if pixels > MAX_PIXELS:
            raise DataError(
                f"{image.width:,} × {image.height:,} pixels; expected at most "
                f"{MAX_PIXELS / 1e6:.0f} million. Scale it down"
            )
        # one large image at a time, so that memory stays bounded
        with _LARGE if pixels > LARGE_PIXELS else nullcontext():
            yield image


def _orientation(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        # Pillow would decode the whole file to look for metadata after the pixels
        return 1
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # broken metadata does not make an image unreadable
        return 1


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        # 16 bits, which Pillow would clip at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        # Pillow warns on a direct conversion to RGB
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)


def _apply_fit(image: Image.Image, fit: Fit) -> Image.Image:
    if fit.size is None:
        return image
    if fit.crop is not None:
        side = max(1, int(fit.crop * min(image.size)))
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    if image.size == (fit.size, fit.size):
        return image
    return image.resize((fit.size, fit.size), Image.Resampling.BILINEAR)
