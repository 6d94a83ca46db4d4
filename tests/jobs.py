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


def die_beside(job, shared, board):
    """Job 3 is killed once, when all before it are back and while the one after it is under way.

    Without the waiting, jobs of no length are begun between a death and its being noticed.
    """
    folder = Path(shared)
    tries = attempts(folder, job)
    if job == 3 and tries == 1:
        wait_until(lambda: all((folder / f"seen-{before}").exists() for before in range(3)))
        os.kill(os.getpid(), signal.SIGKILL)
    if job > 3:
        wait_until(lambda: (folder / "tries-3").stat().st_size == 2)
    return job


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


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
