"""A search on a Ray cluster of two nodes on this machine, of which one worker is killed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys

import pytest
from test_compare_cli import trained_by, wait_for
from test_ray_executor import address as address

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'zetamix[ray]'"
)


def test_on_a_cluster_a_killed_worker_costs_no_trial(address, tmp_path):
    process = subprocess.Popen(
        [
            sys.executable, "-m", "zetamix", "tune", "--data", "crescents", "--device", "cpu",
            "--train-size", "64", "--epochs", "400", "--trials", "3", "--test-seeds", "1",
            "--out", str(tmp_path), "--backend", "ray", "--address", address,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    folder = tmp_path / "trials/0000"
    workers = []

    def has_trained():
        worker = (folder / "metrics.jsonl").exists() and trained_by(folder)
        workers.extend([worker] if worker else [])
        return worker

    wait_for(has_trained, process)
    os.kill(workers[0], signal.SIGKILL)
    text = process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    results = json.loads((tmp_path / "results.json").read_text())
    assert [trial["number"] for trial in results["trials"]] == [0, 1, 2]
    assert all(trial["state"] == "complete" for trial in results["trials"])
    assert [each["name"] for each in results["test"]] == [
        "none",
        "zetamix",
        "zeta:2.8",
        "chosen",
    ]
    assert "2 workers on Ray" in (tmp_path / "report.html").read_text()
