"""Shared parts of the reports of the paper: verdict, method names, colours, smoke tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from paper.results.record_store import PaperView
from zetamix.methods import display_name, parse
from zetamix_lab.report import Cell, Picture, Table
from zetamix_lab.report.figure import COLOURS

REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly reproduced", "not reproduced"
INCONCLUSIVE, NOT_RUN, SMOKE_TEST = "inconclusive", "not run", "smoke test"
INCOMPLETE = "(incomplete)"
# statuses of our own experiments, which do not reproduce the paper
REACHED, MISSED, CHOSEN = "target reached", "target not reached", "default chosen"


@dataclass(frozen=True)
class Verdict:
    """Status of an artifact and its reasons."""

    status: str = NOT_RUN
    sentences: Sequence[str] = ("Nothing has been measured yet.",)
    """The first one summarises the others."""


@dataclass(frozen=True)
class ArtifactReport:
    """Figures, tables and verdict of an artifact."""

    pictures: Sequence[Picture] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By file name without suffix."""
    verdict: Verdict = Verdict()


def status_of(claims: Sequence[bool | None]) -> str:
    """The status of several claims of the paper: held, failed, or None for undecided.

    >>> status_of([True, True]), status_of([True, False, None]), status_of([False])
    ('reproduced', 'partly reproduced', 'not reproduced')
    >>> status_of([True, None]), status_of([None])
    ('reproduced (incomplete)', 'inconclusive')
    """
    decided = [claim for claim in claims if claim is not None]
    if not decided:
        return INCONCLUSIVE
    if any(decided) and not all(decided):
        # undecided claims cannot change that
        return PARTLY
    status = REPRODUCED if all(decided) else NOT_REPRODUCED
    return status if len(decided) == len(claims) else f"{status} {INCOMPLETE}"


# from one class to the other; both ends and the middle differ in lightness
SOFT_LABELS = LinearSegmentedColormap.from_list("labels", [COLOURS[0], "#b0a8b9", COLOURS[1]])
# point clouds take 1.2 MB at 160 dpi, 1.5 MB at 200 dpi, and look the same
DPI = 160

METHOD_NAMES = {
    "mixup:1.0": "mixup",
    "cutmix:1.0": "CutMix",
    "switch": "mixup/CutMix switch",
    "smoothing:0.1": "label smoothing",
}


def method_name(method: str) -> str:
    """The display name of a method.

    >>> method_name("zeta:2.8"), method_name("none"), method_name("cutmix:1.0")
    ('ζ-mixup (2.8)', 'no mixing', 'CutMix')
    """
    if method.startswith("zeta:"):
        return f"ζ-mixup ({gamma_of(method)})"
    if method == parse("zetamix").full_label:
        return "ZetaMix"
    return METHOD_NAMES.get(method, display_name(method))


def gamma_of(method: str) -> str:
    return method.removeprefix("zeta:")


def estimate_cell(
    estimate: Mapping[str, Any] | None, error: str, *, scale: float = 1, digits: int | None = None
) -> Cell:
    """A cell of a `measure.Estimate`; `error` is the key of the number to show after ±."""
    if estimate is None or estimate["value"] is None:
        return Cell(None)
    spread = None if estimate[error] is None else scale * estimate[error]
    note = f"n = {estimate['n']:,}"
    return Cell(scale * estimate["value"], error=spread, digits=digits, note=note)


def finish(view: PaperView, figure: Figure, name: str, *, alt: str, caption: str) -> Picture:
    """Render a figure; that of a smoke test says so in a watermark and in its caption."""
    matplotlib.rcParams["savefig.dpi"] = DPI
    if view.smoke_label:
        style: dict[str, Any] = {"ha": "center", "va": "center", "alpha": 0.12, "zorder": 10}
        size = 6 * figure.get_figwidth()
        figure.text(0.5, 0.5, "smoke test", size=size, rotation=20, **style)
        caption = f"{view.smoke_label.capitalize()}. {caption}"
    return Picture.of(figure, name, alt=alt, caption=caption)


def bare(axes: Axes) -> None:
    """Remove ticks and grid, for panels that show a shape."""
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_linewidth(0.5)
        side.set_color("#bbbbbb")


def blank(axes: Axes) -> None:
    """A panel without data."""
    bare(axes)
    style: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
    axes.text(0.5, 0.5, "no record yet", size=8, **style)
