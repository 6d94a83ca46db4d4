"""Time epochs of our loader beside torch's over torchvision's CIFAR-10; behind a check.

    python benchmarks/loader.py --data cifar10.npz --json benchmarks/loader_cpu.json

50,000 images in batches of 128: crop out of zero padding, flip, normalise. torch's DataLoader runs
without workers and with two, over torchvision's own class and transforms, from images in memory.
The file holds `train_images`, [50000, 32, 32, 3], and `train_labels`. About three minutes, on a
machine that does nothing else: where another process held one of two cores, OpenMP's threads
waited for each other and a batch took 70 ms instead of 1.2 with one thread.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import CIFAR10

from zetamix.atomic_io import write_json
from zetamix_lab.data.augment import Scale, measure_scale
from zetamix_lab.data.loader import Loader
from zetamix_lab.provenance import machine_info, machine_summary

BATCH = 128
WORKERS = (0, 2)
# a miss of the target is reported, not hidden
TARGET = 5.0


@dataclass(frozen=True)
class Images:
    """CIFAR-10's training split as our loader reads it."""

    samples: Tensor
    labels: Tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=5, help="of each loader that are timed")
    parser.add_argument("--images", type=int, help="only so many of them, for a quick look")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    pixels, labels = read(arguments.data, arguments.images)
    rows = measure(pixels, labels, arguments.epochs)
    facts = machine_info(torch.device("cpu"))
    # without the folders of this machine
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    facts["command"] = " ".join(["python benchmarks/loader.py", *words])
    for row in rows:
        tell(row)
    sys.stdout.write(machine_summary(facts) + "\n")
    if arguments.json is not None:
        write_json(arguments.json, {"machine": facts, "rows": rows})


def read(path: Path, count: int | None) -> tuple[np.ndarray[Any, Any], list[int]]:
    file = np.load(path)
    return file["train_images"][:count], file["train_labels"].flatten()[:count].tolist()


def measure(pixels: np.ndarray[Any, Any], labels: list[int], epochs: int) -> list[dict[str, Any]]:
    """All loaders, an epoch of each in turn, so that none has the machine at a better time."""
    split = Images(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels))
    scale = measure_scale(split.samples)
    check(split, pixels, labels, scale)
    loaders: dict[str, Iterable[Any]] = {
        "zetamix": ours(split, scale),
        "zetamix, streamed": ours(split, scale, memory=0),
    }
    for workers in WORKERS:
        loaders[f"DataLoader, {workers} workers"] = theirs(pixels, labels, scale, workers)
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(epochs + 1):
        for name, loader in loaders.items():
            seconds[name].append(time_epoch(loader, len(labels)))
    # the first epoch of each warms up: caches, and the start of workers that stay
    fastest = min(
        statistics.median(seconds[name][1:]) for name in loaders if name.startswith("DataLoader")
    )
    return [describe(name, len(labels), times[1:], fastest) for name, times in seconds.items()]


def ours(split: Images, scale: Scale, memory: int | None = None) -> Loader:
    return Loader(split, BATCH, augmentation="crop-flip", scale=scale, memory=memory)


def theirs(
    pixels: np.ndarray[Any, Any], labels: list[int], scale: Scale, workers: int
) -> DataLoader[Any]:
    steps: list[Callable[[Any], Any]] = [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        *to_tensor(scale),
    ]
    return DataLoader(
        torchvision_cifar10(pixels, labels, steps),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def to_tensor(scale: Scale) -> list[Callable[[Any], Any]]:
    mean, std = (scale.mean / 255).tolist(), (scale.std / 255).tolist()
    return [transforms.ToTensor(), transforms.Normalize(mean, std)]


def torchvision_cifar10(
    pixels: np.ndarray[Any, Any], labels: list[int], steps: list[Callable[[Any], Any]]
) -> CIFAR10:
    """torchvision's class, filled from memory: its own `__getitem__` makes PIL images of pixels."""
    dataset = CIFAR10.__new__(CIFAR10)
    dataset.data, dataset.targets = pixels, labels
    dataset.transform, dataset.target_transform = transforms.Compose(steps), None
    return dataset


def check(split: Images, pixels: np.ndarray[Any, Any], labels: list[int], scale: Scale) -> None:
    """Without what is random, both give the same batches."""
    own = next(iter(Loader(split, 512, scale=scale, shuffle=False)))
    dataset = torchvision_cifar10(pixels, labels, to_tensor(scale))
    other = next(iter(DataLoader(dataset, batch_size=512)))
    if not torch.allclose(own[0], other[0], atol=1e-5) or not torch.equal(own[1], other[1]):
        sys.exit("The loaders give different images. No time is printed.")


def time_epoch(loader: Iterable[Any], expected: int) -> float:
    start = time.perf_counter()
    count = 0
    for samples, _ in loader:
        count += len(samples)
    seconds = time.perf_counter() - start
    if count != expected:
        sys.exit(f"An epoch had {count} images instead of {expected}. No time is printed.")
    return seconds


def describe(name: str, images: int, seconds: list[float], fastest: float) -> dict[str, Any]:
    cuts = statistics.quantiles(seconds, n=10, method="inclusive")
    row: dict[str, Any] = {
        "loader": name,
        "images": images,
        "batch": BATCH,
        "epochs": len(seconds),
        "median_s": cuts[4],
        "p20_s": cuts[1],
        "p80_s": cuts[7],
        "images_per_s": images / cuts[4],
    }
    if name.startswith("zetamix"):
        row |= {"times_faster": fastest / cuts[4], "target": TARGET}
    return row


def tell(row: dict[str, Any]) -> None:
    line = (
        f"{row['loader']}: {row['median_s']:.2f} s (p20 {row['p20_s']:.2f}, p80 "
        f"{row['p80_s']:.2f}), {row['images_per_s']:,.0f} images/s"
    )
    if "times_faster" in row:
        met = "met" if row["times_faster"] >= row["target"] else "missed"
        line += (
            f"; {row['times_faster']:.1f} × the faster DataLoader, target {row['target']:g} {met}"
        )
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
