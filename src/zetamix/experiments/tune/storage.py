"""The database of a study: an SQLite file, or a PostgreSQL server for several machines.

Both use Optuna's RDBStorage, which has heartbeats. Its JournalStorage is faster on network drives
but has none, so that the trial of a killed process would stay "running" indefinitely.
"""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import optuna
import sqlalchemy
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from zetamix.experiments.tune.spec import StudyError

Result = TypeVar("Result")

# seconds between two heartbeats of a trial, and after the last one until it counts as dead
HEARTBEAT, GRACE = 10, 60
# seconds to wait for another process to release an SQLite file, and for a server to answer
SQLITE_TIMEOUT, CONNECT_TIMEOUT = 60, 10
EXPECTED = "Expected sqlite:///path/of/study.db or postgresql://user@host:5432/database"


class Storage(RDBStorage):
    """RDBStorage whose heartbeats continue if the server is briefly unreachable."""

    def record_heartbeat(self, trial_id: int) -> None:
        # an exception would end the heartbeat thread, and another worker would take over the trial
        with suppress(StorageInternalError):
            super().record_heartbeat(trial_id)


def parse_url(text: str) -> sqlalchemy.URL:
    """The URL of a storage with the driver that zetamix installs; `str(url)` masks its password.

    Without a password, PostgreSQL's client takes it from PGPASSWORD or ~/.pgpass.

    >>> str(parse_url("postgresql://host/studies?user=ann&password=secret"))
    'postgresql+psycopg://ann:***@host/studies'
    """
    try:
        url = sqlalchemy.engine.make_url(text)
        # an @ within a password would move the rest of it to the host and the database
        misplaced = f"{url.host}{url.database}{text.partition('?')[2]}"
        is_url = url.drivername == "sqlite" or "@" not in misplaced
    except (SQLAlchemyError, ValueError):
        is_url = False
    if not is_url:
        # the text may contain a password, so it is not printed
        raise StudyError(
            f"--storage is not a database URL. {EXPECTED}. Percent-encode special characters of a "
            "password, or remove it and set PGPASSWORD."
        )
    # only the password before the host is masked
    if "user" in url.query:
        url = url.set(username=str(url.query["user"])).difference_update_query(["user"])
    if "password" in url.query:
        url = url.set(password=str(url.query["password"])).difference_update_query(["password"])
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    is_file = url.drivername == "sqlite" and url.database not in (None, "", ":memory:")
    if not is_file and url.drivername != "postgresql+psycopg":
        raise StudyError(f"{EXPECTED} for --storage, got {mask(url)}.")
    return url


def mask(url: sqlalchemy.URL) -> str:
    """The URL without its password and other secrets, to be printed and recorded.

    >>> mask(parse_url("postgresql://ann:secret@host/studies?sslpassword=secret"))
    'postgresql+psycopg://ann:***@host/studies'
    """
    secrets = [key for key in url.query if re.search("pass|secret|token|key", key)]
    return str(url.difference_update_query(secrets))


def sqlite_url(path: Path) -> str:
    return str(sqlalchemy.URL.create("sqlite", database=str(path.absolute())))


def open_storage(
    text: str,
    *,
    heartbeat: int = HEARTBEAT,
    grace: int = GRACE,
    on_stale: Callable[[optuna.Study, optuna.trial.FrozenTrial], None] | None = None,
) -> Storage:
    """Connect to a storage, and create its tables if there are none.

    heartbeat, grace: seconds between heartbeats of a running trial, and from the last one until
        the trial counts as dead and `on_stale` is called. SQLite's clock has whole seconds.
    """
    url = parse_url(text)
    is_file, path = url.drivername == "sqlite", Path(str(url.database))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=ExperimentalWarning)
    arguments: dict[str, Any] = {"timeout": SQLITE_TIMEOUT}
    if not is_file:
        # without an encoding, a database with the C locale would return bytes
        arguments = {"connect_timeout": CONNECT_TIMEOUT, "client_encoding": "utf8"}
    connect = partial(
        Storage,
        url.render_as_string(hide_password=False),
        # connections are not kept while a model trains, because they could be lost
        engine_kwargs={"poolclass": NullPool, "connect_args": arguments},
        heartbeat_interval=heartbeat,
        grace_period=grace,
        heartbeat_stale_trial_callback=on_stale,
    )
    with storage_errors(url), ExitStack() as stack:
        if is_file:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f"{path}.lock"))
        deadline = time.monotonic() + CONNECT_TIMEOUT
        while True:
            try:
                storage = connect()
                break
            except (IntegrityError, ProgrammingError):
                # another machine may create the tables at the same time
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    if is_file:
        _lock_transactions(storage.engine)
    return storage


@contextmanager
def storage_errors(url: sqlalchemy.URL) -> Iterator[None]:
    """Turn the errors of a database into one sentence."""
    try:
        yield
    except ImportError as error:
        # Optuna raises its own, from that of the driver
        module = error.name or getattr(error.__cause__, "name", None)
        raise StudyError(
            f"A study in PostgreSQL needs {module}: pip install 'zetamix[tune]'"
        ) from None
    except (OSError, SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        # a RuntimeError: another version of Optuna created the tables
        raise StudyError(
            f"The storage {mask(url)} cannot be used: {_reason(error)}. Check that the database "
            "is reachable and writable."
        ) from error


def patiently(call: Callable[[], Result], seconds: float, pause: float = 1.0) -> Result:
    """Call, and retry for up to `seconds` while the database does not respond."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except StorageInternalError as error:
            if time.monotonic() > deadline:
                raise StudyError(f"The storage cannot be used: {_reason(error)}.") from error
            time.sleep(pause)


def _reason(error: BaseException) -> str:
    """The first line of what the database itself reports."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = error.strerror if isinstance(error, OSError) else getattr(error, "orig", None)
    return str(text or error).strip().partition("\n")[0].rstrip(".")


def _lock_transactions(engine: sqlalchemy.Engine) -> None:
    """Lock an SQLite file at the start of every transaction.

    Optuna reads the state of a trial, then writes it. By default SQLite locks at the first write,
    so that two processes could claim the same trial.
    """

    @sqlalchemy.event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def lock(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
