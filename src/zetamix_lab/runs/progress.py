"""How far the runs of a list of cells are, as events for a display."""

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
        name_of: Callable[[Cell], str] | None = None,
        metric: str = "error",
    ) -> None:
        self.cells = {cell.key: cell for cell in cells}
        self.runs = {cell.key: RunProgress() for cell in cells}
        self.show, self.name_of, self.metric = show, name_of or run_name, METRICS[metric]
        self.deaths = 0
        """Workers that were killed, and whose runs were resumed."""
        self._changed: set[str] = set()

    def update(self, key: str, run: RunProgress) -> None:
        self.runs[key] = run
        self._changed.add(key)

    def skip(self, key: str) -> None:
        """The run was finished before this call."""
        self.runs[key] = RunProgress("done", self.total(key), self.total(key))

    def finish(self, key: str, test: Mapping[str, float]) -> None:
        run = self.runs[key]
        line = {**(run.line or {}), "test": test}
        self.update(key, RunProgress("done", self.total(key), run.resumed, line))

    def fail(self, key: str) -> None:
        self.update(key, RunProgress("failed", self.total(key), self.total(key)))

    def count_death(self) -> None:
        self.deaths += 1

    def total(self, key: str) -> float:
        """Epochs of the recipe; 1 for a run without epochs."""
        return float(self.cells[key].recipe.get("epochs", 1))

    @property
    def epochs_trained(self) -> float:
        """By this call."""
        return sum(run.epochs - run.resumed for run in self.runs.values())

    def tick(self) -> None:
        """Show what has changed since the last call, all runs together first."""
        if self.show is None:
            return
        left = sum(self.total(key) - run.epochs for key, run in self.runs.items())
        self.show(RUNS, self.epochs_trained, self.epochs_trained + left, self._caption())
        for key in [key for key in self.runs if key in self._changed]:
            run, total = self.runs[key], self.total(key)
            # a run with all its epochs is still to be evaluated and written
            done = min(run.epochs, 0.999 * total) if run.state == "training" else total
            self.show(self.name_of(self.cells[key]), done, total, self._text(key))
        self._changed.clear()

    def _text(self, key: str) -> str:
        run, score = self.runs[key], ""
        line = run.line or {}
        if self.metric.name in line.get("test", {}):
            score = self.metric.format(line["test"][self.metric.name])
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


def run_name(cell: Cell) -> str:
    return f"{display_name(cell.method)} seed {cell.seed}"
