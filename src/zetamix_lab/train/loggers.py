"""Training curves in TensorBoard, in addition to `metrics.jsonl`."""

import importlib.util
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from zetamix_lab.train.run_folder import CELL, RunFolder


class FolderLog(AbstractContextManager["FolderLog"]):
    """Passes new epochs of all runs under a folder to TensorBoard, whenever it is called.

    Epochs that already exist were logged by the command that trained them.

    package: "tensorboard"; None logs nothing.
    """

    def __init__(self, package: str | None, root: Path) -> None:
        if package not in (None, "tensorboard"):
            raise ValueError(f"Expected tensorboard, got {package!r}.")
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError("tensorboard is not installed: pip install 'zetamix[tensorboard]'.")
        self.root = root if package else None
        self._logged: dict[Path, int] = {}
        self._writers: dict[Path, Any] = {}
        self(is_new=False)

    def __exit__(self, *_: object) -> None:
        self()
        for writer in self._writers.values():
            writer.close()

    def __call__(self, *, is_new: bool = True) -> None:
        for path in self.root.rglob(CELL) if self.root else ():
            folder, last = path.parent, self._logged.get(path.parent, 0)
            for line in RunFolder(folder).read_curve():
                if line["epoch"] > last:
                    self._logged[folder] = line["epoch"]
                    if is_new:
                        self._write(folder, line)

    def _write(self, folder: Path, line: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if folder not in self._writers:
            self._writers[folder] = SummaryWriter(str(folder / "tensorboard"))
        for name, value in flatten(line).items():
            self._writers[folder].add_scalar(name, value, line["epoch"])


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
