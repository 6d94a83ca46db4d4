"""A Ray cluster of two nodes for tests, and a program that uses it; each a process of its own.

Run as `python ray_jobs.py cluster` or `python ray_jobs.py drive ADDRESS FOLDER`.
"""

import json
import sys
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


def node_of(job, shared, channel):
    """Where a job is done, and what it was given."""
    import time

    import ray

    time.sleep(0.5)
    channel.send(f"job-{job}", {"stopped": channel.stopped()})
    return ray.get_runtime_context().get_node_id(), shared


def drive(address, folder):
    """What workers on the cluster do, as JSON."""
    import jobs

    from zetamix_lab.runs.executor import open_executor

    results = {}
    with open_executor("ray", jobs=4, address=address, poll_seconds=0.1) as executor:
        results["description"], results["remote"] = executor.description, executor.remote
        done = dict(executor.run(node_of, range(4), {"value": 7}))
        results["nodes"] = [node for node, _ in done.values()]
        results["shared"] = [shared for _, shared in done.values()]
        results["messages"] = executor.channel.messages()
        results["killed"] = [job for job, _ in executor.run(jobs.die_once, range(4), folder)]
        results["tries"] = [(Path(folder) / f"tries-{k}").stat().st_size for k in range(4)]
        results["deaths"] = executor.deaths
        try:
            list(executor.run(jobs.fail, range(4), None))
        except ValueError as error:
            results["error"] = str(error)
        running = executor.run(jobs.work_until_stopped, range(9), None)
        executor.channel.request_stop()
        results["stopped"] = [job for job, _ in running]
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    {"cluster": cluster, "drive": drive}[sys.argv[1]](*sys.argv[2:])
