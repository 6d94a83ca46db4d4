"""`zetamix compare` as users run it: output, bad input, Ctrl-C, kill -9, photographs in folders."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from browser import needs_browser, open_page
from PIL import Image
from points import CRESCENTS
from processes import in_foreground
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
    assert "crescents: 64 training and 512 test samples, 2 classes" in text
    assert "3 methods × 2 seeds · mlp, 2 epochs, batch size 32, no augmentation" in text
    assert re.search(r"no mixing seed 1: AUC 0\.\d{4} \(\d of 6 runs finished", text)
    assert re.search(r" 0\.\d{4} ± 0\.\d{4} ", text)
    assert f"Report written to {out / 'report.html'}" in text
    found = json.loads((out / "results.json").read_text())
    assert found["metrics"] == ["auc", "error", "nll", "ece"]
    assert len(found["runs"]) == 6
    # more seeds: only what is missing
    more = invoke(*options, "--methods", "none,mixup,zeta:2.8", "--seeds", "3")
    assert "6 of 9 runs finished" in words(more)
    found = json.loads((out / "results.json").read_text())
    assert found["seeds"] == [0, 1, 2]
    assert len(found["methods"]["none"]["auc"]["values"]) == 3


def test_folders_have_a_name_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*QUICK, "--jobs", "1", "--methods", "none,zeta:2.8", "--seeds", "1")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "compare-crescents" / "report.html").exists()
    assert "2 methods × 1 seed" in words(result)
    assert "Report written to out/compare-crescents/report.html" in words(result)


def test_seeds_may_be_a_list(tmp_path):
    options = [*QUICK, "--jobs", "1", "--methods", "none,mixup", "--out", str(tmp_path)]
    result = invoke(*options, "--seeds", "4,7")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "results.json").read_text())["seeds"] == [4, 7]


def test_other_settings_in_the_same_folder_are_other_runs(tmp_path):
    options = ["--data", CRESCENTS, "--device", "cpu", "--jobs", "1", "--out", str(tmp_path)]
    options += ["--seeds", "1", "--methods", "none,mixup"]
    assert invoke(*options, "--train-size", "64", "--epochs", "1").exit_code == 0
    assert invoke(*options, "--train-size", "32", "--epochs", "2").exit_code == 0
    assert json.loads((tmp_path / "results.json").read_text())["recipe"]["epochs"] == 2
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 4


def test_one_method_is_measured_and_not_compared(tmp_path):
    options = [*QUICK, "--jobs", "1", "--methods", "none", "--seeds", "2", "--out", str(tmp_path)]
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    text = words(result)
    assert text.index("There is only one method, so nothing is compared.") < text.index(
        "runs finished"
    )
    assert "<h2>Differences" not in (tmp_path / "report.html").read_text()


def test_a_failed_run_ends_with_1(tmp_path):
    options = [*QUICK, "--jobs", "1", "--seeds", "1", "--out", str(tmp_path)]
    result = invoke(*options, "--methods", "none,mixup", "--set", "lr=1e30")
    assert result.exit_code == 1
    assert "0 of 2 runs are finished" in words(result)
    assert re.search(r"mixup:\S+ seed 0 failed: ", words(result))
    assert not (tmp_path / "report.html").exists()


def test_a_time_limit_saves_and_goes_on(tmp_path):
    options = ["--data", CRESCENTS, "--epochs", "100000", "--methods", "none", "--seeds", "1"]
    result = invoke(
        *options, "--jobs", "1", "--device", "cpu", "--out", str(tmp_path), "--time-limit", "2s"
    )
    assert result.exit_code == 75, result.output
    assert "The time limit is reached. Everything is saved. Rerun the same command" in words(result)
    assert re.search(r"no mixing seed 0 after \d+\.\d of 100000 epochs", words(result))
    (folder,) = tmp_path.glob("runs/*")
    assert (folder / "checkpoint.pt").exists()


def test_a_limit_that_startup_takes_up_is_reported(tmp_path):
    options = ["--data", CRESCENTS, "--epochs", "100000", "--methods", "none", "--seeds", "1"]
    result = invoke(
        *options, "--jobs", "1", "--device", "cpu", "--out", str(tmp_path), "--time-limit", "0.01s"
    )
    assert result.exit_code == 75, result.output
    assert "Almost no steps were trained: start-up takes most of the 0.01 s." in words(result)


# photographs in folders


def photographs(folder, classes=("cat", "dog", "owl"), count=20, side=12):
    """Coloured noise around a colour of each class, in PNG files."""
    generator = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for k in range(count):
            pixels = generator.integers(0, 120, (side, side, 3), dtype=np.uint8)
            pixels[:, :, number % 3] += 100
            Image.fromarray(pixels).save(folder / name / f"{k}.png")
    return folder


@needs_browser
def test_a_folder_of_png_files_works_the_same_way(tmp_path):
    data, out = photographs(tmp_path / "my pets"), tmp_path / "out"
    result = invoke(
        "--data", str(data), "--methods", "none,cutmix,zeta:2.8", "--seeds", "2", "--epochs", "4",
        "--jobs", "1", "--device", "cpu", "--model", "digitnet", "--out", str(out),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "my pets: 42 training and 12 test samples, 3 classes" in words(result)
    found = json.loads((out / "results.json").read_text())
    assert found["dataset"]["classes"] == ["cat", "dog", "owl"]
    assert found["metrics"] == ["error", "nll", "ece", "nll_scaled", "ece_scaled"]
    seen = open_page(out / "report.html").check()
    assert [row[0] for row in seen.tables[2][1:]] == ["cat", "dog", "owl"]
    assert len(seen.images) == 4


def test_images_get_the_side_that_is_asked_for(tmp_path):
    data, out = photographs(tmp_path / "pets"), tmp_path / "out"
    common = [
        "--data", str(data), "--methods", "none", "--seeds", "1", "--epochs", "1", "--jobs", "1",
        "--device", "cpu", "--model", "digitnet", "--out", str(out), "--data-dir", str(tmp_path),
    ]  # fmt: skip
    assert invoke(*common).exit_code == 0
    result = invoke(*common, "--size", "8")
    assert result.exit_code == 0, result.output
    assert json.loads((out / "results.json").read_text())["dataset"]["shape"] == [3, 8, 8]
    # other images are other runs
    assert len(list(out.glob("runs/*/record.json"))) == 2
    wrong = invoke("--data", "digits", "--size", "8")
    assert wrong.exit_code == 1
    assert "size is for your own images" in words(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: photographs(folder, ("cat",)), "pets: 1 class; expected"),
        (lambda folder: (photographs(folder, ("cat", "dog")), (folder / "owl").mkdir()), "owl"),
        (lambda folder: folder.mkdir(), "no "),
    ],
    ids=["one class", "an empty class", "an empty folder"],
)
def test_a_folder_that_cannot_be_compared_is_reported(make, message, tmp_path):
    make(tmp_path / "pets")
    result = invoke("--data", str(tmp_path / "pets"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1, result.output
    assert message in words(result)
    assert "Traceback" not in result.output


# interruptions, in processes of their own


def start(out, *arguments, **options):
    command = [
        sys.executable, "-m", "zetamix_lab", "compare", "--data", CRESCENTS, "--device", "cpu",
        "--out", str(out), *arguments,
    ]  # fmt: skip
    return subprocess.Popen(
        in_foreground(command),
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


def trained_by(folder):
    """The process that holds the folder of a run."""
    lock = str(folder / ".lock")
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        # a process may end, or close another file, while it is looked at
        with suppress(OSError):
            if os.readlink(link) == lock:
                return int(link.split("/")[2])
    return None


def under_way(out):
    """Folders of runs that have trained an epoch and are not finished."""
    begun = {path.parent for path in out.glob("runs/*/metrics.jsonl") if path.stat().st_size}
    return {folder for folder in begun if not (folder / "record.json").exists()}


def is_young(folder):
    return len((folder / "metrics.jsonl").read_text().splitlines()) < 100


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


# so long that a young run has seconds before it: a stop takes one
LONG = ["--epochs", "700", "--seeds", "1", "--methods", "none,mixup,zeta", "--train-size", "64"]


def test_ctrl_c_saves_everything_and_kill_9_loses_no_finished_run(tmp_path):
    first = start(tmp_path, *LONG, "--jobs", "2")
    # a finished run, and another that has most of its way before it
    wait_for(lambda: finished(tmp_path) and any(map(is_young, under_way(tmp_path))), first)
    first.send_signal(signal.SIGINT)
    text = first.communicate(timeout=120)[0]
    assert first.returncode == 130, text
    assert text.index("Stopping: saving checkpoints") < text.index("Stopped.")
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

    second = start(tmp_path, *LONG, "--jobs", "2")
    wait_for(lambda: any(trained_by(folder) for folder in under_way(tmp_path)), second)
    orphans = [pid for pid in map(trained_by, under_way(tmp_path)) if pid]
    second.kill()
    # workers notice, save and end, and with the last of them the pipe to us
    second.communicate(timeout=120)
    assert not any(trained_by(folder) in orphans for folder in under_way(tmp_path))
    for name, record in kept.items():
        assert finished(tmp_path)[name] == record

    third = start(tmp_path, *LONG, "--jobs", "1")
    text = third.communicate(timeout=300)[0]
    assert third.returncode == 0, text
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
    young_run(tmp_path, process)
    wait_for(lambda: len(under_way(tmp_path)) == 2, process)
    os.killpg(process.pid, number)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + number, text
    assert "Everything is saved." in text
    for folder in under_way(tmp_path):
        state = torch.load(folder / "checkpoint.pt", weights_only=True)["trainer"]
        assert state["epoch"] == len((folder / "metrics.jsonl").read_text().splitlines())
