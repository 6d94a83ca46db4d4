"""Run the benchmark: correctness first, then times. A failure prints no time."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from zetamix import mixup, mixup_plan, zeta_mixup, zeta_plan
from zetamix.bench.contenders import CONTENDERS, COPY, OURS, Call, Contender
from zetamix.bench.timing import Step, Timing, time_alternating, time_eager, time_graph

CLASSES = 10
# rotated buffers together exceed any last-level cache of today
ROTATION_BYTES = 400e6

# relative error in norm against float64 that each dtype is held to
ERROR_LIMITS = {torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 1e-3}
TF32_LIMIT = 1e-3


@dataclass(frozen=True)
class Case:
    """One batch to mix."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    tf32: bool = False

    @property
    def label(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.") + (", TF32 allowed" if self.tf32 else "")
        return f"{' × '.join(map(str, self.shape))}, {dtype}"

    def samples(self) -> Tensor:
        return torch.randn(self.shape, device=self.device).to(self.dtype)


@dataclass(frozen=True)
class Row:
    """What one contender took for one case; `mode` is "eager" or "graph"."""

    shape: tuple[int, ...]
    dtype: str
    tf32: bool
    contender: str
    mode: str
    median_us: float
    p20_us: float
    p80_us: float
    times_copy: float
    """Median over the median of the copy in the same mode."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class WrongResultError(RuntimeError):
    """Our result is not the specification's: no time is worth printing."""


def check(case: Case) -> None:
    """Our mixing against float64, from the same plan: all sources, few, and mixup."""
    limit = TF32_LIMIT if case.tf32 else ERROR_LIMITS[case.dtype]
    samples = case.samples()
    batch = case.shape[0]
    few = min(8, batch)
    labels = torch.randint(CLASSES, (batch,), device=case.device)
    for name, function, plan_of in (
        ("all sources", zeta_mixup, zeta_plan),
        ("8 sources", partial(zeta_mixup, sources=few), partial(zeta_plan, sources=few)),
        ("mixup", mixup, mixup_plan),
    ):
        generators = [torch.Generator(case.device).manual_seed(1) for _ in range(2)]
        mixed, targets = function(samples, labels, CLASSES, generator=generators[0])
        matrix = plan_of(batch, generator=generators[1]).matrix().double()
        onehot = torch.nn.functional.one_hot(labels, CLASSES).double()
        found = {
            "samples": (mixed.flatten(1), matrix @ samples.flatten(1).double(), limit),
            "targets": (targets, matrix @ onehot, 1e-6),
        }
        for part, (actual, expected, bound) in found.items():
            error = ((actual.double() - expected).norm() / expected.norm()).item()
            if not error <= bound:
                raise WrongResultError(
                    f"{case.label}, {name}: {part} are off by {error:.2e} of their norm, more "
                    f"than {bound:.0e}. No time is printed for a wrong result."
                )


def measure(case: Case, rounds: int, contenders: tuple[Contender, ...] = CONTENDERS) -> list[Row]:
    """Check, then time every installed contender on this case."""
    check(case)
    nbytes = torch.Size(case.shape).numel() * case.dtype.itemsize
    count = max(2, min(300, int(ROTATION_BYTES // nbytes) + 1))
    buffers = [case.samples() for _ in range(count)]
    labels = torch.randint(CLASSES, (case.shape[0],), device=case.device)
    steps = dict(_steps(case, contenders, buffers, labels))
    if case.device.type == "cpu":
        timings = {(name, "eager"): t for name, t in time_alternating(steps, rounds).items()}
    else:
        timings = {}
        for contender in contenders:
            if contender.name in steps:
                step = steps[contender.name]
                timings[contender.name, "eager"] = time_eager(step)
                if contender.captures:
                    # every buffer once, so that a replay cannot find them in the cache
                    timings[contender.name, "graph"] = time_graph(step, calls=max(24, count))
    return [_row(case, name, mode, timings) for name, mode in timings]


def _steps(
    case: Case, contenders: tuple[Contender, ...], buffers: list[Tensor], labels: Tensor
) -> Iterator[tuple[str, Step]]:
    for contender in contenders:
        if not contender.installed() or not contender.takes(case.shape[0], case.dtype):
            continue
        call = contender.build(CLASSES)
        yield contender.name, partial(_step, call, buffers, labels)


def _step(call: Call, buffers: list[Tensor], labels: Tensor, turn: int) -> object:
    return call(buffers[turn % len(buffers)], labels)


def _row(case: Case, name: str, mode: str, timings: dict[tuple[str, str], Timing]) -> Row:
    timing = timings[name, mode]
    return Row(
        shape=case.shape,
        dtype=str(case.dtype).removeprefix("torch."),
        tf32=case.tf32,
        contender=name,
        mode=mode,
        median_us=timing.median * 1e6,
        p20_us=timing.p20 * 1e6,
        p80_us=timing.p80 * 1e6,
        times_copy=timing.median / timings[COPY, mode].median,
    )


def fastest_peer(rows: list[Row], peers: tuple[str, ...]) -> tuple[str, float] | None:
    """The fastest peer of one case and how many times our eager time it takes; None without any."""
    eager = {row.contender: row.median_us for row in rows if row.mode == "eager"}
    measured = {name: eager[name] for name in peers if name in eager}
    if not measured:
        return None
    best = min(measured, key=measured.__getitem__)
    return best, measured[best] / eager[OURS]
