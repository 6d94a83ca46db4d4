"""How long a cell will take here: from this machine's records, or from one measured step."""

import statistics
import time
from functools import lru_cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from zetamix.data import CATALOGUE, from_tensors
from zetamix.experiments.reproduce.cells import Cell, Training
from zetamix.methods import parse
from zetamix.models import build
from zetamix.provenance import machine_info
from zetamix.records import RunRecord
from zetamix.results.record_store import Results
from zetamix.train import RECIPES
from zetamix.train.cuda_graph import CapturedStep
from zetamix.train.trainer import Trainer

# a backward pass does twice the work of a forward pass
PASSES = 3
# samples in a measured step, and steps after the first
PROBE = {"cpu": (4, 1), "cuda": (128, 20)}
# the fastest of so many counts: on two busy cores a single step has taken 20 times as long
ROUNDS = 3
# seconds of a measurement where no record says it: on two cores of an AMD EPYC, on an H200
MEASURING = {
    ("oracle", "mnist"): (420.0, 60.0),
    ("realism", "mnist"): (15.0, 5.0),
    ("dimension", "helix"): (2.0, 1.0),
    ("dimension", "paraboloid"): (2.0, 1.0),
    # on a CPU by arithmetic: 1.5e13 operations in double precision
    ("dimension", "cifar10"): (1500.0, 1.8),
    ("dimension", "cifar100"): (1500.0, 1.8),
    ("batch-time", ""): (30.0, 10.0),
}
ELSE = (0.2, 0.2)


class Speed:
    """Estimates seconds of cells on one device; measures the device when it is first asked."""

    def __init__(self, device: torch.device, results: Results) -> None:
        self.device = device
        self.facts = machine_info(device)
        self.known = self._known(results)
        self._rate: float | None = None

    def seconds(self, cell: Cell) -> float:
        """A guess within a factor of two or three; a record of the same kind makes it better."""
        found = self.known.get(_kind(cell))
        if found:
            return statistics.median(found)
        if isinstance(cell, Training):
            return self._training(cell)
        if cell.kind == "training-time":
            epochs = cell.recipe["timed"] + 2
            whole = Training(cell.dataset, cell.method, 0, RECIPES[cell.dataset], "resnet18")
            return float(self._training(whole) * epochs / whole.recipe.epochs)
        slow, fast = MEASURING.get((cell.kind, cell.dataset), ELSE)
        return fast if self.device.type == "cuda" else slow

    def _known(self, results: Results) -> dict[tuple[str, ...], list[float]]:
        """Seconds by kind of cell, from records of a machine like this one."""
        known: dict[tuple[str, ...], list[float]] = {}
        same = "gpu" if self.device.type == "cuda" else "processor"
        for record in results.records.values():
            where = record.machine
            if where.get(same) != self.facts[same] or ("gpu" in where) != ("gpu" in self.facts):
                continue
            if isinstance(record, RunRecord):
                recipe = record.cell.recipe
                kind: tuple[str, ...] = (
                    record.cell.dataset,
                    recipe["model"],
                    str(recipe["epochs"]),
                )
                # side by side each takes longer, but all of them together less
                seconds = record.wall_s / record.extra.get("concurrent", 1)
            else:
                kind, seconds = (record.kind, record.dataset), record.wall_s
            known.setdefault(kind, []).append(seconds)
        return known

    def _training(self, cell: Training) -> float:
        spec = CATALOGUE[cell.dataset]
        work = PASSES * forward_work(cell.recipe.model, len(spec.classes), spec.shape)
        return work * spec.sizes["train"] * cell.recipe.epochs / self.rate

    @property
    def rate(self) -> float:
        """Operations per second of one real training step, ResNet-18 on images of 32 × 32."""
        if self._rate is None:
            self._rate = measure_rate(self.device)
        return self._rate


def _kind(cell: Cell) -> tuple[str, ...]:
    if isinstance(cell, Training):
        return cell.dataset, cell.recipe.model, str(cell.recipe.epochs)
    return cell.kind, cell.dataset


@lru_cache(maxsize=64)
def forward_work(model: str, classes: int, shape: tuple[int, ...]) -> float:
    """Operations of one sample's forward pass, counted without doing them.

    >>> round(forward_work("resnet18", 10, (3, 32, 32)) / 1e9, 2)
    1.11
    """
    with torch.device("meta"):
        network = build(model, classes, shape).eval()
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            network(torch.empty(1, *shape))
    return float(counter.get_total_flops())


def measure_rate(device: torch.device) -> float:
    """Time a few training steps as a run takes them, after the first."""
    batch, steps = PROBE[device.type]
    images = torch.zeros(batch * (ROUNDS * steps + 1), 3, 32, 32, dtype=torch.uint8)
    labels = torch.arange(len(images)) % 10
    dataset = from_tensors("probe", {"train": (images, labels)})
    recipe = RECIPES["cifar10"].change(batch_size=batch)
    trainer = Trainer(dataset, parse("none"), recipe, device=device)
    trainer.start_epoch()
    take_step = CapturedStep(trainer) if device.type == "cuda" else trainer.step
    take_step()
    _wait(device)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(steps):
            take_step()
        _wait(device)
        times.append(time.perf_counter() - began)
    seconds = min(times)
    return PASSES * forward_work("resnet18", 10, (3, 32, 32)) * batch * steps / seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
