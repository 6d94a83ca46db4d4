"""Training curves for TensorBoard or Weights & Biases, in addition to `metrics.jsonl`."""

from collections.abc import Sequence
from typing import Any

from zetamix.text import did_you_mean
from zetamix.train.run import Run


class LoggerError(ValueError):
    """A logger that does not exist or is not installed."""


class Logger:
    """Logs nothing; the base of all loggers."""

    def write(self, run: Run, line: dict[str, Any]) -> None:
        """Log the metrics of one epoch."""

    def close(self) -> None:
        """Flush and close everything."""


class TensorBoardLogger(Logger):
    """One event folder per run, inside the folder of the run."""

    def __init__(self, runs: Sequence[Run]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writers = {run: SummaryWriter(str(run.folder.path / "tensorboard")) for run in runs}

    def write(self, run: Run, line: dict[str, Any]) -> None:
        for name, value in flatten(line):
            self.writers[run].add_scalar(name, value, line["epoch"])

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class WandbLogger(Logger):
    """One W&B run per run, with the recipe as its configuration."""

    def __init__(self, runs: Sequence[Run]) -> None:
        import wandb

        self.wandb = wandb
        self.opened: dict[Run, Any] = {}

    def write(self, run: Run, line: dict[str, Any]) -> None:
        if run not in self.opened:
            self.opened[run] = self.wandb.init(
                project="zetamix",
                name=f"{run.cell.dataset} {run.name}",
                id=run.cell.key,
                resume="allow",
                config={"method": run.cell.method, "seed": run.cell.seed, **run.cell.recipe},
                reinit="create_new",
            )
        self.opened[run].log(dict(flatten(line)), step=line["epoch"])

    def close(self) -> None:
        for wandb_run in self.opened.values():
            wandb_run.finish()


LOGGERS = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}


def open_logger(name: str | None, runs: Sequence[Run]) -> Logger:
    """The logger of a name, "tensorboard" or "wandb"; None logs nothing."""
    if name is None:
        return Logger()
    if name not in LOGGERS:
        hint = did_you_mean(name, LOGGERS)
        raise LoggerError(f"--log must be tensorboard or wandb, got {name!r}.{hint}")
    try:
        return LOGGERS[name](runs)
    except ImportError:
        raise LoggerError(f"--log {name}: {name} is not installed; pip install {name}.") from None


def flatten(line: dict[str, Any]) -> list[tuple[str, float]]:
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
