"""A Ray cluster of two nodes for tests, and a program that uses it; each a process of its own.

Run as `python ray_jobs.py cluster` or `python ray_jobs.py drive ADDRESS FOLDER`.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path


def cluster():
    """Two nodes of one CPU each, for as long as standard input stays open."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    nodes.add_node(num_cpus=1)
    sys.stdout.write(nodes.address + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    nodes.shutdown()


def node_of(job, shared, send, stopped):
    """Where a job is done, and what it was given; job 3 kills its process the first time."""
    import jobs
    import ray

    time.sleep(0.5)
    tries = jobs.attempts(shared["folder"], job)
    if job == 3 and tries == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    node = ray.get_runtime_context().get_node_id()
    for epoch in range(3):
        send(("progress", job, epoch))
    send(("result", job, (node, tries)))


def run_until_stopped(job, shared, send, stopped):
    import jobs

    jobs.attempts(shared, job)
    jobs.wait_until(stopped)
    send(("saved", job, None))


def drive(address, folder):
    """What workers on the cluster do, as JSON."""
    import jobs

    from zetamix_lab.runs.executor import Work
    from zetamix_lab.runs.run_cells import run_jobs

    def do(function, given, shared, **options):
        messages = []
        work = Work(partial(function, shared=shared), list(given), messages.append, **options)
        description = run_jobs(work, f"ray:{address}", None)
        return description, messages

    found = {}
    found["description"], found["messages"] = do(node_of, range(4), {"folder": folder})
    try:
        do(jobs.fail, range(4), None)
    except ValueError as error:
        found["error"] = str(error)
    begun = Path(folder) / "stopped"
    begun.mkdir()
    # two are under way, one has not begun
    stop = lambda: len(list(begun.iterdir())) == 2  # noqa: E731
    _, messages = do(run_until_stopped, range(3), str(begun), stop=stop)
    found["saved"] = sorted(job for _, job, _ in messages)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    {"cluster": cluster, "drive": drive}[sys.argv[1]](*sys.argv[2:])
