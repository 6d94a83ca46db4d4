"""How far the runs of a list of cells are, as events for a display."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zetamix.methods import display_name
from zetamix_lab.comparison import metric_of
from zetamix_lab.progress import Progress, count_epochs
from zetamix_lab.records import Cell
from zetamix_lab.text import plural

# the event about all runs together
RUNS = "runs"


def run_name(cell: Cell, until: float | None = None) -> str:
    """until: as in `zetamix.methods.display_name`."""
    return f"{display_name(cell.method, until)} seed {cell.seed}"


@dataclass
class RunProgress:
    """How far one run is."""

    name: str
    total: float
    """Epochs of the recipe; 1 for a run without epochs."""
    state: str = "waiting"
    """Or "training", "done", "failed"."""
    epochs: float = 0.0
    """Epochs trained so far, with the fraction of the current one."""
    resumed: float = 0.0
    """Epochs that its checkpoint had when this call started or resumed it."""
    line: Mapping[str, Any] = field(default_factory=dict)
    """Metrics of the last epoch that was evaluated, as in metrics.jsonl."""
    changed: bool = False


class Tracker:
    """Keeps the progress of cells, and shows what has changed as events.

    show: called with the name of a run, its epochs, their total and a text. The event `RUNS` sums
        up the runs of this call, without the epochs of earlier ones.
    name_of: the name of a run. metric: the metric of the text; the first one if a run lacks it.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        show: Progress | None = None,
        name_of: Callable[[Cell], str] = run_name,
        metric: str = "error",
    ) -> None:
        self.runs = {
            cell.key: RunProgress(name_of(cell), float(cell.recipe.get("epochs", 1)))
            for cell in cells
        }
        self.show, self.metric = show, metric
        self.deaths = 0
        """Workers that were killed, and whose runs were resumed."""
        self._shown = 0.0

    def update(self, key: str, epochs: float, resumed: float, line: Mapping[str, Any]) -> None:
        run = self.runs[key]
        run.state, run.changed = "training", True
        run.epochs, run.resumed, run.line = epochs, resumed, line

    def end(self, key: str, state: str, test: Mapping[str, float] | None = None) -> None:
        """The run has a record with these metrics, or failed; without metrics, not in this call."""
        run = self.runs[key]
        run.state, run.epochs, run.changed = state, run.total, state == "failed" or test is not None
        if test is None:
            run.resumed = run.total
        else:
            run.line = {**run.line, "test": test}

    def tick(self, after: float = 0.0) -> None:
        """Show what has changed, all runs together first, if `after` seconds have passed."""
        if self.show is None or time.monotonic() - self._shown < after:
            return
        self._shown = time.monotonic()
        runs = self.runs.values()
        trained = sum(run.epochs - run.resumed for run in runs)
        left = sum(run.total - run.epochs for run in runs)
        self.show(RUNS, trained, trained + left, self._caption())
        for run in runs:
            if run.changed:
                # a run with all its epochs is still to be evaluated and written
                done = run.total
                if run.state == "training":
                    done = min(run.epochs, 0.999 * run.total)
                self.show(run.name, done, run.total, self._text(run))
                run.changed = False

    def _text(self, run: RunProgress) -> str:
        test = run.line.get("test", {})
        metric = metric_of(self.metric if self.metric in test else next(iter(test), self.metric))
        score = metric.format(test[metric.name]) if test else ""
        if run.state != "training" or not run.epochs:
            return f"{metric.title} {score}" if score else run.state
        parts = [count_epochs(run.epochs, run.total)]
        if "train_loss" in run.line:
            parts.append(f"loss {run.line['train_loss']:.3f}")
            parts.append(f"train {100 * run.line['train_accuracy']:.1f} %")
        return " · ".join([*parts, f"test {metric.short} {score}"] if score else parts)

    def _caption(self) -> str:
        states = [run.state for run in self.runs.values()]
        parts = [f"{states.count('done')} of {plural(len(states), 'run')} finished"]
        parts += [f"{states.count('failed')} failed"] if "failed" in states else []
        parts += [f"{plural(self.deaths, 'killed worker')} started again"] if self.deaths else []
        return ", ".join(parts)
