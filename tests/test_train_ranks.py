"""Distributed training: two processes on one machine, over gloo."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from accidents import signal_at
from folders import FINISHED, RECIPE, assert_same, checkpoint, names, small_digits, weights
from processes import start, zetamix
from ranks import POINTS, TEST, TRAIN, environment, step_through, train_apart, train_points

from zetamix import data
from zetamix.data.augment import measure_scale
from zetamix.methods import parse
from zetamix.metrics import classify
from zetamix.models import initialise
from zetamix.train import Run, train
from zetamix.train.distributed import Ranks
from zetamix.train.run_folder import RunFolder
from zetamix.train.trainer import Trainer

pytestmark = pytest.mark.slow
RANKS = (0, 1)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def both(function, *arguments):
    """Run a function in two processes of one group, to its end."""
    port = free_port()
    processes = [start(function, rank, port, *arguments) for rank in RANKS]
    assert [process.wait() for process in processes] == [0, 0]


def saved(folder, name):
    return [torch.load(folder / f"{name}-{rank}.pt", weights_only=True) for rank in RANKS]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data folder in which the digits are prepared already."""
    folder = tmp_path_factory.mktemp("data")
    data.load("digits", data_dir=folder)
    return folder


@pytest.fixture(scope="module")
def seen(root, tmp_path_factory):
    """What each of two ranks saw in an epoch of ζ-mixup."""
    folder = tmp_path_factory.mktemp("seen")
    both(step_through, folder, root, "zeta:2.8")
    return saved(folder, "seen")


def test_collectives(seen):
    for rank in seen:
        assert rank["any"] == [True, False, True]
        assert [part.shape for part in rank["gather"]] == [(2, 3), (1, 3)]
        assert rank["share"] == {"from": 0}


def test_ranks_share_a_batch_and_no_sample(seen):
    assert [rank["batch"] for rank in seen] == [16, 16]
    first, second = (set(rank["order"].tolist()) for rank in seen)
    assert len(first) == len(second) == 50
    assert not first & second
    assert first | second < set(range(TRAIN))


def test_ranks_draw_different_plans_and_have_one_model(seen):
    first, second = seen
    assert torch.equal(first["generator"], second["generator"])
    assert not torch.equal(first["mixed"], second["mixed"])
    assert any("running_mean" in key for key in first["state"])
    torch.testing.assert_close(first["state"], second["state"], rtol=0, atol=0)


def test_metrics_are_of_all_ranks(seen, root):
    first, second = seen
    assert first["summary"] == second["summary"]
    assert first["summary"]["train_loss"] == 1.5
    # the first bad step of any rank
    assert "step 2 of 3" in first["error"]
    assert first["error"] == second["error"]
    # the scores that the model has in one process
    assert first["scores"] == second["scores"]
    dataset = small_digits(root, TRAIN, 40, TEST)
    assert sorted(first["labels"].tolist()) == sorted(dataset.test.labels.tolist())
    model = initialise("digitnet", 10, (1, 8, 8), 0).eval()
    model.load_state_dict(first["state"])
    scale = measure_scale(dataset.train.samples)
    with torch.no_grad():
        logits = model(scale.apply(dataset.test.samples, torch.float32))
    assert first["scores"] == pytest.approx(classify(logits, dataset.test.labels), abs=1e-6)


def test_two_processes_train_the_model_of_one(tmp_path):
    """481 points, 15 batches of 32: each process has half of every batch."""
    both(train_points, tmp_path / "two", "drop")
    record = RunFolder(tmp_path / "two").read_record()
    crescents = data.load("crescents")
    dataset = replace(crescents, train=crescents.train.subset(481))
    alone = Run(dataset, parse("none"), POINTS, seed=3, out=tmp_path / "one")
    (expected,) = train([alone]).records
    torch.testing.assert_close(
        weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=1e-4, atol=1e-5
    )
    assert record.last == pytest.approx(expected.last, abs=0.02)
    curves = [RunFolder(tmp_path / name).read_curve() for name in ("two", "one")]
    for two, one in zip(*curves, strict=True):
        assert two["train_loss"] == pytest.approx(one["train_loss"], rel=1e-3)


def test_a_smaller_last_batch_does_not_deadlock(tmp_path):
    """An odd number of points, and a last batch that only one of two processes would have."""
    both(train_points, tmp_path / "run", "keep")
    assert RunFolder(tmp_path / "run").read_record().extra["processes"] == 2


def test_machines_need_not_share_files(tmp_path):
    """Rank 0 alone reads and writes files, and sends their content to the others."""
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    for folder in (whole, parted):
        folder.mkdir()
    both(train_apart, whole, 0)
    assert names(whole / "rank0") == FINISHED
    assert not (whole / "rank1").exists()
    first, second = saved(whole, "records")
    assert len(first) == 1
    assert first == second
    both(train_apart, parted, 5)
    assert saved(parted, "records") == [[], []]
    state = torch.load(parted / "rank0" / "checkpoint.pt", weights_only=True)
    assert (state["hardware"], state["trainer"]["step_in_epoch"]) == ("cpu with 2 processes", 5)
    for _ in range(2):
        # resumes, and then finds it finished
        both(train_apart, parted, 0)
        assert saved(parted, "records") == [first, second]
    assert_same(parted / "rank0", whole / "rank0")


ARGUMENTS = [
    "train", "--data", "digits", "--train-size", 301, "--epochs", 2, "--seeds", "4,",
    "--methods", "zeta:2.8", "--save-every", 0, "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def by_torchrun(root, tmp_path_factory):
    """The folder of a run by `torchrun … zetamix train`."""
    folder = tmp_path_factory.mktemp("torchrun") / "run"
    script = Path(sys.executable).with_name("zetamix")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launch, script, *ARGUMENTS, "--data-dir", root, "--out", folder]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
    )
    assert done.returncode == 0, done.stderr
    return folder, done


def test_torchrun_trains_one_model(by_torchrun):
    folder, done = by_torchrun
    record = RunFolder(folder).read_record()
    assert record.extra["processes"] == 2
    assert record.test_size == sum(map(sum, record.confusion)) == 360
    # one process prints
    assert done.stdout.count("Results written to") == 1, done.stdout
    assert [line["epoch"] for line in RunFolder(folder).read_curve()] == [1, 2]


def commands(folder, root, *more, before=(None, None)):
    """The same command twice, as the two processes of a group."""
    port = free_port()
    return [
        zetamix(
            *ARGUMENTS, "--data-dir", root, "--out", folder, *more,
            log=folder.parent / f"log{rank}",
            environment=environment(rank, port),
            before=before[rank],
        )
        for rank in RANKS
    ]  # fmt: skip


def test_a_signal_to_one_process_stops_both(by_torchrun, root, tmp_path):
    folder = tmp_path / "run"
    # nine steps an epoch: in the middle of the second
    stopped = commands(folder, root, before=(None, partial(signal_at, 13, signal.SIGTERM)))
    # the other process ends with 75: work is left
    assert [process.wait() for process in stopped] == [75, 143], (tmp_path / "log1").read_text()
    state = checkpoint(folder)
    assert (state["epoch"], state["step_in_epoch"]) == (1, 4)
    again = commands(folder, root, "--log", "tensorboard")
    assert [process.wait() for process in again] == [0, 0]
    assert_same(folder, by_torchrun[0])
    assert (tmp_path / "log1").read_text() == ""
    # one of them logs
    assert len(list((folder / "tensorboard").iterdir())) == 1


def test_killed_processes_resume(by_torchrun, root, tmp_path):
    folder = tmp_path / "run"
    processes = commands(folder, root)
    while not (folder / "checkpoint.pt").exists():
        assert all(process.running for process in processes)
        time.sleep(0.01)
    for process in processes:
        process.send(signal.SIGKILL)
    statuses = {process.wait() for process in processes}
    assert -signal.SIGKILL in statuses
    assert [process.wait() for process in commands(folder, root)] == [0, 0]
    assert_same(folder, by_torchrun[0])


def test_layers_of_two_ranks_draw_different_numbers(root):
    drawn = []
    for rank in RANKS:
        trainer = Trainer(small_digits(root), parse("none"), RECIPE)
        trainer.is_random, trainer.ranks = True, Ranks(rank, 2)
        with trainer.layer_draws():
            drawn.append(torch.rand(1).item())
    assert drawn[0] != drawn[1]
