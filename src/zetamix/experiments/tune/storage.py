"""Where a study lives: SQLite in a folder, or PostgreSQL for many machines; one claim at a time."""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from zetamix.experiments.tune.question import StudyError, without_password

# seconds that a process waits for another one to let go of an SQLite file
BUSY = 60
CONNECT = 10


class Storage:
    """The database of a study, and the lock that lets one process at a time claim trials.

    The lock is a file beside an SQLite database, and an advisory lock of a PostgreSQL server: both
    are gone when the process that holds them is, however it ended.
    """

    def __init__(self, url: str, name: str) -> None:
        self.url = _driver(url)
        self.name = name
        parsed = sqlalchemy.engine.make_url(self.url)
        self.is_file = parsed.get_backend_name() == "sqlite"
        self.file = Path(parsed.database or "").absolute()
        self.shown = str(self.file) if self.is_file else without_password(url)
        if self.is_file:
            self._make_folder(self.file.parent)
        quieten()
        with self.told():
            self.rdb = self._open()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell what a database has to complain about in a sentence."""
        try:
            yield
        except ModuleNotFoundError as error:
            raise StudyError(
                f"A study in PostgreSQL needs {error.name}: pip install 'zetamix[tune]'"
            ) from None
        except (SQLAlchemyError, StorageInternalError) as error:
            raise StudyError(
                f"The storage {self.shown} cannot be used: {_reason(error)}. Expected a database "
                "that can be reached and written to."
            ) from error

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """No other process claims or takes back trials of this study meanwhile."""
        if self.is_file:
            # Optuna reads and then writes a trial's state, between which SQLite lets others in
            with FileLock(f"{self.file}.lock"):
                yield
            return
        key = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], signed=True)
        engine = sqlalchemy.create_engine(self.url, poolclass=NullPool, **self._options())
        with engine.connect() as connection:
            connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(key)))
            yield

    def close(self) -> None:
        """Let go of all connections; the next use makes new ones."""
        self.rdb.remove_session()
        self.rdb.engine.dispose()

    def _open(self) -> RDBStorage:
        # one at a time: two that make the tables at once disturb each other
        with self.exclusive():
            try:
                return RDBStorage(self.url, engine_kwargs=self._options())
            except RuntimeError as error:
                # another version of Optuna made the tables
                raise StudyError(f"The storage {self.shown} cannot be used: {error}") from error

    def _options(self) -> dict[str, Any]:
        if self.is_file:
            return {"connect_args": {"timeout": BUSY}}
        # a connection may have been lost since it was last used, hours ago; and a database that was
        # made in the C locale answers in bytes unless it is told
        options = {"connect_timeout": CONNECT, "client_encoding": "utf8"}
        return {"pool_pre_ping": True, "connect_args": options}

    def _make_folder(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(
                f"Cannot write to {folder}: {error.strerror}. Choose another --out."
            ) from None


def sqlite_in(folder: Path) -> str:
    """The storage of a study that names none: a file in its own folder."""
    path = (folder / "study.db").absolute()
    return sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string()


def quieten() -> None:
    """Optuna logs every trial and warns of what it calls experimental; we show our own progress."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)


def _driver(url: str) -> str:
    """The address with the driver that we install, for those that databases print."""
    expected = "expected sqlite:///path/of/study.db or postgresql://user:password@host:5432/name"
    try:
        parsed = sqlalchemy.engine.make_url(url)
    except SQLAlchemyError:
        # a password may be in there: the address itself is not repeated
        raise StudyError(f"--storage is not an address: {expected}.") from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    shown = without_password(url)
    if parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StudyError(f"--storage {shown} names no file: {expected}.")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise StudyError(f"--storage: {expected}, got {shown}.")
    return parsed.render_as_string(hide_password=False)


def _reason(error: BaseException) -> str:
    """The innermost cause, in its first line: what the database itself says."""
    while error.__cause__ is not None:
        error = error.__cause__
    original = getattr(error, "orig", None)
    lines = str(error if original is None else original).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
