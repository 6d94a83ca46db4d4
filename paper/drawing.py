"""What figures and tables of the artifacts share: names of methods, cells, panels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from paper.measure.estimate import Estimate
from zetamix.methods import display_name, parse
from zetamix_lab.report import Cell, Picture, Table
from zetamix_lab.report.figure import COLOURS

# from one class to the other; both ends and the middle differ in lightness
SOFT_LABELS = LinearSegmentedColormap.from_list("labels", [COLOURS[0], "#b0a8b9", COLOURS[1]])
# point clouds take 1.2 MB at 160 dpi, 1.5 MB at 200 dpi, and look the same
DPI = 160
ZETAMIX = parse("zetamix").full_label
METHOD_NAMES = {
    "mixup:1.0": "mixup",
    "cutmix:1.0": "CutMix",
    "switch": "mixup/CutMix switch",
    "smoothing:0.1": "label smoothing",
    "mixup:alpha=1.0,until=0.8": "mixup, until = 0.8",
    "cutmix:alpha=1.0,until=0.8": "CutMix, until = 0.8",
    "switch:until=0.8": "mixup/CutMix switch, until = 0.8",
    ZETAMIX: "ZetaMix",
}


@dataclass(frozen=True)
class Result:
    """Figures and tables of an artifact, and findings that are in neither."""

    pictures: Sequence[Picture] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By file name without suffix."""
    findings: Sequence[str] = ()


def method_name(method: str) -> str:
    """The display name of a method.

    >>> method_name("zeta:2.8"), method_name("none"), method_name("cutmix:1.0")
    ('ζ-mixup (2.8)', 'no mixing', 'CutMix')
    """
    if method.startswith("zeta:"):
        return f"ζ-mixup ({gamma_of(method)})"
    return METHOD_NAMES.get(method) or display_name(method)


def gamma_of(method: str) -> str:
    return method.removeprefix("zeta:")


def estimate_cell(
    estimate: Estimate | None, error: str, *, scale: float = 1, digits: int | None = None
) -> Cell:
    """A cell of an estimate; `error` is the key of the number to show after ±."""
    if estimate is None or estimate["value"] is None:
        return Cell(None)
    spread = None if estimate[error] is None else scale * estimate[error]
    note = f"n = {estimate['n']:,}"
    return Cell(scale * estimate["value"], error=spread, digits=digits, note=note)


def mean_cell(values: Sequence[float] | pd.Series, digits: int) -> Cell:
    """Mean ± standard deviation (n); empty without values."""
    values = pd.Series(values, dtype=float)
    if values.empty:
        return Cell(None)
    spread = float(values.std()) if len(values) > 1 else None
    return Cell(float(values.mean()), error=spread, n=len(values), digits=digits)


def signed_cells(values: Iterable[float], digits: int) -> list[Cell]:
    """Differences, with their signs."""
    return [Cell(float(value), digits=digits, signed=True) for value in values]


def finish(figure: Figure, name: str, *, alt: str, caption: str) -> Picture:
    matplotlib.rcParams["savefig.dpi"] = DPI
    return Picture.of(figure, name, alt=alt, caption=caption)


def bare(axes: Axes) -> None:
    """Remove ticks and grid, for panels that show a shape."""
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(visible=True, linewidth=0.5, color="#bbbbbb")
