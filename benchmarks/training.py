"""`python -m benchmarks.training`: the time of a training step on a GPU.

    python -m benchmarks.training --json benchmarks/training_h200.json
    python -m benchmarks.training --images 224 --json benchmarks/training_224_h200.json

Random images of the size of CIFAR-10 and Imagenette stand in for the data, which the time of a
step does not depend on. Milliseconds per step of one model: eager, in a CUDA graph, compiled and
in a graph, and side by side. At 224² each model is compared with the same one on a batch that
stays on the device, without loader, augmentation and mixing.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from zetamix.methods import parse
from zetamix_lab.atomic_io import write_json
from zetamix_lab.data import Dataset, from_tensors
from zetamix_lab.provenance import machine_info, machine_summary
from zetamix_lab.train import make_recipe
from zetamix_lab.train.cuda_graph import capture
from zetamix_lab.train.trainer import Trainer

STRETCHES = 5
SIZES = {32: (50_000, 3), 224: (2_048, 3)}


# model, methods that train side by side on one GPU, and how: eager, in a graph, or compiled in one
CASES: dict[int, list[tuple[str, tuple[str, ...], str]]] = {
    32: [
        ("resnet18", ("none",), "eager"),
        ("resnet18", ("none",), "graph"),
        *(("resnet18", (name,), "compiled") for name in ("none", "zetamix", "mixup", "cutmix")),
        ("resnet18", ("zetamix",) * 4, "compiled"),
    ],
    224: [
        (model, (method,), "graph")
        for model in ("resnet18", "resnet50")
        for method in ("none", "zetamix")
    ],
}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, choices=list(SIZES), default=32)
    parser.add_argument("--steps", type=int, default=60, help="of one stretch, per model")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(words)
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; this benchmark is about one.")
    device = torch.device("cuda", 0)
    torch.backends.cudnn.benchmark = True
    facts = machine_info(device, "python -m benchmarks.training")
    data = random_images(arguments.images, *SIZES[arguments.images])
    rows: list[dict[str, Any]] = []
    for case in CASES[arguments.images]:
        rows.append(measure(*case, data, device, arguments.steps))
        sys.stdout.write("{label:52s} {median_ms:.3f} ms\n".format(**rows[-1]))
        sys.stdout.flush()
        if arguments.json is not None:
            write_json(arguments.json, {"machine": facts, "rows": rows})
    sys.stdout.write(machine_summary(facts) + "\n")


def random_images(side: int, count: int, channels: int) -> Dataset:
    draw = torch.Generator().manual_seed(0)
    shape = count, channels, side, side
    samples = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
    labels = torch.randint(0, 10, (count,), generator=draw)
    splits = {"train": (samples, labels), "test": (samples[:512], labels[:512])}
    return from_tensors(f"random-{side}", splits)


def measure(
    model: str, methods: tuple[str, ...], how: str, data: Dataset, device: torch.device, steps: int
) -> dict[str, Any]:
    recipe = make_recipe(data, model=model, augmentation="crop-flip")
    trainers = []
    for seed, method in enumerate(methods):
        compiled = how == "compiled"
        trainer = Trainer(data, parse(method), recipe, seed=seed, device=device, compile=compiled)
        trainer.start_epoch()
        if how != "eager":
            capture(trainer)
        trainers.append(trainer)
    stretch(trainers, steps)
    times = sorted(stretch(trainers, steps) for _ in range(STRETCHES))
    beside = f" × {len(methods)} side by side" if len(methods) > 1 else ""
    return {
        "label": f"{model}, {methods[0]}, {how}{beside}",
        "batch_size": recipe.batch_size,
        "median_ms": statistics.median(times),
        "fastest_ms": times[0],
        "slowest_ms": times[-1],
    }


def stretch(trainers: list[Trainer], steps: int) -> float:
    """Milliseconds per step of one model; an epoch that ends is followed by the next."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        for trainer in trainers:
            with torch.cuda.stream(trainer.stream):
                if not trainer.steps_left:
                    trainer.step_in_epoch = 0
                    trainer.epoch += 1
                    trainer.start_epoch()
                trainer.step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / steps / len(trainers)


if __name__ == "__main__":
    main()
