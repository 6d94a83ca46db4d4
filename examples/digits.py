"""ζ-mixup beside mixup on real handwritten digits: one picture and one table.

Run it with `make demo`, or `python examples/digits.py --out DIR`. The digits are the 1797 images
that ship with scikit-learn, so nothing is downloaded.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor

from zetamix import Classes, MixPlan, describe, mix, mixup_plan, zeta_plan

CLASSES = 10
Planner = Callable[[int, torch.Generator], MixPlan]

METHODS: dict[str, Planner] = {
    "mixup α=1": lambda batch, generator: mixup_plan(batch, alpha=1.0, generator=generator),
    "ζ-mixup γ=2.4": lambda batch, generator: zeta_plan(batch, 2.4, generator=generator),
    "ζ-mixup γ=2.8": lambda batch, generator: zeta_plan(batch, 2.8, generator=generator),
    "ζ-mixup γ=4.0": lambda batch, generator: zeta_plan(batch, 4.0, generator=generator),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    images, labels = load()
    console = Console()
    console.print(summarise(images, labels, arguments.seed))
    console.print(str(describe(2.8, sources=128)), highlight=False)
    arguments.out.mkdir(parents=True, exist_ok=True)
    picture = arguments.out / "digits.png"
    draw(images, labels, arguments.seed, picture)
    console.print(f"Picture: {picture}", highlight=False)


def load() -> tuple[Tensor, Tensor]:
    """1797 images in [0, 1], [n, 8, 8], and their labels."""
    digits = load_digits()
    return torch.tensor(digits.images / 16, dtype=torch.float32), torch.tensor(digits.target)


def summarise(images: Tensor, labels: Tensor, seed: int) -> Table:
    """How far the outputs of each method lie from real digits, and how rich their labels are."""
    originals = images.flatten(1)
    table = Table(title="One pass over the digits in batches of 128")
    table.add_column("method", no_wrap=True)
    columns = (
        "heaviest weight",
        "effective samples",
        "classes above 1 %",
        "distance to nearest digit",
    )
    for name in columns:
        table.add_column(name, justify="right")
    spacing = torch.cdist(originals, originals).fill_diagonal_(torch.inf).amin(1).mean()
    for method, planner in METHODS.items():
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(images), generator=generator)
        rows = []
        for batch in torch.split(order, 128):
            plan = planner(len(batch), generator)
            targets = Classes(CLASSES).mix(labels[batch], plan)
            outputs = mix(originals[batch], plan)
            nearest = torch.cdist(outputs, originals).amin(1) / spacing
            weights = plan.weights
            rows.append(
                torch.stack(
                    [
                        weights.amax(1),
                        1 / weights.square().sum(1),
                        (targets > 0.01).sum(1).float(),
                        nearest,
                    ]
                )
            )
        weight, effective, classes, distance = torch.cat(rows, dim=1).mean(1).tolist()
        table.add_row(
            method,
            f"{weight:.3f}",
            f"{effective:.2f}",
            f"{classes:.1f}",
            f"{distance:.2f}",
        )
    table.caption = "distance 1 is the mean distance of a digit to its nearest neighbour"
    return table


def draw(images: Tensor, labels: Tensor, seed: int, path: Path) -> None:
    """One digit of each class, what each method makes of it, and the soft label as a bar."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(images), generator=generator)[:128]
    # one digit of each class first, so that column k shows digit k and what became of it
    first = [int((labels[chosen] == digit).nonzero()[0]) for digit in range(CLASSES)]
    rest = [k for k in range(len(chosen)) if k not in first]
    chosen = chosen[torch.tensor(first + rest)]
    batch, classes = images[chosen], labels[chosen]
    rows: dict[str, tuple[Tensor, Tensor]] = {
        "original": (batch, torch.eye(CLASSES)[classes]),
    }
    for method, planner in METHODS.items():
        plan = planner(len(chosen), generator)
        rows[method] = (mix(batch, plan), Classes(CLASSES).mix(classes, plan))

    figure, axes = plt.subplots(
        2 * len(rows),
        CLASSES,
        figsize=(11, 7.6),
        height_ratios=[6, 1] * len(rows),
        gridspec_kw={"hspace": 0.12, "wspace": 0.12},
    )
    for row, (name, (samples, targets)) in enumerate(rows.items()):
        for column in range(CLASSES):
            show_image(axes[2 * row, column], samples[column])
            show_label(axes[2 * row + 1, column], targets[column])
        axes[2 * row, 0].set_ylabel(
            name.replace(" ", "\n"), rotation=0, ha="right", va="center", fontsize=11, labelpad=8
        )
    handles = [Rectangle((0, 0), 1, 1, color=f"C{digit}") for digit in range(CLASSES)]
    figure.legend(
        handles,
        [str(digit) for digit in range(CLASSES)],
        ncols=CLASSES,
        loc="lower center",
        title="soft label: share of each digit",
        frameon=False,
    )
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def show_image(axes: Axes, image: Tensor) -> None:
    axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])


def show_label(axes: Axes, target: Tensor) -> None:
    left = 0.0
    for digit, share in enumerate(target.tolist()):
        axes.barh(0, share, left=left, color=f"C{digit}", height=1)
        left += share
    axes.set_xlim(0, 1)
    axes.set_axis_off()


if __name__ == "__main__":
    main()
