"""Independent jobs in processes: messages, killed processes, signals, stops."""

import os
import signal
import sys
import threading
from functools import partial

import joblib
import jobs
import pytest

from zetamix_lab.runs.executor import (
    KILLED,
    MAX_DEATHS,
    ExecutorError,
    Work,
    parse_backend,
    run_jobs,
)


def do(function, given, shared=None, *, workers=2, **options):
    """The messages of all jobs in the order of their arrival, and the number of deaths."""
    messages = []
    options = {"receive": messages.append, **options}
    run_jobs(Work(partial(function, shared=shared), list(given), **options), "local", workers)
    return [found for found in messages if found != KILLED], messages.count(KILLED)


# running


def test_one_at_a_time_is_done_in_this_process():
    messages, _ = do(jobs.double, [1, 2, 3], 10, workers=1)
    assert messages == [("result", job, (10 + 2 * job, os.getpid())) for job in (1, 2, 3)]


@pytest.mark.parametrize(("alone", "workers"), [(False, 2), (True, 2), (True, 1)])
def test_every_job_is_done_once_in_other_processes(alone, workers):
    messages, _ = do(jobs.double, range(4), 100, alone=alone, workers=workers)
    assert sorted((job, value) for _, job, (value, _) in messages) == [
        (k, 100 + 2 * k) for k in range(4)
    ]
    processes = {process for *_, (_, process) in messages}
    assert os.getpid() not in processes
    assert len(processes) == 4 if alone else len(processes) <= 2


def test_results_arrive_when_they_are_done_and_what_jobs_share_is_loaded_once():
    messages, _ = do(jobs.slow_first, range(4), bytes(10_000_000))
    assert messages[-1][1] == 0
    assert {size for *_, (_, _, size) in messages} == {10_000_000}
    assert len({(process, address) for *_, (process, address, _) in messages}) <= 2


@pytest.mark.parametrize(("function", "killed"), [(jobs.die_once, 1), (jobs.die_with_a_child, 2)])
def test_a_killed_process_costs_its_job_some_time_and_nothing_else(function, killed, tmp_path):
    messages, deaths = do(function, range(3, 5), str(tmp_path))
    assert sorted(job for kind, job, _ in messages if kind == "result") == [3, 4]
    assert deaths == killed
    assert (tmp_path / "tries-3").stat().st_size == 2


def test_processes_that_always_die_are_given_up(tmp_path):
    with pytest.raises(ExecutorError, match=rf"killed {MAX_DEATHS} times in a row.*--jobs"):
        do(jobs.die_always, range(2), str(tmp_path))
    assert MAX_DEATHS <= sum(path.stat().st_size for path in tmp_path.glob("tries-*")) <= 6


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (jobs.fail, ValueError, "expected this, got that"),
        (jobs.fail_unpickled, RuntimeError, "OwnError: own words"),
    ],
)
def test_an_error_of_a_job_is_raised_here(function, kind, message):
    with pytest.raises(kind) as caught:
        do(function, range(4))
    assert str(caught.value) == message
    # where it was raised
    assert kind is RuntimeError or "jobs.py" in caught.value.__notes__[0]


def test_ctrl_c_is_left_to_the_parent_and_processes_share_the_cores():
    messages, deaths = do(jobs.survive_ctrl_c, range(4))
    assert (sorted(job for _, job, _ in messages), deaths) == ([0, 1, 2, 3], 0)
    assert {threads for *_, threads in messages} == {str(max(1, joblib.cpu_count() // 2))}


def test_a_file_in_the_working_directory_is_no_module(tmp_path, monkeypatch):
    (tmp_path / "queue.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    assert len(do(jobs.double, range(2), 0)[0]) == 2


# stopping


def test_a_stop_ends_jobs_under_way_and_starts_no_more():
    messages = []
    stop = lambda: sum(kind == "begun" for kind, _, _ in messages) == 2  # noqa: E731
    do(jobs.work_until_stopped, range(9), receive=messages.append, stop=stop)
    assert sorted(job for kind, job, _ in messages if kind == "saved") == [0, 1]


def test_in_one_process_the_work_evaluates_the_stop_condition():
    calls = []
    stop = lambda: calls.append(threading.current_thread()) or len(calls) > 4  # noqa: E731
    messages, _ = do(jobs.work_until_stopped, range(3), workers=1, stop=stop)
    assert [(kind, job) for kind, job, _ in messages] == [("begun", 0), ("saved", 0)]
    assert {*calls} == {threading.main_thread()}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_a_worker_saves_its_job_which_is_then_resumed(number):
    """As when a cluster's scheduler signals all processes of a job, and the parent is late."""
    messages = []

    def receive(message):
        messages.append(message)
        if len(messages) == 1:
            os.kill(message[2], number)

    stop = lambda: len(messages) == 4  # noqa: E731
    do(jobs.work_until_stopped, [0], receive=receive, stop=stop, alone=True, workers=1)
    assert [kind for kind, *_ in messages] == ["begun", "saved", "killed", "begun", "saved"]
    assert messages[0][2] != messages[3][2]


def test_an_error_while_progress_is_shown_ends_the_workers():
    pids = []

    def receive(message):
        pids.append(message[2])
        raise RuntimeError("cannot show this")

    with pytest.raises(RuntimeError, match="cannot show this"):
        do(jobs.work_until_stopped, range(2), receive=receive)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_workers_save_and_end_when_their_parent_is_killed(tmp_path):
    assert jobs.start("orphan", tmp_path).wait(60) == -signal.SIGKILL
    jobs.wait_until(lambda: len(list(tmp_path.glob("saved-*"))) == 2)


# back ends


@pytest.mark.parametrize("text", ["slurm", "local:auto", ""])
def test_an_unknown_back_end(text):
    with pytest.raises(ExecutorError, match=f"^backend must be local, ray .*, got {text!r}"):
        parse_backend(text)


def test_without_ray_the_package_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "zetamix_lab.runs.ray_cluster", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match="zetamix\\[ray\\]"):
        run_jobs(Work(jobs.double, [1], print), "ray", 1)
