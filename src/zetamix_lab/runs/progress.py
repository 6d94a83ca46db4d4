"""Progress of a list of cells as snapshots, with an estimate of the remaining time."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from zetamix.methods import display_name
from zetamix_lab.records import Cell

# no estimate before this many seconds
SETTLING_SECONDS = 5.0

State: TypeAlias = Literal["waiting", "training", "done", "failed"]


@dataclass(frozen=True)
class CellProgress:
    """One cell at one moment."""

    cell: Cell
    state: State = "waiting"
    epochs: float = 0.0
    """Epochs trained so far, with the fraction of the current one."""
    resumed: float = 0.0
    """Epochs that its checkpoint had when this call started or resumed it."""
    line: Mapping[str, Any] | None = None
    """Metrics of the last epoch that was evaluated, as in metrics.jsonl."""

    @property
    def total(self) -> int:
        """Epochs of the recipe."""
        return int(self.cell.recipe["epochs"])

    @property
    def scores(self) -> Mapping[str, float] | None:
        """Test metrics of the last evaluation."""
        return None if self.line is None else self.line["test"]

    @property
    def name(self) -> str:
        return f"{display_name(self.cell.method)} seed {self.cell.seed}"


@dataclass(frozen=True)
class Snapshot:
    """All cells at one moment."""

    cells: tuple[CellProgress, ...]
    seconds_left: float | None = None
    """None if it cannot be estimated yet."""
    deaths: int = 0
    """Workers that were killed, and whose runs were resumed."""

    def count(self, state: State) -> int:
        return sum(cell.state == state for cell in self.cells)


class Tracker:
    """Combines finished records, failures and the messages of workers into snapshots.

    A message has at least "epochs", "resumed", "line" and "done", by key of the cell.
    """

    def __init__(self, cells: Sequence[Cell], clock: Callable[[], float] = time.monotonic) -> None:
        self.cells = tuple(cells)
        self.clock = clock
        self.scores: dict[str, Mapping[str, float]] = {}
        """Test metrics of finished cells, by key."""
        self.failed: set[str] = set()
        self.messages: Mapping[str, Mapping[str, Any]] = {}
        self.deaths = 0
        self._started: float | None = None

    def snapshot(self) -> Snapshot:
        cells = tuple(self._progress(cell) for cell in self.cells)
        if self._started is None and any(cell.state == "training" for cell in cells):
            self._started = self.clock()
        return Snapshot(cells, self._seconds_left(cells), self.deaths)

    def _progress(self, cell: Cell) -> CellProgress:
        key, total = cell.key, float(cell.recipe["epochs"])
        message = self.messages.get(key)
        resumed = total if message is None else float(message["resumed"])
        if key in self.scores:
            line = {"epoch": int(total), "test": self.scores[key]}
            if message is not None and message["line"] is not None:
                line = {**message["line"], **line}
            return CellProgress(cell, "done", total, resumed, line)
        if key in self.failed:
            return CellProgress(cell, "failed", total, total)
        if message is None:
            return CellProgress(cell)
        state: State = "done" if message["done"] else "training"
        return CellProgress(cell, state, float(message["epochs"]), resumed, message["line"])

    def _seconds_left(self, cells: Sequence[CellProgress]) -> float | None:
        """Estimated from the epochs trained since the start, without those of checkpoints."""
        if all(cell.state in ("done", "failed") for cell in cells):
            return 0.0
        left = sum(cell.total - cell.epochs for cell in cells)
        trained = sum(cell.epochs - cell.resumed for cell in cells)
        # a run with all epochs trained still has to be evaluated and written
        if left <= 0 or trained <= 0 or self._started is None:
            return None
        elapsed = self.clock() - self._started
        # the first steps of a process are slow: they compile and fill caches
        return None if elapsed < SETTLING_SECONDS else left * elapsed / trained
