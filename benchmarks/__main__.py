"""`python -m benchmarks`: the time of mixing a batch, beside a copy and other libraries.

    python -m benchmarks --json benchmarks/cpu.json
    python -m benchmarks --device cuda --json benchmarks/h200.json

Our results are compared with float64 before anything is timed.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.mixing import DTYPES, Case, measure, table
from zetamix_lab.atomic_io import write_json
from zetamix_lab.provenance import machine_info, machine_summary

SHAPES = {
    "cpu": "16x3x32x32,128x3x32x32,64x3x96x96,32x3x224x224,128x3x224x224",
    "cuda": "32x3x224x224,128x3x32x32,128x3x224x224,256x3x224x224",
}
THREADS = (1, 2)


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    device = torch.device(arguments.device)
    dtypes = arguments.dtypes or (list(DTYPES) if device.type == "cuda" else ["float32", "uint8"])
    facts = machine_info(device, "python -m benchmarks")
    rows: list[dict[str, Any]] = []
    for threads in [0] if device.type == "cuda" else THREADS:
        for shape in arguments.shapes or shapes(SHAPES[device.type]):
            for dtype in dtypes:
                case = Case(shape, dtype, device, threads)
                rows += (timed := measure(case, arguments.rounds))
                sys.stdout.write(table(case, timed))
                sys.stdout.flush()
                # after every case, so that an interrupted benchmark keeps the finished ones
                if arguments.json is not None:
                    document = {"machine": facts, "rows": rows}
                    write_json(arguments.json, document)
    sys.stdout.write(machine_summary(facts) + "\n")


def parse(words: list[str] | None) -> argparse.Namespace:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=description)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default)
    parser.add_argument("--shapes", type=shapes, help="such as 64x3x96x96,32x3x224x224")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=31, help="of timing on a CPU")
    parser.add_argument("--json", type=Path, help="write all times to this file")
    arguments = parser.parse_args(words)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; use --device cpu")
    return arguments


def shapes(text: str) -> list[tuple[int, int, int, int]]:
    """Batches of images; argparse names the text that is none."""
    found = []
    for part in text.split(","):
        batch, channels, height, width = map(int, part.split("x"))
        found.append((batch, channels, height, width))
    return found


if __name__ == "__main__":
    main()
