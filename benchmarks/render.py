"""Write the README's two speed tables from the committed measurements.

    python benchmarks/render.py

`tests/test_docs.py` fails when README and measurements disagree.
"""

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
OURS = "zetamix"
PEERS = ("mixup, original", "torchvision v2.MixUp", "timm Mixup", "kornia RandomMixUpV2")


def main() -> None:
    README.write_text(render(README.read_text()))


def render(text: str) -> str:
    """The README with both tables as the measurements have them."""
    for name, table in (("h200", gpu_table()), ("cpu", cpu_table())):
        block = f"<!-- {name} -->\n{table}\n<!-- /{name} -->"
        text, count = re.subn(f"<!-- {name} -->.*?<!-- /{name} -->", block, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"README.md must hold <!-- {name} --> and <!-- /{name} --> once.")
    return text


def load(name: str) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """Medians in µs: {(shape, dtype): {(contender, mode): median}}, in the order measured."""
    document = json.loads((HERE / f"{name}.json").read_text())
    cases: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in document["rows"]:
        found = cases.setdefault((shape_of(row), dtype_of(row)), {})
        found[row["contender"], row["mode"]] = row["median_us"]
    return cases


def shape_of(row: dict[str, Any]) -> str:
    batch, channels, side, _ = row["shape"]
    return f"{batch} × {channels} × {side}²"


def dtype_of(row: dict[str, Any]) -> str:
    return str(row["dtype"]) + (", TF32 allowed" if row["tf32"] else "")


def gpu_table() -> str:
    lines = [
        "| batch | copy, graph | zetamix, graph | × copy | zetamix, eager | mixup, original "
        "| torchvision | timm |",
        "|---|---|---|---|---|---|---|---|",
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
        "| batch | copy | zetamix, 8 sources | zetamix, all | zetamix Mixup | paper's listing "
        "| mixup, original | torchvision | timm (in place) | kornia |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    ours = ("zetamix, 8 sources", OURS, "zetamix Mixup", "paper listing")
    for (shape, _), found in load("cpu").items():
        names = ("copy", *ours, *PEERS)
        cells = [shape, *(f"{found[name, 'eager'] / 1e3:.2f}" for name in names)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"


if __name__ == "__main__":
    main()
