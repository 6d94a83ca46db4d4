"""Training curves for TensorBoard or Weights & Biases, in addition to `metrics.jsonl`."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zetamix.records import Cell

PACKAGES = ("tensorboard", "wandb")


class CurveLogger:
    """Logs the metrics of every epoch; a TensorBoard folder or a W&B run per run.

    package: "tensorboard" or "wandb"; None logs nothing.
    folders: the folder of every run, by key of its cell.
    """

    def __init__(self, package: str | None, folders: Mapping[str, Path]) -> None:
        if package is not None and package not in PACKAGES:
            raise ValueError(f"Expected {' or '.join(PACKAGES)}, got {package!r}.")
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError(f"{package} is not installed: pip install {package}.")
        self.package, self.folders = package, folders
        self._writers: dict[str, Any] = {}

    def write(self, cell: Cell, line: Mapping[str, Any]) -> None:
        """Log one epoch of a run; `line` is that of `metrics.jsonl`."""
        if self.package is None:
            return
        if cell.key not in self._writers:
            self._writers[cell.key] = self._open(cell)
        writer, step = self._writers[cell.key], line["epoch"]
        if self.package == "wandb":
            writer.log(flatten(line), step=step)
        else:
            for name, value in flatten(line).items():
                writer.add_scalar(name, value, step)

    def _open(self, cell: Cell) -> Any:
        if self.package == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            return SummaryWriter(str(self.folders[cell.key] / "tensorboard"))
        import wandb

        return wandb.init(
            project="zetamix",
            name=f"{cell.dataset} {cell.method} seed {cell.seed}",
            id=cell.key,
            resume="allow",
            config={"method": cell.method, "seed": cell.seed, **cell.recipe},
            reinit="create_new",
        )

    def close(self) -> None:
        for writer in self._writers.values():
            writer.finish() if self.package == "wandb" else writer.close()


def flatten(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one epoch by name.

    >>> flatten({"epoch": 1, "lr": 0.1, "test": {"error": 0.5}})
    {'lr': 0.1, 'test/error': 0.5}
    """
    flat: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            flat |= {f"{name}/{metric}": score for metric, score in value.items()}
        elif name != "epoch":
            flat[name] = value
    return flat
