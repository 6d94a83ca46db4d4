"""Time and memory of mixing against the batch size, the sources and the size of samples."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.contenders import COPY
from benchmarks.memory import peak_bytes
from benchmarks.timing import Step, Timing, time_alternating, time_eager
from zetamix import ZetaMix, ZetaMixup
from zetamix.batch_mix import BatchMix

CLASSES = 10
ZETAMIX, ALL_SOURCES, SOME_SOURCES = "ZetaMix", "ζ-mixup, all sources", "ζ-mixup, some sources"
BATCHES = tuple(2**k for k in range(4, 14))
SOURCES = (2, 4, 8, 16, 32, 64, 128)
SIDES = (8, 16, 32, 64, 128, 224)
# from this size on, a call with all sources takes 0.2 s or more, and few rounds are enough
SLOW_BATCH = 2048


@dataclass(frozen=True)
class Point:
    """A batch to mix; `axis` is what varies: batch, sources or side of the images."""

    axis: str
    batch: int
    side: int
    sources: int | None = None
    """Sources of ζ-mixup; all of the batch by default."""

    @property
    def at(self) -> int:
        grows = {"batch": self.batch, "side": self.side, "sources": self.sources or self.batch}
        return grows[self.axis]


@dataclass(frozen=True)
class ScalingRow:
    """Time and memory of one method at one point."""

    axis: str
    at: int
    method: str
    shape: tuple[int, ...]
    median_us: float
    peak_bytes: int


def scaling_points() -> list[Point]:
    """The points of the figure, in the order in which they are measured."""
    return [
        *(Point("sources", 128, 32, count) for count in SOURCES),
        *(Point("side", 64, side) for side in SIDES),
        *(Point("batch", batch, 32) for batch in BATCHES),
    ]


def measure_point(point: Point, device: torch.device, rounds: int) -> Iterator[ScalingRow]:
    """Time and memory of a copy, of ZetaMix and of ζ-mixup; memory is the peak of one call."""
    shape = (point.batch, 3, point.side, point.side)
    samples = torch.randn(shape, device=device)
    labels = torch.randint(CLASSES, (point.batch,), device=device)
    paper = ZetaMixup(num_classes=CLASSES, gamma=2.8, sources=point.sources)
    steps: dict[str, Step] = {
        COPY: lambda turn: samples.clone(),
        ZETAMIX: _bind(ZetaMix(num_classes=CLASSES), samples, labels),
        ALL_SOURCES if point.sources is None else SOME_SOURCES: _bind(paper, samples, labels),
    }
    timings = _time(steps, device, 5 if point.batch >= SLOW_BATCH else rounds)
    for name, step in steps.items():
        memory = peak_bytes(partial(step, 0), device)
        yield ScalingRow(point.axis, point.at, name, shape, timings[name].median * 1e6, memory)


def _bind(transform: BatchMix, samples: Tensor, labels: Tensor) -> Step:
    return lambda turn: transform(samples, labels)


def _time(steps: dict[str, Step], device: torch.device, rounds: int) -> dict[str, Timing]:
    if device.type == "cpu":
        return time_alternating(steps, rounds)
    return {name: time_eager(step, rounds=rounds) for name, step in steps.items()}
