"""What is drawn from: the cells of an artifact and the records that there are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from zetamix.experiments.reproduce import smoke as quick
from zetamix.experiments.reproduce.cells import Cell, Measuring, Training
from zetamix.records import Measurement, RunRecord
from zetamix.report import Picture, Table
from zetamix.report.figure import COLOURS
from zetamix.results.record_store import Results

# from one class to the other; both ends and the way between them differ in grey
CLASS_COLOURS = COLOURS[:2]
SOFT = LinearSegmentedColormap.from_list("labels", [COLOURS[0], "#b0a8b9", COLOURS[1]])
DPI = 160
# a method as a reader knows it
NAMES = {"none": "ERM", "mixup:1.0": "mixup"}


@dataclass(frozen=True)
class View:
    """The cells of one artifact, filled or not."""

    artifact: str
    cells: Sequence[Cell]
    """Those that the artifact needs."""
    results: Results
    is_quick: bool = False
    more: Sequence[Training] = ()
    """Of other variants of the recipe that somebody has run."""

    @property
    def trainings(self) -> list[Training]:
        return [cell for cell in (*self.cells, *self.more) if isinstance(cell, Training)]

    def measured(
        self, kind: str, dataset: str | None = None, **recipe: Any
    ) -> Iterator[tuple[Measuring, Measurement | None]]:
        """Cells of a kind, in their order, each with its record where it has one."""
        for cell in self.cells:
            if not isinstance(cell, Measuring) or cell.kind != kind:
                continue
            fits = all(cell.recipe.get(key) == value for key, value in recipe.items())
            if fits and dataset in (None, cell.dataset):
                record = self.results.find(cell)
                yield cell, record if isinstance(record, Measurement) else None

    def arrays(self, record: Measurement) -> dict[str, Tensor]:
        return self.results.arrays(record)

    @property
    def empty(self) -> list[Cell]:
        """Cells that nobody has filled yet."""
        return [cell for cell in self.cells if self.results.find(cell) is None]

    @property
    def records(self) -> list[RunRecord | Measurement]:
        found = [self.results.find(cell) for cell in (*self.cells, *self.more)]
        return [record for record in found if record is not None]


AS, PARTLY, NOT = "as in the paper", "in part as in the paper", "not as in the paper"
# where some cases are decided and others are not
SO_FAR_AS, SO_FAR_NOT = f"so far {AS}", f"so far {NOT}"
OPEN, NO_NUMBERS, NOT_RUN = "still open", "without numbers in the paper", "not run"


@dataclass(frozen=True)
class Answer:
    """Whether it comes out as in the paper, for a reader in a hurry."""

    status: str
    """One of the eight above."""
    sentence: str = ""


def agreement(held: Sequence[bool]) -> str:
    """What to call it where a claim of the paper held in some of several cases.

    >>> agreement([True, True]), agreement([True, False]), agreement([False])
    ('as in the paper', 'in part as in the paper', 'not as in the paper')
    """
    if all(held):
        return AS
    return PARTLY if any(held) else NOT


def agreement_so_far(held: Sequence[bool | None]) -> str:
    """The same where some cases, None, are not decided yet.

    >>> agreement_so_far([True, None]), agreement_so_far([False, True, None])
    ('so far as in the paper', 'in part as in the paper')
    >>> agreement_so_far([None]), agreement_so_far([False])
    ('still open', 'not as in the paper')
    """
    decided = [each for each in held if each is not None]
    if not decided:
        return OPEN
    status = agreement(decided)
    # what holds in part goes on doing so, whatever becomes of the rest
    so_far = {AS: SO_FAR_AS, NOT: SO_FAR_NOT} if len(decided) < len(held) else {}
    return so_far.get(status, status)


@dataclass(frozen=True)
class Drawn:
    """Everything that is shown of an artifact."""

    pictures: Sequence[Picture] = ()
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By the name of their files."""
    verdict: Sequence[str] = ()
    """What came out, in plain words."""
    answer: Answer = Answer(NOT_RUN)


def method_name(method: str) -> str:
    """A method as a reader knows it.

    >>> method_name("zeta:2.8"), method_name("none")
    ('ζ-mixup (2.8)', 'ERM')
    """
    if method.startswith("zeta:"):
        return f"ζ-mixup ({method.removeprefix('zeta:')})"
    return NAMES.get(method, method)


def finish(view: View, figure: Figure, name: str, *, alt: str, caption: str) -> Picture:
    """Render a figure; one of a quick run says so across itself and in its caption."""
    # the point clouds are 1.2 MB at 160 dots per inch, 1.5 at 200, and look the same
    matplotlib.rcParams["savefig.dpi"] = DPI
    if view.is_quick:
        figure.text(
            0.5,
            0.5,
            "quick: stand-ins",
            rotation=20,
            ha="center",
            va="center",
            size=6 * figure.get_figwidth(),
            color="black",
            alpha=0.12,
            zorder=10,
        )
        caption = f"{quick.LABEL.capitalize()}. {caption}"
    return Picture.of(figure, name, alt=alt, caption=caption)


def bare(axes: Axes) -> None:
    """No ticks, no grid, a thin frame: for panels that show a shape."""
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_linewidth(0.5)
        side.set_color("#bbbbbb")


def blank(axes: Axes, text: str) -> None:
    """A panel that waits for its record, and says so."""
    bare(axes)
    axes.text(0.5, 0.5, text, ha="center", va="center", size=8, transform=axes.transAxes)
