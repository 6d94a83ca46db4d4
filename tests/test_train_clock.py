"""What steps cost on the clock of their device, and how far the host runs ahead of it."""

import time

import pytest
import torch

from zetamix.train.step_timer import CHUNKS_AHEAD, StepTimer


class PretendedGpu:
    """A stream that is done with every chunk a second after it got to it."""

    def __init__(self, monkeypatch):
        self.host = 0.0
        """What the host's clock says."""
        self.busy_until = 0.0
        self.passed = 0.0
        """How far the device is known to have come."""
        self.waited = []
        monkeypatch.setattr(torch.cuda, "Event", self.event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)

    def event(self, *, enable_timing):
        assert enable_timing
        return PretendedEvent(self)

    def launch(self):
        self.busy_until = max(self.busy_until, self.host) + 1.0


class PretendedEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self, stream):
        assert stream is self.gpu
        self.at = max(self.gpu.busy_until, self.gpu.host)

    def query(self):
        return self.gpu.passed >= self.at

    def synchronize(self):
        self.gpu.waited.append(self.at)
        self.gpu.passed = max(self.gpu.passed, self.at)

    def elapsed_time(self, end):
        assert self.query()
        assert end.query(), "an event that was not waited for has no time"
        return 1000.0 * (end.at - self.at)


@pytest.fixture
def gpu(monkeypatch):
    return PretendedGpu(monkeypatch)


def launch(gpu, clock, chunks, steps=16):
    for _ in range(chunks):
        with clock.chunk(steps):
            gpu.launch()


def test_the_host_waits_only_for_a_chunk_that_others_follow(gpu):
    clock = StepTimer(torch.device("cuda"))
    clock.start()
    launch(gpu, clock, CHUNKS_AHEAD)
    assert gpu.waited == []
    launch(gpu, clock, 3)
    assert gpu.waited == [1.0, 2.0, 3.0]
    assert not clock.is_done()
    clock.finish()
    assert gpu.waited == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert clock.is_done()


def test_all_but_the_first_chunk_of_an_epoch_is_counted_once(gpu):
    clock = StepTimer(torch.device("cuda"))
    for _ in range(2):
        clock.start()
        launch(gpu, clock, 4)
        launch(gpu, clock, 1, steps=7)
        clock.finish()
    assert clock.steps == 2 * (3 * 16 + 7)
    assert clock.seconds == pytest.approx(2 * 4)


def test_runs_that_share_a_gpu_share_its_time(gpu):
    clock = StepTimer(torch.device("cuda"))
    clock.sharing = 4
    clock.start()
    launch(gpu, clock, 3)
    clock.finish()
    assert (clock.steps, clock.seconds) == (32, pytest.approx(2 / 4))


def test_a_stream_that_stands_idle_is_charged_nothing(gpu):
    """The host may build, evaluate or save another run between two chunks of this one."""
    clock = StepTimer(torch.device("cuda"))
    clock.start()
    for _ in range(4):
        launch(gpu, clock, 1)
        gpu.host += 60.0
    clock.finish()
    assert (clock.steps, clock.seconds) == (3 * 16, pytest.approx(3))


def test_what_a_stopped_epoch_left_is_forgotten(gpu):
    clock = StepTimer(torch.device("cuda"))
    clock.start()
    launch(gpu, clock, 1)
    clock.start()
    assert clock.is_done()
    launch(gpu, clock, 1)
    clock.finish()
    assert clock.steps == 0


def test_done_is_what_the_gpu_has_passed(gpu):
    clock = StepTimer(torch.device("cuda"))
    clock.start()
    assert clock.is_done()
    launch(gpu, clock, 2)
    gpu.passed = 1
    assert not clock.is_done()
    gpu.passed = 2
    assert clock.is_done()


def test_a_cpu_is_timed_by_the_host_and_charged_to_nobody_else(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = StepTimer(torch.device("cpu"))
    clock.sharing = 3
    clock.start()
    for seconds in (9.0, 0.25, 0.5):
        with clock.chunk(1):
            now[0] += seconds
        # what other runs do in between
        now[0] += 100
    assert (clock.steps, clock.seconds) == (2, 0.75)
    assert clock.is_done()
    clock.finish()
