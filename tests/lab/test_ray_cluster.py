"""The same jobs on a Ray cluster of two nodes on this machine, one worker killed in the middle."""

import glob
import importlib.util
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial

import jobs
import pytest
from test_compare_cli import finished, is_young, start, under_way, wait_for

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'zetamix[ray]'"
)


@pytest.fixture
def address(monkeypatch):
    """Of a cluster of two nodes with one CPU each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    # a group of its own, so that nothing else is ended with it
    process = jobs.start("cluster", **pipes, text=True, start_new_session=True)
    found = process.stdout.readline().strip()
    assert ":" in found, "the cluster did not start"
    yield found
    process.stdin.close()
    try:
        process.wait(timeout=60)
    finally:
        process.stdout.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_on_a_cluster_a_killed_worker_costs_nothing_but_time(address, tmp_path):
    # one test, because a cluster takes longer to start than to use
    use_workers(address, tmp_path / "jobs")
    compare_methods(address, tmp_path / "compare")
    call_a_function(address, tmp_path / "call")


def use_workers(address, tmp_path):
    """Jobs are spread over nodes, a killed one is done again, and a stop lets them save."""
    from zetamix_lab.runs.executor import Work, run_jobs

    def do(function, given, shared, **options):
        messages = []
        work = Work(partial(function, shared=shared), given, messages.append, **options)
        done = run_jobs(work, f"ray:{address}", None)
        assert done == "2 workers on Ray"
        return messages

    tmp_path.mkdir()
    messages = do(jobs.name_node, range(4), str(tmp_path))
    results = {job: value for kind, job, value in messages if kind == "result"}
    assert {job: tries for job, (_, tries) in results.items()} == {0: 1, 1: 1, 2: 1, 3: 2}
    assert len({node for node, _ in results.values()}) == 2
    # of every kind the last
    progress = [("progress", job, 2) for job in range(4)]
    assert sorted(messages) == progress + [("result", job, results[job]) for job in range(4)]
    with pytest.raises(ValueError, match=r"^expected this, got that$"):
        do(jobs.fail, range(4), None)
    begun = tmp_path / "stopped"
    begun.mkdir()
    # two are under way, one has not begun
    stop = lambda: len(list(begun.iterdir())) == 2  # noqa: E731
    saved = do(jobs.save_on_node, range(3), str(begun), stop=stop)
    assert sorted(job for _, job, _ in saved) in ([0, 1], [0, 2], [1, 2])


def trained_by(folder):
    """The process that holds the folder of a run."""
    lock = str(folder / ".lock")
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        # a process may end, or close another file, while it is looked at
        with suppress(OSError):
            if os.readlink(link) == lock:
                return int(link.split("/")[2])
    return None


def young_run(out, process):
    """The folder of a run that has most of its way before it, and the process that trains it."""
    found = []

    def look():
        pairs = ((folder, trained_by(folder)) for folder in under_way(out) if is_young(folder))
        # looked at once: a moment later it may be finished, and held by nobody
        found[:] = [(folder, pid) for folder, pid in pairs if pid is not None]
        return bool(found)

    wait_for(look, process)
    return found[0]


def compare_methods(address, tmp_path):
    """A comparison survives a killed worker, and counts no run twice."""
    process = start(
        tmp_path, "--until", "1", "--train-size", "64", "--epochs", "300", "--seeds", "2",
        "--methods", "none,zeta:2.8", "--backend", f"ray:{address}",
    )  # fmt: skip
    folder, killed = young_run(tmp_path, process)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: trained_by(folder) not in (None, killed), process)
    text = process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    assert len(finished(tmp_path)) == 4
    for path in tmp_path.glob("runs/*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["epoch"] for line in lines] == list(range(1, 301))
    found = json.loads((tmp_path / "results.json").read_text())
    assert len({run["key"] for run in found["runs"]}) == len(found["runs"]) == 4
    assert len(found["methods"]["none"]["auc"]["values"]) == 2
    assert "2 workers on Ray" in (tmp_path / "report.html").read_text()


def call_a_function(address, tmp_path):
    """A function of the user's, in a process for each run."""
    tmp_path.mkdir()
    code = (
        "import os\ndef run(mix, seed, out):\n    return {'dice': seed / 9, 'pid': os.getpid()}\n"
    )
    (tmp_path / "train.py").write_text(code)
    command = [sys.executable, "-m", "zetamix_lab", "compare", "--train", "train.py:run"]
    command += ["--methods", "none,mixup", "--seeds", "2", "--backend", f"ray:{address}"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    found = json.loads((tmp_path / "out/compare-train/results.json").read_text())
    assert found["complete"]
    assert len({run["last"]["pid"] for run in found["runs"]}) == 4


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://head:1", "at 'ray://head:1': .*Expected ray:HOST:PORT"),
        ("head", "at 'head': .*Expected ray:HOST:PORT, or ray on a machine of the cluster"),
        ("127.0.0.1:1", "at '127.0.0.1:1': Connection refused. .*Start one with: ray start --head"),
        ("auto", "at 'auto': Could not find any. .*Start one with: ray start --head"),
    ],
)
def test_an_address_without_a_cluster(address, message, monkeypatch):
    from zetamix_lab.runs.executor import ExecutorError
    from zetamix_lab.runs.ray_cluster import connect

    def init(**options):
        raise ConnectionError("Could not find any.\nmore")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(ExecutorError, match=message):
        connect(address)


@pytest.mark.parametrize(
    ("resources", "jobs", "workers", "expected"),
    [
        ({"CPU": 8}, 18, None, (8, {"num_cpus": 1.0})),
        ({"CPU": 8}, 18, 3, (3, {"num_cpus": 1.0})),
        ({"CPU": 8}, 1, None, (1, {"num_cpus": 1.0})),
        ({"CPU": 64, "GPU": 2}, 18, None, (8, {"num_cpus": 1.0, "num_gpus": 0.25})),
        ({"CPU": 4, "GPU": 2}, 18, None, (4, {"num_cpus": 1.0, "num_gpus": 0.25})),
    ],
)
def test_as_many_workers_as_a_cluster_has_room_for(resources, jobs, workers, expected):
    from zetamix_lab.runs.executor import ExecutorError
    from zetamix_lab.runs.ray_cluster import plan_workers

    assert plan_workers(resources, jobs, workers) == expected
    with pytest.raises(ExecutorError, match="has no CPU"):
        plan_workers({"GPU": 1}, jobs, workers)
