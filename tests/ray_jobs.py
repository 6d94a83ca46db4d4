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


def node_of(job, shared, board):
    """Where a job is done, and what it was given."""
    import time

    import ray

    time.sleep(0.5)
    board.put(f"job-{job}", {"stop": board.get("stop")})
    return ray.get_runtime_context().get_node_id(), shared


def drive(address, folder):
    """What workers on the cluster do, as JSON."""
    import jobs

    from zetamix.experiments.workers import open_workers

    found = {}
    with open_workers("ray", 4, folder=Path(folder), address=address) as workers:
        found["where"], found["elsewhere"] = workers.where, workers.elsewhere
        workers.board.put("stop", {"at": 1})
        done = dict(workers.run(node_of, range(4), {"value": 7}))
        found["nodes"] = [node for node, _ in done.values()]
        found["shared"] = [shared for _, shared in done.values()]
        found["board"] = workers.board.all()
        found["killed"] = [job for job, _ in workers.run(jobs.die_once, range(4), folder)]
        found["tries"] = [(Path(folder) / f"tries-{k}").stat().st_size for k in range(4)]
        try:
            list(workers.run(jobs.fail, range(4), None))
        except ValueError as error:
            found["error"] = str(error)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    {"cluster": cluster, "drive": drive}[sys.argv[1]](*sys.argv[2:])
