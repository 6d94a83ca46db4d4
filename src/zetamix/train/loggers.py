"""Training curves for TensorBoard or Weights & Biases, in addition to `metrics.jsonl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zetamix.records import Cell
from zetamix.text import did_you_mean


class LoggerError(ValueError):
    """A logger that does not exist or is not installed."""


class Logger:
    """Logs nothing; the base of all loggers."""

    def write(self, cell: Cell, line: Mapping[str, Any]) -> None:
        """Log the metrics of one epoch of a run."""

    def close(self) -> None:
        """Flush and close everything."""


class TensorBoardLogger(Logger):
    """One event folder per run, inside the folder of the run."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writers = {
            key: SummaryWriter(str(folder / "tensorboard")) for key, folder in folders.items()
        }

    def write(self, cell: Cell, line: Mapping[str, Any]) -> None:
        for name, value in flatten(line):
            self.writers[cell.key].add_scalar(name, value, line["epoch"])

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class WandbLogger(Logger):
    """One W&B run per run, with the recipe as its configuration."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        import wandb

        self.wandb = wandb
        self.opened: dict[str, Any] = {}

    def write(self, cell: Cell, line: Mapping[str, Any]) -> None:
        if cell.key not in self.opened:
            self.opened[cell.key] = self.wandb.init(
                project="zetamix",
                name=f"{cell.dataset} {cell.method} seed {cell.seed}",
                id=cell.key,
                resume="allow",
                config={"method": cell.method, "seed": cell.seed, **cell.recipe},
                reinit="create_new",
            )
        self.opened[cell.key].log(dict(flatten(line)), step=line["epoch"])

    def close(self) -> None:
        for wandb_run in self.opened.values():
            wandb_run.finish()


LOGGERS = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}


def open_logger(name: str | None, folders: Mapping[str, Path]) -> Logger:
    """The logger of a name, "tensorboard" or "wandb"; None logs nothing.

    folders: the folder of every run, by key of its cell.
    """
    if name is None:
        return Logger()
    if name not in LOGGERS:
        hint = did_you_mean(name, LOGGERS)
        raise LoggerError(f"--log must be tensorboard or wandb, got {name!r}.{hint}")
    try:
        return LOGGERS[name](folders)
    except ImportError:
        raise LoggerError(f"--log {name}: {name} is not installed; pip install {name}.") from None


def flatten(line: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The numbers of one epoch by name.

    >>> flatten({"epoch": 1, "lr": 0.1, "test": {"error": 0.5}})
    [('lr', 0.1), ('test/error', 0.5)]
    """
    pairs: list[tuple[str, float]] = []
    for name, value in line.items():
        if isinstance(value, dict):
            pairs += [(f"{name}/{inner}", score) for inner, score in value.items()]
        elif name != "epoch":
            pairs.append((name, value))
    return pairs
