"""What a user sees while methods are compared: a table of methods and seeds that fills."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

# a cell such as "12/30 5.10 %" and the space beside it
CELL_WIDTH = 15


class OverviewTable(AbstractContextManager["OverviewTable"]):
    """On a terminal a live table; elsewhere a line for each run that is done.

    name, show: of the metric that counts, and from a run's test metrics to its text.
    """

    def __init__(self, console: Console, name: str, show: Any) -> None:
        self.console, self.name, self.show = console, name, show
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.told: set[tuple[str, int]] | None = None
        self.died = 0

    def __enter__(self) -> "OverviewTable":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, overview: Any) -> None:
        if overview.died > self.died:
            self.died = overview.died
            self._line("A worker died; the runs under way are tried again.")
        if self.console.is_terminal:
            self.live.update(self.view(overview), refresh=True)
        else:
            self._tell(overview)

    def view(self, overview: Any) -> Group:
        """The table, and below it how far all of it is."""
        return Group(self.table(overview), Text(self._caption(overview), style="dim"))

    def table(self, overview: Any) -> Table:
        """Methods down, seeds across; only how many are done where there is no room for seeds."""
        methods = list(dict.fromkeys(cell.method for cell in overview.cells))
        seeds = sorted({cell.seed for cell in overview.cells})
        widest = max(len(method) for method in methods)
        roomy = widest + CELL_WIDTH * len(seeds) <= self.console.width
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("method", no_wrap=True)
        heads = [f"seed {seed}" for seed in seeds] if roomy else ["seeds", "now"]
        least = CELL_WIDTH - 2 if roomy else 0
        for head in heads:
            # as wide at the beginning as at the end, so that nothing jumps
            table.add_column(head, justify="right", no_wrap=True, min_width=least)
        for method in methods:
            cells = [cell for cell in overview.cells if cell.method == method]
            row = [self._cell(cell, overview) for cell in cells]
            table.add_row(method, *(row if roomy else self._short(cells, row)))
        return table

    def _cell(self, cell: Any, overview: Any) -> Text:
        value = "" if cell.scores is None else self.show(cell.scores)
        if cell.state == "done":
            return Text(value, style="bold")
        if cell.state == "failed":
            return Text("failed", style="red")
        if cell.state == "waiting":
            return Text("·", style="dim")
        return Text(f"{int(cell.epochs)}/{overview.epochs} {value}".rstrip(), style="cyan")

    def _short(self, cells: list[Any], row: list[Text]) -> list[Text]:
        done = sum(cell.state == "done" for cell in cells)
        training = [text for cell, text in zip(cells, row, strict=True) if cell.state == "training"]
        return [Text(f"{done}/{len(cells)}"), training[0] if training else Text("")]

    def _caption(self, overview: Any) -> str:
        parts = [f"{overview.count('done')} of {len(overview.cells)} runs done"]
        if overview.count("failed"):
            parts.append(f"{overview.count('failed')} failed")
        parts += [time_left(overview.seconds_left), f"{self.name}, test split"]
        return " · ".join(part for part in parts if part)

    def _tell(self, overview: Any) -> None:
        """A line for each run that is done since the last look."""
        done = {(cell.method, cell.seed): cell for cell in overview.cells if cell.state == "done"}
        if self.told is None:
            # what was done before this command began is told in one line
            self.told = set(done)
            if done:
                self._line(f"{len(done)} of {len(overview.cells)} runs are done already.")
            return
        for place, cell in done.items():
            if place not in self.told:
                self.told.add(place)
                count = f"{len(self.told)} of {len(overview.cells)} runs done"
                left = time_left(overview.seconds_left)
                value = f"{self.name} {self.show(cell.scores)}"
                far = f"{count}, {left}" if left else count
                self._line(f"{cell.method} seed {cell.seed}: {value} ({far})")

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def time_left(seconds: float | None) -> str:
    """How long it still takes, in words; none where it is not known, or where all is done.

    >>> time_left(None), time_left(42), time_left(200), time_left(9000)
    ('', 'about 40 s left', 'about 3 min left', 'about 2.5 h left')
    """
    if seconds is None or seconds <= 0:
        return ""
    if seconds < 90:
        return f"about {max(10, round(seconds, -1)):.0f} s left"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min left"
    return f"about {seconds / 3600:.1f} h left"


def near_path(path: Path) -> Path:
    """A path as it is shown: from the working folder on where it lies below it.

    >>> near_path(Path.cwd() / "out" / "report.html").as_posix()
    'out/report.html'
    """
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
