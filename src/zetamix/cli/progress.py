"""What a user sees while models train: one line per run."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Watcher(AbstractContextManager["Watcher"]):
    """Shows epoch, loss, accuracy, images per second and time left of every run.

    On a terminal the lines stay in place; elsewhere a run prints ten lines in all.
    """

    def __init__(
        self,
        console: Console,
        runs: list[Any],
        log: str | None = None,
        name: Callable[[Any], str] = lambda run: str(run.name),
    ) -> None:
        self.console = console
        self.name = name
        self.tasks: dict[Any, TaskID] = {}
        self.rates: dict[Any, tuple[float, int]] = {}
        self.latest: dict[Any, dict[str, Any]] = {}
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )

    def __enter__(self) -> "Watcher":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def __call__(self, progress: Any) -> None:
        run = progress.run
        total = run.recipe.epochs * progress.steps
        done = progress.epoch * progress.steps + progress.step
        if run not in self.tasks:
            self.tasks[run] = self.bars.add_task(
                self.name(run), total=total, state="", completed=done
            )
            self.rates[run] = (time.monotonic(), done)
        if progress.line is not None:
            self.latest[run] = progress.line
            self._print_line(run, progress.line)
        self.bars.update(self.tasks[run], completed=done, state=self._state(progress, done))
        if done >= total:
            self.bars.update(self.tasks[run], visible=False)

    def _state(self, progress: Any, done: int) -> str:
        run = progress.run
        began, first = self.rates[run]
        speed = (done - first) * run.recipe.batch_size / max(1e-9, time.monotonic() - began)
        parts = [f"epoch {min(progress.epoch + 1, run.recipe.epochs)}/{run.recipe.epochs}"]
        line = self.latest.get(run, {})
        if "train_loss" in line:
            parts.append(f"loss {line['train_loss']:.3f}")
            parts.append(f"train {100 * line['train_accuracy']:.1f} %")
        if "test" in line:
            parts.append(f"test {100 * line['test']['accuracy']:.2f} %")
        return " · ".join([*parts, f"{speed:,.0f} images/s"])

    def _print_line(self, run: Any, line: dict[str, Any]) -> None:
        if self.console.is_terminal or "test" not in line:
            return
        every = max(1, run.recipe.epochs // 10)
        if line["epoch"] % every == 0 or line["epoch"] == run.recipe.epochs:
            self.console.print(
                f"{self.name(run)}: epoch {line['epoch']}/{run.recipe.epochs}, loss "
                f"{line['train_loss']:.3f}, test error {100 * line['test']['error']:.2f} %, "
                f"{line['seconds']:.0f} s",
                highlight=False,
            )
