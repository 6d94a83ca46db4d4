"""What the workers of tests do: functions of a module that a new process imports in no time."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path


def attempts(folder, job):
    """Note that a job is tried, and return how often it has been."""
    path = Path(folder) / f"tries-{job}"
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def double(job, shared, send, stopped):
    send(("result", job, (shared + 2 * job, os.getpid())))


def slow_first(job, shared, send, stopped):
    """What every process loads: once, so that two jobs of one process see the same object."""
    time.sleep(1.0 if job == 0 else 0.1)
    send(("result", job, (os.getpid(), id(shared), len(shared))))


def die_once(job, shared, send, stopped):
    """Job 3 is killed once, after it has sent a message."""
    send(("begun", job, None))
    if attempts(shared, job) == 1 and job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    send(("result", job, os.getpid()))


def die_always(job, shared, send, stopped):
    attempts(shared, job)
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_a_child(job, shared, send, stopped):
    """The worker is killed once; a process that it forked keeps the other end of its pipe open."""
    if attempts(shared, job) == 1:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    send(("result", job, None))


def fail(job, shared, send, stopped):
    if job == 2:
        raise ValueError("expected this, got that")


def fail_unpickled(job, shared, send, stopped):
    class OwnError(Exception):
        pass

    raise OwnError("own words")


def survive_ctrl_c(job, shared, send, stopped):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    send(("result", job, os.environ["OMP_NUM_THREADS"]))


def work_until_stopped(job, shared, send, stopped):
    send(("begun", job, os.getpid()))
    wait_until(stopped)
    send(("saved", job, os.getpid()))


def save_when_stopped(job, shared, send, stopped):
    send(("begun", job, None))
    wait_until(stopped)
    (Path(shared) / f"saved-{job}").touch()


# processes of their own


def start(function, *arguments, **options):
    """A function of this module in a new process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", f"import jobs, sys; jobs.{function}(*sys.argv[1:])"]
    return subprocess.Popen([*command, *map(str, arguments)], env=environment, **options)


def orphan(folder):
    """Start two workers, and be killed while they work; each saves what it has."""
    from zetamix_lab.runs.executor import Work, run_in_processes

    begun = []

    def receive(message):
        begun.append(message)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    run_in_processes(Work(partial(save_when_stopped, shared=folder), [0, 1], receive), 2)


# Ray


def cluster():
    """Two nodes of one CPU each, for as long as standard input stays open."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1)
    sys.stdout.write(nodes.address + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    nodes.shutdown()


def name_node(job, shared, send, stopped):
    """On which node a job is done, and in which attempt; job 3 kills its process the first time."""
    import ray

    time.sleep(0.5)
    tries = attempts(shared, job)
    if job == 3 and tries == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for epoch in range(3):
        send(("progress", job, epoch))
    send(("result", job, (ray.get_runtime_context().get_node_id(), tries)))


def save_on_node(job, shared, send, stopped):
    attempts(shared, job)
    wait_until(stopped)
    send(("saved", job, None))
