"""Image files to arrays: size, crop, orientation, channels, and broken files."""

import io
import time

import numpy as np
import pytest
import torch
from miniatures import save
from PIL import Image, ImageOps
from torchvision.transforms import v2

from zetamix_lab import data
from zetamix_lab.data import image_files
from zetamix_lab.data.image_files import NATIVE, Fit


def coordinates(width, height):
    """Red is the column, green the row."""
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.arange(width)
    image[..., 1] = np.arange(height)[:, None]
    return image


def to_bytes(sample):
    return sample.numpy().tobytes()


def encoded(pixels, kind, **options):
    """The content of an image file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_images_are_turned_as_a_viewer_turns_them(tmp_path, orientation, suffix):
    path = tmp_path / f"phone{suffix}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(coordinates(60, 40) * 4).save(path, exif=exif)
    with Image.open(path) as image:
        shown = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert image_files.read_shape(path) == (3, *shown.shape[:2])
    found = data.read_image(path, (3, *shown.shape[:2]))
    assert np.array_equal(found.permute(1, 2, 0), shown)


WIDTH_OF_DOUBLES = b"\x01\0\0\x0c\0\0\0\x03\0\0\0\x01"
# an orientation of no type; a width of three doubles with orientation 6
ODD_TAGS = [
    (b"\x01\x12\0\x07\0\0\0\x01\x06\0\0\0", (40, 60)),
    (WIDTH_OF_DOUBLES + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", (60, 40)),
]


@pytest.mark.parametrize(("tags", "size"), ODD_TAGS)
def test_broken_metadata_does_not_make_an_image_unreadable(tags, size, tmp_path):
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + (len(tags) // 12).to_bytes(2, "big") + tags + bytes(4)
    (tmp_path / "odd.jpg").write_bytes(encoded(coordinates(60, 40), "JPEG", exif=exif))
    assert data.read_image(tmp_path / "odd.jpg", (3, *size)).shape == (3, *size)


@pytest.mark.parametrize(
    ("fit", "crop"),
    [(NATIVE, None), (Fit(50), None), (Fit(80, crop=0.8), 80), (Fit(50, crop=0.8), 80)],
)
def test_crops_and_scaling_are_those_of_torchvision(fit, crop):
    image = Image.fromarray(coordinates(200, 100) * 29)
    expected = v2.CenterCrop(crop)(image) if crop else image
    if fit.size is not None:
        expected = v2.Resize((fit.size, fit.size))(expected)
    shape = (3, *expected.size[::-1])
    ours = image_files.decode(encoded(np.asarray(image), "PNG"), fit, shape)
    assert np.array_equal(ours.transpose(1, 2, 0), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *((mode, "png") for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")),
        *[("CMYK", "jpg"), ("L", "jpg"), ("RGB", "bmp"), ("RGB", "webp"), ("I;16", "pgm")],
    ],
)
def test_every_kind_of_image_comes_out_alike(mode, suffix, channels, tmp_path):
    file, grey = tmp_path / f"image.{suffix}", np.full((6, 8), 200, np.uint8)
    image = Image.fromarray(grey.astype(np.uint16) * 256 + 17 if mode == "I;16" else grey)
    options = {"transparency": bytes([255] * 256)} if mode == "P" else {}
    (image if mode == "I;16" else image.convert("RGB").convert(mode)).save(file, **options)
    found = data.read_image(file, (channels, 6, 8))
    assert (found.shape, found.dtype) == ((channels, 6, 8), torch.uint8)
    # black and white is dithered
    wanted, tolerance = (255, 60) if mode == "1" else (200, 4)
    assert found.float().mean().item() == pytest.approx(wanted, abs=tolerance)


def test_one_file_is_read_as_a_folder_of_files_is(tmp_path):
    """The same pixels, whatever the orientation, colours and size; in two blocks of rows."""
    random, folder = np.random.default_rng(0), tmp_path / "photos"
    exif = Image.Exif()
    exif[0x0112] = 6
    for k in range(100):
        path = folder / ("cat", "dog")[k % 2] / f"{k}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (90, 60) if k % 3 else (40 + k % 7, 80)
        path.write_bytes(encoded(random.integers(0, 256, (*size, 3), np.uint8), "JPEG", exif=exif))
    dataset = data.load(folder, tmp_path / "data", size=32)
    assert len(dataset.train) == 70
    read = [data.read_image(path, dataset.shape) for path in folder.rglob("*.jpg")]
    found = [sample for split in dataset.splits.values() for sample in split.samples]
    assert sorted(map(to_bytes, read)) == sorted(map(to_bytes, found))


WIDE = r"pixels are signed, 32-bit or floating point numbers; .*Convert the image, for .* a PNG\."
UNREADABLE = {
    "truncated": (encoded(coordinates(100, 100) * 77, "JPEG")[:900], "image file is truncated"),
    "text": (b"hello", "not an image in a supported format"),
    "empty": (b"", r"the file is empty\."),
    "missing": (None, r"no such file or directory\."),
    "too many pixels": (b"P6 13300 13300 255\n", "13,300 × 13,300 pixels; expected at most 89 mil"),
    "a bomb": (b"P6 99999 99999 255\n", "image size .* exceeds limit of .* decompression bomb"),
    "floating point": (encoded(np.ones((4, 4), np.float32), "TIFF"), WIDE),
    "32 bits": (encoded(np.ones((4, 4), np.int32), "TIFF"), WIDE),
    # which Pillow reads as if they were unsigned
    "signed bytes": (encoded(np.ones((4, 4), np.uint8), "TIFF", tiffinfo={339: 2}), WIDE),
}


@pytest.mark.filterwarnings("ignore:Image size")
@pytest.mark.parametrize(("content", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(content, reason, tmp_path):
    file = tmp_path / "photo.png"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(data.DataError, match=rf"photo\.png: {reason}"):
        data.read_image(file, (3, 8, 8))


def test_a_file_is_read_in_its_own_shape_or_in_a_square(tmp_path):
    save(tmp_path / "photo.png", coordinates(10, 6))
    assert data.read_image(tmp_path / "photo.png", (1, 16, 16)).shape == (1, 16, 16)
    with pytest.raises(data.DataError, match=r"10 × 6 pixels instead of 5 × 6\."):
        data.read_image(tmp_path / "photo.png", (3, 6, 5))
    with pytest.raises(ValueError, match=r"shape must be \(channels, height, width\), got \(4,\)"):
        data.read_image(tmp_path / "photo.png", (4,))


def test_a_block_has_its_samples_and_the_reasons_of_the_others(tmp_path):
    files = [tmp_path / f"{k}.png" for k in range(5)]
    for k, file in enumerate(files):
        save(file, np.full((5 if k == 3 else 4, 4), k, np.uint8))
    files[2].write_bytes(b"no image")
    (block,) = image_files.read_images(files, (1, 4, 4), NATIVE)(np.arange(5))
    assert block.broken[0].startswith(f"{files[2]}: not an image")
    assert block.broken[1:] == [f"{files[3]}: 4 × 5 pixels instead of 4 × 4"]
    assert block.samples[:, 0, 0, 0].tolist() == block.rows.tolist() == [0, 1, 4]


def test_work_that_is_not_wanted_any_more_is_dropped():
    done = []

    def work(item):
        if item == 0:
            raise KeyboardInterrupt
        time.sleep(0.01)
        done.append(item)

    with pytest.raises(KeyboardInterrupt):
        next(image_files.map_parallel(work, list(range(300)), 300))
    assert len(done) < 100
