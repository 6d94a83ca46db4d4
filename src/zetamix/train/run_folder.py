"""The folder of one run: what is trained, its curve, its checkpoint, and in the end its record."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from zetamix.atomic_io import write_atomically, write_json, write_text
from zetamix.records import Cell, RunRecord, read_lines


class FolderError(ValueError):
    """A folder that cannot take this run; the message says why and what to do."""


class RunFolder:
    """Files of a run under `path`. Each appears whole or not at all.

    `cell.json` what is trained, `metrics.jsonl` a line per epoch, `checkpoint.pt` to go on from
    while unfinished, `final.pt` and `model.json` the model after the last epoch, `record.json` the
    result.
    """

    def __init__(self, path: Path, cell: Cell, *, resume: bool) -> None:
        self.path = path
        self.cell = cell
        self.curve: list[dict[str, Any]] = []
        if (path / "cell.json").exists():
            self._check_same(cell)
            if not resume and self.record is None:
                raise FolderError(
                    f"{path} holds an unfinished run of this. Add --resume to go on with it, or "
                    "choose another --out."
                )

    def open(self) -> None:
        """Make the folder; from now on it belongs to this run."""
        self._drop_parts()
        write_json(self.path / "cell.json", {"key": self.cell.key, **self.cell.__dict__})

    def _check_same(self, cell: Cell) -> None:
        path = self.path / "cell.json"
        try:
            old = json.loads(path.read_text())
            same = old.pop("key") == cell.key
        except (ValueError, AttributeError, TypeError, KeyError):
            raise FolderError(
                f"{path} does not say what was trained here. Choose another --out."
            ) from None
        if same:
            return
        there, here = _flatten(old), _flatten(cell.__dict__)
        changed = [
            f"{name}: {there.get(name)} there, {here.get(name)} asked for"
            for name in sorted({*there, *here})
            if there.get(name) != here.get(name)
        ]
        raise FolderError(
            f"{self.path} holds another run ({'; '.join(changed)}). Choose another --out."
        )

    @property
    def record(self) -> RunRecord | None:
        """The result, where the run is finished."""
        path = self.path / "record.json"
        if not path.exists():
            return None
        record = RunRecord.from_dict(json.loads(path.read_text()))
        if record.cell.key != self.cell.key:
            raise FolderError(f"{path} is of another run. Choose another --out.")
        return record

    def finish(self, record: RunRecord) -> None:
        write_json(self.path / "record.json", record.as_dict())
        self.tidy()

    def tidy(self) -> None:
        """Remove what a finished run would go on from; the model itself stays in final.pt."""
        (self.path / "checkpoint.pt").unlink(missing_ok=True)
        self._drop_parts()

    def _drop_parts(self) -> None:
        # what a killed process was writing: as large as a checkpoint, and of no use
        for part in self.path.glob(".*.part"):
            part.unlink(missing_ok=True)

    def save(self, name: str, state: dict[str, Any]) -> None:
        path = self.path / name
        try:
            write_atomically(path, lambda file: torch.save(state, file))
        except (OSError, RuntimeError) as error:
            # where a disk is full, torch raises an error of its own on the way out
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, OSError):
                cause = cause.__context__
            if cause is None:
                raise
            raise FolderError(
                f"{path} cannot be written ({cause.strerror}). What was saved before is whole: "
                "make room, and the same command with --resume goes on."
            ) from error

    def load(self, name: str, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        """The checkpoint that `name` is; None where there is none."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except Exception as error:
            raise FolderError(
                f"{path} cannot be read ({error}). Remove it to start this run anew."
            ) from error
        if not (isinstance(state, dict) and state.keys() >= {"place", "trainer", "best"}):
            raise FolderError(
                f"{path} is not a checkpoint of this version of zetamix. Remove it to start this "
                "run anew."
            )
        return state

    def add_epoch(self, line: dict[str, Any]) -> None:
        self.curve.append(line)
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def rewind(self, epochs: int) -> None:
        """Read the curve and drop what came after the checkpoint that the run goes on from."""
        path = self.path / "metrics.jsonl"
        self.curve = [line for line in read_lines(path) if line["epoch"] <= epochs]
        write_text(path, "".join(json.dumps(line) + "\n" for line in self.curve))


@contextmanager
def hold(folders: Iterable[Path], wait: float = 0.0) -> Iterator[None]:
    """Keep the folders of runs to this process: two that write there would spoil each other's.

    wait: seconds for a process that is about to end, such as one whose parent was killed.
    """
    with ExitStack() as stack:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(FileLock(folder / ".lock", timeout=wait))
            except Timeout:
                raise FolderError(
                    f"{folder} is in use by another process. Wait for it, or end it."
                ) from None
        yield


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
