"""Time the training step of the paper's recipes: eager, captured, compiled, and side by side.

    python benchmarks/training.py --json benchmarks/training_h200.json
    python benchmarks/training.py --cases 224 --json benchmarks/training_224_h200.json

Random images of the size of CIFAR-10, Fashion-MNIST and, for 224, Imagenette stand in for the data,
which the time of a step does not depend on. Medians of five stretches, in milliseconds per step of
one model. The cases of 224 are compared with the same model and optimiser on one batch that stays
on the device, without loader, augmentation and mixing.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zetamix.atomic_io import write_json
from zetamix.methods import parse
from zetamix_lab.data import Dataset, from_tensors
from zetamix_lab.provenance import machine_info, machine_summary
from zetamix_lab.train import RECIPES, Recipe
from zetamix_lab.train.cuda_graph import CapturedStep
from zetamix_lab.train.trainer import Trainer

STRETCHES = 5
CIFAR, FASHION = ("cifar10", 50_000, (3, 32, 32)), ("fashion_mnist", 60_000, (1, 28, 28))
# 64 steps of 32, then the next epoch is drawn; Imagenette has 295, ISIC 2016 has 28
PHOTOS = ("imagenette", 2_048, (3, 224, 224))
# what `--tiny` takes instead, and its batch size
TINY, TINY_BATCH = ("imagenette", 8, (3, 72, 72)), 4
# the step of 224, times that of one resident batch
TARGET_RATIO = 1.5


@dataclass(frozen=True)
class Case:
    data: tuple[str, int, tuple[int, ...]]
    methods: tuple[str, ...]
    how: str
    """eager, graph, compiled: a compiled model inside a graph, or resident: one batch, in a graph.
    """
    target_ms: float | None = None
    model: str = "resnet18"

    @property
    def label(self) -> str:
        beside = f" × {len(self.methods)} side by side" if len(self.methods) > 1 else ""
        model = "" if self.data in (CIFAR, FASHION) else f"{self.model}, "
        return f"{self.data[0]}, {model}{self.methods[0]}, {self.how}{beside}"


SMALL = [
    Case(CIFAR, ("none",), "eager"),
    *[Case(CIFAR, (name,), "graph") for name in ("none", "zeta:2.8")],
    Case(CIFAR, ("none",), "compiled", 2.5),
    *[Case(CIFAR, (name,), "compiled") for name in ("zeta:2.8", "mixup", "cutmix")],
    Case(CIFAR, ("none",) * 4, "compiled", 1.9),
    Case(CIFAR, ("zeta:2.8",) * 4, "compiled", 1.9),
    Case(CIFAR, ("zeta:2.8",) * 8, "compiled", 1.9),
    Case(FASHION, ("zeta:2.8",), "compiled"),
    Case(FASHION, ("zeta:2.8",) * 4, "compiled", 0.85),
    Case(FASHION, ("zeta:2.8",) * 8, "compiled", 0.85),
]
LARGE = [
    Case(PHOTOS, (method,), how, model=model)
    for model in ("resnet18", "resnet50")
    for method, how in (("none", "resident"), ("none", "graph"), ("zetamix", "graph"))
]
GROUPS = {"small": SMALL, "224": LARGE, "all": [*SMALL, *LARGE]}


class ResidentTrainer(Trainer):
    """The same model and optimiser on the first batch again and again: nothing but the network."""

    batch: tuple[Tensor, Tensor] | None = None

    def start_epoch(self) -> None:
        # once: a captured graph reads the memory of this batch for ever
        if self.batch is None:
            super().start_epoch()
            self.batch = next(iter(self.loader))

    def compute(self, batch_size: int) -> None:
        if self.batch is None:
            raise RuntimeError("Expected start_epoch() before the first step.")
        samples, labels = self.batch
        with self.autocast():
            logits = self.forward(samples)
        loss = self.loss(logits.float(), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", choices=list(GROUPS), default="small")
    parser.add_argument("--steps", type=int, default=60, help="steps of one stretch, per model")
    parser.add_argument("--tiny", action="store_true", help="try the cases of 224 on a CPU")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not (torch.cuda.is_available() or arguments.tiny):
        sys.exit("torch finds no CUDA device; this benchmark is about one.")
    device = torch.device("cpu") if arguments.tiny else torch.device("cuda", 0)
    torch.backends.cudnn.benchmark = True
    facts = machine_info(device)
    # without the folders of this machine
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    facts["command"] = " ".join(["python benchmarks/training.py", *words])
    cases = GROUPS[arguments.cases]
    if arguments.tiny:
        cases = [replace(case, data=TINY) for case in LARGE]
    rows: list[dict[str, Any]] = []
    data = {kind[0]: random_images(*kind) for kind in {case.data for case in cases}}
    for case in cases:
        rows.append(measure(case, data[case.data[0]], device, arguments.steps))
        compare_with_resident(rows)
        tell(rows[-1])
        if arguments.json is not None:
            write_json(arguments.json, {"machine": facts, "rows": rows})
    sys.stdout.write(machine_summary(facts) + "\n")


def random_images(name: str, count: int, shape: tuple[int, ...]) -> Dataset:
    draw = torch.Generator().manual_seed(0)
    samples = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=draw)
    labels = torch.randint(0, 10, (count,), generator=draw)
    return from_tensors(name, {"train": (samples, labels), "test": (samples[:512], labels[:512])})


def measure(case: Case, data: Dataset, device: torch.device, steps: int) -> dict[str, Any]:
    began = time.perf_counter()
    recipe = recipe_of(case)
    kind = ResidentTrainer if case.how == "resident" else Trainer
    models: list[tuple[Trainer, Callable[[], None]]] = []
    for seed, method in enumerate(case.methods):
        compiled = case.how == "compiled"
        trainer = kind(data, parse(method), recipe, seed=seed, device=device, compile=compiled)
        trainer.start_epoch()
        captured = device.type == "cuda" and case.how != "eager"
        models.append((trainer, CapturedStep(trainer) if captured else trainer.step))
    synchronize(device)
    setup = time.perf_counter() - began
    stretch(models, steps, device)
    times = sorted(stretch(models, steps, device) for _ in range(STRETCHES))
    return {
        "label": case.label,
        **asdict(case),
        "median_ms": statistics.median(times),
        "fastest_ms": times[0],
        "slowest_ms": times[-1],
        "setup_s": setup,
    }


def recipe_of(case: Case) -> Recipe:
    """The recipe of the dataset, with the augmentation that is the most work."""
    recipe = RECIPES[case.data[0]].change(augmentation="crop-flip", model=case.model)
    return recipe.change(batch_size=TINY_BATCH) if case.data == TINY else recipe


def stretch(
    models: list[tuple[Trainer, Callable[[], None]]], steps: int, device: torch.device
) -> float:
    """Milliseconds per step of one model; an epoch that ends is followed by the next."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(steps):
        for trainer, step in models:
            with own_stream(step):
                if trainer.step_in_epoch == trainer.steps_per_epoch:
                    trainer.step_in_epoch = 0
                    trainer.epoch += 1
                    trainer.start_epoch()
                step()
    synchronize(device)
    return 1000 * (time.perf_counter() - began) / steps / len(models)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def own_stream(step: Callable[[], None]) -> AbstractContextManager[Any]:
    return torch.cuda.stream(step.stream) if isinstance(step, CapturedStep) else nullcontext()


def compare_with_resident(rows: list[dict[str, Any]]) -> None:
    """Add the ratio to the resident batch of the same model to the last row, where there is one."""
    last = rows[-1]
    floors = [
        row["median_ms"]
        for row in rows
        if (row["how"], row["data"], row["model"]) == ("resident", last["data"], last["model"])
    ]
    if floors and last["how"] != "resident":
        last |= {"times_resident": last["median_ms"] / floors[0], "target_ratio": TARGET_RATIO}


def tell(row: dict[str, Any]) -> None:
    target = row["target_ms"]
    verdict = (
        "" if target is None else f" (target {target}: {verdict_of(row['median_ms'], target)})"
    )
    if "times_resident" in row:
        ratio, target = row["times_resident"], row["target_ratio"]
        verdict = f", {ratio:.3f} × resident (target {target}: {verdict_of(ratio, target)})"
    sys.stdout.write(f"{row['label']:52s} {row['median_ms']:.3f} ms{verdict}\n")
    sys.stdout.flush()


def verdict_of(value: float, target: float) -> str:
    return "met" if value <= target else f"missed by {100 * (value / target - 1):.1f} %"


if __name__ == "__main__":
    main()
