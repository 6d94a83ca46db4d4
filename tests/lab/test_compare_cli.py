"""`zetamix compare` as users run it: output, bad input, Ctrl-C, kill -9, photographs in folders."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from browser import needs_browser, open_page
from factories import CRESCENTS
from miniatures import class_folders
from typer.testing import CliRunner

from zetamix_lab.cli.app import app

QUICK = ["--data", CRESCENTS, "--train-size", "64", "--epochs", "2", "--device", "cpu"]


def invoke(*arguments):
    return CliRunner().invoke(app, ["compare", *arguments])


def words(result):
    """The output without the frames and line breaks of a terminal."""
    return " ".join(result.output.replace("│", " ").split())


# the command


def test_the_command_trains_answers_and_writes(tmp_path):
    out = tmp_path / "new" / "folder"
    options = [*QUICK, "--jobs", "1", "--out", str(out)]
    result = invoke(*options, "--methods", "none,mixup,zeta:2.8", "--seeds", "2")
    assert result.exit_code == 0, result.output
    text = words(result)
    assert (
        "3 methods × 2 seeds; 64 training and 512 test samples, 2 classes, 1 × 8 × 8; digitnet"
        in text
    )
    assert "2 epochs, batch size 32" in text
    assert re.search(r"no mixing seed 1: AUC 0\.\d{4} \(\d of 6 runs finished", text)
    assert re.search(r" 0\.\d{4} ± 0\.\d{4} ", text)
    assert f"Report written to {out / 'report.html'}" in text
    found = json.loads((out / "results.json").read_text())
    assert found["metrics"][:4] == ["auc", "error", "nll", "ece"]
    assert len(found["runs"]) == 6
    # more seeds: only what is missing
    more = invoke(*options, "--methods", "none,mixup,zeta:2.8", "--seeds", "3")
    assert "6 of 9 runs finished" in words(more)
    found = json.loads((out / "results.json").read_text())
    assert found["seeds"] == [0, 1, 2]
    assert len(found["methods"]["none"]["auc"]["values"]) == 3


def test_a_failed_run_ends_with_1(tmp_path):
    options = [*QUICK, "--jobs", "1", "--seeds", "1", "--out", str(tmp_path)]
    result = invoke(*options, "--methods", "none,mixup", "--set", "lr=1e30")
    assert result.exit_code == 1
    assert "0 of 2 runs are finished" in words(result)
    assert re.search(r"mixup:\S+ seed 0 failed: ", words(result))
    assert not (tmp_path / "report.html").exists()


def test_one_method_is_measured_in_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*QUICK, "--jobs", "1", "--methods", "none", "--seeds", "4,")
    assert result.exit_code == 0, result.output
    text = words(result)
    assert "1 method × 1 seed" in text
    assert text.index("run finished") < text.index("Add methods") < text.index("Report")
    assert f"Report written to {tmp_path / 'out/compare-crescents/report.html'}" in text
    assert json.loads(Path("out/compare-crescents/results.json").read_text())["seeds"] == [4]


@pytest.mark.parametrize("limit", ["4s", "0.001s"])
def test_a_time_limit_saves_and_goes_on(limit, tmp_path):
    options = ["--data", CRESCENTS, "--epochs", "100000", "--methods", "none", "--seeds", "1"]
    options += ["--jobs", "1", "--device", "cpu", "--out", str(tmp_path), "--time-limit", limit]
    result = invoke(*options)
    assert result.exit_code == 75, result.output
    text = words(result)
    assert "The time limit is reached. Everything is saved. Rerun the same command" in text
    assert re.search(r"no mixing seed 0 after \d+\.\d of 100000 epochs", text)
    (folder,) = tmp_path.glob("runs/*")
    assert (folder / "checkpoint.pt").exists()


# photographs in folders


def photographs(folder, *classes):
    return class_folders(folder, dict.fromkeys(classes, 20))


@needs_browser
def test_a_folder_of_png_files_works_the_same_way(tmp_path):
    data, out = photographs(tmp_path / "my pets", "cat", "dog", "owl"), tmp_path / "out"
    result = invoke(
        "--data", str(data), "--methods", "none,cutmix,zeta:2.8", "--seeds", "2", "--epochs", "4",
        "--jobs", "1", "--device", "cpu", "--model", "digitnet", "--out", str(out), "--size", "8",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "42 training and 12 test samples, 3 classes" in words(result)
    found = json.loads((out / "results.json").read_text())
    assert found["dataset"]["classes"] == ["cat", "dog", "owl"]
    assert found["dataset"]["shape"] == [3, 8, 8]
    assert found["metrics"] == ["error", "nll", "ece", "nll_scaled", "ece_scaled"]
    seen = open_page(out / "report.html").check()
    assert [row[0] for row in seen.tables[-1][1:]] == ["cat", "dog", "owl"]
    assert len(seen.images) == 3


# interruptions, in processes of their own


def start(out, *arguments, **options):
    command = [
        sys.executable, "-m", "zetamix_lab", "compare", "--data", CRESCENTS, "--device", "cpu",
        "--out", str(out), *arguments,
    ]  # fmt: skip
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def wait_for(condition, process, seconds=300.0):
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def finished(out):
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/record.json")}


def under_way(out):
    """Folders of runs that have trained an epoch and are not finished."""
    begun = {path.parent for path in out.glob("runs/*/metrics.jsonl") if path.stat().st_size}
    return {folder for folder in begun if not (folder / "record.json").exists()}


def is_young(folder):
    return len((folder / "metrics.jsonl").read_text().splitlines()) < 100


# so long that a young run has seconds before it: a stop takes one
LONG = ["--epochs", "700", "--seeds", "1", "--methods", "none,mixup,zeta", "--train-size", "64"]


def test_ctrl_c_saves_everything_and_the_same_command_resumes(tmp_path):
    first = start(tmp_path, *LONG, "--jobs", "2")
    # a finished run, and another that has most of its way before it
    wait_for(lambda: finished(tmp_path) and any(map(is_young, under_way(tmp_path))), first)
    first.send_signal(signal.SIGINT)
    text = first.communicate(timeout=120)[0]
    assert first.returncode == 130, text
    assert text.index("Stopping …") < text.index("Stopped.")
    assert "Stopped. Everything is saved. Rerun the same command to resume." in text
    assert "Traceback" not in text
    # what is finished is reported, and that it is not all
    found = json.loads((tmp_path / "results.json").read_text())
    assert not found["complete"]
    assert len(found["runs"]) == len(finished(tmp_path))
    # the line is as long as its numbers: a terminal may break it anywhere
    assert re.search(r"\S+ seed \d after \d+\.\d of 700 epochs", " ".join(text.split()))
    kept = finished(tmp_path)
    assert list(tmp_path.glob("runs/*/checkpoint.pt"))

    second = start(tmp_path, *LONG, "--jobs", "1")
    text = second.communicate(timeout=300)[0]
    assert second.returncode == 0, text
    for name, record in kept.items():
        assert finished(tmp_path)[name] == record
    assert len(finished(tmp_path)) == 3
    for folder in tmp_path.glob("runs/*"):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        # no epoch twice, none missing
        assert [line["epoch"] for line in lines] == list(range(1, 701))
    assert json.loads((tmp_path / "results.json").read_text())["complete"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_signal_to_all_processes_loses_no_more_than_a_step(tmp_path, number):
    """As from a cluster's scheduler, or a terminal that is closed."""
    # no run ends by itself, however late the signal arrives
    endless = ["--epochs", "1000000", "--methods", "none,zeta:2.8", "--train-size", "64"]
    process = start(tmp_path, *endless, "--jobs", "2", start_new_session=True)
    wait_for(lambda: len(under_way(tmp_path)) == 2, process)
    os.killpg(process.pid, number)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + number, text
    assert "Everything is saved." in text
    for folder in under_way(tmp_path):
        state = torch.load(folder / "checkpoint.pt", weights_only=True)["trainer"]
        assert state["epoch"] == len((folder / "metrics.jsonl").read_text().splitlines())
