"""What the workers of tests do: functions of a module that a new process imports in no time."""

import os
import signal
import time
from pathlib import Path


def attempts(folder, job):
    """Note that a job is tried, and return how often it has been."""
    path = Path(folder) / f"tries-{job}"
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def double(job, shared, board):
    return shared + 2 * job, os.getpid()


def slow_first(job, shared, board):
    time.sleep(1.0 if job == 0 else 0.0)
    return job


def slow(job, shared, board):
    time.sleep(0.7)
    return job


def die_once(job, shared, board):
    if attempts(shared, job) == 1 and job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def die_always(job, shared, board):
    attempts(shared, job)
    os.kill(os.getpid(), signal.SIGKILL)


def fail(job, shared, board):
    if job == 2:
        raise ValueError("expected this, got that")
    return job


def survive_ctrl_c(job, shared, board):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    return job


def count_threads(job, shared, board):
    return os.environ["OMP_NUM_THREADS"]


def report(job, shared, board):
    board.put(f"job-{job}", {"pid": os.getpid(), "abandoned": board.abandoned()})
    return job
