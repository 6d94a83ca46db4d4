"""What commands show on a terminal: progress, headers, tables and findings."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from zetamix_lab.progress import RUNS, about
from zetamix_lab.text import plural

if TYPE_CHECKING:
    from zetamix_lab.data import Dataset
    from zetamix_lab.report import Table as ReportTable
    from zetamix_lab.train import Recipe

# seconds without output after which a line about the current runs is printed
QUIET_SECONDS = 60.0


class Display(AbstractContextManager["Display"]):
    """Shows progress events (`zetamix_lab.progress`): reading, training and measuring.

    On a terminal each name has a bar. In files and pipes, where only runs are shown, there is a
    line for every finished one, and one about all of them after a minute without a line.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.clock = console, clock
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            get_time=clock,
        )
        self.closed = False
        """Whether the terminal or pipe is closed; the work goes on until it is stopped."""
        self._tasks: dict[str, TaskID] = {}
        self._caption, self._last_line = "", clock()

    def __enter__(self) -> "Display":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._guard(self.bars.stop)

    def __call__(self, name: str, done: float, total: float, text: str = "") -> None:
        self._guard(lambda: self._show(name, done, total, text))

    def _guard(self, show: Callable[[], None]) -> None:
        try:
            show()
        except (OSError, SystemExit):
            # rich exits at a closed pipe, but what is being trained must be saved first
            self.closed = True

    def _show(self, name: str, done: float, total: float, text: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self.bars.add_task(name, total=total or None, text="")
        task, over = self._tasks[name], 0 < total <= done
        self.bars.update(task, completed=done, total=total or None)
        if name == RUNS:
            left = next(each.time_remaining for each in self.bars.tasks if each.id == task)
            text = f"{text}, {about(left)} left" if left else text
        crowded = len(self._tasks) > self.console.height - 2
        text = text or _count(name, done, total)
        self.bars.update(task, text=text, visible=not (over and crowded and name != RUNS))
        if RUNS in self._tasks and not self.console.is_terminal:
            self._print(name, text, over=over)

    def _print(self, name: str, text: str, *, over: bool) -> None:
        now, line = self.clock(), f"{name}: {text} ({self._caption})" if over else ""
        if name == RUNS:
            is_due = not self._caption or now - self._last_line >= QUIET_SECONDS
            self._caption, line = text, text if is_due else ""
        if line:
            print_line(self.console, line)
            self._last_line = now


def _count(name: str, done: float, total: float) -> str:
    """How much is read: files, or megabytes of a download.

    >>> _count("decoding", 20, 3000), _count("downloading a.zip", 2.5e6, 0)
    ('20/3,000', '2 MB')
    """
    unit, suffix = (10**6, " MB") if name.startswith("downloading") else (1, "")
    return f"{done // unit:,.0f}{f'/{total // unit:,.0f}' if total else ''}{suffix}"


def show_reading() -> Display:
    """The display of data that is downloaded, decoded or checked: on stderr, on a terminal only."""
    return Display(Console(stderr=True))


def print_header(
    console: Console, dataset: "Dataset", recipe: "Recipe", methods: int, seeds: int
) -> None:
    """Print what is trained: the dataset, runs and the recipe, and notes about the data."""
    from zetamix_lab.models import default_model
    from zetamix_lab.report.compare_text import describe_recipe

    text = f"{plural(methods, 'method')} × {plural(seeds, 'seed')}"
    text += f"; {describe_recipe(dataset, recipe)}"
    without, usual = (default_model(dataset.shape, gpu=gpu) for gpu in (False, True))
    if recipe.model == without != usual:
        text += f"; {without} is the default without a GPU, {usual} with one"
    print_findings(console, [(dataset.name, text)])
    for note in dataset.notes:
        print_line(console, note, style="dim")


def print_table(console: Console, table: "ReportTable") -> None:
    """Print a table of a report; cells that are too wide are folded, short names of rows last."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    short = all(2 * len(row[0].text()) <= console.width for row in table.cells)
    for name, is_text in zip(table.columns, table.text_columns, strict=True):
        side: Any = "left" if is_text else "right"
        no_wrap = short and not shown.columns
        shown.add_column(name, justify=side, overflow="fold", no_wrap=no_wrap)
    for row in table.cells:
        shown.add_row(*(Text(cell.text(), style="bold" if cell.mark else "") for cell in row))
    console.print(shown, "")


def print_findings(console: Console, findings: Iterable[tuple[str, str]]) -> None:
    """Print bold headings, each with a paragraph; brackets are not interpreted as markup."""
    for heading, text in findings:
        # a command that is wrapped cannot be copied
        console.print(Text.assemble((heading, "bold"), "  ", text), soft_wrap=heading == "Next")


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print plain text without wrapping it, so that paths can be copied."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
