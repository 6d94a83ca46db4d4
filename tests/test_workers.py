"""Independent jobs in processes: results as they come, killed processes, boards, signals."""

import os
import signal
import subprocess
import sys
import time

import joblib
import jobs
import pytest
from joblib.externals.loky import get_reusable_executor

from zetamix.experiments.boards import STOP
from zetamix.experiments.workers import (
    Contact,
    FileBoard,
    Workers,
    WorkersError,
    cores,
    open_workers,
)


@pytest.fixture
def board(tmp_path):
    return FileBoard(tmp_path / "board")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two processes, which joblib keeps for all tests that leave them alive."""
    yield Workers(2, FileBoard(tmp_path_factory.mktemp("pair")))
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.fixture(autouse=True)
def _clear(pair):
    pair.board.clear()


# running


def test_one_at_a_time_is_done_in_this_process(board):
    found = list(Workers(1, board).run(jobs.double, [1, 2, 3], 10))
    assert found == [(1, (12, os.getpid())), (2, (14, os.getpid())), (3, (16, os.getpid()))]


def test_every_job_comes_back_once_from_other_processes(pair):
    found = dict(pair.run(jobs.double, range(8), 100))
    assert {job: value for job, (value, _) in found.items()} == {k: 100 + 2 * k for k in range(8)}
    processes = {process for _, process in found.values()}
    assert os.getpid() not in processes
    assert len(processes) <= 2


def test_results_come_as_they_are_done(pair):
    # both processes are up before anything is timed
    list(pair.run(jobs.double, range(2), 0))
    assert [job for job, _ in pair.run(jobs.slow_first, range(4), None)][-1] == 0


def test_jobs_are_asked_for_when_a_worker_is_free(pair):
    asked, seen = [], []

    def ask():
        for job in range(6):
            asked.append(job)
            yield job

    for job, _ in pair.run(jobs.slow, ask(), None):
        seen.append(job)
        # what is seen, what is under way, and what takes the place of what has just been done
        assert len(asked) <= len(seen) + 2 * pair.count
    assert sorted(seen) == asked == list(range(6))


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
    assert pair.died == 1


def test_processes_that_always_die_are_given_up(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.executor.MOST_DEATHS", 2)
    with pytest.raises(WorkersError) as caught:
        list(pair.run(jobs.die_always, range(2), str(tmp_path)))
    assert str(caught.value) == (
        "Worker processes were killed 2 times without a job being done. The usual reason is too "
        "little memory: try fewer at a time (--jobs)."
    )
    assert 2 <= sum(path.stat().st_size for path in tmp_path.glob("tries-*")) <= 4


def test_killed_after_a_stop_is_no_error(pair, tmp_path):
    pair.board.put(STOP, {})
    assert list(pair.run(jobs.die_always, range(2), str(tmp_path))) == []


def test_an_error_of_a_job_is_raised_here(pair):
    with pytest.raises(ValueError, match=r"^expected this, got that$"):
        list(pair.run(jobs.fail, range(4), None))
    # and the workers are of use afterwards
    assert len(list(pair.run(jobs.double, range(4), 0))) == 4


def test_ctrl_c_is_left_to_whoever_started_the_workers(pair):
    assert sorted(job for job, _ in pair.run(jobs.survive_ctrl_c, range(4), None)) == list(range(4))


def test_processes_share_the_cores(pair, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.executor.cores", lambda: 6)
    assert {threads for _, threads in pair.run(jobs.count_threads, range(2), None)} == {"3"}


def test_where_in_words(board):
    assert Workers(1, board).where == "1 process"
    assert Workers(3, board).where == "3 processes side by side"


# opening


@pytest.mark.parametrize(
    ("most", "count", "expected"),
    [(1, None, 1), (18, None, 4), (3, None, 3), (18, 2, 2), (2, 9, 2)],
)
def test_as_many_workers_as_are_of_use(most, count, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("zetamix.experiments.workers.opening.cores", lambda: 4)
    with open_workers("local", most, folder=tmp_path, count=count) as workers:
        assert workers.count == expected


def test_an_old_board_is_cleared(tmp_path):
    FileBoard(tmp_path).put(STOP, {})
    with open_workers("local", 1, folder=tmp_path) as workers:
        assert workers.board.all() == {}


def test_cores_are_those_this_process_may_use(monkeypatch):
    assert cores() == joblib.cpu_count()


@pytest.mark.parametrize(
    ("backend", "address", "message"),
    [
        ("slurm", None, "backend must be one of local, ray, got 'slurm'."),
        ("local", "auto", "An address is for backend ray, got 'auto' for local."),
    ],
)
def test_a_wrong_backend_is_told(backend, address, message, tmp_path):
    with (
        pytest.raises(WorkersError) as caught,
        open_workers(backend, 1, folder=tmp_path, address=address),
    ):
        pass
    assert str(caught.value) == message


def test_without_ray_the_package_is_named(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "zetamix.experiments.ray_executor", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkersError) as caught, open_workers("ray", 1, folder=tmp_path):
        pass
    assert str(caught.value) == "Ray is not installed: pip install 'zetamix[ray]'"


# boards


def test_a_board_keeps_the_last_word_of_each_name(board):
    board.put("a", {"epoch": 1})
    board.put("b", {"epoch": 5})
    board.put("a", {"epoch": 2})
    assert board.get("a") == {"epoch": 2}
    assert board.get("c") is None
    assert board.all() == {"a": {"epoch": 2}, "b": {"epoch": 5}}
    board.clear()
    assert board.all() == {}


def test_processes_write_to_the_same_board(pair):
    list(pair.run(jobs.report, range(4), None))
    words = pair.board.all()
    assert set(words) == {f"job-{k}" for k in range(4)}
    assert all(word["pid"] != os.getpid() and not word["abandoned"] for word in words.values())


ORPHAN = """
import os, subprocess, sys, time
from pathlib import Path
from zetamix.experiments.workers import Contact, FileBoard
board = FileBoard(Path(sys.argv[1]))
if os.fork() == 0:
    contact = Contact(board, every=0.01)
    while not contact.stopped():
        board.put("alive", {})
        time.sleep(0.01)
    board.put("left", {})
else:
    while board.get("alive") is None:
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
"""


def test_a_worker_stops_when_its_owner_is_killed(tmp_path):
    done = subprocess.run([sys.executable, "-c", ORPHAN, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: (tmp_path / "left.json").exists())


def wait_for(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def test_contact_tells_now_and_then(board):
    contact = Contact(board, every=30.0)
    contact.tell("a", {"epoch": 1})
    contact.tell("a", {"epoch": 2})
    contact.tell("b", {"epoch": 1})
    assert board.all() == {"a": {"epoch": 1}, "b": {"epoch": 1}}
    contact.tell("a", {"epoch": 3}, now=True)
    assert board.get("a") == {"epoch": 3}


def test_contact_hears_a_stop_for_good(board):
    contact = Contact(board, every=0.0)
    assert not contact.stopped()
    board.put(STOP, {})
    assert contact.stopped()
    board.clear()
    assert contact.stopped()
