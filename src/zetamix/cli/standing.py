"""What a user sees while a search trains: the best so far, trials by what became of them."""

from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from zetamix.cli.live import time_left


class Watcher(AbstractContextManager["Watcher"]):
    """Best so far, trials done, running, stopped early and failed, and the time that is left.

    On a terminal the lines stay in place; elsewhere there is a line for each trial that ends.
    """

    def __init__(self, console: Console, question: Any) -> None:
        self.console, self.question = console, question
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.told = -1
        self.died = 0

    def __enter__(self) -> "Watcher":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, progress: Any) -> None:
        if progress.died > self.died:
            self.died = progress.died
            self._line("A worker died; the trials under way are tried again.")
        if self.console.is_terminal:
            self.live.update(self.lines(progress), refresh=True)
        elif progress.done != self.told:
            self.told = progress.done
            self._line(", ".join(self.words(progress)))

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def lines(self, progress: Any) -> Group:
        """A bar with the numbers below it."""
        done, total = progress.done, progress.total
        bar = Table.grid(padding=(0, 1))
        bar.add_row("trials" if hasattr(progress, "best") else "test", _bar(done, total))
        return Group(bar, *(Text(f"  {word}") for word in self.words(progress)))

    def words(self, progress: Any) -> list[str]:
        if not hasattr(progress, "best"):
            percent = 100 * progress.epochs / progress.epochs_total
            models = f"{progress.done} of {progress.total} models done"
            return [f"test: {models}, {percent:.0f} % of all epochs"]
        counts = [f"{progress.complete} finished"]
        named = {"pruned": "stopped early", "diverged": "diverged", "failed": "failed"}
        counts += [f"{getattr(progress, k)} {v}" for k, v in named.items() if getattr(progress, k)]
        counts.append(f"{len(progress.running)} running{self._epochs(progress.running)}")
        done = f"{progress.done} of {progress.total} trials done ({', '.join(counts)})"
        left = time_left(progress.seconds_left)
        return [self._best(progress.best), done, *([left] if left else [])]

    def _epochs(self, running: Any) -> str:
        if not running or not self.console.is_terminal:
            return ""
        each = [f"{epochs}/{self.question.recipe.epochs}" for epochs in running.values()]
        return f": epoch {', '.join(each)}"

    def _best(self, best: Any) -> str:
        from zetamix.metrics import METRICS
        from zetamix.results.search_space import format_setting

        if best is None:
            return "no trial finished yet"
        value = METRICS[self.question.metric].format(best.value)
        return f"best so far {value} at {format_setting(best.setting)}"


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=40)
