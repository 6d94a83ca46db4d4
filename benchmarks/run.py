"""Run the benchmark: results are checked before anything is timed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import CONTENDERS, COPY, MEAN, OURS, Call, Contender
from benchmarks.timing import Step, Timing, time_alternating, time_eager, time_graph
from zetamix import MixPlan, ZetaMix, mixup, mixup_plan, zeta_mixup, zeta_plan
from zetamix.rules import Blend

CLASSES = 10
# all rotated buffers together exceed the last-level cache of current hardware
ROTATION_BYTES = 400e6

# largest relative error in norm against float64
ERROR_LIMITS = {torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 1e-3}
ERROR_LIMITS[torch.uint8] = 4e-3
TF32_LIMIT = 1e-3


@dataclass(frozen=True)
class Case:
    """A batch to mix."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    tf32: bool = False
    channels_last: bool = False

    @property
    def label(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.") + (", TF32 allowed" if self.tf32 else "")
        layout = ", channels last" if self.channels_last else ""
        return f"{' × '.join(map(str, self.shape))}, {dtype}{layout}"

    def samples(self) -> Tensor:
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        samples = torch.randn(self.shape, device=self.device)
        if self.dtype == torch.uint8:
            samples = (samples * 50 + 255 * MEAN).clamp(0, 255)
        return samples.to(self.dtype, memory_format=layout)


@dataclass(frozen=True)
class Row:
    """The time of one contender in one case; `mode` is "eager" or "graph"."""

    shape: tuple[int, ...]
    dtype: str
    tf32: bool
    channels_last: bool
    contender: str
    mode: str
    median_us: float
    p20_us: float
    p80_us: float
    times_copy: float
    """Median over the median of the copy in the same mode."""


class WrongResultError(RuntimeError):
    """Our result differs from the float64 reference."""


def check(case: Case) -> None:
    """Compare ZetaMix, mixup, and ζ-mixup of all and of eight sources with float64."""
    samples = case.samples()
    labels = torch.randint(CLASSES, (case.shape[0],), device=case.device)

    def generator() -> torch.Generator:
        return torch.Generator(case.device).manual_seed(1)

    mean = MEAN if case.dtype == torch.uint8 else None
    four = {"paste": 0.0, "sources": min(4, case.shape[0])}
    every: tuple[dict[str, Any], ...] = ({}, {"paste": 0.0}, {"paste": 1.0}, four)
    for options in every:
        options |= {"num_classes": CLASSES, "mean": mean}
        mixed, targets = _zetamix(samples, labels, generator=generator(), **options)
        size = case.shape[2], case.shape[3]
        transform = ZetaMix(generator=generator(), **options)
        plan = transform.make_plan(case.shape[0], size=size, device=case.device)
        _compare(case, str(transform), plan, samples, labels, mixed, targets, mean)
    few = min(8, case.shape[0])
    for name, function, make_plan in (
        ("mixup", mixup, mixup_plan),
        ("all sources", zeta_mixup, zeta_plan),
        ("8 sources", partial(zeta_mixup, sources=few), partial(zeta_plan, sources=few)),
    ):
        mixed, targets = function(samples, labels, CLASSES, generator=generator())
        plan = make_plan(case.shape[0], generator=generator())
        _compare(case, name, plan, samples, labels, mixed, targets)


def _zetamix(samples: Tensor, labels: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    return ZetaMix(**options)(samples, labels)


def _compare(
    case: Case,
    name: str,
    plan: MixPlan,
    samples: Tensor,
    labels: Tensor,
    mixed: Tensor,
    targets: Tensor,
    mean: float | None = None,
) -> None:
    """Raise unless both agree with the plan applied in float64."""
    limit = TF32_LIMIT if case.tf32 else ERROR_LIMITS[case.dtype]
    # a mean is for samples in [0, 1]
    largest = 1 if mean is None else 255
    expected_samples = largest * Blend(mean).mix(samples.double() / largest, plan, "reference")
    one_hot = torch.nn.functional.one_hot(labels, CLASSES).double()
    for part, actual, expected, bound in (
        ("samples", mixed, expected_samples, limit),
        ("targets", targets, plan.matrix().double() @ one_hot, 1e-6),
    ):
        error = ((actual.double() - expected).norm() / expected.norm()).item()
        if not error <= bound:
            raise WrongResultError(
                f"{case.label}, {name}: expected {part} with a relative error of at most "
                f"{bound:.0e}, got {error:.2e}. Nothing was timed."
            )


def measure(case: Case, rounds: int, contenders: tuple[Contender, ...] = CONTENDERS) -> list[Row]:
    """Check our results, then time every installed contender."""
    check(case)
    nbytes = torch.Size(case.shape).numel() * case.dtype.itemsize
    count = max(2, min(300, int(ROTATION_BYTES // nbytes) + 1))
    buffers = [case.samples() for _ in range(count)]
    labels = torch.randint(CLASSES, (case.shape[0],), device=case.device)
    steps = _make_steps(case, contenders, buffers, labels)
    if case.device.type == "cpu":
        timings = {(name, "eager"): t for name, t in time_alternating(steps, rounds).items()}
    else:
        timings = {}
        for contender in contenders:
            if contender.name in steps:
                step = steps[contender.name]
                timings[contender.name, "eager"] = time_eager(step)
                if contender.captures:
                    # each buffer once, so that a replay does not find it in the cache
                    timings[contender.name, "graph"] = time_graph(step, calls=max(24, count))
    return [_row(case, name, mode, timings) for name, mode in timings]


def _make_steps(
    case: Case, contenders: tuple[Contender, ...], buffers: list[Tensor], labels: Tensor
) -> dict[str, Step]:
    """A call per contender that is installed and supports the case, on rotating buffers."""

    def make(call: Call) -> Step:
        return lambda turn: call(buffers[turn % len(buffers)], labels)

    return {
        contender.name: make(contender.build(CLASSES))
        for contender in contenders
        if contender.installed() and contender.supports(buffers[0])
    }


def _row(case: Case, name: str, mode: str, timings: dict[tuple[str, str], Timing]) -> Row:
    timing = timings[name, mode]
    return Row(
        shape=case.shape,
        dtype=str(case.dtype).removeprefix("torch."),
        tf32=case.tf32,
        channels_last=case.channels_last,
        contender=name,
        mode=mode,
        median_us=timing.median * 1e6,
        p20_us=timing.p20 * 1e6,
        p80_us=timing.p80 * 1e6,
        times_copy=timing.median / timings[COPY, mode].median,
    )


def fastest_peer(rows: list[Row], peers: tuple[str, ...]) -> tuple[str, float] | None:
    """The fastest peer of one case and its eager time relative to ours; None if there is none."""
    eager = {row.contender: row.median_us for row in rows if row.mode == "eager"}
    measured = {name: eager[name] for name in peers if name in eager}
    if not measured:
        return None
    best = min(measured, key=measured.__getitem__)
    return best, measured[best] / eager[OURS]
