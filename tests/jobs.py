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


def double(job, shared, channel):
    return shared + 2 * job, os.getpid()


def slow_first(job, shared, channel):
    time.sleep(1.0 if job == 0 else 0.0)
    return job


def slow(job, shared, channel):
    time.sleep(0.7)
    return job


def die_once(job, shared, channel):
    if attempts(shared, job) == 1 and job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def die_beside(job, shared, channel):
    """Job 3 is killed once, when all before it are back and while the one after it is under way.

    Without the waiting, jobs of no length are begun between a death and its being noticed.
    """
    folder = Path(shared)
    tries = attempts(folder, job)
    if job == 3 and tries == 1:
        wait_until(lambda: all((folder / f"seen-{before}").exists() for before in range(3)))
        os.kill(os.getpid(), signal.SIGKILL)
    if job > 3:
        again = folder / "tries-3"
        wait_until(lambda: again.exists() and again.stat().st_size == 2)
    return job


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def die_always(job, shared, channel):
    attempts(shared, job)
    os.kill(os.getpid(), signal.SIGKILL)


def fail(job, shared, channel):
    if job == 2:
        raise ValueError("expected this, got that")
    return job


def survive_ctrl_c(job, shared, channel):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)
    return job


def count_threads(job, shared, channel):
    return os.environ["OMP_NUM_THREADS"]


def report(job, shared, channel):
    channel.send(f"job-{job}", {"pid": os.getpid(), "orphaned": channel.orphaned()})
    return job


def load_shared(job, shared, channel):
    """What every process loads: once, so that two jobs of one process see the same object."""
    time.sleep(0.3)
    return os.getpid(), id(shared), len(shared)


def work_until_stopped(job, shared, channel):
    wait_until(channel.stopped)
    return job
