"""A PostgreSQL server of Debian's package, thrown away after the tests.

apt-get install postgresql
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Debian keeps the server's programs out of the path, one folder for each version
HOMES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
BINARIES = next((home for home in reversed(HOMES) if (home / "initdb").exists()), None)

needs_postgres = pytest.mark.skipif(
    BINARIES is None, reason="needs a PostgreSQL server: install Debian's package postgresql"
)

USER, PASSWORD, DATABASE = "ann", "se-cret", "postgres"


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a server that runs for as long as the context lasts."""
    assert BINARIES is not None
    # its socket's path may not be long, and another user has to be able to get there
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        os.chmod(folder, 0o755)
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        os.chmod(secret, 0o644)
        data = folder / "data"
        _run("initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--pwfile", secret)
        port = _free_port()
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = data / "log"
        _run("pg_ctl", "-D", data, "-l", log, "-w", "-t", "60", "-o", options, "start")
        try:
            yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(program: str, *arguments: object) -> None:
    assert BINARIES is not None
    command = [str(BINARIES / program), *map(str, arguments)]
    # PostgreSQL refuses to run as root; Debian's package makes this user
    user = "postgres" if os.getuid() == 0 else None
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        # a server goes on holding what its starter's output was
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd="/",
        timeout=120,
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
