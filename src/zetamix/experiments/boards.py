"""A board that workers and whoever started them share: how far each is, and whether to go on."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Word: TypeAlias = Mapping[str, Any]

STOP = "stop"
# a reader sees a change within half a second; a worker loses nothing by telling no more often
EVERY = 0.5


class Board(Protocol):
    """Words by name; a new one takes the place of the old."""

    def put(self, name: str, word: Word) -> None: ...

    def get(self, name: str) -> Word | None: ...

    def all(self) -> dict[str, Word]: ...

    def abandoned(self) -> bool:
        """Whether nobody reads any more."""
        ...


class FileBoard:
    """A board for the processes of one machine: a file for each word.

    Nothing is to be started, and nothing hangs when a process is killed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = FileBoard(Path(folder))
    ...     board.put("run-1", {"epoch": 3})
    ...     board.get("run-1"), board.get("run-2")
    ({'epoch': 3}, None)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = os.getpid()
        folder.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Take down what an earlier owner has left."""
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)

    def put(self, name: str, word: Word) -> None:
        # whole or not at all, but not forced to disk: it is of no use after a crash
        part = self.folder / f"{name}.{os.getpid()}.part"
        part.write_text(json.dumps(word))
        os.replace(part, self.folder / f"{name}.json")

    def get(self, name: str) -> Word | None:
        try:
            word: Word = json.loads((self.folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        return word

    def all(self) -> dict[str, Word]:
        found = {path.stem: self.get(path.stem) for path in sorted(self.folder.glob("*.json"))}
        return {name: word for name, word in found.items() if word is not None}

    def abandoned(self) -> bool:
        # a process whose parent was killed gets another one
        return self.owner not in (os.getpid(), os.getppid())


class Contact:
    """A worker's side of a board: tells and asks, but not at every training step.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = FileBoard(Path(folder))
    ...     contact = Contact(board)
    ...     before = contact.stopped()
    ...     board.put(STOP, {})
    ...     before, contact.stopped(), Contact(board).stopped()
    (False, False, True)
    """

    def __init__(self, board: Board, every: float = EVERY) -> None:
        self.board, self.every = board, every
        self._told: dict[str, float] = {}
        self._asked = 0.0
        self._stopped = False

    def tell(self, name: str, word: Word, *, now: bool = False) -> None:
        """Put a word on the board, unless the last one of that name is quite new."""
        moment = time.monotonic()
        if now or moment - self._told.get(name, 0.0) >= self.every:
            self._told[name] = moment
            self.board.put(name, word)

    def stopped(self) -> bool:
        """Whether to save and leave: somebody said so, or nobody is there any more."""
        moment = time.monotonic()
        if not self._stopped and moment - self._asked >= self.every:
            self._asked = moment
            self._stopped = self.board.abandoned() or self.board.get(STOP) is not None
        return self._stopped
