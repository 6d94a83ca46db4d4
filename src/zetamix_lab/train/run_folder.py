"""The folder of one run: every file name, locking, resuming, curves, and loading the model."""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

from zetamix_lab.atomic_io import (
    load_tensors,
    naming,
    read_json,
    write_bytes,
    write_json,
    write_text,
)
from zetamix_lab.models import TrainedModel, initialise
from zetamix_lab.records import Cell, RunRecord, SampleResults, read_lines
from zetamix_lab.text import reason

CELL = "cell.json"
CURVE = "metrics.jsonl"
CHECKPOINT = "checkpoint.pt"
MODEL = "model.json"
WEIGHTS = "final.pt"
RECORD = "record.json"
SAMPLES = "test.npz"
LOCK = ".lock"
CHECKPOINT_SCHEMA = "zetamix/checkpoint/2"
RETRAIN = "Remove its folder to train this run again."


class FolderError(ValueError):
    """A folder that cannot be used for this run. The message says why and what to do."""


@contextmanager
def _reading(path: Path | str, advice: str = RETRAIN) -> Iterator[None]:
    """Raise a `FolderError` with advice for whatever a damaged file raises."""
    try:
        yield
    except FolderError:
        raise
    except Exception as error:
        raise FolderError(f"{path} cannot be read: {reason(error)}. {advice}") from error


class RunFolder:
    """The files of a run under `path`. Each of them is written atomically.

    `cell.json` describes the run, `metrics.jsonl` has one line per epoch, `checkpoint.pt` exists
    while the run is unfinished, `model.json` and `final.pt` hold the model after the last epoch,
    `test.npz` the result for each test sample, `record.json` the result. The record is written
    last, and implies that the other files exist.

    cell: the run to train. Raises if the folder belongs to another run; an unfinished run of the
        same cell is resumed. None to read any folder.
    """

    def __init__(self, path: Path, cell: Cell | None = None) -> None:
        self.path, self.cell = path, cell
        if cell is None or not (path / CELL).exists():
            return
        with _reading(path / CELL):
            old = read_json(path / CELL)
            there = {**old, **old["recipe"]}
        if there.get("key") != cell.key:
            changed = [
                f"{name}: {there.get(name)} there, {value} requested"
                for name, value in sorted({**cell.__dict__, **cell.recipe}.items())
                if name != "recipe" and there.get(name) != value
            ]
            raise FolderError(
                f"{path} is the folder of another run ({'; '.join(changed)}). Choose another --out."
            )

    def open(self, cell: Cell, epochs: int) -> None:
        """Create the folder, or drop the epochs after the checkpoint to resume from."""
        self.clean_up()
        write_json(self.path / CELL, {"key": cell.key, **cell.__dict__})
        kept = self.read_curve(epochs)
        write_text(self.path / CURVE, "".join(f"{json.dumps(line)}\n" for line in kept))

    def read_record(self) -> RunRecord | None:
        """The result of a finished run; None if the run is unfinished."""
        path = self.path / RECORD
        if not path.exists():
            return None
        with _reading(path, "Remove it to train this run again."):
            record = RunRecord.from_dict(read_json(path))
        if self.cell is not None and record.cell.key != self.cell.key:
            raise FolderError(f"{path} is the record of another run. Choose another --out.")
        return record

    def read_curve(self, epochs: int | None = None) -> list[dict[str, Any]]:
        """The metrics of the first epochs, in order; by default of every epoch so far.

        Raises if one is missing, of a finished run any of its epochs.
        """
        if epochs is None and (record := self.read_record()) is not None:
            epochs = record.cell.recipe["epochs"]
        try:
            lines = list(read_lines(self.path / CURVE))[:epochs]
        except ValueError as error:
            raise FolderError(f"{error} {RETRAIN}") from None
        epochs = len(lines) if epochs is None else epochs
        if [line.get("epoch") for line in lines] != [*range(1, epochs + 1)]:
            raise FolderError(
                f"{self.path / CURVE}: expected a line for each epoch from 1 to {epochs}, got "
                f"{len(lines)} lines. {RETRAIN}"
            )
        return lines

    def add_epoch(self, line: dict[str, Any]) -> None:
        path = self.path / CURVE
        with naming(path), path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        self._save(CHECKPOINT, {"schema": CHECKPOINT_SCHEMA, **state})

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint, on the CPU; None if there is none."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        with _reading(path, "Remove it to restart this run."):
            state: dict[str, Any] = load_tensors(path)
            if state["schema"] != CHECKPOINT_SCHEMA:
                raise ValueError(f"expected {CHECKPOINT_SCHEMA}, got {state['schema']!r}")
        return state

    def read_samples(self) -> SampleResults | None:
        """The result for each test sample; None of a run by a version that kept none."""
        path = self.path / SAMPLES
        with _reading(path):
            return SampleResults.load(path) if path.exists() else None

    def finish(
        self,
        record: RunRecord,
        description: dict[str, Any],
        weights: dict[str, Any] | None,
        samples: SampleResults | None = None,
    ) -> None:
        """Write the model, the samples, then the record, and remove the checkpoint.

        description: what `load_model` needs to build the network.
        weights: None to keep no model.
        """
        if weights is not None:
            write_json(self.path / MODEL, description)
            self._save(WEIGHTS, weights)
        if samples is not None:
            samples.save(self.path / SAMPLES)
        write_json(self.path / RECORD, record.as_dict())
        self.clean_up()

    def clean_up(self) -> None:
        """Remove leftovers of a killed process: temporary files, an obsolete checkpoint."""
        for part in self.path.glob(".*.part"):
            part.unlink(missing_ok=True)
        if (self.path / RECORD).exists():
            (self.path / CHECKPOINT).unlink(missing_ok=True)

    def _save(self, name: str, state: dict[str, Any]) -> None:
        path, content = self.path / name, io.BytesIO()
        torch.save(state, content)
        try:
            write_bytes(path, content.getvalue())
        except OSError as error:
            raise FolderError(
                f"{path} cannot be written ({error.strerror}). The last checkpoint is intact: free "
                "some space, then rerun the same command to resume."
            ) from error


@contextmanager
def hold(folders: Iterable[Path], wait: float = 0.0, lock: str = LOCK) -> Iterator[None]:
    """Lock the folders of runs, so that no other process or thread writes there.

    wait: seconds to wait for the current owner, such as a process whose parent was killed.
    lock: name of the lock file.
    """
    with ExitStack() as stack:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(FileLock(folder / lock, timeout=wait))
            except Timeout:
                raise FolderError(
                    f"{folder} is in use by another process. Wait for it, or stop it."
                ) from None
        yield


@contextmanager
def log_curves(package: str | None, root: Path) -> Iterator[Callable[[], None]]:
    """A function that passes new epochs of all runs under a folder to TensorBoard.

    Epochs that already exist were logged by the command that trained them; the last ones are
    logged at the end.

    package: "tensorboard"; None logs nothing.
    """
    if package is None:
        yield lambda: None
        return
    if package != "tensorboard":
        raise ValueError(f"Expected tensorboard, got {package!r}.")
    import pandas as pd

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        text = "tensorboard is not installed: pip install 'zetamix[tensorboard]'."
        raise ValueError(text) from None
    curves = {path.parent: RunFolder(path.parent).read_curve() for path in root.rglob(CELL)}
    logged, writers = {folder: len(curve) for folder, curve in curves.items()}, dict[Path, Any]()

    def log() -> None:
        for folder in [path.parent for path in root.rglob(CELL)]:
            curve, first = RunFolder(folder).read_curve(), logged.get(folder, 0)
            for line in curve[first:]:
                if folder not in writers:
                    writers[folder] = SummaryWriter(str(folder / "tensorboard"))
                scores = pd.json_normalize(line, sep="/").iloc[0].drop("epoch")
                for name, score in scores.items():
                    writers[folder].add_scalar(name, score, line["epoch"])
            # a resumed run trains epochs after its checkpoint again
            logged[folder] = max(first, len(curve))

    try:
        yield log
    finally:
        log()
        for writer in writers.values():
            writer.close()


def load_model(
    folder: str | Path, device: torch.device | str = "cpu", *, calibrated: bool = False
) -> TrainedModel:
    """Load the model of a finished run after its last epoch, in evaluation mode.

    folder: the folder of a run, such as out/compare-photos/runs/zeta-2.8-s0-….
    calibrated: whether to divide the logits by the temperature that was fitted on the validation
        split, so that softmax gives calibrated probabilities. Predictions do not change.
    """
    path = Path(folder)
    record = RunFolder(path).read_record()
    if record is None:
        raise FolderError(
            f"{path} has no finished run: {RECORD} is missing. Expected the folder of a run, such "
            "as out/compare-photos/runs/zeta-2.8-s0-…."
        )
    if calibrated and "temperature" not in record.extra:
        raise FolderError(
            f"{path} has no temperature: its dataset has no validation split to fit one on. Load "
            "the model with calibrated=False."
        )
    with _reading(f"The model in {path}"):
        form, weights = read_json(path / MODEL), load_tensors(path / WEIGHTS)
        name, stem = form["model"], form["stem"]
        trained = TrainedModel(
            nn.Identity(),
            tuple(form["classes"]),
            tuple(form["shape"]),
            torch.tensor(form["mean"]),
            torch.tensor(form["std"]),
            is_bytes=form["dtype"] == "uint8",
            temperature=float(record.extra["temperature"]) if calibrated else 1.0,
        )
    trained.network = initialise(name, len(trained.classes), trained.shape, stem=stem)
    try:
        trained.network.load_state_dict(weights)
    except RuntimeError as error:
        raise FolderError(
            f"The weights in {path} do not match {name}: {str(error).splitlines()[-1].strip()}"
        ) from error
    return trained.to(device).eval()
