"""Workers by the name of their backend."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zetamix.experiments.boards import FileBoard
from zetamix.experiments.workers.pool import Workers, WorkersError, cores

BACKENDS = ("local", "ray")


@contextmanager
def open_workers(
    backend: str,
    most: int,
    *,
    folder: Path,
    count: int | None = None,
    address: str | None = None,
) -> Iterator[Workers]:
    """Workers for `most` jobs, as long as the context lasts.

    backend: "local" for processes of this machine, "ray" for a cluster.
    folder: for the board of local workers; what is in it is removed.
    count: how many at a time; None takes every core, or all that a cluster has room for.
    address: of the cluster: "auto" or host:port; None starts one on this machine.
    """
    check_backend(backend, address)
    if backend == "local":
        board = FileBoard(folder)
        board.clear()
        yield Workers(max(1, min(most, count or cores())), board)
        return
    try:
        from zetamix.experiments.workers.cluster import join_cluster
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise WorkersError("Ray is not installed: pip install 'zetamix[ray]'") from None
    with join_cluster(most, count, address) as workers:
        yield workers


def check_backend(backend: str, address: str | None = None) -> None:
    """Raise a sentence for what is no backend, before anything is done for it."""
    if backend not in BACKENDS:
        raise WorkersError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if address is not None and backend != "ray":
        raise WorkersError(f"An address is for backend ray, got {address!r} for {backend}.")
