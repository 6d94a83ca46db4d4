"""Jobs as tasks of a Ray cluster, which runs a lost one again."""

import logging
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from zetamix_lab.runs.executor import MAX_DEATHS, ExecutorError, Work
from zetamix_lab.text import reason

START = "Start one with: ray start --head"
# runs that train side by side on one GPU of a cluster
PER_GPU = 4


def run_on_ray(work: Work, address: str, workers: int | None) -> int:
    """Up to `workers` tasks at a time; their messages arrive when they end. Returns how many."""
    connect(address)
    try:
        room = ray.cluster_resources()  # type: ignore[no-untyped-call]
        count, resources = plan_workers(room, len(work.jobs), workers)
        options = {"max_retries": MAX_DEATHS - 1, "scheduling_strategy": "SPREAD", **resources}
        # a process that does one job only ends with it
        _run(work, count, ray.remote(max_calls=int(work.alone))(_call).options(**options))
        return count
    finally:
        ray.shutdown()


def _run(work: Work, workers: int, task: Any) -> None:
    # every machine of the cluster fetches the data once
    shared = ray.put(work.shared)
    waiting, pending, stopping = list(work.jobs), list[Any](), False
    try:
        while True:
            if not stopping and work.stop():
                stopping = True
                for future in pending:
                    ray.cancel(future)
            while waiting and not stopping and len(pending) < workers:
                pending.append(task.remote(work.function, waiting.pop(0), shared))
            if not pending:
                return
            # with a short timeout, so that signals are handled in between
            done, pending = ray.wait(pending, num_returns=1, timeout=work.poll_seconds)
            for future in done:
                for message in _result(future, stopping=stopping):
                    work.receive(message)
    finally:
        for future in pending:
            ray.cancel(future, force=True)


def _result(future: Any, *, stopping: bool) -> list[Any]:
    try:
        return list(ray.get(future))
    except TaskCancelledError:
        return []
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        if stopping:
            return []
        raise ExecutorError(
            f"A run was lost {MAX_DEATHS} times: {str(error).splitlines()[0]}"
        ) from error


def _call(function: Any, job: Any, shared: Any) -> list[Any]:
    """The last message of each kind and name: a task has no connection to the caller."""
    messages, stop = dict[Any, Any](), threading.Event()
    # how Ray cancels a task
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        function(job, shared, lambda message: messages.update({message[:2]: message}), stop.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
    return list(messages.values())


def connect(address: str, init: Any = ray.init) -> None:
    """Join the cluster; raises immediately if nothing listens at the address."""
    host, _, port = address.rpartition(":")
    if address != "auto" and (not host or not port.isdigit() or "/" in host):
        raise ExecutorError(
            f"The address of a Ray cluster must be auto or host:port, got {address!r}."
        )
    try:
        if address != "auto":
            # Ray itself retries for minutes
            socket.create_connection((host, int(port)), timeout=5).close()
        init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RayError, RuntimeError, ValueError) as error:
        raise ExecutorError(
            f"Cannot join the Ray cluster at {address!r}: {reason(error)}. {START}"
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
