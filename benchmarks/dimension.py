"""Time `local_dimension` on CIFAR-10; behind a check of the result.

    python benchmarks/dimension.py --data cifar10.npz --json benchmarks/dimension_cpu.json
    python benchmarks/dimension.py --device cuda --data cifar10.npz --json dimension_h200.json

On a CPU: 1000 images beside scikit-dimension in one run (about two minutes). On a GPU: all 50,000
with 128 and with 8 neighbours. The file holds `train_images`, [50000, 32, 32, 3].
"""

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paper.measure import local_dimension
from zetamix.atomic_io import write_json
from zetamix_lab.provenance import machine_info, machine_summary

SUBSET = 1000
NEIGHBOURS = (128, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--memory-gb", type=float, help="1 on a CPU, 64 on a GPU")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    images = torch.from_numpy(np.load(arguments.data)["train_images"]).flatten(1)
    device = torch.device(arguments.device)
    memory = arguments.memory_gb or (64.0 if device.type == "cuda" else 1.0)
    measure = measure_gpu if device.type == "cuda" else measure_cpu
    rows = measure(images, memory, arguments.runs)
    facts = machine_info(device)
    # without the folders of this machine
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    facts["command"] = " ".join(["python benchmarks/dimension.py", *words])
    for row in rows:
        tell(row)
    sys.stdout.write(machine_summary(facts) + "\n")
    if arguments.json is not None:
        write_json(arguments.json, {"machine": facts, "rows": rows})


def measure_cpu(images: Tensor, memory: float, runs: int) -> list[dict[str, Any]]:
    """1000 images, 128 neighbours; scikit-dimension once, ours before and after it."""
    points = images[:SUBSET].double()
    found, seconds = timed(lambda: local_dimension(points, 128, memory_gb=memory), runs)
    expected, theirs = timed(lambda: scikit_dimension(points), 1)
    check(found, expected)
    seconds += timed(lambda: local_dimension(points, 128, memory_gb=memory), runs)[1]
    row = describe(points, 128, memory, found, seconds)
    return [row | {"skdim_seconds": theirs[0], "times_faster": theirs[0] / row["median_s"]}]


def measure_gpu(images: Tensor, memory: float, runs: int) -> list[dict[str, Any]]:
    """All images with each number of neighbours, from points that are on the GPU already."""
    points = images.cuda().float() / 255
    rows = []
    for neighbours in NEIGHBOURS:
        few = points[:SUBSET]
        check(local_dimension(few, neighbours).cpu(), local_dimension(few.cpu(), neighbours))

        def call(count: int = neighbours) -> Tensor:
            return local_dimension(points, count, memory_gb=memory)

        torch.cuda.reset_peak_memory_stats()
        found, seconds = timed(call, runs)
        row = describe(points, neighbours, memory, found, seconds)
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        rows.append(row)
    return rows


def timed(call: Callable[[], Tensor], runs: int) -> tuple[Tensor, list[float]]:
    """The result and the seconds of each run; one run more warms up where there are several."""
    seconds = []
    for _ in range(runs + (runs > 1)):
        synchronise()
        start = time.perf_counter()
        found = call()
        synchronise()
        seconds.append(time.perf_counter() - start)
    return found, seconds[-runs:]


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def scikit_dimension(points: Tensor) -> Tensor:
    import skdim

    estimator = skdim.id.lPCA(ver="FO", alphaFO=0.05)
    with warnings.catch_warnings():
        # its ratios of eigenvalues divide by zero
        warnings.simplefilter("ignore", RuntimeWarning)
        fitted = estimator.fit_pw(points.numpy(), n_neighbors=128, n_jobs=1)
    return torch.from_numpy(fitted.dimension_pw_)


def check(found: Tensor, expected: Tensor) -> None:
    wrong = int((found != expected).sum())
    if wrong:
        sys.exit(f"{wrong} of {len(found)} points have another dimension. No time is printed.")


def describe(
    points: Tensor, neighbours: int, memory: float, found: Tensor, seconds: list[float]
) -> dict[str, Any]:
    cuts = statistics.quantiles(seconds, n=10, method="inclusive")
    return {
        "points": len(points),
        "features": points.shape[1],
        "neighbours": neighbours,
        "memory_gb": memory,
        "mean_dimension": float(found.double().mean()),
        "runs": len(seconds),
        "median_s": cuts[4],
        "p20_s": cuts[1],
        "p80_s": cuts[7],
    }


def tell(row: dict[str, Any]) -> None:
    line = (
        f"{row['points']} × {row['features']}, {row['neighbours']} neighbours: "
        f"{row['median_s']:.2f} s (p20 {row['p20_s']:.2f}, p80 {row['p80_s']:.2f}), "
        f"mean dimension {row['mean_dimension']:.3f}"
    )
    if "times_faster" in row:
        line += f"; scikit-dimension {row['skdim_seconds']:.1f} s, {row['times_faster']:.0f} ×"
    if "peak_gb" in row:
        line += f"; peak {row['peak_gb']:.1f} GB"
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
