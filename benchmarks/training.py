"""Time the training step of the paper's recipes: eager, captured, compiled, and side by side.

    python benchmarks/training.py --json benchmarks/training_h200.json

Random images of CIFAR-10's and Fashion-MNIST's size stand in for the data, which the time of a step
does not depend on. Medians of five stretches, in milliseconds per step of one model.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from zetamix.atomic_io import write_json
from zetamix.data import Dataset, from_tensors
from zetamix.methods import parse
from zetamix.provenance import machine_info, machine_summary
from zetamix.train import RECIPES
from zetamix.train.cuda_graph import CapturedStep
from zetamix.train.trainer import Trainer

STRETCHES = 5
CIFAR, FASHION = ("cifar10", 50_000, (3, 32, 32)), ("fashion_mnist", 60_000, (1, 28, 28))


@dataclass(frozen=True)
class Case:
    data: tuple[str, int, tuple[int, ...]]
    methods: tuple[str, ...]
    how: str
    """eager, graph, or compiled: a compiled model inside a graph."""
    target_ms: float | None = None

    @property
    def label(self) -> str:
        beside = f" × {len(self.methods)} side by side" if len(self.methods) > 1 else ""
        return f"{self.data[0]}, {self.methods[0]}, {self.how}{beside}"


CASES = [
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="steps of one stretch, per model")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; this benchmark is about one.")
    device = torch.device("cuda", 0)
    torch.backends.cudnn.benchmark = True
    facts = machine_info(device)
    facts["command"] = " ".join(["python benchmarks/training.py", *sys.argv[1:-1]])
    if arguments.json is not None:
        facts["command"] += f" {arguments.json.name}"
    rows: list[dict[str, Any]] = []
    data = {name: random_images(name, count, shape) for name, count, shape in (CIFAR, FASHION)}
    for case in CASES:
        rows.append(measure(case, data[case.data[0]], device, arguments.steps))
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
    recipe = RECIPES[case.data[0]].change(augmentation="crop-flip")
    steppers: list[Callable[[], None]] = []
    for seed, method in enumerate(case.methods):
        compiled = case.how == "compiled"
        trainer = Trainer(data, parse(method), recipe, seed=seed, device=device, compile=compiled)
        trainer.start_epoch()
        steppers.append(trainer.step if case.how == "eager" else CapturedStep(trainer))
    torch.cuda.synchronize()
    setup = time.perf_counter() - began
    stretch(steppers, steps)
    times = sorted(stretch(steppers, steps) for _ in range(STRETCHES))
    return {
        "label": case.label,
        **asdict(case),
        "median_ms": statistics.median(times),
        "fastest_ms": times[0],
        "slowest_ms": times[-1],
        "setup_s": setup,
    }


def stretch(steppers: list[Callable[[], None]], steps: int) -> float:
    """Milliseconds per step of one model."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        for step in steppers:
            with (
                torch.cuda.stream(step.stream) if isinstance(step, CapturedStep) else nullcontext()
            ):
                step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / steps / len(steppers)


def own_stream(step: Callable[[], None]) -> AbstractContextManager[Any]:
    return torch.cuda.stream(step.stream) if isinstance(step, CapturedStep) else nullcontext()


def tell(row: dict[str, Any]) -> None:
    target = row["target_ms"]
    verdict = (
        "" if target is None else f" (target {target}: {verdict_of(row['median_ms'], target)})"
    )
    sys.stdout.write(f"{row['label']:52s} {row['median_ms']:.3f} ms{verdict}\n")
    sys.stdout.flush()


def verdict_of(value: float, target: float) -> str:
    return "met" if value <= target else f"missed by {100 * (value / target - 1):.1f} %"


if __name__ == "__main__":
    main()
