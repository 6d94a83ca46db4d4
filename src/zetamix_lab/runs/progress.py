"""How far the runs of a list of cells are, as events for a display."""

import time
from collections.abc import Callable, Mapping, Sequence
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


class Tracker:
    """Keeps the progress of cells by key, and shows what has changed as events.

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
        self.show, self.metric = show, metric
        self.names = {cell.key: name_of(cell) for cell in cells}
        # 1 for a run without epochs
        self.totals = {cell.key: float(cell.recipe.get("epochs", 1)) for cell in cells}
        self.states = dict.fromkeys(self.names, "waiting")
        """Then "training", and "done" or "failed"."""
        self.epochs = dict.fromkeys(self.names, 0.0)
        """Trained so far, with the fraction of the current one."""
        self.resumed = dict.fromkeys(self.names, 0.0)
        """Epochs of the checkpoint when this call started or resumed the run."""
        self.deaths = 0
        """Workers that were killed, and whose runs were resumed."""
        self._changed: dict[str, tuple[float, str]] = {}
        self._shown = 0.0

    def update(self, key: str, epochs: float, resumed: float, line: Mapping[str, Any]) -> None:
        """line: metrics of the last epoch that was evaluated, as in metrics.jsonl."""
        total = self.totals[key]
        self.states[key], self.epochs[key], self.resumed[key] = "training", epochs, resumed
        parts = [count_epochs(epochs, total) if epochs else "training"]
        if "train_loss" in line:
            parts.append(f"loss {line['train_loss']:.3f}")
            parts.append(f"train {100 * line['train_accuracy']:.1f} %")
        if line:
            metric = metric_of(self.metric)
            parts.append(f"test {metric.short} {metric.format(line['test'][metric.name])}")
        # a run with all its epochs is still to be evaluated and written
        self._changed[key] = min(epochs, 0.999 * total), " · ".join(parts)

    def end(self, key: str, state: str, test: Mapping[str, float] | None = None) -> None:
        """The run has a record with these metrics, or failed; without metrics, not in this call."""
        total, text = self.totals[key], state
        self.states[key], self.epochs[key] = state, total
        if test is None:
            self.resumed[key] = total
        else:
            metric = metric_of(self.metric if self.metric in test else next(iter(test)))
            text = f"{metric.title} {metric.format(test[metric.name])}"
        if state == "failed" or test is not None:
            self._changed[key] = total, text

    def tick(self, after: float = 0.0) -> None:
        """Show what has changed, all runs together first, if `after` seconds have passed."""
        if self.show is None or time.monotonic() - self._shown < after:
            return
        self._shown = time.monotonic()
        states, reached = [*self.states.values()], sum(self.epochs.values())
        resumed, total = sum(self.resumed.values()), sum(self.totals.values())
        parts = [f"{states.count('done')} of {plural(len(states), 'run')} finished"]
        parts += [f"{states.count('failed')} failed"] if "failed" in states else []
        parts += [f"{plural(self.deaths, 'killed worker')} started again"] if self.deaths else []
        self.show(RUNS, reached - resumed, total - resumed, ", ".join(parts))
        for key, (done, text) in self._changed.items():
            self.show(self.names[key], done, self.totals[key], text)
        self._changed.clear()
