"""Image files to arrays: decode, crop and resize, in as many threads as there are cores."""

import io
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median_low
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from zetamix_lab.data.errors import DataError, OnProblem
from zetamix_lab.data.source import BLOCK_BYTES, Array, Block, Rows, digest
from zetamix_lab.text import plural, reason

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
SAMPLE_FORMAT = 339

# one more than cores, so that one can wait for a file; on two cores 2,000 files of 256² took 1.47
# to 1.50 s with two threads, 1.45 to 1.50 with three, 1.67 with six
THREADS = (os.cpu_count() or 1) + 1
# blocks that threads decode ahead of the one that the caller handles
AHEAD = 2
# items of one task: a task costs about 20 µs of the one thread that runs Python, a file 1,000 to
# 2,000 of a core
TASK_ITEMS = 4

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
    dtype: str = "uint8"
    """float32 for grey images of floating point or 32 bits, whose values are kept."""

    def describe(self) -> str:
        if self.size is None:
            return "not resized"
        scaled = f"resized to {self.size} × {self.size}"
        if self.crop is None:
            return scaled
        square = "largest" if self.crop == 1 else f"{self.crop:g} × shorter side"
        return f"centre square ({square}), {scaled}"


NATIVE = Fit(None)


class Header(NamedTuple):
    """Size and colour of an image, read without decoding it."""

    width: int
    height: int
    grey: bool
    wide: bool = False
    """Whether pixels are floating point or 32-bit numbers."""


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


def decode(path: Path | bytes, fit: Fit, channels: int) -> Array:
    """One image as [channels, height, width], of `fit.dtype`, rotated as its EXIF data says.

    path: its file, or the content of one.
    """
    with _open(path) as image:
        image.load()
        if image.format == "TIFF" and _is_misread(image):
            raise DataError("pixels are signed bytes, or numbers of 2^31 and more")
        orientation = _orientation(image)
        # without this, Pillow rewrites the metadata, which fails if some other tag is broken
        image.info.pop("exif", None)
        upright = image if orientation == 1 else ImageOps.exif_transpose(image)
        mode = "F" if fit.dtype == "float32" else "L" if channels == 1 else "RGB"
        pixels = np.asarray(_apply_fit(_to_mode(upright, mode), fit))
    if not np.isfinite(pixels).all():
        raise DataError("contains NaN or infinity; expected finite numbers")
    return pixels[None] if channels == 1 else np.ascontiguousarray(np.moveaxis(pixels, 2, 0))


def read_image(path: str | Path, shape: tuple[int, ...]) -> Tensor:
    """One image file as a tensor of `shape`, as images of a folder are read for training.

    It is rotated as its EXIF data says, converted to grey or RGB, and, if it has another size,
    cropped to its largest centre square and resized. The result is uint8, or float32 for files with
    32-bit pixels.

    shape: (channels, height, width): `shape` of a dataset, or of a model from `load_model`.
    """
    if len(shape) != 3:
        raise ValueError(f"shape must be (channels, height, width), got {tuple(shape)}.")
    channels, height, width = shape
    try:
        header = read_header(Path(path))
        same = (header.height, header.width) == (height, width)
        if not same and height != width:
            raise DataError(
                f"{header.width} × {header.height} pixels; expected {width} × {height}, since "
                "images are resized to squares only"
            )
        dtype = "float32" if header.wide else "uint8"
        pixels = decode(Path(path), Fit(None if same else height, crop=1.0, dtype=dtype), channels)
    except Exception as error:  # decoders raise errors of any type for broken files
        raise DataError(f"{path}: {explain(error)}.") from error
    return torch.from_numpy(pixels.copy())


def read_header(path: Path | bytes) -> Header:
    with _open(path) as image:
        sideways = _orientation(image) in SIDEWAYS
        if sideways and image.format == "TIFF":
            # Pillow rotates TIFF files itself, but swaps width and height only after decoding
            image.load()
            sideways = False
        width, height = reversed(image.size) if sideways else image.size
        wide = image.mode in ("I", "F")
        grey = wide or image.mode in ("1", "L", "I;16", "I;16B", "I;16L")
        return Header(width, height, grey, wide)


def try_header(file: Path | bytes) -> Header | None:
    """As `read_header`; None for a file that cannot be read."""
    try:
        return read_header(file)
    except Exception:  # decoders raise errors of any type for broken files
        return None


def choose_fit(
    scanned: Sequence[Header | None], size: int | None, origin: Path, on_problem: OnProblem
) -> tuple[tuple[int, ...], Fit]:
    """The shape of one sample, and how images with these headers are brought to it."""
    # files without a header are reported when they are decoded
    headers = [header for header in scanned if header is not None]
    if not headers:
        on_problem([f"{origin}: none of {plural(len(scanned), 'image')} can be read."])
    channels = 1 if headers and all(header.grey for header in headers) else 3
    dtype = "float32" if headers and all(header.wide for header in headers) else "uint8"
    sides = {(header.height, header.width) for header in headers}
    largest = max(map(max, sides), default=DEFAULT_SIZE)
    if size is None and len(sides) == 1 and largest <= NATIVE_SIDE:
        return (channels, *sides.pop()), Fit(None, dtype=dtype)
    side, why = size or DEFAULT_SIZE, ""
    if size is None and largest <= SMALL_SIDE:
        side = -(-median_low(min(header.width, header.height) for header in headers) // 8) * 8
        why = (
            f"images differ in size and none has a side over {SMALL_SIDE} pixels: resized to "
            f"{side} × {side}, the median of their shorter sides rounded up to a multiple of 8"
        )
    return (channels, side, side), Fit(side, crop=1.0, why=why, dtype=dtype)


def read_images(
    images: Sequence[Path | bytes], where: Callable[[int], str], shape: tuple[int, ...], fit: Fit
) -> Callable[[Rows], Iterator[Block]]:
    """Reads rows of images, from their files or contents; `where` names a row in messages."""

    def attempt(row: int) -> tuple[Array, bytes] | str:
        try:
            pixels = decode(images[row], fit, shape[0])
            if pixels.shape != shape:
                raise DataError(f"{_sides(pixels.shape)} pixels instead of {_sides(shape)}")
        except Exception as error:  # decoders raise errors of any type for broken files
            return f"{where(row)}: {explain(error)}"
        return pixels, digest(pixels)

    def read(rows: Rows) -> Iterator[Block]:
        step = max(1, min(64, BLOCK_BYTES // int(np.prod(shape))))
        for first, results in map_parallel(attempt, rows.tolist(), step):
            good = [image for image in results if not isinstance(image, str)]
            broken = {first + k: why for k, why in enumerate(results) if isinstance(why, str)}
            samples = np.array([pixels for pixels, _ in good], fit.dtype).reshape(-1, *shape)
            yield Block(first, samples, broken, [key for _, key in good])

    return read


def map_parallel(
    work: Callable[[Item], Result], items: Sequence[Item] | Array, step: int
) -> Iterator[tuple[int, list[Result]]]:
    """Map `step` items at a time, in threads: Pillow decodes and resizes without the GIL.

    The threads go on with the next items while the caller handles the last ones.
    """

    def task(some: range) -> list[Result]:
        return [work(items[k]) for k in some]

    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="zetamix-reader")
    waiting: deque[tuple[int, Iterator[list[Result]]]] = deque()
    blocks = range(0, len(items), step)
    try:
        for place in range(len(blocks) + AHEAD):
            if place < len(blocks):
                block = range(blocks[place], min(blocks[place] + step, len(items)))
                parts = [block[k : k + TASK_ITEMS] for k in range(0, len(block), TASK_ITEMS)]
                waiting.append((block[0], pool.map(task, parts)))
            if place >= AHEAD:
                first, results = waiting.popleft()
                yield first, list(chain.from_iterable(results))
    finally:
        pool.shutdown(cancel_futures=True)


def explain(error: Exception) -> str:
    """The reason why an image cannot be read."""
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return f"not an image in a supported format ({', '.join(FORMATS)})"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return "too many pixels; refused as a decompression bomb"
    if isinstance(error, FileNotFoundError):
        return "no such file"
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


def _is_misread(image: Image.Image) -> bool:
    """Whether Pillow has read signed bytes as unsigned, or unsigned 32-bit numbers as negative."""
    signed = bool(getattr(image, "tag_v2", {}).get(SAMPLE_FORMAT, (1,))[0] == 2)
    if image.mode == "L":
        return signed
    return image.mode == "I" and not signed and int(np.min(np.asarray(image))) < 0


def _orientation(image: Image.Image) -> int:
    if image.format == "PNG" and "exif" not in image.info:
        # Pillow would decode the whole file to look for metadata after the pixels
        return 1
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # broken metadata does not make an image unreadable
        return 1


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        # Pillow would clip 16-bit values at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F") and mode != "F":
        raise DataError(f"32-bit numbers (mode {image.mode}), but other images have 8-bit ones")
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


def _sides(shape: tuple[int, ...]) -> str:
    return f"{shape[2]} × {shape[1]}"
