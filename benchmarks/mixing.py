"""The time of mixing a batch; results are checked before anything is timed."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import CLASSES, CONTENDERS, COPY, MEAN, OURS, Call, Contender
from benchmarks.timing import Step, Timing, time_alternating, time_eager, time_graph
from zetamix import MixPlan
from zetamix.rules import Blend, OneHot
from zetamix.transforms import CutMix, Mixup, MixupOrCutMix, ZetaMix, ZetaMixup

MASK_CLASSES = 5
MASKS, MASKS_COPY = "zetamix ZetaMix, masks", "copy of images and mixed masks"
DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "uint8": torch.uint8,
}
# all rotated buffers together exceed the last-level cache of current hardware
ROTATION_BYTES = 400e6
# largest relative error in norm against float64
ERROR_LIMITS = {"float32": 1e-5, "tf32": 1e-3, "bfloat16": 4e-3, "float16": 1e-3, "uint8": 4e-3}


@dataclass(frozen=True)
class Case:
    """A batch to mix; `threads` of torch on a CPU."""

    shape: tuple[int, ...]
    dtype: str
    device: torch.device
    threads: int = 1

    @property
    def label(self) -> str:
        threads = f", {self.threads} thread{'s' * (self.threads > 1)}" if self.threads else ""
        return f"{' × '.join(map(str, self.shape))}, {self.dtype}{threads}"

    def samples(self, *, unit: bool = False) -> Tensor:
        """Normalised samples, or samples in [0, 1] (`unit`), or bytes."""
        samples = torch.randn(self.shape, device=self.device)
        if unit or self.dtype == "uint8":
            samples = (samples * 0.2 + MEAN).clamp(0, 1)
        return (samples * 255 if self.dtype == "uint8" else samples).to(DTYPES[self.dtype])

    def labels(self) -> Tensor:
        return torch.randint(CLASSES, self.shape[:1], device=self.device)


class WrongResultError(SystemExit):
    """Our result differs from float64: the benchmark ends."""


def check(case: Case) -> None:
    """Compare every transform with its plan applied in float64."""
    samples, labels = case.samples(), case.labels()
    mean = MEAN if case.dtype == "uint8" else None
    some: dict[str, Any] = {"sources": min(8, case.shape[0])}
    pastes: tuple[dict[str, Any], ...] = ({}, {"paste": 0.0}, {"paste": 1.0})
    kinds: list[tuple[type, dict[str, Any]]] = [
        *((ZetaMix, {"mean": mean, **paste}) for paste in pastes),
        (ZetaMix, {"mean": mean, "paste": 0.0, "sources": min(4, case.shape[0])}),
        *((kind, {}) for kind in (Mixup, CutMix, MixupOrCutMix, ZetaMixup)),
        (ZetaMixup, some),
    ]
    for kind, options in kinds:
        first, second = (
            kind(
                num_classes=CLASSES,
                generator=torch.Generator(case.device).manual_seed(1),
                **options,
            )
            for _ in range(2)
        )
        mixed, targets = first(samples, labels)
        plan = second.make_plan(case.shape[0], size=case.shape[2:], device=case.device)
        one_hot = torch.nn.functional.one_hot(labels, CLASSES).double()
        for part, actual, expected, bound in (
            ("samples", mixed, mix_by_hand(samples, plan, mean), ERROR_LIMITS[case.dtype]),
            ("targets", targets, plan.matrix().double() @ one_hot, 1e-6),
        ):
            error = ((actual.double() - expected).norm() / expected.norm()).item()
            if not error <= bound:
                raise WrongResultError(
                    f"{case.label}, {first}: expected {part} with a relative error of at most "
                    f"{bound:.0e}, got {error:.2e}. Nothing was timed."
                )


def mix_by_hand(samples: Tensor, plan: MixPlan, mean: float | None) -> Tensor:
    """The plan applied in float64: Eq. 2, its scale, and its boxes one by one."""
    middle = 0.0 if mean is None else 255 * mean
    exact = samples.double() - middle
    matrix = plan.matrix().double()
    if plan.keep_variance:
        matrix = matrix / matrix.norm(dim=1, keepdim=True)
    mixed = (matrix @ exact.flatten(1)).view_as(exact)
    if plan.boxes is not None:
        for k, boxes in enumerate(plan.boxes.tolist()):
            for source, (top, left, bottom, right) in enumerate(boxes):
                pasted = exact[plan.indices[k, source], :, top:bottom, left:right]
                mixed[k, :, top:bottom, left:right] = pasted
    mixed += middle
    return mixed if mean is None else mixed.clamp(0, 255)


def measure(
    case: Case, rounds: int, contenders: tuple[Contender, ...] = CONTENDERS
) -> list[dict[str, Any]]:
    """Check our results, then time every contender that is installed: a row for each."""
    torch.backends.cuda.matmul.allow_tf32 = case.dtype == "tf32"
    before = torch.get_num_threads()
    torch.set_num_threads(case.threads or before)
    try:
        check(case)
        timings = _time(case, rounds, contenders)
    finally:
        torch.set_num_threads(before)
    facts = {"shape": case.shape, "dtype": case.dtype, "threads": case.threads}
    return [
        {
            **facts,
            "contender": name,
            "mode": mode,
            **asdict(timing),
            "times_copy": timing.median_us / timings[COPY, mode].median_us,
        }
        for (name, mode), timing in timings.items()
    ]


def _time(
    case: Case, rounds: int, contenders: tuple[Contender, ...]
) -> dict[tuple[str, str], Timing]:
    """The times by contender and mode, eager or graph."""
    count = max(2, min(300, int(ROTATION_BYTES // case.samples().nbytes) + 1))
    steps = _make_steps(case, contenders, count)
    if case.device.type == "cpu":
        return {(name, "eager"): timing for name, timing in time_alternating(steps, rounds).items()}
    timings = {}
    for contender in contenders:
        if contender.name in steps:
            step = steps[contender.name]
            timings[contender.name, "eager"] = time_eager(step)
            if contender.captures:
                # each buffer once, so that a replay does not find it in the cache
                timings[contender.name, "graph"] = time_graph(step, calls=max(24, count))
    return timings


def _make_steps(case: Case, contenders: tuple[Contender, ...], count: int) -> dict[str, Step]:
    """A call per contender that supports the case, on rotating buffers."""
    labels = case.labels()
    buffers = {unit: [case.samples(unit=unit) for _ in range(count)] for unit in (False, True)}

    def make(call: Call, buffers: list[Tensor]) -> Step:
        return lambda turn: call(buffers[turn % count], labels)

    steps: dict[str, Step] = {}
    for contender in contenders:
        if DTYPES[case.dtype] in contender.dtypes:
            with suppress(ImportError):
                steps[contender.name] = make(contender.build(), buffers[contender.unit])
    if case.device.type == "cpu" and case.dtype == "float32":
        steps |= _mask_steps(case, buffers[False])
    return steps


def _mask_steps(case: Case, buffers: list[Tensor]) -> dict[str, Step]:
    """Images with their masks, and a copy of what mixing them returns."""
    masks = torch.randint(MASK_CLASSES, (case.shape[0], *case.shape[2:]))
    mixed = torch.rand(case.shape[0], MASK_CLASSES, *case.shape[2:])
    transform = ZetaMix(rules=(Blend(), OneHot(MASK_CLASSES)))
    return {
        MASKS_COPY: lambda turn: (buffers[turn % len(buffers)].clone(), mixed.clone()),
        MASKS: lambda turn: transform((buffers[turn % len(buffers)], masks)),
    }


def table(case: Case, rows: list[dict[str, Any]]) -> str:
    """The times of a case as text, relative to a copy and to ZetaMix."""
    ours = {row["mode"]: row["median_us"] for row in rows if row["contender"] == OURS}
    heading = f"{'median µs':>12}{'p20':>10}{'p80':>10}{'× copy':>9}{'× ZetaMix':>11}"
    lines = ["", f"{case.label:<42}{heading}"]
    for row in rows:
        name = row["contender"] + ("" if row["mode"] == "eager" else ", graph")
        times = f"{row['median_us']:>12,.1f}{row['p20_us']:>10,.1f}{row['p80_us']:>10,.1f}"
        relative = row["median_us"] / ours[row["mode"]]
        lines.append(f"{name:<42}{times}{row['times_copy']:>9.2f}{relative:>11.2f}")
    return "\n".join(lines) + "\n"
