"""Figures in one style, as SVG and PNG, the same bytes for the same numbers."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from zetamix.atomic_io import write_file, write_text

# Paul Tol's high-contrast colours, which keep their order of lightness in grey, black, and two more
COLOURS = ("#004488", "#ddaa33", "#bb5566", "#000000", "#55aadd", "#997700")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
GREY = "#555555"

STYLE: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is there on every machine
    "font.size": 9,
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
    # letters as outlines: a reader without our font sees what we saw
    "svg.fonttype": "path",
    # without a salt of its own matplotlib names the parts of every file at random
    "svg.hashsalt": "zetamix",
}


@contextmanager
def drawing(width: float = 6.4, height: float = 3.6) -> Iterator[Figure]:
    """A figure of this size in inches, to draw on in the common style while the context lasts.

    No global figure is made, so that nothing has to be closed.

    >>> with drawing() as figure:
    ...     line = figure.subplots().plot([1, 2, 3])
    ...     picture = Picture.of(figure, "line", alt="A rising line.", caption="Three numbers.")
    >>> picture.png[1:4], "</svg>" in picture.svg
    (b'PNG', True)
    """
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def series_style(index: int) -> dict[str, Any]:
    """Colour, line and marker of the index-th series: no two of the first thirty are alike.

    They differ in line and lightness too, so that a grey print can be read.
    """
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[index % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


@dataclass(frozen=True)
class Picture:
    """A finished figure: its name is that of its files."""

    name: str
    svg: str
    png: bytes
    alt: str
    """What one would say to somebody who cannot see it."""
    caption: str
    size: tuple[int, int]
    """Width and height in pixels at 100 per inch."""

    @classmethod
    def of(cls, figure: Figure, name: str, *, alt: str, caption: str) -> "Picture":
        """Render a figure; call it inside `drawing`, where the style holds."""
        svg, png = io.StringIO(), io.BytesIO()
        # no date and no version of matplotlib: the same numbers give the same file
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", metadata={"Software": None})
        width, height = (round(100 * side) for side in figure.get_size_inches())
        return cls(name, svg.getvalue(), png.getvalue(), alt, caption, (width, height))

    @property
    def base64_svg(self) -> str:
        return base64.b64encode(self.svg.encode()).decode()

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write `name.svg` and `name.png` into a folder."""
        svg, png = folder / f"{self.name}.svg", folder / f"{self.name}.png"
        write_text(svg, self.svg)
        write_file(png, lambda file: _put(file, self.png))
        return svg, png


def _put(file: Any, content: bytes) -> None:
    file.write(content)
