"""Write the tables of the page about speed from the committed measurements.

    python -m benchmarks.render

A test fails when the page and the measurements disagree.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "speed.md"
OURS, SOME = "zetamix ZetaMix", "zetamix ZetaMixup, 8 sources"
COMMON = {"copy": "copy", f"{OURS}, blended": "ZetaMix, blended", f"{OURS}, pasted": "pasted"}
GRAPH = {
    **COMMON,
    f"{OURS}, blended, 4 sources": "4 sources",
    "zetamix Mixup": "Mixup",
    "zetamix CutMix": "CutMix",
    "zetamix MixupOrCutMix": "either",
    "zetamix ZetaMixup": "ζ-mixup, all sources",
}
PEERS = {
    "mixup, original": "mixup, original",
    "torchvision v2.MixUp": "torchvision",
    "timm Mixup": "timm",
}
EAGER = {name: GRAPH[name] for name in GRAPH if "4 sources" not in name} | PEERS
CPU = {
    "copy": "copy",
    OURS: "ZetaMix",
    "zetamix ZetaMix, mean": "with mean",
    "zetamix Mixup": "Mixup",
    "torchvision v2.MixUp": "torchvision MixUp",
    "timm Mixup": "timm (in place)",
    "zetamix CutMix": "CutMix",
    "torchvision v2.CutMix": "torchvision CutMix",
    "zetamix MixupOrCutMix": "MixupOrCutMix",
    "torchvision MixUp or CutMix": "torchvision, either",
    SOME: "ζ-mixup, 8 sources",
    "zetamix ZetaMixup": "all",
}


def render(text: str) -> str:
    """The page with all tables as the measurements have them."""
    for name, write in BLOCKS.items():
        block = f"<!-- {name} -->\n{write()}\n<!-- /{name} -->"
        pattern = f"<!-- {name} -->.*?<!-- /{name} -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{PAGE.name} must hold <!-- {name} --> and <!-- /{name} --> once.")
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


def mixing_table(name: str, mode: str, contenders: Mapping[str, str]) -> str:
    """Medians in µs, a row for each batch; replays of a graph also as times the copy."""
    frame = pd.DataFrame(read(name)["rows"])
    batch, channels, side, _ = zip(*frame["shape"], strict=True)
    frame["batch"] = [f"{b} × {c} × {s}²" for b, c, s in zip(batch, channels, side, strict=True)]
    frame["batch"] += ", " + frame["dtype"].replace("tf32", "float32, TF32 allowed")
    if "tf32" in frame:
        frame.loc[frame["tf32"], "batch"] += ", TF32 allowed"
    if "threads" in frame:
        counts = frame["threads"].map(lambda n: f", {n} thread{'s' * (n > 1)}" if n else "")
        frame["batch"] += counts
    wide = frame[frame["mode"] == mode].pivot_table(
        index="batch", columns="contender", values="median_us", sort=False
    )
    contenders = {name: title for name, title in contenders.items() if name in wide}
    wide = wide.reindex(columns=list(contenders))
    ratios = wide.div(wide["copy"], axis=0) if mode == "graph" else None
    heading = "| batch | " + " | ".join(contenders.values()) + " |"
    lines = [heading, "|---|" + "---:|" * len(contenders)]
    for case, times in wide.iterrows():
        cells = ["–" if pd.isna(time) else number(time) for time in times]
        if ratios is not None:
            pairs = zip(cells[1:], ratios.loc[case].iloc[1:], strict=True)
            cells[1:] = [f"{cell} ({ratio:.2f})" for cell, ratio in pairs]
        lines.append("| " + " | ".join([str(case), *cells]) + " |")
    return "\n".join([*lines, "", describe_machine(name)])


def number(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:,.0f}"


def training_table(name: str) -> str:
    """Milliseconds per step, with the fastest and the slowest stretch."""
    lines = ["| | median, ms | fastest | slowest |", "|---|---:|---:|---:|"]
    for row in read(name)["rows"]:
        times = (f"{row[f'{which}_ms']:.2f}" for which in ("median", "fastest", "slowest"))
        lines.append(f"| {row['label']} | {' | '.join(times)} |")
    return "\n".join([*lines, "", describe_machine(name)])


BLOCKS: dict[str, Callable[[], str]] = {
    "h200-graph": lambda: mixing_table("h200", "graph", GRAPH),
    "h200-eager": lambda: mixing_table("h200", "eager", EAGER),
    "cpu": lambda: mixing_table("cpu", "eager", CPU),
    "training": lambda: training_table("training_h200"),
    "training-224": lambda: training_table("training_224_h200"),
}


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
