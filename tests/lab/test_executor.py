"""Independent jobs in processes: results as they come, killed processes, channel, signals."""

import os
import signal
import subprocess
import sys
import threading
import time

import joblib
import jobs
import pytest
from joblib.externals.loky import get_reusable_executor

from zetamix_lab.runs.executor import (
    Channel,
    Executor,
    ExecutorError,
    FileChannel,
    cores,
    open_executor,
)


@pytest.fixture(scope="module", autouse=True)
def _end_processes():
    """Processes are kept from test to test."""
    yield
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.fixture
def pair():
    """Two processes."""
    with open_executor(jobs=9, workers=2, poll_seconds=0.01) as executor:
        yield executor


# running


def test_one_at_a_time_is_done_in_this_process():
    results = list(Executor().run(jobs.double, [1, 2, 3], 10))
    assert results == [(1, (12, os.getpid())), (2, (14, os.getpid())), (3, (16, os.getpid()))]


def test_every_job_comes_back_once_from_other_processes(pair):
    results = dict(pair.run(jobs.double, range(8), 100))
    assert {job: value for job, (value, _) in results.items()} == {k: 100 + 2 * k for k in range(8)}
    processes = {process for _, process in results.values()}
    assert os.getpid() not in processes
    assert len(processes) <= 2


def test_results_come_as_they_are_done(pair):
    # both processes are up before anything is timed
    list(pair.run(jobs.double, range(2), 0))
    assert [job for job, _ in pair.run(jobs.slow_first, range(4), None)][-1] == 0


def test_jobs_are_taken_when_a_worker_is_free(pair):
    taken, seen = [], []

    def take():
        for job in range(6):
            taken.append(job)
            yield job

    for job, _ in pair.run(jobs.slow, take(), None):
        seen.append(job)
        # what is seen, and what is under way
        assert len(taken) <= len(seen) + pair.workers
    assert sorted(seen) == taken == list(range(6))


def test_what_jobs_share_is_loaded_once_by_every_process(pair):
    loaded = [value for _, value in pair.run(jobs.load_shared, range(6), bytes(10_000_000))]
    assert {size for _, _, size in loaded} == {10_000_000}
    assert len({(process, address) for process, address, _ in loaded}) <= 2
    assert not list(pair.channel.folder.glob("shared-*"))


def test_a_killed_process_costs_its_job_some_time_and_nothing_else(pair, tmp_path):
    seen = []
    for job, _ in pair.run(jobs.die_beside, range(6), str(tmp_path)):
        (tmp_path / f"seen-{job}").touch()
        seen.append(job)
    assert sorted(seen) == list(range(6))
    tries = [(tmp_path / f"tries-{job}").stat().st_size for job in range(6)]
    # what was back is not done again, nor what had not begun; what was beside it may have begun
    assert tries[:3] == [1, 1, 1]
    assert tries[3] == 2
    assert tries[4] in (1, 2)
    assert tries[5] == 1
    assert pair.deaths == 1


def test_processes_that_always_die_are_given_up(tmp_path):
    with (
        open_executor(jobs=2, workers=2, max_deaths=2) as executor,
        pytest.raises(ExecutorError, match=r"killed 2 times in a row.*--jobs"),
    ):
        list(executor.run(jobs.die_always, range(2), str(tmp_path)))
    assert 2 <= sum(path.stat().st_size for path in tmp_path.glob("tries-*")) <= 4


def test_a_process_killed_after_a_stop_is_no_error(pair, tmp_path):
    def take():
        yield 0
        pair.channel.request_stop()
        yield 1

    assert list(pair.run(jobs.die_always, take(), str(tmp_path))) == []
    assert pair.deaths == 0


def test_an_error_of_a_job_is_raised_here(pair):
    with pytest.raises(ValueError, match=r"^expected this, got that$"):
        list(pair.run(jobs.fail, range(4), None))
    # and processes can be had afterwards
    assert len(list(pair.run(jobs.double, range(4), 0))) == 4


def test_ctrl_c_is_left_to_the_parent(pair):
    assert sorted(job for job, _ in pair.run(jobs.survive_ctrl_c, range(4), None)) == list(range(4))


def test_processes_share_the_cores(pair):
    threads = {threads for _, threads in pair.run(jobs.count_threads, range(2), None)}
    assert threads == {str(max(1, cores() // 2))}


# stopping and watching


def test_a_stop_ends_jobs_under_way_and_starts_no_more(tmp_path):
    began = time.monotonic()
    stop = lambda: time.monotonic() > began + 0.3  # noqa: E731
    with (
        open_executor(jobs=9, workers=2, stop=stop, poll_seconds=0.01) as executor,
        executor.watched(lambda: None),
    ):
        results = list(executor.run(jobs.work_until_stopped, range(9), None))
    assert len(results) == 2


def test_in_one_process_the_work_evaluates_the_stop_condition():
    calls = []

    def stop():
        calls.append(threading.current_thread())
        return len(calls) > 4

    executor = Executor(stop=stop, poll_seconds=0.001)
    with executor.watched(lambda: time.sleep(0.01)):
        assert [job for job, _ in executor.run(jobs.work_until_stopped, range(3), None)] == [0]
    assert {thread is threading.main_thread() for thread in calls} == {True}


def test_an_error_of_the_watcher_stops_the_work_and_is_raised():
    executor = Executor(poll_seconds=0.001)

    def look():
        raise OSError("the terminal is gone")

    with pytest.raises(OSError, match="the terminal is gone"), executor.watched(look):
        list(executor.run(jobs.work_until_stopped, range(3), None))


# opening


@pytest.mark.parametrize(
    ("count", "workers", "expected"),
    [(1, None, 1), (99, None, cores()), (18, 2, 2), (2, 9, 2), (3, 3, 3)],
)
def test_as_many_workers_as_are_of_use(count, workers, expected):
    with open_executor(jobs=count, workers=workers) as executor:
        assert executor.workers == expected
        text = "1 process" if expected == 1 else f"{expected} processes side by side"
        assert executor.description == text
        assert not executor.remote


def test_cores_are_those_this_process_may_use():
    assert cores() == joblib.cpu_count()


@pytest.mark.parametrize(
    ("backend", "address", "message"),
    [
        ("slurm", None, "backend must be one of local, ray, got 'slurm'."),
        ("local", "auto", "address needs backend ray, got 'auto' with local."),
    ],
)
def test_a_wrong_backend(backend, address, message):
    with (
        pytest.raises(ExecutorError) as caught,
        open_executor(backend, jobs=1, address=address),
    ):
        pass
    assert str(caught.value) == message


def test_without_ray_the_package_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "zetamix_lab.runs.ray_executor", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match="zetamix\\[ray\\]"), open_executor("ray", jobs=1):
        pass


# the channel


@pytest.fixture(params=["memory", "file"])
def channel(request, tmp_path):
    return Channel(interval=0) if request.param == "memory" else FileChannel(tmp_path, 0)


def test_the_last_message_of_a_name_wins(channel):
    channel.send("a", {"epoch": 1})
    channel.send("b", {"epoch": 5})
    channel.send("a", {"epoch": 2})
    assert channel.messages() == {"a": {"epoch": 2}, "b": {"epoch": 5}}


def test_messages_are_sent_once_per_interval(channel):
    channel.interval = 30.0
    channel.send("a", {"epoch": 1})
    channel.send("a", {"epoch": 2})
    channel.send("b", {"epoch": 1})
    assert channel.messages() == {"a": {"epoch": 1}, "b": {"epoch": 1}}
    channel.send("a", {"epoch": 3}, now=True)
    assert channel.messages()["a"] == {"epoch": 3}


def test_a_stop_stays(channel):
    assert not channel.stopped()
    channel.request_stop()
    assert channel.stop_requested()
    assert channel.stopped()


def test_processes_send_to_the_same_channel(pair):
    list(pair.run(jobs.report, range(4), None))
    messages = pair.channel.messages()
    assert set(messages) == {f"job-{k}" for k in range(4)}
    assert all(m["pid"] != os.getpid() and not m["orphaned"] for m in messages.values())


def test_training_goes_on_where_messages_cannot_be_written(tmp_path):
    channel = FileChannel(tmp_path / "removed")
    channel.send("a", {"epoch": 1})
    assert channel.messages() == {}


ORPHAN = """
import os, sys, time
from pathlib import Path
from zetamix_lab.runs.executor import FileChannel
channel = FileChannel(Path(sys.argv[1]), interval=0.01)
if os.fork() == 0:
    while not channel.stopped():
        channel.send("alive", {})
        time.sleep(0.01)
    channel.send("left", {}, now=True)
else:
    while not channel.messages():
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
"""


def test_a_worker_stops_when_its_parent_is_killed(tmp_path):
    done = subprocess.run([sys.executable, "-c", ORPHAN, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    jobs.wait_until((tmp_path / "left.json").exists, seconds=20)
