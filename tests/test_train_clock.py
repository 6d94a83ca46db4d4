"""What steps cost on the clock of their device, and how far the host runs ahead of it."""

import time

import pytest
import torch

from zetamix.train.clock import CHUNKS_AHEAD, StepClock


class PretendedGpu:
    """A GPU whose chunks take a second each, and the events at their ends."""

    def __init__(self, monkeypatch):
        self.recorded = 0
        self.passed = 0
        self.waited = []
        monkeypatch.setattr(torch.cuda, "Event", self.event)

    def event(self, *, enable_timing):
        assert enable_timing
        return PretendedEvent(self)


class PretendedEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.gpu.recorded += 1
        self.place = self.gpu.recorded

    def query(self):
        return self.gpu.passed >= self.place

    def synchronize(self):
        self.gpu.waited.append(self.place)
        self.gpu.passed = max(self.gpu.passed, self.place)

    def elapsed_time(self, end):
        assert self.query()
        assert end.query(), "an event that was not waited for has no time"
        return 1000.0 * (end.place - self.place)


@pytest.fixture
def gpu(monkeypatch):
    return PretendedGpu(monkeypatch)


def launch(clock, chunks, steps=16):
    for _ in range(chunks):
        with clock.chunk(steps):
            pass


def test_the_host_waits_only_for_a_chunk_that_others_follow(gpu):
    clock = StepClock(torch.device("cuda"))
    clock.start()
    launch(clock, CHUNKS_AHEAD)
    assert gpu.waited == []
    launch(clock, 3)
    assert gpu.waited == [1, 2, 3]
    assert not clock.is_done()
    clock.finish()
    assert gpu.waited == [1, 2, 3, 4, 5]
    assert clock.is_done()


def test_all_but_the_first_chunk_of_an_epoch_is_counted_once(gpu):
    clock = StepClock(torch.device("cuda"))
    for _ in range(2):
        clock.start()
        launch(clock, 4)
        launch(clock, 1, steps=7)
        clock.finish()
    assert clock.steps == 2 * (3 * 16 + 7)
    assert clock.seconds == pytest.approx(2 * 4)


def test_runs_that_share_a_gpu_share_its_time(gpu):
    clock = StepClock(torch.device("cuda"))
    clock.turns = 4
    clock.start()
    launch(clock, 3)
    clock.finish()
    assert (clock.steps, clock.seconds) == (32, pytest.approx(2 / 4))


def test_what_a_stopped_epoch_left_is_forgotten(gpu):
    clock = StepClock(torch.device("cuda"))
    clock.start()
    launch(clock, 1)
    clock.start()
    assert clock.is_done()
    launch(clock, 1)
    clock.finish()
    assert clock.steps == 0


def test_done_is_what_the_gpu_has_passed(gpu):
    clock = StepClock(torch.device("cuda"))
    clock.start()
    assert clock.is_done()
    launch(clock, 2)
    gpu.passed = 1
    assert not clock.is_done()
    gpu.passed = 2
    assert clock.is_done()


def test_a_cpu_is_timed_by_the_host_and_charged_to_nobody_else(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = StepClock(torch.device("cpu"))
    clock.turns = 3
    clock.start()
    for seconds in (9.0, 0.25, 0.5):
        with clock.chunk(1):
            now[0] += seconds
        # what other runs do in between
        now[0] += 100
    assert (clock.steps, clock.seconds) == (2, 0.75)
    assert clock.is_done()
    clock.finish()
