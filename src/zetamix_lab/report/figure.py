"""Figures in one style, as SVG and PNG; equal data gives equal bytes."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from zetamix_lab.atomic_io import write_bytes, write_text

# Paul Tol's high-contrast colours, which also differ in lightness, black, and two more
COLOURS = ("#004488", "#ddaa33", "#bb5566", "#000000", "#55aadd", "#997700")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
GREY = "#555555"

STYLE: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    # names of classes and methods may have dollar signs
    "text.parse_math": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    # text as outlines, independent of installed fonts
    "svg.fonttype": "path",
    # without a salt, matplotlib's ids are random
    "svg.hashsalt": "zetamix",
}


@contextmanager
def drawing(width: float = 6.4, height: float = 3.6) -> Iterator[Figure]:
    """A figure of this size in inches, in the common style inside the context.

    It is not registered with pyplot, so that it need not be closed.

    >>> with drawing() as figure:
    ...     line = figure.subplots().plot([1, 2, 3])
    ...     picture = Picture.of(figure, "line", alt="A rising line.", caption="Three numbers.")
    >>> picture.png[1:4], "</svg>" in picture.svg
    (b'PNG', True)
    """
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def series_style(index: int) -> dict[str, Any]:
    """Colour, line and marker of the index-th series; the first thirty are distinct.

    They also differ in line style and lightness, for greyscale prints.
    """
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


@dataclass(frozen=True)
class Picture:
    """A rendered figure; its files are named after it."""

    name: str
    svg: str
    png: bytes
    alt: str
    """Alternative text."""
    caption: str
    size: tuple[int, int]
    """Width and height in pixels at 100 per inch."""

    @classmethod
    def of(cls, figure: Figure, name: str, *, alt: str, caption: str) -> "Picture":
        """Render a figure, inside the context of `drawing`."""
        svg, png = io.StringIO(), io.BytesIO()
        # neither a date nor matplotlib's version: equal data gives equal files
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", metadata={"Software": None})
        width, height = (round(100 * side) for side in figure.get_size_inches())
        return cls(name, svg.getvalue(), png.getvalue(), alt, caption, (width, height))

    @property
    def base64_svg(self) -> str:
        return base64.b64encode(self.svg.encode()).decode()

    def save(self, folder: Path) -> None:
        """Write `name.svg` and `name.png` into a folder."""
        write_text(folder / f"{self.name}.svg", self.svg)
        write_bytes(folder / f"{self.name}.png", self.png)
