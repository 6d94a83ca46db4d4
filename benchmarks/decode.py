"""Time how a folder of JPEG files is prepared, beside bare Pillow on every core; behind a check.

    python benchmarks/decode.py --json benchmarks/decode_cpu.json

Files of 500 × 375 pixels, as the originals of Imagenette, and of 256 × 256 become 224 × 224. The
limit is what one core reaches with Pillow alone (decode, crop, resize), times the number of cores.
Beside it are our decoding alone, and the whole of `zetamix_lab.data.prepare`: headers, created
splits, decoding, search for duplicates, checksums and the written files. Two and a half minutes on
two cores that do nothing else.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from zetamix.atomic_io import write_json
from zetamix_lab.data import Dataset, prepare
from zetamix_lab.data.image_files import Fit, LabelledFile, file_part
from zetamix_lab.data.source import Array
from zetamix_lab.provenance import machine_info, machine_summary

SIZES = ((500, 375), (256, 256))
SIDE = 224
CLASSES = 10
# of the limit, for decoding alone; a miss of the target is reported, not hidden
TARGET = 0.8
# photos to cut files from, and by how many pixels they are larger: each of them takes 0.1 s
PHOTOS, MARGIN = 24, 64
# at least so many images per size: a created split needs three of each class
FEWEST = 3 * CLASSES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=2000, help="files of each size")
    parser.add_argument("--rounds", type=int, default=5, help="preparations that are timed")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="of the limit")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.images < FEWEST or arguments.rounds < 2:
        sys.exit(f"Expected at least {FEWEST} images and 2 rounds.")
    rows = []
    for width, height in SIZES:
        with tempfile.TemporaryDirectory(prefix="zetamix-decode-") as folder:
            files = write_files(Path(folder, "photos"), arguments.images, width, height)
            seconds = measure(files, Path(folder), arguments.rounds)
        rows.append(describe(f"{width} × {height}", files, seconds, arguments.cores))
        tell(rows[-1])
    facts = machine_info(torch.device("cpu"))
    # without the folders of this machine
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    facts["command"] = " ".join(["python benchmarks/decode.py", *words])
    sys.stdout.write(machine_summary(facts) + "\n")
    if arguments.json is not None:
        write_json(arguments.json, {"machine": facts, "rows": rows})


def write_files(folder: Path, count: int, width: int, height: int) -> dict[Path, int]:
    """JPEG files in one folder per class, no two alike; their sizes in bytes."""
    random = np.random.default_rng(0)
    photos = [draw_photo(random, width + MARGIN, height + MARGIN) for _ in range(PHOTOS)]
    files = {}
    for number in range(count):
        left, top = random.integers(0, MARGIN, 2).tolist()
        part = photos[number % PHOTOS].crop((left, top, left + width, top + height))
        file = folder / f"class{number % CLASSES}" / f"{number:05d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        part.save(file, quality=90)
        files[file] = file.stat().st_size
    return files


def draw_photo(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """Noise of eight scales, grey where it is fine, as photographs have it.

    500 × 375 pixels take 92 kB; a file of Imagenette takes 110 on average, with some larger ones.
    """
    total = np.zeros((height, width, 3))
    for step in (1, 2, 4, 8, 16, 32, 64, 128):
        coarse = random.normal(size=(3, height // step + 2, width // step + 2))
        for channel in range(3):
            source = coarse[0 if step < 8 else channel].astype(np.float32)
            fine = Image.fromarray(source).resize((width, height), Image.Resampling.BICUBIC)
            total[..., channel] += step**0.2 * np.asarray(fine)
    pixels = 128 + 50 * total / total.std()
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def measure(files: dict[Path, int], folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds for all files, by what is done with them, in turn."""
    photos = next(iter(files)).parent.parent
    seconds: dict[str, list[float]] = {"prepare": [], "decode": [], "bare": []}
    # the first round warms up: files in the page cache
    for number in range(rounds + 1):
        began = time.perf_counter()
        dataset = prepare(photos, folder / "data", size=SIDE)
        seconds["prepare"].append(time.perf_counter() - began)
        if number == 0:
            check(dataset, photos, len(files))
        del dataset
        shutil.rmtree(folder / "data")
        seconds["decode"].append(time_blocks(list(files), photos))
        seconds["bare"].append(time_bare(list(files)))
    return {name: times[1:] for name, times in seconds.items()}


def time_blocks(files: list[Path], photos: Path) -> float:
    """Our decoding alone, in threads, with the digests that find duplicates."""
    items = [LabelledFile(file, 0) for file in files]
    part = file_part(items, (3, SIDE, SIDE), Fit(SIDE, crop=1.0), photos)
    began = time.perf_counter()
    for _ in part.blocks():
        pass
    return time.perf_counter() - began


def time_bare(files: list[Path]) -> float:
    """Pillow alone on one core, for a quarter of the files, as if for all."""
    some = files[: len(files) // 4]
    began = time.perf_counter()
    for file in some:
        decode_bare(file)
    return (time.perf_counter() - began) * len(files) / len(some)


def decode_bare(file: Path) -> Array:
    """One image as [side, side, 3] by Pillow: the centre square, resized."""
    with Image.open(file) as image:
        square = min(image.size)
        left, top = (image.width - square) // 2, (image.height - square) // 2
        cut = image.convert("RGB").crop((left, top, left + square, top + square))
    return np.asarray(cut.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def check(dataset: Dataset, photos: Path, expected: int) -> None:
    """Every image is there, and is what Pillow alone makes of it."""
    count = sum(map(len, dataset.splits.values()))
    if count != expected:
        sys.exit(f"{count} images were prepared instead of {expected}. No time is printed.")
    for split in dataset.splits.values():
        for name, sample in zip(split.names() or (), split.samples, strict=True):
            if not np.array_equal(sample.numpy().transpose(1, 2, 0), decode_bare(photos / name)):
                sys.exit(f"{name} has other pixels than Pillow gives. No time is printed.")


def describe(
    name: str, files: dict[Path, int], seconds: dict[str, list[float]], cores: int
) -> dict[str, Any]:
    count = len(files)
    limit = cores * count / statistics.median(seconds["bare"])
    cuts = statistics.quantiles(seconds["prepare"], n=10, method="inclusive")
    decoded = count / statistics.median(seconds["decode"])
    return {
        "pixels": name,
        "images": count,
        "mean_bytes": round(sum(files.values()) / count),
        "side": SIDE,
        "rounds": len(seconds["prepare"]),
        "cores": cores,
        "median_s": cuts[4],
        "p20_s": cuts[1],
        "p80_s": cuts[7],
        "images_per_s": count / cuts[4],
        "share_of_limit": count / cuts[4] / limit,
        "decoded_per_s": decoded,
        "decoded_share": decoded / limit,
        "limit_per_s": limit,
        "target": TARGET,
    }


def tell(row: dict[str, Any]) -> None:
    met = "met" if row["decoded_share"] >= row["target"] else "missed"
    sys.stdout.write(
        f"{row['pixels']}: limit {row['limit_per_s']:,.0f} images/s, Pillow on {row['cores']} "
        f"cores; decoded {row['decoded_per_s']:,.0f}, {100 * row['decoded_share']:.0f} % (target "
        f"{100 * row['target']:.0f}, {met}); prepared {row['images_per_s']:,.0f}, "
        f"{100 * row['share_of_limit']:.0f} %: {row['images']:,} files in {row['median_s']:.2f} s "
        f"(p20 {row['p20_s']:.2f}, p80 {row['p80_s']:.2f})\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
