"""Timing after warm-up, on rotated buffers larger than the cache, as quantiles."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import quantiles

import torch

Step = Callable[[int], object]


@dataclass(frozen=True)
class Timing:
    """Microseconds per call."""

    median_us: float
    p20_us: float
    p80_us: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        deciles = [1e6 * cut for cut in quantiles(seconds, n=10, method="inclusive")]
        return cls(deciles[4], deciles[1], deciles[7])


def time_alternating(steps: dict[str, Step], rounds: int) -> dict[str, Timing]:
    """Time CPU calls in turn, in an order that changes every round: noise affects all of them."""
    samples: dict[str, list[float]] = {name: [] for name in steps}
    shuffler = random.Random(0)
    warm_up = 2
    for turn in range(warm_up + rounds):
        for name, step in shuffler.sample(list(steps.items()), len(steps)):
            start = time.perf_counter()
            step(turn)
            elapsed = time.perf_counter() - start
            if turn >= warm_up:
                samples[name].append(elapsed)
    return {name: Timing.of(values) for name, values in samples.items()}


def time_eager(step: Step, *, calls: int = 40, rounds: int = 15) -> Timing:
    """Time CUDA calls as in a training loop: the host waits only at the end of a round."""
    turns = count()
    for _ in range(10):
        step(next(turns))
    samples = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            step(next(turns))
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) / calls)
    return Timing.of(samples)


def time_graph(step: Step, *, calls: int = 24, rounds: int = 30) -> Timing:
    """Time replays of a CUDA graph of `calls` calls, with device events."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for turn in range(3):
            step(turn)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for turn in range(calls):
            step(turn)
    samples = []
    for turn in range(3 + rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if turn >= 3:
            samples.append(start.elapsed_time(end) / 1e3 / calls)
    return Timing.of(samples)
