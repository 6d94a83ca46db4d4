"""The folder of one run: what is trained, its curve, its checkpoint, and in the end its record."""

import json
from pathlib import Path
from typing import Any

import torch

from zetamix.files import write_atomically, write_json, write_text
from zetamix.records import Cell, RunRecord, read_lines


class FolderError(ValueError):
    """A folder that cannot take this run; the message says why and what to do."""


class RunFolder:
    """Files of a run under `path`. Each appears whole or not at all.

    `cell.json` what is trained, `metrics.jsonl` a line per epoch, `checkpoint.pt` to go on from,
    `best.pt` the model of the best validation epoch, `record.json` the result.
    """

    def __init__(self, path: Path, cell: Cell, *, resume: bool) -> None:
        self.path = path
        self.curve: list[dict[str, Any]] = []
        if (path / "cell.json").exists():
            self._check_same(cell)
            if not resume and self.record is None:
                raise FolderError(
                    f"{path} holds an unfinished run of this. Add --resume to go on with it, or "
                    "choose another --out."
                )
        self.cell = cell

    def open(self) -> None:
        """Make the folder; from now on it belongs to this run."""
        write_json(self.path / "cell.json", {"key": self.cell.key, **self.cell.__dict__})

    def _check_same(self, cell: Cell) -> None:
        old = json.loads((self.path / "cell.json").read_text())
        if old.pop("key") == cell.key:
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
        return RunRecord.from_dict(json.loads(path.read_text())) if path.exists() else None

    def finish(self, record: RunRecord) -> None:
        write_json(self.path / "record.json", record.as_dict())
        # what a finished run would go on from; the model itself stays in final.pt
        (self.path / "checkpoint.pt").unlink(missing_ok=True)

    def save(self, name: str, state: dict[str, Any]) -> None:
        write_atomically(self.path / name, lambda file: torch.save(state, file))

    def load(self, name: str, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        """A saved state; None where there is none."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except Exception as error:
            raise FolderError(
                f"{path} cannot be read ({error}). Remove it to start this run anew."
            ) from error
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


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
