"""Jobs as tasks of a Ray cluster, which runs a lost one again."""

import logging
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from zetamix_lab.runs.executor import MAX_DEATHS, POLL_SECONDS, ExecutorError, Work
from zetamix_lab.text import reason

# runs that train side by side on one GPU of a cluster
PER_GPU = 4


def run_on_ray(work: Work, address: str, workers: int | None) -> int:
    """Up to `workers` tasks at a time; their messages arrive when they end. Returns how many."""
    connect(address)
    pending, stopping = list[Any](), False
    try:
        room = ray.cluster_resources()  # type: ignore[no-untyped-call]
        count, resources = plan_workers(room, len(work.jobs), workers)
        options = {"max_retries": MAX_DEATHS - 1, "scheduling_strategy": "SPREAD", **resources}
        # a process that does one job only ends with it
        task = ray.remote(max_calls=int(work.alone))(_call).options(**options)
        # every machine of the cluster fetches the data once
        waiting, function = list(work.jobs), ray.put(work.function)
        while True:
            if not stopping and work.stop():
                stopping = True
                for future in pending:
                    ray.cancel(future)
            while waiting and not stopping and len(pending) < count:
                pending.append(task.remote(function, waiting.pop(0)))
            if not pending:
                return count
            # with a short timeout, so that signals are handled in between
            done, pending = ray.wait(pending, num_returns=1, timeout=POLL_SECONDS)
            for future in done:
                for message in _result(future, stopping=stopping):
                    work.receive(message)
    finally:
        for future in pending:
            ray.cancel(future, force=True)
        ray.shutdown()


def _result(future: Any, *, stopping: bool) -> list[Any]:
    try:
        return list(ray.get(future))
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        if stopping:
            return []
        raise ExecutorError(
            f"A run was lost {MAX_DEATHS} times: {str(error).splitlines()[0]}"
        ) from error


def _call(function: Any, job: Any) -> list[Any]:
    """The last message of each kind and name: a task has no connection to the caller."""
    messages, stop = dict[Any, Any](), threading.Event()

    def send(message: Any) -> None:
        messages[message[:2]] = message

    # how Ray cancels a task
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        function(job, send=send, stopped=stop.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
    return list(messages.values())


def connect(address: str) -> None:
    """Join the cluster; raises immediately if nothing listens at the address."""
    try:
        if address != "auto":
            host, _, port = address.rpartition(":")
            # Ray itself retries for minutes
            socket.create_connection((host, int(port)), timeout=5).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RayError, RuntimeError, ValueError) as error:
        raise ExecutorError(
            f"Cannot join a Ray cluster at {address!r}: {reason(error)}. Expected ray:HOST:PORT, "
            "or ray on a machine of the cluster. Start one with: ray start --head"
        ) from error


def plan_workers(
    resources: Mapping[str, float], jobs: int, workers: int | None
) -> tuple[int, dict[str, float]]:
    """The number of workers, and the resources of a single one.

    >>> plan_workers({"CPU": 64, "GPU": 2}, jobs=18, workers=None)
    (8, {'num_cpus': 1.0, 'num_gpus': 0.25})
    """
    room, per_worker = int(resources.get("CPU", 0)), {"num_cpus": 1.0}
    if gpus := int(resources.get("GPU", 0)):
        room = min(room, gpus * PER_GPU)
        per_worker["num_gpus"] = 1 / PER_GPU
    if room < 1:
        raise ExecutorError("The Ray cluster has no CPU. Add a machine, or use --backend local.")
    return max(1, min(room, jobs, workers or room)), per_worker
