"""A cache of the output of finished comparisons, printed without loading torch or the data."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import zetamix
from zetamix.atomic_io import read_json, seal, write_json

FOLDER = ".shown"


class ShownAgain:
    """The cached output of a finished command, valid while its inputs are unchanged.

    The inputs are the command with all its options, the working directory, the width of the
    terminal, the package, the data, files named by options, and the records and reports in the
    output folder. The cache is in the data folder.

    options: all options of the command. data: name or path of its data.
    """

    def __init__(
        self, console: Console, options: Mapping[str, Any], data: str, data_dir: Path | None
    ) -> None:
        self.console = console
        folder = data_dir or os.environ.get("ZETAMIX_DATA") or "~/.cache/zetamix"
        self.data_dir = Path(folder).expanduser()
        values = {name: str(value) for name, value in sorted(options.items())}
        terminal = [console.width, console.is_terminal, str(console.color_system)]
        package = [zetamix.__version__, *_stats(Path(zetamix.__file__).parent)]
        key = _hash([values, str(Path.cwd()), terminal, package])
        self.file = self.data_dir / FOLDER / f"{key[:16]}.json"
        self.data = str(Path(data.removeprefix("hf:")).expanduser())
        self.options = [str(value) for value in options.values()]

    def show(self) -> Path | None:
        """Print the text if it is still valid; return the output folder of the command, or None."""
        try:
            kept = read_json(self.file, checked=True)
            out = Path(kept["out"])
            if kept["state"] != self._state(out):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        typer.echo(kept["text"], nl=False, err=self.console.stderr, color=self.console.is_terminal)
        return out

    def keep(self, out: Path, draw: Callable[[Console], None]) -> None:
        """Cache what `draw` prints, if `_inputs` can list all files of the data.

        out: the output folder of the command.
        """
        from zetamix.data import CATALOGUE

        path = Path(self.data)
        if path.suffix.lower() == ".csv" or not (path.exists() or self.data in CATALOGUE):
            # the images of a CSV file may be anywhere, and names have several spellings
            return
        console = Console(
            record=True,
            file=io.StringIO(),
            width=self.console.width,
            force_terminal=self.console.is_terminal,
            color_system=self.console.color_system,  # type: ignore[arg-type]
        )
        draw(console)
        text = console.export_text(styles=True)
        # the cache is optional: without it the command is only slower
        with suppress(OSError):
            kept = {"out": str(out), "state": self._state(out), "text": text}
            write_json(self.file, seal(kept))

    def _state(self, out: Path) -> str:
        reports = sorted(out.glob("results.*"))
        records = sorted(out.glob("runs/*/record.json"))
        outputs = [out / "report.html", *reports, *records]
        return _hash([list(_stats(path)) for path in (*outputs, *self._inputs())])

    def _inputs(self) -> list[Path]:
        """The data, and files named by options."""
        path = Path(self.data)
        inputs = [path] if path.exists() else sorted(self.data_dir.glob(f"{self.data}*"))
        for text in self.options:
            file = Path(f"{text.partition('.py:')[0]}.py" if ".py:" in text else text)
            inputs += [file] if file.is_file() else []
        return inputs


def _stats(path: Path) -> Iterator[list[Any]]:
    """Name, size and time of a file, or of all files under a folder except hidden ones."""
    if path.is_dir():
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(n for n in folders if not n.startswith(".") and n != "__pycache__")
            for name in sorted(files):
                if not name.startswith("."):
                    yield from _stats(Path(folder) / name)
    else:
        stat = path.stat()
        yield [str(path), stat.st_size, stat.st_mtime_ns]


def _hash(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
