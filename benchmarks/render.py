"""Write the tables of the page about speed from the committed measurements.

    python benchmarks/render.py

`tests/test_docs.py` fails when the page and the measurements disagree.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = "docs/results/speed.md"
OURS = "zetamix"
PEERS = ("mixup, original", "torchvision v2.MixUp", "timm Mixup", "kornia RandomMixUpV2")
FILES = {"h200": "h200", "cpu": "cpu", "training": "training_h200", "loader": "loader_cpu"}


def main() -> None:
    path = HERE.parent / PAGE
    path.write_text(render(path.read_text()))


def render(text: str, page: str = PAGE) -> str:
    """The page with all tables as the measurements have them."""
    for name, write in BLOCKS.items():
        block = f"<!-- {name} -->\n{write()}\n<!-- /{name} -->"
        pattern = f"<!-- {name} -->.*?<!-- /{name} -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{page} must hold <!-- {name} --> and <!-- /{name} --> once.")
    return text


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return document


def describe_machine(name: str) -> str:
    """Where and by which command a file was measured."""
    machine = read(name)["machine"]
    place = machine.get("gpu") or f"{machine['processor']}, {machine['cores']} cores"
    versions = [f"torch {machine['torch'].split('+')[0]}"]
    if "gpu" in machine:
        versions.append(f"Triton {machine['triton']}")
    return f"{place}, {', '.join(versions)}, commit {machine['commit']}: `{machine['command']}`."


def load(name: str) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """Medians in µs: {(shape, dtype): {(contender, mode): median}}, in the order measured."""
    cases: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in read(name)["rows"]:
        found = cases.setdefault((shape_of(row), dtype_of(row)), {})
        found[row["contender"], row["mode"]] = row["median_us"]
    return cases


def shape_of(row: dict[str, Any]) -> str:
    batch, channels, side, _ = row["shape"]
    layout = ", channels last" if row.get("channels_last") else ""
    return f"{batch} × {channels} × {side}²{layout}"


def dtype_of(row: dict[str, Any]) -> str:
    return str(row["dtype"]) + (", TF32 allowed" if row["tf32"] else "")


def gpu_table() -> str:
    lines = [
        "| batch | copy, graph | zetamix, graph | × copy | zetamix, eager | mixup, original "
        "| torchvision | timm |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (shape, dtype), found in load("h200").items():
        graph, copy = found[OURS, "graph"], found["copy", "graph"]
        cells = [f"{shape}, {dtype}", number(copy), f"**{number(graph)}**", f"{graph / copy:.2f}"]
        cells += [number(found[OURS, "eager"])]
        cells += [number(found[peer, "eager"]) for peer in PEERS[:3]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cpu_table() -> str:
    lines = [
        "| batch | copy | ZetaMix | Mixup | ζ-mixup, 8 sources | ζ-mixup, all | paper's listing "
        "| mixup, original | torchvision | timm (in place) | kornia |",
        "|---|" + "---:|" * 10,
    ]
    methods = ("zetamix ZetaMix", "zetamix Mixup", "zetamix, 8 sources", "zetamix")
    ours = (*methods, "paper listing")
    for (shape, _), found in load("cpu").items():
        names = ("copy", *ours, *PEERS)
        cells = [shape, *(f"{found[name, 'eager'] / 1e3:.2f}" for name in names)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"


def training_table() -> str:
    """Milliseconds per step, with the fastest and the slowest stretch."""
    lines = ["| | median, ms | fastest | slowest |", "|---|---:|---:|---:|"]
    for row in read(FILES["training"])["rows"]:
        times = (f"{row[f'{name}_ms']:.2f}" for name in ("median", "fastest", "slowest"))
        lines.append(f"| {row['label']} | {' | '.join(times)} |")
    return "\n".join(lines)


def loader_table() -> str:
    """Images per second, and how many times those of the faster DataLoader."""
    lines = ["| | images/s | times the faster DataLoader |", "|---|---:|---:|"]
    for row in read(FILES["loader"])["rows"]:
        times = f"{row['times_faster']:.1f}" if "times_faster" in row else ""
        lines.append(f"| {row['loader']} | {row['images_per_s']:,.0f} | {times} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "h200": gpu_table,
    "cpu": cpu_table,
    "training": training_table,
    "loader": loader_table,
    "h200-machine": lambda: describe_machine(FILES["h200"]),
    "cpu-machine": lambda: describe_machine(FILES["cpu"]),
    "training-machine": lambda: describe_machine(FILES["training"]),
    "loader-machine": lambda: describe_machine(FILES["loader"]),
}


if __name__ == "__main__":
    main()
