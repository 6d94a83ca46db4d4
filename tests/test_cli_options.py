"""Options that several commands share."""

import io
import os
import signal

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.cli.options import check_device, make_stop, parse_device, parse_seeds, parse_train_size


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
    assert "distinct seeds" in refused(parse_seeds, "0,0", 1)
    assert "distinct seeds of at least 0" in refused(parse_seeds, "-1,", 1)
    assert "got 'a'" in refused(parse_seeds, "a", 1)
    assert "write '0,'" in refused(parse_seeds, "0", 1)


@pytest.mark.parametrize("name", ["train", "compare", "inspect", "tune"])
def test_data_without_its_option_is_refused_with_the_option(name):
    done = CliRunner().invoke(app, [name, "photos"])
    assert done.exit_code == 2
    text = " ".join(done.output.replace("│", " ").split())
    assert f"got 'photos'. If that is your data: zetamix {name} --data photos" in text
