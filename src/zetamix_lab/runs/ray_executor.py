"""Jobs as tasks of a Ray cluster."""

import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from zetamix_lab.runs.executor import (
    Channel,
    ExecutorError,
    Message,
    ProcessExecutor,
)

START = "Start one with: ray start --head"
# runs that train side by side on one GPU of a cluster
PER_GPU = 4
STOP = "stop"


class RayExecutor(ProcessExecutor):
    """One Ray task per job instead of processes; the base class restarts killed ones."""

    remote = True
    died = (WorkerCrashedError, NodeDiedError, OutOfMemoryError)

    def __init__(self, workers: int, resources: Mapping[str, float], **options: Any) -> None:
        super().__init__(workers, **options)
        self._task = ray.remote(_call).options(
            **resources, max_retries=0, scheduling_strategy="SPREAD"
        )

    @property
    def description(self) -> str:
        return f"{self.workers} worker{'s' if self.workers > 1 else ''} on Ray"

    @contextmanager
    def _sharing(self, shared: Any) -> Iterator[Any]:
        # every machine of the cluster fetches it once
        yield ray.put(shared)

    def _submit(self, function: Any, job: Any, handle: Any) -> Any:
        return self._task.remote(function, job, handle, self.channel)

    def _wait(self, pending: Mapping[Any, Any]) -> Iterable[Any]:
        done: list[Any] = []
        while not done:
            # with a short timeout, so that signals are handled in between
            done, _ = ray.wait(list(pending), num_returns=1, timeout=self.poll_seconds)
        return done

    def _result(self, future: Any) -> Any:
        try:
            return ray.get(future)
        except RayTaskError as error:
            raise error.cause from None

    def _kill(self, pending: Mapping[Any, Any]) -> None:
        for future in pending:
            ray.cancel(future, force=True)


def _call(function: Any, job: Any, shared: Any, channel: Channel) -> Any:
    return function(job, shared, channel)


class _Mailbox:
    """The actor behind a `RayChannel`."""

    def __init__(self) -> None:
        self.contents: dict[str, Message] = {}

    def write(self, name: str, message: Message) -> None:
        self.contents[name] = message

    def read(self) -> dict[str, Message]:
        return self.contents


class RayChannel(Channel):
    """A channel between machines of a cluster. Ray itself ends tasks whose driver was killed."""

    in_process = False

    def __init__(self, mailbox: Any, interval: float) -> None:
        super().__init__(None, interval)
        self.mailbox = mailbox

    def request_stop(self) -> None:
        self._write(STOP, {})

    def stop_requested(self) -> bool:
        return STOP in self._read()

    def messages(self) -> dict[str, Message]:
        return {name: message for name, message in self._read().items() if name != STOP}

    def _write(self, name: str, message: Message) -> None:
        self.mailbox.write.remote(name, message)

    def _read(self) -> dict[str, Message]:
        # training does not depend on messages: it continues if the actor is slow or lost
        try:
            contents: dict[str, Message] = ray.get(self.mailbox.read.remote(), timeout=5)
        except (RayActorError, GetTimeoutError):
            return {}
        return contents


@contextmanager
def open_ray_executor(
    jobs: int, workers: int | None, address: str | None, *, poll_seconds: float, **options: Any
) -> Iterator[RayExecutor]:
    """An executor on the cluster at `address`; None starts a cluster on this machine."""
    connect(address)
    try:
        count, resources = plan_workers(ray.cluster_resources(), jobs, workers)  # type: ignore[no-untyped-call]
        mailbox = ray.remote(_Mailbox).options(num_cpus=0, max_restarts=-1).remote()
        channel = RayChannel(mailbox, poll_seconds)
        yield RayExecutor(count, resources, channel=channel, poll_seconds=poll_seconds, **options)
    finally:
        ray.shutdown()


def connect(address: str | None, init: Any = ray.init) -> None:
    """Join the cluster at `address`, or start one on this machine."""
    if address is None:
        # a cluster that we start sends no usage statistics
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    elif address != "auto":
        check_address(address)
    try:
        init(
            address="local" if address is None else address,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        action = (
            "start a Ray cluster" if address is None else f"join the Ray cluster at {address!r}"
        )
        raise ExecutorError(f"Cannot {action}: {str(error).splitlines()[0]} {START}") from error


def check_address(address: str) -> None:
    """Raise immediately if nothing listens at the address: Ray itself retries for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ExecutorError(
            f"The address of a Ray cluster must be auto or host:port, got {address!r}."
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ExecutorError(f"No Ray cluster found at {address!r}: {error}. {START}") from None


def plan_workers(
    resources: Mapping[str, float], jobs: int, workers: int | None
) -> tuple[int, dict[str, float]]:
    """The number of workers, and the resources of a single one.

    >>> plan_workers({"CPU": 64, "GPU": 2}, jobs=18, workers=None)
    (8, {'num_cpus': 1.0, 'num_gpus': 0.25})
    """
    room, per_worker = int(resources.get("CPU", 0)), {"num_cpus": 1.0}
    gpus = int(resources.get("GPU", 0))
    if gpus:
        room = min(room, gpus * PER_GPU)
        per_worker["num_gpus"] = 1 / PER_GPU
    if room < 1:
        raise ExecutorError("The Ray cluster has no CPU. Add a machine, or use --backend local.")
    return max(1, min(room, jobs, workers or room)), per_worker
