"""Terminal output that commands share: live progress of runs, headers, tables and paths."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from zetamix.text import plural

if TYPE_CHECKING:
    from zetamix_lab.data import Dataset
    from zetamix_lab.report import Table as ReportTable
    from zetamix_lab.runs.progress import CellProgress, Snapshot
    from zetamix_lab.train import Recipe

# without a terminal, up to this many runs print ten lines each; if there are more, one line each
FEW_RUNS = 4
LINES_PER_RUN = 10
# seconds without output after which a line about the current runs is printed
QUIET_SECONDS = 60.0
BAR_WIDTH = 24
STYLES = {"": "", "best": "bold", "second": "underline"}


class LiveDisplay(AbstractContextManager["LiveDisplay"]):
    """Shows the snapshots it is called with: in place on a terminal, as lines in files and pipes.

    view: renders a snapshot for a terminal. lines: the new lines since the last snapshot.
    curves: called with every snapshot, to log the epochs of runs.
    """

    def __init__(
        self,
        console: Console,
        view: Callable[[Any], RenderableType],
        lines: Callable[[Any], Iterable[str]],
        curves: Callable[[], None] = lambda: None,
    ) -> None:
        self.console, self.view, self.lines, self.curves = console, view, lines, curves
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.deaths = 0

    def __enter__(self) -> "LiveDisplay":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, snapshot: Any) -> None:
        if snapshot.deaths > self.deaths:
            self.deaths = snapshot.deaths
            print_line(self.console, "A worker was killed; its runs are resumed.")
        if self.console.is_terminal:
            self.live.update(self.view(snapshot), refresh=True)
        else:
            for line in self.lines(snapshot):
                print_line(self.console, line)
        self.curves()


class RunsView:
    """Renders a `Snapshot` of runs as rows for a terminal, or as lines of text.

    metric: the metric to show. name: the label of a run.
    """

    def __init__(
        self,
        console: Console,
        metric: str = "error",
        name: Callable[["CellProgress"], str] = lambda progress: progress.name,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from zetamix_lab.metrics import METRICS

        self.console, self.metric, self.name, self.clock = console, METRICS[metric], name, clock
        self._first: dict[str, tuple[float, float]] = {}
        self._last_line = clock()
        self._printed: dict[str, int] | None = None

    def view(self, snapshot: "Snapshot") -> Group:
        """A row per run, with a bar, epoch, loss, accuracy and speed."""
        runs: Sequence[CellProgress] = snapshot.cells
        if len(runs) > self.console.height - 2:
            runs = [progress for progress in runs if progress.state == "training"]
        table = Table.grid(padding=(0, 1))
        for progress in runs:
            bar = ProgressBar(total=progress.total, completed=progress.epochs, width=BAR_WIDTH)
            table.add_row(self.name(progress), bar, Text(self._status(progress)))
        return Group(table, Text(self._caption(snapshot), style="dim"))

    def lines(self, snapshot: "Snapshot") -> list[str]:
        done = [progress for progress in snapshot.cells if progress.state == "done"]
        if self._printed is None:
            self._printed = {progress.cell.key: LINES_PER_RUN for progress in done}
            return [f"{len(done)} of {len(snapshot.cells)} runs are finished."] if done else []
        lines = []
        count = sum(part == LINES_PER_RUN for part in self._printed.values())
        for progress in snapshot.cells:
            part = self._part(progress, few=len(snapshot.cells) <= FEW_RUNS)
            if part > self._printed.get(progress.cell.key, 0):
                self._printed[progress.cell.key] = part
                count += progress.state == "done"
                lines.append(self._line(progress, snapshot, count))
        if not lines and self.clock() - self._last_line >= QUIET_SECONDS:
            lines = self._heartbeat(snapshot)
        if lines:
            self._last_line = self.clock()
        return lines

    def _heartbeat(self, snapshot: "Snapshot") -> list[str]:
        """One line about the current runs, for logs of long runs."""
        running = [
            f"{self.name(progress)} {self._epoch(progress)}"
            for progress in snapshot.cells
            if progress.state == "training"
        ]
        parts = [f"{snapshot.count('done')} of {len(snapshot.cells)} runs finished", *running]
        left = time_left(snapshot.seconds_left)
        return [", ".join([*parts, left] if left else parts)] if running else []

    def _part(self, progress: "CellProgress", *, few: bool) -> int:
        """The number of lines of a run so far: one per tenth of the epochs if runs are few."""
        if progress.state == "done":
            return LINES_PER_RUN
        if progress.line is None or not few:
            return 0
        # the last line is for the finished run
        epoch: int = progress.line["epoch"]
        return min(LINES_PER_RUN - 1, epoch * LINES_PER_RUN // progress.total)

    def _line(self, progress: "CellProgress", snapshot: "Snapshot", finished: int) -> str:
        score = f"{self.metric.title} {self._score(progress)}"
        if progress.state == "done":
            count = f"{finished} of {len(snapshot.cells)} runs finished"
            left = time_left(snapshot.seconds_left)
            return f"{self.name(progress)}: {score} ({', '.join(filter(None, (count, left)))})"
        line = progress.line or {}
        return (
            f"{self.name(progress)}: epoch {line['epoch']}/{progress.total}, loss "
            f"{line['train_loss']:.3f}, {score}"
        )

    def _status(self, progress: "CellProgress") -> str:
        if progress.state != "training":
            return self._score(progress) if progress.state == "done" else progress.state
        parts = [self._epoch(progress)]
        if progress.line is not None:
            parts.append(f"loss {progress.line['train_loss']:.3f}")
            parts.append(f"train {100 * progress.line['train_accuracy']:.1f} %")
            parts.append(f"test {self.metric.short} {self._score(progress)}")
        now = self.clock()
        began, before = self._first.setdefault(progress.cell.key, (now, progress.epochs))
        if now > began:
            speed = (progress.epochs - before) * progress.cell.train_size / (now - began)
            parts.append(f"{speed:,.0f} samples/s")
        return " · ".join(parts)

    def _epoch(self, progress: "CellProgress") -> str:
        """The current epoch, and how much of it is done."""
        epoch = min(int(progress.epochs) + 1, progress.total)
        share = f" ({100 * (progress.epochs % 1):.0f} %)" if progress.epochs < epoch else ""
        return f"epoch {epoch}/{progress.total}{share}"

    def _score(self, progress: "CellProgress") -> str:
        scores = progress.scores
        return "" if scores is None else self.metric.format(scores[self.metric.name])

    def _caption(self, snapshot: "Snapshot") -> str:
        parts = [f"{snapshot.count('done')} of {len(snapshot.cells)} runs finished"]
        if snapshot.count("failed"):
            parts.append(f"{snapshot.count('failed')} failed")
        parts += [time_left(snapshot.seconds_left), f"{self.metric.title} on the test split"]
        return " · ".join(filter(None, parts))


def show_runs(
    console: Console,
    metric: str = "error",
    *,
    curves: Callable[[], None] = lambda: None,
    **options: Any,
) -> LiveDisplay:
    """The live display of `run_cells`; the options are those of `RunsView`."""
    runs = RunsView(console, metric, **options)
    return LiveDisplay(console, runs.view, runs.lines, curves)


@contextmanager
def show_reading(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A transient bar on stderr while data is downloaded, decoded or checked; on a terminal only.

    Yields a function to call with the activity, how much is done, and the total (0 if unknown).
    """
    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("reading", total=None)

        def update(activity: str, done: int, total: int) -> None:
            if activity.startswith("downloading"):
                activity, done, total = f"{activity}, MB", done // 10**6, total // 10**6
            bar.update(task, description=activity, completed=done, total=total or None)

        yield update


def print_header(
    console: Console, dataset: "Dataset", recipe: "Recipe", methods: int, seeds: int
) -> None:
    """Print what is trained: the dataset, runs and the recipe, and notes about the data."""
    runs = f"{plural(methods, 'method')} × {plural(seeds, 'seed')}"
    shape = " × ".join(map(str, dataset.shape))
    test = 0 if dataset.test is None else len(dataset.test)
    samples = f"{len(dataset.train):,} training and {test:,} test samples"
    print_plan(console, dataset, recipe, f"{samples}, {dataset.num_classes} classes, {shape}", runs)


def print_plan(console: Console, dataset: "Dataset", recipe: "Recipe", *parts: str) -> None:
    """Print the name of a dataset, the parts, the recipe, and notes about the data."""
    model = recipe.model
    if recipe.weights is not None:
        model += f" from {recipe.weights.path.name}"
    if recipe.optimizer == "adamw":
        model += f", AdamW with {plural(recipe.warmup, 'epoch')} of warm-up"
    augmentation = "no" if recipe.augmentation == "none" else recipe.augmentation
    training = (
        f"{model}, {plural(recipe.epochs, 'epoch')}, batch size {recipe.batch_size}, "
        f"{augmentation} augmentation"
    )
    text = " · ".join((*parts, training, f"recipe: {recipe.origin}"))
    print_findings(console, [(f"{dataset.name}:", text)], gap=" ")
    for note in dataset.notes:
        print_line(console, note, style="dim")


def print_table(console: Console, table: "ReportTable", required: int = 2) -> None:
    """Print a table of a report; on a narrow terminal, headings are wrapped and columns dropped.

    required: number of columns that are always printed.
    """
    unlimited = console.options.update(width=10_000)
    counts = range(len(table.columns), required - 1, -1)
    for count, narrow in [(counts[0], False), *((count, True) for count in counts)]:
        shown = _terminal_table(table, count, narrow)
        if console.measure(shown, options=unlimited).maximum <= console.width:
            break
    console.print(shown)
    if count < len(table.columns):
        names = [head.name for head in table.heads]
        # if two columns have the same name, the first may be shown
        hidden = ", ".join(
            f"{name} of {names[index - 1]}" if name in names[:index] else name
            for index, name in enumerate(names)
            if index >= count
        )
        print_line(console, f"Columns that do not fit, see the report: {hidden}.", style="dim")
    console.print()


def _terminal_table(table: "ReportTable", count: int, narrow: bool) -> Table:
    """The first columns of a table. narrow: headings wider than their cells are wrapped."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for index, head in enumerate(table.heads[:count]):
        widest = max((len(row[index].text()) for row in table.cells), default=0)
        lines = wrap(head.name, max(widest, 1), break_long_words=False) if narrow else [head.name]
        left = index == 0 or table.is_text(index)
        shown.add_column(
            "\n".join(lines),
            justify="left" if left else "right",
            no_wrap=index > 0,
            overflow="fold",
        )
    for row in table.cells:
        shown.add_row(*(Text(cell.text(), style=STYLES[cell.mark]) for cell in row[:count]))
    return shown


def print_findings(
    console: Console, findings: Iterable[tuple[str, str]], *, gap: str = "  "
) -> None:
    """Print bold headings, each with a paragraph; brackets are not interpreted as markup."""
    for heading, text in findings:
        console.print(Text.assemble((heading, "bold"), gap, text))


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print plain text without wrapping it, so that paths can be copied."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def time_left(seconds: float | None) -> str:
    """The remaining time as text; empty if it is unknown or not positive.

    >>> time_left(None), time_left(3), time_left(42), time_left(200), time_left(9000)
    ('', 'a few seconds left', 'about 40 s left', 'about 3 min left', 'about 2.5 h left')
    """
    if seconds is None or seconds <= 0:
        return ""
    if seconds < 10:
        return "a few seconds left"
    if seconds < 90:
        return f"about {round(seconds, -1):.0f} s left"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min left"
    return f"about {seconds / 3600:.1f} h left"


def short_path(path: Path) -> Path:
    """The path relative to the working directory, if it is inside it.

    >>> short_path(Path.cwd() / "out" / "report.html").as_posix()
    'out/report.html'
    """
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
