"""Image files to arrays: size, crop, orientation, channels, and broken files."""

import time

import numpy as np
import pytest
import torch
from miniatures import save
from PIL import Image, ImageOps
from torchvision.transforms import v2

from zetamix_lab import data
from zetamix_lab.data import image_files
from zetamix_lab.data.image_files import NATIVE, Fit, read_images


def coordinates(width, height):
    """Red is the column, green the row."""
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.arange(width)
    image[..., 1] = np.arange(height)[:, None]
    return image


@pytest.mark.parametrize("orientation", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_images_are_turned_as_a_viewer_turns_them(tmp_path, orientation, suffix):
    path = tmp_path / f"phone{suffix}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(coordinates(60, 40) * 4).save(path, exif=exif)
    with Image.open(path) as image:
        shown = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert np.array_equal(image_files.decode(path, NATIVE, 3).transpose(1, 2, 0), shown)
    header = image_files.read_header(path)
    assert (header.height, header.width) == shown.shape[:2]


ODD_TAGS = {
    "orientation of no type": (b"\x01\x12\0\x07\0\0\0\x01\x06\0\0\0", (40, 60)),
    "width of three doubles, orientation 6": (
        b"\x01\0\0\x0c\0\0\0\x03\0\0\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0",
        (60, 40),
    ),
}


@pytest.mark.parametrize(("tags", "size"), ODD_TAGS.values(), ids=ODD_TAGS)
def test_broken_metadata_does_not_make_an_image_unreadable(tags, size, tmp_path):
    path = tmp_path / "odd.jpg"
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + (len(tags) // 12).to_bytes(2, "big") + tags + bytes(4)
    Image.fromarray(coordinates(60, 40)).save(path, exif=exif)
    assert image_files.decode(path, NATIVE, 3).shape == (3, *size)
    header = image_files.read_header(path)
    assert (header.height, header.width) == size


@pytest.mark.parametrize(
    ("fit", "crop"),
    [(NATIVE, (100, 200)), (Fit(50), (100, 200)), (Fit(80, crop=0.8), 80), (Fit(50, crop=0.8), 80)],
)
def test_crops_and_scaling_are_those_of_torchvision(fit, crop, tmp_path):
    image = Image.fromarray(coordinates(200, 100) * 29)
    image.save(tmp_path / "wide.png")
    expected = v2.CenterCrop(crop)(image)
    if fit != NATIVE:
        expected = v2.Resize((fit.size, fit.size))(expected)
    ours = image_files.decode(tmp_path / "wide.png", fit, 3)
    assert np.array_equal(ours.transpose(1, 2, 0), expected)


def as_mode(mode):
    grey = np.full((6, 8), 200, np.uint8)
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16) * 256 + 17)
    return Image.fromarray(np.stack([grey] * 3, 2)).convert(mode)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *((mode, "png") for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "I;16")),
        *[("CMYK", "jpg"), ("L", "jpg"), ("RGB", "bmp"), ("RGB", "webp")],
    ],
)
def test_every_kind_of_image_comes_out_alike(mode, suffix, channels, tmp_path):
    file = tmp_path / f"image.{suffix}"
    options = {"transparency": bytes([255] * 256)} if mode == "P" else {}
    as_mode(mode).save(file, **options)
    image = image_files.decode(file, NATIVE, channels)
    assert (image.shape, image.dtype) == ((channels, 6, 8), np.uint8)
    wanted = 255 if mode == "1" else 200
    # black and white is dithered
    assert abs(float(image.mean()) - wanted) < (60 if mode == "1" else 4)


@pytest.mark.parametrize("mode", ["F", "I"])
def test_wide_pixels_are_kept_where_all_images_have_them(mode, tmp_path):
    random = np.random.default_rng(0)
    for number in range(12):
        values = random.normal(-300, 500, (10, 8)).astype(np.float32)
        folder = tmp_path / "ct" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).convert(mode).save(folder / f"{number}.tiff")
    dataset = data.load(tmp_path / "ct", tmp_path)
    assert dataset.train.samples.dtype == torch.float32
    assert dataset.shape == (1, 10, 8)
    name = dataset.train.names()[0]
    kept = np.asarray(Image.open(tmp_path / "ct" / name), np.float32)
    assert np.array_equal(dataset.train.samples[0, 0].numpy(), kept)
    assert data.load(tmp_path / "ct", tmp_path, size=4).shape == (1, 4, 4)
    # beside bytes their range is unknown
    with pytest.raises(ValueError, match=rf"32-bit numbers \(mode {mode}\), but other"):
        image_files.decode(tmp_path / "ct" / name, NATIVE, 1)


def test_pixels_that_are_not_finite_are_refused(tmp_path):
    Image.fromarray(np.full((4, 4), np.nan, np.float32)).save(tmp_path / "image.tiff")
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        image_files.decode(tmp_path / "image.tiff", Fit(None, dtype="float32"), 1)


@pytest.mark.parametrize(("mode", "kind", "first"), [("L", 2, 200), ("I", 1, -5)])
def test_pixels_that_would_be_misread_are_refused(mode, kind, first, tmp_path):
    """Signed bytes, and numbers of 2^31 and more, which Pillow reads as if they were others."""
    pixels = np.full((4, 4), first, np.uint8 if mode == "L" else np.int32)
    Image.fromarray(pixels).save(tmp_path / "image.tiff", tiffinfo={339: kind})
    # Pillow writes 2 for signed integers in any case
    content, tag = (tmp_path / "image.tiff").read_bytes(), b"\x53\x01\x03\0\x01\0\0\0"
    (tmp_path / "image.tiff").write_bytes(content.replace(tag + b"\x02", tag + bytes([kind])))
    with pytest.raises(ValueError, match="signed bytes, or numbers of"):
        image_files.decode(tmp_path / "image.tiff", Fit(None, dtype="float32"), 1)


def blocks_of(files, shape, fit=NATIVE):
    return list(read_images(files, lambda row: str(files[row]), shape, fit)(np.arange(len(files))))


def grey_files(folder, count):
    """Grey images of 4 × 4 pixels, each with its number as its value."""
    files = [folder / f"{k:03d}.png" for k in range(count)]
    for k, file in enumerate(files):
        save(file, np.full((4, 4), k, np.uint8))
    return files


def test_blocks_keep_the_order(tmp_path):
    blocks = blocks_of(grey_files(tmp_path, 150), (1, 4, 4))
    assert len(blocks) > 1
    sizes = [len(block.samples) for block in blocks]
    assert [block.first for block in blocks] == [sum(sizes[:k]) for k in range(len(sizes))]
    values = np.concatenate([block.samples for block in blocks])[:, 0, 0, 0]
    assert values.tolist() == list(range(150))


def test_broken_images_and_those_of_another_size_are_named_and_left_out(tmp_path):
    files = grey_files(tmp_path, 40)
    save(tmp_path / "whole.jpg", np.arange(30_000).astype(np.uint8).reshape(100, 300))
    files[3].write_bytes((tmp_path / "whole.jpg").read_bytes()[:2000])
    files[4].write_text("hello")
    files[5].write_bytes(b"")
    files[6].unlink()
    save(files[30], np.zeros((5, 4), np.uint8))
    blocks = blocks_of(files, (1, 4, 4))
    reasons = {
        3: "image file is truncated",
        4: "not an image in a supported format",
        5: "the file is empty",
        6: "no such file",
        30: "4 × 5 pixels instead of 4 × 4",
    }
    broken = {row: reason for block in blocks for row, reason in block.broken.items()}
    assert sorted(broken) == list(reasons)
    for row, reason in reasons.items():
        assert broken[row].startswith(f"{files[row]}: {reason}")
    kept = np.concatenate([block.samples for block in blocks])[:, 0, 0, 0]
    assert kept.tolist() == [row for row in range(40) if row not in reasons]


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


def test_threads_go_on_while_the_caller_handles_a_block():
    done = set()
    blocks = image_files.map_parallel(done.add, list(range(50)), 10)
    next(blocks)
    wait_until(lambda: len(done) >= 20)
    # and not without end: blocks that nobody has asked for take memory
    assert len(done) <= 10 * (1 + image_files.AHEAD)
    blocks.close()


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize("count", [0, 1, 4, 9, 10, 37])
def test_results_come_in_the_order_of_the_items(count):
    blocks = list(image_files.map_parallel(lambda item: 2 * item, list(range(count)), 10))
    assert [first for first, _ in blocks] == list(range(0, count, 10))
    assert [result for _, some in blocks for result in some] == list(range(0, 2 * count, 2))


def test_one_file_is_read_as_a_folder_of_files_is(tmp_path):
    """The same pixels, whatever the orientation, colours and size of the photo."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for k in range(6):
            size = (40 + 7 * k, 80) if k % 2 else (90, 60)
            image = Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8))
            exif = image.getexif()
            exif[0x0112] = 6
            image.save(folder / name / f"{k}.jpg", exif=exif)
    dataset = data.load(folder, tmp_path / "data", size=32)
    for name, sample in zip(dataset.train.names(), dataset.train.samples, strict=True):
        assert torch.equal(data.read_image(folder / name, dataset.shape), sample)
    grey = data.read_image(folder / name, (1, 16, 16))
    assert (grey.dtype, grey.shape) == (torch.uint8, (1, 16, 16))


def test_a_file_that_cannot_be_read_alone(tmp_path):
    file = tmp_path / "photo.png"
    with pytest.raises(data.DataError, match=r"photo\.png: no such file\."):
        data.read_image(file, (3, 8, 8))
    Image.new("RGB", (10, 6)).save(file)
    assert data.read_image(file, (3, 6, 10)).shape == (3, 6, 10)
    with pytest.raises(data.DataError, match=r"10 × 6 pixels; expected 5 × 6, since images"):
        data.read_image(file, (3, 6, 5))
    with pytest.raises(ValueError, match=r"shape must be \(channels, height, width\), got \(4,\)"):
        data.read_image(file, (4,))
