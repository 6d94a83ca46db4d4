"""Training curves for TensorBoard, Weights & Biases or MLflow, in addition to `metrics.jsonl`."""

import importlib.util
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from zetamix.text import join
from zetamix_lab.records import Cell
from zetamix_lab.train.run_folder import CELL, RunFolder

PACKAGES = ("tensorboard", "wandb", "mlflow")


class CurveLogger:
    """Logs the metrics of every epoch; a TensorBoard folder, a W&B or an MLflow run per run.

    package: one of PACKAGES; None logs nothing.
    """

    def __init__(self, package: str | None) -> None:
        if package is not None and package not in PACKAGES:
            raise ValueError(f"Expected {join(PACKAGES, 'or')}, got {package!r}.")
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError(f"{package} is not installed: pip install {package}.")
        self.package = package
        self._writers: dict[str, Any] = {}

    def write(self, cell: Cell, folder: Path, line: Mapping[str, Any]) -> None:
        """Log one epoch of a run; `line` is that of `metrics.jsonl`."""
        if self.package is None:
            return
        if cell.key not in self._writers:
            self._writers[cell.key] = self._open(cell, folder)
        writer, step, values = self._writers[cell.key], line["epoch"], flatten(line)
        if self.package == "wandb":
            writer.log(values, step=step)
            return
        for name, value in values.items():
            if self.package == "mlflow":
                self._mlflow().log_metric(writer, name, value, step=step)
            else:
                writer.add_scalar(name, value, step)

    def _open(self, cell: Cell, folder: Path) -> Any:
        name = f"{cell.dataset} {cell.method} seed {cell.seed}"
        settings = {"method": cell.method, "seed": cell.seed, **cell.recipe}
        if self.package == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            return SummaryWriter(str(folder / "tensorboard"))
        if self.package == "mlflow":
            return self._open_mlflow(cell.key, name, settings)
        import wandb

        return wandb.init(
            project="zetamix",
            name=name,
            id=cell.key,
            resume="allow",
            config=settings,
            reinit="create_new",
        )

    def _mlflow(self) -> Any:
        import mlflow

        return mlflow.MlflowClient()

    def _open_mlflow(self, key: str, name: str, settings: Mapping[str, Any]) -> str:
        """The ID of the MLflow run of a cell; a resumed run continues its own."""
        import mlflow

        client, experiment = self._mlflow(), mlflow.set_experiment("zetamix").experiment_id
        found = client.search_runs([experiment], filter_string=f"tags.zetamix_key = '{key}'")
        if found:
            return str(found[0].info.run_id)
        run = client.create_run(experiment, tags={"zetamix_key": key}, run_name=name)
        for setting, value in settings.items():
            client.log_param(run.info.run_id, setting, value)
        return str(run.info.run_id)

    def close(self) -> None:
        for writer in self._writers.values():
            if self.package == "mlflow":
                self._mlflow().set_terminated(writer)
            else:
                writer.finish() if self.package == "wandb" else writer.close()


class FolderLog(AbstractContextManager["FolderLog"]):
    """Passes new epochs of all runs under a folder to a logger, whenever it is called.

    Epochs that already exist were logged by the command that trained them.

    package: as of `CurveLogger`.
    """

    def __init__(self, package: str | None, root: Path) -> None:
        self.logger, self.root = CurveLogger(package), root
        self._cells: dict[Path, Cell] = {}
        self._logged: dict[Path, int] = {}
        self(is_new=False)

    def __exit__(self, *_: object) -> None:
        self()
        self.logger.close()

    def __call__(self, *, is_new: bool = True) -> None:
        if self.logger.package is None:
            return
        for path in self.root.rglob(CELL):
            folder, last = path.parent, self._logged.get(path.parent, 0)
            for line in RunFolder(folder).read_curve():
                if line["epoch"] > last:
                    if is_new:
                        self.logger.write(self._cell(folder), folder, line)
                    self._logged[folder] = line["epoch"]

    def _cell(self, folder: Path) -> Cell:
        if folder not in self._cells:
            values = json.loads((folder / CELL).read_text(encoding="utf-8"))
            names = Cell.__dataclass_fields__
            self._cells[folder] = Cell(**{name: values[name] for name in names if name in values})
        return self._cells[folder]


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
