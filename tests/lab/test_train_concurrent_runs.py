"""Several runs on one device: as each alone, waiting for the device, and one that fails."""

import gc
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from factories import METHODS, RECIPE, STEPS, assert_same, checkpoint

from zetamix.methods import parse
from zetamix_lab.data.errors import DataError
from zetamix_lab.train import Run, train
from zetamix_lab.train.run import CHUNKS_AHEAD
from zetamix_lab.train.run_folder import FolderError
from zetamix_lab.train.trainer import NonFiniteLossError, Trainer


def assert_same_runs(runs, others):
    for one, other in zip(runs, others, strict=True):
        assert_same(one.folder.path, other.folder.path)


def test_side_by_side_is_as_alone(new):
    alone, together = ([new(method) for method in METHODS] for _ in range(2))
    train(alone)
    train(together, jobs=3)
    assert {run.record.extra["concurrent"] for run in together} == {3}
    assert_same_runs(alone, together)


def test_runs_join_one_per_round_and_every_step_and_epoch_is_reported(new):
    seen, progress = [], []
    runs = [new(seed=seed) for seed in range(4)]

    def watch(run, line):
        seen.append(run.seed)
        if run is runs[0]:
            progress.append((run.epochs, line.get("epoch")))

    train(runs, jobs=3, watch=watch)
    assert seen[:6] == [0, 0, 1, 0, 1, 2]
    assert seen.index(3) > max(index for index, seed in enumerate(seen) if seed == 0)
    assert [seen.count(seed) for seed in range(4)] == 4 * [2 * (STEPS + 1)]
    epochs, numbers = zip(*progress, strict=True)
    assert epochs == pytest.approx([1 / 3, 2 / 3, 1, 1, 4 / 3, 5 / 3, 2, 2])
    assert numbers == (None, None, None, 1, None, None, None, 2)
    with pytest.raises(ValueError, match=r"^jobs must be at least 1, got 0\.$"):
        train(runs, jobs=0)


class FakeGPU:
    """Takes the place of the GPU of a run; its events are completed by the test."""

    type = "cuda"

    def __init__(self, monkeypatch):
        self.events, self.current = [], False
        monkeypatch.setattr(torch.cuda, "device", self.make_current)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)

    @contextmanager
    def make_current(self, device):
        assert device is self
        self.current = True
        yield
        self.current = False

    def record_event(self):
        assert self.current
        self.events.append(mock.Mock(query=mock.Mock(return_value=False)))
        return self.events[-1]


@pytest.fixture
def gpu(monkeypatch):
    return FakeGPU(monkeypatch)


def test_the_host_waits_only_for_a_chunk_that_others_follow(new, gpu):
    run = new(recipe=RECIPE.change(batch_size=10))
    run.device, events, steps = gpu, gpu.events, run.advance()
    for chunk in range(10):
        next(steps)
        waited = [event.synchronize.called for event in events]
        assert waited == [index < chunk + 1 - CHUNKS_AHEAD for index in range(chunk + 1)]
    # the last step of the epoch is launched, but not completed
    for _ in range(3):
        assert (next(steps), run.waiting, run.trainer.epoch) == ({}, True, 0)
    events[-1].query.return_value = True
    assert (next(steps)["epoch"], run.waiting, run.trainer.epoch) == (1, False, 1)
    next(steps)
    steps.close()
    # what is pending would write into memory that the next model uses
    assert events[-1].synchronize.called


def test_others_are_advanced_while_the_last_steps_of_an_epoch_are_under_way(new, gpu):
    slow, other = new(seed=0), new(seed=1)
    slow.device, seen = gpu, []

    def watch(run, line):
        seen.append(run.seed)
        if len(seen) > 20 and run is slow:
            gpu.events[-1].query.return_value = True

    assert train([slow, other], jobs=2, watch=watch, stop=lambda: bool(slow.epochs >= 1.1)) == {}
    assert other.record is not None
    assert seen.count(0) > seen.count(1) == 2 * (STEPS + 1)


def out_of_memory():
    """As within the capture of a graph: the end of the capture fails as well."""
    try:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")
    finally:
        raise RuntimeError("the capture was invalidated")


FAILURES = [
    (out_of_memory, "The GPU is out of memory. Train fewer runs side by side (--jobs), or use "
     "smaller batches (--set batch_size=...). PyTorch reports: CUDA out of memory. Tried to "
     "allocate 2 GiB."),
    (mock.Mock(side_effect=NonFiniteLossError("diverged")), "diverged"),
    (mock.Mock(side_effect=FolderError("no space")), "no space"),
    (mock.Mock(side_effect=DataError("no data")), "no data"),
]  # fmt: skip


@pytest.mark.parametrize(("fail", "message"), FAILURES, ids=["memory", "loss", "folder", "data"])
def test_a_run_that_fails_leaves_the_others_running(new, monkeypatch, fail, message):
    alone = [new(seed=1), new(seed=2)]
    train(alone)
    compute = Trainer.compute

    def compute_or_fail(self, batch_size):
        if self.seed == 0 and self.step_in_epoch == 1:
            fail()
        compute(self, batch_size)

    monkeypatch.setattr(Trainer, "compute", compute_or_fail)
    runs = [new(seed=seed) for seed in range(3)]
    assert train(runs, jobs=2) == {runs[0]: message}
    assert [run.record is None for run in runs] == [True, False, False]
    # a run that ends within a step is not saved there, and its model is freed
    assert checkpoint(runs[0].folder.path) is None
    assert runs[0].trainer is None
    assert_same_runs(alone, runs[1:])


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("method", ["zero_grad", "step"])
def test_an_interrupted_step_is_not_saved_and_the_other_runs_are(new, monkeypatch, error, method):
    """Between the gradients and the weights nothing may be saved; the last checkpoint stays."""
    whole = [new(seed=seed) for seed in range(2)]
    train(whole)
    real, calls = getattr(torch.optim.SGD, method), iter(range(1, 100))

    def interrupted(self, *arguments, **options):
        real(self, *arguments, **options)
        if next(calls) == 2 * STEPS + 2:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, method, interrupted)
        with pytest.raises(error):
            train([new(seed=seed, out=f"broken{seed}", save_every=0) for seed in range(2)], jobs=2)
    last = [new(seed=seed, out=f"broken{seed}") for seed in range(2)]
    # one was within a step of its second epoch, the other between two
    assert min(checkpoint(run.folder.path)["step_in_epoch"] for run in last) == 0
    train(last)
    assert_same_runs(whole, last)


def test_a_full_disk_while_stopping_is_a_failure_of_that_run_alone(new, monkeypatch):
    full, other = new(seed=0), new(seed=1)
    monkeypatch.setattr(
        full.folder, "save_checkpoint", mock.Mock(side_effect=FolderError("no space"))
    )
    failures = train([full, other], jobs=2, stop=lambda: other.trainer is not None)
    assert failures == {full: "no space"}
    assert checkpoint(other.folder.path) is not None


def test_the_gpu_of_a_run_is_the_current_one_while_it_trains(new, gpu, monkeypatch):
    """Kernels are launched on the current GPU."""
    calls = []

    def watch(name):
        real = getattr(Trainer, name)

        def call(*arguments, **options):
            calls.append(gpu.current)
            return real(*arguments, **options)

        monkeypatch.setattr(Trainer, name, call)

    for name in ("__init__", "compute", "state_dict"):
        watch(name)
    run = new()
    run.device = gpu
    next(run.advance())
    run.save()
    assert (calls, gpu.current) == ([True] * 3, False)


@pytest.mark.gpu
def test_a_run_that_exceeds_the_memory_of_the_gpu_leaves_the_others_running(digits, tmp_path):
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total + 2e-3)
    wide = RECIPE.change(model="resnet50", stem="small", batch_size=100)
    try:
        runs = [
            Run(digits, parse("zeta"), recipe, seed=0, out=tmp_path / name, device="cuda")
            for name, recipe in [("small", RECIPE), ("wide", wide), ("next", RECIPE)]
        ]
        failures = train(runs, jobs=2)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert [run.record is None for run in runs] == [False, True, False]
    assert "out of memory" in failures[runs[1]]
