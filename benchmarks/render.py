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
MIXUP, BLENDED = "zetamix Mixup", "zetamix ZetaMix, blended"
ALL_SOURCES = "zetamix ZetaMixup"
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


def graph_table() -> str:
    """Replays of a CUDA graph, in µs and times the copy of the same batch."""
    lines = [
        "| batch | copy | ZetaMix, blended | pasted | 4 sources | Mixup | ζ-mixup, all sources |",
        "|---|" + "---:|" * 6,
    ]
    names = (BLENDED, "zetamix ZetaMix, pasted", f"{BLENDED}, 4 sources", MIXUP, ALL_SOURCES)
    for (shape, dtype), found in load("h200").items():
        copy = found["copy", "graph"]
        times = (found[name, "graph"] for name in names)
        cells = [f"{shape}, {dtype}", number(copy)]
        cells += [f"{number(time)} ({time / copy:.2f})" for time in times]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def eager_table() -> str:
    """Plain calls on a GPU, in µs, beside other libraries."""
    lines = [
        "| batch | copy | ZetaMix, blended | pasted | Mixup | ζ-mixup, all sources "
        "| mixup, original | torchvision | timm |",
        "|---|" + "---:|" * 8,
    ]
    names = ("copy", BLENDED, "zetamix ZetaMix, pasted", MIXUP, ALL_SOURCES, *PEERS[:3])
    for (shape, dtype), found in load("h200").items():
        # the other libraries do not mix bytes
        times = [found.get((name, "eager")) for name in names]
        cells = ["–" if time is None else number(time) for time in times]
        lines.append("| " + " | ".join([f"{shape}, {dtype}", *cells]) + " |")
    return "\n".join(lines)


def cpu_table() -> str:
    lines = [
        "| batch | copy | ZetaMix | blended | Mixup | ζ-mixup, 8 sources | ζ-mixup, all "
        "| paper's listing | mixup, original | torchvision | timm (in place) | kornia "
        "| timm, mode=elem |",
        "|---|" + "---:|" * 12,
    ]
    methods = ("zetamix ZetaMix", BLENDED, MIXUP, f"{ALL_SOURCES}, 8 sources", ALL_SOURCES)
    ours = (*methods, "paper listing")
    for (shape, _), found in load("cpu").items():
        names = ("copy", *ours, *PEERS, "timm Mixup, mode=elem")
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


def training_224_table() -> str:
    """Milliseconds per step at 224², beside one resident batch without loader and mixing."""
    lines = ["| | one resident batch | no mixing | ZetaMix, blended |", "|---|---:|---:|---:|"]
    rows = read("training_224_h200")["rows"]
    for model in ("resnet18", "resnet50"):
        own = [row for row in rows if model in row["label"]]
        cells = [f"{row['median_ms']:.2f}" for row in own]
        cells[1:] = [
            f"{time} ({row['times_resident']:.2f} ×)"
            for time, row in zip(cells[1:], own[1:], strict=True)
        ]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def loader_table() -> str:
    """Images per second, and how many times those of the faster DataLoader."""
    lines = ["| | images/s | times the faster DataLoader |", "|---|---:|---:|"]
    for row in read(FILES["loader"])["rows"]:
        times = f"{row['times_faster']:.1f}" if "times_faster" in row else ""
        lines.append(f"| {row['loader']} | {row['images_per_s']:,.0f} | {times} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "h200-graph": graph_table,
    "h200-eager": eager_table,
    "cpu": cpu_table,
    "training": training_table,
    "training-224": training_224_table,
    "loader": loader_table,
    "h200-machine": lambda: describe_machine(FILES["h200"]),
    "cpu-machine": lambda: describe_machine(FILES["cpu"]),
    "training-machine": lambda: describe_machine(FILES["training"]),
    "training-224-machine": lambda: describe_machine("training_224_h200"),
    "loader-machine": lambda: describe_machine(FILES["loader"]),
}


if __name__ == "__main__":
    main()
