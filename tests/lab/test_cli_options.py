"""Options that several commands share."""

import io
import os
import signal
from pathlib import Path

import pytest
import torch
import typer
from miniatures import class_folders
from rich.console import Console
from typer.testing import CliRunner

from zetamix_lab.cli.app import app
from zetamix_lab.cli.options import (
    check_device,
    check_writable,
    make_stop,
    parse_device,
    parse_seeds,
    parse_train_size,
)


def refused(read, *arguments):
    with pytest.raises(typer.BadParameter) as caught:
        read(*arguments)
    return caught.value.message


@pytest.fixture
def gpus(monkeypatch):
    def pretend(count):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)

    return pretend


def test_a_gpu_where_there_is_one(gpus):
    gpus(0)
    assert parse_device(None) == torch.device("cpu")
    gpus(1)
    assert parse_device(None) == torch.device("cuda")
    assert parse_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cuda:-1", "cuda:", "cuda:01", ""])
def test_what_is_no_device(gpus, name):
    gpus(2)
    assert refused(check_device, name) == f"expected cpu or cuda, got {name!r}"


def test_a_gpu_that_is_not_there(gpus):
    gpus(0)
    assert refused(parse_device, "cuda") == "torch finds no CUDA device; use cpu"
    gpus(2)
    assert parse_device("cuda:1") == torch.device("cuda", 1)
    assert "below 2" in refused(parse_device, "cuda:2")


def test_none_leaves_the_device_to_whoever_trains(gpus):
    gpus(0)
    check_device(None)


def test_a_time_limit_counts_from_the_start():
    console = Console(file=io.StringIO())
    assert make_stop(None, 0.0, console).limit is None
    assert make_stop("9m", 0.0, console).limit == 540
    assert "got 'soon'" in refused(make_stop, "soon", 0.0, console)


def test_ctrl_c_is_acknowledged_before_anything_is_saved():
    console = Console(file=io.StringIO(), width=100)
    with make_stop(None, 0.0, console) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert "Stopping: saving checkpoints" in console.file.getvalue()
        assert "Press Ctrl-C again to quit at once" in console.file.getvalue()
        assert stop()


def test_sizes_and_seeds():
    assert [parse_train_size(text) for text in (None, "100", "0.1")] == [None, 100, 0.1]
    assert "a fraction such as 0.1, got 'half'" in refused(parse_train_size, "half")
    assert parse_seeds("0,2", 1) == (0, 2)
    assert parse_seeds("3", 1) == (0, 1, 2)
    assert parse_seeds("7,", 1) == (7,)
    assert parse_seeds(None, 2) == (0, 1)
    assert "distinct, non-negative seeds" in refused(parse_seeds, "0,0", 1)
    assert "distinct, non-negative seeds" in refused(parse_seeds, "-1,", 1)
    assert "got 'a'" in refused(parse_seeds, "a", 1)
    assert "use '0,'" in refused(parse_seeds, "0", 1)


@pytest.mark.parametrize("name", ["train", "compare", "inspect", "tune"])
def test_data_without_its_option_is_refused_with_the_option(name):
    done = CliRunner().invoke(app, [name, "photos"])
    assert done.exit_code == 2
    text = " ".join(done.output.replace("│", " ").split())
    assert (
        f"unexpected argument 'photos'. If it is your data, use: zetamix {name} --data photos"
        in text
    )


SKIPPING = {
    "train": ["--size", "8", "--epochs", "1", "--methods", "none", "--model", "mlp"],
    "inspect": ["--size", "8", "--oracle", "none", "--gammas", "2.8", "--methods", "zeta:2.8"],
    "play": ["--no-open"],
    "compare": ["--size", "8", "--epochs", "1", "--seeds", "1", "--model", "mlp", "--jobs", "1"],
    "tune": ["--size", "8", "--epochs", "1", "--trials", "1", "--test-seeds", "0", "--jobs", "1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", SKIPPING)
def test_images_that_cannot_be_read_are_left_out_on_request(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    photos = class_folders(tmp_path / "photos", {"cat": 24, "dog": 24})
    broken = photos / "cat" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    arguments = [command, "--data", "photos", *SKIPPING[command]]
    if command != "play":
        arguments += ["--device", "cpu"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1
    assert "--skip-broken" in refused.output
    done = CliRunner().invoke(app, [*arguments, "--skip-broken"])
    assert done.exit_code == 0, done.output
    if command != "play":
        assert "1 unreadable image skipped" in " ".join(done.output.split())


def test_writability_is_tested_without_a_trace(tmp_path):
    check_writable(tmp_path / "new" / "deep", "--out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "Not a directory" in refused(check_writable, tmp_path / "file", "--out")
    assert "cannot write to /proc/zz" in refused(check_writable, Path("/proc/zz"), "--out")
