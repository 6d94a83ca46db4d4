"""How far the runs of a list of cells are, as events for a display."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from zetamix.methods import display_name
from zetamix_lab.metrics import METRICS
from zetamix_lab.progress import Progress, count_epochs
from zetamix_lab.records import Cell
from zetamix_lab.text import plural

# the event about all runs together
RUNS = "runs"


def run_name(cell: Cell) -> str:
    return f"{display_name(cell.method)} seed {cell.seed}"


@dataclass(frozen=True)
class RunProgress:
    """One cell at one moment."""

    state: Literal["waiting", "training", "done", "failed"] = "waiting"
    epochs: float = 0.0
    """Epochs trained so far, with the fraction of the current one."""
    resumed: float = 0.0
    """Epochs that its checkpoint had when this call started or resumed it."""
    line: Mapping[str, Any] | None = None
    """Metrics of the last epoch that was evaluated, as in metrics.jsonl."""


class Tracker:
    """Keeps the progress of cells, and shows what has changed as events.

    show: called with the name of a run, its epochs, their total and a text. The event `RUNS` sums
        up the runs of this call, without the epochs of earlier ones.
    name_of: the name of a run. metric: the metric of the text.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        show: Progress | None = None,
        name_of: Callable[[Cell], str] = run_name,
        metric: str = "error",
    ) -> None:
        self.cells = {cell.key: cell for cell in cells}
        self.runs = {cell.key: RunProgress() for cell in cells}
        self.show, self.name_of, self.metric = show, name_of, METRICS[metric]
        self.deaths = 0
        """Workers that were killed, and whose runs were resumed."""
        self._changed: set[str] = set()
        self._shown = 0.0

    def update(self, key: str, run: RunProgress) -> None:
        self.runs[key] = run
        self._changed.add(key)

    def end(
        self, key: str, state: Literal["done", "failed"], test: Mapping[str, float] | None = None
    ) -> None:
        """The run has a record with these metrics, or failed; without metrics, not in this call."""
        run, total = self.runs[key], self.total(key)
        line = None if test is None else {**(run.line or {}), "test": test}
        self.runs[key] = RunProgress(state, total, total if test is None else run.resumed, line)
        if state == "failed" or line is not None:
            self._changed.add(key)

    def total(self, key: str) -> float:
        """Epochs of the recipe; 1 for a run without epochs."""
        return float(self.cells[key].recipe.get("epochs", 1))

    @property
    def epochs_trained(self) -> float:
        """By this call."""
        return sum(run.epochs - run.resumed for run in self.runs.values())

    def tick(self, after: float = 0.0) -> None:
        """Show what has changed, all runs together first, if `after` seconds have passed."""
        if self.show is None or time.monotonic() - self._shown < after:
            return
        self._shown = time.monotonic()
        left = sum(self.total(key) - run.epochs for key, run in self.runs.items())
        self.show(RUNS, self.epochs_trained, self.epochs_trained + left, self._caption())
        for key in [key for key in self.runs if key in self._changed]:
            run, total = self.runs[key], self.total(key)
            # a run with all its epochs is still to be evaluated and written
            done = min(run.epochs, 0.999 * total) if run.state == "training" else total
            self.show(self.name_of(self.cells[key]), done, total, self._text(key))
        self._changed.clear()

    def _text(self, key: str) -> str:
        run = self.runs[key]
        line = run.line or {}
        value = line.get("test", {}).get(self.metric.name)
        score = "" if value is None else self.metric.format(value)
        if run.state != "training":
            return f"{self.metric.title} {score}" if score else run.state
        parts = [count_epochs(run.epochs, self.total(key))]
        if "train_loss" in line:
            parts.append(f"loss {line['train_loss']:.3f}")
            parts.append(f"train {100 * line['train_accuracy']:.1f} %")
        return " · ".join([*parts, f"test {self.metric.short} {score}"] if score else parts)

    def _caption(self) -> str:
        states = [run.state for run in self.runs.values()]
        parts = [f"{states.count('done')} of {plural(len(states), 'run')} finished"]
        parts += [f"{states.count('failed')} failed"] if "failed" in states else []
        parts += [f"{plural(self.deaths, 'killed worker')} started again"] if self.deaths else []
        return ", ".join(parts)
