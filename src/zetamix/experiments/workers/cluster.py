"""The same jobs on a Ray cluster, through joblib's Ray backend."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.joblib.ray_backend import RayBackend

from zetamix.experiments.boards import Word
from zetamix.experiments.workers.pool import MOST_DEATHS, Stored, Workers, WorkersError

BACKEND = "zetamix-ray"
START = "Start one with: ray start --head"
# models that train side by side on one GPU of a cluster
PER_GPU = 4


class RayWorkers(Workers):
    """Ray's actors instead of processes; where one dies, Ray starts it anew with its job."""

    broken = (RayActorError,)
    elsewhere = True

    def __init__(self, count: int, board: "RayBoard", per_worker: dict[str, float]) -> None:
        super().__init__(count, board)
        self.per_worker = per_worker

    @property
    def where(self) -> str:
        return f"{self.count} workers on Ray"

    def _share(self, value: Any) -> Any:
        return InObjectStore(value)

    def _parallel(self) -> joblib.Parallel:
        options = {
            **self.per_worker,
            "max_restarts": MOST_DEATHS,
            "max_task_retries": MOST_DEATHS,
            "scheduling_strategy": "SPREAD",
        }
        with joblib.parallel_config(backend=BACKEND, ray_remote_args=options):
            return self._joblib()


class InObjectStore(Stored):
    """A value in Ray's object store, from where every machine gets it once."""

    def __init__(self, value: Any) -> None:
        self.reference = ray.put(value)

    def get(self) -> Any:
        return ray.get(self.reference)


class StreamingRay(RayBackend):
    """Ray's backend for joblib, results as they come.

    Ray derives it from joblib's multiprocessing backend, which says that it cannot do so because
    killing a pool of forked processes early may hang. Actors can be killed at any time.
    """

    supports_return_generator = True
    _pool: Any

    def terminate(self) -> None:
        # Pool.close would ask actors politely first, which Ray counts as a death and reports
        pool, self._pool = self._pool, None
        for actor, _ in () if pool is None else pool._actor_pool:
            ray.kill(actor)
        self.reset_batch_stats()


class Keeper:
    """What a board is made of on a cluster: an actor that keeps words."""

    def __init__(self) -> None:
        self.words: dict[str, Word] = {}

    def put(self, name: str, word: Word) -> None:
        self.words[name] = word

    def get(self, name: str) -> Word | None:
        return self.words.get(name)

    def all(self) -> dict[str, Word]:
        return self.words


class RayBoard:
    """A board for workers on any machine of a cluster."""

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper

    def put(self, name: str, word: Word) -> None:
        self.keeper.put.remote(name, word)

    def get(self, name: str) -> Word | None:
        found: Word | None = self._ask(self.keeper.get.remote(name), None)
        return found

    def all(self) -> dict[str, Word]:
        found: dict[str, Word] = self._ask(self.keeper.all.remote(), {})
        return found

    def abandoned(self) -> bool:
        # Ray ends the actors of a program that is gone
        return False

    def _ask(self, answer: Any, otherwise: Any) -> Any:
        # a board is for progress: training does not stop because one is slow or lost
        try:
            return ray.get(answer, timeout=5)
        except (RayActorError, GetTimeoutError):
            return otherwise


@contextmanager
def join_cluster(most: int, count: int | None, address: str | None) -> Iterator[RayWorkers]:
    """Workers on a cluster: `count`, or as many as it has room for, for `most` jobs.

    address: "auto" for the cluster that this machine is part of, or host:port; None starts one
        here.
    """
    _connect(address)
    try:
        joblib.register_parallel_backend(BACKEND, StreamingRay)
        count, per_worker = _room(most, count)
        keeper = ray.remote(Keeper).options(num_cpus=0, max_restarts=-1).remote()
        yield RayWorkers(count, RayBoard(keeper), per_worker)
    finally:
        ray.shutdown()


def _connect(address: str | None) -> None:
    if address is None:
        # a cluster that we start tells nobody of itself
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    elif address != "auto":
        _check_address(address)
    try:
        ray.init(
            address="local" if address is None else address,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        wanted = "started here" if address is None else f"joined at {address!r}"
        raise WorkersError(
            f"A Ray cluster could not be {wanted}: {str(error).splitlines()[0]} {START}"
        ) from error


def _check_address(address: str) -> None:
    """Ray itself tries for minutes where nobody answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise WorkersError(
            f"The address of a Ray cluster must be auto or host:port, got {address!r}."
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise WorkersError(f"No Ray cluster answers at {address!r}: {error}. {START}") from None


def _room(most: int, count: int | None) -> tuple[int, dict[str, float]]:
    """How many workers, and what each takes of the cluster."""
    has = ray.cluster_resources()  # type: ignore[no-untyped-call]
    processors, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
    per_worker = {"num_cpus": 1.0}
    places = processors
    if gpus:
        places = min(processors, gpus * PER_GPU)
        per_worker["num_gpus"] = 1 / PER_GPU
    # joblib does a single worker's jobs in this process, which need not be part of the cluster
    if places < 2:
        raise WorkersError(
            f"Expected a Ray cluster of at least 2 CPUs, got {processors}. Add a machine to it, or "
            "use --backend local."
        )
    return max(2, min(places, most, count or places)), per_worker
