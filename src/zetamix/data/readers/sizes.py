"""The one size that a user's images are brought to, from what their headers say."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median_low

from zetamix.data.errors import Complain
from zetamix.data.image_files import NATIVE, Fit, Header, in_parallel, read_header
from zetamix.text import plural

# images of one size up to this side are kept as they are, all others are brought to one size
NATIVE_SIDE = 256
DEFAULT_SIZE = 224
# images that differ and have no side beyond this get a size like their own: brought from 32 to 48
# pixels to 224 they would be 20 to 50 times as large, and show nothing more
SMALL_SIDE = 64


def outgrown(files: Sequence[Path], shape: Sequence[int]) -> bool:
    """Whether images of this shape are small ones that an earlier version brought to 224.

    No image is opened beyond the first that is not small: of photographs, the first of all.
    """
    if tuple(shape[1:]) != (DEFAULT_SIZE, DEFAULT_SIZE):
        return False
    headers = (header for header in map(_try_header, files) if header is not None)
    return all(max(header.width, header.height) <= SMALL_SIDE for header in headers)


def common_shape(
    files: Sequence[Path], size: int | None, where: Path, complain: Complain
) -> tuple[tuple[int, ...], Fit]:
    """The shape of one sample, and how an image gets it."""
    # files that cannot be read are named when they are decoded
    headers = [
        header
        for _, some in in_parallel(_try_header, files, 1024)
        for header in some
        if header is not None
    ]
    if not headers:
        complain([f"{where}: none of {plural(len(files), 'file')} can be read as an image."])
        return (3, DEFAULT_SIZE, DEFAULT_SIZE), Fit(DEFAULT_SIZE, crop=1.0)
    channels = 1 if all(header.grey for header in headers) else 3
    sides = {(header.height, header.width) for header in headers}
    if size is None and len(sides) == 1 and max(max(sides)) <= NATIVE_SIDE:
        return (channels, *sides.pop()), NATIVE
    side, why = _common_side(headers) if size is None else (size, "")
    return (channels, side, side), Fit(side, crop=1.0, why=why)


def _common_side(headers: Sequence[Header]) -> tuple[int, str]:
    """For images that differ: 224, or where all are small one like their own, and why."""
    if max(max(header.width, header.height) for header in headers) > SMALL_SIDE:
        return DEFAULT_SIZE, ""
    # of the squares that are cut out of them
    middle = median_low(min(header.width, header.height) for header in headers)
    side = -(-middle // 8) * 8
    return side, (
        f"images differ in size and none has a side over {SMALL_SIDE} pixels: scaled to {side} × "
        f"{side}, the median of their shorter sides rounded up to a multiple of 8"
    )


def _try_header(file: Path) -> Header | None:
    try:
        return read_header(file)
    except Exception:  # what a broken file makes a decoder raise has no one type
        return None
