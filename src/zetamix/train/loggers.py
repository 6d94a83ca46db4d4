"""Training curves for TensorBoard or Weights & Biases, beside the files that always are written."""

from typing import Any

import typer


class NoLog:
    """Nothing beside the files."""

    def write(self, run: Any, line: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class TensorBoard(NoLog):
    """One event folder per run, inside the run's own."""

    def __init__(self, runs: list[Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writers = {run: SummaryWriter(str(run.folder.path / "tensorboard")) for run in runs}

    def write(self, run: Any, line: dict[str, Any]) -> None:
        for name, value in flatten(line):
            self.writers[run].add_scalar(name, value, line["epoch"])

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class WeightsAndBiases(NoLog):
    """One W&B run per run, with the recipe as its configuration."""

    def __init__(self, runs: list[Any]) -> None:
        import wandb

        self.wandb = wandb
        self.open: dict[Any, Any] = {}

    def write(self, run: Any, line: dict[str, Any]) -> None:
        if run not in self.open:
            self.open[run] = self.wandb.init(
                project="zetamix",
                name=f"{run.cell.dataset} {run.name}",
                id=run.cell.key,
                resume="allow",
                config={"method": run.cell.method, "seed": run.cell.seed, **run.cell.recipe},
                reinit="create_new",
            )
        self.open[run].log(dict(flatten(line)), step=line["epoch"])

    def close(self) -> None:
        for each in self.open.values():
            each.finish()


def flatten(line: dict[str, Any]) -> list[tuple[str, float]]:
    """The numbers of one epoch by name: `test/error`.

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


def open_log(name: str | None, runs: list[Any]) -> NoLog:
    kinds = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
    if name is None:
        return NoLog()
    if name not in kinds:
        raise typer.BadParameter(f"expected tensorboard or wandb, got {name!r}", param_hint="--log")
    try:
        return kinds[name](runs)
    except ImportError:
        raise typer.BadParameter(
            f"{name} is not installed; pip install {name}", param_hint="--log"
        ) from None
