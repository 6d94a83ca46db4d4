"""Which commands are at work on a study: each holds a lock here, and gives signs of life there."""

import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path

import optuna
from filelock import FileLock, Timeout
from optuna.exceptions import StorageInternalError

# a command of another machine whose sign of life stands still for this long is gone; on this
# machine its lock says so at once. Optuna's own heartbeats are for `optimize`: `ask` warns of them
BEAT, GRACE = 10.0, 60.0


class Presence:
    """This command's own, and what can be known of others.

    commands: a folder of this machine where commands at work keep a lock each.
    """

    def __init__(self, study: optuna.Study, commands: Path, grace: float = GRACE) -> None:
        self.study, self.commands, self.grace = study, commands, grace
        self.owner = uuid.uuid4().hex[:12]
        self.lock = FileLock(self.folder / "lock")
        self._beats = 0
        self._seen: dict[str, tuple[int, float]] = {}

    @property
    def folder(self) -> Path:
        """This command's, while it is at work."""
        return self.commands / self.owner

    def take(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock.acquire()

    def leave(self) -> None:
        self.lock.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def beat(self) -> None:
        """A sign of life for other machines."""
        self._beats += 1
        # the next one will do; a storage that stays away is told by whoever needs it
        with suppress(StorageInternalError):
            self.study.set_user_attr(f"beat {self.owner}", self._beats)

    def is_gone(self, owner: str) -> bool:
        if owner == self.owner:
            return False
        path = self.commands / owner / "lock"
        if not path.exists():
            return self._stands_still(owner)
        try:
            with FileLock(path, timeout=0):
                return True
        except Timeout:
            return False

    def _stands_still(self, owner: str) -> bool:
        """Whether another machine's command has shown no sign of life since we began to look.

        By our own clock alone: those of two machines need not agree.
        """
        beats = self.study.user_attrs.get(f"beat {owner}", 0)
        now = time.monotonic()
        if owner not in self._seen or self._seen[owner][0] != beats:
            self._seen[owner] = beats, now
        return now - self._seen[owner][1] > self.grace

    def sweep(self) -> None:
        """Remove the folders of commands that are gone."""
        for folder in self.commands.glob("*"):
            if self.is_gone(folder.name):
                shutil.rmtree(folder, ignore_errors=True)
