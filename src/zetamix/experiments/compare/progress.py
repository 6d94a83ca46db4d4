"""How far a comparison is: every cell of the grid, and the time that is left."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from zetamix.experiments.compare.grid import Grid

State: TypeAlias = Literal["waiting", "training", "done", "failed"]


@dataclass(frozen=True)
class CellProgress:
    """One run, as far as it is known."""

    method: str
    seed: int
    state: State
    epochs: float
    """Done, with the part of the current one."""
    scores: Mapping[str, float] | None
    """Test metrics of the last evaluation."""


@dataclass(frozen=True)
class Overview:
    """The whole grid at one moment."""

    cells: tuple[CellProgress, ...]
    epochs: int
    """Of every run."""
    seconds_left: float | None
    """None where nothing can be said."""
    died: int = 0
    """Times that a worker died, whose runs are tried again."""

    def count(self, state: State) -> int:
        return sum(cell.state == state for cell in self.cells)


@dataclass(frozen=True)
class Reached:
    """How far a run is that was stopped on its way."""

    epochs: float
    gained: float
    """Epochs of them since its worker began."""


class Tracker:
    """Puts together what is finished and what workers tell."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.done: dict[str, Mapping[str, float]] = {}
        self.failed: set[str] = set()
        self.words: Mapping[str, Any] = {}
        self.died = 0
        self._seen: dict[str, float] = {}
        self._made = 0.0
        self._began: float | None = None

    def look(self) -> Overview:
        """The state of things now."""
        cells = tuple(self._cell(place.method, place.seed, place.key) for place in self.grid.places)
        self._account(cells)
        left = self._seconds_left(cells)
        return Overview(cells, self.grid.recipe.epochs, left, self.died)

    def reached(self) -> dict[tuple[str, int], Reached]:
        """Runs that are under way, and how far each is."""
        found = {}
        for place in self.grid.places:
            word = self.words.get(place.key)
            if word is not None and place.key not in self.done and place.key not in self.failed:
                epochs = float(word["epochs"])
                found[place.method, place.seed] = Reached(epochs, epochs - float(word["began"]))
        return found

    def _cell(self, method: str, seed: int, key: str) -> CellProgress:
        epochs = float(self.grid.recipe.epochs)
        if key in self.done:
            return CellProgress(method, seed, "done", epochs, self.done[key])
        word = self.words.get(key)
        if key in self.failed:
            return CellProgress(method, seed, "failed", epochs, None)
        if word is None:
            return CellProgress(method, seed, "waiting", 0.0, None)
        return CellProgress(method, seed, "training", float(word["epochs"]), word["scores"])

    def _account(self, cells: tuple[CellProgress, ...]) -> None:
        """Epochs that were trained under our eyes; what a checkpoint brings along is no work."""
        for cell, place in zip(cells, self.grid.places, strict=True):
            if cell.state not in ("training", "done"):
                continue
            if cell.state == "training" and self._began is None:
                self._began = time.monotonic()
            gained = cell.epochs - self._seen.get(place.key, cell.epochs)
            self._made += max(0.0, gained)
            self._seen[place.key] = cell.epochs

    def _seconds_left(self, cells: tuple[CellProgress, ...]) -> float | None:
        if all(cell.state in ("done", "failed") for cell in cells):
            return 0.0
        left = sum(self.grid.recipe.epochs - cell.epochs for cell in cells)
        # a run whose last epoch is over has yet to be evaluated and written
        if left <= 0:
            return None
        if self._began is None or self._made <= 0:
            return None
        return left * (time.monotonic() - self._began) / self._made
